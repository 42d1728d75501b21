use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;

use crate::{Instant, Output, Pool};

/// One end of a connection (RFC 9113 §2.2) in plain text: a gRPC server end or a client end.
///
/// An endpoint does no I/O and reads no clock. Whoever drives it (a reactor, a simulated world, somebody's own event loop) brings
/// it bytes and the time, and carries away what it leaves in [`Env::out`].
///
/// # The loop contract
///
/// For each connection, again and again:
///
/// 1. **Poke one thing**: [`receive`](Self::receive) with bytes, [`on_deadline`](Self::on_deadline),
///    [`on_command`](Self::on_command), or [`on_wake`](Self::on_wake). Commands and wakes may be poked several times in a row.
/// 2. Inside, the endpoint **drains its engine** (`next_event` until `None`) and **runs ready tasks** until none is left.
/// 3. Call [`transmit`](Self::transmit) once.
/// 4. **Write** `out`. Call `transmit` again when a socket that was full has drained `out` below its soft limit.
/// 5. **Re-arm** the timer to [`next_deadline`](Self::next_deadline), which any of the calls above may have moved.
///
/// Never wait while a task is ready or output waits to be written.
///
/// Any method may leave output in `out`. When one returns [`Closed`], the driver flushes `out`, which then holds the reason for the
/// peer, and closes; no method but [`on_close`](Self::on_close) is called after that. `on_close` is called exactly once for each
/// endpoint, whatever ended it.
pub trait Endpoint {
    /// What users of this endpoint ask of it, from wherever they are.
    type Command;

    /// Takes bytes that arrived, and returns how many it consumed.
    ///
    /// The caller keeps the unread tail, at most one frame, and presents it again in front of the next bytes.
    ///
    /// # Errors
    /// The connection is over.
    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed>;

    /// Moves what waits to be sent into `out`, as far as flow control and [`Output::room`] allow.
    ///
    /// # Errors
    /// The connection is over.
    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed>;

    /// When [`on_deadline`](Self::on_deadline) wants to be called next; `None` while nothing is timed.
    fn next_deadline(&self) -> Option<Instant>;

    /// The time of [`next_deadline`](Self::next_deadline) has come. A call too early does nothing.
    ///
    /// # Errors
    /// The connection is over.
    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed>;

    /// A user asks for something.
    ///
    /// # Errors
    /// The connection is over.
    fn on_command(&mut self, env: &mut Env<'_>, command: Self::Command) -> Result<(), Closed>;

    /// A waker made for `task` of this endpoint has fired. A task that has ended is ignored.
    ///
    /// # Errors
    /// The connection is over.
    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed>;

    /// The connection has ended, for the reason in `closed`: tell whoever waits, and give every block back to the pool.
    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed);

    /// Whether something is left to do that waits for nothing: an event to drain, a task to run, or, if there `is_room` for output,
    /// something to transmit. Drivers assert in debug builds that there is nothing before they wait: rule 2 and 3 of the contract.
    fn has_work(&self, is_room: bool) -> bool {
        let _ = is_room;
        false
    }
}

/// What a reactor drives: the methods of [`Endpoint`], and the same loop contract, over the bytes of the wire.
///
/// [`Plain`] puts an endpoint on the wire as it is; `fulmar_tls::Tls` puts it there encrypted.
pub trait Transport {
    /// See [`Endpoint::Command`].
    type Command;

    /// Takes bytes off the wire, and returns how many it consumed. They may be changed in place (decrypted).
    ///
    /// The caller keeps the unread tail, with what was changed in it, and presents it again in front of the next bytes.
    ///
    /// # Errors
    /// The connection is over.
    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed>;

    /// See [`Endpoint::transmit`].
    ///
    /// # Errors
    /// The connection is over.
    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed>;

    /// See [`Endpoint::next_deadline`].
    fn next_deadline(&self) -> Option<Instant>;

    /// See [`Endpoint::on_deadline`].
    ///
    /// # Errors
    /// The connection is over.
    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed>;

    /// See [`Endpoint::on_command`].
    ///
    /// # Errors
    /// The connection is over.
    fn on_command(&mut self, env: &mut Env<'_>, command: Self::Command) -> Result<(), Closed>;

    /// See [`Endpoint::on_wake`].
    ///
    /// # Errors
    /// The connection is over.
    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed>;

    /// See [`Endpoint::on_close`].
    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed);

    /// See [`Endpoint::has_work`].
    fn has_work(&self, is_room: bool) -> bool {
        let _ = is_room;
        false
    }
}

/// What the world lends an endpoint for the length of one call: the time, memory, and a place to write.
#[derive(Debug)]
pub struct Env<'e> {
    /// The time of this call.
    pub now: Instant,
    /// Recycled memory. What is taken here is given back here.
    pub pool: &'e mut Pool,
    /// What goes out on this connection, in order.
    pub out: &'e mut Output,
}

impl<'e> Env<'e> {
    /// An environment of these three things.
    pub fn new(now: Instant, pool: &'e mut Pool, out: &'e mut Output) -> Self {
        Self { now, pool, out }
    }

    /// The same time and memory with another place to write: what a transport lends to the endpoint inside it.
    pub fn with_out<'o>(&'o mut self, out: &'o mut Output) -> Env<'o> {
        Env { now: self.now, pool: self.pool, out }
    }
}

/// An endpoint on the wire as it is: cleartext HTTP/2 with prior knowledge (RFC 9113 §3.3).
#[derive(Debug)]
pub struct Plain<E>(pub E);

impl<E: Endpoint> Transport for Plain<E> {
    type Command = E::Command;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        self.0.receive(env, wire)
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.0.transmit(env)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0.next_deadline()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.0.on_deadline(env)
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: Self::Command) -> Result<(), Closed> {
        self.0.on_command(env, command)
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        self.0.on_wake(env, task)
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.0.on_close(env, closed);
    }

    fn has_work(&self, is_room: bool) -> bool {
        self.0.has_work(is_room)
    }
}

/// Names a task of an endpoint to the waker that wakes it. Only the endpoint knows what the number means.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TaskId(pub u64);

/// Whose doing it was that something ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The other end of the connection: it broke a rule, crossed a limit, or went away.
    Peer,
    /// This end or the machine it runs on: a limit of ours, an I/O error, a shutdown.
    Local,
    /// The user of this library, by asking for it or by a call that cannot be.
    Caller,
}

/// The connection is over: flush what is in `out`, unless it is [`lost`](Self::lost), then close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Whose doing it was.
    pub fault: Fault,
    /// What happened, for a person to read.
    pub text: Cow<'static, str>,
    /// Nothing gets across any more, so that there is no use in flushing: the peer is dead, or as good as dead.
    pub lost: bool,
    /// What kind of error of the operating system is behind it, if one is.
    pub io: Option<ErrorKind>,
}

impl Closed {
    /// The peer's doing.
    pub fn peer(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Peer, text: text.into(), lost: false, io: None }
    }

    /// This end's doing.
    pub fn local(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Local, text: text.into(), lost: false, io: None }
    }

    /// The user's doing.
    pub fn caller(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::Caller, text: text.into(), lost: false, io: None }
    }

    /// The same, with an error of the operating system behind it.
    #[must_use]
    pub fn caused_by(mut self, kind: ErrorKind) -> Self {
        self.io = Some(kind);
        self
    }

    /// The same, and nothing gets across any more.
    #[must_use]
    pub fn lost(mut self) -> Self {
        self.lost = true;
        self
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.fault {
            Fault::Peer => "by the peer",
            Fault::Local => "by this end",
            Fault::Caller => "by the caller",
        };
        write!(f, "connection closed {side}: {}", self.text)
    }
}

impl std::error::Error for Closed {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Answers each whole line, and is over after the line "quit".
    #[derive(Default)]
    struct Echo {
        pokes: Vec<String>,
    }

    impl Endpoint for Echo {
        type Command = &'static str;

        fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
            let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            env.out.extend_from_slice(&bytes[..end]);
            if bytes.starts_with(b"quit\n") { Err(Closed::peer("it quit")) } else { Ok(end) }
        }

        fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
            env.out.extend_from_slice(b".");
            Ok(())
        }

        fn next_deadline(&self) -> Option<Instant> {
            Some(Instant::ZERO + Duration::from_secs(1))
        }

        fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
            self.pokes.push(format!("deadline at {:?}", env.now));
            Ok(())
        }

        fn on_command(&mut self, _env: &mut Env<'_>, command: &'static str) -> Result<(), Closed> {
            self.pokes.push(command.to_owned());
            Ok(())
        }

        fn on_wake(&mut self, _env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
            self.pokes.push(format!("wake {}", task.0));
            Ok(())
        }

        fn on_close(&mut self, _env: &mut Env<'_>, closed: &Closed) {
            self.pokes.push(closed.to_string());
        }
    }

    #[test]
    fn plain_hands_every_call_to_the_endpoint() {
        let (mut pool, mut out) = (Pool::new(), Output::new());
        let mut env = Env::new(Instant::from_nanos(7), &mut pool, &mut out);
        let mut plain = Plain(Echo::default());

        assert_eq!(plain.receive(&mut env, &mut b"one\ntwo".to_vec()), Ok(4));
        plain.transmit(&mut env).expect("echo goes on");
        plain.on_command(&mut env, "command").expect("echo goes on");
        plain.on_wake(&mut env, TaskId(3)).expect("echo goes on");
        plain.on_deadline(&mut env).expect("echo goes on");
        let closed = plain.receive(&mut env, &mut b"quit\n".to_vec()).expect_err("quit ends it");
        plain.on_close(&mut env, &closed);

        assert_eq!(plain.next_deadline(), Some(Instant::from_nanos(1_000_000_000)));
        assert_eq!(
            plain.0.pokes,
            ["command", "wake 3", "deadline at 7ns", "connection closed by the peer: it quit"]
        );
        assert_eq!(out.first(), b"one\n.quit\n");
    }

    #[test]
    fn an_inner_environment_writes_to_its_own_output() {
        let (mut pool, mut wire, mut plain) = (Pool::new(), Output::new(), Output::new());
        let mut env = Env::new(Instant::from_nanos(9), &mut pool, &mut wire);
        let inner = env.with_out(&mut plain);
        assert_eq!(inner.now, Instant::from_nanos(9));
        inner.out.extend_from_slice(b"secret");
        assert_eq!((wire.len(), plain.len()), (0, 6));
    }

    #[test]
    fn closed_says_who_and_what() {
        assert_eq!(
            Closed::local("idle for 5 min").to_string(),
            "connection closed by this end: idle for 5 min"
        );
        assert_eq!(Closed::caller("shutdown").fault, Fault::Caller);
    }
}
