//! What peers that live on tokio have in common: which runtimes their two ends are on.

use std::error::Error;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;

use super::RunError;
use crate::cell::{Cell, Client, Threads, Transport};
use crate::meter::Meter;

/// What a caller, or a server, comes back with.
pub(super) type Called = Result<(), Box<dyn Error + Send + Sync>>;

/// Both ends of a peer.
pub(super) trait Ends {
    /// What the grid has them over.
    const TRANSPORTS: &'static [Transport];

    /// Serves until `stopped`.
    fn serve(
        listener: Listening,
        secured: bool,
        stopped: oneshot::Receiver<()>,
    ) -> impl Future<Output = Called> + Send + 'static;

    /// Lets all callers of a cell call, each a task, over one connection to `127.0.0.1:port` or `unix:/path`.
    fn call_all(cell: &Cell, meter: &Arc<Meter>, address: &str) -> impl Future<Output = Called>;
}

/// Runs a cell.
pub(super) fn run<E: Ends>(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    let secured = cell.transport == Transport::Tls;
    if !E::TRANSPORTS.contains(&cell.transport) {
        return Err(RunError::NotOffered("the grid does not have this peer over that"));
    }
    let server_runtime = match cell.threads {
        Threads::Callers => return Err(RunError::NotOffered("its callers are tasks: --threads runtime")),
        Threads::Spin => return Err(RunError::NotOffered("tokio's runtimes sleep while they wait")),
        Threads::Runtime => multi_thread()?,
        Threads::One | Threads::Two | Threads::Tokio => current_thread()?,
    };
    match (cell.client, cell.threads) {
        // Both ends on the one runtime.
        (Client::Async, Threads::One | Threads::Runtime) => server_runtime.block_on(async {
            let (listener, address) = bind(cell.transport).await?;
            let (stop, stopped) = oneshot::channel();
            let server = tokio::spawn(E::serve(listener, secured, stopped));
            E::call_all(cell, meter, &address).await?;
            drop(stop);
            server.await?
        })?,
        (Client::Async, _) => beside::<E>(cell, server_runtime, |address| {
            current_thread()?.block_on(E::call_all(cell, meter, address))
        })?,
        (Client::Blocking, _) => {
            beside::<E>(cell, server_runtime, |address| blocking_callers::<E>(cell, meter, address))?;
        }
    }
    Ok(())
}

pub(super) fn current_thread() -> std::io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

pub(super) fn multi_thread() -> std::io::Result<Runtime> {
    runtime::Builder::new_multi_thread().enable_all().build()
}

/// Runs the server on a thread of its own for as long as `callers` takes.
fn beside<E: Ends>(cell: &Cell, runtime: Runtime, callers: impl FnOnce(&str) -> Called) -> Called {
    let secured = cell.transport == Transport::Tls;
    let (listener, address) = runtime.block_on(bind(cell.transport))?;
    let (stop, stopped) = oneshot::channel();
    let server = thread::spawn(move || runtime.block_on(E::serve(listener, secured, stopped)));
    let called = callers(&address);
    drop(stop);
    let served = server.join().expect("the server thread does not panic");
    called.and(served)
}

/// These peers have no client that blocks; this is the bridge that tokio's documents advise: a runtime of its own for each
/// caller, which waits in `block_on`.
fn blocking_callers<E: Ends>(cell: &Cell, meter: &Arc<Meter>, address: &str) -> Called {
    let one = Cell { callers: 1, ..*cell };
    let failures: Vec<_> = thread::scope(|scope| {
        let caller = || scope.spawn(|| current_thread()?.block_on(E::call_all(&one, meter, address)));
        let threads: Vec<_> = (0..cell.callers).map(|_| caller()).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Called>| {
            thread.join().expect("a caller thread does not panic").err()
        };
        threads.into_iter().filter_map(join).collect()
    });
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// What a server listens on.
pub(super) enum Listening {
    Tcp(TcpListener),
    /// With what removes the file.
    Unix(UnixListener, SocketFile),
}

/// Removes a socket's file.
pub(super) struct SocketFile(String);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn bind(transport: Transport) -> std::io::Result<(Listening, String)> {
    if transport == Transport::Uds {
        let path = super::socket_path();
        let listener = UnixListener::bind(&path)?;
        return Ok((Listening::Unix(listener, SocketFile(path.clone())), format!("unix:{path}")));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    Ok((Listening::Tcp(listener), address))
}
