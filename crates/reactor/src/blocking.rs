//! A blocking socket that can also be used without blocking, with as few system calls as there can be.
//!
//! A unary call is one `sendmsg` and one `recv`. The alternatives were counted too: a non-blocking socket costs an `epoll_wait`
//! more for each call, and switching between blocking and non-blocking costs two `ioctl`s around each look at what is there. So the
//! socket stays blocking; the wait is bounded by `SO_RCVTIMEO`, which is set anew only when the wait differs much; and what must
//! not wait says so for one call with `MSG_DONTWAIT`. Only a peer that lets our send buffer fill up makes us wait for two things
//! at once, and then, once, a selector is made.

use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fulmar_base::Output;
use mio::{Events, Interest, Poll, Token};
use socket2::SockAddr;

use crate::address::Address;
use crate::options::SocketOptions;
use crate::socket::Stream;

/// A timeout may be late by this much. Kernels count such timeouts in ticks of 1 to 4 ms.
const LATE_MAX: Duration = Duration::from_millis(1);

/// Whether a read that has timed out leaves the socket as it was. On Windows its state is undefined then (`SO_RCVTIMEO` in the
/// documentation of Winsock), so that a selector waits there.
const HAS_READ_TIMEOUTS: bool = cfg!(unix);

/// One vectored write has at most so many slices.
const SLICES_MAX: usize = 64;

pub(crate) struct BlockingSocket {
    stream: BlockingStream,
    /// What a read waits for at most: what `SO_RCVTIMEO` is set to.
    timeout: Option<Duration>,
    selector: Option<Selector>,
}

/// What waits for the socket to become readable or writable.
struct Selector {
    poll: Poll,
    events: Events,
    /// The same socket. It stays in blocking mode, which registering does not care about.
    registered: Stream,
}

impl BlockingSocket {
    /// Takes a blocking stream without a read timeout.
    pub(crate) fn new(stream: BlockingStream) -> Self {
        Self { stream, timeout: None, selector: None }
    }

    /// Writes, without waiting, as much as the socket takes.
    pub(crate) fn write(&self, out: &mut Output) -> io::Result<()> {
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = out.slices(&mut slices);
            match self.stream.write_now(slices.get(..filled).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => out.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a read would return at once: with bytes, or with the end.
    pub(crate) fn has_input(&self) -> io::Result<bool> {
        loop {
            match self.stream.peek_now() {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bounds what a read waits from here on to about `wait`, or less; `None` is for good.
    pub(crate) fn set_wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        if !HAS_READ_TIMEOUTS {
            self.timeout = wait;
        } else if let Some(timeout) = better_timeout(self.timeout, wait) {
            self.stream.set_read_timeout(timeout)?;
            self.timeout = timeout;
        }
        Ok(())
    }

    /// Reads; 0 is the end. `None` if nothing came while it waited: the caller looks at its clock and waits for the rest.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if !HAS_READ_TIMEOUTS && !self.has_input()? {
            self.wait_for(Interest::READABLE, self.timeout)?;
            if !self.has_input()? {
                return Ok(None);
            }
        }
        match self.stream.read(into) {
            Ok(received) => Ok(Some(received)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Waits, at most for `wait`, until the socket, which took no more bytes, takes some or has some.
    pub(crate) fn wait_for_either(&mut self, wait: Option<Duration>) -> io::Result<()> {
        self.wait_for(Interest::READABLE | Interest::WRITABLE, wait)
    }

    fn wait_for(&mut self, interest: Interest, wait: Option<Duration>) -> io::Result<()> {
        let selector = match &mut self.selector {
            Some(selector) => selector,
            none => none.insert(Selector::new(&self.stream)?),
        };
        // Anew each time, so that what is the case already is announced: nothing is read or written through this selector, and it
        // announces changes only.
        let registry = selector.poll.registry();
        registry.reregister(&mut selector.registered, Token(0), interest)?;
        match selector.poll.poll(&mut selector.events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        self.stream.shutdown_write()
    }
}

impl Selector {
    fn new(stream: &BlockingStream) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut registered = stream.try_clone()?;
        poll.registry().register(&mut registered, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { poll, events: Events::with_capacity(4), registered })
    }
}

/// The stream of a connection that the calling thread drives.
#[derive(Debug)]
pub(crate) enum BlockingStream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl BlockingStream {
    /// Connects, waiting at most for `timeout`.
    pub(crate) fn connect(
        address: &Address,
        options: &SocketOptions,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        // No time at all would be for ever.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        match address {
            Address::Ip(address) => {
                let (socket, peer) = (options.open_to(address)?, SockAddr::from(*address));
                match timeout {
                    Some(timeout) => socket.connect_timeout(&peer, timeout)?,
                    None => socket.connect(&peer)?,
                }
                Ok(Self::Tcp(socket.into()))
            }
            #[cfg(unix)]
            Address::Unix(name) => sys::connect_unix(name, options, timeout).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(crate::socket::no_unix_sockets()),
        }
    }

    /// Makes it a blocking stream without a read timeout and without Nagle's algorithm.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(None)?;
                stream.set_nodelay(true)
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(None)
            }
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            #[cfg(unix)]
            Self::Unix(stream) => stream.read(into),
        }
    }

    /// Writes without waiting.
    fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => sys::write(stream, slices),
            #[cfg(unix)]
            Self::Unix(stream) => sys::write(stream, slices),
        }
    }

    /// Looks at the first byte without waiting.
    fn peek_now(&self) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => sys::peek(stream),
            #[cfg(unix)]
            Self::Unix(stream) => sys::peek(stream),
        }
    }

    fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// The same socket, to be registered with a selector.
    fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => Ok(Stream::Tcp(mio::net::TcpStream::from_std(stream.try_clone()?))),
            #[cfg(unix)]
            Self::Unix(stream) => Ok(Stream::Unix(mio::net::UnixStream::from_std(stream.try_clone()?))),
        }
    }
}

impl From<Stream> for BlockingStream {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => Self::Tcp(stream.into()),
            #[cfg(unix)]
            Stream::Unix(stream) => Self::Unix(stream.into()),
        }
    }
}

/// The timeout to set for a wait, unless the one that is set will do.
///
/// It will do if it is not too late and not so early that it costs many wake-ups for nothing. A new one is a quarter shorter than the
/// wait: so calls with the same deadline one after the other, and the messages of one call with a far deadline, seldom set it.
fn better_timeout(set: Option<Duration>, wait: Option<Duration>) -> Option<Option<Duration>> {
    match (set, wait) {
        (None, None) => None,
        // A wake-up a second for nothing costs less than to set it twice around each call without a deadline.
        (Some(set), None) => (set < Duration::from_secs(1)).then_some(None),
        (Some(set), Some(wait)) if set <= wait + LATE_MAX && set >= wait / 2 => None,
        (_, Some(wait)) if wait <= 2 * LATE_MAX => Some(Some(wait.max(Duration::from_micros(1)))),
        (_, Some(wait)) => Some(Some(wait - wait / 4)),
    }
}

#[cfg(unix)]
mod sys {
    use std::io::{self, IoSlice};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use socket2::SockRef;

    use crate::address::UnixName;
    use crate::options::SocketOptions;
    use crate::socket::{send, sys::socket_address};

    /// Connects to a Unix domain socket, waiting at most for `timeout` for room in the queue of its server.
    pub(super) fn connect_unix(
        name: &UnixName,
        options: &SocketOptions,
        timeout: Option<Duration>,
    ) -> io::Result<UnixStream> {
        let socket = options.open_unix()?;
        // Linux bounds connecting by the timeout for sending (unix(7)); elsewhere a full queue refuses at once.
        socket.set_write_timeout(timeout)?;
        socket.connect(&socket_address(name)?).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        socket.set_write_timeout(None)?;
        Ok(OwnedFd::from(socket).into())
    }

    /// Writes without waiting.
    pub(super) fn write(stream: &impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send(stream, slices)
    }

    /// Looks at the first byte without waiting. What it is is not wanted, only whether it is there.
    pub(super) fn peek(stream: &impl AsFd) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(stream).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT)
    }
}

#[cfg(not(unix))]
mod sys {
    use std::io::{self, IoSlice, Write};
    use std::net::TcpStream;

    /// Writes without waiting.
    pub(super) fn write(mut stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        without_blocking(stream, || stream.write_vectored(slices))
    }

    /// Looks at the first byte without waiting.
    pub(super) fn peek(stream: &TcpStream) -> io::Result<usize> {
        without_blocking(stream, || stream.peek(&mut [0]))
    }

    /// There is no flag for one call here.
    fn without_blocking<R>(stream: &TcpStream, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        stream.set_nonblocking(true)?;
        let result = call();
        stream.set_nonblocking(false)?;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    #[test]
    fn calls_with_the_same_deadline_set_the_timeout_once() {
        let mut set = None;
        let mut changes = 0;
        for wait in [50, 50, 49, 50, 48] {
            if let Some(better) = better_timeout(set, ms(wait)) {
                set = better;
                changes += 1;
            }
        }
        assert_eq!(changes, 1);
    }

    #[test]
    fn a_wait_ends_on_time_after_few_timeouts() {
        let (mut set, mut left, mut timeouts) = (None, Duration::from_secs(1), 0);
        while left > LATE_MAX {
            if let Some(better) = better_timeout(set, Some(left)) {
                set = better;
            }
            let wait = set.expect("a wait with an end has a timeout");
            assert!(wait <= left + LATE_MAX, "{wait:?} is too late for {left:?}");
            left = left.saturating_sub(wait);
            timeouts += 1;
        }
        assert!(timeouts <= 8, "{timeouts}");
    }

    #[test]
    fn a_wait_for_good_bears_a_wake_up_a_second_and_no_more() {
        assert_eq!(better_timeout(None, None), None);
        assert_eq!(better_timeout(ms(1_000), None), None);
        assert_eq!(better_timeout(ms(999), None), Some(None));
        assert_eq!(better_timeout(ms(10), ms(60_000)), Some(ms(45_000)));
        assert_eq!(better_timeout(ms(60_000), ms(10)), Some(Some(Duration::from_micros(7_500))));
        assert_eq!(better_timeout(None, Some(Duration::ZERO)), Some(Some(Duration::from_micros(1))));
    }
}
