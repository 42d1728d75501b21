//! A client drives each part of a server's memory as far as it can, and the other way round: never beyond the sum, and far enough to
//! show that the sum is no fable.

use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_grpc::{
    Body, CallKey, Client, ClientIdentity, Config, Event, Memory, MetadataMap, Routes, Server, Start,
};
use fulmar_http2::Sends;

use crate::support::ECHO;

const CALLS: u32 = 50;

fn config() -> Config {
    let mut config =
        Config { receive_message_bytes_max: 100_000, held_bytes_max: 1_000_000, ..Config::default() };
    config.http2.streams_max = CALLS;
    config
}

/// Two ends whose users take nothing: neither metadata nor messages.
struct Ends {
    client: Client,
    server: Server,
    pools: [Pool; 2],
    now: Instant,
    calls: Vec<CallKey>,
    served: Vec<CallKey>,
    /// The most that either end has held, part by part.
    held: [Memory; 2],
}

impl Ends {
    fn new() -> Self {
        let mut routes = Routes::new();
        routes.add(ECHO).unwrap();
        let identity = ClientIdentity { scheme: "http".into(), authority: "sea".into() };
        let mut ends = Self {
            client: Client::new(config(), identity),
            server: Server::new(config(), Arc::new(routes)),
            pools: [Pool::new(), Pool::new()],
            now: Instant::from_nanos(1),
            calls: Vec::new(),
            served: Vec::new(),
            held: [Memory::default(); 2],
        };
        ends.run();
        ends
    }

    /// Does something at the client, and lets both ends talk until there is no more to say.
    fn client<R>(&mut self, act: impl FnOnce(&mut Client, &mut Env<'_>) -> R) -> R {
        let mut out = Output::new();
        let result = act(&mut self.client, &mut Env::new(self.now, &mut self.pools[0], &mut out));
        self.carry(out);
        self.run();
        result
    }

    fn server<R>(&mut self, act: impl FnOnce(&mut Server, &mut Env<'_>) -> R) -> R {
        let mut out = Output::new();
        let result = act(&mut self.server, &mut Env::new(self.now, &mut self.pools[1], &mut out));
        self.carry_back(out);
        self.run();
        result
    }

    fn run(&mut self) {
        let mut out = Output::new();
        self.client.transmit(&mut Env::new(self.now, &mut self.pools[0], &mut out));
        self.carry(out);
    }

    fn carry(&mut self, mut out: Output) {
        let mut wire = Vec::new();
        out.move_to(&mut wire);
        let (input, mut env) = (Input::new(&wire), Env::new(self.now, &mut self.pools[1], &mut out));
        while let Some(event) = self.server.next_event(&mut env, &input).unwrap() {
            match event {
                Event::Begin { call, .. } => self.served.push(call),
                Event::Message { body: Body::Block(block), .. } => env.pool.give(block),
                _ => {}
            }
        }
        self.server.transmit(&mut env);
        self.measure();
        if !out.is_empty() {
            self.carry_back(out);
        }
    }

    fn carry_back(&mut self, mut out: Output) {
        let mut wire = Vec::new();
        out.move_to(&mut wire);
        let (input, mut env) = (Input::new(&wire), Env::new(self.now, &mut self.pools[0], &mut out));
        while let Some(event) = self.client.next_event(&mut env, &input).unwrap() {
            if let Event::Message { body: Body::Block(block), .. } = event {
                env.pool.give(block);
            }
        }
        self.client.transmit(&mut env);
        self.measure();
        if !out.is_empty() {
            self.carry(out);
        }
    }

    /// No part is above the most it may be.
    fn measure(&mut self) {
        let sends = Sends { data_bytes_max: 200_000, fields_max: 256, field_bytes_max: 16_384 };
        let most = config().memory_max(&sends);
        for (now, most_held) in [self.client.memory(), self.server.memory()].into_iter().zip(&mut self.held) {
            for ((name, held), (_, most)) in now.parts().zip(most.parts()) {
                assert!(held <= most, "{name}: {held} bytes, more than {most}");
            }
            most_held.calls = most_held.calls.max(now.calls);
            most_held.metadata = most_held.metadata.max(now.metadata);
            most_held.messages = most_held.messages.max(now.messages);
        }
    }

    /// A part has come to so many percent of its bound at the client or at the server.
    #[track_caller]
    fn assert_reached(&self, end: usize, part: fn(&Memory) -> usize, percent: usize) {
        let (held, most) = (part(&self.held[end]), part(&config().memory_max(&Sends::default())));
        assert!(held * 100 >= most * percent, "{held} bytes are less than {percent} % of {most}");
    }

    fn start(&mut self, metadata: &MetadataMap) -> CallKey {
        let deadline = Some(self.now + Duration::from_secs(1_000));
        let timeout = Some(Duration::from_secs(1_000));
        let start = Start {
            path: ECHO,
            metadata,
            timeout,
            deadline,
            compression: &fulmar_grpc::Compression::Default,
        };
        let call = self.client(|client, env| client.start(env, start, None, false)).unwrap();
        self.calls.push(call);
        call
    }
}

/// About as much metadata as a header list of 16 KiB takes.
fn large_metadata() -> MetadataMap {
    let mut metadata = MetadataMap::new();
    for n in 0..10 {
        metadata.append(&format!("long-{n}"), &"v".repeat(1_400)).unwrap();
    }
    metadata
}

#[test]
fn as_many_calls_with_as_much_metadata_as_there_may_be() {
    let mut ends = Ends::new();
    for _ in 0..CALLS {
        ends.start(&large_metadata());
    }
    assert_eq!(ends.served.len(), CALLS as usize);
    for call in ends.served.clone() {
        let metadata = large_metadata();
        ends.server(|server, env| server.send_headers(env, call, &metadata)).unwrap();
    }
    for end in [0, 1] {
        ends.assert_reached(end, |memory| memory.calls, 50);
        ends.assert_reached(end, |memory| memory.metadata, 15);
    }
}

#[test]
fn messages_that_do_not_end_and_messages_that_nobody_takes() {
    for length in [10, 1_000, 33_000, 70_000, 99_000] {
        let mut ends = Ends::new();
        let mut message = vec![0; length + 5];
        message[1..5].copy_from_slice(&(length as u32).to_be_bytes());
        for _ in 0..CALLS {
            let call = ends.start(MetadataMap::EMPTY);
            for _ in 0..3 {
                // Calls end on the way, where too much is held.
                let _ = ends.client(|client, env| client.send_framed_slice(env, call, &message));
            }
            let _ = ends.client(|client, env| client.send_framed_slice(env, call, &message[..length]));
        }
        if length >= 33_000 {
            ends.assert_reached(1, |memory| memory.messages, 15);
        }
    }
}

#[test]
fn an_idle_end_gives_memory_back_after_a_time() {
    let mut ends = Ends::new();
    for _ in 0..CALLS {
        ends.start(&large_metadata());
    }
    for call in ends.calls.clone() {
        ends.client(|client, env| client.cancel(env, call));
    }
    assert_eq!((ends.client.calls(), ends.server.calls()), (0, 0));
    let busy = ends.server.memory();
    assert!(busy.calls > 8_000 && busy.metadata > 100_000, "{busy}");
    ends.now = ends.server.next_deadline().expect("memory is to be given back");
    ends.server(|server, env| server.on_deadline(env)).unwrap();
    ends.client(|client, env| client.on_deadline(env)).unwrap();
    for idle in [ends.server.memory(), ends.client.memory()] {
        assert_eq!((idle.calls, idle.metadata, idle.http2.streams), (0, 0, 0), "{idle}");
    }
    let stale = ends.calls[0];
    let call = ends.start(MetadataMap::EMPTY);
    assert!(call != stale && ends.client.deadline(stale).is_none());
}

#[test]
fn a_sum_is_printed_line_by_line() {
    let text = config().memory_max(&Sends::default()).to_string();
    let numbers: Vec<usize> =
        text.lines().map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    let (sum, parts) = numbers.split_last().unwrap();
    assert_eq!(parts.iter().sum::<usize>(), *sum, "{text}");
    assert!(text.contains("streams") && text.contains("messages"), "{text}");
}
