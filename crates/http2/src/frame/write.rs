//! Frames are appended to a vector whole. Header blocks are encoded in place behind a gap for their head, which
//! [`finish_header_block`] fills.

use super::{HEAD_BYTES, Head, Kind, Setting, flag};
use crate::ErrorCode;

pub(crate) fn settings(entries: impl Iterator<Item = Setting>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    entries.for_each(|entry| out.extend_from_slice(&entry.to_bytes()));
    let length = out.len() - start - HEAD_BYTES;
    let head = Head { length, kind: Kind::Settings, flags: 0, stream_id: 0 };
    out[start..start + HEAD_BYTES].copy_from_slice(&head.to_bytes());
}

pub(crate) fn settings_ack(out: &mut Vec<u8>) {
    write_head(out, 0, Kind::Settings, flag::ACK, 0);
}

pub(crate) fn ping(payload: [u8; 8], ack: bool, out: &mut Vec<u8>) {
    write_head(out, 8, Kind::Ping, if ack { flag::ACK } else { 0 }, 0);
    out.extend_from_slice(&payload);
}

pub(crate) fn go_away(last_id: u32, code: ErrorCode, debug: &[u8], out: &mut Vec<u8>) {
    write_head(out, 8 + debug.len(), Kind::GoAway, 0, 0);
    out.extend_from_slice(&last_id.to_be_bytes());
    out.extend_from_slice(&code.as_u32().to_be_bytes());
    out.extend_from_slice(debug);
}

pub(crate) fn reset_stream(stream_id: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write_head(out, 4, Kind::ResetStream, 0, stream_id);
    out.extend_from_slice(&code.as_u32().to_be_bytes());
}

pub(crate) fn window_update(stream_id: u32, increment: u32, out: &mut Vec<u8>) {
    write_head(out, 4, Kind::WindowUpdate, 0, stream_id);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Makes frames of the header block that was encoded from `start + HEAD_BYTES` on: HEADERS, and where it is larger than
/// `frame_bytes_max`, CONTINUATION behind it.
#[inline(always)]
pub(crate) fn finish_header_block(
    stream_id: u32,
    end_stream: bool,
    frame_bytes_max: usize,
    start: usize,
    out: &mut Vec<u8>,
) {
    let block_bytes = out.len() - start - HEAD_BYTES;
    if block_bytes <= frame_bytes_max {
        let flags = flag::END_HEADERS | if end_stream { flag::END_STREAM } else { 0 };
        let head = Head { length: block_bytes, kind: Kind::Headers, flags, stream_id };
        if let Some(gap) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *gap = head.to_bytes();
        }
        return;
    }
    split_header_block(stream_id, end_stream, frame_bytes_max, start, out);
}

#[cold]
fn split_header_block(
    stream_id: u32,
    end_stream: bool,
    frame_bytes_max: usize,
    start: usize,
    out: &mut Vec<u8>,
) {
    let block_bytes = out.len() - start - HEAD_BYTES;
    let frames = block_bytes.div_ceil(frame_bytes_max);
    make_gaps(start, frames, frame_bytes_max, out);
    for frame in 0..frames {
        let first = frame == 0;
        let last = frame + 1 == frames;
        let head = Head {
            length: (block_bytes - frame * frame_bytes_max).min(frame_bytes_max),
            kind: if first { Kind::Headers } else { Kind::Continuation },
            flags: if last { flag::END_HEADERS } else { 0 }
                | if first && end_stream { flag::END_STREAM } else { 0 },
            stream_id,
        };
        let at = start + frame * (HEAD_BYTES + frame_bytes_max);
        out[at..at + HEAD_BYTES].copy_from_slice(&head.to_bytes());
    }
}

/// Moves the parts of a header block apart for the heads of its CONTINUATION frames, the last part first.
fn make_gaps(start: usize, frames: usize, frame_bytes_max: usize, out: &mut Vec<u8>) {
    let end = out.len();
    out.resize(end + (frames - 1) * HEAD_BYTES, 0);
    for frame in (1..frames).rev() {
        let from = start + HEAD_BYTES + frame * frame_bytes_max;
        let to = end.min(from + frame_bytes_max);
        out.copy_within(from..to, from + frame * HEAD_BYTES);
    }
}

fn write_head(out: &mut Vec<u8>, length: usize, kind: Kind, flags: u8, stream_id: u32) {
    out.extend_from_slice(&Head { length, kind, flags, stream_id }.to_bytes());
}
