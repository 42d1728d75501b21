use super::{Head, STREAM_ID_MAX, flag};
use crate::{Error, ErrorCode};

/// The number at `position`; 0 where the payload is too short, which [`Head::check`] has ruled out.
pub(crate) fn u32_at(payload: &[u8], position: usize) -> u32 {
    let bytes = payload.get(position..).and_then(<[u8]>::first_chunk::<4>);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The payload of a DATA or HEADERS frame without its padding (RFC 9113 §6.1, §6.2).
pub(crate) fn strip_padding<'p>(head: &Head, payload: &'p [u8]) -> Result<&'p [u8], Error> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let Some((&padding, rest)) = payload.split_first() else {
        return Err(Error::peer(ErrorCode::FrameSizeError, "padded frame without a padding length"));
    };
    rest.len()
        .checked_sub(usize::from(padding))
        .and_then(|length| rest.get(..length))
        .ok_or(Error::protocol("padding longer than its frame"))
}

/// The stream that a priority says to depend on. Priorities are read and ignored (RFC 9113 §5.3.2), except that a stream cannot
/// depend on itself (RFC 7540 §5.3.1).
pub(crate) fn depends_on(priority: &[u8]) -> u32 {
    u32_at(priority, 0) & STREAM_ID_MAX
}

/// The payload of a HEADERS frame (RFC 9113 §6.2).
#[derive(Copy, Clone, Debug)]
pub(crate) struct HeadersPayload<'p> {
    /// The header block, or its first part.
    pub(crate) fragment: &'p [u8],
    /// Whether the stream is said to depend on itself.
    pub(crate) self_dependent: bool,
}

impl<'p> HeadersPayload<'p> {
    pub(crate) fn parse(head: &Head, payload: &'p [u8]) -> Result<Self, Error> {
        let unpadded = strip_padding(head, payload)?;
        if !head.has(flag::PRIORITY) {
            return Ok(Self { fragment: unpadded, self_dependent: false });
        }
        let (priority, fragment) = unpadded
            .split_at_checked(5)
            .ok_or(Error::peer(ErrorCode::FrameSizeError, "HEADERS too short for its priority"))?;
        Ok(Self { fragment, self_dependent: depends_on(priority) == head.stream_id })
    }
}

/// The payload of a GOAWAY frame (RFC 9113 §6.8).
#[derive(Copy, Clone, Debug)]
pub(crate) struct GoAway<'p> {
    pub(crate) last_id: u32,
    pub(crate) code: ErrorCode,
    pub(crate) debug: &'p [u8],
}

impl<'p> GoAway<'p> {
    pub(crate) fn parse(payload: &'p [u8]) -> Self {
        Self {
            last_id: u32_at(payload, 0) & STREAM_ID_MAX,
            code: ErrorCode::from_u32(u32_at(payload, 4)),
            debug: payload.get(8..).unwrap_or_default(),
        }
    }
}
