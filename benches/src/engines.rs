//! A client's and a server's gRPC engine on one thread, with a `Vec` for a wire: calls without sockets and without an API.

use std::error::Error;
use std::sync::Arc;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_grpc::{Body, CallKey, Client, ClientIdentity, Config, Event, MetadataMap, Routes, Server, Start};

/// What goes wrong is a fault of the engines, or of how they are used here.
type Done = Result<(), Box<dyn Error>>;

const UNARY: &str = "/fulmar.bench.Bench/Unary";
const PING_PONG: &str = "/fulmar.bench.Bench/PingPong";

/// Both ends of a connection. The server answers every message with the same message.
pub struct Pair {
    client: Client,
    server: Server,
    pool: Pool,
    to_server: Output,
    to_client: Output,
    wire: Vec<u8>,
    metadata: MetadataMap,
    scratch: MetadataMap,
    streams: Vec<CallKey>,
    /// Calls that ended well, and messages that came back, since the last look.
    finished: usize,
    received: usize,
}

impl Pair {
    /// A fresh connection whose settings are exchanged. `metadata` goes with every call, and comes back before and after
    /// the reply.
    pub fn new(metadata: MetadataMap) -> Result<Self, Box<dyn Error>> {
        let mut routes = Routes::new();
        routes.add(UNARY)?;
        routes.add(PING_PONG)?;
        let identity = ClientIdentity { scheme: "http".into(), authority: "127.0.0.1:50051".into() };
        let mut pair = Self {
            client: Client::new(Config::default(), identity),
            server: Server::new(Config::default(), Arc::new(routes)),
            pool: Pool::new(),
            to_server: roomy_output(),
            to_client: roomy_output(),
            wire: Vec::with_capacity(ROOM_BYTES),
            metadata,
            scratch: MetadataMap::new(),
            streams: Vec::new(),
            finished: 0,
            received: 0,
        };
        pair.exchange()?;
        Ok(pair)
    }

    /// So many unary calls at once, from start to end.
    pub fn unary(&mut self, calls: usize, message: &[u8]) -> Done {
        for _ in 0..calls {
            self.start_call(message)?;
        }
        self.exchange()?;
        self.expect(calls, calls)
    }

    /// Opens so many streams, which stay open.
    pub fn open_streams(&mut self, streams: usize) -> Done {
        for _ in 0..streams {
            let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
            let start = Start {
                path: PING_PONG,
                metadata: &self.metadata,
                timeout: None,
                deadline: None,
                compression: &fulmar_grpc::Compression::Default,
            };
            self.streams.push(self.client.start(&mut env, start, None, false)?);
        }
        self.exchange()
    }

    /// A message on every open stream, and the answers to them.
    pub fn ping_pong(&mut self, message: &[u8]) -> Done {
        for stream in 0..self.streams.len() {
            self.send_message(stream, message)?;
        }
        self.exchange()?;
        self.expect(0, self.streams.len())
    }

    // What one end does is in functions of their own, by which the instructions of each end are counted.

    #[inline(never)]
    fn start_call(&mut self, message: &[u8]) -> Done {
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
        let start = Start {
            path: UNARY,
            metadata: &self.metadata,
            timeout: None,
            deadline: None,
            compression: &fulmar_grpc::Compression::Default,
        };
        self.client.start(&mut env, start, Some(message), true)?;
        Ok(())
    }

    #[inline(never)]
    fn send_message(&mut self, stream: usize, message: &[u8]) -> Done {
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
        self.client.send_message(&mut env, self.streams[stream], message)?;
        Ok(())
    }

    fn expect(&mut self, finished: usize, received: usize) -> Done {
        let (calls, messages) = (std::mem::take(&mut self.finished), std::mem::take(&mut self.received));
        if (calls, messages) == (finished, received) {
            return Ok(());
        }
        Err(format!("{calls} calls ended and {messages} messages came back, not {finished} and {received}")
            .into())
    }

    /// Carries bytes over until neither end has any.
    fn exchange(&mut self) -> Done {
        loop {
            let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
            self.client.transmit(&mut env);
            let idle = self.to_server.is_empty();
            self.serve()?;
            if idle && self.to_client.is_empty() {
                return Ok(());
            }
            self.take_replies()?;
        }
    }

    #[inline(never)]
    fn serve(&mut self) -> Done {
        self.wire.clear();
        self.to_server.move_to(&mut self.wire);
        let input = Input::new(&self.wire);
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_client);
        while let Some(event) = self.server.next_event(&mut env, &input)? {
            match event {
                Event::Begin { call, .. } => self.server.take_metadata(call, &mut self.scratch),
                Event::Message { call, body } => {
                    let bytes = body.as_slice();
                    self.server.release(&mut env, call, bytes.len());
                    // A unary call's only message ends its stream, which is answered in one go at its half-close; whether
                    // it is one is known from its method in real life.
                    let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(bytes);
                    if self.streams.is_empty() {
                        // A call without metadata of its own has that of its client all the same.
                        let metadata =
                            if self.metadata.is_empty() { MetadataMap::EMPTY } else { &self.scratch };
                        self.server.reply(&mut env, call, metadata, bytes.len(), encode, metadata)?;
                        self.server.forget(&mut env, call);
                    } else {
                        self.server.encode_message(&mut env, call, bytes.len(), encode)?;
                    }
                    give_back(body, env.pool);
                }
                _ => {}
            }
        }
        self.server.transmit(&mut env);
        all_consumed(&input)
    }

    #[inline(never)]
    fn take_replies(&mut self) -> Done {
        self.wire.clear();
        self.to_client.move_to(&mut self.wire);
        let input = Input::new(&self.wire);
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
        while let Some(event) = self.client.next_event(&mut env, &input)? {
            match event {
                Event::Headers { call } => self.client.take_metadata(call, &mut self.scratch),
                Event::Message { call, body } => {
                    self.client.release(&mut env, call, body.len());
                    self.received += 1;
                    give_back(body, env.pool);
                }
                Event::Finished { call } => {
                    let status = self.client.take_status(call, &mut self.scratch);
                    if !status.is_ok() {
                        return Err(status.into());
                    }
                    self.finished += 1;
                }
                _ => {}
            }
        }
        all_consumed(&input)
    }
}

/// Room for anything that one exchange of a few calls writes, so that buffers do not grow long after the first calls, when a
/// WINDOW_UPDATE is due.
const ROOM_BYTES: usize = 16 * 1024;

fn roomy_output() -> Output {
    let mut output = Output::new();
    output.bytes_mut().reserve(ROOM_BYTES);
    output
}

fn give_back(body: Body<'_>, pool: &mut Pool) {
    if let Body::Block(block) = body {
        pool.give(block);
    }
}

/// The wire carries whole frames here, so nothing is left over.
fn all_consumed(input: &Input<'_>) -> Done {
    if input.is_empty() { Ok(()) } else { Err("an engine left input unread".into()) }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

/// So many metadata entries, one in four of them binary.
pub fn metadata(entries: usize) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    for number in 0..entries {
        let added = if number % 4 == 3 {
            metadata.append_bin(&format!("x-bench-{number}-bin"), &[number as u8; 16])
        } else {
            metadata.append(&format!("x-bench-{number}"), "a value of usual length")
        };
        added.expect("legal names and values");
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unary_calls_come_back_with_their_metadata() {
        let mut pair = Pair::new(metadata(8)).expect("a fresh pair");
        for calls in [1, 64, 1] {
            pair.unary(calls, b"x").expect("every call ends well");
        }
        assert_eq!(pair.scratch.len(), 8);
    }

    #[test]
    fn streams_stay_open_for_any_number_of_messages() {
        let mut pair = Pair::new(MetadataMap::new()).expect("a fresh pair");
        pair.open_streams(3).expect("three streams");
        for _ in 0..10 {
            pair.ping_pong(&[7; 40_000]).expect("every message comes back");
        }
    }
}
