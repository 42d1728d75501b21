use std::fmt;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr};

use mio::event::Source;
use mio::net::TcpStream;
#[cfg(unix)]
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use socket2::{SockAddr, SockRef};

use crate::address::Address;
#[cfg(unix)]
use crate::address::UnixName;
use crate::options::SocketOptions;

/// An open connection that no reactor has adopted yet: accepted by a listener, or opened by other means.
///
/// It may be sent to another reactor by letter, and is closed when dropped.
pub struct Socket {
    pub(crate) stream: Stream,
    pub(crate) peer: Address,
    /// Why the stream is of no use, if it is of none. Told by whoever adopts it.
    pub(crate) flaw: Option<io::Error>,
}

impl Socket {
    /// A stream that is non-blocking already.
    pub(crate) fn accepted(stream: Stream, peer: Address) -> Self {
        // A stream that was reset meanwhile may refuse the option, and will say so when it is read.
        let _ = stream.prepare();
        Self { stream, peer, flaw: None }
    }

    /// Whether the stream is of use.
    ///
    /// # Errors
    /// It is not connected, or does not take the non-blocking mode. Whoever adopts it is told the same.
    pub fn check(&self) -> io::Result<()> {
        match &self.flaw {
            Some(flaw) => Err(io::Error::new(flaw.kind(), reason(flaw))),
            None => Ok(()),
        }
    }

    /// The other end.
    pub fn peer(&self) -> &Address {
        &self.peer
    }

    /// This end; None if the system does not know it any more. Costs a system call.
    pub fn local_address(&self) -> Option<Address> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok().map(Address::Ip),
            #[cfg(unix)]
            Stream::Unix(stream) => {
                stream.local_addr().ok().map(|address| Address::Unix(UnixName::from(&address)))
            }
        }
    }

    /// Who opened the other end of a Unix domain socket, on Linux and Android; None elsewhere, and for other sockets. Costs a system
    /// call.
    pub fn unix_credentials(&self) -> Option<UnixCredentials> {
        match &self.stream {
            Stream::Tcp(_) => None,
            #[cfg(unix)]
            Stream::Unix(stream) => sys::credentials(stream),
        }
    }

    /// Sets what of `options` can be set on a connection that is open.
    ///
    /// # Errors
    /// The system does not have it, or does not permit it.
    pub fn apply(&self, options: &SocketOptions) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => options.apply_open(&SockRef::from(stream)),
            #[cfg(unix)]
            Stream::Unix(stream) => options.apply_open(&SockRef::from(stream)),
        }
    }
}

/// Whose process opened the other end of a Unix domain socket, as the kernel knows it (unix(7), `SO_PEERCRED`). A process of the same
/// machine cannot make another one up.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UnixCredentials {
    /// The process.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl From<std::net::TcpStream> for Socket {
    /// Makes the stream non-blocking and switches Nagle's algorithm off.
    fn from(stream: std::net::TcpStream) -> Self {
        let flaw = stream.set_nonblocking(true).err();
        let peer = stream.peer_addr();
        let stream = Stream::Tcp(TcpStream::from_std(stream));
        match peer {
            Ok(peer) => Self { flaw, ..Self::accepted(stream, peer.into()) },
            Err(error) => {
                let nowhere = SocketAddr::from(([0, 0, 0, 0], 0)).into();
                Self { flaw: flaw.or(Some(error)), ..Self::accepted(stream, nowhere) }
            }
        }
    }
}

#[cfg(unix)]
impl From<std::os::unix::net::UnixStream> for Socket {
    /// Makes the stream non-blocking.
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        let flaw = stream.set_nonblocking(true).err();
        let peer = stream.peer_addr();
        let stream = Stream::Unix(UnixStream::from_std(stream));
        match peer {
            Ok(peer) => Self { flaw, ..Self::accepted(stream, UnixName::from(&peer).into()) },
            Err(error) => {
                Self { flaw: flaw.or(Some(error)), ..Self::accepted(stream, UnixName::Unnamed.into()) }
            }
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The stream of a connection that a reactor watches.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Starts to connect, without waiting.
    pub(crate) fn connect(address: &Address, options: &SocketOptions) -> io::Result<Self> {
        match address {
            Address::Ip(address) => {
                let socket = options.open_to(address)?;
                socket.set_nonblocking(true)?;
                match socket.connect(&SockAddr::from(*address)) {
                    Err(error) if !is_under_way(&error) => Err(error),
                    _ => Ok(Self::Tcp(TcpStream::from_std(socket.into()))),
                }
            }
            #[cfg(unix)]
            Address::Unix(name) => sys::connect(name, options).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(no_unix_sockets()),
        }
    }

    /// Whether the connection has come about.
    ///
    /// # Errors
    /// It has failed.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Self::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
            #[cfg(unix)]
            Self::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    /// Has the system send at once what is written, and keep little that it cannot send yet.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                limit_unsent(&SockRef::from(stream));
                stream.set_nodelay(true)
            }
            #[cfg(unix)]
            Self::Unix(_) => Ok(()),
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Writes what the socket takes at once.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => send(stream, slices),
            #[cfg(unix)]
            Self::Unix(stream) => send(stream, slices),
        }
    }
}

/// The system takes no more bytes while so many wait that the peer, or the path, does not let it send yet. It would take megabytes, and a
/// small message would wait behind all of them. What is under way does not count, so that long paths are filled all the same.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = crate::pace::WRITE_BYTES_MAX as u32;

/// Where the system can.
pub(crate) fn limit_unsent(socket: &socket2::Socket) {
    // It is a matter of how long small messages wait, and no reason to do without the connection.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = socket;
}

/// Whether connecting goes on in the background.
fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    let in_progress = error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(not(unix))]
    let in_progress = error.kind() == io::ErrorKind::WouldBlock;
    in_progress
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            #[cfg(unix)]
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interests),
            #[cfg(unix)]
            Self::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, interests),
            #[cfg(unix)]
            Self::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            #[cfg(unix)]
            Self::Unix(stream) => stream.deregister(registry),
        }
    }
}

/// Writes what the socket takes at once, whatever its mode.
///
/// A write to a connection that the peer has reset raises a signal, unless it says that it must not. Programs of Rust ignore the
/// signal; programs in other languages, with this library inside, may not.
#[cfg(unix)]
pub(crate) fn send(socket: &impl std::os::fd::AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let (socket, flags) = (SockRef::from(socket), libc::MSG_DONTWAIT | NO_SIGNAL);
    match slices {
        [slice] => socket.send_with_flags(slice, flags),
        slices => socket.send_vectored_with_flags(slices, flags),
    }
}

#[cfg(all(unix, not(target_vendor = "apple")))]
const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
/// Apple's systems have an option of the socket instead, which the standard library and mio set.
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: i32 = 0;

/// Writes what the socket takes at once.
#[cfg(not(unix))]
fn send(mut socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // Through mio, which has to see when the socket is full.
    io::Write::write_vectored(&mut socket, slices)
}

#[cfg(unix)]
pub(crate) mod sys {
    use std::ffi::OsStr;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;

    use mio::net::UnixStream;
    use socket2::SockAddr;

    use super::UnixCredentials;
    use crate::address::UnixName;
    use crate::options::SocketOptions;

    /// Connects without waiting: at once, or not at all.
    pub(super) fn connect(name: &UnixName, options: &SocketOptions) -> io::Result<UnixStream> {
        let address = socket_address(name)?;
        let socket = options.open_unix()?;
        socket.set_nonblocking(true)?;
        socket.connect(&address)?;
        Ok(UnixStream::from(OwnedFd::from(socket)))
    }

    pub(super) fn credentials(stream: &UnixStream) -> Option<UnixCredentials> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
            let (pid, uid, gid) = (peer.pid.as_raw_pid(), peer.uid.as_raw(), peer.gid.as_raw());
            Some(UnixCredentials { pid, uid, gid })
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = stream;
            None
        }
    }

    /// A name as system calls take it.
    pub(crate) fn socket_address(name: &UnixName) -> io::Result<SockAddr> {
        match name {
            UnixName::Path(path) => SockAddr::unix(path),
            UnixName::Abstract(name) if cfg!(any(target_os = "linux", target_os = "android")) => {
                SockAddr::unix(OsStr::from_bytes(&[b"\0", name.as_ref()].concat()))
            }
            UnixName::Abstract(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no abstract Unix sockets"))
            }
            UnixName::Unnamed => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "a Unix socket without a name"))
            }
        }
    }
}

#[cfg(not(unix))]
pub(crate) fn no_unix_sockets() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets")
}

/// The text of an I/O error without the number some of them carry: "Connection refused".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
