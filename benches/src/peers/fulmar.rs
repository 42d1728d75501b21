//! Fulmar, both ends: generated code, one channel, one connection. Blocking callers have a thread and a connection each.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fulmar::{Duplex, Http2Config, LocalReactor, Server};
use futures::channel::oneshot;
use futures::future::try_join_all;
use tokio::runtime;
use tokio::task::JoinSet;

use super::RunError;
use crate::cell::{Cell, Client, Kind, Threads};
use crate::echo::Echo;
use crate::meter::Meter;
use crate::proto::Payload;
use crate::proto::bench_client::{BenchClient, blocking::BenchClient as BlockingClient};
use crate::proto::bench_server::BenchServer;

/// What a caller comes back with.
type Called = Result<(), Box<dyn Error + Send + Sync>>;

/// Longer than any wait of a cell, so that a spinning thread never sleeps.
const SPIN: Duration = Duration::from_secs(1);

/// The default of 1,000 is enough for the usual cells; this serves the unusual ones.
const STREAMS_MAX: u32 = 100_000;

/// Runs a cell.
pub(super) fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    let server = Server::builder()
        .http2(Http2Config { streams_max: STREAMS_MAX, ..Http2Config::default() })
        .add_service(BenchServer::new(Echo));
    let server = match cell.threads {
        Threads::Runtime => server,
        Threads::One | Threads::Two => server.reactors(1),
        Threads::Spin => server.reactors(1).busy_poll(SPIN),
    };
    let server = server.bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    if cell.threads == Threads::One {
        let mut reactor = LocalReactor::new()?;
        reactor.serve(server)?;
        return Ok(call_on(&mut reactor, cell, meter, &endpoint)?);
    }
    let server = server.spawn()?;
    match (cell.client, cell.threads) {
        (Client::Blocking, Threads::Spin) => {
            return Err(RunError::NotOffered("the blocking client sleeps while it waits"));
        }
        (Client::Blocking, _) => blocking_callers(cell, meter, &endpoint)?,
        (Client::Async, Threads::Runtime) => runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(call_on_tokio(cell, meter, &endpoint))?,
        (Client::Async, Threads::Spin) => {
            call_on(&mut LocalReactor::with_busy_poll(SPIN)?, cell, meter, &endpoint)?;
        }
        (Client::Async, _) => call_on(&mut LocalReactor::new()?, cell, meter, &endpoint)?,
    }
    server.shutdown(Duration::ZERO)?;
    Ok(())
}

/// All callers on one channel, each a task of the reactor, which has their end of the connection too.
fn call_on(reactor: &mut LocalReactor, cell: &Cell, meter: &Arc<Meter>, endpoint: &str) -> Called {
    let client = reactor.block_on(BenchClient::connect(endpoint))?;
    let mut callers = Vec::new();
    for _ in 0..cell.callers {
        let (done, caller) = oneshot::channel();
        callers.push(caller);
        let call = call(cell.kind, client.clone(), Arc::clone(meter), payload(cell));
        reactor.spawn(async move { drop(done.send(call.await)) });
    }
    reactor.block_on(try_join_all(callers))?.into_iter().collect()
}

/// All callers on one channel, each a task of tokio's; the connection is on the process's client reactor.
async fn call_on_tokio(cell: &Cell, meter: &Arc<Meter>, endpoint: &str) -> Called {
    let client = BenchClient::connect(endpoint).await?;
    let mut callers = JoinSet::new();
    for _ in 0..cell.callers {
        callers.spawn(call(cell.kind, client.clone(), Arc::clone(meter), payload(cell)));
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

fn payload(cell: &Cell) -> Payload {
    Payload { body: vec![0; cell.payload_bytes].into() }
}

async fn call(kind: Kind, client: BenchClient, meter: Arc<Meter>, payload: Payload) -> Called {
    match kind {
        Kind::Unary => {
            while meter.running() {
                let began = meter.begin();
                client.unary(payload.clone()).await?;
                meter.end(began);
            }
        }
        Kind::Streaming => {
            let Duplex { mut requests, mut replies } = client.ping_pong(()).await?;
            let mut reply = Payload::default();
            while meter.running() {
                let began = meter.begin();
                requests.send(&payload).await?;
                if !replies.message_into(&mut reply).await? {
                    return Err("the server ended the stream".into());
                }
                meter.end(began);
            }
        }
    }
    Ok(())
}

fn blocking_callers(cell: &Cell, meter: &Meter, endpoint: &str) -> Called {
    thread::scope(|scope| {
        let caller = || scope.spawn(|| blocking_caller(cell, meter, endpoint));
        let threads: Vec<_> = (0..cell.callers).map(|_| caller()).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Called>| {
            thread.join().expect("a caller thread does not panic")
        };
        threads.into_iter().try_for_each(join)
    })
}

fn blocking_caller(cell: &Cell, meter: &Meter, endpoint: &str) -> Called {
    let mut client = BlockingClient::connect(endpoint)?;
    let payload = payload(cell);
    match cell.kind {
        Kind::Unary => {
            while meter.running() {
                let began = meter.begin();
                client.unary(payload.clone())?;
                meter.end(began);
            }
        }
        Kind::Streaming => {
            let mut call = client.ping_pong(())?;
            let mut reply = Payload::default();
            while meter.running() {
                let began = meter.begin();
                call.send(&payload)?;
                if !call.message_into(&mut reply)? {
                    return Err("the server ended the stream".into());
                }
                meter.end(began);
            }
        }
    }
    Ok(())
}
