use std::fmt;
use std::io::{self, IoSlice};

use mio::net::TcpStream;

/// An open TCP connection that no reactor has adopted yet: accepted by a listener, or opened by other means.
///
/// It may be sent to another reactor by letter, and is closed when dropped.
pub struct Socket {
    pub(crate) stream: TcpStream,
    /// Why the stream is of no use, if it is of none. Told by the reactor that adopts it.
    pub(crate) flaw: Option<io::Error>,
}

impl Socket {
    /// A stream that is non-blocking already.
    pub(crate) fn accepted(stream: TcpStream) -> Self {
        // A stream that was reset meanwhile may refuse the option, and will say so when it is read.
        let _ = stream.set_nodelay(true);
        Self { stream, flaw: None }
    }
}

impl From<std::net::TcpStream> for Socket {
    /// Makes the stream non-blocking and switches Nagle's algorithm off.
    fn from(stream: std::net::TcpStream) -> Self {
        let flaw = stream.set_nonblocking(true).err();
        Self { flaw, ..Self::accepted(TcpStream::from_std(stream)) }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// Writes what the socket takes at once, whatever its mode.
///
/// A write to a connection that the peer has reset raises a signal, unless it says that it must not. Programs of Rust ignore the
/// signal; programs in other languages, with this library inside, may not.
#[cfg(unix)]
pub(crate) fn send(socket: &impl std::os::fd::AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let (socket, flags) = (socket2::SockRef::from(socket), libc::MSG_DONTWAIT | NO_SIGNAL);
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
pub(crate) fn send(mut socket: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // Through mio, which has to see when the socket is full.
    io::Write::write_vectored(&mut socket, slices)
}

/// The text of an I/O error without the number some of them carry: "Connection refused".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
