//! The peer of the scripts.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_hpack::{DecodeLimits, Decoder, Encoder, FieldList};
use fulmar_http2::{Config, Connection, Error, ErrorCode, Event, Field, Role, StreamKey};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Numbers of settings (RFC 9113 §6.5.2).
pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

pub(crate) type Pairs = Vec<(String, String)>;

pub(crate) fn pairs(list: &[(&str, &str)]) -> Pairs {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The header section of a good request.
pub(crate) fn request() -> Pairs {
    pairs(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "peer")])
}

pub(crate) fn ok() -> Pairs {
    pairs(&[(":status", "200")])
}

pub(crate) fn trailers() -> Pairs {
    pairs(&[("grpc-status", "0")])
}

pub(crate) fn fields(pairs: &Pairs) -> impl Iterator<Item = Field<'_>> + Clone {
    pairs.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()))
}

/// A frame, as a person writes it down. Header blocks are whole: CONTINUATION is joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    Data { id: u32, bytes: Vec<u8>, end: bool },
    Headers { id: u32, fields: Pairs, end: bool },
    Reset { id: u32, code: ErrorCode },
    Settings(Vec<(u16, u32)>),
    SettingsAck,
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway { last_id: u32, code: ErrorCode, debug: String },
    WindowUpdate { id: u32, increment: u32 },
    Raw { kind: u8, flags: u8, id: u32, payload: Vec<u8> },
}

pub(crate) fn data(id: u32, bytes: impl AsRef<[u8]>) -> Frame {
    Frame::Data { id, bytes: bytes.as_ref().to_vec(), end: false }
}

pub(crate) fn last_data(id: u32, bytes: impl AsRef<[u8]>) -> Frame {
    Frame::Data { id, bytes: bytes.as_ref().to_vec(), end: true }
}

pub(crate) fn headers(id: u32, fields: Pairs) -> Frame {
    Frame::Headers { id, fields, end: false }
}

pub(crate) fn last_headers(id: u32, fields: Pairs) -> Frame {
    Frame::Headers { id, fields, end: true }
}

pub(crate) fn reset(id: u32, code: ErrorCode) -> Frame {
    Frame::Reset { id, code }
}

pub(crate) fn window_update(id: u32, increment: u32) -> Frame {
    Frame::WindowUpdate { id, increment }
}

pub(crate) fn raw(kind: u8, flags: u8, id: u32, payload: impl AsRef<[u8]>) -> Frame {
    Frame::Raw { kind, flags, id, payload: payload.as_ref().to_vec() }
}

/// An event without borrows, by stream id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    Headers { id: u32, fields: Pairs, end: bool },
    Data { id: u32, bytes: Vec<u8>, end: bool },
    Writable(u32),
    Reset { id: u32, code: ErrorCode, unprocessed: bool },
    GoAway { last_id: u32, code: ErrorCode },
    Pong([u8; 8]),
    Ready,
    Closed(u32),
    StreamSlotFree,
}

/// The other end of the engine under test.
pub(crate) struct Peer {
    pub(crate) engine: Connection,
    pub(crate) pool: Pool,
    pub(crate) out: Output,
    pub(crate) now: Instant,
    /// What the engine has sent and the script has not looked at.
    wire: Vec<u8>,
    /// What the engine has not read yet.
    unread: Vec<u8>,
    /// How many bytes the engine is given at a time.
    pub(crate) chunk: usize,
    happened: VecDeque<Happened>,
    pub(crate) error: Option<Error>,
    keys: HashMap<u32, StreamKey>,
    ids: HashMap<StreamKey, u32>,
    encoder: Encoder,
    decoder: Decoder,
}

impl Peer {
    /// A peer that has not said anything yet.
    pub(crate) fn silent(role: Role, config: Config) -> Self {
        Self::silent_before(Connection::new(role, config))
    }

    /// A peer of an engine that has not said anything yet.
    pub(crate) fn silent_before(engine: Connection) -> Self {
        let mut peer = Self {
            engine,
            pool: Pool::new(),
            out: Output::new(),
            now: Instant::from_nanos(1),
            wire: Vec::new(),
            unread: Vec::new(),
            chunk: usize::MAX,
            happened: VecDeque::new(),
            error: None,
            keys: HashMap::new(),
            ids: HashMap::new(),
            encoder: Encoder::new(4096),
            decoder: Decoder::new(4096),
        };
        peer.act(|_, _| ());
        peer
    }

    /// The client of a server under test, after the handshake.
    pub(crate) fn of_server(config: Config) -> Self {
        let mut peer = Self::silent(Role::Server, config);
        peer.shakes_hands(&[]);
        peer
    }

    /// The server of a client under test, after the handshake.
    pub(crate) fn of_client(config: Config) -> Self {
        let mut peer = Self::silent(Role::Client, config);
        peer.shakes_hands(&[]);
        peer
    }

    /// Exchanges prefaces; the peer's SETTINGS say `settings`.
    pub(crate) fn shakes_hands(&mut self, settings: &[(u16, u32)]) {
        match self.engine.role() {
            Role::Server => self.sends_bytes(PREFACE),
            Role::Client => assert_eq!(self.takes_bytes(PREFACE.len()), PREFACE),
        }
        self.sends(Frame::Settings(settings.to_vec()));
        self.sends(Frame::SettingsAck);
        assert!(matches!(self.next_frame(), Some(Frame::Settings(_))));
        if self.wire.get(3) == Some(&8) {
            assert!(matches!(self.next_frame(), Some(Frame::WindowUpdate { id: 0, .. })));
        }
        self.expects(Frame::SettingsAck);
        self.expects_event(Happened::Ready);
        self.expects_silence();
    }

    /// Does something with the engine, then drives it.
    pub(crate) fn act<R>(&mut self, verb: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        let mut env = Env { now: self.now, pool: &mut self.pool, out: &mut self.out };
        let result = verb(&mut self.engine, &mut env);
        self.drive(0);
        result
    }

    pub(crate) fn sends(&mut self, frame: Frame) {
        let bytes = self.encode(frame);
        self.sends_bytes(&bytes);
    }

    /// All frames in one read of the engine.
    pub(crate) fn sends_at_once(&mut self, frames: impl IntoIterator<Item = Frame>) {
        let bytes: Vec<u8> = frames.into_iter().flat_map(|frame| self.encode(frame)).collect();
        self.sends_bytes(&bytes);
    }

    pub(crate) fn sends_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(self.chunk.min(bytes.len().max(1))) {
            self.unread.extend_from_slice(chunk);
            self.drive(self.unread.len());
        }
    }

    /// Sends, and reads nothing of what comes back. Returns the error of the engine and how many bytes of output wait.
    pub(crate) fn is_not_read(&mut self, bytes: &[u8]) -> (Option<Error>, usize) {
        let input = Input::new(bytes);
        let mut env = Env { now: self.now, pool: &mut self.pool, out: &mut self.out };
        loop {
            match self.engine.next_event(&mut env, &input) {
                Ok(Some(_)) => {}
                Ok(None) => return (None, env.out.len()),
                Err(error) => return (Some(error), env.out.len()),
            }
        }
    }

    #[track_caller]
    pub(crate) fn expects(&mut self, frame: Frame) {
        let sent = self.next_frame();
        assert!(
            sent.as_ref() == Some(&frame),
            "the engine sent {}\ninstead of {}\nevents: {}\nerror: {:?}",
            brief(&sent),
            brief(&frame),
            brief(&self.happened),
            self.error
        );
    }

    #[track_caller]
    pub(crate) fn expects_event(&mut self, happened: Happened) {
        let first = self.happened.pop_front();
        assert!(
            first.as_ref() == Some(&happened),
            "the engine told {}\ninstead of {}\nerror: {:?}",
            brief(&first),
            brief(&happened),
            self.error
        );
    }

    /// Neither a frame nor an event is left.
    #[track_caller]
    pub(crate) fn expects_silence(&mut self) {
        assert_eq!(self.next_frame(), None);
        assert_eq!(self.happened, []);
        assert_eq!(self.error, None);
    }

    /// GOAWAY with this code, and the same error from the engine, for good.
    #[track_caller]
    pub(crate) fn expects_connection_error(&mut self, code: ErrorCode) {
        let error = self.error.clone().expect("the engine has found no error");
        assert_eq!(error.code, code, "{error}");
        loop {
            match self.next_frame() {
                Some(Frame::GoAway { code: sent, debug, .. }) => {
                    assert_eq!((sent, debug.as_str()), (code, &*error.text));
                    break;
                }
                Some(_) => {}
                None => panic!("no GOAWAY"),
            }
        }
        assert_eq!(self.next_frame(), None, "something behind the GOAWAY");
        self.sends(Frame::Ping([0; 8]));
        assert_eq!(self.error, Some(error));
        assert_eq!(self.next_frame(), None, "something behind the GOAWAY");
    }

    /// The frames that are there, in order.
    pub(crate) fn takes_frames(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }

    pub(crate) fn takes_events(&mut self) -> Vec<Happened> {
        self.happened.drain(..).collect()
    }

    /// The content of the DATA frames that are there, joined; all frames have to be DATA of this stream.
    #[track_caller]
    pub(crate) fn takes_data(&mut self, stream_id: u32) -> Vec<u8> {
        let frames = self.takes_frames();
        let content = frames.into_iter().flat_map(|frame| match frame {
            Frame::Data { id, bytes, .. } if id == stream_id => bytes,
            other => panic!("not DATA of stream {stream_id}: {other:?}"),
        });
        content.collect()
    }

    pub(crate) fn takes_bytes(&mut self, n: usize) -> Vec<u8> {
        self.wire.drain(..n).collect()
    }

    /// All that the engine has sent, as it is on the wire.
    pub(crate) fn takes_wire(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wire)
    }

    /// The peer, a client, opens a stream; the application sees it.
    #[track_caller]
    pub(crate) fn requests(&mut self, id: u32, end: bool) {
        self.sends(Frame::Headers { id, fields: request(), end });
        self.expects_event(Happened::Headers { id, fields: request(), end });
    }

    /// The client under test opens a stream; the peer sees it.
    #[track_caller]
    pub(crate) fn is_requested(&mut self, end: bool) -> u32 {
        let key = self.act(|client, env| client.open(env, fields(&request()), end)).unwrap();
        let id = self.learn(key);
        self.expects(Frame::Headers { id, fields: request(), end });
        id
    }

    pub(crate) fn key(&self, id: u32) -> StreamKey {
        self.keys[&id]
    }

    pub(crate) fn learn(&mut self, key: StreamKey) -> u32 {
        let id = self.engine.stream_id(key).unwrap();
        self.keys.insert(id, key);
        self.ids.insert(key, id);
        id
    }

    pub(crate) fn answers(&mut self, id: u32, list: &Pairs, end: bool) {
        let key = self.key(id);
        self.act(|engine, env| engine.send_headers(env, key, fields(list), end)).unwrap();
    }

    pub(crate) fn answers_data(&mut self, id: u32, bytes: &[u8], end: bool) {
        let key = self.key(id);
        self.act(|engine, env| engine.send_data(env, key, bytes, end)).unwrap();
    }

    pub(crate) fn releases(&mut self, id: u32, bytes: usize) {
        let key = self.key(id);
        self.act(|engine, env| engine.release(env, key, bytes));
    }

    pub(crate) fn waits(&mut self, time: Duration) {
        self.now = self.now + time;
        let mut env = Env { now: self.now, pool: &mut self.pool, out: &mut self.out };
        let result = self.engine.on_deadline(&mut env);
        if let Err(error) = result {
            self.error = Some(error);
        }
        self.drive(0);
    }

    pub(crate) fn encode(&mut self, frame: Frame) -> Vec<u8> {
        match frame {
            Frame::Data { id, bytes, end } => assemble(0, u8::from(end), id, &bytes),
            Frame::Headers { id, fields: list, end } => {
                let block = self.encode_block(&list);
                assemble(1, END_HEADERS | u8::from(end), id, &block)
            }
            Frame::Reset { id, code } => assemble(3, 0, id, &code.as_u32().to_be_bytes()),
            Frame::Settings(entries) => {
                let entry = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
                assemble(4, 0, 0, &entries.iter().flat_map(entry).collect::<Vec<_>>())
            }
            Frame::SettingsAck => assemble(4, 1, 0, &[]),
            Frame::Ping(payload) => assemble(6, 0, 0, &payload),
            Frame::Pong(payload) => assemble(6, 1, 0, &payload),
            Frame::GoAway { last_id, code, debug } => {
                let payload =
                    [&last_id.to_be_bytes()[..], &code.as_u32().to_be_bytes(), debug.as_bytes()].concat();
                assemble(7, 0, 0, &payload)
            }
            Frame::WindowUpdate { id, increment } => assemble(8, 0, id, &increment.to_be_bytes()),
            Frame::Raw { kind, flags, id, payload } => assemble(kind, flags, id, &payload),
        }
    }

    pub(crate) fn encode_block(&mut self, list: &Pairs) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.encode(fields(list), &mut block);
        block
    }

    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        let (kind, flags, id, payload) = self.next_raw()?;
        let end = flags & END_STREAM != 0;
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        Some(match kind {
            0 => Frame::Data { id, bytes: payload, end },
            1 => {
                let mut block = payload;
                let mut last = flags & END_HEADERS != 0;
                while !last {
                    let (kind, flags, continued, part) = self.next_raw().expect("CONTINUATION");
                    assert_eq!((kind, continued), (9, id), "something between the parts of a header block");
                    block.extend_from_slice(&part);
                    last = flags & END_HEADERS != 0;
                }
                let mut list = FieldList::new();
                let limits =
                    DecodeLimits { list_bytes_max: 1 << 20, string_bytes_max: 1 << 20, fields_max: 1_000 };
                self.decoder.decode(&block, &limits, &mut list).expect("a header block that decodes");
                Frame::Headers { id, fields: owned(list.iter()), end }
            }
            3 => Frame::Reset { id, code: ErrorCode::from_u32(number(0)) },
            4 if flags & 1 != 0 => Frame::SettingsAck,
            4 => Frame::Settings(
                payload
                    .chunks(6)
                    .map(|entry| {
                        let id = u16::from_be_bytes(entry[..2].try_into().unwrap());
                        (id, u32::from_be_bytes(entry[2..].try_into().unwrap()))
                    })
                    .collect(),
            ),
            6 if flags & 1 != 0 => Frame::Pong(payload.try_into().unwrap()),
            6 => Frame::Ping(payload.try_into().unwrap()),
            7 => Frame::GoAway {
                last_id: number(0),
                code: ErrorCode::from_u32(number(4)),
                debug: String::from_utf8(payload[8..].to_vec()).unwrap(),
            },
            8 => Frame::WindowUpdate { id, increment: number(0) },
            _ => Frame::Raw { kind, flags, id, payload },
        })
    }

    /// The next frame without a look into it.
    pub(crate) fn next_raw(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        if self.wire.is_empty() {
            return None;
        }
        let length = u32::from_be_bytes([0, self.wire[0], self.wire[1], self.wire[2]]) as usize;
        let (kind, flags) = (self.wire[3], self.wire[4]);
        let id = u32::from_be_bytes(self.wire[5..9].try_into().unwrap());
        let payload = self.wire[9..9 + length].to_vec();
        self.wire.drain(..9 + length);
        Some((kind, flags, id, payload))
    }

    /// The loop of the contract, with all output taken.
    fn drive(&mut self, available: usize) {
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread[..available]);
        loop {
            let mut env = Env { now: self.now, pool: &mut self.pool, out: &mut self.out };
            match self.engine.next_event(&mut env, &input) {
                Ok(Some(event)) => {
                    let happened = self.own(&event);
                    self.happened.push_back(happened);
                }
                Ok(None) => {
                    self.engine.transmit(&mut env);
                    let progress = !env.out.is_empty();
                    self.out.move_to(&mut self.wire);
                    if !self.engine.has_events() && !progress {
                        break;
                    }
                }
                Err(error) => {
                    self.error = Some(error);
                    self.out.move_to(&mut self.wire);
                    break;
                }
            }
        }
        self.unread = unread[input.consumed()..].to_vec();
    }

    fn own(&mut self, event: &Event<'_>) -> Happened {
        match *event {
            Event::Headers { stream, end } => {
                let id = self.learn(stream);
                Happened::Headers { id, fields: owned(self.engine.fields()), end }
            }
            Event::Data { stream, bytes, end } => {
                assert!(self.engine.user(stream).is_some(), "the key serves for the last DATA too");
                Happened::Data { id: self.ids[&stream], bytes: bytes.to_vec(), end }
            }
            Event::Writable { stream } => Happened::Writable(self.ids[&stream]),
            Event::Reset { stream, code, unprocessed, .. } => {
                assert_eq!(self.engine.user(stream), None, "the key of a reset stream is gone");
                Happened::Reset { id: self.ids[&stream], code, unprocessed }
            }
            Event::GoAway { last_id, code, .. } => Happened::GoAway { last_id, code },
            Event::Pong { payload } => Happened::Pong(payload),
            Event::Ready => Happened::Ready,
            Event::Closed { stream, .. } => {
                assert_eq!(self.engine.user(stream), None, "the key of a closed stream is gone");
                Happened::Closed(self.ids[&stream])
            }
            Event::StreamSlotFree => Happened::StreamSlotFree,
        }
    }
}

/// What fits a screen of the `Debug` form.
fn brief(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 1_000 {
        text.truncate(1_000);
        text.push('…');
    }
    text
}

pub(crate) fn assemble(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

pub(crate) fn owned<'f>(fields: impl Iterator<Item = Field<'f>>) -> Pairs {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.map(|field| (text(field.name), text(field.value))).collect()
}
