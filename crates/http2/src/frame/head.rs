use super::{HEAD_BYTES, STREAM_ID_MAX};
use crate::{Error, ErrorCode};

/// Flags of frames (RFC 9113 §6). Their meaning depends on the type of the frame.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The type of a frame (RFC 9113 §6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    ResetStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// A type of an extension; to be ignored (RFC 9113 §5.5).
    Unknown(u8),
}

impl Kind {
    #[inline]
    pub(crate) const fn as_u8(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::ResetStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::Unknown(kind) => kind,
        }
    }

    #[inline]
    const fn from_u8(kind: u8) -> Self {
        match kind {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            unknown => Self::Unknown(unknown),
        }
    }
}

/// The head of a frame (RFC 9113 §4.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Length of the payload in bytes.
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// 0 is the connection.
    pub(crate) stream_id: u32,
}

impl Head {
    /// Reads the head at the front of `bytes`, if it is all there. The reserved bit is ignored.
    #[inline]
    pub(crate) fn peek(bytes: &[u8]) -> Option<Self> {
        let &[l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: (u32::from_be_bytes([l0, l1, l2, kind]) >> 8) as usize,
            kind: Kind::from_u8(kind),
            flags,
            stream_id: u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_ID_MAX,
        })
    }

    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let [l0, l1, l2, kind] = ((self.length as u32) << 8 | u32::from(self.kind.as_u8())).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream_id.to_be_bytes();
        [l0, l1, l2, kind, self.flags, s0, s1, s2, s3]
    }

    #[inline]
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it is that of DATA or HEADERS, and [`check`](Self::check) finds nothing wrong with it.
    #[inline]
    pub(crate) fn is_ordinary(&self, frame_bytes_max: u32) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers)
            && self.stream_id != 0
            && self.length <= frame_bytes_max as usize
    }

    /// Everything that is wrong with a frame on any connection and shows in its head alone, so that no payload of such a frame
    /// is waited for.
    pub(crate) fn check(&self, frame_bytes_max: u32) -> Result<(), Error> {
        if self.length > frame_bytes_max as usize {
            return Err(size("frame larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        match self.kind {
            Kind::Data | Kind::Headers | Kind::Priority | Kind::ResetStream | Kind::Continuation
                if self.stream_id == 0 =>
            {
                Err(Error::protocol("frame of a stream on stream 0"))
            }
            Kind::Settings | Kind::Ping | Kind::GoAway if self.stream_id != 0 => {
                Err(Error::protocol("frame of the connection on a stream"))
            }
            Kind::ResetStream if self.length != 4 => Err(size("RST_STREAM that has not 4 bytes")),
            Kind::Settings if self.has(flag::ACK) && self.length != 0 => {
                Err(size("SETTINGS acknowledgement with a payload"))
            }
            Kind::Settings if !self.length.is_multiple_of(6) => {
                Err(size("SETTINGS whose length is not a multiple of 6"))
            }
            Kind::Ping if self.length != 8 => Err(size("PING that has not 8 bytes")),
            Kind::GoAway if self.length < 8 => Err(size("GOAWAY of less than 8 bytes")),
            Kind::WindowUpdate if self.length != 4 => Err(size("WINDOW_UPDATE that has not 4 bytes")),
            _ => Ok(()),
        }
    }
}

const fn size(text: &'static str) -> Error {
    Error::peer(ErrorCode::FrameSizeError, text)
}
