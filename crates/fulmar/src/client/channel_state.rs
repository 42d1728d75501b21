//! A channel on one reactor: its connection, how that comes about, and the calls that wait for it.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use fulmar_base::{Closed, Instant, Transport};
use fulmar_grpc::Status;
use fulmar_reactor::{ConnectionHandle, ConnectionKey, Mailbox, Socket, TimerKey};

use super::attempt::Attempt;
use super::connectivity::ConnectivityState;
use super::endpoint::{ClientEndpoint, Command};
use super::handed::HANDED_IN_IS_OVER;
use super::{ChannelSpec, PendingCall, Place, Return, WaitingCalls};
use crate::counts::Counts;
use crate::error::ConnectError;
use crate::host::{Core, Letter, RoofCommand, RoofTransport};
use crate::rest::{Napping, Shelf};

pub(super) struct ChannelState {
    spec: Arc<ChannelSpec>,
    shelf: Rc<Shelf<ClientEndpoint>>,
    pub(super) link: Link,
    /// The state that was told last.
    told: ConnectivityState,
    /// None while no call waits.
    queues: Option<Box<Queues>>,
    /// The one timer that is set: it fires when something here is due, or before.
    timer: Option<(Instant, TimerKey)>,
    /// Why the last attempt has failed, until one succeeds: calls that do not wait for ready fail with it.
    failure: Option<Box<Status>>,
    /// How many attempts in a row have failed.
    failures: u32,
    /// How many connections in a row have ended before they carried a call.
    futile: u32,
    /// When the last attempt began, from which waits count.
    began: Instant,
    /// When there was a call last that found no connection.
    last_used: Instant,
}

/// Calls that cannot go to a connection yet.
struct Queues {
    /// They wait for a connection.
    waiting: WaitingCalls,
    /// Their interceptors hold them.
    held: WaitingCalls,
}

/// The connection of a channel, or what there is of it. One that goes away, and has calls still, is not here any more.
pub(super) enum Link {
    /// There is none, and none is wanted.
    Idle,
    Connecting(Box<Attempt>),
    /// Until then no attempt is made.
    Resting(Instant),
    Ready(ConnectionKey),
}

impl ChannelState {
    pub(super) fn new(spec: &Arc<ChannelSpec>, shelf: Rc<Shelf<ClientEndpoint>>) -> Self {
        Self {
            spec: spec.clone(),
            shelf,
            link: Link::Idle,
            told: ConnectivityState::Idle,
            queues: None,
            timer: None,
            failure: None,
            failures: 0,
            futile: 0,
            began: Instant::ZERO,
            last_used: Instant::ZERO,
        }
    }

    /// Gives a call to the connection; it waits for one if there is none, or fails if there has been none for too long.
    pub(super) fn start(&mut self, core: &mut Core, pending: PendingCall) {
        if pending.is_held() {
            self.queues(core).held.push_back(pending, core.now());
            return self.arm(core);
        }
        let Some(pending) = self.start_on_ready(core, pending) else { return };
        self.last_used = core.now();
        if let Some(failure) = &self.failure
            && pending.fails_fast()
        {
            return pending.end(ConnectError::from_status(self.spec.name(), failure).into());
        }
        self.queues(core).waiting.push_back(pending, core.now());
        if matches!(self.link, Link::Idle) {
            self.connect(core);
        }
        self.arm(core);
    }

    /// [Starts](Self::start) calls, in their order: those that a connection takes together.
    pub(super) fn start_all(&mut self, core: &mut Core, calls: &mut impl Iterator<Item = PendingCall>) {
        if let Link::Ready(key) = self.link {
            core.poke(key, |transport, env| match transport {
                RoofTransport::Client(wire) if wire.endpoint().takes_calls() => {
                    calls.try_for_each(|pending| wire.on_command(env, Command::Start(pending)))
                }
                _ => Ok(()),
            });
        }
        for pending in calls {
            self.start(core, pending);
        }
    }

    /// Gives the call to the connection. Returns it when there is none that takes it.
    fn start_on_ready(&mut self, core: &mut Core, pending: PendingCall) -> Option<PendingCall> {
        let Link::Ready(key) = self.link else { return Some(pending) };
        let carried = match core.transport(key) {
            Some(RoofTransport::Client(wire)) if wire.endpoint().takes_calls() => {
                match core.command(key, RoofCommand::Client(Command::Start(pending))) {
                    Err(RoofCommand::Client(Command::Start(pending))) => {
                        // Its end is about to be told.
                        return Some(pending);
                    }
                    _ => return None,
                }
            }
            Some(RoofTransport::Client(wire)) => wire.endpoint().has_carried(),
            _ => true,
        };
        // The old connection ends by itself with its last call.
        self.on_lost(core, key, carried);
        Some(pending)
    }

    /// Makes a connection without waiting any longer, if there is none.
    pub(super) fn connect_at_once(&mut self, core: &mut Core) {
        self.last_used = core.now();
        if matches!(self.link, Link::Idle | Link::Resting(_)) {
            (self.failures, self.futile) = (0, 0);
            self.connect(core);
        }
        self.arm(core);
    }

    /// Goes on with the attempt, as far as it is time to; ends it if nothing is left to wait for.
    pub(super) fn go_on(&mut self, core: &mut Core) {
        let (now, options) = (core.now(), self.spec.socket_options());
        while let Link::Connecting(attempt) = &mut self.link {
            let until = attempt.until;
            match attempt.next_address(now) {
                Some(address) => {
                    let make = self.endpoint_maker(core, until);
                    let left = until.saturating_duration_since(now);
                    let key = core.dial((address, &options), Some(left), make);
                    if let Link::Connecting(attempt) = &mut self.link {
                        attempt.dialled(key, now);
                    }
                }
                None if attempt.is_over(now) => self.fail_attempt(now),
                None => break,
            }
        }
        self.arm(core);
    }

    /// The server has sent its SETTINGS on one of the connections that are being made: it is the one, and gets everything that waits.
    pub(super) fn on_ready(&mut self, core: &mut Core, key: ConnectionKey) {
        if !matches!(&self.link, Link::Connecting(attempt) if attempt.has(key)) {
            return;
        }
        if let Link::Connecting(attempt) = mem::replace(&mut self.link, Link::Ready(key)) {
            for other in attempt.into_dials().into_iter().filter(|other| *other != key) {
                core.close(other, &Closed::local("another address has answered first"));
            }
        }
        (self.failure, self.failures) = (None, 0);
        self.tell(ConnectivityState::Ready);
        while let Some(queues) = &mut self.queues
            && let Some((pending, since)) = queues.waiting.pop_front()
        {
            if let Err(RoofCommand::Client(Command::Start(pending))) =
                core.command(key, RoofCommand::Client(Command::Start(pending)))
            {
                // Its end is about to be told, and the calls get another connection then.
                queues.waiting.push_front(pending, since);
                break;
            }
        }
        self.arm(core);
    }

    /// The connection has ended, or takes no more calls. The next one is made when a call wants it; not at once, if this one has ended
    /// before it carried any: a server that answers and hangs up is not to be dialled without a pause.
    pub(super) fn on_lost(&mut self, core: &mut Core, key: ConnectionKey, carried: bool) {
        if !matches!(self.link, Link::Ready(ready) if ready == key) {
            return;
        }
        self.futile = if carried { 0 } else { self.futile.saturating_add(1) };
        self.link = match self.futile {
            0 => Link::Idle,
            futile => Link::Resting(self.began + self.spec.config.backoff.after(futile)),
        };
        self.tell(ConnectivityState::Idle);
        if matches!(self.link, Link::Idle) && self.has_waiting() {
            self.connect(core);
        }
        self.arm(core);
    }

    /// The user's dialer is done. What comes too late is closed.
    pub(super) fn on_dialled(&mut self, core: &mut Core, dialled: Result<Socket, Status>) {
        let until = match &self.link {
            Link::Connecting(attempt) if attempt.is_resolving => attempt.until,
            _ => return,
        };
        let make = self.endpoint_maker(core, until);
        let dialled = dialled.map(|socket| core.adopt(socket, make));
        if let Link::Connecting(attempt) = &mut self.link {
            attempt.resolved(Vec::new());
            match dialled {
                Ok(key) => attempt.dialled(key, core.now()),
                Err(status) => attempt.last_error = Some(status),
            }
        }
        self.go_on(core);
    }

    /// Ends calls whose deadline has passed while they wait, and does what else is due.
    pub(super) fn on_timer(&mut self, core: &mut Core) {
        self.timer = None;
        let now = core.now();
        self.expire(now);
        match &mut self.link {
            Link::Connecting(attempt) => {
                if attempt.is_resolving && attempt.until <= now {
                    attempt.resolved(Vec::new());
                    let late = match &self.spec.place {
                        Place::Dialled(_) => "the dialer has made no connection in time",
                        _ => "the name was not resolved in time",
                    };
                    attempt.last_error = Some(Status::unavailable(late));
                }
                self.go_on(core);
            }
            Link::Resting(until) if *until <= now => self.rested(core),
            _ => {}
        }
        self.arm(core);
    }

    /// Lets calls leave that were given up.
    pub(super) fn let_leave(&mut self, core: &mut Core) {
        if let Some(queues) = &mut self.queues {
            queues.waiting.let_leave();
            queues.held.let_leave();
        }
        self.arm(core);
    }

    /// The channel is gone.
    pub(super) fn end(mut self, core: &mut Core) {
        self.disarm(core);
        self.tell(ConnectivityState::Idle);
        match mem::replace(&mut self.link, Link::Idle) {
            Link::Connecting(attempt) => {
                for key in attempt.into_dials() {
                    let _ = core.command(key, RoofCommand::Client(Command::Retire));
                }
            }
            Link::Ready(key) => {
                let _ = core.command(key, RoofCommand::Client(Command::Retire));
            }
            Link::Idle | Link::Resting(_) => {}
        }
    }

    /// The reactor is gone.
    pub(super) fn leave(mut self, mailbox: &Mailbox<Letter>) {
        self.tell(ConnectivityState::Idle);
        self.spec.leave(mailbox);
    }

    pub(super) fn counts(&self) -> Counts {
        self.queues.as_ref().map_or_else(Counts::default, |queues| queues.waiting.counts())
    }

    #[cfg(test)]
    pub(super) fn armed_deadline(&self) -> Option<Instant> {
        let deadline = self.queues.as_ref()?.waiting.next_deadline()?;
        self.timer.is_some_and(|(at, _)| at <= deadline).then_some(deadline)
    }

    /// Begins an attempt to connect.
    fn connect(&mut self, core: &mut Core) {
        self.began = core.now();
        let mut attempt = Box::new(Attempt::new(self.began + self.spec.config.connect_timeout));
        // Once it has failed a channel is failing until it is ready (gRFC A62).
        self.tell(match self.failure {
            Some(_) => ConnectivityState::TransientFailure,
            None => ConnectivityState::Connecting,
        });
        let spec = self.spec.clone();
        let literal = match &spec.place {
            Place::Tcp(target) => target.literal_address(),
            Place::InProcess(_) | Place::Connected(_) | Place::Dialled(_) => None,
        };
        if let Some(address) = literal {
            attempt.resolved(vec![address]);
            self.link = Link::Connecting(attempt);
            return self.go_on(core);
        }
        if let Place::Connected(handed) = &spec.place {
            match handed.take() {
                Some(socket) => {
                    let make = self.endpoint_maker(core, attempt.until);
                    attempt.dialled(core.adopt(socket, make), core.now());
                }
                None => attempt.last_error = Some(Status::unavailable(HANDED_IN_IS_OVER)),
            }
            self.link = Link::Connecting(attempt);
            return self.go_on(core);
        }
        attempt.is_resolving = true;
        self.link = Link::Connecting(attempt);
        let mailbox = core.mailbox();
        match &spec.place {
            Place::InProcess(place) => {
                mailbox.send(Letter::OpenPipe { spec: spec.clone(), server: place.server.clone() });
            }
            Place::Tcp(target) => {
                let channel = spec.id;
                let on_done = move |resolved| mailbox.send(Letter::Resolved { channel, resolved });
                spec.config.resolver().resolve(target.host(), target.port, Box::new(on_done));
            }
            Place::Dialled(dialer) => {
                let channel = spec.id;
                let on_done = move |dialled| mailbox.send(Letter::Dialled { channel, dialled });
                if let Err(error) = dialer.dial_elsewhere(spec.socket_options(), on_done) {
                    let no_thread = Status::unavailable(format!("the dialer has no thread: {error}"));
                    self.on_dialled(core, Err(no_thread));
                }
            }
            Place::Connected(_) => {}
        }
    }

    /// The attempt has failed: the next one comes later, and calls that do not wait for it fail.
    fn fail_attempt(&mut self, now: Instant) {
        let Link::Connecting(attempt) = mem::replace(&mut self.link, Link::Idle) else { return };
        let failure = attempt.last_error.unwrap_or_else(|| match attempt.until <= now {
            true => {
                Status::unavailable(format!("not connected within {:?}", self.spec.config.connect_timeout))
            }
            false => Status::unavailable("the name has no addresses"),
        });
        self.failures = self.failures.saturating_add(1);
        self.link = Link::Resting(self.began + self.spec.config.backoff.after(self.failures));
        self.tell(ConnectivityState::TransientFailure);
        let fails = |pending: &PendingCall| pending.is_probe() || pending.fails_fast();
        for pending in self.queues.iter_mut().flat_map(|queues| queues.waiting.take_where(fails)) {
            // Who asks for the connection alone names the endpoint itself.
            if pending.is_probe() {
                pending.end(failure.clone());
            } else {
                pending.end(ConnectError::from_status(self.spec.name(), &failure).into());
            }
        }
        self.failure = Some(Box::new(failure));
    }

    /// Time for another attempt. A channel that is failing makes it by itself, unless nobody has wanted anything of it for long.
    fn rested(&mut self, core: &mut Core) {
        let unused = core.now().saturating_duration_since(self.last_used);
        let is_wanted = match self.failure {
            Some(_) => unused < self.spec.config.lives.idle_timeout,
            None => false,
        };
        if is_wanted || self.has_waiting() {
            return self.connect(core);
        }
        (self.link, self.failure, self.failures) = (Link::Idle, None, 0);
        self.tell(ConnectivityState::Idle);
    }

    fn has_waiting(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.waiting.is_empty())
    }

    fn queues(&mut self, core: &Core) -> &mut Queues {
        let spec = &self.spec;
        self.queues.get_or_insert_with(|| {
            let messenger = Messenger { mailbox: core.mailbox(), channel: spec.id };
            let (calls_max, waker) = (spec.config.waiting_calls_max, Waker::from(Arc::new(messenger)));
            Box::new(Queues {
                waiting: WaitingCalls::new(calls_max, Some(waker.clone())),
                held: WaitingCalls::new(calls_max, Some(waker)),
            })
        })
    }

    fn expire(&mut self, now: Instant) {
        let Some(queues) = &mut self.queues else { return };
        let attempts = match &self.link {
            Link::Connecting(attempt) => attempt.last_error.as_ref(),
            _ => None,
        };
        let (name, error) = (self.spec.name(), attempts.or(self.failure.as_deref()).map(Status::message));
        queues.waiting.expire(now, |waited| too_late(name, waited, error));
        queues.held.expire(now, |_| "the deadline passed while interceptors held the call".to_owned());
    }

    /// Sees to it that the timer fires in time, and is not set where it has nothing to fire for.
    fn arm(&mut self, core: &mut Core) {
        let of_link = match &self.link {
            Link::Connecting(attempt) => attempt.next_deadline(),
            Link::Resting(until) => Some(*until),
            Link::Idle | Link::Ready(_) => None,
        };
        let of_calls = self.queues.as_ref();
        let deadlines = [
            of_calls.and_then(|queues| queues.waiting.next_deadline()),
            of_calls.and_then(|queues| queues.held.next_deadline()),
            of_link,
        ];
        let Some(at) = deadlines.into_iter().flatten().min() else { return self.disarm(core) };
        if let Some((armed, timer)) = self.timer {
            if armed <= at {
                return;
            }
            drop(core.cancel_timer(timer));
        }
        self.timer = Some((at, core.set_timer(at, Letter::ChannelTimer(self.spec.id))));
    }

    /// Nothing waits here any more.
    fn disarm(&mut self, core: &mut Core) {
        self.queues.take_if(|queues| queues.waiting.is_empty() && queues.held.is_empty());
        if let Some((_, timer)) = self.timer.take() {
            drop(core.cancel_timer(timer));
        }
    }

    fn tell(&mut self, state: ConnectivityState) {
        if self.told != state {
            self.spec.connectivity.change(self.told, state);
            self.told = state;
        }
    }

    fn endpoint_maker(
        &self,
        core: &Core,
        ready_by: Instant,
    ) -> impl FnOnce(ConnectionHandle) -> RoofTransport + use<> {
        let (spec, shelf, mailbox) = (self.spec.clone(), self.shelf.clone(), core.mailbox());
        let wiring = spec.security().wiring(ready_by);
        move |handle| {
            let endpoint = ClientEndpoint::new(spec, Some(handle), Return::ByLetter(mailbox), ready_by);
            RoofTransport::Client(wiring.wire(Napping::new(shelf, endpoint)))
        }
    }

    /// Joins the channel to a server of this reactor by a pipe. `make_server` gives the server's end. False when no pipe was made.
    pub(super) fn open_pipe(
        &mut self,
        core: &mut Core,
        make_server: Option<impl FnOnce(ConnectionHandle) -> RoofTransport>,
    ) -> bool {
        let until = match &self.link {
            Link::Connecting(attempt) if attempt.is_resolving => attempt.until,
            _ => return false,
        };
        let make_client = self.endpoint_maker(core, until);
        let Link::Connecting(attempt) = &mut self.link else { return false };
        attempt.resolved(Vec::new());
        let is_made = make_server.is_some();
        match make_server {
            Some(make_server) => {
                let (client, _server) = core.pipe(make_client, make_server);
                attempt.dialled(client, core.now());
            }
            None => attempt.last_error = Some(Status::unavailable("the server is not running")),
        }
        self.go_on(core);
        is_made
    }
}

/// What there is to say of a call whose time was over before there was a connection.
pub(crate) fn too_late(name: &str, waited: Duration, error: Option<&str>) -> String {
    let waited = waited.as_secs_f64();
    let text = format!("the deadline passed: waiting for connection {waited:.1}s, to {name}");
    match error {
        Some(error) => format!("{text}; last error: {error}"),
        None => text,
    }
}

/// Tells a channel's reactor that calls that wait there were given up.
struct Messenger {
    mailbox: Mailbox<Letter>,
    channel: u64,
}

impl Wake for Messenger {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.send(Letter::GivenUp(self.channel));
    }
}
