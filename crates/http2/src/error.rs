use std::borrow::Cow;
use std::fmt;

use fulmar_base::{Closed, Fault};

/// Why a stream or a connection ended, as RST_STREAM and GOAWAY frames carry it (RFC 9113 §7).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ErrorCode {
    /// No error: a graceful end.
    NoError,
    /// The peer broke a rule of the protocol for which there is no more specific code.
    ProtocolError,
    /// Something unexpected happened at the sender of the code.
    InternalError,
    /// A window of flow control was exceeded or overflowed.
    FlowControlError,
    /// SETTINGS were not acknowledged in time.
    SettingsTimeout,
    /// A frame arrived for a stream that no longer receives any.
    StreamClosed,
    /// A frame has an impossible size.
    FrameSizeError,
    /// The stream was refused before any of it was processed: safe to try again.
    RefusedStream,
    /// The stream is no longer needed.
    Cancel,
    /// A header block could not be decoded; the compression tables are out of step.
    CompressionError,
    /// The connection of a CONNECT request was reset.
    ConnectError,
    /// The peer causes more load than it may.
    EnhanceYourCalm,
    /// TLS is weaker than HTTP/2 demands.
    InadequateSecurity,
    /// The server wants HTTP/1.1 instead.
    Http11Required,
    /// A code that RFC 9113 does not know; to be treated like [`InternalError`](Self::InternalError).
    Unknown(u32),
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn as_u32(self) -> u32 {
        match self {
            Self::NoError => 0x0,
            Self::ProtocolError => 0x1,
            Self::InternalError => 0x2,
            Self::FlowControlError => 0x3,
            Self::SettingsTimeout => 0x4,
            Self::StreamClosed => 0x5,
            Self::FrameSizeError => 0x6,
            Self::RefusedStream => 0x7,
            Self::Cancel => 0x8,
            Self::CompressionError => 0x9,
            Self::ConnectError => 0xa,
            Self::EnhanceYourCalm => 0xb,
            Self::InadequateSecurity => 0xc,
            Self::Http11Required => 0xd,
            Self::Unknown(code) => code,
        }
    }

    /// The code of a number on the wire; any number is one.
    pub const fn from_u32(code: u32) -> Self {
        match code {
            0x0 => Self::NoError,
            0x1 => Self::ProtocolError,
            0x2 => Self::InternalError,
            0x3 => Self::FlowControlError,
            0x4 => Self::SettingsTimeout,
            0x5 => Self::StreamClosed,
            0x6 => Self::FrameSizeError,
            0x7 => Self::RefusedStream,
            0x8 => Self::Cancel,
            0x9 => Self::CompressionError,
            0xa => Self::ConnectError,
            0xb => Self::EnhanceYourCalm,
            0xc => Self::InadequateSecurity,
            0xd => Self::Http11Required,
            unknown => Self::Unknown(unknown),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoError => "NO_ERROR",
            Self::ProtocolError => "PROTOCOL_ERROR",
            Self::InternalError => "INTERNAL_ERROR",
            Self::FlowControlError => "FLOW_CONTROL_ERROR",
            Self::SettingsTimeout => "SETTINGS_TIMEOUT",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::FrameSizeError => "FRAME_SIZE_ERROR",
            Self::RefusedStream => "REFUSED_STREAM",
            Self::Cancel => "CANCEL",
            Self::CompressionError => "COMPRESSION_ERROR",
            Self::ConnectError => "CONNECT_ERROR",
            Self::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            Self::InadequateSecurity => "INADEQUATE_SECURITY",
            Self::Http11Required => "HTTP_1_1_REQUIRED",
            Self::Unknown(code) => return write!(f, "error code {code:#x}"),
        })
    }
}

/// How far an [`Error`] reaches (RFC 9113 §5.4).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// One stream ends; the connection goes on.
    Stream,
    /// The whole connection ends.
    Connection,
    /// The whole connection ends, and nothing gets across any more: there is no use in telling the peer.
    Transport,
}

/// What went wrong on a connection, whose fault it was, and how far it reaches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Who did it.
    pub fault: Fault,
    /// One stream, or the whole connection.
    pub reach: Reach,
    /// The code that the peer is told.
    pub code: ErrorCode,
    /// What happened, for people; also the debug data of the GOAWAY frame.
    pub text: Cow<'static, str>,
}

impl Error {
    /// A connection error that the peer has caused.
    pub(crate) const fn peer(code: ErrorCode, text: &'static str) -> Self {
        Self { fault: Fault::Peer, reach: Reach::Connection, code, text: Cow::Borrowed(text) }
    }

    /// A connection error of type PROTOCOL_ERROR that the peer has caused.
    pub(crate) const fn protocol(text: &'static str) -> Self {
        Self::peer(ErrorCode::ProtocolError, text)
    }

    /// The peer went beyond a limit of the configuration, which `text` names.
    pub(crate) const fn calm(text: &'static str) -> Self {
        Self::peer(ErrorCode::EnhanceYourCalm, text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reach = match self.reach {
            Reach::Stream => "stream",
            Reach::Connection | Reach::Transport => "connection",
        };
        write!(f, "HTTP/2 {reach} error {}: {}", self.code, self.text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for Closed {
    fn from(error: Error) -> Self {
        let closed = Self { fault: error.fault, ..Self::peer(error.to_string()) };
        if error.reach == Reach::Transport {
            closed.lost().caused_by(std::io::ErrorKind::TimedOut)
        } else {
            closed
        }
    }
}

/// Why [`Connection::open`](crate::Connection::open) opened no stream. Nothing went on the wire and no stream id was used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// As many streams are open as the peer allows (RFC 9113 §5.1.2), or too much output waits on it. Queue, and try again at
    /// [`Event::StreamSlotFree`](crate::Event::StreamSlotFree).
    LimitReached,
    /// One end has sent GOAWAY, or the connection has failed: take another connection.
    GoingAway,
    /// All stream ids of the connection are used (RFC 9113 §5.1.1): take another connection.
    Exhausted,
    /// The header list is larger than the peer takes (SETTINGS_MAX_HEADER_LIST_SIZE).
    HeadersTooLarge {
        /// Size of the list: names, values and 32 bytes a field.
        size: usize,
        /// The most that the peer takes.
        limit: usize,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitReached => {
                f.write_str("as many streams are open as the peer allows; wait for one to end")
            }
            Self::GoingAway => f.write_str("the connection is going away; take another one"),
            Self::Exhausted => f.write_str("all stream ids of the connection are used; take another one"),
            Self::HeadersTooLarge { size, limit } => too_large(f, *size, *limit),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why nothing was sent on a stream. Windows are never a reason: what may not leave is queued.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The stream has ended, was reset, or its sending side has been ended already.
    Gone,
    /// The header list is larger than the peer takes (SETTINGS_MAX_HEADER_LIST_SIZE).
    HeadersTooLarge {
        /// Size of the list: names, values and 32 bytes a field.
        size: usize,
        /// The most that the peer takes.
        limit: usize,
    },
    /// A mistake of the caller: DATA before the headers, or a second header section that does not end the stream
    /// (RFC 9113 §8.1).
    Misplaced,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the stream has ended"),
            Self::HeadersTooLarge { size, limit } => too_large(f, *size, *limit),
            Self::Misplaced => {
                f.write_str("DATA before headers, or headers behind headers that end no stream")
            }
        }
    }
}

impl std::error::Error for SendError {}

fn too_large(f: &mut fmt::Formatter<'_>, size: usize, limit: usize) -> fmt::Result {
    write!(f, "the header list has {size} bytes, the peer takes {limit}")
}
