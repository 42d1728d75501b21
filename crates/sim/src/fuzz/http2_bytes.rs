//! Any bytes into one HTTP/2 engine.

mod shape;

use std::collections::BTreeMap;
use std::time::Duration;

use fulmar_base::{Env, Fault, Input, Instant, Output, Pool};
use fulmar_http2::{
    Connection, Error, ErrorCode, Event, Field, Memory, OpenError, Reach, Role, SendError, Sends, StreamKey,
};

use self::shape::{Chunking, Shape};
use super::bytes::Bytes;
use crate::Random;
use crate::referee::Referee;
use crate::wire::{self, Frame};

/// The most that the user sends at a time.
const SENT_BYTES_MAX: usize = 30_000;

/// Gives a server what the data say, in pieces, while its user does what a seed says.
///
/// The first byte is the shape of the run and the second the seed; the rest is the wire, as it is or in short frames. What
/// must hold:
///
/// - no panic; events in an order that streams allow, each stream ended once, fields well-formed and within their limits;
/// - everything is drained: without an event there is no more of one, and at most the beginning of a frame is left;
/// - what comes out stands before a referee, and is bounded although the peer does not read;
/// - the bytes that the user has not taken are within the window, and every part of the engine's memory within its bound;
/// - an error is a connection error, told with GOAWAY, and sticky; after closing all blocks are back in the pool;
/// - with a user who only listens, events and output do not depend on how the wire is cut.
pub fn http2_server_bytes(data: &[u8]) {
    run(Role::Server, data);
}

/// The same as [`http2_server_bytes`] for a client, whose user opens streams as well.
pub fn http2_client_bytes(data: &[u8]) {
    run(Role::Client, data);
}

fn run(role: Role, data: &[u8]) {
    let mut input = Bytes::new(data);
    let shape = Shape(input.byte());
    let seed = input.byte() as u64;
    let wire = shape.wire(role, input);
    let log = Subject::new(role, shape, seed).converse(&wire, shape.chunking());
    if shape.listens() {
        let whole = Subject::new(role, shape, seed).converse(&wire, Chunking::Whole);
        assert!(log == whole, "another conversation when the wire is cut otherwise");
    }
}

/// What the user knows of a stream.
#[derive(Default)]
struct Talk {
    id: u32,
    /// The header section of the peer that is no interim one has arrived.
    headers: bool,
    /// The peer has ended it.
    ended: bool,
    /// Bytes taken over and not released.
    held: usize,
}

/// What a conversation came to: events, output, and how it ended.
#[derive(PartialEq, Eq)]
struct Log {
    events: Vec<String>,
    output: Vec<u8>,
    end: Option<Error>,
}

/// An engine, its user, and the two ends of its wire.
struct Subject {
    shape: Shape,
    random: Random,
    engine: Connection,
    memory_max: Memory,
    pool: Pool,
    out: Output,
    now: Instant,
    referee: Referee,
    /// Arrived and not taken.
    unread: Vec<u8>,
    talks: BTreeMap<StreamKey, Talk>,
    pings: Vec<[u8; 8]>,
    /// Blocks that the user has sent.
    blocks_sent: usize,
    log: Log,
}

impl Subject {
    fn new(role: Role, shape: Shape, seed: u64) -> Self {
        let config = shape.config();
        Self {
            shape,
            random: Random::new(seed),
            memory_max: config.memory_max(&Sends { data_bytes_max: SENT_BYTES_MAX, ..Sends::default() }),
            referee: Referee::new(role, &config),
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            now: Instant::from_nanos(1 << 40),
            unread: Vec::new(),
            talks: BTreeMap::new(),
            pings: Vec::new(),
            blocks_sent: 0,
            log: Log { events: Vec::new(), output: Vec::new(), end: None },
        }
    }

    /// Until the wire or the connection ends.
    fn converse(mut self, mut wire: &[u8], chunking: Chunking) -> Log {
        self.begin();
        while !wire.is_empty() && self.log.end.is_none() {
            let length = match chunking {
                Chunking::Whole => wire.len(),
                Chunking::Bytewise => 1,
                Chunking::Small => 1 + self.random.magnitude(40),
                Chunking::Large => 1 + self.random.magnitude(4000),
            };
            let (chunk, rest) = wire.split_at(length.min(wire.len()));
            wire = rest;
            self.unread.extend_from_slice(chunk);
            self.turn();
        }
        self.end();
        self.log
    }

    fn begin(&mut self) {
        let requests = if self.engine.role() == Role::Client { 3 } else { 0 };
        for method in [&b"GET"[..], b"HEAD", b"POST"].into_iter().take(requests) {
            let end = self.shape.listens() || method != b"POST";
            let opened = self.act(|engine, env| engine.open(env, request(method), end));
            self.on_opened(opened.expect("streams are assumed to be allowed"));
        }
        self.transmit();
    }

    /// Bytes have arrived: the loop contract, once around.
    fn turn(&mut self) {
        let received = self.receive();
        if let Err(error) = received.and_then(|()| self.pass_time()) {
            return self.on_error(error);
        }
        if !self.shape.listens() && self.random.one_in(3) {
            self.do_something();
        }
        self.transmit();
        // Events that came of transmitting; the input is the same.
        if let Err(error) = self.receive() {
            return self.on_error(error);
        }
        assert!(!self.engine.has_events(), "an event is left");
        self.check_bounds();
        if !self.shape.deaf() {
            self.drain_output();
        }
    }

    fn receive(&mut self) -> Result<(), Error> {
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        let result = loop {
            let before = input.consumed();
            let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
            let event = self.engine.next_event(&mut env, &input);
            self.referee.on_taken(&unread[before..input.consumed()]);
            self.referee.on_written(&self.out);
            match event {
                Ok(Some(event)) => self.on_event(&event),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.unread.extend_from_slice(input.remaining());
        if result.is_ok() {
            self.check_drained();
        }
        result
    }

    /// Nothing is left but the beginning of a frame or of the preface.
    fn check_drained(&self) {
        assert!(!self.engine.has_events(), "an event was kept back");
        let frame_begun = Frame::split(&self.unread).is_none();
        let preface_begun = wire::PREFACE.starts_with(&self.unread);
        assert!(frame_begun || preface_begun, "a whole frame was kept back");
    }

    fn on_event(&mut self, event: &Event<'_>) {
        if self.shape.listens() {
            self.log.events.push(format!("{event:?}"));
        }
        match *event {
            Event::Headers { stream, end } => self.on_headers(stream, end),
            Event::Data { stream, bytes, end } => self.on_data(stream, bytes, end),
            Event::Writable { stream } => {
                assert!(self.talks.contains_key(&stream) && self.engine.may_queue(stream) > 0);
                if self.random.one_in(2) {
                    self.send_something(stream);
                }
            }
            Event::Reset { stream, user, .. } | Event::Closed { stream, user } => {
                let talk = self.talks.remove(&stream).expect("a stream ends once");
                assert_eq!(user, u64::from(talk.id), "the user's number was lost");
                assert_eq!(self.engine.user(stream), None, "a key of a stream that has ended");
                assert_eq!(
                    self.act(|engine, env| engine.send_data(env, stream, b"late", true)),
                    Err(SendError::Gone)
                );
            }
            Event::Pong { payload } => {
                let sent = self.pings.iter().position(|&sent| sent == payload).expect("an answer to a ping");
                self.pings.remove(sent);
            }
            Event::GoAway { .. } => {
                let opened = self.act(|engine, env| engine.open(env, request(b"GET"), true));
                assert_eq!(opened, Err(OpenError::GoingAway));
            }
            Event::Ready | Event::StreamSlotFree => {}
        }
    }

    fn on_headers(&mut self, stream: StreamKey, end: bool) {
        self.check_fields();
        let status = self.engine.fields().find(|field| field.name == b":status").map(|field| field.value);
        let interim = matches!(status, Some(&[b'1', b'0'..=b'9', b'0'..=b'9']));
        if self.engine.role() == Role::Server && !self.talks.contains_key(&stream) {
            let id = self.engine.stream_id(stream).expect("a stream that has just begun");
            self.engine.set_user(stream, id.into());
            self.talks.insert(stream, Talk { id, ..Talk::default() });
        }
        let talk = self.talks.get_mut(&stream).expect("headers on a stream that is there");
        assert!(!talk.ended, "headers behind the end");
        assert!(!talk.headers || end, "a second header section that does not end the stream");
        talk.headers |= !interim;
        talk.ended = end;
        if !self.shape.listens() && self.engine.role() == Role::Server {
            self.answer(stream);
        }
    }

    /// RFC 9113 §8: what a user may rely on.
    fn check_fields(&self) {
        let config = self.engine.config();
        let (mut size, mut regular) = (0, false);
        for Field { name, value, .. } in self.engine.fields() {
            size += name.len() + value.len() + 32;
            let pseudo = name.starts_with(b":");
            assert!(!(pseudo && regular), "a pseudo-header field behind a regular one");
            regular |= !pseudo;
            let plain = |&byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
            assert!(!name.is_empty() && name.iter().all(plain), "a name that is not allowed");
            assert!(!value.iter().any(|byte| b"\0\r\n".contains(byte)), "a value that is not allowed");
        }
        assert!(size <= config.header_list_bytes_max as usize);
        assert!(self.engine.fields().len() <= config.header_fields_max as usize);
    }

    fn on_data(&mut self, stream: StreamKey, bytes: &[u8], end: bool) {
        let talk = self.talks.get_mut(&stream).expect("DATA on a stream that is there");
        assert!(talk.headers && !talk.ended, "DATA before the headers, or behind the end");
        assert!(end || !bytes.is_empty(), "an event of nothing");
        talk.ended = end;
        talk.held += bytes.len();
        let config = self.engine.config();
        let window = config.stream_window_bytes.max(65_535).max(config.window_bytes_max) as usize;
        assert!(talk.held <= window, "more than a window is held");
        let released = if self.shape.listens() { talk.held } else { self.random.within(0..=talk.held) };
        talk.held -= released;
        self.act(|engine, env| engine.release(env, stream, released));
        if !self.shape.listens() && self.random.one_in(3) {
            self.send_something(stream);
        }
    }

    fn answer(&mut self, stream: StreamKey) {
        match self.random.within(0..=7) {
            0 => {}
            1 => self.reset(stream),
            2 => {
                let early = [Field::new(b":status", b"103")];
                self.act(|engine, env| engine.send_headers(env, stream, early, false)).ok();
            }
            deed => {
                let response = [Field::new(b":status", b"200"), Field::new(b"server", b"fulmar")];
                let end = deed == 3;
                self.act(|engine, env| engine.send_headers(env, stream, response, end)).ok();
                self.send_something(stream);
            }
        }
    }

    /// Sends content in one of the ways there are, and perhaps the end.
    fn send_something(&mut self, stream: StreamKey) {
        let length = self.random.magnitude(self.engine.may_queue(stream).min(SENT_BYTES_MAX));
        let end = self.random.one_in(3);
        let content = vec![b'f'; length];
        let way = self.random.within(0..=5);
        self.blocks_sent += 1;
        self.act(|engine, env| match way {
            0 => engine.send_shared(env, stream, content.into(), end),
            1 => {
                let mut block = env.pool.take(length);
                block.extend_from_slice(&content);
                engine.send_block(env, stream, block, end)
            }
            2 => engine.begin_data(env, stream, length, end).map(|begun| {
                if begun {
                    env.out.extend_from_slice(&content);
                }
            }),
            3 => engine.send_headers(env, stream, [Field::new(b"checksum", b"31")], true),
            _ => engine.send_data(env, stream, &content, end),
        })
        .ok();
        if self.random.one_in(8) {
            self.act(|engine, env| engine.reset_after_end(env, stream, ErrorCode::NoError));
            // It stays until its end is reported, unless that was a plain reset.
            self.forget_if_gone(stream);
        }
    }

    fn reset(&mut self, stream: StreamKey) {
        self.act(|engine, env| engine.reset(env, stream, ErrorCode::Cancel));
        self.forget_if_gone(stream);
    }

    /// A stream that the user has reset has no event of its end; one that both ends have ended still gets it.
    fn forget_if_gone(&mut self, stream: StreamKey) {
        if self.engine.user(stream).is_none() {
            self.talks.remove(&stream);
        }
    }

    /// Something out of the blue.
    fn do_something(&mut self) {
        let nth = self.random.within(0..=7);
        let Some(&stream) = self.talks.keys().nth(nth % self.talks.len().max(1)) else {
            return self.do_to_connection();
        };
        match self.random.within(0..=5) {
            0 => self.reset(stream),
            1 => {
                let held = std::mem::take(&mut self.talks.get_mut(&stream).expect("it is there").held);
                // More than was received is no credit.
                self.act(|engine, env| engine.release(env, stream, held.saturating_mul(3)));
            }
            2..=3 => self.send_something(stream),
            _ => self.do_to_connection(),
        }
    }

    fn do_to_connection(&mut self) {
        match self.random.within(0..=15) {
            0 => self.act(|engine, env| engine.drain(env)),
            1 => self.act(|engine, env| engine.go_away(env, ErrorCode::NoError, b"enough")),
            2..=4 => {
                let payload = self.random.bits().to_be_bytes();
                self.pings.push(payload);
                self.act(|engine, env| engine.ping(env, payload));
            }
            _ if self.engine.role() == Role::Client => {
                let (post, end) = (self.random.one_in(2), self.random.one_in(2));
                let method: &[u8] = if post { b"POST" } else { b"GET" };
                if let Ok(stream) = self.act(|engine, env| engine.open(env, request(method), end)) {
                    self.on_opened(stream);
                }
            }
            _ => {}
        }
    }

    fn on_opened(&mut self, stream: StreamKey) {
        let id = self.engine.stream_id(stream).expect("a stream that has just begun");
        self.engine.set_user(stream, id.into());
        self.talks.insert(stream, Talk { id, ..Talk::default() });
    }

    fn pass_time(&mut self) -> Result<(), Error> {
        if !self.shape.timed() || self.shape.listens() {
            return Ok(());
        }
        let passed_ms = if self.random.one_in(40) { 11_000 } else { self.random.magnitude(200) };
        self.now = self.now + Duration::from_millis(passed_ms as u64);
        if self.engine.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.act(|engine, env| engine.on_deadline(env))?;
            assert!(
                self.engine.next_deadline().is_none_or(|deadline| deadline > self.now),
                "a stale deadline"
            );
        }
        Ok(())
    }

    fn transmit(&mut self) {
        self.act(|engine, env| engine.transmit(env));
    }

    /// Calls the engine, before the referee's eyes.
    fn act<R>(&mut self, deed: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
        let result = deed(&mut self.engine, &mut env);
        self.referee.on_written(&self.out);
        result
    }

    fn drain_output(&mut self) {
        self.referee.on_left(self.out.len());
        self.out.move_to(&mut self.log.output);
        if !self.shape.listens() {
            self.log.output.clear();
        }
    }

    fn check_bounds(&self) {
        let config = self.engine.config();
        assert!(self.engine.streams() <= self.talks.len(), "a stream that the user does not know");
        if self.engine.role() == Role::Server {
            assert!(self.engine.streams() <= config.streams_max as usize);
        }
        // DATA stops at the soft limit, everything else at output_bytes_max, each at most one frame behind it.
        let output_bytes_max = config.output_bytes_max.max(Output::SOFT_LIMIT) + 100_000;
        assert!(self.out.len() <= output_bytes_max, "{} bytes of output wait", self.out.len());
        let memory = self.engine.memory();
        for ((part, bytes), (_, bytes_max)) in memory.parts().into_iter().zip(self.memory_max.parts()) {
            assert!(bytes <= bytes_max, "{part} takes {bytes} bytes, {bytes_max} are the most");
        }
        // One block for each that the user has sent, and one for a header block.
        assert!(
            self.pool.outstanding() <= self.blocks_sent + 1,
            "{} blocks are out",
            self.pool.outstanding()
        );
    }

    /// The connection has failed: it must have said so, and say so again, and do nothing more.
    fn on_error(&mut self, error: Error) {
        assert_eq!((error.fault, error.reach), (Fault::Peer, Reach::Connection), "{error}");
        assert!(self.referee.go_away.is_some(), "no GOAWAY for {error}");
        let frames = self.referee.frames;
        let stream = self.talks.keys().next().copied();
        for _ in 0..2 {
            let unread = self.unread.clone();
            let input = Input::new(&unread);
            assert_eq!(self.act(|engine, env| engine.next_event(env, &input).map(drop)), Err(error.clone()));
            assert_eq!(input.consumed(), 0, "input was taken by an engine that has failed");
            assert_eq!(self.act(|engine, env| engine.on_deadline(env)), Ok(()));
            self.transmit();
            let opened = self.act(|engine, env| engine.open(env, request(b"GET"), true));
            assert_eq!(opened, Err(OpenError::GoingAway));
            if let Some(stream) = stream {
                let sent = self.act(|engine, env| engine.send_data(env, stream, b"late", false));
                assert_eq!(sent, Err(SendError::Gone));
                assert_eq!(self.engine.may_queue(stream), 0);
            }
        }
        assert!(self.engine.next_deadline().is_none() && self.engine.is_going_away());
        assert_eq!(self.referee.frames, frames, "frames behind the last GOAWAY");
        self.log.end = Some(error);
    }

    fn end(&mut self) {
        if self.log.end.is_none() {
            self.referee.check_at_rest();
        }
        self.drain_output();
        self.act(|engine, env| engine.close(env));
        assert_eq!(self.pool.outstanding(), 0, "a block has leaked");
        assert_eq!((self.engine.streams(), self.engine.has_events()), (0, false));
        assert!(self.engine.next_deadline().is_none());
        let input = Input::new(&[]);
        self.act(|engine, env| engine.next_event(env, &input).map(drop)).expect_err("it is closed");
        assert!(self.out.is_empty(), "output behind the end");
    }
}

fn request(method: &[u8]) -> [Field<'_>; 4] {
    [
        Field::new(b":method", method),
        Field::new(b":scheme", b"http"),
        Field::new(b":path", b"/"),
        Field::new(b":authority", b"sea.example"),
    ]
}
