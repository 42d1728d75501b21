//! R16: a message larger than the window passes without a stall, in virtual time, against a peer that is made by hand and sends what
//! windows allow, and not a byte more.

use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Closed, Endpoint, Env, Input, Instant, Plain, TaskId};
use fulmar_grpc::{
    Body, Client, ClientIdentity, Code, Config, Event, MetadataMap, Routes, Server, Start, Status,
};
use fulmar_hpack::{Encoder, Field};
use fulmar_sim::{Driver, Link, Random, Trace, Weather};

const PATH: &str = "/sim.Large/Call";

/// How long a byte travels.
const DELAY: Duration = Duration::from_millis(1);

/// What R16 calls a stall.
const STALL: Duration = Duration::from_millis(100);

const MIB: usize = 1 << 20;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_BYTES_MAX: i64 = 16_384;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A client or a server made by hand, which sends one message on stream 1.
struct Raw {
    is_client: bool,
    awaits_preface: bool,
    message: Vec<u8>,
    sent: usize,
    /// Whether the headers in front of the message are due, and whether what comes behind it is.
    opens: bool,
    ends: bool,
    stream_window: i64,
    connection_window: i64,
    initial_window: i64,
    /// When something could be sent the last time, and the longest time without.
    moved: Instant,
    longest: Duration,
    frames: usize,
    /// The peer has ended the stream.
    is_answered: bool,
    encoder: Encoder,
    greeting: Option<Vec<u8>>,
}

impl Raw {
    fn new(is_client: bool, message_bytes: usize) -> Self {
        let mut message = vec![0];
        message.extend_from_slice(&(message_bytes as u32).to_be_bytes());
        message.extend(content().take(message_bytes));
        let mut greeting = if is_client { PREFACE.to_vec() } else { Vec::new() };
        write_frame(SETTINGS, 0, 0, &[], &mut greeting);
        Self {
            is_client,
            awaits_preface: !is_client,
            message,
            sent: 0,
            opens: false,
            ends: false,
            stream_window: 65_535,
            connection_window: 65_535,
            initial_window: 65_535,
            moved: Instant::ZERO,
            longest: Duration::ZERO,
            frames: 0,
            is_answered: false,
            encoder: Encoder::new(4_096),
            greeting: Some(greeting),
        }
    }

    fn on_frame(&mut self, env: &mut Env<'_>, (kind, flags, stream): (u8, u8, u32), payload: &[u8]) {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for entry in payload.chunks_exact(6).filter(|entry| entry[..2] == [0, 4]) {
                    let window = i64::from(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]));
                    self.stream_window += window - self.initial_window;
                    self.initial_window = window;
                }
                write_frame(SETTINGS, ACK, 0, &[], env.out.bytes_mut());
                // Not before, so that the window is the one configured.
                self.opens |= self.is_client;
            }
            PING if flags & ACK == 0 => write_frame(PING, ACK, 0, payload, env.out.bytes_mut()),
            WINDOW_UPDATE => {
                let increment =
                    i64::from(u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]));
                let window = if stream == 0 { &mut self.connection_window } else { &mut self.stream_window };
                *window += increment;
            }
            HEADERS if !self.is_client => self.opens = true,
            SETTINGS | PING | HEADERS | DATA => {}
            other => panic!("a frame of type {other}"),
        }
        self.is_answered |= stream == 1 && matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
    }

    fn send_headers(&mut self, env: &mut Env<'_>, flags: u8, fields: &[(&str, &str)]) {
        let mut block = Vec::new();
        let fields = fields.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()));
        self.encoder.encode(fields, &mut block);
        write_frame(HEADERS, flags | END_HEADERS, 1, &block, env.out.bytes_mut());
    }

    fn open(&mut self, env: &mut Env<'_>) {
        self.moved = env.now;
        if !self.is_client {
            return self.send_headers(env, 0, &[(":status", "200"), ("content-type", "application/grpc")]);
        }
        let request = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", PATH),
            (":authority", "sim"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ];
        self.send_headers(env, 0, &request);
    }
}

impl Endpoint for Raw {
    type Command = ();

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let mut taken = 0;
        if std::mem::take(&mut self.awaits_preface) {
            assert!(bytes.starts_with(PREFACE), "the client's first bytes arrive together");
            taken = PREFACE.len();
        }
        while let Some((head, rest)) = bytes[taken..].split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = rest.get(..length) else { break };
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            self.on_frame(env, (head[3], head[4], stream), payload);
            taken += 9 + length;
        }
        Ok(taken)
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        if let Some(greeting) = self.greeting.take() {
            env.out.extend_from_slice(&greeting);
        }
        if std::mem::take(&mut self.opens) {
            self.open(env);
            self.ends = true;
        }
        while self.ends && self.sent < self.message.len() {
            let window = self.stream_window.min(self.connection_window).min(FRAME_BYTES_MAX);
            let rest = &self.message[self.sent..];
            let length = usize::try_from(window).unwrap_or(0).min(rest.len());
            if length == 0 {
                break;
            }
            let last = length == rest.len() && self.is_client;
            let flags = if last { END_STREAM } else { 0 };
            write_frame(DATA, flags, 1, &rest[..length], env.out.bytes_mut());
            self.sent += length;
            self.frames += 1;
            self.stream_window -= length as i64;
            self.connection_window -= length as i64;
            self.longest = self.longest.max(env.now.saturating_duration_since(self.moved));
            self.moved = env.now;
        }
        if self.ends && self.sent == self.message.len() {
            self.ends = false;
            if !self.is_client {
                self.send_headers(env, END_STREAM, &[("grpc-status", "0")]);
            }
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn on_deadline(&mut self, _env: &mut Env<'_>) -> Result<(), Closed> {
        Ok(())
    }

    fn on_command(&mut self, _env: &mut Env<'_>, (): ()) -> Result<(), Closed> {
        Ok(())
    }

    fn on_wake(&mut self, _env: &mut Env<'_>, _task: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, _env: &mut Env<'_>, closed: &Closed) {
        panic!("{closed}");
    }
}

/// The end under test.
enum Subject {
    Server(Server),
    Client(Client),
}

/// The end under test with its application, which takes each message as soon as it is there.
struct Application {
    subject: Subject,
    /// The length of each message that arrived.
    messages: Vec<usize>,
    status: Option<Status>,
}

impl Application {
    fn server(config: Config) -> Self {
        let mut routes = Routes::new();
        routes.add(PATH).expect("the only one");
        Self::new(Subject::Server(Server::new(config, Arc::new(routes))))
    }

    fn client(config: Config) -> Self {
        let identity = ClientIdentity { scheme: "http".into(), authority: "sim".into() };
        Self::new(Subject::Client(Client::new(config, identity)))
    }

    fn new(subject: Subject) -> Self {
        Self { subject, messages: Vec::new(), status: None }
    }

    fn drain(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        loop {
            let event = match &mut self.subject {
                Subject::Server(server) => server.next_event(env, input)?,
                Subject::Client(client) => client.next_event(env, input)?,
            };
            match event {
                Some(event) => self.on_event(env, event),
                None => return Ok(()),
            }
        }
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: Event<'_>) {
        match (&mut self.subject, event) {
            (Subject::Client(client), Event::Ready) => {
                let metadata = MetadataMap::EMPTY;
                let start = Start {
                    path: PATH,
                    metadata,
                    timeout: None,
                    deadline: None,
                    compression: &fulmar_grpc::Compression::Default,
                };
                client.start(env, start, Some(b"question"), true).expect("the call starts");
            }
            (subject, Event::Message { call, body }) => {
                let bytes = body.as_slice();
                assert!(content().zip(bytes).all(|(sent, &byte)| sent == byte), "a byte is wrong");
                let length = bytes.len();
                self.messages.push(length);
                if let Body::Block(block) = body {
                    env.pool.give(block);
                }
                match subject {
                    Subject::Server(server) => server.release(env, call, length),
                    Subject::Client(client) => client.release(env, call, length),
                }
            }
            (Subject::Server(server), Event::HalfClosed { call }) => {
                let (none, answer) = (MetadataMap::EMPTY, b"answer");
                let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(answer);
                server.reply(env, call, none, answer.len(), encode, none).expect("the call is there");
            }
            (Subject::Client(client), Event::Finished { call }) => {
                self.status = Some(client.take_status(call, &mut MetadataMap::new()));
            }
            _ => {}
        }
    }
}

impl Endpoint for Application {
    type Command = ();

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let input = Input::new(bytes);
        self.drain(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        match &mut self.subject {
            Subject::Server(server) => server.transmit(env),
            Subject::Client(client) => client.transmit(env),
        }
        self.drain(env, &Input::new(&[]))
    }

    fn next_deadline(&self) -> Option<Instant> {
        match &self.subject {
            Subject::Server(server) => server.next_deadline(),
            Subject::Client(client) => client.next_deadline(),
        }
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        match &mut self.subject {
            Subject::Server(server) => server.on_deadline(env)?,
            Subject::Client(client) => client.on_deadline(env)?,
        }
        self.drain(env, &Input::new(&[]))
    }

    fn on_command(&mut self, _env: &mut Env<'_>, (): ()) -> Result<(), Closed> {
        Ok(())
    }

    fn on_wake(&mut self, _env: &mut Env<'_>, _task: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, _env: &mut Env<'_>, closed: &Closed) {
        panic!("{closed}");
    }
}

/// What a message is made of.
fn content() -> impl Iterator<Item = u8> {
    (0..=250).cycle()
}

fn write_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], wire: &mut Vec<u8>) {
    wire.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    wire.extend_from_slice(&[kind, flags]);
    wire.extend_from_slice(&stream.to_be_bytes());
    wire.extend_from_slice(payload);
}

/// How a transfer went.
struct Outcome {
    /// The longest time in which the peer had nothing to send, though its message was not whole.
    longest: Duration,
    frames: usize,
    messages: Vec<usize>,
}

/// Lets the raw peer send its message until the call has ended, with a millisecond each way.
fn run(raw: Raw, subject: Application) -> Outcome {
    let weather = Weather { delay: DELAY, ..Weather::CALM };
    let link = |seed| Link::new(weather.clone(), Random::new(seed));
    let (mut there, mut back) = (link(1), link(2));
    let mut raw = Driver::new("raw", Plain(raw));
    let mut subject = Driver::new("subject", Plain(subject));
    let (mut now, mut trace) = (Instant::ZERO, Trace::new());
    loop {
        let moved = raw.turn(now, &mut back, &mut there, &mut trace)
            | subject.turn(now, &mut there, &mut back, &mut trace);
        assert_eq!((raw.closed(), subject.closed()), (None, None));
        let (Plain(raw), Plain(subject)) = (raw.transport(), subject.transport());
        if if raw.is_client { raw.is_answered } else { subject.status.is_some() } {
            let code = subject.status.as_ref().map(Status::code);
            assert!(code.is_none_or(|code| code == Code::Ok), "{:?}", subject.status);
            let (longest, frames, messages) = (raw.longest, raw.frames, subject.messages.clone());
            return Outcome { longest, frames, messages };
        }
        if moved {
            continue;
        }
        // Only what is under way moves the clock: a message that waits for a timer is stalled for good.
        let arrivals = [there.next_arrival(), back.next_arrival()].into_iter().flatten();
        now = arrivals.min().unwrap_or_else(|| {
            panic!("{} of {} bytes were sent, and all stands still", raw.sent, raw.message.len())
        });
    }
}

/// An end with a window of so many bytes for each stream, which does or does not grow.
fn config(stream_window_bytes: u32, grows: bool) -> Config {
    let mut config = Config::default();
    config.http2.stream_window_bytes = stream_window_bytes;
    if !grows {
        config.http2.window_bytes_max = 0;
    }
    config
}

/// One message of so many bytes goes to a server, and one to a client, with these windows.
fn passes_without_a_stall(message_bytes: usize, config: &Config) {
    let outcomes = [
        run(Raw::new(true, message_bytes), Application::server(config.clone())),
        run(Raw::new(false, message_bytes), Application::client(config.clone())),
    ];
    for Outcome { longest, frames, messages } in outcomes {
        assert_eq!(messages, [message_bytes]);
        assert!(longest < STALL, "nothing moved for {longest:?}");
        // The window did bind.
        assert!(longest >= DELAY && frames > 1, "{longest:?}, {frames} frames");
    }
}

#[test]
fn r16_a_message_of_three_mebibytes_passes_a_window_of_64_kib_without_a_stall() {
    passes_without_a_stall(3 * MIB, &config(65_536, false));
    passes_without_a_stall(3 * MIB, &config(65_536, true));
}

/// One byte more than the prefix of a message has.
#[test]
fn r16_a_message_of_three_mebibytes_passes_a_window_of_six_bytes_without_a_stall() {
    passes_without_a_stall(3 * MIB, &config(6, true));
    passes_without_a_stall(MIB / 32, &config(6, false));
}
