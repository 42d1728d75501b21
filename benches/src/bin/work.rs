//! A fixed amount of work, for tools that count what it takes: `valgrind --tool=callgrind`, `strace -c`.
//!
//! `cargo run --release -p fulmar-benches --bin work -- SCENARIO [--calls 2000] [--callers 64] [--payload 1]`

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;

use fulmar::{Duplex, LocalReactor, MetadataMap, Server};
use fulmar_benches::echo::Echo;
use fulmar_benches::engines::Pair;
use fulmar_benches::proto::Payload;
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_server::BenchServer;
use fulmar_hpack::{DecodeLimits, Decoder, Encoder, Field, FieldList, TABLE_BYTES_INITIAL};
use futures::channel::oneshot;
use futures::future::try_join_all;
use lexopt::prelude::*;

/// What callers that share a thread come back with.
type Called = Result<(), Box<dyn Error + Send + Sync>>;

/// What to do, and how much of it.
struct Plan {
    scenario: String,
    /// Of each caller.
    calls: usize,
    callers: usize,
    payload_bytes: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("work: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Called {
    let plan = Plan::parse()?;
    match plan.scenario.as_str() {
        "engines-unary" => engines_unary(&plan),
        "engines-streaming" => engines_streaming(&plan),
        "hpack-encode" => hpack(&plan, true),
        "hpack-decode" => hpack(&plan, false),
        "unary" | "streaming" | "in-process" => on_one_thread(&plan),
        other => {
            let scenarios =
                "hpack-encode, hpack-decode, engines-unary, engines-streaming, unary, streaming, in-process";
            Err(format!("no scenario {other}: {scenarios}").into())
        }
    }
}

impl Plan {
    fn parse() -> Result<Self, lexopt::Error> {
        let mut plan = Self { scenario: "unary".into(), calls: 2_000, callers: 64, payload_bytes: 1 };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Value(scenario) => plan.scenario = scenario.string()?,
                Long("calls") => plan.calls = parser.value()?.parse()?,
                Long("callers") => plan.callers = parser.value()?.parse()?,
                Long("payload") => plan.payload_bytes = parser.value()?.parse()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(plan)
    }
}

/// The three header blocks of a call, in the steady state of a connection: encoded, or else decoded.
fn hpack(plan: &Plan, encodes: bool) -> Called {
    const BLOCKS: [&[Field<'static>]; 3] = [
        &[
            Field::new(b":method", b"POST"),
            Field::new(b":scheme", b"http"),
            Field::new(b":path", b"/fulmar.bench.Bench/Unary"),
            Field::new(b":authority", b"127.0.0.1:50051"),
            Field::new(b"te", b"trailers"),
            Field::new(b"content-type", b"application/grpc"),
            Field::new(b"user-agent", b"fulmar/0.1.0"),
        ],
        &[Field::new(b":status", b"200"), Field::new(b"content-type", b"application/grpc")],
        &[Field::new(b"grpc-status", b"0")],
    ];
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new(TABLE_BYTES_INITIAL));
    let (mut blocks, mut list, limits) =
        ([const { Vec::new() }; 3], FieldList::new(), DecodeLimits::default());
    // The first round fills the tables.
    for _ in 0..2 {
        for (fields, block) in BLOCKS.into_iter().zip(&mut blocks) {
            block.clear();
            encoder.encode(fields.iter().copied(), block);
            decoder.decode(block, &limits, &mut list).map_err(|error| error.to_string())?;
        }
    }
    for _ in 0..plan.calls * plan.callers {
        for (fields, block) in BLOCKS.into_iter().zip(&mut blocks) {
            if encodes {
                block.clear();
                encoder.encode(black_box(fields).iter().copied(), black_box(block));
            } else {
                decoder.decode(black_box(block), &limits, &mut list).map_err(|error| error.to_string())?;
                black_box(list.len());
            }
        }
    }
    Ok(())
}

fn engines_unary(plan: &Plan) -> Called {
    let failed = |error: Box<dyn Error>| error.to_string();
    let mut pair = Pair::new(MetadataMap::new()).map_err(failed)?;
    let message = vec![0; plan.payload_bytes];
    for _ in 0..plan.calls {
        pair.unary(plan.callers, &message).map_err(failed)?;
    }
    Ok(())
}

fn engines_streaming(plan: &Plan) -> Called {
    let failed = |error: Box<dyn Error>| error.to_string();
    let mut pair = Pair::new(MetadataMap::new()).map_err(failed)?;
    pair.open_streams(plan.callers).map_err(failed)?;
    let message = vec![0; plan.payload_bytes];
    for _ in 0..plan.calls {
        pair.ping_pong(&message).map_err(failed)?;
    }
    Ok(())
}

/// Both ends on one thread, over loopback TCP.
fn on_one_thread(plan: &Plan) -> Called {
    let server = Server::builder().reactors(1).add_service(BenchServer::new(Echo)).bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    let handle = reactor.serve(server)?;
    let client = match plan.scenario.as_str() {
        "in-process" => BenchClient::new(handle.in_process()),
        _ => reactor.block_on(BenchClient::connect(endpoint))?,
    };
    let mut callers = Vec::new();
    for _ in 0..plan.callers {
        let (done, caller) = oneshot::channel();
        callers.push(caller);
        let payload = Payload { body: vec![0; plan.payload_bytes].into() };
        let (client, calls, streaming) = (client.clone(), plan.calls, plan.scenario == "streaming");
        reactor.spawn(async move {
            drop(done.send(if streaming {
                stream(client, calls, payload).await
            } else {
                call(client, calls, payload).await
            }));
        });
    }
    reactor.block_on(try_join_all(callers))?.into_iter().collect()
}

async fn call(client: BenchClient, calls: usize, payload: Payload) -> Called {
    for _ in 0..calls {
        client.unary(payload.clone()).await?;
    }
    Ok(())
}

async fn stream(client: BenchClient, calls: usize, payload: Payload) -> Called {
    let Duplex { mut requests, mut replies } = client.ping_pong(()).await?;
    let mut reply = Payload::default();
    for _ in 0..calls {
        requests.send(&payload).await?;
        if !replies.message_into(&mut reply).await? {
            return Err("the server ended the stream".into());
        }
    }
    Ok(())
}
