//! What one holds of a server that runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fulmar_reactor::{Address, Socket};

use super::{Refused, ServerShared};
use crate::client::{Channel, ChannelConfig, Place};
use crate::counts::Counts;
use crate::direct::InProcess;
use crate::error::ServerError;

/// Shuts a server down, and reaches it in-process, from any thread or handler.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    shared: Arc<ServerShared>,
}

impl ServerHandle {
    pub(crate) fn new(shared: Arc<ServerShared>) -> Self {
        Self { shared }
    }

    /// Begins to shut down and returns at once. The server stops listening, tells its clients (RFC 9113 §6.8), lets the calls
    /// that have begun end, and cuts off what is left after `grace`. Doing it again can only shorten the grace.
    pub fn shutdown(&self, grace: Duration) {
        self.shared.shutdown(grace);
    }

    /// A channel to the server that uses no socket: a pipe in memory, on the server's own reactor, with the same engines, limits
    /// and failures as a connection. Unary calls with small requests do not even use that: they go to the method directly, which
    /// callers and handlers cannot tell but by the time it takes. Its requests are never compressed, whatever the server accepts, and it accepts no compressed
    /// replies: what never leaves memory gets no faster by being made smaller.
    pub fn in_process(&self) -> Channel {
        Channel::new(Place::InProcess(InProcess::new(self.shared.clone())), ChannelConfig::default(), None)
    }

    /// Serves a connection that was not accepted by the server itself: a connected socket from anywhere, such as one end of a
    /// `UnixStream::pair()` or one that another program has accepted and handed over. It is served by the reactor with the fewest
    /// connections, like any other, with Nagle's algorithm off and the server's [socket
    /// options](crate::ServerBuilder::socket_options), as far as they can be set late. Does not wait.
    ///
    /// ```
    /// # #[cfg(unix)]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::os::unix::net::UnixStream;
    /// use fulmar::{Server, blocking};
    ///
    /// let server = Server::builder().without_listener()?.spawn()?;
    /// let (ours, theirs) = UnixStream::pair()?;
    /// server.handle().serve(theirs)?;
    /// let channel = blocking::Channel::with(blocking::Channel::builder("localhost").connected(ours))?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(unix))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// The socket is not connected, or does not take the options; the server does not run, or does not
    /// [admit](crate::ServerBuilder::admit_connections) the connection.
    pub fn serve(&self, socket: impl Into<Socket>) -> Result<(), ServerError> {
        let socket = socket.into();
        socket
            .check()
            .and_then(|()| socket.apply(&self.shared.sockets))
            .map_err(|error| ServerError::io("cannot serve the connection", error))?;
        match self.shared.arrive(socket, None) {
            Ok(_) => Ok(()),
            Err(Refused::ByDoor) => Err(ServerError::new("the server does not admit the connection")),
            Err(Refused::Ended) => Err(ServerError::new("the server is not running")),
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        self.shared.security.scheme()
    }

    /// How much the server's reactors have in use, with everything else that is on them. None on a reactor's thread (in a handler),
    /// which waiting would stop, and when a reactor does not answer within 10 s. Not for a server that
    /// [`LocalReactor::serve`](crate::LocalReactor::serve) serves: its reactor answers only while it runs, and can be
    /// [asked itself](crate::LocalReactor::counts).
    pub fn counts(&self) -> Option<Counts> {
        self.shared.counts()
    }

    /// Waits until the server serves no more, at most `timeout`. False when it still does. On a reactor's thread (in a handler)
    /// it answers at once: waiting would stop that reactor.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        let timeout = if fulmar_reactor::on_reactor_thread() { Duration::ZERO } else { timeout };
        self.shared.wait_ended(timeout)
    }
}

/// A server whose threads run. Dropping it shuts the server down at once and waits for the threads, except on a reactor's thread (in
/// a handler), which waiting would stop. To leave a server running, keep it or [`join`](Self::join) it.
#[derive(Debug)]
pub struct RunningServer {
    handle: ServerHandle,
    addresses: Vec<Address>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl RunningServer {
    pub(crate) fn new(
        handle: ServerHandle,
        addresses: Vec<Address>,
        threads: Vec<JoinHandle<std::io::Result<()>>>,
    ) -> Self {
        Self { handle, addresses, threads }
    }

    /// A handle that may go anywhere.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// The address of TCP that the server listens on, the first of several; None where it has no such listener.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses.iter().find_map(Address::ip)
    }

    /// Where the server listens, in the order in which the listeners were given.
    pub fn local_addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What a client on this machine connects to: `http://127.0.0.1:PORT`, `https://127.0.0.1:PORT` with TLS, or `unix:/path`, of
    /// the first listener; an empty text where there is none.
    pub fn endpoint(&self) -> String {
        match self.addresses.first() {
            Some(Address::Ip(address)) => format!("{}://{address}", self.handle.scheme()),
            Some(unix) => unix.to_string(),
            None => String::new(),
        }
    }

    /// A channel without sockets, as [`ServerHandle::in_process`].
    pub fn in_process(&self) -> Channel {
        self.handle.in_process()
    }

    /// Shuts down within `grace` and waits for the end.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn shutdown(self, grace: Duration) -> Result<(), ServerError> {
        self.handle.shutdown(grace);
        self.join()
    }

    /// Waits until the server was shut down.
    ///
    /// # Errors
    /// A reactor's event queue failed, or its thread panicked; on a reactor's thread (in a handler), which waiting would stop, at
    /// once, and the server goes on.
    pub fn join(mut self) -> Result<(), ServerError> {
        if fulmar_reactor::on_reactor_thread() {
            // The threads go on without anybody who waits for them.
            self.threads.clear();
            return Err(ServerError::new(
                "waiting for a server on a reactor's thread would stop that reactor",
            ));
        }
        self.join_threads()
    }

    fn join_threads(&mut self) -> Result<(), ServerError> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(ServerError::io("a reactor failed", error)),
                Err(_) => result = Err(ServerError::new("a reactor thread panicked")),
            }
        }
        result
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.handle.shutdown(Duration::ZERO);
            // On a reactor of its own (a handler that owns its server) it would wait for itself.
            if !fulmar_reactor::on_reactor_thread() {
                let _ = self.join_threads();
            }
        }
    }
}
