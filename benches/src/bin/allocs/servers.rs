//! Where the two ends of a line are.

use std::future::Future;

use fulmar::encoding::{Deflate, Gzip, Zstd};
use fulmar::{
    Channel, ChannelBuilder, Http2Config, LocalReactor, Placement, RunningServer, Server, ServerBuilder,
    blocking,
};
use fulmar_benches::contract::Handlers;
use fulmar_benches::echo::Echo;
use fulmar_benches::proto::bench_server::BenchServer;
use fulmar_benches::proto::contract::contract_server::ContractServer;
use fulmar_benches::secured;

use crate::Counted;

/// Both ends and the caller on this thread, over TCP.
pub(crate) fn one_thread(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    one_thread_with(|server| server, |channel| channel, calls)
}

/// The same with messages compressed in the encoding of this name.
pub(crate) fn compressed(encoding: &str, calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    match encoding {
        "gzip" => one_thread_with(
            |server| server.accept_compressed(Gzip::default()).send_compressed(Gzip::default()),
            |channel| channel.accept_compressed(Gzip::default()).send_compressed(Gzip::default()),
            calls,
        ),
        "deflate" => one_thread_with(
            |server| server.accept_compressed(Deflate::default()).send_compressed(Deflate::default()),
            |channel| channel.accept_compressed(Deflate::default()).send_compressed(Deflate::default()),
            calls,
        ),
        _ => one_thread_with(
            |server| server.accept_compressed(Zstd::default()).send_compressed(Zstd::default()),
            |channel| channel.accept_compressed(Zstd::default()).send_compressed(Zstd::default()),
            calls,
        ),
    }
}

/// The same over TLS.
pub(crate) fn one_thread_secured(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    let server = builder().tls(secured::server()).bind("127.0.0.1:0")?;
    let endpoint = format!("https://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;
    reactor
        .block_on(async { calls(Channel::builder(endpoint).tls(secured::client()).connect().await?).await })
}

/// The caller drives the client's end of the connection, the server is on another thread; over TLS.
pub(crate) fn blocking_secured(calls: impl FnOnce(blocking::Channel) -> Counted) -> Counted {
    let server = builder().tls(secured::server()).bind("127.0.0.1:0")?.spawn()?;
    let address = server.local_addr().ok_or("the server has no address")?;
    let channel = Channel::builder(format!("https://{address}")).tls(secured::client());
    calls(blocking::Channel::with(channel)?)
}

fn one_thread_with(
    server: impl FnOnce(ServerBuilder) -> ServerBuilder,
    channel: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    calls: impl AsyncFnOnce(Channel) -> Counted,
) -> Counted {
    let server = server(builder()).bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;
    reactor.block_on(async { calls(channel(Channel::builder(endpoint)).connect().await?).await })
}

/// The caller on this thread, the client's end of the connection on the process's client reactor, the server on a third; over TCP.
pub(crate) fn background(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    let server = spawned()?;
    wait_for(async { calls(Channel::connect(server.endpoint()).await?).await })
}

/// As [`background`], and every second call is handled by another reactor than that of its connection.
pub(crate) fn placed(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    let server = builder().reactors(2).placement(Placement::Spread).bind("127.0.0.1:0")?.spawn()?;
    wait_for(async { calls(Channel::connect(server.endpoint()).await?).await })
}

/// Both ends and the caller on this thread, over a Unix socket.
pub(crate) fn unix_one_thread(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    let mut reactor = LocalReactor::new()?;
    let endpoint = socket("one");
    reactor.serve(builder().bind(&endpoint)?)?;
    reactor.block_on(async { calls(Channel::connect(endpoint).await?).await })
}

/// The caller drives the client's end of the connection, the server is on another thread; over a Unix socket.
pub(crate) fn unix_blocking(calls: impl FnOnce(blocking::Channel) -> Counted) -> Counted {
    let server = builder().bind(socket("blocking"))?.spawn()?;
    calls(blocking::Channel::connect(server.endpoint())?)
}

/// A Unix socket of this process's own.
fn socket(name: &str) -> String {
    let name = format!("fulmar-allocs-{name}-{}.sock", std::process::id());
    format!("unix:{}", std::env::temp_dir().join(name).display())
}

/// The caller on this thread, both ends on the server's reactor.
pub(crate) fn in_process(calls: impl AsyncFnOnce(Channel) -> Counted) -> Counted {
    let server = spawned()?;
    wait_for(calls(server.in_process()))
}

/// The caller drives the client's end of the connection, the server is on another thread; over TCP.
pub(crate) fn blocking(calls: impl FnOnce(blocking::Channel) -> Counted) -> Counted {
    let server = spawned()?;
    calls(blocking::Channel::connect(server.endpoint())?)
}

fn builder() -> ServerBuilder {
    Server::builder()
        .reactors(1)
        // Many calls are given up here, in no time, as no honest client does.
        .http2(Http2Config { resets_received_budget: u32::MAX, ..Http2Config::default() })
        .add_service(BenchServer::new(Echo))
        .add_service(ContractServer::new(Handlers))
}

fn spawned() -> Result<RunningServer, fulmar::ServerError> {
    builder().bind("127.0.0.1:0")?.spawn()
}

fn wait_for<T>(calls: impl Future<Output = T>) -> T {
    futures::executor::block_on(calls)
}
