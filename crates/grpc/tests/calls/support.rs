//! Two ends, a link between them, and what happened at each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Block, Closed, Env, Input, Instant, Output, Pool};
use fulmar_grpc::{
    Body, CallKey, Client, ClientIdentity, Config, Event, MetadataMap, Routes, Server, Start, Status,
};
use fulmar_http2::Error;

/// The paths that every server here knows.
pub(crate) const ECHO: &str = "/test.Service/Echo";
pub(crate) const OTHER: &str = "/test.Service/Other";

/// Something that happened at an end: an event, with all that it gives a right to ask for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Happened {
    Begin {
        call: CallKey,
        path: String,
        deadline: Option<Instant>,
        metadata: MetadataMap,
    },
    Headers {
        call: CallKey,
        metadata: MetadataMap,
    },
    Message {
        call: CallKey,
        bytes: Vec<u8>,
    },
    HalfClosed {
        call: CallKey,
    },
    /// At the client, how the call ended.
    Finished {
        call: CallKey,
        outcome: Option<Outcome>,
    },
    Writable {
        call: CallKey,
    },
    Capacity,
    GoingAway,
    Ready,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) code: fulmar_grpc::Code,
    pub(crate) message: String,
    pub(crate) details: Vec<u8>,
    pub(crate) trailers: MetadataMap,
    pub(crate) unprocessed: bool,
}

/// What both ends have.
pub(crate) trait End {
    fn next_event<'i>(&mut self, env: &mut Env<'_>, input: &Input<'i>) -> Result<Option<Event<'i>>, Error>;
    fn transmit(&mut self, env: &mut Env<'_>);
    fn has_events(&self) -> bool;
    fn next_deadline(&self) -> Option<Instant>;
    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error>;
    fn closed(&mut self, env: &mut Env<'_>, closed: &Closed);
    fn release(&mut self, env: &mut Env<'_>, call: CallKey, bytes: usize);
    fn take_metadata(&mut self, call: CallKey, into: &mut MetadataMap);
    fn outcome(&mut self, call: CallKey) -> Option<Outcome>;
    fn path(&self, method: fulmar_grpc::MethodId) -> String;
}

macro_rules! end {
    ($end:ty) => {
        fn next_event<'i>(
            &mut self,
            env: &mut Env<'_>,
            input: &Input<'i>,
        ) -> Result<Option<Event<'i>>, Error> {
            <$end>::next_event(self, env, input)
        }
        fn transmit(&mut self, env: &mut Env<'_>) {
            <$end>::transmit(self, env);
        }
        fn has_events(&self) -> bool {
            <$end>::has_events(self)
        }
        fn next_deadline(&self) -> Option<Instant> {
            <$end>::next_deadline(self)
        }
        fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
            <$end>::on_deadline(self, env)
        }
        fn closed(&mut self, env: &mut Env<'_>, closed: &Closed) {
            <$end>::closed(self, env, closed);
        }
        fn release(&mut self, env: &mut Env<'_>, call: CallKey, bytes: usize) {
            <$end>::release(self, env, call, bytes);
        }
        fn take_metadata(&mut self, call: CallKey, into: &mut MetadataMap) {
            <$end>::take_metadata(self, call, into);
        }
    };
}

impl End for Client {
    end!(Client);
    fn outcome(&mut self, call: CallKey) -> Option<Outcome> {
        let unprocessed = self.unprocessed(call);
        let mut trailers = MetadataMap::new();
        let status = self.take_status(call, &mut trailers);
        Some(Outcome {
            code: status.code(),
            message: status.message().to_owned(),
            details: status.details().to_vec(),
            trailers,
            unprocessed,
        })
    }
    fn path(&self, _: fulmar_grpc::MethodId) -> String {
        String::new()
    }
}

impl End for Server {
    end!(Server);
    fn outcome(&mut self, _: CallKey) -> Option<Outcome> {
        None
    }
    fn path(&self, method: fulmar_grpc::MethodId) -> String {
        [ECHO, OTHER][method.index()].to_owned()
    }
}

/// One end with the world around it.
pub(crate) struct Side<E> {
    pub(crate) end: E,
    pub(crate) now: Instant,
    pub(crate) pool: Pool,
    pub(crate) out: Output,
    /// Whether each message is taken as soon as it is there.
    pub(crate) takes_at_once: bool,
    /// The most bytes that were held at a time.
    pub(crate) held_max: usize,
    /// What happened and was not looked at.
    pub(crate) log: VecDeque<Happened>,
    /// The error that ended the connection.
    pub(crate) error: Option<Error>,
    unread: Vec<u8>,
}

impl<E: End> Side<E> {
    pub(crate) fn new(end: E) -> Self {
        Self {
            end,
            now: Instant::from_nanos(1_000_000_000),
            pool: Pool::new(),
            out: Output::new(),
            takes_at_once: true,
            held_max: 0,
            log: VecDeque::new(),
            error: None,
            unread: Vec::new(),
        }
    }

    /// Does something with the end, and what has to follow.
    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut E, &mut Env<'_>) -> R) -> R {
        let result = act(&mut self.end, &mut Env::new(self.now, &mut self.pool, &mut self.out));
        self.settle();
        result
    }

    /// Bytes have come.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        self.settle();
    }

    /// The connection is over.
    pub(crate) fn close(&mut self, closed: &Closed) {
        self.act(|end, env| end.closed(env, closed));
    }

    /// Time has come to `now`.
    pub(crate) fn advance_to(&mut self, now: Instant) {
        self.now = now;
        if self.end.next_deadline().is_some_and(|deadline| deadline <= now) {
            let result = self.act(|end, env| end.on_deadline(env));
            self.error = self.error.take().or_else(|| result.err());
            self.settle();
        }
    }

    /// Drains the events, transmits, and drains again until nothing is left.
    fn settle(&mut self) {
        self.drain();
        loop {
            self.end.transmit(&mut Env::new(self.now, &mut self.pool, &mut self.out));
            if !self.end.has_events() {
                break;
            }
            self.drain();
        }
    }

    fn drain(&mut self) {
        if self.error.is_some() {
            return;
        }
        let mut unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        loop {
            let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
            let event = self.end.next_event(&mut env, &input);
            self.held_max = self.held_max.max(env.pool.held_bytes());
            match event {
                Ok(Some(event)) => {
                    let happened = note(&mut self.end, &mut env, event, self.takes_at_once);
                    self.log.push_back(happened);
                }
                Ok(None) => break,
                Err(error) => {
                    let closed = Closed::from(error.clone());
                    self.error = Some(error);
                    self.end.closed(&mut env, &closed);
                    while let Ok(Some(event)) = self.end.next_event(&mut env, &Input::new(&[])) {
                        let happened = note(&mut self.end, &mut env, event, true);
                        self.log.push_back(happened);
                    }
                    break;
                }
            }
        }
        let consumed = input.consumed();
        unread.drain(..consumed);
        self.unread = unread;
    }

    /// What happened next, which must be something.
    pub(crate) fn next(&mut self) -> Happened {
        self.log.pop_front().expect("something has happened")
    }

    /// What happened, all of it.
    pub(crate) fn take_log(&mut self) -> Vec<Happened> {
        self.log.drain(..).collect()
    }

    /// The call of the next event, which must be a beginning.
    pub(crate) fn begun(&mut self) -> CallKey {
        match self.next() {
            Happened::Begin { call, .. } => call,
            other => panic!("a call begins, not {other:?}"),
        }
    }

    /// The messages in the log, in order.
    pub(crate) fn messages(&self) -> Vec<&[u8]> {
        self.log
            .iter()
            .filter_map(|happened| match happened {
                Happened::Message { bytes, .. } => Some(&bytes[..]),
                _ => None,
            })
            .collect()
    }

    /// How the only call that ended, ended.
    pub(crate) fn outcome(&mut self) -> Outcome {
        let mut outcomes = self.log.drain(..).filter_map(|happened| match happened {
            Happened::Finished { outcome, .. } => outcome,
            _ => None,
        });
        let outcome = outcomes.next().expect("a call has ended");
        assert_eq!(outcomes.next(), None, "a call ends once");
        outcome
    }
}

/// Owns what an event lends, and gives its block back.
fn note<E: End>(end: &mut E, env: &mut Env<'_>, event: Event<'_>, takes: bool) -> Happened {
    match event {
        Event::Begin { call, method, deadline } => {
            let mut metadata = MetadataMap::new();
            end.take_metadata(call, &mut metadata);
            Happened::Begin { call, path: end.path(method), deadline, metadata }
        }
        Event::Headers { call } => {
            let mut metadata = MetadataMap::new();
            end.take_metadata(call, &mut metadata);
            Happened::Headers { call, metadata }
        }
        Event::Message { call, body } => {
            let bytes = body.as_slice().to_vec();
            if let Body::Block(block) = body {
                env.pool.give(block);
            }
            if takes {
                end.release(env, call, bytes.len());
            }
            Happened::Message { call, bytes }
        }
        Event::HalfClosed { call } => Happened::HalfClosed { call },
        Event::Finished { call } => Happened::Finished { call, outcome: end.outcome(call) },
        Event::Writable { call } => Happened::Writable { call },
        Event::Capacity => Happened::Capacity,
        Event::GoingAway => Happened::GoingAway,
        Event::Ready => Happened::Ready,
    }
}

/// A client and a server with a link between them.
pub(crate) struct Pair {
    pub(crate) client: Side<Client>,
    pub(crate) server: Side<Server>,
    /// How many bytes arrive at once.
    pub(crate) chunk_bytes: usize,
    /// All that went over the link.
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
}

impl Pair {
    /// Two ends that know each other's settings.
    pub(crate) fn new() -> Self {
        Self::with_configs(Config::default(), Config::default())
    }

    pub(crate) fn with_configs(client: Config, server: Config) -> Self {
        let mut pair = Self {
            client: Side::new(new_client(client)),
            server: Side::new(Server::new(server, Arc::new(routes()))),
            chunk_bytes: usize::MAX,
            to_server: Vec::new(),
            to_client: Vec::new(),
        };
        pair.client.act(|_, _| ());
        pair.server.act(|_, _| ());
        pair.run();
        assert_eq!(pair.client.take_log(), [Happened::Ready]);
        assert_eq!(pair.server.take_log(), []);
        pair.to_server.clear();
        pair.to_client.clear();
        pair
    }

    /// Carries bytes until both ends are silent.
    pub(crate) fn run(&mut self) {
        while self.carry_once() {}
    }

    /// Carries bytes until both ends are silent; `answer` is given all that happens at the server.
    pub(crate) fn run_with(&mut self, mut answer: impl FnMut(&mut Side<Server>, Happened)) {
        loop {
            let moved = self.carry_once();
            if !moved && self.server.log.is_empty() {
                return;
            }
            while let Some(happened) = self.server.log.pop_front() {
                answer(&mut self.server, happened);
            }
        }
    }

    fn carry_once(&mut self) -> bool {
        let forth = carry(&mut self.client, &mut self.server, self.chunk_bytes, &mut self.to_server);
        let back = carry(&mut self.server, &mut self.client, self.chunk_bytes, &mut self.to_client);
        forth || back
    }

    /// Lets time pass at both ends, and the bytes go that this causes.
    pub(crate) fn advance(&mut self, time: Duration) {
        let now = self.client.now.saturating_add(time);
        self.client.advance_to(now);
        self.server.advance_to(now);
        self.run();
    }

    /// Starts a call that sends nothing yet.
    pub(crate) fn start(&mut self, path: &str) -> CallKey {
        self.start_with(path, &MetadataMap::new(), None, None, false)
    }

    pub(crate) fn start_with(
        &mut self,
        path: &str,
        metadata: &MetadataMap,
        timeout: Option<Duration>,
        first: Option<&[u8]>,
        half_close: bool,
    ) -> CallKey {
        let deadline = timeout.map(|timeout| self.client.now.saturating_add(timeout));
        let start =
            Start { path, metadata, timeout, deadline, compression: &fulmar_grpc::Compression::Default };
        self.client.act(|client, env| client.start(env, start, first, half_close)).expect("the call starts")
    }

    /// Starts a unary call and carries it to the server, whose key for it is the second.
    pub(crate) fn unary(&mut self, message: &[u8]) -> (CallKey, CallKey) {
        let call = self.start_with(ECHO, &MetadataMap::new(), None, Some(message), true);
        self.run();
        let at_server = self.server.begun();
        (call, at_server)
    }

    /// Asserts that nothing is left of any call, at either end.
    pub(crate) fn assert_at_rest(&mut self) {
        assert_eq!((self.client.end.calls(), self.server.end.calls()), (0, 0), "no call is left");
        assert_eq!(
            (self.client.pool.outstanding(), self.server.pool.outstanding()),
            (0, 0),
            "no block is left"
        );
        let held = (self.client.pool.held_bytes(), self.server.pool.held_bytes());
        assert_eq!(held, (0, 0), "nothing counts as held");
        assert_eq!(self.client.error, None);
        assert_eq!(self.server.error, None);
    }
}

pub(crate) fn new_client(config: Config) -> Client {
    Client::new(config, ClientIdentity { scheme: "http".into(), authority: "test.example:1".into() })
}

pub(crate) fn routes() -> Routes {
    let mut routes = Routes::new();
    routes.add(ECHO).expect("the first");
    routes.add(OTHER).expect("the second");
    routes
}

/// Carries all that waits at `from` to `to`; whether there was anything.
fn carry<A: End, B: End>(
    from: &mut Side<A>,
    to: &mut Side<B>,
    chunk_bytes: usize,
    tap: &mut Vec<u8>,
) -> bool {
    if from.out.is_empty() {
        return false;
    }
    let mut bytes = Vec::new();
    from.out.move_to(&mut bytes);
    tap.extend_from_slice(&bytes);
    for chunk in bytes.chunks(chunk_bytes) {
        to.receive(chunk);
    }
    // The output has drained: what waited for room may go.
    from.act(|_, _| ());
    true
}

/// Answers a call with one message and OK.
pub(crate) fn reply(server: &mut Side<Server>, call: CallKey, message: &[u8]) {
    reply_with(server, call, MetadataMap::EMPTY, message, MetadataMap::EMPTY);
}

pub(crate) fn reply_with(
    server: &mut Side<Server>,
    call: CallKey,
    metadata: &MetadataMap,
    message: &[u8],
    trailers: &MetadataMap,
) {
    server
        .act(|server, env| {
            server.reply(
                env,
                call,
                metadata,
                message.len(),
                |buffer| buffer.extend_from_slice(message),
                trailers,
            )
        })
        .expect("the call is there");
}

/// Ends a call.
pub(crate) fn finish(server: &mut Side<Server>, call: CallKey, status: &Status) {
    server
        .act(|server, env| server.finish(env, call, status, MetadataMap::EMPTY))
        .expect("the call is there");
}

/// Sends a message of the server.
pub(crate) fn send(server: &mut Side<Server>, call: CallKey, message: &[u8]) {
    server.act(|server, env| server.send_message(env, call, message)).expect("the call is there");
}

/// Says that the client has sent its last message, if the call is there.
pub(crate) fn half_close(client: &mut Side<Client>, call: CallKey) {
    client.act(|client, env| client.half_close(env, call));
}

/// Whole messages with their prefixes, in a block.
pub(crate) fn framed(pool: &mut Pool, messages: &[&[u8]]) -> Block {
    let mut block = pool.take(64);
    for message in messages {
        block.extend_from_slice(&prefixed(message));
    }
    block
}

/// A message with its prefix.
pub(crate) fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// Metadata with these text values.
pub(crate) fn metadata(values: &[(&str, &str)]) -> MetadataMap {
    let mut map = MetadataMap::new();
    for (name, value) in values {
        map.append(name, value).expect("legal metadata");
    }
    map
}

/// A frame on the wire (RFC 9113 §4.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const END_STREAM: u8 = 1;

/// The frames in what went over a link behind the preface.
pub(crate) fn frames(mut wire: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, s1, s2, s3, s4, rest @ ..] = wire {
        let (payload, behind) = rest.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
        let stream = u32::from_be_bytes([*s1, *s2, *s3, *s4]);
        frames.push(Frame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() });
        wire = behind;
    }
    assert!(wire.is_empty(), "whole frames only");
    frames
}

/// The frames that belong to calls: DATA, HEADERS and RST_STREAM.
pub(crate) fn call_frames(wire: &[u8]) -> Vec<Frame> {
    frames(wire).into_iter().filter(|frame| [DATA, HEADERS, RST_STREAM].contains(&frame.kind)).collect()
}

/// A seeded generator (SplitMix64): the same seed, the same test.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
