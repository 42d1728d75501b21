//! Frames and header blocks as byte strings, right or wrong as one likes.
#![allow(dead_code, reason = "a vocabulary, of which a case uses what it needs")]

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Frame types (RFC 9113 §6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

// Flags.
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;

// Settings (RFC 9113 §6.5.2).
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

// Error codes (RFC 9113 §7).
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// Any frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, stream, block)
}

pub(crate) fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, block)
}

pub(crate) fn data(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, content)
}

pub(crate) fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = entries
        .iter()
        .flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes()))
        .collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(crate) fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn reset_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn go_away(last_id: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last_id.to_be_bytes(), code.to_be_bytes()].concat())
}

pub(crate) fn ping(payload: [u8; 8]) -> Vec<u8> {
    frame(PING, 0, 0, &payload)
}

pub(crate) fn ping_ack(payload: &[u8]) -> Vec<u8> {
    frame(PING, ACK, 0, payload)
}

/// PRIORITY that makes a stream depend on none, with weight 16.
pub(crate) fn priority(stream: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 15])
}

/// A gRPC message: its prefix, uncompressed, and its body.
pub(crate) fn message(body: &[u8]) -> Vec<u8> {
    [&[0][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

// Header blocks: representations of RFC 7541 §6, to be concatenated.

/// An integer with a prefix of `bits` bits behind `pattern` (RFC 7541 §5.1).
pub(crate) fn integer(pattern: u8, bits: u32, value: usize) -> Vec<u8> {
    let prefix_max = (1 << bits) - 1;
    if value < prefix_max {
        return vec![pattern | value as u8];
    }
    let mut bytes = vec![pattern | prefix_max as u8];
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A string that is not Huffman encoded.
pub(crate) fn string(value: &[u8]) -> Vec<u8> {
    [integer(0, 7, value.len()), value.to_vec()].concat()
}

/// An indexed field. The first entry of the dynamic table has index 62.
pub(crate) fn indexed(index: usize) -> Vec<u8> {
    integer(0x80, 7, index)
}

/// A literal that enters the dynamic table.
pub(crate) fn inserted(name: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    [vec![0x40], string(name.as_bytes()), string(value.as_ref())].concat()
}

/// A literal that does not.
pub(crate) fn literal(name: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    [vec![0x00], string(name.as_bytes()), string(value.as_ref())].concat()
}

/// A dynamic table size update.
pub(crate) fn size_update(size: usize) -> Vec<u8> {
    integer(0x20, 5, size)
}

/// The normal request block for a method. It leaves the dynamic table alone.
pub(crate) fn request(path: &str) -> Vec<u8> {
    [
        literal(":method", "POST"),
        literal(":scheme", "http"),
        literal(":path", path),
        literal(":authority", "localhost"),
        literal("te", "trailers"),
        literal("content-type", "application/grpc"),
    ]
    .concat()
}

/// The normal block that opens a response. It leaves the dynamic table alone.
pub(crate) fn response() -> Vec<u8> {
    [literal(":status", "200"), literal("content-type", "application/grpc")].concat()
}

/// The normal block that ends a response with OK.
pub(crate) fn trailers_ok() -> Vec<u8> {
    literal("grpc-status", "0")
}
