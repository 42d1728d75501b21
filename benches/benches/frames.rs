//! HTTP/2 alone: frames of requests and of DATA, emitted by one end and parsed by the other.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_http2::{Config, Connection, Event, Field, Role, StreamKey};

/// Both ends of a connection, and the wire between them.
struct Pair {
    client: Connection,
    server: Connection,
    pool: Pool,
    to_server: Output,
    to_client: Output,
    wire: Vec<u8>,
}

const REQUEST: [Field<'static>; 4] = [
    Field::new(b":method", b"POST"),
    Field::new(b":scheme", b"http"),
    Field::new(b":path", b"/fulmar.bench.Bench/Unary"),
    Field::new(b":authority", b"127.0.0.1:50051"),
];

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            client: Connection::new(Role::Client, Config::default()),
            server: Connection::new(Role::Server, Config::default()),
            pool: Pool::new(),
            to_server: Output::new(),
            to_client: Output::new(),
            wire: Vec::new(),
        };
        pair.exchange();
        pair
    }

    fn open(&mut self, end: bool) -> StreamKey {
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
        self.client.open(&mut env, REQUEST, end).expect("the server allows more streams")
    }

    fn send(&mut self, stream: StreamKey, bytes: &[u8]) {
        let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
        self.client.send_data(&mut env, stream, bytes, false).expect("an open stream");
    }

    /// Carries bytes over until neither end has any. The server answers complete requests, and takes the bytes of others.
    fn exchange(&mut self) {
        loop {
            let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
            self.client.transmit(&mut env);
            let idle = self.to_server.is_empty();
            serve(
                &mut self.server,
                carry(&mut self.wire, &mut self.to_server),
                &mut self.pool,
                &mut self.to_client,
            );
            if idle && self.to_client.is_empty() {
                return;
            }
            let input = Input::new(carry(&mut self.wire, &mut self.to_client));
            let mut env = Env::new(Instant::ZERO, &mut self.pool, &mut self.to_server);
            while let Some(event) = self.client.next_event(&mut env, &input).expect("a lawful peer") {
                black_box(event);
            }
        }
    }
}

fn carry<'w>(wire: &'w mut Vec<u8>, from: &mut Output) -> &'w [u8] {
    wire.clear();
    from.move_to(wire);
    wire
}

fn serve(server: &mut Connection, bytes: &[u8], pool: &mut Pool, out: &mut Output) {
    let input = Input::new(bytes);
    let mut env = Env::new(Instant::ZERO, pool, out);
    while let Some(event) = server.next_event(&mut env, &input).expect("a lawful peer") {
        match event {
            Event::Headers { stream, end: true } => {
                let fields = [Field::new(b":status", b"200")];
                server.send_headers(&mut env, stream, fields, true).expect("an open stream");
            }
            Event::Data { stream, bytes, .. } => {
                black_box(bytes);
                server.release(&mut env, stream, bytes.len());
            }
            _ => {}
        }
    }
    server.transmit(&mut env);
}

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames/requests");
    for requests in [1, 64] {
        let mut pair = Pair::new();
        group.throughput(Throughput::Elements(requests));
        group.bench_function(format!("c={requests}"), |bencher| {
            bencher.iter(|| {
                for _ in 0..requests {
                    pair.open(true);
                }
                pair.exchange();
            });
        });
    }
    group.finish();
}

fn data(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames/data");
    for (size, frames, bytes) in [("8B", 64, 8), ("1KiB", 32, 1024), ("16KiB", 2, 16 * 1024)] {
        let mut pair = Pair::new();
        let stream = pair.open(false);
        pair.exchange();
        let payload = vec![7; bytes];
        group.throughput(Throughput::Bytes((frames * bytes) as u64));
        group.bench_function(format!("{size} x {frames}"), |bencher| {
            bencher.iter(|| {
                for _ in 0..frames {
                    pair.send(stream, &payload);
                }
                pair.exchange();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests, data);
criterion_main!(benches);
