use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpListener;

use crate::socket::Socket;

/// One listener accepts at most so many connections before others get their turn.
pub(crate) const ACCEPTS_MAX: usize = 64;

/// How long a listener rests when the process or the system has run out of descriptors or memory. Nothing tells us when there are
/// some again, and trying at once would spin.
pub(crate) const EXHAUSTED_REST: Duration = Duration::from_millis(100);

pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// A timer is set for the next attempt.
    pub(crate) resting: bool,
    /// In the list of those where connections wait.
    pub(crate) waiting: bool,
}

/// What came of an attempt to accept.
pub(crate) enum Accepted {
    Connection(Socket, SocketAddr),
    /// That connection was gone before it was accepted; there may be others.
    Gone,
    /// No connection waits.
    Empty,
    /// No descriptor or memory for it: it waits in the kernel until there is.
    Exhausted,
}

impl Listener {
    pub(crate) fn accept(&self) -> Accepted {
        match self.socket.accept() {
            Ok((stream, peer)) => Accepted::Connection(Socket::accepted(stream), peer),
            Err(error) => classify(&error),
        }
    }
}

fn classify(error: &io::Error) -> Accepted {
    match error.kind() {
        io::ErrorKind::WouldBlock => Accepted::Empty,
        // On Linux, accept also passes on the network errors of the connection it was about to return (accept(2)).
        io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::TimedOut => Accepted::Gone,
        // EMFILE, ENFILE, ENOBUFS, ENOMEM, and whatever else there may be: none of it ends the listener.
        _ => Accepted::Exhausted,
    }
}
