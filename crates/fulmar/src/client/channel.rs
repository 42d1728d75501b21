//! A channel: where calls go, and with which settings.

mod builder;

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fulmar_grpc::Status;
use fulmar_reactor::{Mailbox, Resolver, SocketOptions};

pub use self::builder::ChannelBuilder;
use super::backoff::Backoff;
use super::connectivity::Connectivity;
use super::dialer::Dialer;
use super::handed::Handed;
use super::lives::Lives;
use super::target::Target;
use super::{ClientReactor, PendingCall};
use crate::call::{CallCell, ChannelCells};
use crate::counts::ChannelCounts;
use crate::direct::InProcess;
use crate::error::ConnectError;
use crate::host::{self, Letter};
use crate::intercept::{Chain, Interceptor};
use crate::lock;
use crate::metadata_lease::MetadataShelf;
use crate::packing::Press;
use crate::trace;
use crate::wire::ClientSecurity;

/// How long a connection may take, from the start of the attempt to the server's SETTINGS (connection-backoff
/// "MIN_CONNECT_TIMEOUT").
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// How many calls of one channel wait for a connection or a stream by default.
const WAITING_CALLS_MAX: usize = 65_536;

/// What texts call the server of an in-process channel.
pub(crate) const IN_PROCESS: &str = "the in-process server";

/// A way to a server, for calls from any thread and under any executor.
///
/// Cloning is cheap, and clones share the connection. On a reactor's own thread (in a handler, or under
/// [`LocalReactor::block_on`](crate::LocalReactor::block_on)) calls take that reactor's connection to the server and cross no
/// thread; elsewhere the connection lives on a client reactor thread, by default one for the process. A connection that was
/// lost is made again by the next call.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use fulmar::{Channel, Raw, Response};
///
/// let channel = Channel::connect("http://127.0.0.1:50051").await?;
/// let hello = Raw::from(vec![0x0a, 0x01, b'x']);
/// let response: Response<Raw> = channel.unary("/helloworld.Greeter/SayHello", hello).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Channel {
    inner: Arc<ChannelInner>,
    chain: Chain,
}

/// Shared by the clones of a channel.
pub(crate) struct ChannelInner {
    pub(crate) spec: Arc<ChannelSpec>,
    shelf: Arc<MetadataShelf>,
    home: Home,
}

/// The reactor for callers that are on none. In-process channels use none.
enum Home {
    /// The user's, whatever becomes of it.
    Given(ClientReactor),
    /// The process's, once it was needed.
    Shared(Mutex<Option<ClientReactor>>),
}

/// What a connection has to know of its channel.
pub(crate) struct ChannelSpec {
    pub(crate) id: u64,
    pub(crate) place: Place,
    pub(crate) config: ChannelConfig,
    /// What its calls are compressed with, on their callers' threads.
    pub(crate) press: Option<Arc<Press>>,
    /// What a server that has had too many PINGs makes of the time of [`Lives::keepalive`], in milliseconds.
    keepalive_ms: AtomicU64,
    visited: Mutex<Visited>,
    /// The cells of its calls.
    pub(crate) cells: ChannelCells,
    pub(crate) connectivity: Connectivity,
}

/// The reactors that know a channel, to be told of its end. There is mostly one.
enum Visited {
    None,
    One(Mailbox<Letter>),
    Several(Vec<Mailbox<Letter>>),
    /// The channel is gone.
    Over,
}

/// Where the server is.
pub(crate) enum Place {
    Tcp(Target),
    Connected(Arc<Handed>),
    Dialled(Arc<Dialer>),
    InProcess(Arc<InProcess>),
}

/// Settings of a channel: the same memory for all channels that have the default.
#[derive(Clone, Debug)]
pub(crate) struct ChannelConfig(Arc<ChannelSettings>);

/// What may be set.
#[derive(Clone, Debug)]
pub(crate) struct ChannelSettings {
    pub(crate) grpc: fulmar_grpc::Config,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) waiting_calls_max: usize,
    pub(crate) sockets: SocketOptions,
    /// The user's, if there is one.
    resolver: Option<Arc<Resolver>>,
    security: ClientSecurity,
    pub(crate) lives: Lives,
    pub(crate) backoff: Backoff,
    pub(crate) waits_for_ready: bool,
}

impl Deref for ChannelConfig {
    type Target = ChannelSettings;

    fn deref(&self) -> &ChannelSettings {
        &self.0
    }
}

impl DerefMut for ChannelConfig {
    fn deref_mut(&mut self) -> &mut ChannelSettings {
        Arc::make_mut(&mut self.0)
    }
}

impl ChannelConfig {
    /// Whether both are the same settings in the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ChannelSettings {
    /// What turns the name of the endpoint into addresses.
    pub(crate) fn resolver(&self) -> &Resolver {
        match &self.resolver {
            Some(resolver) => resolver,
            None => host::resolver(),
        }
    }

    fn socket_options(&self) -> SocketOptions {
        let keepalive = self.lives.keepalive().map(|keepalive| keepalive.timeout);
        SocketOptions { user_timeout: self.sockets.user_timeout.or(keepalive), ..self.sockets.clone() }
    }
}

impl Channel {
    /// Connects to `endpoint` and waits until the server has answered with its SETTINGS.
    ///
    /// An endpoint is `http://host:port`, or `https://host:port` for TLS; a port that is left out is 80 or 443, and a scheme that
    /// is left out is `http`, or `https` where `ChannelBuilder::tls` is set. Or it is a Unix socket: `unix:/path`,
    /// `unix:relative/path`, or on Linux `unix-abstract:name`.
    ///
    /// # Errors
    /// An endpoint that is none, a name that does not resolve, a server that does not answer or does not speak HTTP/2; at the
    /// latest after the connect timeout of 20 s.
    pub async fn connect(endpoint: impl AsRef<str>) -> Result<Self, ConnectError> {
        Self::builder(endpoint).connect().await
    }

    /// A channel to `endpoint` with other settings than the defaults.
    pub fn builder(endpoint: impl AsRef<str>) -> ChannelBuilder {
        ChannelBuilder::new(endpoint.as_ref())
    }

    pub(crate) fn new(place: Place, config: ChannelConfig, reactor: Option<ClientReactor>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let spec = Arc::new(ChannelSpec::new(id, place, config));
        Self {
            inner: Arc::new(ChannelInner {
                spec,
                shelf: Arc::default(),
                home: reactor.map_or_else(|| Home::Shared(Mutex::default()), Home::Given),
            }),
            chain: Chain::default(),
        }
    }

    /// The same channel, over the same connection, with an interceptor around its calls, inside of those that are there.
    /// Other clones of the channel stay as they are.
    ///
    /// ```no_run
    /// # async fn run(tracing: impl fulmar::Interceptor) -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = fulmar::Channel::connect("http://127.0.0.1:50051").await?;
    /// let traced = channel.intercept(tracing);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn intercept(&self, interceptor: impl Interceptor) -> Self {
        Self { inner: self.inner.clone(), chain: self.chain.with(interceptor) }
    }

    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Waits until there is a connection and the server has sent its SETTINGS. Calls do so by themselves.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn ready(&self) -> Result<(), ConnectError> {
        let cell = self.take_cell();
        let fail = |status: Status| ConnectError::from_status(self.inner.spec.name(), &status);
        self.submit(PendingCall::probe(cell.clone())).map_err(fail)?;
        let status = poll_fn(|cx| cell.poll_status(cx)).await;
        self.give_cell(cell);
        if status.is_ok() { Ok(()) } else { Err(fail(status)) }
    }

    /// Begins to connect, if the channel is idle; if it waits before it tries again, it tries at once, and begins anew with the
    /// shortest [wait](ChannelBuilder::backoff). Returns at once; [`state`](Self::state) tells what becomes of it. Calls connect by
    /// themselves.
    pub fn connect_now(&self) {
        // Where no reactor can be had, a call will say so.
        drop(self.deliver(Letter::Connect { spec: self.inner.spec.clone() }));
    }

    /// How much the callers of this channel and of its clones have in use. The reactors under it have [counts](crate::Counts) of
    /// their own.
    pub fn counts(&self) -> ChannelCounts {
        ChannelCounts { cells: self.inner.spec.cells.in_use(), metadata_maps: self.inner.shelf.in_use() }
    }

    /// Hands a call to the reactor that has, or makes, a connection for it.
    ///
    /// # Errors
    /// `UNAVAILABLE` when no reactor could be started or the in-process server is not running.
    pub(crate) fn submit(&self, pending: PendingCall) -> Result<(), Status> {
        match host::start_here(&self.inner.spec, pending) {
            Ok(()) => Ok(()),
            Err(pending) => self.deliver(Letter::Start { spec: self.inner.spec.clone(), pending }),
        }
    }

    /// Sends a letter to the reactor that has, or makes, the connection: the one of this thread, where that can have one.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    fn deliver(&self, letter: Letter) -> Result<(), Status> {
        let place = &self.inner.spec.place;
        let Err(letter) = host::send_to_current(letter, place) else { return Ok(()) };
        let owner = match place {
            Place::InProcess(place) => return place.server.send_to_any(letter),
            Place::Connected(handed) => handed.owner(),
            Place::Tcp(_) | Place::Dialled(_) => None,
        };
        match owner {
            Some(owner) => {
                // A letter that finds no reactor is dropped, which tells the caller.
                drop(owner.try_send(letter));
                Ok(())
            }
            None => self.inner.home.send(letter),
        }
    }

    /// A fresh cell that only the caller holds.
    pub(crate) fn take_cell(&self) -> Arc<CallCell> {
        self.inner.spec.cells.take()
    }

    /// Keeps a cell for another call.
    pub(crate) fn give_cell(&self, mut cell: Arc<CallCell>) {
        let bytes = CallCell::recycle(&mut cell);
        self.keep_cell(cell, bytes);
    }

    /// As [`CellShelf::keep`](crate::call::CellShelf::keep).
    pub(super) fn keep_cell(&self, cell: Arc<CallCell>, bytes: Option<usize>) {
        self.inner.spec.cells.keep(cell, bytes);
    }

    pub(crate) fn shelf(&self) -> &Arc<MetadataShelf> {
        &self.inner.shelf
    }

    pub(crate) fn config(&self) -> &ChannelConfig {
        &self.inner.spec.config
    }

    pub(crate) fn spec(&self) -> &Arc<ChannelSpec> {
        &self.inner.spec
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("endpoint", &self.inner.spec.name()).finish_non_exhaustive()
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        self.spec.connectivity.shut_down();
        let visited = std::mem::replace(&mut *lock(&self.spec.visited), Visited::Over);
        let tell = |mailbox: &Mailbox<Letter>| mailbox.send(Letter::ChannelGone(self.spec.id));
        visited.as_slice().iter().for_each(tell);
    }
}

impl Home {
    /// Sends a letter to the reactor, which is started if it does not run. A letter that the user's does not take any more is dropped,
    /// which tells the caller.
    ///
    /// Many threads call at once: nothing is locked while a letter is sent, which may mean that the reactor is woken.
    ///
    /// # Errors
    /// `UNAVAILABLE` when no reactor could be started.
    fn send(&self, letter: Letter) -> Result<(), Status> {
        let (shared, known) = match self {
            Self::Given(reactor) => {
                drop(reactor.try_send(letter));
                return Ok(());
            }
            Self::Shared(shared) => (shared, lock(shared).clone()),
        };
        let letter = match known {
            None => letter,
            Some(reactor) => match reactor.try_send(letter) {
                Ok(()) => return Ok(()),
                Err(letter) => letter,
            },
        };
        let reactor = ClientReactor::shared()?;
        let undelivered = reactor.try_send(letter);
        let earlier = lock(shared).replace(reactor);
        drop((undelivered, earlier));
        Ok(())
    }
}

impl ChannelSpec {
    pub(crate) fn new(id: u64, place: Place, config: ChannelConfig) -> Self {
        let press = Press::new(&config.grpc.encodings);
        Self {
            id,
            place,
            config,
            press,
            keepalive_ms: AtomicU64::new(0),
            visited: Mutex::new(Visited::None),
            cells: ChannelCells::default(),
            connectivity: Connectivity::default(),
        }
    }

    /// Settings for the next connection.
    pub(crate) fn connection_config(&self) -> fulmar_grpc::Config {
        let mut config = self.config.grpc.clone();
        self.config.lives.write_to(&mut config.http2);
        if let Some(keepalive) = &mut config.http2.keepalive {
            let slowed = Duration::from_millis(self.keepalive_ms.load(Ordering::Relaxed));
            keepalive.time = keepalive.time.max(slowed);
        }
        config
    }

    /// A server has had too many PINGs of a connection that asks whenever nothing has come for `time`: the next connections take twice
    /// as long (gRFC A8).
    pub(crate) fn slow_keepalive_down(&self, time: Duration) {
        let slowed = time.saturating_mul(2);
        let slowed_ms = u64::try_from(slowed.as_millis()).unwrap_or(u64::MAX);
        if self.keepalive_ms.fetch_max(slowed_ms, Ordering::Relaxed) < slowed_ms {
            trace::too_many_pings(self.name(), slowed);
        }
    }

    /// How sockets are set up.
    pub(crate) fn socket_options(&self) -> SocketOptions {
        self.config.socket_options()
    }

    /// A reactor gets to know the channel. False when the channel is gone, and would never tell the reactor so.
    pub(crate) fn visit(&self, mailbox: Mailbox<Letter>) -> bool {
        let visited = &mut *lock(&self.visited);
        match visited {
            Visited::None => *visited = Visited::One(mailbox),
            Visited::One(first) => *visited = Visited::Several(vec![first.clone(), mailbox]),
            Visited::Several(visited) => visited.push(mailbox),
            Visited::Over => return false,
        }
        true
    }

    /// A reactor that knew the channel has ended.
    pub(crate) fn leave(&self, mailbox: &Mailbox<Letter>) {
        let visited = &mut *lock(&self.visited);
        match visited {
            Visited::One(only) if only.reactor() == mailbox.reactor() => *visited = Visited::None,
            Visited::Several(visited) => visited.retain(|other| other.reactor() != mailbox.reactor()),
            Visited::None | Visited::One(_) | Visited::Over => {}
        }
    }

    /// What secures its connections.
    pub(crate) fn security(&self) -> &ClientSecurity {
        match &self.place {
            Place::Tcp(_) | Place::Connected(_) | Place::Dialled(_) => &self.config.security,
            // Bytes that never leave the process.
            Place::InProcess(_) => &ClientSecurity::None,
        }
    }

    #[cfg(test)]
    pub(crate) fn visitors(&self) -> usize {
        lock(&self.visited).as_slice().len()
    }

    /// What texts call the server.
    pub(crate) fn name(&self) -> &str {
        match &self.place {
            Place::Tcp(target) => target.uri(),
            Place::Connected(handed) => handed.target.uri(),
            Place::Dialled(dialer) => dialer.target.uri(),
            Place::InProcess(_) => IN_PROCESS,
        }
    }

    pub(crate) fn authority(&self) -> &str {
        match &self.place {
            Place::Tcp(target) => target.authority(),
            Place::Connected(handed) => handed.target.authority(),
            Place::Dialled(dialer) => dialer.target.authority(),
            // Like a Unix socket's, which has no host either (gRPC "naming": `localhost`).
            Place::InProcess(_) => "localhost",
        }
    }
}

impl Visited {
    fn as_slice(&self) -> &[Mailbox<Letter>] {
        match self {
            Self::None | Self::Over => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::Several(visited) => visited,
        }
    }
}

impl Place {
    /// Whether a reactor can have a connection to it: an in-process server's own reactors only.
    pub(crate) fn is_reached_from(&self, mailbox: &Mailbox<Letter>) -> bool {
        match self {
            Self::Tcp(_) | Self::Dialled(_) => true,
            Self::Connected(handed) => handed.is_on(mailbox),
            Self::InProcess(place) => place.is_served_by(mailbox),
        }
    }
}

impl Default for ChannelConfig {
    fn default() -> Self {
        static DEFAULT: OnceLock<ChannelConfig> = OnceLock::new();
        DEFAULT.get_or_init(|| Self(Arc::new(ChannelSettings::default()))).clone()
    }
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            grpc: fulmar_grpc::Config::default(),
            connect_timeout: CONNECT_TIMEOUT,
            timeout: None,
            waiting_calls_max: WAITING_CALLS_MAX,
            sockets: SocketOptions::default(),
            resolver: None,
            security: ClientSecurity::None,
            lives: Lives::default(),
            backoff: Backoff::default(),
            waits_for_ready: false,
        }
    }
}
