//! Settings of a channel to be.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulmar_grpc::encoding::{Encoding, RegisterError};
use fulmar_reactor::{Socket, SocketOptions};

use super::{Channel, ChannelConfig, Place};
use crate::client::ClientReactor;
use crate::client::dialer::{Dial, Dialer};
use crate::client::handed::{HANDED_IN_IS_OVER, Handed};
use crate::client::resolve::{Resolve, resolver_of};
use crate::client::target::Target;
use crate::error::ConnectError;
use crate::intercept::{Chain, Interceptor};
use crate::lock;
use crate::wire::{ClientSecurity, SecurityChoice};

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
    pub(in crate::client) config: ChannelConfig,
    reactor: Option<ClientReactor>,
    user_agent: String,
    chain: Chain,
    security: SecurityChoice,
    connected: Option<Arc<Mutex<Option<Socket>>>>,
    dial: Option<Dial>,
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

    /// Makes connections with `dial` instead of dialling the endpoint, which is then only what the server is called: through a proxy,
    /// say, or over what the operating system takes for a socket of TCP. It gives a connected `TcpStream` or `UnixStream` of the
    /// standard library, which is set up as in [`connected`](Self::connected); TLS, if there is any, is spoken over it.
    ///
    /// `dial` may block. Each time that the channel connects it is called on a thread of its own; a blocking channel calls it on the
    /// thread of the caller. What it takes longer than the connect timeout is given up, on a blocking channel once it is back. It is
    /// called again after the [backoff](Self::backoff) when it fails, which calls hear of as `UNAVAILABLE`.
    ///
    /// ```
    /// use std::net::TcpStream;
    ///
    /// let dial = || TcpStream::connect("127.0.0.1:50051");
    /// let channel = fulmar::Channel::builder("http://greeter").dialer(dial).build()?;
    /// # Ok::<(), fulmar::ConnectError>(())
    /// ```
    pub fn dialer<S: Into<Socket>>(
        mut self,
        dial: impl Fn() -> io::Result<S> + Send + Sync + 'static,
    ) -> Self {
        self.dial = Some(Dial::new(dial));
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
    /// A clone of `tls` can show another certificate while the channel is in use ([`ClientTls::reload_identity`]): connections that
    /// begin later show it, and the one that is open goes on with the old.
    ///
    /// [`ClientTls::reload_identity`]: crate::tls::ClientTls::reload_identity
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

    pub(super) fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            config: ChannelConfig::default(),
            reactor: None,
            user_agent: String::new(),
            chain: Chain::default(),
            security: SecurityChoice::default(),
            connected: None,
            dial: None,
            failed: None,
        }
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
            .resolve(target.is_secure, target.host())
            .map_err(|reason| ConnectError::new(&self.endpoint, reason))?;
        if !matches!(security, ClientSecurity::None) {
            self.config.security = security;
        }
        let place = match (self.connected, self.dial) {
            (None, None) => Place::Tcp(target),
            (None, Some(dial)) => Place::Dialled(Arc::new(Dialer::new(target, dial))),
            (Some(socket), _) => {
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
