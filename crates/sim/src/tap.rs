use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::IoSlice;
use std::rc::Rc;

use fulmar_base::{Instant, Output};
use fulmar_hpack::{DecodeLimits, Decoder, FieldList, TABLE_BYTES_INITIAL};
use fulmar_http2::{Config, Role};

use crate::Trace;
use crate::caller::CALL_ID;
use crate::referee::Referee;
use crate::wire::{self, Frame};

/// Which call is on which stream of a connection, for both of its ends.
pub(crate) type SharedCalls = Rc<RefCell<BTreeMap<u32, u64>>>;

/// Watches one end of a connection: a [`Referee`] judges what it takes and writes, and a person who wants a log gets a line for each
/// frame.
pub(crate) struct Tap {
    referee: Referee,
    scribe: Scribe,
}

impl Tap {
    pub(crate) fn new(role: Role, config: &Config, calls: SharedCalls) -> Self {
        Self { referee: Referee::new(role, config), scribe: Scribe::new(role, calls) }
    }

    /// Nothing is open, waits or is under way.
    pub(crate) fn check_at_rest(&self) {
        self.referee.check_at_rest();
        self.referee.check_credit();
    }

    /// Whether SETTINGS could come next, behind what the end has taken.
    pub(crate) fn may_take_settings(&self) -> bool {
        self.referee.may_take_settings()
    }

    /// The end has taken whole frames.
    pub(crate) fn on_taken(&mut self, bytes: &[u8]) {
        self.referee.on_taken(bytes);
    }

    /// The end may have written something.
    pub(crate) fn on_written(&mut self, now: Instant, name: &str, out: &Output, trace: &mut Trace) {
        self.referee.on_written(out);
        if trace.has_log() {
            self.scribe.on_written(now, name, out, trace);
        }
    }

    /// The first bytes of what was written have left.
    pub(crate) fn on_left(&mut self, bytes: usize) {
        self.referee.on_left(bytes);
        self.scribe.seen = self.scribe.seen.saturating_sub(bytes);
    }
}

/// Writes down the frames of one end.
struct Scribe {
    role: Role,
    calls: SharedCalls,
    /// How many bytes of the output have been read and have not left.
    seen: usize,
    preface_seen: bool,
    block: Vec<u8>,
    decoder: Decoder,
    fields: FieldList,
}

impl Scribe {
    fn new(role: Role, calls: SharedCalls) -> Self {
        Self {
            role,
            calls,
            seen: 0,
            preface_seen: role == Role::Server,
            block: Vec::new(),
            decoder: Decoder::new(TABLE_BYTES_INITIAL),
            fields: FieldList::new(),
        }
    }

    fn on_written(&mut self, now: Instant, name: &str, out: &Output, trace: &mut Trace) {
        let mut slices = [IoSlice::new(&[]); 128];
        let filled = out.slices(&mut slices);
        let all: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut bytes = &all[self.seen.min(all.len())..];
        self.seen = all.len();
        if !self.preface_seen && !bytes.is_empty() {
            self.preface_seen = true;
            bytes = bytes.strip_prefix(wire::PREFACE).unwrap_or(bytes);
        }
        while let Some((frame, rest)) = Frame::split(bytes) {
            bytes = rest;
            self.read_call(&frame);
            let text = describe(&frame, &self.calls.borrow());
            trace.line(now, || format!("{name:<12}   {text}"));
        }
    }

    /// Requests tell in their metadata which call they are.
    fn read_call(&mut self, frame: &Frame<'_>) {
        if self.role == Role::Server || !matches!(frame.kind, wire::HEADERS | wire::CONTINUATION) {
            return;
        }
        self.block.extend_from_slice(frame.payload);
        if !frame.has(wire::END_HEADERS) {
            return;
        }
        let limits = DecodeLimits { list_bytes_max: 1 << 24, fields_max: 1 << 16, string_bytes_max: 1 << 24 };
        let block = std::mem::take(&mut self.block);
        if self.decoder.decode(&block, &limits, &mut self.fields).is_ok() {
            let call = self.fields.iter().find(|field| field.name == CALL_ID.as_bytes());
            let id = call.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
            id.map(|id| self.calls.borrow_mut().insert(frame.stream_id, id));
        }
    }
}

/// A frame in words.
fn describe(frame: &Frame<'_>, calls: &BTreeMap<u32, u64>) -> String {
    const NAMES: [&str; 10] = [
        "DATA",
        "HEADERS",
        "PRIORITY",
        "RST_STREAM",
        "SETTINGS",
        "PUSH_PROMISE",
        "PING",
        "GOAWAY",
        "WINDOW_UPDATE",
        "CONTINUATION",
    ];
    let mut text = NAMES.get(usize::from(frame.kind)).copied().unwrap_or("unknown frame").to_owned();
    let number = |at: usize| frame.payload.get(at..at + 4).map_or(0, |_| frame.u32_at(at));
    let _ = match frame.kind {
        wire::RST_STREAM => write!(text, " code {:#x}", number(0)),
        wire::WINDOW_UPDATE => write!(text, " by {}", number(0)),
        wire::GOAWAY => {
            let debug = String::from_utf8_lossy(frame.payload.get(8..).unwrap_or_default());
            write!(text, " last stream {} code {:#x} {debug}", number(0), number(4))
        }
        wire::SETTINGS => frame.settings().try_for_each(|(id, value)| write!(text, " {id:#x}={value}")),
        _ => write!(text, " of {} bytes", frame.payload.len()),
    };
    if frame.stream_id > 0 {
        let _ = write!(text, " on stream {}", frame.stream_id);
    }
    if let Some(call) = calls.get(&frame.stream_id) {
        let _ = write!(text, " of call {call}");
    }
    let ends = matches!(frame.kind, wire::DATA | wire::HEADERS) && frame.has(wire::END_STREAM);
    let acknowledges = matches!(frame.kind, wire::SETTINGS | wire::PING) && frame.has(wire::ACK);
    text + if ends {
        ", END_STREAM"
    } else if acknowledges {
        ", ACK"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_described_with_its_stream_and_its_call() {
        let mut bytes = Vec::new();
        wire::write((wire::DATA, wire::END_STREAM, 5), 3, b"abc", &mut bytes);
        wire::write((wire::SETTINGS, wire::ACK, 0), 0, b"", &mut bytes);
        wire::write((wire::RST_STREAM, 0, 7), 4, &[0, 0, 0, 8], &mut bytes);
        let calls = BTreeMap::from([(5, 17)]);
        let mut lines = Vec::new();
        let mut rest = &bytes[..];
        while let Some((frame, behind)) = Frame::split(rest) {
            lines.push(describe(&frame, &calls));
            rest = behind;
        }
        assert_eq!(
            lines,
            [
                "DATA of 3 bytes on stream 5 of call 17, END_STREAM",
                "SETTINGS, ACK",
                "RST_STREAM code 0x8 on stream 7"
            ]
        );
    }
}
