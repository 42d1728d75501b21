use std::io;
use std::net::{SocketAddr, TcpListener};
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use socket2::{SockAddr, SockRef};

use crate::address::Address;
#[cfg(unix)]
use crate::address::UnixName;
use crate::options::{SocketOptions, sys};
use crate::socket::{Socket, Stream};

/// One listener accepts at most so many connections before others get their turn.
pub(crate) const ACCEPTS_MAX: usize = 64;

/// How long a listener rests when the process or the system has run out of descriptors or memory. Nothing tells us when there are
/// some again, and trying at once would spin.
pub(crate) const EXHAUSTED_REST: Duration = Duration::from_millis(100);

/// A socket that listens: of TCP, or a Unix domain socket. Made of one of the standard library, or [bound](Self::bind).
#[derive(Debug)]
pub struct ListeningSocket {
    file: Option<SocketFile>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl ListeningSocket {
    /// Binds a socket to `address`, and listens.
    ///
    /// The file of a Unix domain socket is removed when the socket is closed, unless it is another one by then. One that is there
    /// already is replaced if it is a socket where nobody listens, as a process leaves it behind that was killed; if somebody
    /// does, the address is in use.
    ///
    /// # Errors
    /// The address is in use, or none of this machine; the path is not a socket, or not writable; an option that the system does
    /// not have.
    pub fn bind(address: &Address, options: &SocketOptions) -> io::Result<Self> {
        match address {
            Address::Ip(address) => bind_tcp(address, options).map(Self::from),
            #[cfg(unix)]
            Address::Unix(name) => unix::bind(name, options),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(crate::socket::no_unix_sockets()),
        }
    }

    /// Sets what of `options` can be set on a socket that listens, of which the connections that it accepts have it in turn (on
    /// Linux): sizes of buffers, keepalive, type of service.
    ///
    /// # Errors
    /// The system does not have it, or does not permit it.
    pub fn apply(&self, options: &SocketOptions) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(listener) => options.apply_open(&SockRef::from(listener)),
            #[cfg(unix)]
            Kind::Unix(listener) => options.apply_open(&SockRef::from(listener)),
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not know the socket any more.
    pub fn local_address(&self) -> io::Result<Address> {
        match &self.kind {
            Kind::Tcp(listener) => listener.local_addr().map(Address::Ip),
            #[cfg(unix)]
            Kind::Unix(listener) => Ok(Address::Unix(UnixName::from(&listener.local_addr()?))),
        }
    }
}

impl From<TcpListener> for ListeningSocket {
    fn from(listener: TcpListener) -> Self {
        Self { kind: Kind::Tcp(listener), file: None }
    }
}

#[cfg(unix)]
impl From<UnixListener> for ListeningSocket {
    /// The file of the socket is not removed with it: whoever has bound it does that.
    fn from(listener: UnixListener) -> Self {
        Self { kind: Kind::Unix(listener), file: None }
    }
}

fn bind_tcp(address: &SocketAddr, options: &SocketOptions) -> io::Result<TcpListener> {
    let socket = options.open(address)?;
    // A server that starts again does not wait for the last connections of the one before to be forgotten. (On Windows the option
    // means something else.)
    #[cfg(not(windows))]
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        sys::set_reuse_port(&socket)?;
    }
    if let (Some(only_v6), true) = (options.only_v6, address.is_ipv6()) {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&SockAddr::from(*address))?;
    socket.listen(backlog(options))?;
    Ok(socket.into())
}

fn backlog(options: &SocketOptions) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

/// The file of a bound Unix domain socket, to be removed with it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    #[cfg(unix)]
    path: std::path::PathBuf,
    /// Device and inode: another server may have bound the path meanwhile.
    #[cfg(unix)]
    identity: (u64, u64),
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        if unix::identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // One that cannot be removed is what a killed process leaves behind too.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::Path;

    use socket2::{Domain, Socket, Type};

    use super::{Kind, ListeningSocket, SocketFile, backlog};
    use crate::address::UnixName;
    use crate::options::SocketOptions;
    use crate::socket::sys::socket_address;

    pub(super) fn bind(name: &UnixName, options: &SocketOptions) -> io::Result<ListeningSocket> {
        let socket = options.open_unix()?;
        let address = socket_address(name)?;
        match (socket.bind(&address), name) {
            (Err(error), UnixName::Path(path)) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path, name)?;
                socket.bind(&address)?;
            }
            (bound, _) => bound?,
        }
        let file = match name {
            // The process may go elsewhere before it ends.
            UnixName::Path(path) => {
                let path = std::path::absolute(path)?;
                Some(SocketFile { identity: identity(&path)?, path })
            }
            _ => None,
        };
        socket.listen(backlog(options))?;
        Ok(ListeningSocket { kind: Kind::Unix(OwnedFd::from(socket).into()), file })
    }

    /// Removes a socket where nobody listens.
    fn remove_stale(path: &Path, name: &UnixName) -> io::Result<()> {
        let in_use = |text: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {}
            Ok(_) => return in_use("the file is not a socket"),
            // Somebody was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A server whose queue is full lives.
        probe.set_nonblocking(true)?;
        match probe.connect(&socket_address(name)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            _ => in_use("a server listens there"),
        }
    }

    pub(super) fn identity(path: &Path) -> io::Result<(u64, u64)> {
        std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
    }
}

/// A listening socket of a reactor.
pub(crate) struct Listener {
    /// Removed before the socket is closed.
    _file: Option<SocketFile>,
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
    Exhausted(io::Error),
}

impl Listener {
    /// Makes the socket non-blocking.
    pub(crate) fn new(socket: ListeningSocket) -> io::Result<Self> {
        let ListeningSocket { kind, file } = socket;
        let socket = match kind {
            Kind::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Watched::Tcp(mio::net::TcpListener::from_std(listener))
            }
            #[cfg(unix)]
            Kind::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Watched::Unix(mio::net::UnixListener::from_std(listener))
            }
        };
        Ok(Self { _file: file, socket, resting: false, waiting: false })
    }

    pub(crate) fn accept(&self) -> Accepted {
        match self.socket.accept() {
            Ok((stream, peer)) => Accepted::Connection(Socket::accepted(stream, peer)),
            Err(error) => classify(error),
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

fn classify(error: io::Error) -> Accepted {
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
        _ => Accepted::Exhausted(error),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_memory_or_buffers_waits_and_a_connection_that_is_gone_does_not() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            assert!(
                matches!(classify(io::Error::from_raw_os_error(errno)), Accepted::Exhausted(_)),
                "{errno}"
            );
        }
        for errno in [libc::ECONNABORTED, libc::ECONNRESET, libc::EINTR, libc::ENETDOWN, libc::EHOSTUNREACH] {
            assert!(matches!(classify(io::Error::from_raw_os_error(errno)), Accepted::Gone), "{errno}");
        }
        assert!(matches!(classify(io::Error::from_raw_os_error(libc::EAGAIN)), Accepted::Empty));
    }
}
