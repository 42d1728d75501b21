mod leave;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Closed, Env, Instant, Pool, Slab, TaskId, Transport};
use mio::{Interest, Poll, Token};

use crate::address::Address;
use crate::bench::Bench;
use crate::config::ReactorConfig;
use crate::connection::{Connection, Ending, Link, Next, Phase};
use crate::current::{self, ReactorId};
use crate::keys::{ConnectionHandle, ConnectionKey, ListenerKey, TimerKey};
use crate::listener::{Listener, ListeningSocket};
use crate::mailbox::{Inbox, Mail, Mailbox, TaskWaker};
use crate::options::Dial;
use crate::socket::{Socket, Stream, reason};
use crate::tasks::Tasks;
use crate::timers::{Due, Timers};

/// What a reactor has besides its host, and lends to it: connections, listeners, timers, tasks.
///
/// Nothing here calls the host. What ends here is told to [`Host::on_closed`](crate::Host::on_closed) soon after, in the same turn.
pub struct Core<T, L> {
    pub(crate) id: ReactorId,
    pub(crate) poll: Poll,
    pub(crate) bench: Bench,
    pub(crate) connections: Slab<Connection<T>>,
    pub(crate) listeners: Slab<Listener>,
    pub(crate) timers: Timers<L>,
    pub(crate) tasks: Tasks,
    pub(crate) inbox: Inbox<L>,
    /// Memory for the next swap with the inbox.
    pub(crate) mail: Mail<L>,
    /// Memory for the next swap with the wake-ups of this thread.
    pub(crate) woken: Vec<Arc<TaskWaker>>,
    /// Connections that transmit and write at the end of this round.
    pub(crate) dirty: VecDeque<ConnectionKey>,
    /// Sockets that had more than fitted into their turn, or whose turns are long. Nothing else announces them: edges are told once.
    pub(crate) again: VecDeque<ConnectionKey>,
    /// Listeners where connections wait to be accepted.
    pub(crate) accepting: VecDeque<ListenerKey>,
    /// Transports whose connections have ended, and whose host has not been told.
    pub(crate) ended: VecDeque<Ended<T>>,
    /// How many connections have a transport.
    live: usize,
    pub(crate) root: Root,
    pub(crate) stopping: bool,
    /// The slot of the connection that was checked last.
    checked: usize,
}

pub(crate) struct Ended<T> {
    pub(crate) key: ConnectionKey,
    pub(crate) transport: T,
    pub(crate) closed: Closed,
}

/// The future given to `block_on`.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Root {
    /// There is none. A waker of an earlier one wakes nobody.
    Absent,
    Asleep,
    Woken,
}

/// What a mio event is about. Tokens hold indices; an event for an earlier user of a slot is an announcement too many, which costs
/// a system call and harms nobody.
#[derive(Copy, Clone)]
pub(crate) enum Source {
    Connection(usize),
    Listener(usize),
    Mailbox,
}

impl Source {
    pub(crate) fn token(self) -> Token {
        match self {
            Self::Connection(index) => Token(2 * index),
            Self::Listener(index) => Token(2 * index + 1),
            Self::Mailbox => Token(usize::MAX),
        }
    }

    pub(crate) fn of(token: Token) -> Self {
        match token.0 {
            usize::MAX => Self::Mailbox,
            even if even % 2 == 0 => Self::Connection(even / 2),
            odd => Self::Listener(odd / 2),
        }
    }
}

// What users call.
impl<T: Transport, L: Send + 'static> Core<T, L> {
    /// Accepts connections from a socket that listens already, each told to [`Host::on_accept`](crate::Host::on_accept).
    ///
    /// # Errors
    /// The system does not take the socket.
    pub fn listen(&mut self, socket: impl Into<ListeningSocket>) -> io::Result<ListenerKey> {
        let mut listener = Listener::new(socket.into())?;
        let registry = self.poll.registry();
        let mut result = Ok(());
        let key = self.listeners.insert_with(|key| {
            let token = Source::Listener(key.index()).token();
            result = registry.register(&mut listener.socket, token, Interest::READABLE);
            listener
        });
        if let Err(error) = result {
            self.listeners.remove(key);
            return Err(error);
        }
        Ok(ListenerKey::of(key))
    }

    /// Stops listening, at once: connections that wait to be accepted are refused by the system.
    pub fn close_listener(&mut self, key: ListenerKey) {
        self.listeners.remove(key.key());
    }

    /// Connects to `address`, without waiting.
    ///
    /// The transport is there from the start and takes commands; its first `transmit` comes when the connection is there, which
    /// [`Host::on_connected`](crate::Host::on_connected) is told. If it fails, or takes longer than `timeout`, that is how the
    /// connection ends: `connect to 127.0.0.1:1: Connection refused`.
    ///
    /// A Unix domain socket is connected at once, or not at all.
    pub fn dial<'o>(
        &mut self,
        to: impl Into<Dial<'o>>,
        timeout: Option<Duration>,
        make: impl FnOnce(ConnectionHandle) -> T,
    ) -> ConnectionKey {
        let deadline = timeout.map(|timeout| (self.now() + timeout, timeout));
        let Dial { address: peer, options } = to.into();
        match Stream::connect(&peer, options) {
            Ok(stream) => self.insert(Link::Socket { stream, peer }, Phase::Connecting { deadline }, make),
            Err(error) => self.stillborn(make, connect_failed(&peer, &error)),
        }
    }

    /// Takes over an open connection.
    pub fn adopt(&mut self, socket: Socket, make: impl FnOnce(ConnectionHandle) -> T) -> ConnectionKey {
        let Socket { stream, peer, flaw } = socket;
        if let Some(flaw) = flaw {
            let text = format!("adopt a connection to {peer}: {}", reason(&flaw));
            return self.stillborn(make, Closed::local(text));
        }
        self.insert(Link::Socket { stream, peer }, Phase::Open, make)
    }

    /// Makes two connections that are joined in memory: what one writes, the other reads. They are driven like any other, with the
    /// same limits, and cost no system calls.
    pub fn pipe(
        &mut self,
        make_one: impl FnOnce(ConnectionHandle) -> T,
        make_other: impl FnOnce(ConnectionHandle) -> T,
    ) -> (ConnectionKey, ConnectionKey) {
        // The first end learns the key of the second when there is one.
        let nobody = ConnectionKey::of(fulmar_base::Key::<()>::from_u64(0));
        let one = self.insert(Link::Pipe { peer: nobody }, Phase::Open, make_one);
        let other = self.insert(Link::Pipe { peer: one }, Phase::Open, make_other);
        if let Some(connection) = self.connections.get_mut(one.key()) {
            connection.link = Link::Pipe { peer: other };
        }
        (one, other)
    }

    /// Hands a command to a connection's transport, at once. What it writes leaves at the end of this round, together with what
    /// comes of other commands to the same connection.
    ///
    /// # Errors
    /// The connection has ended: here is the command back.
    pub fn command(&mut self, key: ConnectionKey, command: T::Command) -> Result<(), T::Command> {
        if self.transport(key).is_none() {
            return Err(command);
        }
        self.poke(key, |transport, env| transport.on_command(env, command));
        Ok(())
    }

    /// Calls a connection's transport, at once, like [`command`](Self::command) does; `None` if the connection has ended, or ends
    /// because of what the call returns.
    pub fn poke<R>(
        &mut self,
        key: ConnectionKey,
        poke: impl FnOnce(&mut T, &mut Env<'_>) -> Result<R, Closed>,
    ) -> Option<R> {
        match self.connections.get_mut(key.key())?.poke(&mut self.bench, poke)? {
            Ok(value) => {
                self.mark_dirty(key);
                Some(value)
            }
            Err(closed) => {
                self.end(key, Ending::Said(closed));
                None
            }
        }
    }

    /// A connection's transport, to look at; `None` if the connection has ended.
    pub fn transport(&mut self, key: ConnectionKey) -> Option<&mut T> {
        self.connections.get_mut(key.key())?.transport.as_mut()
    }

    /// Ends a connection: its transport is told why, what it has written is flushed, and the socket is closed in order.
    pub fn close(&mut self, key: ConnectionKey, closed: &Closed) {
        self.end(key, Ending::Said(closed.clone()));
    }

    /// Runs a future on this thread. It need not be `Send`; it is dropped with the reactor if it has not ended by then.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(future);
    }

    /// Delivers a letter to [`Host::on_letter`](crate::Host::on_letter) at a time.
    pub fn set_timer(&mut self, at: Instant, letter: L) -> TimerKey {
        self.timers.set_letter(at, letter)
    }

    /// Takes a timer back, and its letter; `None` if it was delivered.
    pub fn cancel_timer(&mut self, key: TimerKey) -> Option<L> {
        self.timers.cancel_letter(key)
    }

    /// The reactor's mailbox, to be given to other threads.
    pub fn mailbox(&self) -> Mailbox<L> {
        self.inbox.mailbox()
    }

    /// Looks at the clock again: for a host that does many things in one go, each of which may take a while.
    pub fn tick(&mut self) {
        self.bench.tick();
    }

    /// The time at the start of the piece of work at hand.
    pub fn now(&self) -> Instant {
        self.bench.now
    }

    /// The thread's pool, for whoever has taken blocks from it or brings some along with a letter.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.bench.pool
    }

    /// Which reactor this is.
    pub fn id(&self) -> ReactorId {
        self.id
    }

    /// The connections that have a transport, those being dialled included.
    pub fn keys(&self) -> Vec<ConnectionKey> {
        let live = self.connections.iter().filter(|(_, connection)| connection.transport.is_some());
        live.map(|(key, _)| ConnectionKey::of(key)).collect()
    }

    /// How many connections have a transport, those being dialled included.
    pub fn connections(&self) -> usize {
        self.live
    }

    /// How many connections have ended and only get their last bytes across.
    pub fn lingering(&self) -> usize {
        self.connections.len() - self.live
    }

    /// How many local tasks have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How many timers are set to deliver letters.
    pub fn timers(&self) -> usize {
        self.timers.letters()
    }

    /// Makes [`Reactor::run`](crate::Reactor::run) close what is open, listeners too, and return.
    pub fn stop(&mut self) {
        self.stopping = true;
    }
}

// What the reactor calls.
impl<T: Transport, L: Send + 'static> Core<T, L> {
    pub(crate) fn new(config: ReactorConfig) -> io::Result<Self> {
        let id = ReactorId::next();
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), Source::Mailbox.token())?;
        let inbox = Inbox::new(id, waker);
        Ok(Self {
            id,
            poll,
            bench: Bench::new(config),
            connections: Slab::new(),
            listeners: Slab::new(),
            timers: Timers::new(),
            tasks: Tasks::new(inbox.post()),
            inbox,
            mail: Mail::new(),
            woken: Vec::new(),
            dirty: VecDeque::new(),
            again: VecDeque::new(),
            accepting: VecDeque::new(),
            ended: VecDeque::new(),
            live: 0,
            root: Root::Absent,
            stopping: false,
            checked: 0,
        })
    }

    /// Whether somebody is ready to run: who has mail, a task, the end of a pipe.
    pub(crate) fn has_ready(&self) -> bool {
        self.inbox.has_mail() || self.has_ready_here()
    }

    /// Whether there is work on this thread, so that it must not sleep.
    pub(crate) fn has_work(&self) -> bool {
        self.has_ready_here()
            || self.root == Root::Woken
            || !self.dirty.is_empty()
            || self.has_greedy()
            || !self.ended.is_empty()
    }

    /// Whether there is something on this thread to do about sockets and listeners that nothing announces any more.
    pub(crate) fn has_greedy(&self) -> bool {
        !self.again.is_empty() || !self.accepting.is_empty()
    }

    /// Looks whether the loop contract holds for the connections, before the reactor sleeps: all of them, or the next few where there
    /// are many. In debug builds only.
    pub(crate) fn check_at_rest(&mut self) {
        const CHECKED_MAX: usize = 64;
        let capacity = self.connections.capacity();
        for _ in 0..capacity.min(CHECKED_MAX) {
            self.checked = (self.checked + 1) % capacity;
            let key = self.connections.key_at(self.checked);
            if let Some(Err(breach)) =
                key.and_then(|key| self.connections.get(key)).map(Connection::check_at_rest)
            {
                panic!("the loop contract is broken: a reactor is about to sleep, and {breach}");
            }
        }
    }

    fn has_ready_here(&self) -> bool {
        self.tasks.has_ready() || !self.bench.piped.is_empty() || current::has_woken()
    }

    /// Wakers made for tasks of a connection have fired.
    pub(crate) fn wake(&mut self, key: ConnectionKey, mut tasks: impl Iterator<Item = TaskId>) {
        self.poke(key, |transport, env| tasks.try_for_each(|task| transport.on_wake(env, task)));
    }

    pub(crate) fn mark_dirty(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key.key())
            && !std::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push_back(key);
        }
    }

    /// Everything poked in this round transmits and writes, once each.
    pub(crate) fn flush_dirty(&mut self) {
        // What becomes dirty meanwhile had its share, and waits for the next round.
        for _ in 0..self.dirty.len() {
            let Some(key) = self.dirty.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(key.key()) else { continue };
            connection.dirty = false;
            let result = connection.flush(&mut self.bench);
            self.settle(key, result.map(|()| Next::Wait));
        }
    }

    /// A socket is ready; `true` if it is one that was being dialled and has come about.
    pub(crate) fn on_socket(
        &mut self,
        key: ConnectionKey,
        readable: bool,
        writable: bool,
        hung_up: bool,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(key.key()) else { return false };
        connection.hung_up |= hung_up;
        let connected = match &connection.phase {
            Phase::Lingering(_) => {
                connection.blocked &= !writable;
                self.retry(key);
                return false;
            }
            Phase::Open => false,
            Phase::Connecting { .. } => match connection.check_connected() {
                Ok(connected) => connected,
                Err(error) => {
                    self.dial_failed(key, &error);
                    return false;
                }
            },
        };
        if connected {
            self.mark_dirty(key);
        } else if let Some(connection) = self.connections.get_mut(key.key())
            && matches!(connection.phase, Phase::Open)
        {
            let reads = readable && !connection.pace.is_greedy();
            let result = connection.on_ready(&mut self.bench, reads, writable);
            self.settle(key, result);
            if readable && !reads {
                self.retry(key);
            }
        }
        connected
    }

    /// Does what follows from a piece of work on a connection.
    pub(crate) fn settle(&mut self, key: ConnectionKey, result: Result<Next, Ending>) {
        let next = match result {
            Ok(next) => next,
            Err(ending) => return self.end(key, ending),
        };
        if next == Next::Again {
            self.retry(key);
        }
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        if std::mem::take(&mut connection.cut_off) {
            self.mark_dirty(key);
        }
        self.rearm(key);
    }

    pub(crate) fn rearm(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key.key()) {
            let deadline = connection.next_deadline();
            connection.armed.rearm(deadline, key, &mut self.timers);
        }
    }

    /// The timer of a connection has fired, perhaps before its deadline: see [`Armed::rearm`](crate::timers::Armed::rearm).
    pub(crate) fn on_timer(&mut self, key: ConnectionKey) {
        let now = self.bench.now;
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        connection.armed.fired();
        match &connection.phase {
            Phase::Lingering(linger) if linger.until <= now => return self.linger_at_last(key),
            Phase::Connecting { deadline: Some((at, timeout)) } if *at <= now => {
                let text = format!("no answer within {timeout:?}");
                return self.dial_failed(key, &io::Error::new(io::ErrorKind::TimedOut, text));
            }
            _ => {}
        }
        if let Some(stalled) = connection.judge_stall(&mut self.bench) {
            return self.end(key, stalled);
        }
        let due =
            connection.transport.as_ref().and_then(Transport::next_deadline).is_some_and(|at| at <= now);
        if due {
            self.poke(key, |transport, env| transport.on_deadline(env));
        } else {
            self.settle(key, Ok(Next::Wait));
        }
    }

    pub(crate) fn connection_at(&self, index: usize) -> Option<ConnectionKey> {
        self.connections.key_at(index).map(ConnectionKey::of)
    }

    pub(crate) fn listener_at(&self, index: usize) -> Option<ListenerKey> {
        self.listeners.key_at(index).map(ListenerKey::of)
    }

    pub(crate) fn close_listeners(&mut self) {
        self.listeners = Slab::new();
    }

    /// Puts a connection in, with the transport that `make` makes of its handle.
    fn insert(
        &mut self,
        link: Link,
        phase: Phase,
        make: impl FnOnce(ConnectionHandle) -> T,
    ) -> ConnectionKey {
        let key = ConnectionKey::of(self.connections.insert(Connection::new(link, phase)));
        let transport = make(ConnectionHandle::new(key, self.inbox.post()));
        let Some(connection) = self.connections.get_mut(key.key()) else { return key };
        connection.transport = Some(transport);
        self.live += 1;
        if let Link::Socket { stream, peer } = &mut connection.link {
            let token = Source::Connection(key.index()).token();
            let interest = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self.poll.registry().register(stream, token, interest) {
                let text = format!("watch the connection to {peer}: {}", reason(&error));
                self.end(key, Ending::Broken(Closed::local(text)));
                return key;
            }
        }
        // An open one transmits what it begins with; one being dialled only arms its timer.
        self.mark_dirty(key);
        key
    }

    /// A connection that ends as soon as it is there, so that its owner hears of it in the usual way.
    fn stillborn(&mut self, make: impl FnOnce(ConnectionHandle) -> T, closed: Closed) -> ConnectionKey {
        let nobody = ConnectionKey::of(fulmar_base::Key::<()>::from_u64(0));
        let key = self.insert(Link::Pipe { peer: nobody }, Phase::Open, make);
        self.end(key, Ending::Broken(closed));
        key
    }

    fn dial_failed(&mut self, key: ConnectionKey, error: &io::Error) {
        let Some(connection) = self.connections.get(key.key()) else { return };
        if let Link::Socket { peer, .. } = &connection.link {
            let closed = connect_failed(peer, error);
            self.end(key, Ending::Broken(closed));
        }
    }

    /// Takes out the timers whose time has come, one by one. Those of connections are served; what else is due is returned.
    pub(crate) fn next_due(&mut self) -> Option<Due> {
        loop {
            match self.timers.pop_expired(self.bench.now)? {
                Due::Connection(key) => self.on_timer(key),
                due => return Some(due),
            }
        }
    }
}

fn connect_failed(address: &Address, error: &io::Error) -> Closed {
    Closed::peer(format!("connect to {address}: {}", reason(error))).caused_by(error.kind())
}

impl<T, L> std::fmt::Debug for Core<T, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("id", &self.id).field("connections", &self.live).finish_non_exhaustive()
    }
}
