//! A channel: where calls go, and with which settings.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fulmar_grpc::Status;
use fulmar_grpc::encoding::{Encoding, RegisterError};
use fulmar_reactor::{Mailbox, Resolver, Socket, SocketOptions};

use super::backoff::Backoff;
use super::connectivity::Connectivity;
use super::handed::{HANDED_IN_IS_OVER, Handed};
use super::lives::Lives;
use super::resolve::{Resolve, resolver_of};
use super::target::Target;
use super::{ClientReactor, PendingCall};
use crate::call::{CallCell, ChannelCells};
use crate::counts::ChannelCounts;
use crate::error::ConnectError;
use crate::host::{self, Letter};
use crate::intercept::{Chain, Interceptor};
use crate::lock;
use crate::metadata_lease::MetadataShelf;
use crate::packing::Press;
use crate::server::ServerShared;
use crate::trace;
use crate::wire::{ClientSecurity, SecurityChoice};

/// How long a connection may take, from the start of the attempt to the server's SETTINGS (connection-backoff
/// "MIN_CONNECT_TIMEOUT").
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// How many calls of one channel wait for a connection or a stream by default.
const WAITING_CALLS_MAX: usize = 65_536;

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
    /// The reactors that know the channel, to be told of its end; None after it.
    visited: Mutex<Option<Vec<Mailbox<Letter>>>>,
    /// The cells of its calls.
    pub(crate) cells: ChannelCells,
    pub(crate) connectivity: Connectivity,
}

/// Where the server is.
pub(crate) enum Place {
    Tcp(Target),
    Connected(Arc<Handed>),
    InProcess(Arc<ServerShared>),
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
        ChannelBuilder {
            endpoint: endpoint.as_ref().to_owned(),
            config: ChannelConfig::default(),
            reactor: None,
            user_agent: String::new(),
            chain: Chain::default(),
            security: SecurityChoice::default(),
            connected: None,
            failed: None,
        }
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
        let letter = Letter::Connect { spec: self.inner.spec.clone() };
        let Err(letter) = host::send_to_current(letter, &self.inner.spec.place) else { return };
        // Where no reactor can be had, a call will say so.
        match &self.inner.spec.place {
            Place::InProcess(server) => drop(server.send_to_any(letter)),
            Place::Tcp(_) | Place::Connected(_) => {
                let undelivered = self.inner.home.send(letter);
                drop(undelivered);
            }
        }
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
        let spec = self.inner.spec.clone();
        let letter = Letter::Start { spec, pending };
        let Err(letter) = host::send_to_current(letter, &self.inner.spec.place) else { return Ok(()) };
        match &self.inner.spec.place {
            Place::InProcess(server) => server.send_to_any(letter),
            Place::Connected(handed) if handed.owner().is_some() => {
                // A letter that finds no reactor is dropped, which tells the caller.
                drop(handed.owner().and_then(|owner| owner.try_send(letter).err()));
                Ok(())
            }
            Place::Tcp(_) | Place::Connected(_) => self.inner.home.send(letter),
        }
    }

    /// A fresh cell that only the caller holds.
    pub(crate) fn take_cell(&self) -> Arc<CallCell> {
        self.inner.spec.cells.take()
    }

    /// Keeps a cell for another call.
    pub(crate) fn give_cell(&self, mut cell: Arc<CallCell>) {
        let bytes = CallCell::recycle(&mut cell);
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
        let visited = lock(&self.spec.visited).take();
        for mailbox in visited.into_iter().flatten() {
            mailbox.send(Letter::ChannelGone(self.spec.id));
        }
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
            visited: Mutex::new(Some(Vec::new())),
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
        match &mut *lock(&self.visited) {
            Some(visited) => {
                if visited.is_empty() {
                    // Most channels know one reactor only, and a vector begins with room for four.
                    visited.reserve_exact(1);
                }
                visited.push(mailbox);
                true
            }
            None => false,
        }
    }

    /// A reactor that knew the channel has ended.
    pub(crate) fn leave(&self, mailbox: &Mailbox<Letter>) {
        if let Some(visited) = &mut *lock(&self.visited) {
            visited.retain(|other| other.reactor() != mailbox.reactor());
        }
    }

    /// What secures its connections.
    pub(crate) fn security(&self) -> &ClientSecurity {
        match &self.place {
            Place::Tcp(_) | Place::Connected(_) => &self.config.security,
            // Bytes that never leave the process.
            Place::InProcess(_) => &ClientSecurity::None,
        }
    }

    #[cfg(test)]
    pub(crate) fn visitors(&self) -> usize {
        lock(&self.visited).as_ref().map_or(0, Vec::len)
    }

    /// What texts call the server.
    pub(crate) fn name(&self) -> &str {
        match &self.place {
            Place::Tcp(target) => &target.uri,
            Place::Connected(handed) => &handed.target.uri,
            Place::InProcess(_) => "the in-process server",
        }
    }

    pub(crate) fn authority(&self) -> &str {
        match &self.place {
            Place::Tcp(target) => &target.authority,
            Place::Connected(handed) => &handed.target.authority,
            // Like a Unix socket's, which has no host either (gRPC "naming": `localhost`).
            Place::InProcess(_) => "localhost",
        }
    }
}

impl Place {
    /// Whether a reactor can have a connection to it: an in-process server's own reactors only.
    pub(crate) fn is_reached_from(&self, mailbox: &Mailbox<Letter>) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Connected(handed) => handed.is_on(mailbox),
            Self::InProcess(server) => server.is_served_by(mailbox),
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

/// Settings of a channel to be. Made by [`Channel::builder`] and
/// [`blocking::Channel::builder`](crate::blocking::Channel::builder).
///
/// ```no_run
/// # async fn run() -> Result<(), fulmar::ConnectError> {
/// use std::time::Duration;
///
/// let channel = fulmar::Channel::builder("http://127.0.0.1:50051")
///     .connect_timeout(Duration::from_secs(2))
///     .timeout(Duration::from_millis(50))
///     .receive_message_bytes_max(16 << 20)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct ChannelBuilder {
    endpoint: String,
    pub(super) config: ChannelConfig,
    reactor: Option<ClientReactor>,
    user_agent: String,
    chain: Chain,
    security: SecurityChoice,
    connected: Option<Arc<Mutex<Option<Socket>>>>,
    /// The first setting that cannot be.
    failed: Option<String>,
}

/// The longest name of a program in the user agent, in bytes: it goes with every call, and must not use up its header list.
const USER_AGENT_BYTES_MAX: usize = 256;

impl ChannelBuilder {
    /// How long a connection may take, name resolution and the server's SETTINGS included. 20 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// A deadline for calls whose request sets none. None by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = Some(timeout);
        self
    }

    /// How many calls may wait, on each reactor that makes calls, while there is no connection or while the server takes no more
    /// calls at a time on the one there is. 65,536 by default; further ones fail with `RESOURCE_EXHAUSTED`.
    pub fn waiting_calls_max(mut self, calls: usize) -> Self {
        self.config.waiting_calls_max = calls;
        self
    }

    /// The longest message taken from the server, in bytes. 4 MiB by default; a longer one fails its call with
    /// `RESOURCE_EXHAUSTED`.
    pub fn receive_message_bytes_max(mut self, bytes: usize) -> Self {
        self.config.grpc.receive_message_bytes_max = bytes;
        self
    }

    /// The longest message sent, in bytes. Unlimited by default; a longer one fails its call with `RESOURCE_EXHAUSTED`, and
    /// nothing is sent.
    pub fn send_message_bytes_max(mut self, bytes: usize) -> Self {
        self.config.grpc.send_message_bytes_max = bytes;
        self
    }

    /// How many bytes of messages a connection may hold that were received and that no caller has taken. 64 MiB by default. Above it
    /// the server may go on with one message only, the one that is unfinished longest; what is under way may still
    /// arrive, but above this and one message of the largest size, the call that holds most fails with `RESOURCE_EXHAUSTED`.
    pub fn held_bytes_max(mut self, bytes: usize) -> Self {
        self.config.grpc.held_bytes_max = bytes;
        self
    }

    /// What turns the name of the endpoint into addresses, instead of the resolver of the operating system. It is not asked about
    /// literal addresses.
    pub fn resolver(mut self, resolve: impl Resolve) -> Self {
        self.config.resolver = Some(Arc::new(resolver_of(resolve)));
        self
    }

    /// What the program calls itself, such as `shop/1.4`: it stands in the `user-agent` of each request, in front of the name of
    /// this library. At most 256 bytes of printable ASCII; making the channel fails otherwise.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = name.into();
        self
    }

    /// Takes messages in this encoding, and tells servers so. Several may be accepted; servers choose. None by default.
    ///
    /// ```
    /// # #[cfg(feature = "gzip")]
    /// use fulmar::encoding::Gzip;
    ///
    /// # #[cfg(feature = "gzip")]
    /// let settings = fulmar::Channel::builder("http://127.0.0.1:50051")
    ///     .accept_compressed(Gzip::default())
    ///     .send_compressed(Gzip::default());
    /// ```
    pub fn accept_compressed(mut self, encoding: impl Encoding) -> Self {
        let accepted = self.config.grpc.encodings.accept(Arc::new(encoding));
        self.fail(accepted);
        self
    }

    /// Sends messages in this encoding where that makes them smaller, unless a request
    /// [says](crate::Request::set_compression) something else. The server must accept it: it answers `UNIMPLEMENTED` otherwise. Of
    /// several the first is taken; a request may name another one. None by default.
    pub fn send_compressed(mut self, encoding: impl Encoding) -> Self {
        let sent = self.config.grpc.encodings.send(Arc::new(encoding));
        self.fail(sent);
        self
    }

    fn fail(&mut self, registered: Result<(), RegisterError>) {
        if let Err(error) = registered {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    /// What the operating system is asked to do with the channel's sockets. Where no
    /// [user timeout](SocketOptions::user_timeout) is set, that of [`keepalive`](Self::keepalive) is.
    pub fn socket_options(mut self, options: SocketOptions) -> Self {
        self.config.sockets = options;
        self
    }

    /// Takes a connection that is there already, instead of making one: a connected `TcpStream` or `UnixStream` of the standard
    /// library, made in whatever way. Nagle's algorithm is switched off on it, and the [socket options](Self::socket_options) are
    /// set as far as they can be. The endpoint is then only what the server is called.
    ///
    /// The connection is the channel's only one: when it ends, calls fail with `UNAVAILABLE`. It lives on the reactor of the first
    /// caller that is on one, and on a client reactor thread otherwise. Of several channels that are made of clones of these settings
    /// the first gets it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = std::net::TcpStream::connect("127.0.0.1:50051")?;
    /// let channel = fulmar::Channel::builder("http://greeter").connected(stream).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connected(mut self, socket: impl Into<Socket>) -> Self {
        self.connected = Some(Arc::new(Mutex::new(Some(socket.into()))));
        self
    }

    /// Settings of the HTTP/2 connection: windows, limits. Its keepalive and ages do not count: they are set with
    /// [`keepalive`](Self::keepalive) and [`idle_timeout`](Self::idle_timeout).
    pub fn http2(mut self, config: fulmar_http2::Config) -> Self {
        self.config.grpc.http2 = config;
        self
    }

    /// Puts an interceptor around all calls, inside of those that were added before.
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.chain = self.chain.with(interceptor);
        self
    }

    /// Secures the connection as `tls` says. An endpoint that begins with `https://` is secured without this, too, and then trusts the
    /// certificate authorities that Mozilla trusts; one that begins with `http://` cannot be secured.
    ///
    /// ```no_run
    /// use fulmar::tls::ClientTls;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = ClientTls::from_ca_pem(std::fs::read("ca.pem")?)?;
    /// let channel = fulmar::Channel::builder("https://127.0.0.1:50051").tls(tls).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "_tls")]
    pub fn tls(mut self, tls: fulmar_tls::ClientTls) -> Self {
        self.security.tls = Some(tls);
        self
    }

    /// Takes a client reactor of the user's instead of the one of the process. Only for [`Channel`].
    pub fn reactor(mut self, reactor: &ClientReactor) -> Self {
        self.reactor = Some(reactor.clone());
        self
    }

    /// Makes the channel and connects it, as [`Channel::connect`].
    ///
    /// # Errors
    /// As [`Channel::connect`].
    pub async fn connect(self) -> Result<Channel, ConnectError> {
        let channel = self.build()?;
        channel.ready().await?;
        Ok(channel)
    }

    /// Makes the channel; its first call connects.
    ///
    /// # Errors
    /// An endpoint or a user agent that is none, an encoding with a name that cannot be one, TLS with an endpoint that cannot have
    /// it, a connection that was handed in and is none or is another channel's.
    pub fn build(self) -> Result<Channel, ConnectError> {
        let (reactor, chain) = (self.reactor.clone(), self.chain.clone());
        let (place, config, _) = self.into_parts()?;
        Ok(Channel { chain, ..Channel::new(place, config, reactor) })
    }

    pub(crate) fn into_parts(mut self) -> Result<(Place, ChannelConfig, Chain), ConnectError> {
        let name = self.user_agent.trim();
        if name.len() > USER_AGENT_BYTES_MAX || !name.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
            let reason =
                format!("the user agent is not printable ASCII of at most {USER_AGENT_BYTES_MAX} bytes");
            return Err(ConnectError::new(&self.endpoint, reason));
        }
        if !name.is_empty() {
            let agent = format!("{name} {}", self.config.grpc.user_agent);
            self.config.grpc.user_agent = agent.into();
        }
        if let Some(reason) = self.failed {
            return Err(ConnectError::new(&self.endpoint, reason));
        }
        let target = Target::parse(&self.endpoint)?;
        let security = self
            .security
            .resolve(target.is_secure, &target.host)
            .map_err(|reason| ConnectError::new(&self.endpoint, reason))?;
        if !matches!(security, ClientSecurity::None) {
            self.config.security = security;
        }
        let place = match self.connected {
            None => Place::Tcp(target),
            Some(socket) => {
                let fail = |reason: String| ConnectError::new(&self.endpoint, reason);
                let socket = lock(&socket).take().ok_or_else(|| fail(HANDED_IN_IS_OVER.to_owned()))?;
                let checked = socket.check().and_then(|()| socket.apply(&self.config.socket_options()));
                checked.map_err(|error| fail(format!("the connection that was handed in: {error}")))?;
                Place::Connected(Arc::new(Handed::new(target, socket)))
            }
        };
        Ok((place, self.config, self.chain))
    }
}
