//! The allocation contract: how often the allocator is called for a call in steady state, by all threads and both ends. Exit
//! code 1 when a line is over its budget.
//!
//! `cargo run --release -p fulmar-benches --bin allocs [-- --calls 100000] [--warm-up 1000]`

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fulmar::{Duplex, LocalReactor, MetadataMap, Request, RunningServer, Server};
use fulmar_benches::allocator::{self, Allocations, CountingAllocator};
use fulmar_benches::echo::Echo;
use fulmar_benches::engines::{self, Pair};
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_client::blocking::BenchClient as BlockingClient;
use fulmar_benches::proto::bench_server::BenchServer;
use fulmar_benches::proto::{Count as Tick, Payload};
use fulmar_benches::watchdog;
use lexopt::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Done = Result<(), Box<dyn Error>>;
type Counted = Result<Count, Box<dyn Error>>;

/// A promise: `what` calls the allocator at most `budget` times a call (or message pair).
struct Line {
    what: &'static str,
    budget: u64,
    count: fn(&Plan) -> Counted,
}

/// A budget above zero is what is true of the line today; the aim is zero wherever the message owns no heap.
const LINES: [Line; 13] = [
    line("engines: unary call", 0, |plan| engine_calls(plan, 0)),
    line("engines: unary call, 8 metadata entries", 0, |plan| engine_calls(plan, 8)),
    line("engines: streamed message pair", 0, engine_pairs),
    line("unary call, blocking client", 0, blocking_calls),
    line("streamed message pair, blocking client", 0, blocking_pairs),
    line("unary call, one thread", 0, local_calls),
    line("unary call, one thread, 8 metadata entries", 18, local_calls_with_metadata),
    line("streamed message pair, one thread", 0, local_pairs),
    line("unary call, background reactor", 0, background_calls),
    line("streamed message pair, background reactor", 0, background_pairs),
    line("unary call of 1 KiB as Bytes, one thread", 0, |plan| local_payloads(plan, 1024)),
    line("unary call of 64 KiB as Bytes, one thread", 2, |plan| local_payloads(plan, 64 * 1024)),
    line("unary call, in-process", 0, in_process_calls),
];

/// How many allocations of a whole line are no allocation per call: when the system holds a thread up, more than ever before piles
/// up for it, and a buffer grows, once. One in ten thousand calls is over this.
const STRAYS_MAX: u64 = 9;

const fn line(what: &'static str, budget: u64, count: fn(&Plan) -> Counted) -> Line {
    Line { what, budget, count }
}

/// What was counted, and over how many calls.
struct Count {
    allocations: Allocations,
    calls: u64,
}

/// How many calls are made, and how many before the counting begins.
#[derive(Clone, Copy)]
struct Plan {
    calls: u64,
    warm_up: u64,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("allocs: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints all lines. `false` if one is over its budget.
fn run() -> Result<bool, Box<dyn Error>> {
    let plan = Plan::parse()?;
    // One for all lines: a thread that starts or ends beside a line would be counted with it.
    let _watchdog = watchdog::start("allocs".to_owned(), Duration::from_secs(900));
    println!("{} calls a line after {} of warm-up, allocations of all threads\n", plan.calls, plan.warm_up);
    println!("{:<46} {:>10} {:>12} {:>12} {:>12}", "", "budget", "allocations", "a call", "bytes a call");
    let mut kept = true;
    for Line { what, budget, count } in LINES {
        let Count { allocations, calls } = count(&plan)?;
        let over = allocations.calls > budget * calls + STRAYS_MAX;
        kept &= !over;
        let each = |total: u64| total as f64 / calls as f64;
        let mark = match (over, budget) {
            (true, _) => "  OVER BUDGET",
            (false, 0) => "",
            (false, _) => "  (to become 0)",
        };
        println!(
            "{what:<46} {budget:>10} {:>12} {:>12.3} {:>12.1}{mark}",
            allocations.calls,
            each(allocations.calls),
            each(allocations.bytes)
        );
    }
    Ok(kept)
}

impl Plan {
    fn parse() -> Result<Self, lexopt::Error> {
        let mut plan = Self { calls: 100_000, warm_up: 1_000 };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("calls") => plan.calls = parser.value()?.parse()?,
                Long("warm-up") => plan.warm_up = parser.value()?.parse()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(plan)
    }

    /// Calls for as long as the plan says, and counts what the allocator is asked for after the warm-up.
    fn count(&self, mut call: impl FnMut() -> Done) -> Counted {
        for _ in 0..self.warm_up {
            call()?;
        }
        allocator::start();
        let called = (0..self.calls).try_for_each(|_| call());
        let allocations = allocator::stop();
        called.map(|()| Count { allocations, calls: self.calls })
    }

    /// As [`count`](Self::count), for calls that are awaited.
    async fn count_async(&self, mut call: impl AsyncFnMut() -> Done) -> Counted {
        for _ in 0..self.warm_up {
            call().await?;
        }
        allocator::start();
        let mut called = Ok(());
        for _ in 0..self.calls {
            called = call().await;
            if called.is_err() {
                break;
            }
        }
        let allocations = allocator::stop();
        called.map(|()| Count { allocations, calls: self.calls })
    }
}

fn engine_calls(plan: &Plan, entries: usize) -> Counted {
    let mut pair = Pair::new(engines::metadata(entries))?;
    plan.count(|| pair.unary(1, b"x"))
}

fn engine_pairs(plan: &Plan) -> Counted {
    let mut pair = Pair::new(MetadataMap::new())?;
    pair.open_streams(1)?;
    // So that windows are updated in the warm-up too, which many small messages would do much later.
    pair.ping_pong(&[7; 64 * 1024])?;
    plan.count(|| pair.ping_pong(b"x"))
}

fn server() -> Result<Server, fulmar::ServerError> {
    Server::builder().reactors(1).add_service(BenchServer::new(Echo)).bind("127.0.0.1:0")
}

fn spawned() -> Result<RunningServer, fulmar::ServerError> {
    server()?.spawn()
}

/// Owns no heap.
const TICK: Tick = Tick { number: 7 };

fn blocking_calls(plan: &Plan) -> Counted {
    let server = spawned()?;
    let mut client = BlockingClient::connect(server.endpoint())?;
    plan.count(|| {
        client.tick(TICK)?;
        Ok(())
    })
}

fn blocking_pairs(plan: &Plan) -> Counted {
    let server = spawned()?;
    let mut client = BlockingClient::connect(server.endpoint())?;
    let mut call = client.ticks(())?;
    let mut reply = Tick::default();
    plan.count(|| {
        call.send(&TICK)?;
        call.message_into(&mut reply)?;
        Ok(())
    })
}

/// Both ends and the caller on this thread.
fn on_one_thread(calls: impl AsyncFnOnce(BenchClient) -> Counted) -> Counted {
    let server = server()?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;
    reactor.block_on(async { calls(BenchClient::connect(endpoint).await?).await })
}

fn local_calls(plan: &Plan) -> Counted {
    on_one_thread(async |client| ticks(plan, client).await)
}

/// Eight entries with the request, and the same before the reply.
fn local_calls_with_metadata(plan: &Plan) -> Counted {
    let metadata = engines::metadata(8);
    on_one_thread(async |client| {
        plan.count_async(async || {
            let mut request = Request::new(TICK);
            request.metadata_mut().extend_from(&metadata);
            client.tick(request).await?;
            Ok(())
        })
        .await
    })
}

fn local_pairs(plan: &Plan) -> Counted {
    on_one_thread(async |client| message_pairs(plan, client).await)
}

fn local_payloads(plan: &Plan, bytes: usize) -> Counted {
    let payload = Payload { body: vec![7; bytes].into() };
    // Fewer of the large ones, so that the line takes no longer than the others.
    let plan = Plan { calls: plan.calls.min(100_000_000 / bytes as u64), ..*plan };
    on_one_thread(async |client| {
        plan.count_async(async || {
            client.unary(payload.clone()).await?;
            Ok(())
        })
        .await
    })
}

async fn ticks(plan: &Plan, client: BenchClient) -> Counted {
    plan.count_async(async || {
        client.tick(TICK).await?;
        Ok(())
    })
    .await
}

async fn message_pairs(plan: &Plan, client: BenchClient) -> Counted {
    let Duplex { mut requests, mut replies } = client.ticks(()).await?;
    let mut reply = Tick::default();
    plan.count_async(async || {
        requests.send(&TICK).await?;
        replies.message_into(&mut reply).await?;
        Ok(())
    })
    .await
}

/// The caller on this thread, the client's end of the connection on the process's client reactor, the server on a third.
fn background_calls(plan: &Plan) -> Counted {
    let server = spawned()?;
    futures::executor::block_on(async {
        let client = BenchClient::connect(server.endpoint()).await?;
        ticks(plan, client).await
    })
}

fn background_pairs(plan: &Plan) -> Counted {
    let server = spawned()?;
    futures::executor::block_on(async {
        message_pairs(plan, BenchClient::connect(server.endpoint()).await?).await
    })
}

fn in_process_calls(plan: &Plan) -> Counted {
    let server = spawned()?;
    let client = BenchClient::new(server.in_process());
    futures::executor::block_on(ticks(plan, client))
}
