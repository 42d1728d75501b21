//! How much memory idle connections and idle streams keep, both ends together. The allocator counts it, to the byte, so that it does not
//! depend on the machine; `footprint` measures what is resident, for each end alone.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Duplex, LocalReactor, Server};
use fulmar_benches::allocator::{self, CountingAllocator};
use fulmar_benches::echo::Echo;
use fulmar_benches::proto::Count;
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_server::BenchServer;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// How many connections and streams are measured. Nearly as many are made before, so that shelves and other lists of which there is one
/// are filled; and all together are a power of two, as lists double.
const COUNT: i64 = 128;

/// What an idle connection keeps after one call, and an open stream after a message each way, in bytes, both ends: what was measured
/// when this was written. Whoever makes it more has to want it, and says so here; whoever makes it less writes down what it is.
const CONNECTION_BYTES: i64 = 2_507;
const STREAM_BYTES: i64 = 2_743;

/// Another compiler may lay a structure out otherwise.
const MARGIN_PERCENT: i64 = 3;

/// How long connections may take to rest on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// One test: the allocator counts for the whole process.
#[test]
fn idle_connections_and_streams_keep_no_more_memory_than_they_did() -> Result<(), Box<dyn Error>> {
    let server =
        Server::builder().reactors(1).add_service(BenchServer::new(Echo)).bind("127.0.0.1:0")?.spawn()?;
    let mut reactor = LocalReactor::new()?;
    let new_client = || -> Result<_, Box<dyn Error>> {
        Ok(BenchClient::new(Channel::builder(server.endpoint()).build()?))
    };
    let driver = new_client()?;

    // So many at a time that their bodies fill the shelves for those that rest.
    let mut clients = Vec::with_capacity(2 * COUNT as usize);
    let mut streams = Vec::with_capacity(2 * COUNT as usize);
    for _ in 1..COUNT {
        clients.push(new_client()?);
        streams.push(open(&mut reactor, &clients[clients.len() - 1])?);
    }
    streams.clear();
    settle(&mut reactor, &driver, None)?;
    allocator::start();
    for _ in 0..COUNT {
        let client = new_client()?;
        reactor.block_on(client.tick(Count { number: 1 }))?;
        clients.push(client);
    }
    let connection = settle(&mut reactor, &driver, Some(bound(CONNECTION_BYTES)))? / COUNT;

    let streaming = new_client()?;
    for _ in 0..COUNT {
        streams.push(open(&mut reactor, &streaming)?);
    }
    settle(&mut reactor, &driver, None)?;
    allocator::start();
    for _ in 0..COUNT {
        streams.push(open(&mut reactor, &streaming)?);
    }
    let stream = settle(&mut reactor, &driver, Some(bound(STREAM_BYTES)))? / COUNT;

    println!("bytes kept by both ends: {connection} a connection, {stream} a stream");
    assert!(connection * COUNT <= bound(CONNECTION_BYTES), "{connection} bytes an idle connection");
    assert!(stream * COUNT <= bound(STREAM_BYTES), "{stream} bytes an idle stream");
    Ok(server.shutdown(Duration::ZERO)?)
}

/// A stream after a message each way.
fn open(reactor: &mut LocalReactor, client: &BenchClient) -> Result<impl Sized + use<>, fulmar::Status> {
    reactor.block_on(async {
        let Duplex { mut requests, mut replies } = client.ticks(()).await?;
        requests.send(&Count { number: 1 }).await?;
        replies.message_into(&mut Count::default()).await?;
        Ok((requests, replies))
    })
}

/// The most that all of them may keep.
fn bound(bytes: i64) -> i64 {
    COUNT * (bytes + bytes * MARGIN_PERCENT / 100)
}

/// Lets time pass, in which connections rest, until no more than `enough` is kept or nothing more is given back. Returns what is kept.
fn settle(
    reactor: &mut LocalReactor,
    driver: &BenchClient,
    enough: Option<i64>,
) -> Result<i64, fulmar::Status> {
    let (began, mut least) = (Instant::now(), i64::MAX);
    let mut since = began;
    while since.elapsed() < Duration::from_secs(2) && began.elapsed() < PATIENCE {
        // The reactor of this thread turns while it makes calls.
        reactor.block_on(driver.tick(Count { number: 1 }))?;
        thread::sleep(Duration::from_millis(20));
        let kept = allocator::growth();
        if kept < least {
            (least, since) = (kept, Instant::now());
        }
        if enough.is_some_and(|enough| least <= enough) {
            break;
        }
    }
    Ok(least)
}
