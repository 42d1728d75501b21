//! What the reactors of a server share, and what each of them keeps of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Add;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fulmar_grpc::{Config, Status};
use fulmar_reactor::{ListenerKey, Mailbox, ReactorId, Socket, SocketOptions, TimerKey};

use super::endpoint::ServerEndpoint;
use super::router::{Router, Service};
use super::{Door, PlacedCalls, Placement};
use crate::counts::Counts;
use crate::direct::DirectCalls;
use crate::error::ServerError;
use crate::host::Letter;
use crate::intercept::Chain;
use crate::lock;
use crate::peer::Peer;
use crate::rest::Shelf;
use crate::trace;
use crate::wire::ServerSecurity;

/// How long one wait of a thread is at most: not every system takes the longest `Duration` there is.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// A server, as its reactors, its handles and its in-process channels know it.
pub(crate) struct ServerShared {
    pub(crate) id: u64,
    pub(crate) config: Config,
    pub(crate) services: Vec<Box<dyn Service>>,
    /// Around all services.
    pub(crate) chain: Chain,
    /// None for a server that asks nobody.
    pub(crate) door: Option<Arc<Door>>,
    pub(crate) security: ServerSecurity,
    /// For sockets that are handed in.
    pub(crate) sockets: SocketOptions,
    /// The reactors that serve it.
    seats: Mutex<Vec<Seat>>,
    /// Counts how often they have changed.
    seats_version: AtomicUsize,
    pub(crate) placement: Placement,
    stage: Mutex<Stage>,
    ended: Condvar,
}

/// One reactor of a server.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) mailbox: Mailbox<Letter>,
    /// Connections there, those on their way included.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Calls handled there, where a server spreads its calls.
    pub(crate) calls: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Running, or about to.
    Open,
    /// Shutting down, with the time that what is left has before it is cut off.
    Closing { grace: Duration },
}

impl ServerShared {
    /// # Errors
    /// Two methods with the same path.
    pub(crate) fn new(
        config: Config,
        services: Vec<Box<dyn Service>>,
        chain: Chain,
        door: Option<Door>,
        security: ServerSecurity,
    ) -> Result<Self, ServerError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Router::new(&services, &config, &chain)?;
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            config,
            services,
            chain,
            door: door.map(Arc::new),
            security,
            sockets: SocketOptions::default(),
            seats: Mutex::default(),
            seats_version: AtomicUsize::new(0),
            placement: Placement::default(),
            stage: Mutex::new(Stage::Open),
            ended: Condvar::new(),
        })
    }

    /// The same server with its handlers elsewhere.
    pub(crate) fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The same, with options for the sockets that are handed in.
    pub(crate) fn with_socket_options(self, sockets: SocketOptions) -> Self {
        Self { sockets, ..self }
    }

    /// Adds a reactor. Returns the grace of a shutdown that came first.
    pub(crate) fn add_seat(&self, seat: Seat) -> Option<Duration> {
        let stage = lock(&self.stage);
        lock(&self.seats).push(seat);
        self.seats_version.fetch_add(1, Ordering::Release);
        match *stage {
            Stage::Open => None,
            Stage::Closing { grace } => Some(grace),
        }
    }

    pub(crate) fn remove_seat(&self, mailbox: &Mailbox<Letter>) {
        lock(&self.seats).retain(|seat| seat.mailbox.reactor() != mailbox.reactor());
        self.seats_version.fetch_add(1, Ordering::Release);
        self.ended.notify_all();
    }

    /// The reactor with the fewest connections.
    pub(crate) fn least_loaded(&self) -> Option<Seat> {
        let seats = lock(&self.seats);
        seats.iter().min_by_key(|seat| seat.connections.load(Ordering::Relaxed)).cloned()
    }

    /// Brings a copy of the reactors, made at `version`, up to date.
    pub(crate) fn update_seats(&self, seats: &mut Vec<Seat>, version: &mut usize) {
        let current = self.seats_version.load(Ordering::Acquire);
        if *version != current {
            *version = current;
            seats.clone_from(&lock(&self.seats));
        }
    }

    /// Serves a new connection on the reactor with the fewest, which may be the one of `here`; then its letter comes back.
    ///
    /// # Errors
    /// Nobody serves, or the connection is not let in.
    pub(crate) fn arrive(&self, socket: Socket, here: Option<ReactorId>) -> Result<Option<Arrival>, Refused> {
        let peer = Peer::of(&socket, &self.security);
        if self.door.as_ref().is_some_and(|door| !door.admits_connection(&peer)) {
            trace::refused(&peer);
            return Err(Refused::ByDoor);
        }
        let Some(seat) = self.least_loaded() else { return Err(Refused::Ended) };
        trace::accepted(&peer);
        if let Some(keepalive) = self.config.http2.keepalive {
            // A socket that does not take it, because it is no TCP socket or was reset, is served without, or tells when it is read.
            let user_timeout = self.sockets.user_timeout.or(Some(keepalive.timeout));
            let _ = socket.apply(&SocketOptions { user_timeout, ..SocketOptions::default() });
        }
        seat.count();
        let arrival = Arrival { server: self.id, socket, peer };
        if here == Some(seat.mailbox.reactor()) {
            return Ok(Some(arrival));
        }
        seat.mailbox.send(Letter::Arrived(arrival));
        Ok(None)
    }

    /// Whether the reactor of `mailbox` serves this server. `known` keeps who is known to, and until when: 0 at first.
    pub(crate) fn is_served_by(&self, mailbox: &Mailbox<Letter>, known: &AtomicU64) -> bool {
        // Asked for each call of an in-process channel: nothing is locked while the reactors stay the same.
        let version = self.seats_version.load(Ordering::Acquire) as u32;
        let answer = u64::from(version) << 32 | u64::from(mailbox.reactor().number() as u32);
        if known.load(Ordering::Relaxed) == answer {
            return true;
        }
        let is_served = lock(&self.seats).iter().any(|seat| seat.mailbox.reactor() == mailbox.reactor());
        if is_served {
            known.store(answer, Ordering::Relaxed);
        }
        is_served
    }

    /// How much the reactors have in use.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let mailboxes: Vec<_> = lock(&self.seats).iter().map(|seat| seat.mailbox.clone()).collect();
        Counts::of(mailboxes)
    }

    /// Sends a letter to one of the reactors; always the same, so that a channel has one connection.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the server is not running.
    pub(crate) fn send_to_any(&self, letter: Letter) -> Result<(), Status> {
        // Sent without the lock: a letter that finds its reactor gone is dropped, and wakes its caller.
        let mailbox = lock(&self.seats).first().map(|seat| seat.mailbox.clone());
        match mailbox {
            Some(mailbox) => {
                mailbox.send(letter);
                Ok(())
            }
            None => Err(Status::unavailable("the in-process server is not running")),
        }
    }

    /// Begins to shut down: at once for listeners, and within `grace` for calls. A second call may only shorten the grace.
    pub(crate) fn shutdown(&self, grace: Duration) {
        let mut stage = lock(&self.stage);
        if matches!(*stage, Stage::Closing { grace: earlier } if earlier <= grace) {
            return;
        }
        *stage = Stage::Closing { grace };
        for seat in lock(&self.seats).iter() {
            seat.mailbox.send(Letter::Shutdown { server: self.id, grace });
        }
    }

    /// Waits until no reactor serves it any more; false after `timeout`.
    pub(crate) fn wait_ended(&self, timeout: Duration) -> bool {
        let (started, mut seats) = (Instant::now(), lock(&self.seats));
        while !seats.is_empty() {
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return false;
            }
            let waited = self.ended.wait_timeout(seats, left.min(WAIT_MAX));
            seats = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        true
    }
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The servers of one reactor.
#[derive(Default)]
pub(crate) struct ServerSlots {
    /// By their numbers. There are few.
    servers: BTreeMap<u64, ServerSlot>,
}

/// A server on one reactor.
pub(crate) struct ServerSlot {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) router: Rc<RefCell<Router>>,
    /// The bodies of connections that rest.
    pub(crate) shelf: Rc<Shelf<ServerEndpoint>>,
    pub(crate) listeners: Vec<ListenerKey>,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Calls of connections on other reactors.
    pub(crate) placed: PlacedCalls,
    /// Calls of in-process channels that need no connection.
    pub(crate) direct: DirectCalls,
    /// The reactor was started for this server and ends with it.
    pub(crate) owns_reactor: bool,
    pub(crate) closing: bool,
    /// Ends the grace of a shutdown.
    pub(crate) cut_off: Option<TimerKey>,
}

impl ServerSlot {
    /// Whether it is shutting down and has nothing left to do on its reactor.
    pub(crate) fn is_over(&self) -> bool {
        self.closing
            && self.connections.load(Ordering::Relaxed) == 0
            && self.placed.is_empty()
            && self.direct.is_empty()
    }
}

impl ServerSlots {
    pub(crate) fn insert(&mut self, slot: ServerSlot) {
        self.servers.insert(slot.shared.id, slot);
    }

    pub(crate) fn get(&self, server: u64) -> Option<&ServerSlot> {
        self.servers.get(&server)
    }

    pub(crate) fn get_mut(&mut self, server: u64) -> Option<&mut ServerSlot> {
        self.servers.get_mut(&server)
    }

    pub(crate) fn by_listener(&self, listener: ListenerKey) -> Option<&ServerSlot> {
        self.servers.values().find(|slot| slot.listeners.contains(&listener))
    }

    /// What the calls of these servers have in use.
    pub(crate) fn counts(&self) -> Counts {
        let counts = |slot: &ServerSlot| slot.router.borrow_mut().counts() + slot.direct.counts();
        self.servers.values().map(counts).fold(Counts::default(), Add::add)
    }

    pub(crate) fn remove(&mut self, server: u64) -> Option<ServerSlot> {
        self.servers.remove(&server)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = ServerSlot> + use<> {
        std::mem::take(&mut self.servers).into_values()
    }
}

impl Seat {
    /// Counts a connection that is on its way to the reactor; the reactor counts it out when it ends.
    pub(crate) fn count(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    ByDoor,
    Ended,
}

/// An accepted socket that travels to the reactor that will serve it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) server: u64,
    pub(crate) socket: Socket,
    pub(crate) peer: Peer,
}
