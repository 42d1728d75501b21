//! A reactor on the calling thread.

use std::future::Future;

use fulmar_grpc::Status;
use fulmar_reactor::{Reactor, ReactorConfig};

use crate::counts::Counts;
use crate::error::ServerError;
use crate::host::{RoofHost, RoofReactor, Running};
use crate::server::{Server, ServerHandle};

/// A reactor that the calling thread drives: the executor for a program, or a thread, that makes calls and serves without any
/// other thread.
///
/// Channels used inside [`block_on`](Self::block_on) keep their connections here, and servers given to [`serve`](Self::serve) are
/// served here, while `block_on` runs.
///
/// ```
/// let mut reactor = fulmar::LocalReactor::new()?;
/// assert_eq!(reactor.block_on(async { 6 * 7 }), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LocalReactor {
    reactor: RoofReactor,
}

impl LocalReactor {
    /// Makes a reactor.
    ///
    /// # Errors
    /// The operating system refuses an event queue.
    pub fn new() -> std::io::Result<Self> {
        Self::with_config(ReactorConfig::default())
    }

    /// Makes a reactor that looks for work without sleeping for up to `busy_poll` before it sleeps. It costs a processor core
    /// while it lasts and saves the time that waking a thread takes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_busy_poll(busy_poll: std::time::Duration) -> std::io::Result<Self> {
        Self::with_config(ReactorConfig { busy_poll, ..ReactorConfig::default() })
    }

    fn with_config(config: ReactorConfig) -> std::io::Result<Self> {
        Ok(Self { reactor: Reactor::new(config, |core| RoofHost::new(core))? })
    }

    /// Serves `server` on this reactor, whenever [`block_on`](Self::block_on) runs.
    ///
    /// # Errors
    /// The operating system does not take the listening socket.
    pub fn serve(&mut self, server: Server) -> Result<ServerHandle, ServerError> {
        let (shared, listener) = server.into_parts();
        let (host, core) = self.reactor.parts();
        host.serve(core, &shared, listener, false)?;
        Ok(ServerHandle::new(shared))
    }

    /// Runs a future and everything on this reactor until the future is ready. The future need not be `Send`.
    ///
    /// # Panics
    /// When called on a reactor's thread, that is inside another `block_on` or a handler: it would stop that reactor.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        assert!(
            !fulmar_reactor::on_reactor_thread(),
            "LocalReactor::block_on was called on a reactor's thread, which it would stop"
        );
        let _running = Running::enter(self.reactor.core().mailbox());
        self.reactor.block_on(future)
    }

    /// How much is in use here.
    pub fn counts(&mut self) -> Counts {
        let (host, core) = self.reactor.parts();
        host.counts(core)
    }

    /// Runs `future` beside what [`block_on`](Self::block_on) runs. It is dropped with the reactor.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        self.reactor.core().spawn(future);
    }
}

impl std::fmt::Debug for LocalReactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalReactor").finish_non_exhaustive()
    }
}

/// Refuses what would stop the reactor of the calling thread.
///
/// # Errors
/// `INTERNAL` on a reactor's thread.
pub(crate) fn refuse_on_reactor(what: &str) -> Result<(), Status> {
    if fulmar_reactor::on_reactor_thread() {
        return Err(Status::internal(format!(
            "{what} on a reactor's thread (in a handler?) would stop that reactor: use the async Channel there"
        )));
    }
    Ok(())
}
