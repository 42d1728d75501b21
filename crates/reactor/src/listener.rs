use std::io;
use std::net::TcpListener;
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use crate::address::Address;
#[cfg(unix)]
use crate::address::UnixName;
use crate::socket::{Socket, Stream};

/// One listener accepts at most so many connections before others get their turn.
pub(crate) const ACCEPTS_MAX: usize = 64;

/// How long a listener rests when the process or the system has run out of descriptors or memory. Nothing tells us when there are
/// some again, and trying at once would spin.
pub(crate) const EXHAUSTED_REST: Duration = Duration::from_millis(100);

/// A socket that listens: of TCP, or a Unix domain socket. Made of one of the standard library.
#[derive(Debug)]
pub enum ListeningSocket {
    /// One of TCP.
    Tcp(TcpListener),
    /// A Unix domain socket.
    #[cfg(unix)]
    Unix(UnixListener),
}

impl ListeningSocket {
    /// Where it listens.
    ///
    /// # Errors
    /// The system does not know the socket any more.
    pub fn local_address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Ip),
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Address::Unix(UnixName::from(&listener.local_addr()?))),
        }
    }
}

impl From<TcpListener> for ListeningSocket {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

#[cfg(unix)]
impl From<UnixListener> for ListeningSocket {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// A listening socket of a reactor.
pub(crate) struct Listener {
    pub(crate) socket: Watched,
    /// A timer is set for the next attempt.
    pub(crate) resting: bool,
    /// In the list of those where connections wait.
    pub(crate) waiting: bool,
}

/// What came of an attempt to accept.
pub(crate) enum Accepted {
    Connection(Socket),
    /// That connection was gone before it was accepted; there may be others.
    Gone,
    /// No connection waits.
    Empty,
    /// No descriptor or memory for it: it waits in the kernel until there is.
    Exhausted,
}

impl Listener {
    /// Makes the socket non-blocking.
    pub(crate) fn new(socket: ListeningSocket) -> io::Result<Self> {
        let socket = match socket {
            ListeningSocket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Watched::Tcp(mio::net::TcpListener::from_std(listener))
            }
            #[cfg(unix)]
            ListeningSocket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Watched::Unix(mio::net::UnixListener::from_std(listener))
            }
        };
        Ok(Self { socket, resting: false, waiting: false })
    }

    pub(crate) fn accept(&self) -> Accepted {
        match self.socket.accept() {
            Ok((stream, peer)) => Accepted::Connection(Socket::accepted(stream, peer)),
            Err(error) => classify(&error),
        }
    }
}

/// A listening socket that a reactor watches.
pub(crate) enum Watched {
    Tcp(mio::net::TcpListener),
    #[cfg(unix)]
    Unix(mio::net::UnixListener),
}

impl Watched {
    fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().map(|(stream, peer)| (Stream::Tcp(stream), Address::Ip(peer)))
            }
            #[cfg(unix)]
            Self::Unix(listener) => listener
                .accept()
                .map(|(stream, peer)| (Stream::Unix(stream), Address::Unix(UnixName::from(&peer)))),
        }
    }
}

impl Source for Watched {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.register(registry, token, interests),
            #[cfg(unix)]
            Self::Unix(listener) => listener.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.reregister(registry, token, interests),
            #[cfg(unix)]
            Self::Unix(listener) => listener.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.deregister(registry),
            #[cfg(unix)]
            Self::Unix(listener) => listener.deregister(registry),
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
