//! The client connections of one reactor: one for each channel that made calls on it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fulmar_base::{Closed, Instant, Plain};
use fulmar_grpc::Status;
use fulmar_reactor::{ConnectionHandle, ConnectionKey};

use super::endpoint::{ClientEndpoint, Command};
use super::{ChannelSpec, PendingCall, Place, Return};
use crate::host::{Core, Letter, RoofCommand, RoofTransport, resolver};
use crate::lock;

/// All channels that this reactor has seen, with their connections.
#[derive(Default)]
pub(crate) struct Connections {
    channels: HashMap<u64, ChannelState>,
}

struct ChannelState {
    spec: Arc<ChannelSpec>,
    stage: Stage,
    /// Calls that wait for a connection.
    waiting: VecDeque<PendingCall>,
    /// Addresses that have not been tried in this attempt.
    addresses: VecDeque<SocketAddr>,
    /// When the attempt to connect is given up.
    connect_by: Instant,
    last_error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Resolving,
    Dialing(ConnectionKey),
    Open(ConnectionKey),
}

impl Connections {
    /// Gives a call to the channel's connection; makes one if there is none.
    pub(crate) fn start(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>, pending: PendingCall) {
        let channel = self.channels.entry(spec.id).or_insert_with(|| ChannelState::new(core, spec));
        let Some(pending) = channel.start_on_open(core, pending) else { return };
        channel.wait(core, pending);
        if channel.stage == Stage::Idle {
            channel.connect(core);
        }
    }

    /// Takes back a call that its connection could not have processed.
    pub(crate) fn restart(&mut self, core: &mut Core, channel: u64, pending: PendingCall) {
        match self.channels.get(&channel).map(|channel| channel.spec.clone()) {
            Some(spec) => self.start(core, &spec, pending),
            None => pending.end(Status::unavailable("the channel was dropped")),
        }
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
            Ok(addresses) => channel.addresses = addresses.into(),
            Err(error) => channel.last_error = Some(format!("the name cannot be resolved: {error}")),
        }
        channel.dial_next(core);
    }

    pub(crate) fn on_connected(&mut self, core: &mut Core, key: ConnectionKey) {
        if let Some(channel) = self.by_connection(core, key) {
            channel.open(core, key);
        }
    }

    /// A connection is gone, or a dial has failed.
    pub(crate) fn on_closed(&mut self, core: &mut Core, key: ConnectionKey, channel: u64, closed: &Closed) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        match channel.stage {
            Stage::Dialing(dialed) if dialed == key => {
                channel.last_error = Some(closed.text.to_string());
                channel.dial_next(core);
            }
            Stage::Open(open) if open == key => channel.stage = Stage::Idle,
            _ => {}
        }
    }

    /// Ends calls whose deadline has passed while they wait, and attempts to connect that take too long.
    pub(crate) fn on_timer(&mut self, core: &mut Core, channel: u64) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        let now = core.now();
        if channel.stage == Stage::Resolving && channel.connect_by <= now {
            channel.last_error = Some("the name was not resolved in time".to_owned());
            channel.addresses.clear();
            channel.dial_next(core);
        }
        for _ in 0..channel.waiting.len() {
            let Some(pending) = channel.waiting.pop_front() else { return };
            let deadline = pending.cell().lock().deadline;
            if deadline.is_some_and(|deadline| deadline <= now) {
                pending
                    .end(Status::deadline_exceeded("the deadline passed while the channel was connecting"));
            } else {
                channel.waiting.push_back(pending);
            }
        }
    }

    /// The channel was dropped: nobody can be waiting for a call of it.
    pub(crate) fn forget(&mut self, core: &mut Core, channel: u64) {
        let Some(channel) = self.channels.remove(&channel) else { return };
        if let Stage::Dialing(key) | Stage::Open(key) = channel.stage {
            let _ = core.command(key, RoofCommand::Client(Command::Retire));
        }
    }

    fn by_connection(&mut self, core: &mut Core, key: ConnectionKey) -> Option<&mut ChannelState> {
        let RoofTransport::Client(Plain(endpoint)) = core.transport(key)? else { return None };
        self.channels.get_mut(&endpoint.channel_id())
    }
}

impl ChannelState {
    fn new(core: &Core, spec: &Arc<ChannelSpec>) -> Self {
        lock(&spec.visited).push(core.mailbox());
        Self {
            spec: spec.clone(),
            stage: Stage::Idle,
            waiting: VecDeque::new(),
            addresses: VecDeque::new(),
            connect_by: Instant::ZERO,
            last_error: None,
        }
    }

    /// Gives the call to the open connection. Returns it when there is none that takes it.
    fn start_on_open(&mut self, core: &mut Core, pending: PendingCall) -> Option<PendingCall> {
        let Stage::Open(key) = self.stage else { return Some(pending) };
        match core.transport(key) {
            Some(RoofTransport::Client(Plain(endpoint))) if endpoint.takes_calls() => {}
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

    fn wait(&mut self, core: &mut Core, pending: PendingCall) {
        let deadline = pending.cell().lock().deadline;
        self.waiting.push_back(pending);
        if let Some(deadline) = deadline {
            core.set_timer(deadline, Letter::ChannelTimer(self.spec.id));
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
            Place::Tcp(target) => match target.literal_address() {
                Some(address) => {
                    self.addresses.push_back(address);
                    self.dial_next(core);
                }
                None => {
                    self.stage = Stage::Resolving;
                    core.set_timer(self.connect_by, Letter::ChannelTimer(spec.id));
                    let (mailbox, channel) = (core.mailbox(), spec.id);
                    let on_done = move |resolved| mailbox.send(Letter::Resolved { channel, resolved });
                    resolver().resolve(&target.host, target.port, Box::new(on_done));
                }
            },
        }
    }

    /// Dials the next address, or fails what waits when there is none left.
    fn dial_next(&mut self, core: &mut Core) {
        let left = self.connect_by.saturating_duration_since(core.now());
        if let Some(address) = self.addresses.pop_front().filter(|_| !left.is_zero()) {
            let make = self.endpoint_maker(core);
            self.stage = Stage::Dialing(core.dial(address, Some(left), make));
            return;
        }
        self.stage = Stage::Idle;
        let reason = self.last_error.take().unwrap_or_else(|| "the name has no addresses".to_owned());
        self.fail_waiting(&reason);
    }

    fn fail_waiting(&mut self, reason: &str) {
        for pending in self.waiting.drain(..) {
            pending.end(Status::unavailable(format!("cannot connect to {}: {reason}", self.spec.name())));
        }
    }

    fn endpoint_maker(&self, core: &Core) -> impl FnOnce(ConnectionHandle) -> RoofTransport + use<> {
        let (spec, mailbox, connect_by) = (self.spec.clone(), core.mailbox(), self.connect_by);
        move |handle| {
            let make_door = Box::new(move |task| Some(handle.waker(task)));
            let endpoint = ClientEndpoint::new(spec, make_door, Return::ByLetter(mailbox), connect_by);
            RoofTransport::Client(Plain(endpoint))
        }
    }

    /// The connection is there: it gets everything that waited.
    fn open(&mut self, core: &mut Core, key: ConnectionKey) {
        self.stage = Stage::Open(key);
        self.addresses.clear();
        for pending in self.waiting.drain(..) {
            if let Err(RoofCommand::Client(Command::Start(pending))) =
                core.command(key, RoofCommand::Client(Command::Start(pending)))
            {
                pending.end(Status::unavailable("the connection was lost as soon as it was made"));
            }
        }
    }
}

/// In-process connections.
impl Connections {
    /// Joins the channel to a server of this reactor by a pipe. `make_server` gives the server's end.
    pub(crate) fn open_pipe(
        &mut self,
        core: &mut Core,
        channel: u64,
        make_server: Option<impl FnOnce(ConnectionHandle) -> RoofTransport>,
    ) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        match make_server {
            Some(make_server) => {
                let make_client = channel.endpoint_maker(core);
                let (client, _server) = core.pipe(make_client, make_server);
                channel.open(core, client);
            }
            None => {
                channel.stage = Stage::Idle;
                channel.fail_waiting("the server is not running");
            }
        }
    }
}
