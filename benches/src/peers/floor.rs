//! The floor: what the sockets themselves cost. As many bytes as the frames of a gRPC call occupy go there and back, and
//! nobody looks at them.
//!
//! Asynchronous callers share one connection: as many as there are, so many requests leave in one write, and the next batch
//! leaves when all replies are there. Blocking callers have a thread and a connection each. Over TLS the same bytes go through
//! `rustls`, sealed and opened and thrown away.

mod wire;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use prost::Message;

pub use self::wire::unblocked_tcp_pair;
use self::wire::{Side, Wire, pair};
use super::RunError;
use crate::cell::{Cell, Client, Kind, Threads, Transport};
use crate::meter::Meter;
use crate::proto::Payload;

/// Runs a cell.
pub(super) fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    let transport = cell.transport;
    if transport == Transport::InProcess {
        return Err(RunError::NotOffered("without a socket there is nothing to exchange"));
    }
    if cell.threads == Threads::Callers {
        return Err(RunError::NotOffered("its callers are one: --threads two"));
    }
    let exchange = Exchange::of(cell);
    match (cell.client, cell.threads) {
        (Client::Blocking, Threads::Spin) => {
            return Err(RunError::NotOffered("the blocking floor sleeps in its read"));
        }
        (Client::Blocking, _) => blocking_callers(transport, cell.callers, exchange, meter)?,
        (Client::Async, Threads::One) => one_thread(transport, cell.callers, exchange, meter)?,
        (Client::Async, Threads::Two | Threads::Runtime | Threads::Tokio | Threads::Callers) => {
            two_threads(transport, cell.callers, exchange, meter)?
        }
        (Client::Async, Threads::Spin) => spinning(transport, cell.callers, exchange, meter)?,
    }
    Ok(())
}

/// Bytes each way for one call, or for one message pair of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exchange {
    request_bytes: usize,
    reply_bytes: usize,
}

/// RFC 9113 §4.1.
const FRAME_HEAD_BYTES: usize = 9;
/// RFC 9113 §4.2: larger messages need several frames.
const FRAME_PAYLOAD_BYTES: usize = 16_384;
/// gRPC's length-prefixed message: compressed flag and length.
const PREFIX_BYTES: usize = 5;
/// A request's eight fields when all of them are in a table: an index of one byte each.
const REQUEST_BLOCK_BYTES: usize = 8;
/// `:status` and `content-type`.
const REPLY_BLOCK_BYTES: usize = 2;
/// `grpc-status`.
const TRAILERS_BLOCK_BYTES: usize = 1;

impl Exchange {
    fn of(cell: &Cell) -> Self {
        let message = Payload { body: vec![0; cell.payload_bytes].into() }.encoded_len() + PREFIX_BYTES;
        let data = message + message.div_ceil(FRAME_PAYLOAD_BYTES) * FRAME_HEAD_BYTES;
        match cell.kind {
            Kind::Unary => Self {
                request_bytes: FRAME_HEAD_BYTES + REQUEST_BLOCK_BYTES + data,
                reply_bytes: 2 * FRAME_HEAD_BYTES + REPLY_BLOCK_BYTES + data + TRAILERS_BLOCK_BYTES,
            },
            Kind::Streaming => Self { request_bytes: data, reply_bytes: data },
        }
    }
}

/// One end of a connection that does not block: what arrives is counted, what leaves are zeros.
struct End {
    wire: Wire,
    /// Bytes of one incoming message, and of the one that goes out for it.
    incoming_bytes: usize,
    outgoing_bytes: usize,
    /// Received bytes of messages that are not complete.
    received: usize,
    /// Bytes that the socket has not taken.
    unsent: usize,
    scratch: Vec<u8>,
    zeros: Vec<u8>,
}

/// How many bytes are written or read at a time at most.
pub const BUFFER_BYTES: usize = 256 * 1024;

impl End {
    fn client(wire: Wire, exchange: Exchange) -> Self {
        Self::new(wire, exchange.reply_bytes, exchange.request_bytes)
    }

    fn server(wire: Wire, exchange: Exchange) -> Self {
        Self::new(wire, exchange.request_bytes, exchange.reply_bytes)
    }

    fn new(wire: Wire, incoming_bytes: usize, outgoing_bytes: usize) -> Self {
        let (scratch, zeros) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
        Self { wire, incoming_bytes, outgoing_bytes, received: 0, unsent: 0, scratch, zeros }
    }

    /// Queues so many messages and writes what the socket takes.
    fn send(&mut self, messages: usize) -> io::Result<()> {
        self.unsent += messages * self.outgoing_bytes;
        self.wire.flush()?;
        while self.unsent > 0 {
            match self.wire.write(&self.zeros[..self.unsent.min(BUFFER_BYTES)]) {
                Ok(written) => self.unsent -= written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is there and tells how many messages that completes.
    fn receive(&mut self) -> io::Result<usize> {
        self.received += self.wire.receive(&mut self.scratch)?;
        let messages = self.received / self.incoming_bytes;
        self.received %= self.incoming_bytes;
        Ok(messages)
    }

    /// A server's whole work: for every request a reply.
    fn serve(&mut self) -> io::Result<()> {
        let requests = self.receive()?;
        self.send(requests)
    }
}

/// All callers of one connection, as one: they write together and wait for each other.
struct Callers<'m> {
    end: End,
    callers: usize,
    waiting: usize,
    began: Option<Instant>,
    meter: &'m Meter,
}

impl<'m> Callers<'m> {
    fn start(end: End, callers: usize, meter: &'m Meter) -> io::Result<Self> {
        let mut callers = Self { end, callers, waiting: callers, began: Some(Instant::now()), meter };
        callers.end.send(callers.callers)?;
        Ok(callers)
    }

    /// Takes the replies that are there; the next batch leaves when the last of this one came.
    fn call(&mut self) -> io::Result<()> {
        self.waiting -= self.end.receive()?.min(self.waiting);
        if self.waiting > 0 {
            return self.end.send(0);
        }
        let now = Instant::now();
        self.meter.end_batch(self.began.replace(now), self.callers as u64);
        self.waiting = self.callers;
        self.end.send(self.callers)
    }
}

const SERVER: Token = Token(0);
const CLIENT: Token = Token(1);

fn one_thread(transport: Transport, callers: usize, exchange: Exchange, meter: &Meter) -> io::Result<()> {
    let (server, client) = connected_pair(transport)?;
    let (mut server, client) = (End::server(server, exchange), End::client(client, exchange));
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    register(&poll, &mut server, SERVER)?;
    let mut callers = Callers::start(client, callers, meter)?;
    register(&poll, &mut callers.end, CLIENT)?;
    while meter.running() {
        poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                SERVER => server.serve()?,
                _ => callers.call()?,
            }
        }
    }
    Ok(())
}

fn two_threads(transport: Transport, callers: usize, exchange: Exchange, meter: &Meter) -> io::Result<()> {
    let (server, client) = connected_pair(transport)?;
    let mut server = End::server(server, exchange);
    let server = thread::spawn(move || -> io::Result<()> {
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(16);
        register(&poll, &mut server, SERVER)?;
        loop {
            poll.poll(&mut events, None)?;
            if !events.is_empty() && ended(server.serve())? {
                return Ok(());
            }
        }
    });
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    let mut callers = Callers::start(End::client(client, exchange), callers, meter)?;
    register(&poll, &mut callers.end, CLIENT)?;
    while meter.running() {
        poll.poll(&mut events, None)?;
        if !events.is_empty() {
            callers.call()?;
        }
    }
    drop(callers);
    server.join().expect("the server thread does not panic")
}

fn spinning(transport: Transport, callers: usize, exchange: Exchange, meter: &Meter) -> io::Result<()> {
    let (server, client) = connected_pair(transport)?;
    let mut server = End::server(server, exchange);
    let server = thread::spawn(move || -> io::Result<()> {
        while !ended(server.serve())? {
            std::hint::spin_loop();
        }
        Ok(())
    });
    let mut callers = Callers::start(End::client(client, exchange), callers, meter)?;
    while meter.running() {
        callers.call()?;
        std::hint::spin_loop();
    }
    drop(callers);
    server.join().expect("the server thread does not panic")
}

/// A thread and a connection for each caller; one thread serves them all.
fn blocking_callers(
    transport: Transport,
    callers: usize,
    exchange: Exchange,
    meter: &Meter,
) -> io::Result<()> {
    let pairs: Vec<_> = (0..callers).map(|_| pair(transport)).collect::<Result<_, _>>()?;
    let (servers, clients): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let done = Arc::new(AtomicBool::new(false));
    let server = {
        let done = Arc::clone(&done);
        thread::spawn(move || serve_many(servers, exchange, &done))
    };
    let failures: Vec<io::Error> = thread::scope(|scope| {
        let caller = |client| scope.spawn(move || blocking_caller(client, exchange, meter));
        let threads: Vec<_> = clients.into_iter().map(caller).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<()>>| {
            thread.join().expect("a caller thread does not panic").err()
        };
        threads.into_iter().filter_map(join).collect()
    });
    done.store(true, Relaxed);
    server.join().expect("the server thread does not panic")?;
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn blocking_caller(mut side: Side, exchange: Exchange, meter: &Meter) -> io::Result<()> {
    let (request, mut reply) = (vec![0; exchange.request_bytes], vec![0; exchange.reply_bytes]);
    while meter.running() {
        let began = meter.begin();
        side.write_all(&request)?;
        side.read_exact(&mut reply)?;
        meter.end(began);
    }
    Ok(())
}

fn serve_many(sides: Vec<Side>, exchange: Exchange, done: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut ends = Vec::with_capacity(sides.len());
    for (index, side) in sides.into_iter().enumerate() {
        let mut end = End::server(side.unblocked()?, exchange);
        register(&poll, &mut end, Token(index))?;
        ends.push(end);
    }
    while !done.load(Relaxed) {
        poll.poll(&mut events, Some(Duration::from_millis(50)))?;
        for event in &events {
            if let Some(end) = ends.get_mut(event.token().0) {
                ended(end.serve())?;
            }
        }
    }
    Ok(())
}

/// Whether the other end has gone, which is how a run ends.
fn ended(served: io::Result<()>) -> io::Result<bool> {
    match served {
        Ok(()) => Ok(false),
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Ok(true),
            _ => Err(error),
        },
    }
}

fn register(poll: &Poll, end: &mut End, token: Token) -> io::Result<()> {
    poll.registry().register(&mut end.wire.stream, token, Interest::READABLE | Interest::WRITABLE)
}

/// The two ends of one connection, which do not block.
fn connected_pair(transport: Transport) -> io::Result<(Wire, Wire)> {
    let (server, client) = pair(transport)?;
    Ok((server.unblocked()?, client.unblocked()?))
}
