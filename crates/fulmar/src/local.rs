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
    /// What belongs to reactors and threads of the server's own does not count here: [`reactors`](crate::ServerBuilder::reactors),
    /// [`busy_poll`](crate::ServerBuilder::busy_poll), [`write_stall`](crate::ServerBuilder::write_stall),
    /// [`reactor_held_bytes_max`](crate::ServerBuilder::reactor_held_bytes_max) and
    /// [`around_thread`](crate::ServerBuilder::around_thread). This reactor has their defaults.
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

    /// As [`block_on`](Self::block_on), inside of a tokio runtime and without blocking its thread: the future, and what is on this
    /// reactor, run within the task that awaits this, beside the runtime's other tasks.
    ///
    /// So a server whose handlers use tokio's sockets and timers needs one thread. What the future and the handlers call over
    /// channels crosses no thread either. Timers are tokio's, in steps of a millisecond.
    ///
    /// ```
    /// # use fulmar::{LocalReactor, Server};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::builder().bind("127.0.0.1:0")?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// runtime.block_on(async {
    ///     let mut reactor = LocalReactor::new()?;
    ///     let handle = reactor.serve(server)?;
    ///     reactor
    ///         .run_until(async {
    ///             // … until the program is to end:
    ///             tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    ///             handle.shutdown(std::time::Duration::ZERO);
    ///         })
    ///         .await?;
    /// #   Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Outside of a tokio runtime, on a system that is not a Unix, and when an event queue fails or the runtime shuts down.
    ///
    /// # Panics
    /// When the runtime was built without I/O or without time.
    #[cfg(feature = "tokio")]
    pub async fn run_until<F: Future>(&mut self, future: F) -> std::io::Result<F::Output> {
        crate::tokio::run_until(&mut self.reactor, future).await
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
