//! What lives on one reactor: the servers and the client connections there, and the letters that they get.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fulmar_base::{Closed, Env, Instant, TaskId, Transport};
use fulmar_grpc::Status;
use fulmar_reactor::{
    ConnectionHandle, ConnectionKey, Host, ListenerKey, ListeningSocket, Mailbox, Reactor, Resolver, Socket,
};

use crate::client::endpoint::ClientEndpoint;
use crate::client::{ChannelSpec, Connections, PendingCall, Place};
use crate::counts::Counts;
use crate::direct::{DirectCalls, InProcess};
use crate::error::ServerError;
use crate::peer::Peer;
use crate::rest::{Napping, Shelf};
use crate::server::endpoint::{ServerEndpoint, ServerKin};
use crate::server::{
    Arrival, PlacedCall, PlacedCalls, Placement, Placer, Router, Seat, ServerShared, ServerSlot, ServerSlots,
};
use crate::trace;
use crate::wire::{Wire, Wiring};

mod here;

use self::here::{OwnCalls, has_own_calls};
pub(crate) use self::here::{Running, send_to_current, start_here};

/// So many calls are taken to begin at one time: to look at the clock costs as much as a small part of one of them.
const CALLS_A_TICK: usize = 16;

/// What a reactor of ours lends its host.
pub(crate) type Core = fulmar_reactor::Core<RoofTransport, Letter>;

/// A reactor of ours.
pub(crate) type RoofReactor = Reactor<RoofHost>;

/// What is sent to a reactor's mailbox.
pub(crate) enum Letter {
    /// A caller begins a call.
    Start { spec: Arc<ChannelSpec>, pending: PendingCall },
    /// A connection could not have processed a call.
    Restart { channel: u64, pending: PendingCall },
    /// The addresses of a channel's server.
    Resolved { channel: u64, resolved: io::Result<Vec<SocketAddr>> },
    /// A channel's dialer has made a connection, or has not.
    Dialled { channel: u64, dialled: Result<Socket, Status> },
    /// The server has sent its SETTINGS on a connection of a channel.
    Ready { channel: u64, connection: ConnectionKey },
    /// A connection of a channel takes no more calls; whether it had any.
    Retiring { channel: u64, connection: ConnectionKey, carried: bool },
    /// A channel is to be connected, whether or not there is a call.
    Connect { spec: Arc<ChannelSpec> },
    /// Something of a channel that is not connected may have expired.
    ChannelTimer(u64),
    /// Calls of a channel that is not connected were given up.
    GivenUp(u64),
    /// The last clone of a channel was dropped.
    ChannelGone(u64),
    /// A channel is to be joined to a server of this reactor.
    OpenPipe { spec: Arc<ChannelSpec>, server: Arc<ServerShared> },
    /// Another reactor has accepted a connection for a server of this one.
    Arrived(Arrival),
    /// Another reactor has a call of one of its connections handled here.
    Place { server: u64, call: PlacedCall },
    /// Such a call goes on.
    PlacedWoken { server: u64, index: usize },
    /// A call that came without a connection goes on, or was given up.
    DirectWoken { server: u64, index: usize },
    /// The deadline of such a call has come.
    DirectDue { server: u64, index: usize },
    /// A server is to end within `grace`.
    Shutdown { server: u64, grace: Duration },
    /// The grace is over.
    CutOff { server: u64 },
    /// Somebody wants to know how much is in use.
    Count(SyncSender<Counts>),
    /// The reactor is to end.
    Stop,
}

/// The host of one reactor.
pub(crate) struct RoofHost {
    mailbox: Mailbox<Letter>,
    channels: Connections,
    /// Memory for the calls that this thread makes next.
    own_calls: OwnCalls,
    servers: ServerSlots,
}

impl RoofHost {
    pub(crate) fn new(core: &Core) -> Self {
        Self {
            mailbox: core.mailbox(),
            channels: Connections::new(core.mailbox()),
            own_calls: OwnCalls::default(),
            servers: ServerSlots::default(),
        }
    }

    /// Makes this reactor serve `shared`; one of its reactors has the listener.
    ///
    /// # Errors
    /// The system does not take the listening socket.
    pub(crate) fn serve(
        &mut self,
        core: &mut Core,
        shared: &Arc<ServerShared>,
        listeners: Vec<ListeningSocket>,
        owns_reactor: bool,
    ) -> Result<(), ServerError> {
        let mut router = Router::new(&shared.services, &shared.config, &shared.chain)?;
        let routes = Arc::new(std::mem::take(&mut router.routes));
        if shared.placement != Placement::Connection {
            router.placer = Some(Placer::new(shared.clone(), core.mailbox()));
        }
        let listeners = listeners.into_iter().map(|listener| core.listen(listener)).collect::<Result<_, _>>();
        let listeners = listeners.map_err(|error| ServerError::io("cannot listen", error))?;
        let connections = Arc::new(AtomicUsize::new(0));
        let router = Rc::new(RefCell::new(router));
        let direct = DirectCalls::new(shared, core.mailbox(), routes.clone(), router.clone());
        let kin = ServerKin { shared: shared.clone(), routes, router: router.clone() };
        self.servers.insert(ServerSlot {
            shared: shared.clone(),
            placed: PlacedCalls::new(shared.id, core.mailbox(), router.clone()),
            direct,
            router,
            shelf: Rc::new(Shelf::new(kin)),
            listeners,
            connections: connections.clone(),
            owns_reactor,
            closing: false,
            cut_off: None,
        });
        if let Some(grace) =
            shared.add_seat(Seat { mailbox: core.mailbox(), connections, calls: Arc::default() })
        {
            core.mailbox().send(Letter::Shutdown { server: shared.id, grace });
        }
        Ok(())
    }

    /// How much is in use on this reactor.
    pub(crate) fn counts(&mut self, core: &mut Core) -> Counts {
        let mut counts = Counts {
            connections: core.connections(),
            lingering: core.lingering(),
            blocks: core.pool().outstanding(),
            held_bytes: core.pool().held_bytes(),
            tasks: core.tasks(),
            timers: core.timers(),
            ..Counts::default()
        };
        counts += self.channels.counts() + self.servers.counts();
        for key in core.keys() {
            counts += match core.transport(key) {
                Some(RoofTransport::Client(wire)) => {
                    wire.endpoint().awake().map_or_else(Counts::default, ClientEndpoint::counts)
                }
                Some(RoofTransport::Server(wire)) => {
                    wire.endpoint().awake().map_or_else(Counts::default, ServerEndpoint::counts)
                }
                None => Counts::default(),
            };
        }
        counts
    }

    #[cfg(test)]
    fn channels(&self) -> &Connections {
        &self.channels
    }

    /// How to make the server's end of a connection. None when the server is not open here.
    fn server_end(
        &self,
        server: u64,
        peer: Peer,
    ) -> Option<impl FnOnce(ConnectionHandle) -> RoofTransport + use<>> {
        let shelf = self.servers.get(server).filter(|slot| !slot.closing)?.shelf.clone();
        // In-process bytes never leave the process: there is nothing to secure.
        let wiring = match peer.remote() {
            Some(_) => shelf.kin.shared.security.wiring(&peer),
            None => Wiring::Plain,
        };
        Some(move |handle| {
            let end = ServerEndpoint::of(&shelf.kin, handle, peer);
            RoofTransport::Server(wiring.wire(Napping::new(shelf, end)))
        })
    }

    /// A caller begins a call: over its channel's connection, or without one, where that makes no difference.
    fn on_start(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>, pending: PendingCall) {
        let left = match &spec.place {
            Place::InProcess(place) => self.start_directly(core, spec, place, pending),
            Place::Tcp(_) | Place::Connected(_) | Place::Dialled(_) => Some(pending),
        };
        if let Some(pending) = left {
            self.channels.start(core, spec, pending);
        }
    }

    /// [Begins](Self::on_start) calls of one channel, in their order.
    fn start_all(
        &mut self,
        core: &mut Core,
        spec: &Arc<ChannelSpec>,
        calls: &mut impl Iterator<Item = PendingCall>,
    ) {
        match &spec.place {
            Place::InProcess(_) => calls.for_each(|pending| self.on_start(core, spec, pending)),
            _ => self.channels.start_all(core, spec, calls),
        }
    }

    /// Has a server of this reactor handle a call without a connection. Gives the call back if it has to take one.
    fn start_directly(
        &mut self,
        core: &mut Core,
        spec: &Arc<ChannelSpec>,
        place: &InProcess,
        pending: PendingCall,
    ) -> Option<PendingCall> {
        let Some(link) = self.channels.ready_link(spec.id) else { return Some(pending) };
        let takes_calls = match core.transport(link) {
            Some(RoofTransport::Client(wire)) => wire.endpoint().takes_direct_calls(),
            _ => false,
        };
        if !takes_calls || !place.lends_itself(spec, core.now()) {
            return Some(pending);
        }
        match self.servers.get_mut(place.server.id).filter(|slot| !slot.closing) {
            Some(slot) => slot.direct.begin(core, (spec, link), pending),
            None => Some(pending),
        }
    }

    /// Something about a call that came without a connection.
    fn on_direct(&mut self, core: &mut Core, server: u64, act: impl FnOnce(&mut Core, &mut DirectCalls)) {
        let Some(slot) = self.servers.get_mut(server) else { return };
        act(core, &mut slot.direct);
        if slot.closing {
            self.end_server_if_idle(core, server);
        }
    }

    fn on_arrival(&mut self, core: &mut Core, arrival: Arrival) {
        match self.server_end(arrival.server, arrival.peer) {
            Some(make) => {
                core.adopt(arrival.socket, make);
            }
            None => {
                self.uncount(core, arrival.server);
            }
        }
    }

    fn on_open_pipe(&mut self, core: &mut Core, spec: &ChannelSpec, server: &ServerShared) {
        let make_server = self.server_end(server.id, Peer::default());
        if self.channels.open_pipe(core, spec.id, make_server)
            && let Some(slot) = self.servers.get(server.id)
        {
            slot.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection that was counted for a server is gone, or never came about.
    fn uncount(&mut self, core: &mut Core, server: u64) {
        if let Some(slot) = self.servers.get(server) {
            slot.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.end_server_if_idle(core, server);
    }

    /// Something about a call of a connection on another reactor.
    fn on_placed(&mut self, core: &mut Core, server: u64, act: impl FnOnce(&mut PlacedCalls)) {
        let Some(slot) = self.servers.get_mut(server) else { return };
        act(&mut slot.placed);
        if slot.closing {
            self.end_server_if_idle(core, server);
        }
    }

    fn on_shutdown(&mut self, core: &mut Core, server: u64, grace: Duration) {
        let Some(slot) = self.servers.get_mut(server) else { return };
        slot.closing = true;
        for listener in slot.listeners.drain(..) {
            core.close_listener(listener);
        }
        for key in connections_of(core, server) {
            let _ = core.command(key, RoofCommand::Server(crate::server::endpoint::Command::Drain));
        }
        let cut_off = core.set_timer(core.now() + grace, Letter::CutOff { server });
        let earlier = self.servers.get_mut(server).and_then(|slot| slot.cut_off.replace(cut_off));
        drop(earlier.and_then(|timer| core.cancel_timer(timer)));
        self.end_server_if_idle(core, server);
    }

    fn on_cut_off(&mut self, core: &mut Core, server: u64) {
        for key in connections_of(core, server) {
            core.close(key, &Closed::local("the server has shut down"));
        }
        if let Some(slot) = self.servers.get_mut(server) {
            slot.direct.cut_off(core);
        }
        self.end_server_if_idle(core, server);
    }

    /// Ends a server that is shutting down and has no connection left on this reactor.
    fn end_server_if_idle(&mut self, core: &mut Core, server: u64) {
        let is_over = self.servers.get(server).is_some_and(ServerSlot::is_over);
        if !is_over {
            return;
        }
        if let Some(slot) = self.servers.remove(server) {
            drop(slot.cut_off.and_then(|timer| core.cancel_timer(timer)));
            slot.shared.remove_seat(&core.mailbox());
            if slot.owns_reactor {
                core.stop();
            }
        }
    }
}

fn connections_of(core: &mut Core, server: u64) -> Vec<ConnectionKey> {
    core.keys()
        .into_iter()
        .filter(|key| match core.transport(*key) {
            Some(RoofTransport::Server(wire)) => wire.endpoint().kin().shared.id == server,
            _ => false,
        })
        .collect()
}

impl Host for RoofHost {
    type Transport = RoofTransport;
    type Letter = Letter;

    fn on_accept(&mut self, core: &mut Core, listener: ListenerKey, socket: Socket) {
        let Some(slot) = self.servers.by_listener(listener) else { return };
        if let Ok(Some(arrival)) = slot.shared.arrive(socket, Some(core.id())) {
            self.on_arrival(core, arrival);
        }
    }

    fn on_accept_failed(&mut self, core: &mut Core, _: ListenerKey, error: &io::Error) {
        trace::accept_failed(error, core.connections(), core.now());
    }

    fn catch_up(&mut self, core: &mut Core) -> bool {
        if !has_own_calls() {
            return false;
        }
        let mut own_calls = std::mem::take(&mut self.own_calls);
        own_calls.swap();
        let (mut calls, channels) = own_calls.drain();
        for (spec, mut left) in channels {
            while left > 0 {
                let some = left.min(CALLS_A_TICK);
                self.start_all(core, &spec, &mut calls.by_ref().take(some));
                left -= some;
                if left > 0 {
                    core.tick();
                }
            }
        }
        drop(calls);
        self.own_calls = own_calls;
        true
    }

    fn is_behind(&self) -> bool {
        has_own_calls()
    }

    fn on_letter(&mut self, core: &mut Core, letter: Letter) {
        match letter {
            Letter::Start { spec, pending } => self.on_start(core, &spec, pending),
            Letter::Restart { channel, pending } => self.channels.restart(core, channel, pending),
            Letter::Resolved { channel, resolved } => self.channels.on_resolved(core, channel, resolved),
            Letter::Dialled { channel, dialled } => self.channels.on_dialled(core, channel, dialled),
            Letter::Ready { channel, connection } => self.channels.on_ready(core, channel, connection),
            Letter::Retiring { channel, connection, carried } => {
                self.channels.on_retiring(core, channel, connection, carried);
            }
            Letter::Connect { spec } => self.channels.connect(core, &spec),
            Letter::ChannelTimer(channel) => self.channels.on_timer(core, channel),
            Letter::GivenUp(channel) => self.channels.on_given_up(core, channel),
            Letter::ChannelGone(channel) => self.channels.forget(core, channel),
            Letter::OpenPipe { spec, server } => self.on_open_pipe(core, &spec, &server),
            Letter::Arrived(arrival) => self.on_arrival(core, arrival),
            Letter::Place { server, call } => self.on_placed(core, server, |placed| placed.accept(call)),
            Letter::PlacedWoken { server, index } => {
                self.on_placed(core, server, |placed| placed.on_wake(index));
            }
            Letter::DirectWoken { server, index } => {
                self.on_direct(core, server, |core, direct| direct.on_wake(core, index));
            }
            Letter::DirectDue { server, index } => {
                self.on_direct(core, server, |core, direct| direct.on_deadline(core, index));
            }
            Letter::Shutdown { server, grace } => self.on_shutdown(core, server, grace),
            Letter::CutOff { server } => self.on_cut_off(core, server),
            Letter::Count(asker) => {
                // One who has stopped waiting is not told.
                let _ = asker.try_send(self.counts(core));
            }
            Letter::Stop => core.stop(),
        }
    }

    fn on_connected(&mut self, core: &mut Core, connection: ConnectionKey) {
        if let Some(RoofTransport::Client(wire)) = core.transport(connection) {
            trace::connected(wire.endpoint().server_name());
        }
    }

    fn on_closed(
        &mut self,
        core: &mut Core,
        connection: ConnectionKey,
        transport: RoofTransport,
        closed: &Closed,
    ) {
        match transport {
            RoofTransport::Client(wire) => {
                let closed = wire.explain(closed);
                let endpoint = wire.into_endpoint();
                trace::closed("client", Some(endpoint.server_name()), &closed.text);
                self.channels.on_closed(core, connection, endpoint, &closed);
            }
            RoofTransport::Server(wire) => {
                let (end, closed) = (wire.endpoint(), wire.explain(closed));
                trace::closed("server", end.peer(), &closed.text);
                self.uncount(core, end.kin().shared.id);
            }
        }
    }
}

impl Drop for RoofHost {
    fn drop(&mut self) {
        for slot in self.servers.drain() {
            slot.shared.remove_seat(&self.mailbox);
            // A server whose reactor has failed would serve a part of its clients only: it ends, and whoever waits for it hears why.
            if slot.owns_reactor {
                slot.shared.shutdown(Duration::ZERO);
            }
        }
        self.channels.leave(&self.mailbox);
    }
}

/// A connection of either kind.
pub(crate) enum RoofTransport {
    Client(Wire<Napping<ClientEndpoint>>),
    Server(Wire<Napping<ServerEndpoint>>),
}

/// What a connection of either kind can be told.
pub(crate) enum RoofCommand {
    Client(crate::client::endpoint::Command),
    Server(crate::server::endpoint::Command),
}

impl Transport for RoofTransport {
    type Command = RoofCommand;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        match self {
            Self::Client(client) => client.receive(env, wire),
            Self::Server(server) => server.receive(env, wire),
        }
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        match self {
            Self::Client(client) => client.transmit(env),
            Self::Server(server) => server.transmit(env),
        }
    }

    fn has_work(&self, is_room: bool) -> bool {
        match self {
            Self::Client(client) => client.has_work(is_room),
            Self::Server(server) => server.has_work(is_room),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Client(client) => client.next_deadline(),
            Self::Server(server) => server.next_deadline(),
        }
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        match self {
            Self::Client(client) => client.on_deadline(env),
            Self::Server(server) => server.on_deadline(env),
        }
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: RoofCommand) -> Result<(), Closed> {
        match (self, command) {
            (Self::Client(client), RoofCommand::Client(command)) => client.on_command(env, command),
            (Self::Server(server), RoofCommand::Server(command)) => server.on_command(env, command),
            // A key names one connection for ever, so a command of the other kind cannot meet it; dropping it tells its caller.
            _ => Ok(()),
        }
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        match self {
            Self::Client(client) => client.on_wake(env, task),
            Self::Server(server) => server.on_wake(env, task),
        }
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        match self {
            Self::Client(client) => client.on_close(env, closed),
            Self::Server(server) => server.on_close(env, closed),
        }
    }
}

/// Runs a reactor on this thread until it is stopped.
///
/// # Errors
/// The operating system's event queue fails.
pub(crate) fn run(reactor: &mut RoofReactor) -> io::Result<()> {
    let _running = Running::enter(reactor.core().mailbox());
    reactor.run()
}

/// Resolves names for all reactors of the process, on a thread of its own.
pub(crate) fn resolver() -> &'static Resolver {
    static RESOLVER: OnceLock<Resolver> = OnceLock::new();
    RESOLVER.get_or_init(Resolver::default)
}

#[cfg(test)]
mod tests;
