//! The client connections of one reactor: one for each channel that made calls on it.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::net::SocketAddr;
use std::ops::Add;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use fulmar_base::{Closed, Instant};
use fulmar_grpc::Status;
use fulmar_reactor::{Address, ConnectionHandle, ConnectionKey, Mailbox, TimerKey};

use super::endpoint::{ClientEndpoint, Command};
use super::handed::HANDED_IN_IS_OVER;
use super::resolve::unresolved;
use super::{ChannelSpec, PendingCall, Place, Return, WaitingCalls};
use crate::counts::Counts;
use crate::error::ConnectError;
use crate::host::{Core, Letter, RoofCommand, RoofTransport};
use crate::rest::{Napping, Shelf};

/// How many connections in a row may end under a call that was not begun, before the call is given up. It never left this end, so
/// that gRPC sets no limit (PROTOCOL "transparent retry"); this one keeps a server that accepts connections and ends them at once
/// from being dialled for ever.
const MOVES_MAX: u32 = 16;

/// All channels that this reactor has seen, with their connections.
pub(crate) struct Connections {
    /// By the number of the channel. Each call looks here, and there are few: to hash costs more than to compare.
    channels: BTreeMap<u64, Box<ChannelState>>,
    /// The bodies of connections that rest.
    shelf: Rc<Shelf<ClientEndpoint>>,
}

struct ChannelState {
    spec: Arc<ChannelSpec>,
    shelf: Rc<Shelf<ClientEndpoint>>,
    stage: Stage,
    /// Calls that wait for a connection.
    waiting: WaitingCalls,
    /// Calls that their interceptors hold.
    held: WaitingCalls,
    /// The one timer that is set: it fires when a waiting call or the resolving of the name may be out of time, or before.
    timer: Option<(Instant, TimerKey)>,
    /// Addresses that have not been tried in this attempt.
    addresses: VecDeque<Address>,
    /// When the attempt to connect is given up.
    connect_by: Instant,
    last_error: Option<Status>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Resolving,
    Dialing(ConnectionKey),
    Open(ConnectionKey),
}

impl Connections {
    /// Those of the reactor of this mailbox.
    pub(crate) fn new(mailbox: Mailbox<Letter>) -> Self {
        Self { channels: BTreeMap::new(), shelf: Rc::new(Shelf::new(mailbox)) }
    }

    /// How many bodies wait for connections.
    #[cfg(test)]
    pub(crate) fn bodies(&self) -> usize {
        self.shelf.bodies()
    }

    /// Gives a call to the channel's connection; makes one if there is none.
    pub(crate) fn start(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>, pending: PendingCall) {
        let channel = match self.channels.entry(spec.id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if !spec.visit(core.mailbox()) => return pending.end(dropped()),
            Entry::Vacant(entry) => {
                entry.insert(Box::new(ChannelState::new(spec, core.mailbox(), self.shelf.clone())))
            }
        };
        if pending.is_held() {
            channel.held.push_back(pending);
            return channel.arm(core);
        }
        let Some(pending) = channel.start_on_open(core, pending) else { return };
        channel.waiting.push_back(pending);
        if channel.stage == Stage::Idle {
            channel.connect(core);
        }
        channel.arm(core);
    }

    /// Takes back a call that its connection could not have processed.
    pub(crate) fn restart(&mut self, core: &mut Core, channel: u64, pending: PendingCall) {
        let Some(spec) = self.channels.get(&channel).map(|channel| channel.spec.clone()) else {
            return pending.end(dropped());
        };
        let moves = {
            let mut state = pending.cell().lock();
            state.moves += 1;
            state.moves
        };
        if moves > MOVES_MAX {
            return pending.end(Status::unavailable(format!(
                "{MOVES_MAX} connections to {} ended before the call could be sent",
                spec.name()
            )));
        }
        self.start(core, &spec, pending);
    }

    pub(crate) fn on_resolved(
        &mut self,
        core: &mut Core,
        channel: u64,
        resolved: io::Result<Vec<SocketAddr>>,
    ) {
        let Some(channel) =
            self.channels.get_mut(&channel).filter(|channel| channel.stage == Stage::Resolving)
        else {
            return;
        };
        match resolved {
            Ok(addresses) => channel.addresses = addresses.into_iter().map(Address::Ip).collect(),
            Err(error) => channel.last_error = Some(unresolved(&error)),
        }
        channel.dial_next(core);
    }

    pub(crate) fn on_connected(&mut self, core: &mut Core, key: ConnectionKey) {
        if let Some(channel) = self.by_connection(core, key) {
            channel.open(core, key);
        }
    }

    /// A connection is gone, or a dial has failed. Calls that the connection never began get another one.
    pub(crate) fn on_closed(
        &mut self,
        core: &mut Core,
        key: ConnectionKey,
        mut endpoint: Napping<ClientEndpoint>,
        closed: &Closed,
    ) {
        let endpoint = endpoint.wake();
        let id = endpoint.channel_id();
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let is_current = channel.stage == Stage::Dialing(key) || channel.stage == Stage::Open(key);
        if is_current && !endpoint.is_ready() {
            // The server there does not speak HTTP/2, or there is none: perhaps it does at the next address.
            for pending in endpoint.take_waiting() {
                channel.waiting.push_back(pending);
            }
            channel.last_error = Some(Status::unavailable(closed.text.clone()));
            channel.dial_next(core);
            return channel.arm(core);
        }
        if is_current {
            channel.stage = Stage::Idle;
        }
        for pending in endpoint.take_waiting() {
            self.restart(core, id, pending);
        }
    }

    /// Ends calls whose deadline has passed while they wait, and attempts to connect that take too long.
    pub(crate) fn on_timer(&mut self, core: &mut Core, channel: u64) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        channel.timer = None;
        let now = core.now();
        channel.waiting.expire(now);
        channel.held.expire(now);
        if channel.stage == Stage::Resolving && channel.connect_by <= now {
            channel.last_error = Some(Status::unavailable("the name was not resolved in time"));
            channel.addresses.clear();
            channel.dial_next(core);
        }
        channel.arm(core);
    }

    /// Calls that wait here were given up.
    pub(crate) fn on_given_up(&mut self, core: &mut Core, channel: u64) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        channel.waiting.let_leave();
        channel.held.let_leave();
        channel.arm(core);
    }

    /// The channel was dropped: nobody can be waiting for a call of it.
    pub(crate) fn forget(&mut self, core: &mut Core, channel: u64) {
        let Some(mut channel) = self.channels.remove(&channel) else { return };
        channel.disarm(core);
        self.shelf.forget(|body| body.channel_id() == channel.spec.id);
        if let Stage::Dialing(key) | Stage::Open(key) = channel.stage {
            let _ = core.command(key, RoofCommand::Client(Command::Retire));
        }
    }

    /// The reactor ends: channels need not tell it of their end any more.
    pub(crate) fn leave(&mut self, mailbox: &Mailbox<Letter>) {
        for channel in std::mem::take(&mut self.channels).into_values() {
            channel.spec.leave(mailbox);
        }
    }

    /// What waits for connections here.
    pub(crate) fn counts(&self) -> Counts {
        self.channels.values().map(|channel| channel.waiting.counts()).fold(Counts::default(), Add::add)
    }

    /// The first deadline of a call of the channel that waits, if the channel's timer fires by then.
    #[cfg(test)]
    pub(crate) fn armed_deadline(&self, channel: u64) -> Option<Instant> {
        let channel = self.channels.get(&channel)?;
        let deadline = channel.waiting.next_deadline()?;
        channel.timer.is_some_and(|(at, _)| at <= deadline).then_some(deadline)
    }

    fn by_connection(&mut self, core: &mut Core, key: ConnectionKey) -> Option<&mut ChannelState> {
        let RoofTransport::Client(wire) = core.transport(key)? else { return None };
        self.channels.get_mut(&wire.endpoint().channel_id()).map(|channel| &mut **channel)
    }
}

impl ChannelState {
    fn new(spec: &Arc<ChannelSpec>, mailbox: Mailbox<Letter>, shelf: Rc<Shelf<ClientEndpoint>>) -> Self {
        let (calls_max, waker) =
            (spec.config.waiting_calls_max, Waker::from(Arc::new(Messenger { mailbox, channel: spec.id })));
        Self {
            spec: spec.clone(),
            shelf,
            stage: Stage::Idle,
            waiting: WaitingCalls::new(calls_max, Some(waker.clone())),
            held: WaitingCalls::new(calls_max, Some(waker)),
            timer: None,
            addresses: VecDeque::new(),
            connect_by: Instant::ZERO,
            last_error: None,
        }
    }

    /// Gives the call to the open connection. Returns it when there is none that takes it.
    fn start_on_open(&mut self, core: &mut Core, pending: PendingCall) -> Option<PendingCall> {
        let Stage::Open(key) = self.stage else { return Some(pending) };
        match core.transport(key) {
            Some(RoofTransport::Client(wire)) if wire.endpoint().takes_calls() => {}
            _ => {
                // The old connection ends by itself with its last call.
                self.stage = Stage::Idle;
                return Some(pending);
            }
        }
        match core.command(key, RoofCommand::Client(Command::Start(pending))) {
            Err(RoofCommand::Client(Command::Start(pending))) => {
                self.stage = Stage::Idle;
                Some(pending)
            }
            _ => None,
        }
    }

    /// Sees to it that the timer fires in time, and is not set where it has nothing to fire for.
    fn arm(&mut self, core: &mut Core) {
        let resolve_by = (self.stage == Stage::Resolving).then_some(self.connect_by);
        let deadlines = [self.waiting.next_deadline(), self.held.next_deadline(), resolve_by];
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
        if let Some((_, timer)) = self.timer.take() {
            drop(core.cancel_timer(timer));
        }
    }

    fn connect(&mut self, core: &mut Core) {
        self.connect_by = core.now() + self.spec.config.connect_timeout;
        self.last_error = None;
        self.addresses.clear();
        let spec = self.spec.clone();
        match &spec.place {
            Place::InProcess(server) => {
                self.stage = Stage::Resolving;
                core.mailbox().send(Letter::OpenPipe { spec: spec.clone(), server: server.clone() });
            }
            Place::Connected(handed) => match handed.take() {
                Some(socket) => {
                    let make = self.endpoint_maker(core, self.connect_by);
                    let key = core.adopt(socket, make);
                    self.open(core, key);
                }
                None => {
                    self.last_error = Some(Status::unavailable(HANDED_IN_IS_OVER));
                    self.dial_next(core);
                }
            },
            Place::Tcp(target) => match target.literal_address() {
                Some(address) => {
                    self.addresses.push_back(address);
                    self.dial_next(core);
                }
                None => {
                    self.stage = Stage::Resolving;
                    let (mailbox, channel) = (core.mailbox(), spec.id);
                    let on_done = move |resolved| mailbox.send(Letter::Resolved { channel, resolved });
                    spec.config.resolver().resolve(&target.host, target.port, Box::new(on_done));
                }
            },
        }
    }

    /// Dials the next address, or fails what waits when there is none left. The addresses that are left share the time that is.
    fn dial_next(&mut self, core: &mut Core) {
        let left = self.connect_by.saturating_duration_since(core.now());
        let share = share_of(left, self.addresses.len());
        if let Some(address) = self.addresses.pop_front().filter(|_| !left.is_zero()) {
            let make = self.endpoint_maker(core, core.now() + share);
            let options = self.spec.socket_options();
            self.stage = Stage::Dialing(core.dial((address, &options), Some(share), make));
            return;
        }
        self.stage = Stage::Idle;
        let failure = self.last_error.take().unwrap_or_else(|| match left {
            Duration::ZERO => {
                Status::unavailable(format!("not connected within {:?}", self.spec.config.connect_timeout))
            }
            _ => Status::unavailable("the name has no addresses"),
        });
        self.fail_waiting(&failure);
    }

    fn fail_waiting(&mut self, failure: &Status) {
        while let Some(pending) = self.waiting.pop_front() {
            // Who asks for the connection alone names the endpoint itself.
            if pending.is_probe() {
                pending.end(failure.clone());
            } else {
                pending.end(ConnectError::from_status(self.spec.name(), failure).into());
            }
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

    /// The connection is there: it gets everything that waited.
    fn open(&mut self, core: &mut Core, key: ConnectionKey) {
        self.stage = Stage::Open(key);
        while let Some(pending) = self.waiting.pop_front() {
            if let Err(RoofCommand::Client(Command::Start(pending))) =
                core.command(key, RoofCommand::Client(Command::Start(pending)))
            {
                pending.end(Status::unavailable("the connection was lost as soon as it was made"));
            }
        }
        self.waiting.shrink();
        self.held.shrink();
        self.arm(core);
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

/// In-process connections.
impl Connections {
    /// Joins the channel to a server of this reactor by a pipe. `make_server` gives the server's end. False when no pipe was made.
    pub(crate) fn open_pipe(
        &mut self,
        core: &mut Core,
        channel: u64,
        make_server: Option<impl FnOnce(ConnectionHandle) -> RoofTransport>,
    ) -> bool {
        let Some(channel) =
            self.channels.get_mut(&channel).filter(|channel| channel.stage == Stage::Resolving)
        else {
            return false;
        };
        match make_server {
            Some(make_server) => {
                let make_client = channel.endpoint_maker(core, channel.connect_by);
                let (client, _server) = core.pipe(make_client, make_server);
                channel.open(core, client);
                true
            }
            None => {
                channel.stage = Stage::Idle;
                channel.fail_waiting(&Status::unavailable("the server is not running"));
                false
            }
        }
    }
}

/// How long the next of so many addresses may take.
pub(crate) fn share_of(left: Duration, addresses: usize) -> Duration {
    left / u32::try_from(addresses.max(1)).unwrap_or(u32::MAX)
}

fn dropped() -> Status {
    Status::unavailable("the channel was dropped")
}
