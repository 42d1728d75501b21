//! Frames as RFC 9113 §4.1 and §6 describe them, read and written a second time, so that the engine's own parser is not its judge.

/// What a client sends first (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;

pub(crate) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 0x4;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// One frame.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Frame<'f> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream_id: u32,
    pub(crate) payload: &'f [u8],
}

impl<'f> Frame<'f> {
    /// The frame at the front of `bytes` and what follows it; `None` if it is not all there.
    pub(crate) fn split(bytes: &'f [u8]) -> Option<(Self, &'f [u8])> {
        let (&[l0, l1, l2, kind, flags, s0, s1, s2, s3], rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        let stream_id = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        Some((Self { kind, flags, stream_id, payload }, rest))
    }

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number at `position` of the payload, which is there.
    pub(crate) fn u32_at(&self, position: usize) -> u32 {
        let bytes = self.payload[position..].first_chunk().expect("a payload of this size was checked for");
        u32::from_be_bytes(*bytes)
    }

    /// The entries of SETTINGS: id and value.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (u16, u32)> + use<'f> {
        self.payload.as_chunks::<6>().0.iter().map(|&[i0, i1, v0, v1, v2, v3]| {
            (u16::from_be_bytes([i0, i1]), u32::from_be_bytes([v0, v1, v2, v3]))
        })
    }
}

/// SETTINGS with one entry.
pub(crate) fn settings((id, value): (u16, u32)) -> Vec<u8> {
    let mut wire = Vec::new();
    let [v0, v1, v2, v3] = value.to_be_bytes();
    let [i0, i1] = id.to_be_bytes();
    write((SETTINGS, 0, 0), 6, &[i0, i1, v0, v1, v2, v3], &mut wire);
    wire
}

/// Appends a frame. `length` may be larger than the payload, of which the rest then does not arrive.
pub(crate) fn write(
    (kind, flags, stream_id): (u8, u8, u32),
    length: usize,
    payload: &[u8],
    wire: &mut Vec<u8>,
) {
    wire.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    wire.extend_from_slice(&[kind, flags]);
    wire.extend_from_slice(&stream_id.to_be_bytes());
    wire.extend_from_slice(payload);
}
