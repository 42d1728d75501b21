//! Fulmar, both ends: generated code, one channel, one connection. Blocking callers have a thread and a connection each.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fulmar::{
    Address, Channel, ChannelBuilder, ClientReactor, ConnectError, Duplex, Http2Config, LocalReactor, Server,
    ServerBuilder, blocking,
};
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::try_join_all;
use tokio::task::{JoinSet, LocalSet, spawn_local};

use super::RunError;
use super::on_tokio::{Called, current_thread, multi_thread};
use crate::cell::{Cell, Client, Kind, Threads, Transport};
use crate::echo::Echo;
use crate::meter::Meter;
use crate::proto::Payload;
use crate::proto::bench_client::{BenchClient, blocking::BenchClient as BlockingClient};
use crate::proto::bench_server::BenchServer;
use crate::secured;

/// Longer than any wait of a cell, so that a spinning thread never sleeps.
const SPIN: Duration = Duration::from_secs(1);

/// The default of 1,000 is enough for the usual cells; this serves the unusual ones.
const STREAMS_MAX: u32 = 100_000;

/// Runs a cell.
pub(super) fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    if cell.client == Client::Blocking && cell.threads == Threads::Spin {
        return Err(RunError::NotOffered("the blocking client sleeps while it waits"));
    }
    if cell.client == Client::Blocking && cell.threads == Threads::Callers {
        return Err(RunError::NotOffered("blocking callers have threads of their own anyway: --threads two"));
    }
    if cell.client == Client::Blocking && cell.threads == Threads::Tokio {
        return Err(RunError::NotOffered("the blocking client needs no runtime: --threads two"));
    }
    let server = Server::builder()
        .http2(Http2Config { streams_max: STREAMS_MAX, ..Http2Config::default() })
        .add_service(BenchServer::new(Echo));
    let server = match cell.threads {
        Threads::Runtime => server,
        Threads::One | Threads::Two | Threads::Tokio | Threads::Callers => server.reactors(1),
        Threads::Spin => server.reactors(1).busy_poll(SPIN),
    };
    if cell.transport == Transport::InProcess {
        return in_process(cell, meter, server);
    }
    let server = match cell.transport {
        Transport::Tls => server.tls(secured::server()),
        _ => server,
    };
    let server = match cell.transport {
        Transport::Uds => server.bind(format!("unix:{}", super::socket_path()))?,
        _ => server.bind("127.0.0.1:0")?,
    };
    let address = server.local_addresses().into_iter().next().ok_or("the server is bound")?;
    let endpoint = &Target { address, is_secured: cell.transport == Transport::Tls };
    if cell.threads == Threads::One {
        let mut reactor = LocalReactor::new()?;
        reactor.serve(server)?;
        let client = reactor.block_on(endpoint.connect())?;
        return Ok(call_on(&mut reactor, cell, meter, &client)?);
    }
    let server = server.spawn()?;
    match (cell.client, cell.threads) {
        (Client::Blocking, _) => blocking_callers(cell, meter, endpoint)?,
        (Client::Async, Threads::Runtime) => {
            multi_thread()?
                .block_on(async { call_on_tokio(cell, meter, endpoint.connect().await?).await })?;
        }
        (Client::Async, Threads::Callers) => threads_that_call(cell, meter, endpoint)?,
        (Client::Async, Threads::Tokio) => driven_by_tokio(cell, meter, endpoint)?,
        (Client::Async, Threads::Spin) => {
            connect_and_call(&mut LocalReactor::with_busy_poll(SPIN)?, cell, meter, endpoint)?;
        }
        (Client::Async, _) => connect_and_call(&mut LocalReactor::new()?, cell, meter, endpoint)?,
    }
    server.shutdown(Duration::ZERO)?;
    Ok(())
}

/// Where the server of a cell is.
struct Target {
    address: Address,
    is_secured: bool,
}

impl Target {
    fn builder(&self) -> ChannelBuilder {
        if self.is_secured {
            Channel::builder(format!("https://{}", self.address)).tls(secured::client())
        } else if self.address.ip().is_some() {
            Channel::builder(format!("http://{}", self.address))
        } else {
            Channel::builder(self.address.to_string())
        }
    }

    async fn connect(&self) -> Result<BenchClient, ConnectError> {
        self.builder().connect().await.map(BenchClient::new)
    }
}

/// Both ends on the reactor of the server, wherever the callers are.
fn in_process(cell: &Cell, meter: &Arc<Meter>, server: ServerBuilder) -> Result<(), RunError> {
    let server = server.without_listener()?;
    match (cell.client, cell.threads) {
        (Client::Async, Threads::One) => {
            let mut reactor = LocalReactor::new()?;
            let client = BenchClient::new(reactor.serve(server)?.in_process());
            call_on(&mut reactor, cell, meter, &client)?;
        }
        (Client::Async, Threads::Runtime) => {
            let server = server.spawn()?;
            let client = BenchClient::new(server.in_process());
            multi_thread()?.block_on(call_on_tokio(cell, meter, client))?;
            server.shutdown(Duration::ZERO)?;
        }
        _ => return Err(RunError::NotOffered("in-process: --client async --threads one,runtime")),
    }
    Ok(())
}

fn connect_and_call(
    reactor: &mut LocalReactor,
    cell: &Cell,
    meter: &Arc<Meter>,
    endpoint: &Target,
) -> Called {
    let client = reactor.block_on(endpoint.connect())?;
    call_on(reactor, cell, meter, &client)
}

/// All callers on one channel, each a task of the reactor, which has their end of the connection too.
fn call_on(reactor: &mut LocalReactor, cell: &Cell, meter: &Arc<Meter>, client: &BenchClient) -> Called {
    let mut callers = Vec::new();
    for _ in 0..cell.callers {
        let (done, caller) = oneshot::channel();
        callers.push(caller);
        let call = call(cell.kind, client.clone(), Arc::clone(meter), payload(cell));
        reactor.spawn(async move { drop(done.send(call.await)) });
    }
    reactor.block_on(try_join_all(callers))?.into_iter().collect()
}

/// All callers on one channel, each a task of tokio's; the connection is on a reactor elsewhere, by default the process's.
async fn call_on_tokio(cell: &Cell, meter: &Arc<Meter>, client: BenchClient) -> Called {
    let mut callers = JoinSet::new();
    for _ in 0..cell.callers {
        callers.spawn(call(cell.kind, client.clone(), Arc::clone(meter), payload(cell)));
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

/// All callers on one channel, each a task of a current-thread runtime, which drives their end of the connection too.
fn driven_by_tokio(cell: &Cell, meter: &Arc<Meter>, endpoint: &Target) -> Called {
    current_thread()?.block_on(LocalSet::new().run_until(async {
        let (reactor, driver) = ClientReactor::on_tokio()?;
        let driver = spawn_local(driver);
        let channel = endpoint.builder().reactor(&reactor).connect().await?;
        call_on_tokio(cell, meter, BenchClient::new(channel)).await?;
        drop(reactor);
        Ok(driver.await??)
    }))
}

/// Callers on threads of their own, on one channel whose connection is on the process's client reactor.
fn threads_that_call(cell: &Cell, meter: &Arc<Meter>, endpoint: &Target) -> Called {
    let client = block_on(endpoint.connect())?;
    thread::scope(|scope| {
        let caller =
            || scope.spawn(|| block_on(call(cell.kind, client.clone(), Arc::clone(meter), payload(cell))));
        let threads: Vec<_> = (0..cell.callers).map(|_| caller()).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a caller thread does not panic"))
    })
}

fn payload(cell: &Cell) -> Payload {
    Payload { body: vec![0; cell.payload_bytes].into() }
}

async fn call(kind: Kind, client: BenchClient, meter: Arc<Meter>, payload: Payload) -> Called {
    match kind {
        Kind::Unary => {
            while meter.running() {
                let began = meter.next().await;
                client.unary(payload.clone()).await?;
                meter.end(began);
            }
        }
        Kind::Streaming => {
            let Duplex { mut requests, mut replies } = client.ping_pong(()).await?;
            let mut reply = Payload::default();
            while meter.running() {
                let began = meter.next().await;
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

fn blocking_callers(cell: &Cell, meter: &Meter, endpoint: &Target) -> Called {
    thread::scope(|scope| {
        let caller = || scope.spawn(|| blocking_caller(cell, meter, endpoint));
        let threads: Vec<_> = (0..cell.callers).map(|_| caller()).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Called>| {
            thread.join().expect("a caller thread does not panic")
        };
        threads.into_iter().try_for_each(join)
    })
}

fn blocking_caller(cell: &Cell, meter: &Meter, endpoint: &Target) -> Called {
    let mut client = BlockingClient::new(blocking::Channel::with(endpoint.builder())?);
    let payload = payload(cell);
    match cell.kind {
        Kind::Unary => {
            while meter.running() {
                let began = meter.next_blocking();
                client.unary(payload.clone())?;
                meter.end(began);
            }
        }
        Kind::Streaming => {
            let mut call = client.ping_pong(())?;
            let mut reply = Payload::default();
            while meter.running() {
                let began = meter.next_blocking();
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
