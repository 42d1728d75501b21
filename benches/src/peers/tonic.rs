//! tonic, both ends: generated code, one channel, one connection.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::RunError;
use crate::cell::{Cell, Client, Kind, Threads};
use crate::meter::Meter;
use crate::proto::tonic::bench_client::BenchClient;
use crate::proto::tonic::bench_server::{Bench, BenchServer};
use crate::proto::{Count, Payload};

/// What a caller, or a server, comes back with.
type Called = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a cell.
pub(super) fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    let server_runtime = match cell.threads {
        Threads::Spin => return Err(RunError::NotOffered("tokio's runtimes sleep while they wait")),
        Threads::Runtime => multi_thread()?,
        Threads::One | Threads::Two => current_thread()?,
    };
    match (cell.client, cell.threads) {
        // Both ends on the one runtime.
        (Client::Async, Threads::One | Threads::Runtime) => server_runtime.block_on(async {
            let incoming = bind()?;
            let address = incoming.local_addr()?;
            let (stop, stopped) = oneshot::channel();
            let server = tokio::spawn(serve(incoming, stopped));
            call_all(cell, meter, address).await?;
            drop(stop);
            server.await?
        })?,
        (Client::Async, _) => {
            beside(server_runtime, |address| current_thread()?.block_on(call_all(cell, meter, address)))?
        }
        (Client::Blocking, _) => beside(server_runtime, |address| blocking_callers(cell, meter, address))?,
    }
    Ok(())
}

fn current_thread() -> std::io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

fn multi_thread() -> std::io::Result<Runtime> {
    runtime::Builder::new_multi_thread().enable_all().build()
}

/// Runs the server on a thread of its own for as long as `callers` takes.
fn beside(runtime: Runtime, callers: impl FnOnce(SocketAddr) -> Called) -> Called {
    let incoming = {
        let _guard = runtime.enter();
        bind()?
    };
    let address = incoming.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let server = thread::spawn(move || runtime.block_on(serve(incoming, stopped)));
    let called = callers(address);
    drop(stop);
    let served = server.join().expect("the server thread does not panic");
    called.and(served)
}

/// tonic has no client that blocks; this is the bridge that tokio's documents advise: a runtime of its own for each caller,
/// which waits in `block_on`.
fn blocking_callers(cell: &Cell, meter: &Arc<Meter>, address: SocketAddr) -> Called {
    let one = Cell { callers: 1, ..*cell };
    let failures: Vec<_> = thread::scope(|scope| {
        let caller = || scope.spawn(|| current_thread()?.block_on(call_all(&one, meter, address)));
        let threads: Vec<_> = (0..cell.callers).map(|_| caller()).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Called>| {
            thread.join().expect("a caller thread does not panic").err()
        };
        threads.into_iter().filter_map(join).collect()
    });
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Must be called inside the runtime that is going to serve.
fn bind() -> std::io::Result<TcpIncoming> {
    Ok(TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into())?.with_nodelay(Some(true)))
}

async fn serve(incoming: TcpIncoming, stopped: oneshot::Receiver<()>) -> Called {
    Server::builder()
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .add_service(BenchServer::new(Echo))
        .serve_with_incoming_shutdown(incoming, async { drop(stopped.await) })
        .await?;
    Ok(())
}

/// hyper's default of 200 would make most of 512 callers wait for a stream.
const MAX_CONCURRENT_STREAMS: u32 = 100_000;

/// All callers on one channel, each a task.
async fn call_all(cell: &Cell, meter: &Arc<Meter>, address: SocketAddr) -> Called {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?;
    let payload = Payload { body: vec![0; cell.payload_bytes].into() };
    let mut callers = JoinSet::new();
    for _ in 0..cell.callers {
        let (channel, meter, payload) = (channel.clone(), Arc::clone(meter), payload.clone());
        match cell.kind {
            Kind::Unary => callers.spawn(call_unary(channel, meter, payload)),
            Kind::Streaming => callers.spawn(call_streaming(channel, meter, payload)),
        };
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

async fn call_unary(channel: Channel, meter: Arc<Meter>, payload: Payload) -> Called {
    let mut client = BenchClient::new(channel);
    while meter.running() {
        let began = meter.begin();
        client.unary(payload.clone()).await?;
        meter.end(began);
    }
    Ok(())
}

async fn call_streaming(channel: Channel, meter: Arc<Meter>, payload: Payload) -> Called {
    let (requests, outbound) = mpsc::channel(1);
    let mut client = BenchClient::new(channel);
    let mut replies = client.ping_pong(ReceiverStream::new(outbound)).await?.into_inner();
    while meter.running() {
        let began = meter.begin();
        requests.send(payload.clone()).await?;
        replies.message().await?.ok_or("the server ended the stream")?;
        meter.end(began);
    }
    Ok(())
}

struct Echo;

#[tonic::async_trait]
impl Bench for Echo {
    type PingPongStream = Streaming<Payload>;
    type TicksStream = Streaming<Count>;

    async fn unary(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ping_pong(
        &self,
        request: Request<Streaming<Payload>>,
    ) -> Result<Response<Self::PingPongStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn tick(&self, request: Request<Count>) -> Result<Response<Count>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ticks(&self, request: Request<Streaming<Count>>) -> Result<Response<Self::TicksStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
