//! Watches the wire of one HTTP/2 engine: what it has taken, and what it writes.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

use fulmar_base::Output;
use fulmar_hpack::{DecodeLimits, Decoder, FieldList, TABLE_BYTES_INITIAL};
use fulmar_http2::{Config, Role};

use crate::wire::{self, Frame};

/// The largest window (RFC 9113 §6.9.1), and every window at first (§6.9.2).
const WINDOW_MAX: i64 = (1 << 31) - 1;
const WINDOW_INITIAL: i64 = 65_535;

const SETTINGS_HEADER_TABLE_SIZE: u16 = 0x1;
const SETTINGS_MAX_FRAME_SIZE: u16 = 0x5;

/// Knows of a connection what can be seen on the wire, and panics when the engine writes what it may not:
///
/// - anything but whole, well-formed frames of the types it needs, no larger than the peer allows, the preface first;
/// - a header block that is torn, or does not decode;
/// - a frame on a stream that is idle, that it has reset, or whose sending side it has ended;
/// - DATA beyond a window of the peer, or while the output is full; credit that no window could need;
/// - an acknowledgement that nobody asked for, or another than the next; GOAWAY with a rising last stream.
pub(crate) struct Referee {
    role: Role,
    /// How many bytes of the output have been seen and have not left.
    seen: usize,
    /// What has been seen and is no whole frame yet.
    unread: Vec<u8>,
    prefaces: Prefaces,
    streams: BTreeMap<u32, Stream>,
    /// The highest id of a stream that was opened.
    last_id: u32,
    send_window: i64,
    /// What the peer may send on the connection.
    receive_window: i64,
    /// How large its window is at first, and how large it may become.
    receive_window_min: i64,
    receive_window_max: i64,
    /// The same for a stream, which may begin with less.
    stream_receive_window: i64,
    stream_receive_window_max: i64,
    peer: PeerSettings,
    /// Whether the last frame taken has left a header block open.
    peer_block_open: bool,
    /// SETTINGS that were taken and not acknowledged.
    settings_owed: VecDeque<Vec<(u16, u32)>>,
    /// Streams that the peer has reset in what was taken last: what has been written since may have come before.
    resets_taken: Vec<u32>,
    pings_owed: VecDeque<[u8; 8]>,
    /// Stream and flags of the header block that has begun, and its bytes.
    header_block: Option<(u32, Vec<u8>)>,
    decoder: Decoder,
    fields: FieldList,
    /// The last stream of the last GOAWAY written.
    pub(crate) go_away: Option<u32>,
    /// How many frames were written.
    pub(crate) frames: u64,
}

/// Whose preface has been seen, and whose first SETTINGS.
#[derive(Default)]
struct Prefaces {
    taken: bool,
    settings_taken: bool,
    written: bool,
    settings: bool,
}

struct PeerSettings {
    initial_window: i64,
    frame_bytes_max: usize,
}

/// What this end may do on a stream.
#[derive(Default)]
struct Stream {
    send_window: i64,
    receive_window: i64,
    headers_sent: bool,
    ended: bool,
    reset: bool,
    reset_by_peer: bool,
}

impl Referee {
    pub(crate) fn new(role: Role, config: &Config) -> Self {
        let connection_window = i64::from(config.connection_window_bytes).max(WINDOW_INITIAL);
        let stream_window = i64::from(config.stream_window_bytes).max(WINDOW_INITIAL);
        let growth = config.window_bytes_max.saturating_sub(config.stream_window_bytes);
        Self {
            role,
            seen: 0,
            unread: Vec::new(),
            prefaces: Prefaces::default(),
            streams: BTreeMap::new(),
            last_id: 0,
            send_window: WINDOW_INITIAL,
            receive_window: WINDOW_INITIAL,
            receive_window_min: connection_window,
            receive_window_max: connection_window.max(config.window_bytes_max.into()),
            stream_receive_window: stream_window,
            stream_receive_window_max: stream_window + i64::from(growth),
            peer: PeerSettings { initial_window: WINDOW_INITIAL, frame_bytes_max: 16_384 },
            peer_block_open: false,
            settings_owed: VecDeque::new(),
            resets_taken: Vec::new(),
            pings_owed: VecDeque::new(),
            header_block: None,
            decoder: Decoder::new(TABLE_BYTES_INITIAL),
            fields: FieldList::new(),
            go_away: None,
            frames: 0,
        }
    }

    /// The engine has taken these bytes of the peer: whole frames, which need not be good ones.
    pub(crate) fn on_taken(&mut self, mut bytes: &[u8]) {
        if self.role == Role::Server && !self.prefaces.taken && !bytes.is_empty() {
            bytes = bytes.strip_prefix(wire::PREFACE).expect("a server takes nothing before the preface");
            self.prefaces.taken = true;
        }
        while let Some((frame, rest)) = Frame::split(bytes) {
            self.on_taken_frame(frame);
            bytes = rest;
        }
        assert!(bytes.is_empty(), "the engine has taken a part of a frame");
    }

    /// Whether the engine may be shown SETTINGS next: it knows the first ones, and is not within a header block.
    pub(crate) fn may_take_settings(&self) -> bool {
        self.prefaces.settings_taken && !self.peer_block_open
    }

    /// Looks at what is new in the output.
    pub(crate) fn on_written(&mut self, out: &Output) {
        let mut slices = [IoSlice::new(&[]); 128];
        let filled = out.slices(&mut slices);
        let mut skip = self.seen;
        for slice in &slices[..filled] {
            let skipped = skip.min(slice.len());
            self.unread.extend_from_slice(&slice[skipped..]);
            skip -= skipped;
        }
        assert_eq!(slices[..filled].iter().map(|slice| slice.len()).sum::<usize>(), out.len());
        self.seen = out.len();
        let unread = std::mem::take(&mut self.unread);
        let mut bytes = &unread[..];
        if self.role == Role::Client && !self.prefaces.written && !bytes.is_empty() {
            bytes = bytes.strip_prefix(wire::PREFACE).expect("a client writes the preface first");
            self.prefaces.written = true;
        }
        while let Some((frame, rest)) = Frame::split(bytes) {
            let waited = out.len() - bytes.len();
            let may_wait =
                frame.kind != wire::DATA || frame.payload.is_empty() || waited < Output::SOFT_LIMIT;
            assert!(may_wait, "DATA, although {waited} bytes wait already");
            self.on_written_frame(frame);
            bytes = rest;
        }
        assert!(bytes.is_empty(), "the engine has written a part of a frame");
        for id in self.resets_taken.drain(..) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.reset_by_peer = true;
            }
        }
        self.unread = unread;
        self.unread.clear();
    }

    /// The first bytes of the output have left.
    pub(crate) fn on_left(&mut self, bytes: usize) {
        self.seen -= bytes;
    }

    /// An engine that has taken all and may write owes no answer and is not within a header block.
    pub(crate) fn check_at_rest(&self) {
        assert!(self.settings_owed.is_empty(), "SETTINGS were not acknowledged");
        assert!(self.pings_owed.is_empty(), "PING was not answered");
        assert!(self.header_block.is_none(), "a header block was not ended");
    }

    /// An end that is at rest has given back the credit that the peer used up on the connection, but for a part that is not yet worth
    /// a frame.
    pub(crate) fn check_credit(&self) {
        let (left, size) = (self.receive_window, self.receive_window_min);
        assert!(left >= size / 2, "of {size} bytes of connection credit only {left} are left");
    }

    fn on_taken_frame(&mut self, frame: Frame<'_>) {
        let Frame { kind, stream_id, payload, .. } = frame;
        self.peer_block_open =
            matches!(kind, wire::HEADERS | wire::CONTINUATION) && !frame.has(wire::END_HEADERS);
        match kind {
            wire::DATA => {
                self.receive_window -= payload.len() as i64;
                if let Some(stream) = self.streams.get_mut(&stream_id) {
                    stream.receive_window -= payload.len() as i64;
                }
            }
            wire::HEADERS if self.role == Role::Server && stream_id > self.last_id && stream_id % 2 == 1 => {
                self.open(stream_id);
            }
            wire::RST_STREAM => self.resets_taken.push(stream_id),
            wire::SETTINGS if !frame.has(wire::ACK) => {
                self.prefaces.settings_taken = true;
                self.settings_owed.push_back(frame.settings().collect());
            }
            wire::PING if !frame.has(wire::ACK) && payload.len() == 8 => {
                self.pings_owed.push_back(*payload.first_chunk().expect("eight bytes"));
            }
            wire::WINDOW_UPDATE if payload.len() == 4 => {
                let increment = i64::from(frame.u32_at(0) & 0x7fff_ffff);
                if stream_id == 0 {
                    self.send_window += increment;
                } else if let Some(stream) = self.streams.get_mut(&stream_id) {
                    stream.send_window += increment;
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, id: u32) {
        self.last_id = id;
        let send_window = self.peer.initial_window;
        let receive_window = self.stream_receive_window;
        self.streams.insert(id, Stream { send_window, receive_window, ..Stream::default() });
    }

    fn on_written_frame(&mut self, frame: Frame<'_>) {
        self.frames += 1;
        assert!(frame.payload.len() <= self.peer.frame_bytes_max, "frame larger than the peer takes");
        if !self.prefaces.settings {
            assert!(frame.kind == wire::SETTINGS && !frame.has(wire::ACK), "the first frame is not SETTINGS");
            self.prefaces.settings = true;
        }
        let continues = frame.kind == wire::CONTINUATION;
        let expected = self.header_block.as_ref().map(|&(id, _)| id);
        assert_eq!(
            expected,
            continues.then_some(frame.stream_id),
            "header block torn, or none to go on with"
        );
        match frame.kind {
            wire::DATA => self.on_written_data(frame),
            wire::HEADERS => self.on_written_headers(frame),
            wire::CONTINUATION => self.on_written_fragment(frame),
            wire::RST_STREAM => {
                assert_eq!(frame.payload.len(), 4);
                assert!(is_used(frame.stream_id, self.last_id), "RST_STREAM on an idle stream");
                self.streams.entry(frame.stream_id).or_default().reset = true;
            }
            wire::SETTINGS => self.on_written_settings(frame),
            wire::PING => self.on_written_ping(frame),
            wire::GOAWAY => self.on_written_go_away(frame),
            wire::WINDOW_UPDATE => self.on_written_credit(frame),
            kind => panic!("a frame of type {kind:#x}, which nobody needs"),
        }
    }

    fn on_written_data(&mut self, frame: Frame<'_>) {
        assert_eq!(frame.flags & !wire::END_STREAM, 0, "flags of DATA: {:#x}", frame.flags);
        let length = frame.payload.len() as i64;
        let stream = self.streams.get_mut(&frame.stream_id).expect("DATA on an idle stream");
        assert!(!stream.ended && !stream.reset, "DATA on stream {}, which has ended", frame.stream_id);
        assert!(!stream.reset_by_peer, "DATA on stream {}, which the peer has reset", frame.stream_id);
        assert!(stream.headers_sent, "DATA before the headers");
        stream.send_window -= length;
        self.send_window -= length;
        let windows = (stream.send_window, self.send_window);
        assert!(length == 0 || windows.0 >= 0 && windows.1 >= 0, "DATA beyond a window: {windows:?}");
        stream.ended = frame.has(wire::END_STREAM);
    }

    fn on_written_headers(&mut self, frame: Frame<'_>) {
        assert_eq!(frame.flags & !(wire::END_STREAM | wire::END_HEADERS), 0, "flags of HEADERS");
        let id = frame.stream_id;
        if self.role == Role::Client && id > self.last_id {
            assert_eq!(id, self.last_id + if self.last_id == 0 { 1 } else { 2 }, "ids rise by two");
            self.open(id);
        }
        let stream = self.streams.get_mut(&id).expect("HEADERS on an idle stream");
        assert!(!stream.ended && !stream.reset, "HEADERS on stream {id}, which has ended");
        stream.headers_sent = true;
        stream.ended = frame.has(wire::END_STREAM);
        self.header_block = Some((id, Vec::new()));
        self.on_written_fragment(frame);
    }

    fn on_written_fragment(&mut self, frame: Frame<'_>) {
        let Some((_, block)) = &mut self.header_block else { return };
        block.extend_from_slice(frame.payload);
        if !frame.has(wire::END_HEADERS) {
            return;
        }
        let limits = DecodeLimits { list_bytes_max: 1 << 24, fields_max: 1 << 16, string_bytes_max: 1 << 24 };
        self.decoder.decode(block, &limits, &mut self.fields).expect("a header block decodes");
        self.header_block = None;
    }

    /// What the peer's SETTINGS say holds from their acknowledgement on.
    fn on_written_settings(&mut self, frame: Frame<'_>) {
        assert_eq!(frame.stream_id, 0);
        if !frame.has(wire::ACK) {
            return assert!(frame.payload.len().is_multiple_of(6));
        }
        assert!(frame.payload.is_empty());
        let before = self.peer.initial_window;
        for (id, value) in self.settings_owed.pop_front().expect("acknowledgement of nothing") {
            match id {
                SETTINGS_HEADER_TABLE_SIZE => {
                    self.decoder.set_table_bytes_max((value as usize).min(TABLE_BYTES_INITIAL));
                }
                wire::SETTINGS_INITIAL_WINDOW_SIZE => self.peer.initial_window = i64::from(value),
                SETTINGS_MAX_FRAME_SIZE => self.peer.frame_bytes_max = value as usize,
                _ => {}
            }
        }
        let delta = self.peer.initial_window - before;
        self.streams.values_mut().for_each(|stream| stream.send_window += delta);
    }

    fn on_written_ping(&mut self, frame: Frame<'_>) {
        assert_eq!((frame.stream_id, frame.payload.len()), (0, 8));
        if frame.has(wire::ACK) {
            let owed = self.pings_owed.pop_front().expect("answer to no PING");
            assert_eq!(frame.payload, owed, "answer to another PING");
        }
    }

    fn on_written_go_away(&mut self, frame: Frame<'_>) {
        assert_eq!(frame.stream_id, 0);
        let last_id = frame.u32_at(0);
        assert!(self.go_away.is_none_or(|earlier| last_id <= earlier), "GOAWAY with a rising last stream");
        self.go_away = Some(last_id);
        assert!(frame.u32_at(4) < 0xe, "a code that RFC 9113 §7 does not know");
    }

    fn on_written_credit(&mut self, frame: Frame<'_>) {
        let increment = frame.u32_at(0);
        assert!((1..=WINDOW_MAX as u32).contains(&increment) && frame.payload.len() == 4);
        if frame.stream_id == 0 {
            self.receive_window += i64::from(increment);
            return assert!(self.receive_window <= self.receive_window_max, "too much connection credit");
        }
        let stream = self.streams.get_mut(&frame.stream_id).expect("WINDOW_UPDATE on an idle stream");
        assert!(!stream.reset, "WINDOW_UPDATE on a stream that was reset");
        stream.receive_window += i64::from(increment);
        assert!(stream.receive_window <= self.stream_receive_window_max, "too much stream credit");
    }
}

/// Whether a client's stream with this id has been opened, or skipped.
fn is_used(id: u32, last_id: u32) -> bool {
    id % 2 == 1 && id <= last_id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, flags and stream; and the payload.
    type Written = ((u8, u8, u32), &'static [u8]);

    const END_STREAM_AND_HEADERS: u8 = wire::END_STREAM | wire::END_HEADERS;

    /// A server's referee after the handshake: the client has opened stream 1, its windows take 100 bytes and its frames 16,384.
    fn referee() -> (Referee, Output) {
        let mut referee = Referee::new(Role::Server, &Config::default());
        let mut taken = wire::PREFACE.to_vec();
        wire::write((wire::SETTINGS, 0, 0), 6, &[0, 4, 0, 0, 0, 100], &mut taken);
        wire::write((wire::HEADERS, wire::END_HEADERS, 1), 1, &[0x82], &mut taken);
        referee.on_taken(&taken);
        let mut out = Output::new();
        wire::write((wire::SETTINGS, 0, 0), 0, &[], out.bytes_mut());
        wire::write((wire::SETTINGS, wire::ACK, 0), 0, &[], out.bytes_mut());
        wire::write((wire::HEADERS, wire::END_HEADERS, 1), 1, &[0x88], out.bytes_mut());
        referee.on_written(&out);
        (referee, out)
    }

    /// Whether the referee lets these frames pass.
    fn passes(frames: &[Written]) -> bool {
        let (mut referee, mut out) = referee();
        for (head, payload) in frames {
            wire::write(*head, payload.len(), payload, out.bytes_mut());
        }
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| referee.on_written(&out))).is_ok()
    }

    #[test]
    fn what_is_legal_passes() {
        assert!(passes(&[
            ((wire::DATA, 0, 1), &[0; 60]),
            ((wire::DATA, 0, 1), &[0; 40]),
            ((wire::DATA, wire::END_STREAM, 1), &[]),
            ((wire::RST_STREAM, 0, 1), &[0; 4]),
            ((wire::GOAWAY, 0, 0), &[0, 0, 0, 1, 0, 0, 0, 0]),
        ]));
    }

    #[test]
    fn each_rule_can_be_broken() {
        let broken: [&[Written]; 14] = [
            &[((wire::DATA, 0, 1), &[0; 101])],
            &[((wire::DATA, 0, 1), &[0; 60]), ((wire::DATA, 0, 1), &[0; 41])],
            &[((wire::DATA, 0, 3), &[])],
            &[((wire::DATA, wire::END_STREAM, 1), &[]), ((wire::DATA, 0, 1), &[])],
            &[((wire::RST_STREAM, 0, 1), &[0; 4]), ((wire::DATA, 0, 1), &[])],
            &[((wire::RST_STREAM, 0, 1), &[0; 4]), ((wire::HEADERS, END_STREAM_AND_HEADERS, 1), &[0x88])],
            &[((wire::HEADERS, 0, 1), &[0x88]), ((wire::PING, 0, 0), &[0; 8])],
            &[((wire::HEADERS, END_STREAM_AND_HEADERS, 1), &[0xff; 3])],
            &[((wire::SETTINGS, wire::ACK, 0), &[])],
            &[((wire::PING, wire::ACK, 0), &[0; 8])],
            &[((wire::WINDOW_UPDATE, 0, 1), &[0x7f, 0xff, 0xff, 0xff])],
            &[((wire::WINDOW_UPDATE, 0, 0), &[0; 4])],
            &[((wire::GOAWAY, 0, 0), &[0; 8]), ((wire::GOAWAY, 0, 0), &[0, 0, 0, 1, 0, 0, 0, 0])],
            &[((wire::HEADERS, wire::END_HEADERS, 1), &[0; 20_000])],
        ];
        let passed: Vec<_> = (0..broken.len()).filter(|&n| passes(broken[n])).collect();
        assert_eq!(passed, [0; 0]);
    }
}
