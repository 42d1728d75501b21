use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Closed, Env, Input, Instant, Output, Pool};
use fulmar_grpc::{
    Body, CallKey, Client, ClientIdentity, Code, Config, Event, Gone, Memory, MetadataMap, Routes, Server,
    Start, Status,
};
use fulmar_http2::{self as http2, Role, Sends};

use super::super::content;
use super::Shape;
use super::peer::patient;
use super::runs::Runs;
use super::talk::{Next, Talk, Talks};
use crate::Random;
use crate::referee::Referee;

/// The most that the user sends at a time.
const SENT_BYTES_MAX: usize = 5_000;

/// The end under test, and its user, who does by chance what users do.
pub(super) struct Subject {
    end: End,
    memory_max: Memory,
    shape: Shape,
    random: Random,
    pool: Pool,
    out: Output,
    now: Instant,
    unread: Vec<u8>,
    referee: Referee,
    /// Stream ids of the calls that are not over.
    calls: BTreeMap<CallKey, u32>,
    started: u32,
    pub(super) shutting_down: bool,
    /// Client: the server takes no more calls.
    going_away: bool,
    /// The connection is over.
    pub(super) lost: bool,
}

enum End {
    Server(Box<Server>),
    Client(Box<Client>),
}

/// Calls what both ends have.
macro_rules! both {
    ($end:expr, $name:pat => $call:expr) => {
        match $end {
            End::Server($name) => $call,
            End::Client($name) => $call,
        }
    };
}

impl Subject {
    pub(super) fn new(shape: Shape, now: Instant) -> Self {
        let http2 = http2::Config {
            stream_window_bytes: shape.stream_window_bytes(),
            window_bytes_max: 0,
            streams_max: 20,
            settings_ack_ms: 60_000,
            preface_ms: 60_000,
            ..patient()
        };
        let role = if shape.is_server() { Role::Server } else { Role::Client };
        let referee = Referee::new(role, &http2);
        let mut config = Config {
            http2,
            receive_message_bytes_max: shape.receive_message_bytes_max(),
            send_message_bytes_max: shape.send_message_bytes_max(),
            held_bytes_max: shape.held_bytes_max(),
            ..Config::default()
        };
        if shape.unfolds() {
            config.encodings.accept(Arc::new(Runs)).expect("a legal name");
        }
        let memory_max = config.memory_max(&Sends { data_bytes_max: SENT_BYTES_MAX, ..Sends::default() });
        let end = if shape.is_server() {
            let mut routes = Routes::new();
            routes.add("/sea.Birds/Glide").expect("a path");
            routes.add("/sea.Birds/Dive").expect("a path");
            End::Server(Box::new(Server::new(config, Arc::new(routes))))
        } else {
            let identity = ClientIdentity { scheme: "http".into(), authority: "sea.example".into() };
            End::Client(Box::new(Client::new(config, identity)))
        };
        Self {
            end,
            memory_max,
            shape,
            random: Random::new(shape.seed()),
            pool: Pool::new(),
            out: Output::new(),
            now,
            unread: Vec::new(),
            referee,
            calls: BTreeMap::new(),
            started: 0,
            shutting_down: false,
            going_away: false,
            lost: false,
        }
    }

    pub(super) const fn is_server(&self) -> bool {
        matches!(self.end, End::Server(_))
    }

    pub(super) const fn receive_message_bytes_max(&self) -> usize {
        self.shape.receive_message_bytes_max()
    }

    pub(super) fn calls(&self) -> usize {
        both!(&self.end, end => end.calls())
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        let mut taken = Vec::new();
        self.referee.on_left(self.out.len());
        self.out.move_to(&mut taken);
        taken
    }

    /// Bytes have arrived, or something was done: the loop contract.
    pub(super) fn receive(&mut self, bytes: &[u8], talks: &mut Talks) {
        if self.lost {
            return;
        }
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        loop {
            let before = input.consumed();
            let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
            let event = both!(&mut self.end, end => end.next_event(&mut env, &input));
            self.referee.on_taken(&unread[before..input.consumed()]);
            self.referee.on_written(&self.out);
            match event {
                Ok(Some(event)) => self.on_event(event, talks),
                Ok(None) => {
                    assert!(!both!(&self.end, end => end.has_events()), "an event was kept back");
                    self.env(|end, env| both!(end, end => end.transmit(env)));
                    if !both!(&self.end, end => end.has_events()) {
                        break;
                    }
                }
                Err(error) => {
                    assert!(error.text.contains("_ms: "), "{error}");
                    return self.lose(talks);
                }
            }
        }
        self.unread.extend_from_slice(input.remaining());
        let memory = both!(&self.end, end => end.memory());
        for ((part, bytes), (_, bytes_max)) in memory.parts().zip(self.memory_max.parts()) {
            assert!(bytes <= bytes_max, "{part} takes {bytes} bytes, {bytes_max} are the most");
        }
    }

    pub(super) fn transmit(&mut self, talks: &mut Talks) {
        self.receive(&[], talks);
    }

    pub(super) fn on_time(&mut self, now: Instant, talks: &mut Talks) {
        self.now = now;
        let deadline = both!(&self.end, end => end.next_deadline());
        if self.lost || deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        match self.env(|end, env| both!(end, end => end.on_deadline(env))) {
            Ok(()) => self.receive(&[], talks),
            Err(error) => {
                assert!(error.text.contains("_ms: "), "{error}");
                self.lose(talks);
            }
        }
    }

    /// The connection is lost: every call is told, once, and nothing is left.
    pub(super) fn lose(&mut self, talks: &mut Talks) {
        let closed = Closed::peer("the wind has turned");
        self.env(|end, env| both!(end, end => end.closed(env, &closed)));
        self.lost = true;
        let input = Input::new(&[]);
        while let Some(event) = self
            .env(|end, env| both!(end, end => end.next_event(env, &input)))
            .expect("only calls are left to report")
        {
            assert!(matches!(event, Event::Finished { .. }), "{event:?} of a connection that is lost");
            self.on_event(event, talks);
        }
        assert!(self.calls.is_empty(), "a call was not told that its connection is lost");
        assert!(!both!(&self.end, end => end.has_events() || end.next_deadline().is_some()));
        assert_eq!((self.calls(), self.pool.outstanding()), (0, 0), "a call or a block has leaked");
    }

    /// Client: starts a call.
    pub(super) fn start(&mut self, talks: &mut Talks, how: usize, bytes: usize) {
        let End::Client(client) = &mut self.end else { return };
        let id = 2 * self.started + 1;
        let mut metadata = MetadataMap::new();
        metadata.insert("x-id", &id.to_string()).expect("a number is a value");
        let timeout = (how & 0x01 != 0).then(|| Duration::from_millis(how as u64 * 3));
        let deadline = (how & 0x02 != 0).then(|| self.now + Duration::from_millis(how as u64 * 4));
        let start = Start {
            path: "/sea.Birds/Glide",
            metadata: &metadata,
            timeout,
            deadline,
            compression: &fulmar_grpc::Compression::Default,
        };
        let message = content::of(id, true, 0, bytes);
        let first = (how & 0x04 != 0).then_some(message);
        let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
        let started = client.start(&mut env, start, first, how & 0x08 != 0);
        self.referee.on_written(&self.out);
        let Ok(call) = started else { return };
        self.started += 1;
        let mut talk = Talk { call: Some(call), deadline, ..Talk::default() };
        if let Some(message) = first {
            assert!(message.len() <= self.shape.send_message_bytes_max());
            talk.say(message);
        }
        assert!(talks.insert(id, talk).is_none() && self.calls.insert(call, id).is_none());
    }

    /// Server: takes no more calls.
    pub(super) fn shut_down(&mut self) {
        self.shutting_down = true;
        self.env(|end, env| {
            if let End::Server(server) = end {
                server.shutdown(env);
            }
        });
    }

    /// The user does one thing to a call.
    pub(super) fn act(&mut self, talks: &mut Talks, which: usize) {
        let nth = which % self.calls.len().max(1);
        if let Some((&call, &id)) = self.calls.iter().nth(nth) {
            self.act_on(call, talks.get_mut(&id).expect("a call that was begun"));
        }
    }

    fn act_on(&mut self, call: CallKey, talk: &mut Talk) {
        match self.random.within(0..=9) {
            0 => self.release(call, talk),
            1 if self.is_server() => {
                self.server(|server, env| server.send_headers(env, call, MetadataMap::EMPTY)).ok();
            }
            1..=5 => self.send(call, talk),
            6 if self.is_server() => self.reply(call, talk),
            7 if self.is_server() => {
                let code = [Code::Ok, Code::NotFound, Code::DataLoss][self.random.within(0..=2)];
                self.finish(call, talk, code);
            }
            8 if !self.is_server() && self.random.one_in(3) => {
                self.env(|end, env| {
                    if let End::Client(client) = end {
                        client.cancel(env, call);
                    }
                });
                talk.cancelled = true;
                self.calls.remove(&call);
            }
            _ => self.half_close(call),
        }
    }

    fn half_close(&mut self, call: CallKey) {
        self.env(|end, env| {
            if let End::Client(client) = end {
                client.half_close(env, call);
            }
        });
    }

    /// Sends a message, in one of the ways there are.
    fn send(&mut self, call: CallKey, talk: &mut Talk) {
        let length = self.random.magnitude(both!(&self.end, end => end.may_send(call)).min(SENT_BYTES_MAX));
        let message = content::of(1, self.is_server(), talk.said.len() % 1_000, length);
        let framed = super::talk::frame(message);
        let way = self.random.within(0..=15);
        let sent = self.env(|end, env| match way {
            0..=3 => both!(end, end => end.send_message(env, call, message)),
            4..=7 => {
                let mut block = env.pool.take(framed.len());
                block.extend_from_slice(&framed);
                both!(end, end => end.send_framed(env, call, block))
            }
            8..=11 => both!(end, end => end.send_framed_slice(env, call, &framed)),
            12 => {
                let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(b"longer than announced");
                both!(end, end => end.encode_message(env, call, 3, encode))
            }
            _ => both!(end, end => end.encode_message(env, call, length, |buffer| {
                buffer.extend_from_slice(message);
            })),
        });
        // Nobody looks into messages that are framed already.
        let within = length <= self.shape.send_message_bytes_max() || (4..=11).contains(&way);
        match sent {
            _ if way == 12 => {
                assert_eq!(sent, Err(Gone), "a message of another length than announced");
                talk.garbled = true;
            }
            Ok(()) => {
                assert!(within && !talk.is_over() && !talk.finish_asked, "sent on a call that is over");
                talk.say(message);
            }
            Err(Gone) => talk.garbled |= !within,
        }
    }

    /// Server: one message and OK.
    fn reply(&mut self, call: CallKey, talk: &mut Talk) {
        let length = self.random.magnitude(3_000);
        let message = content::of(1, true, talk.said.len() % 1_000, length);
        let sent = self.server(|server, env| {
            let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(message);
            server.reply(env, call, MetadataMap::EMPTY, length, encode, MetadataMap::EMPTY)
        });
        if sent.is_ok() {
            talk.say(message);
            talk.finish_asked = true;
            talk.status = Some(Code::Ok);
        } else {
            // The message may have left in front of trailers that the client does not take.
            talk.garbled |= self.shape.short_lists() || length > self.shape.send_message_bytes_max();
        }
    }

    fn finish(&mut self, call: CallKey, talk: &mut Talk, code: Code) {
        let mut trailers = MetadataMap::new();
        trailers.insert("x-wind", "south-west, strong to gale force").expect("a legal value");
        let status = Status::new(code, "far out at sea");
        let finished = self.server(|server, env| server.finish(env, call, &status, &trailers));
        if finished.is_ok() {
            assert!(!talk.finish_asked && !talk.is_over(), "an answer ends twice");
            talk.finish_asked = true;
            talk.status = Some(code);
        } else if self.shape.short_lists() {
            // A client may take no status at all.
            talk.finish_asked = true;
        }
    }

    /// Server: ends all answers.
    pub(super) fn finish_all(&mut self, talks: &mut Talks) {
        if !self.is_server() || self.lost {
            return;
        }
        for (call, id) in self.calls.clone() {
            self.finish(call, talks.get_mut(&id).expect("a call that was begun"), Code::Aborted);
        }
    }

    pub(super) fn release_all(&mut self, talks: &mut Talks) {
        for (call, id) in self.calls.clone() {
            let talk = talks.get_mut(&id).expect("a call that was begun");
            while !talk.held.is_empty() {
                self.release(call, talk);
            }
        }
        self.receive(&[], talks);
    }

    /// Takes the oldest message that is held.
    fn release(&mut self, call: CallKey, talk: &mut Talk) {
        if let Some(bytes) = talk.held.pop_front() {
            self.env(|end, env| both!(end, end => end.release(env, call, bytes)));
        }
    }

    fn on_event(&mut self, event: Event<'_>, talks: &mut Talks) {
        match event {
            Event::Begin { call, method, deadline } => {
                self.on_begin(call, method.index() as u32, deadline, talks)
            }
            Event::Headers { call } => {
                let talk = self.talk(call, talks);
                assert_eq!((talk.answer, talk.taken), (super::talk::Answer::Good, 0), "headers of no answer");
            }
            Event::Message { call, body } => self.on_message(call, body, talks),
            Event::HalfClosed { call } => {
                let talk = self.talk(call, talks);
                assert!(!talk.half_closed && talk.peer_ended, "the end of a request that has not ended");
                assert_eq!(talk.taken, talk.sent.len(), "the end of a request overtakes its messages");
                talk.half_closed = true;
                self.react(call, talks);
            }
            Event::Finished { call } => self.on_finished(call, talks),
            Event::Writable { call } => {
                self.talk(call, talks);
                self.react(call, talks);
            }
            Event::GoingAway => self.going_away = true,
            Event::Capacity | Event::Ready => assert!(!self.is_server()),
        }
    }

    fn on_begin(&mut self, call: CallKey, method: u32, deadline: Option<Instant>, talks: &mut Talks) {
        let mut metadata = MetadataMap::new();
        self.server(|server, _| server.take_metadata(call, &mut metadata));
        let id = metadata.get("x-id").and_then(|id| id.parse().ok()).expect("the metadata of the request");
        let talk = talks.get_mut(&id).expect("a request that was sent");
        assert!(talk.is_call && talk.call.is_none(), "a call begins that is none, or twice");
        assert_eq!(talk.method, method, "another method than was called");
        assert!(deadline.is_none_or(|deadline| deadline > self.now), "a call begins behind its deadline");
        talk.call = Some(call);
        talk.deadline = deadline;
        assert!(self.calls.insert(call, id).is_none(), "a key twice");
        self.react(call, talks);
    }

    fn on_message(&mut self, call: CallKey, body: Body<'_>, talks: &mut Talks) {
        let (bytes_max, window) =
            (self.receive_message_bytes_max(), self.shape.stream_window_bytes().max(65_535));
        let talk = self.talk(call, talks);
        assert!(!talk.half_closed && !talk.finish_asked, "a message behind the end");
        match talk.next_message(bytes_max) {
            Next::Message(message, end) => {
                assert_eq!(body.as_slice(), message, "another message than was sent");
                talk.taken = end;
            }
            next => panic!("a message where there is none: {next:?}"),
        }
        talk.held.push_back(body.len());
        let held: usize = talk.held.iter().map(|bytes| bytes + 5).sum();
        assert!(
            talk.packed || held <= window as usize + bytes_max.saturating_add(5),
            "more than a window and a message is held"
        );
        if let Body::Block(block) = body {
            self.pool.give(block);
        }
        self.react(call, talks);
    }

    fn on_finished(&mut self, call: CallKey, talks: &mut Talks) {
        let now = self.now;
        let (lost, bytes_max) = (self.lost, self.receive_message_bytes_max());
        let status = match &mut self.end {
            End::Server(_) => None,
            End::Client(client) => Some(client.take_status(call, &mut MetadataMap::new())),
        };
        let id = self.calls.remove(&call).expect("a call is over once, and after it has begun");
        let talk = talks.get_mut(&id).expect("a call that was begun");
        assert!(!talk.is_over(), "a call is over twice");
        talk.finished = true;
        let late = talk.deadline.is_some_and(|deadline| deadline <= now);
        let Some(status) = status else {
            let ended = lost || late || talk.garbled || talk.finish_asked || talk.is_faulty(bytes_max);
            let ended = ended || self.shape.holds_little();
            return assert!(ended, "a call ends, and nobody has ended it: {talk:?}");
        };
        assert!(status.code() != Code::Ok || talk.taken == talk.sent.len(), "OK, and a message is missing");
        let late = late && status.code() == Code::DeadlineExceeded;
        let held_too_much = self.shape.holds_little() && status.code() == Code::ResourceExhausted;
        if lost || late || talk.garbled || talk.peer_reset || held_too_much {
            return;
        }
        let Some(verdict) = talk.verdict else {
            assert_ne!(status.code(), Code::Ok, "OK without good trailers");
            // A request with a header list that is too large is answered by the peer's engine.
            let refused = self.going_away || self.shape.short_lists();
            let ended = talk.is_faulty(bytes_max) || talk.peer_ended || refused;
            return assert!(ended, "a call ends, and nobody has ended it: {status}, {talk:?}");
        };
        match talk.next_message(bytes_max) {
            Next::Message(..) => panic!("{status} in front of a message"),
            Next::Fault(code) => assert_eq!(status.code(), code, "{status}"),
            Next::Incomplete if talk.taken < talk.sent.len() && verdict == Code::Ok => {
                assert_eq!(status.code(), Code::Internal, "{status}");
            }
            Next::Incomplete => assert_eq!(status.code(), verdict, "{status}"),
        }
    }

    /// What a user does on an event.
    fn react(&mut self, call: CallKey, talks: &mut Talks) {
        if self.random.one_in(3)
            && let Some(talk) = self.calls.get(&call).and_then(|id| talks.get_mut(id))
        {
            self.act_on(call, talk);
        }
    }

    fn talk<'t>(&self, call: CallKey, talks: &'t mut Talks) -> &'t mut Talk {
        let id = self.calls.get(&call).expect("a call that has begun and is not over");
        talks.get_mut(id).expect("a call that was begun")
    }

    fn server<R>(&mut self, deed: impl FnOnce(&mut Server, &mut Env<'_>) -> R) -> R {
        self.env(|end, env| match end {
            End::Server(server) => deed(server, env),
            End::Client(_) => panic!("a client has no such verb"),
        })
    }

    /// Calls the end, before the referee's eyes.
    fn env<R>(&mut self, deed: impl FnOnce(&mut End, &mut Env<'_>) -> R) -> R {
        let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
        let result = deed(&mut self.end, &mut env);
        self.referee.on_written(&self.out);
        result
    }
}
