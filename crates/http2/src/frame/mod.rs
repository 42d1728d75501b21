//! Frames on the wire (RFC 9113 §4, §6): reading heads and payloads, writing control frames.

mod head;
mod payload;
mod settings;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use head::{Head, Kind, flag};
pub(crate) use payload::{GoAway, HeadersPayload, depends_on, strip_padding, u32_at};
pub(crate) use settings::{Setting, entries};
pub(crate) use write::{
    finish_header_block, go_away, ping, reset_stream, settings, settings_ack, window_update,
};

/// Length of a frame head (RFC 9113 §4.1).
pub(crate) const HEAD_BYTES: usize = 9;

/// What a client sends first (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest stream id: 31 bits.
pub(crate) const STREAM_ID_MAX: u32 = (1 << 31) - 1;
