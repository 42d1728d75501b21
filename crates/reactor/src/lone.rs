use std::fmt;
use std::io;
use std::time::Duration;

use fulmar_base::{Closed, Env, Instant, Output, Pool, TaskId, Transport};

use crate::address::Address;
use crate::blocking::{BlockingSocket, BlockingStream};
use crate::clock;
use crate::options::Dial;
use crate::socket::{Socket, reason};

/// How much one read may bring.
const READ_BYTES: usize = 64 * 1024;

/// How many bytes a transport may leave unread: the longest frame of its protocol.
const UNREAD_BYTES_MAX: usize = 1024 * 1024;

/// How many bytes may wait for a peer that does not read, besides what engines stop at by themselves.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long the calling thread waits for a peer to take the last bytes of a connection that has failed.
const LINGER: Duration = Duration::from_secs(1);

/// One connection that is driven by the thread that calls, while it calls: no reactor, no mailbox, no other thread.
///
/// Commands are given with [`command`](Self::command), and [`turn`](Self::turn) is called until what they ask for is there. A
/// command with its answer costs one system call to write and one to read. Between calls nothing moves: a peer that wants an answer
/// to a ping gets it in the next call, which had better begin with [`drain`](Self::drain).
///
/// When a method returns [`Closed`], the transport has been told and the socket is closed; every later call returns the same.
pub struct Lone<T: Transport> {
    transport: T,
    socket: BlockingSocket,
    peer: Address,
    pool: Pool,
    out: Output,
    /// The unread tail lies at its front, and reads go behind it.
    scratch: Vec<u8>,
    tail_len: usize,
    /// Something was poked since the last `transmit`.
    dirty: bool,
    closed: Option<Closed>,
}

impl<T: Transport> Lone<T> {
    /// Connects to an address, waiting at most for `timeout`; `None` leaves it to the system, which may take minutes.
    ///
    /// # Errors
    /// `connect to 127.0.0.1:1: Connection refused`, with the kind of what went wrong.
    pub fn connect<'o>(
        to: impl Into<Dial<'o>>,
        timeout: Option<Duration>,
        make: impl FnOnce() -> T,
    ) -> io::Result<Self> {
        let Dial { address, options } = to.into();
        let stream = BlockingStream::connect(&address, options, timeout);
        stream.and_then(|stream| Self::new(stream, address.clone(), make)).map_err(|error| {
            let text = match timeout {
                Some(timeout) if error.kind() == io::ErrorKind::TimedOut => {
                    format!("no answer within {timeout:?}")
                }
                _ => reason(&error),
            };
            io::Error::new(error.kind(), format!("connect to {address}: {text}"))
        })
    }

    /// Takes over an open connection, and makes its socket a blocking one.
    ///
    /// # Errors
    /// The stream is of no use.
    pub fn adopt(socket: impl Into<Socket>, make: impl FnOnce() -> T) -> io::Result<Self> {
        let Socket { stream, peer, flaw } = socket.into();
        match flaw {
            None => Self::new(stream.into(), peer, make),
            Some(flaw) => Err(flaw),
        }
    }

    fn new(stream: BlockingStream, peer: Address, make: impl FnOnce() -> T) -> io::Result<Self> {
        stream.prepare()?;
        Ok(Self {
            transport: make(),
            socket: BlockingSocket::new(stream),
            peer,
            pool: Pool::new(),
            out: Output::new(),
            scratch: vec![0; READ_BYTES],
            tail_len: 0,
            dirty: true,
            closed: None,
        })
    }

    /// Hands a command to the transport. What it writes leaves with the next [`turn`](Self::turn).
    ///
    /// # Errors
    /// The connection is over.
    pub fn command(&mut self, command: T::Command) -> Result<(), Closed> {
        self.poke(|transport, env| transport.on_command(env, command))
    }

    /// Tells the transport that a waker made for `task` has fired.
    ///
    /// # Errors
    /// The connection is over.
    pub fn wake(&mut self, task: TaskId) -> Result<(), Closed> {
        self.poke(|transport, env| transport.on_wake(env, task))
    }

    /// Calls the transport. What it writes leaves with the next [`turn`](Self::turn).
    ///
    /// # Errors
    /// The connection is over.
    pub fn poke<R>(
        &mut self,
        poke: impl FnOnce(&mut T, &mut Env<'_>) -> Result<R, Closed>,
    ) -> Result<R, Closed> {
        self.check_open()?;
        self.dirty = true;
        let result = self.call(poke);
        result.map_err(|closed| self.fail(closed))
    }

    /// Takes in what has arrived since the last call, without waiting. With nothing there it costs one system call.
    ///
    /// # Errors
    /// The connection is over; perhaps it was long before.
    pub fn drain(&mut self) -> Result<(), Closed> {
        self.check_open()?;
        self.drain_now()
    }

    /// Transmits, writes, waits for input or for `until` or the transport's deadline, whichever comes first, and hands on what has
    /// come. Waits only once: the caller looks whether what it waits for is there, and calls again.
    ///
    /// A peer that does not read what we write is read from meanwhile, so that two ends that write at the same time both get on.
    ///
    /// # Errors
    /// The connection is over.
    pub fn turn(&mut self, until: Option<Instant>) -> Result<(), Closed> {
        self.check_open()?;
        self.flush()?;
        let now = clock();
        let at = [until, self.transport.next_deadline()].into_iter().flatten().min();
        let wait = at.map(|at| at.saturating_duration_since(now));
        if wait != Some(Duration::ZERO) {
            debug_assert!(
                !self.transport.has_work(self.out.is_empty()),
                "the loop contract is broken: a thread is about to wait, and its transport has work"
            );
            if self.out.is_empty() {
                self.socket.set_wait(wait).map_err(|error| self.broken("wait for", &error))?;
                self.read()?;
            } else {
                self.socket.wait_for_either(wait).map_err(|error| self.broken("wait for", &error))?;
                self.drain_now()?;
            }
        }
        if self.transport.next_deadline().is_some_and(|at| at <= clock()) {
            self.poke(|transport, env| transport.on_deadline(env))?;
        }
        self.flush()
    }

    /// Transmits and writes what the socket takes, without waiting.
    ///
    /// # Errors
    /// The connection is over.
    pub fn flush(&mut self) -> Result<(), Closed> {
        self.check_open()?;
        while self.dirty || !self.out.is_empty() {
            if std::mem::take(&mut self.dirty) {
                let result = self.call(|transport, env| transport.transmit(env));
                result.map_err(|closed| self.fail(closed))?;
            }
            let waiting = self.out.len();
            if let Err(error) = self.socket.write(&mut self.out) {
                return Err(self.write_failed(&error));
            }
            if self.out.len() > OUTPUT_BYTES_MAX {
                let text =
                    format!("the peer does not read: the limit is {OUTPUT_BYTES_MAX} bytes to be written");
                return Err(self.end(Closed::peer(text)));
            }
            // A burst that came near the soft limit may have been cut off by it, so there may be another behind it.
            self.dirty = waiting >= Output::SOFT_LIMIT / 2 && self.out.len() < Output::SOFT_LIMIT / 2;
            if !self.dirty {
                break;
            }
        }
        Ok(())
    }

    /// Ends the connection: the transport is told why, and what the socket takes of its last words is written. Does not wait.
    pub fn close(&mut self, closed: &Closed) {
        if self.closed.is_none() {
            self.end(closed.clone());
            // Whoever closes does not ask any more whether the last bytes arrive.
            let _ = self.socket.write(&mut self.out);
            let _ = self.socket.shutdown();
        }
    }

    /// The transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The connection's pool.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The other end.
    pub fn peer(&self) -> &Address {
        &self.peer
    }

    /// How the connection has ended, if it has.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// The time.
    pub fn now(&self) -> Instant {
        clock()
    }

    fn check_open(&self) -> Result<(), Closed> {
        self.closed.clone().map_or(Ok(()), Err)
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut T, &mut Env<'_>) -> R) -> R {
        call(&mut self.transport, &mut Env::new(clock(), &mut self.pool, &mut self.out))
    }

    fn drain_now(&mut self) -> Result<(), Closed> {
        while self.socket.has_input().map_err(|error| self.broken("read from", &error))? {
            self.read()?;
        }
        Ok(())
    }

    /// Reads once, and hands on what came.
    fn read(&mut self) -> Result<(), Closed> {
        if self.scratch.len() < self.tail_len + READ_BYTES / 2 {
            self.scratch.resize((2 * self.tail_len).next_power_of_two(), 0);
        }
        let room = self.scratch.get_mut(self.tail_len..).unwrap_or_default();
        match self.socket.read(room) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => {
                let closed = match self.tail_len {
                    0 => Closed::peer("the peer closed the connection"),
                    unread => Closed::peer(format!(
                        "the peer closed the connection in the middle of a frame, of which {unread} bytes had arrived"
                    )),
                };
                Err(self.end(closed.caused_by(io::ErrorKind::UnexpectedEof)))
            }
            Ok(Some(received)) => self.deliver(received),
            Err(error) => Err(self.broken("read from", &error)),
        }
    }

    fn deliver(&mut self, received: usize) -> Result<(), Closed> {
        self.dirty = true;
        let len = self.tail_len + received;
        let mut env = Env::new(clock(), &mut self.pool, &mut self.out);
        let wire = self.scratch.get_mut(..len).unwrap_or_default();
        let result = self.transport.receive(&mut env, wire);
        let consumed = result.map_err(|closed| self.fail(closed))?.min(len);
        self.scratch.copy_within(consumed..len, 0);
        self.tail_len = len - consumed;
        if self.tail_len > UNREAD_BYTES_MAX {
            let text =
                format!("the peer sent a frame that is longer than the limit of {UNREAD_BYTES_MAX} bytes");
            return Err(self.fail(Closed::peer(text)));
        }
        Ok(())
    }

    /// A peer that closes with bytes of ours unread resets the connection. What it said before that, which may be the reason, has
    /// arrived all the same and is read first.
    fn write_failed(&mut self, error: &io::Error) -> Closed {
        self.out.clear();
        match self.drain_now() {
            Err(closed) => closed,
            Ok(()) => self.broken("write to", error),
        }
    }

    fn broken(&mut self, what: &str, error: &io::Error) -> Closed {
        self.end(Closed::peer(format!("{what} {}: {}", self.peer, reason(error))).caused_by(error.kind()))
    }

    /// The transport says that the connection is over: its last bytes are the reason for the peer, and must not be overtaken by the
    /// reset that closing a socket with unread bytes causes.
    fn fail(&mut self, closed: Closed) -> Closed {
        let closed = self.end(closed);
        if !closed.lost {
            // The peer hears the reason, or it does not: there is nobody else to tell.
            let _ = self.linger();
        }
        closed
    }

    fn linger(&mut self) -> io::Result<()> {
        let until = clock() + LINGER;
        let mut shut = false;
        loop {
            self.socket.write(&mut self.out)?;
            if self.out.is_empty() && !std::mem::replace(&mut shut, true) {
                self.socket.shutdown()?;
            }
            let left = until.saturating_duration_since(clock());
            if left.is_zero() {
                return Ok(());
            }
            if shut {
                self.socket.set_wait(Some(left))?;
                if self.socket.read(&mut self.scratch)? == Some(0) {
                    return Ok(());
                }
            } else {
                self.socket.wait_for_either(Some(left))?;
                while self.socket.has_input()? {
                    if self.socket.read(&mut self.scratch)? == Some(0) {
                        return self.socket.write(&mut self.out);
                    }
                }
            }
        }
    }

    /// Tells the transport, once.
    fn end(&mut self, closed: Closed) -> Closed {
        self.closed = Some(closed.clone());
        self.call(|transport, env| transport.on_close(env, &closed));
        closed
    }
}

impl<T: Transport> Drop for Lone<T> {
    fn drop(&mut self) {
        self.close(&Closed::caller("the connection was dropped"));
    }
}

impl<T: Transport> fmt::Debug for Lone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lone").field("peer", &self.peer).field("closed", &self.closed).finish_non_exhaustive()
    }
}
