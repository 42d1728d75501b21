//! Frames as bytes (RFC 9113 §4.1, §6).

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;

pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;

pub(super) const NO_ERROR: u32 = 0;
pub(super) const REFUSED_STREAM: u32 = 7;

/// The length of the head of a frame.
pub(super) const HEAD_LEN: usize = 9;

/// The largest payload that may be sent to a peer that has not allowed more, and the largest that is taken.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;

/// A frame that has arrived.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The content of DATA, without padding.
    pub(super) fn content(&self) -> &[u8] {
        match self.payload.split_first() {
            Some((padding, rest)) if self.has(PADDED) => {
                &rest[..rest.len().saturating_sub(usize::from(*padding))]
            }
            _ => &self.payload,
        }
    }

    /// The first 32 bits of the payload, without the reserved one.
    pub(super) fn number(&self) -> u32 {
        self.payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff)
    }

    /// The value of a setting, if the frame has it.
    pub(super) fn setting(&self, id: u16) -> Option<u32> {
        self.payload.chunks_exact(6).find_map(|entry| match *entry {
            [a, b, c, d, e, f] if u16::from_be_bytes([a, b]) == id => Some(u32::from_be_bytes([c, d, e, f])),
            _ => None,
        })
    }
}

/// Appends a frame. The payload must not be longer than [`PAYLOAD_BYTES_MAX`].
pub(super) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} bytes", payload.len());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// SETTINGS with these entries.
pub(super) fn put_settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    let mut payload = Vec::new();
    for (id, value) in entries {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    put(out, SETTINGS, 0, 0, &payload);
}

/// A header block of fields that enter no table (RFC 7541 §6.2.2).
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Shorter than the 127 from which on a length takes more than a byte, and not Huffman encoded.
            debug_assert!(text.len() < 127, "{text}");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
