//! Building a server and running it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use fulmar_grpc::encoding::{Encoding, RegisterError};
use fulmar_grpc::{Config, Status};
use fulmar_reactor::{Address, ListeningSocket, Reactor, ReactorConfig, SocketOptions};

use super::addresses::ToAddresses;
use super::lives::Lives;
use super::router::{Router, Service};
use super::{Admission, Door, Placement, RunningServer, ServerHandle, ServerShared};
use crate::call::{Replies, Streaming};
use crate::error::ServerError;
use crate::host::{self, RoofHost};
use crate::intercept::{Chain, Interceptor};
use crate::payload::Raw;
use crate::peer::Peer;
use crate::request::Request;
use crate::wire::ServerSecurity;

/// Settings of a server to be.
///
/// ```no_run
/// # fn services() -> impl fulmar::Service { struct S; impl fulmar::Service for S { fn name(&self) -> &'static str { "s" } fn register(&self, _: &mut fulmar::Router) {} } S }
/// # fn main() -> Result<(), fulmar::ServerError> {
/// let server = fulmar::Server::builder()
///     .reactors(4)
///     .receive_message_bytes_max(16 << 20)
///     .add_service(services())
///     .bind("127.0.0.1:50051")?;
/// server.run()
/// # }
/// ```
#[must_use]
pub struct ServerBuilder {
    config: Config,
    services: Vec<Box<dyn Service>>,
    chain: Chain,
    door: Option<Door>,
    security: ServerSecurity,
    pub(super) lives: Lives,
    reactors: usize,
    reactor: ReactorConfig,
    sockets: SocketOptions,
    listeners: Vec<ListeningSocket>,
    around_thread: Option<AroundThread>,
    placement: Placement,
    /// The first setting that cannot be.
    failed: Option<ServerError>,
}

/// Called on each reactor thread with what the thread is to run.
type AroundThread = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// A server that is bound and not running yet.
pub struct Server {
    shared: Arc<ServerShared>,
    listeners: Vec<ListeningSocket>,
    reactors: usize,
    reactor: ReactorConfig,
    around_thread: Option<AroundThread>,
}

impl Server {
    /// A builder with the defaults.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            config: Config::default(),
            services: Vec::new(),
            chain: Chain::default(),
            door: None,
            security: ServerSecurity::None,
            lives: Lives::default(),
            reactors: thread::available_parallelism().map_or(1, usize::from),
            reactor: ReactorConfig::default(),
            sockets: SocketOptions::default(),
            listeners: Vec::new(),
            around_thread: None,
            placement: Placement::default(),
            failed: None,
        }
    }

    /// Serves until a [`ServerHandle`] shuts the server down. Waits; the threads of the reactors are others.
    ///
    /// # Errors
    /// A thread or an event queue could not be had.
    pub fn run(self) -> Result<(), ServerError> {
        self.spawn()?.join()
    }

    /// Starts serving and returns at once.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn spawn(mut self) -> Result<RunningServer, ServerError> {
        let addresses = self.local_addresses();
        let mut listeners = std::mem::take(&mut self.listeners);
        let mut threads = Vec::with_capacity(self.reactors);
        // The reactor with the listeners starts last, when there is somebody to give connections to.
        for index in (0..self.reactors).rev() {
            let listeners = if index == 0 { std::mem::take(&mut listeners) } else { Vec::new() };
            match self.start_thread(index, listeners) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.shared.shutdown(std::time::Duration::ZERO);
                    return Err(error);
                }
            }
        }
        Ok(RunningServer::new(ServerHandle::new(self.shared), addresses, threads))
    }

    fn start_thread(
        &self,
        index: usize,
        listeners: Vec<ListeningSocket>,
    ) -> Result<JoinHandle<std::io::Result<()>>, ServerError> {
        let (shared, config, around) =
            (self.shared.clone(), self.reactor.clone(), self.around_thread.clone());
        let (sender, receiver) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("fulmar-server-{index}"))
            .spawn(move || {
                let mut reactor = Reactor::new(config, |core| RoofHost::new(core))?;
                let (host, core) = reactor.parts();
                let started = host.serve(core, &shared, listeners, true);
                let is_started = started.is_ok();
                drop(sender.send(started));
                let mut ended = Ok(());
                let mut may_run = is_started;
                let mut serve = || {
                    // What is around it may call it again.
                    if std::mem::take(&mut may_run) {
                        ended = host::run(&mut reactor);
                    }
                };
                match around {
                    Some(around) => around(&mut serve),
                    None => serve(),
                }
                ended
            })
            .map_err(|error| ServerError::io("cannot start a reactor thread", error))?;
        match receiver.recv() {
            Ok(started) => started.map(|()| thread),
            // The thread has ended before it could serve: its result says why.
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(ServerError::io("cannot start a reactor", error)),
                _ => Err(ServerError::new("a reactor thread ended before it began")),
            },
        }
    }

    /// The address of TCP that the server is bound to; the port is the real one, also where 0 was asked for. The first where there
    /// are several.
    ///
    /// # Errors
    /// A server without a listener of TCP, or one that the operating system does not know any more.
    pub fn local_addr(&self) -> Result<SocketAddr, ServerError> {
        let address = self.local_addresses().iter().find_map(Address::ip);
        address
            .ok_or_else(|| ServerError::new("the server has no listener of TCP: it is reached by other ways"))
    }

    /// Where the server listens, in the order in which the listeners were given.
    pub fn local_addresses(&self) -> Vec<Address> {
        self.listeners.iter().filter_map(|listener| listener.local_address().ok()).collect()
    }

    /// A handle to shut the server down, and to reach it in-process, from anywhere.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(self.shared.clone())
    }

    pub(crate) fn into_parts(self) -> (Arc<ServerShared>, Vec<ListeningSocket>) {
        (self.shared, self.listeners)
    }
}

impl ServerBuilder {
    /// How many reactor threads serve. New connections go to the one that has fewest. By default as many as the machine has
    /// processors; at least one.
    pub fn reactors(mut self, reactors: usize) -> Self {
        self.reactors = reactors.max(1);
        self
    }

    /// Where handlers run: by default on the reactor of their connection. [`Placement::Spread`] lets the calls of one connection use
    /// all reactors.
    ///
    /// Nothing else changes: placed handlers have the same requests, streams, deadlines and cancellation, and may do the same. An
    /// answer is encoded, and a request decoded, where the handler runs.
    ///
    /// ```
    /// use fulmar::{Placement, Server};
    ///
    /// let builder = Server::builder().reactors(4).placement(Placement::Spread);
    /// ```
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Adds a service.
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.services.push(Box::new(service));
        self
    }

    /// Takes all calls to methods that no service has; without it they end `UNIMPLEMENTED`. The handler sees a call of any kind as one
    /// that streams both ways, with messages as bytes; [`Request::path`] says which method was called.
    ///
    /// ```no_run
    /// use fulmar::{Raw, Replies, Request, Server, Streaming};
    ///
    /// let builder = Server::builder().unknown_methods(
    ///     |mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
    ///         println!("{} was called", requests.path());
    ///         while let Some(message) = requests.message().await? {
    ///             replies.send(&message).await?;
    ///         }
    ///         Ok(())
    ///     },
    /// );
    /// ```
    pub fn unknown_methods<F, Fut>(self, handler: F) -> Self
    where
        F: Fn(Request<Streaming<Raw>>, Replies<Raw>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        self.add_service(UnknownMethods(Arc::new(handler)))
    }

    /// Puts an interceptor around all services, inside of those that were added before.
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.chain = self.chain.with(interceptor);
        self
    }

    /// Secures all connections as `tls` says; in-process ones need it not. Clients without TLS are refused. Without this the server
    /// speaks plain text, and clients with TLS are refused.
    ///
    /// ```no_run
    /// use fulmar::tls::ServerTls;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = ServerTls::from_pem(std::fs::read("server.pem")?, std::fs::read("server.key")?)?;
    /// let server = fulmar::Server::builder().tls(tls.clone()).bind("127.0.0.1:50051")?;
    /// // Later, from any thread, when there is another certificate:
    /// tls.reload(std::fs::read("server.pem")?, std::fs::read("server.key")?)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "_tls")]
    pub fn tls(mut self, tls: fulmar_tls::ServerTls) -> Self {
        self.security = ServerSecurity::Tls(tls);
        self
    }

    /// Asks `admit` about each connection when it was accepted, by where it comes from, before anything is read from it or made for
    /// it. False closes it at once. Of several that were set, all must agree.
    ///
    /// It runs on the reactor's thread that accepts, so it must not wait. In-process channels are not asked about.
    ///
    /// ```
    /// let builder = fulmar::Server::builder().admit_connections(|peer| {
    ///     peer.address().is_none_or(|address| address.ip().is_loopback())
    /// });
    /// ```
    pub fn admit_connections(mut self, admit: impl Fn(&Peer) -> bool + Send + Sync + 'static) -> Self {
        self.door.get_or_insert_default().add_for_connections(Box::new(admit));
        self
    }

    /// Asks `admit` about each request, before there is any call: no handler, no interceptor, no decoding of messages. The status of a
    /// refusal is the whole answer. Requests that are not gRPC, or name no method of the server, are answered without asking. Of
    /// several that were set each is asked, in turn, until one refuses.
    ///
    /// It runs on the reactor's thread, between the frames of a connection, so it must not wait.
    ///
    /// ```
    /// use fulmar::{Server, Status};
    ///
    /// let builder = Server::builder().admit(|request| {
    ///     if request.calls() < 10_000 { Ok(()) } else { Err(Status::unavailable("the server is busy")) }
    /// });
    /// ```
    pub fn admit(
        mut self,
        admit: impl Fn(&Admission<'_>) -> Result<(), Status> + Send + Sync + 'static,
    ) -> Self {
        self.door.get_or_insert_default().add(Box::new(admit));
        self
    }

    /// The longest message taken from a client, in bytes. 4 MiB by default; a longer one fails its call with
    /// `RESOURCE_EXHAUSTED`.
    pub fn receive_message_bytes_max(mut self, bytes: usize) -> Self {
        self.config.receive_message_bytes_max = bytes;
        self
    }

    /// The longest message sent, in bytes. Unlimited by default; a longer one fails its call with `RESOURCE_EXHAUSTED`.
    pub fn send_message_bytes_max(mut self, bytes: usize) -> Self {
        self.config.send_message_bytes_max = bytes;
        self
    }

    /// How many bytes of messages a connection may hold that were received and that no handler has taken. 64 MiB by default. Above it
    /// the client may go on with one message only, the one that is unfinished longest, and new calls are refused, which clients may
    /// try again. What is under way may still arrive; above this and one message of the largest size, the call that holds most
    /// fails with `RESOURCE_EXHAUSTED`.
    pub fn held_bytes_max(mut self, bytes: usize) -> Self {
        self.config.held_bytes_max = bytes;
        self
    }

    /// The same for all connections of a reactor together: above it, those that hold most are held back and refuse new calls, and
    /// end a call; those that hold less than half of what the greediest one does go on. 1 GiB by default.
    pub fn reactor_held_bytes_max(mut self, bytes: usize) -> Self {
        self.reactor.held_bytes_max = bytes;
        self
    }

    /// How long a client may take nothing at all of what waits to be written to its socket, before its connection is closed. 60 s by
    /// default. It is for clients that have stopped reading altogether; how long a client that reads may withhold the credit that a
    /// stream needs is [`Http2Config::credit_wait_ms`](fulmar_http2::Config::credit_wait_ms).
    pub fn write_stall(mut self, stall: std::time::Duration) -> Self {
        self.reactor.write_stall = stall;
        self
    }

    /// Takes messages in this encoding, and tells clients so. A client that compresses with another one gets `UNIMPLEMENTED` and the
    /// names of those accepted. None by default.
    ///
    /// ```
    /// # #[cfg(feature = "gzip")]
    /// use fulmar::encoding::Gzip;
    ///
    /// # #[cfg(feature = "gzip")]
    /// let settings =
    ///     fulmar::Server::builder().accept_compressed(Gzip::default()).send_compressed(Gzip::default());
    /// ```
    pub fn accept_compressed(mut self, encoding: impl Encoding) -> Self {
        let accepted = self.config.encodings.accept(Arc::new(encoding));
        self.fail(accepted);
        self
    }

    /// Sends messages in this encoding to clients that accept it, where it makes them smaller, unless a handler
    /// [says](crate::Response::set_compression) something else. Of several the first is taken that the client accepts; a handler may
    /// name another one. None by default.
    pub fn send_compressed(mut self, encoding: impl Encoding) -> Self {
        let sent = self.config.encodings.send(Arc::new(encoding));
        self.fail(sent);
        self
    }

    fn fail(&mut self, registered: Result<(), RegisterError>) {
        if let Err(error) = registered {
            self.failed.get_or_insert_with(|| ServerError::new(error.to_string()));
        }
    }

    /// Settings of the HTTP/2 connections: windows, limits. Their keepalive, ping policy and ages do not count: they are set with
    /// [`keepalive`](Self::keepalive), [`ping_policy`](Self::ping_policy), [`max_idle`](Self::max_idle) and [`max_age`](Self::max_age).
    pub fn http2(mut self, config: fulmar_http2::Config) -> Self {
        self.config.http2 = config;
        self
    }

    /// How long a reactor looks for work without sleeping before it sleeps. Zero by default. It costs a processor core while it
    /// lasts and saves the time that waking a thread takes.
    pub fn busy_poll(mut self, busy_poll: std::time::Duration) -> Self {
        self.reactor.busy_poll = busy_poll;
        self
    }

    /// Wraps what each reactor thread runs, for instance to enter a runtime whose timers and I/O the handlers use. Nothing is
    /// wrapped under a [`LocalReactor`](crate::LocalReactor), whose thread is the caller's own.
    ///
    /// ```ignore
    /// let handle = tokio::runtime::Handle::current();
    /// builder.around_thread(move |serve| {
    ///     let _entered = handle.enter();
    ///     serve();
    /// })
    /// ```
    pub fn around_thread(mut self, around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.around_thread = Some(Arc::new(around));
        self
    }

    /// What the operating system is asked to do with the server's sockets: those it binds, and, as far as that can be set late, those
    /// that are handed in.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::{Server, SocketKeepalive, SocketOptions};
    ///
    /// let server = Server::builder()
    ///     .socket_options(SocketOptions {
    ///         keepalive: Some(SocketKeepalive::after(Duration::from_secs(300))),
    ///         ..SocketOptions::default()
    ///     })
    ///     .bind("127.0.0.1:0")?;
    /// # Ok::<(), fulmar::ServerError>(())
    /// ```
    pub fn socket_options(mut self, options: SocketOptions) -> Self {
        self.sockets = options;
        self
    }

    /// Adds a socket that listens already: a `std::net::TcpListener` or a `std::os::unix::net::UnixListener`, made by the program, or
    /// inherited (systemd hands sockets over as descriptors, which the standard library's types can be made of). A server may have
    /// several; [`bind`](Self::bind) adds the last one, [`build`](Self::build) does not.
    ///
    /// The file of a Unix socket that was handed in belongs to whoever has bound it, and is not removed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let server = fulmar::Server::builder().listener(listener).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn listener(mut self, listener: impl Into<ListeningSocket>) -> Self {
        self.listeners.push(listener.into());
        self
    }

    /// Binds to `address` and listens; connections wait until the server runs. An address of TCP, as `"127.0.0.1:50051"`, or a Unix
    /// socket, as `"unix:/run/greeter.sock"` or `"unix-abstract:greeter"`.
    ///
    /// The file of a Unix socket is removed when the server stops listening. One that a killed server has left behind is replaced; if
    /// a server listens there, the address is in use. Who may connect is up to the permissions of the file, which is made with those
    /// that the process's umask leaves, and of its directory; see also [`Peer::unix_credentials`](crate::Peer::unix_credentials).
    ///
    /// # Errors
    /// An address that is none or is taken; socket options that the system does not have, or that cannot be set on a
    /// [listener](Self::listener) that was handed in; two services with one name; an encoding with a name that cannot be one.
    pub fn bind(self, address: impl ToAddresses + std::fmt::Debug) -> Result<Server, ServerError> {
        let fail = |error| ServerError::io(format!("cannot bind to {address:?}"), error);
        let mut bound = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address"));
        for candidate in address.to_addresses().map_err(fail)? {
            bound = ListeningSocket::bind(&candidate, &self.sockets);
            if bound.is_ok() {
                break;
            }
        }
        let listener = bound.map_err(fail)?;
        self.finish(Some(listener))
    }

    /// Adds a socket that listens already, as [`listener`](Self::listener) does, as the last one.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn with_listener(self, listener: impl Into<ListeningSocket>) -> Result<Server, ServerError> {
        self.listener(listener).build()
    }

    /// A server with the [listeners](Self::listener) that were handed in. Without any it is reached as one
    /// [without a listener](Self::without_listener).
    ///
    /// # Errors
    /// Two services with one name; an encoding with a name that cannot be one; socket options that cannot be set on these listeners.
    pub fn build(self) -> Result<Server, ServerError> {
        self.finish(None)
    }

    /// A server without a socket, reached by [`ServerHandle::in_process`] and [`ServerHandle::serve`] only. Listeners that were
    /// handed in are closed.
    ///
    /// # Errors
    /// Two services with one name, or an encoding with a name that cannot be one.
    pub fn without_listener(mut self) -> Result<Server, ServerError> {
        self.listeners.clear();
        self.finish(None)
    }

    /// `bound` has the socket options already.
    fn finish(mut self, bound: Option<ListeningSocket>) -> Result<Server, ServerError> {
        for listener in &self.listeners {
            listener
                .apply(&self.sockets)
                .map_err(|error| ServerError::io("cannot set options of the listener", error))?;
        }
        self.listeners.extend(bound);
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.lives.write_to(&mut self.config.http2);
        let server = ServerShared::new(self.config, self.services, self.chain, self.door, self.security)?
            .with_socket_options(self.sockets);
        Ok(Server {
            shared: Arc::new(server.with_placement(self.placement)),
            listeners: self.listeners,
            reactors: self.reactors,
            reactor: self.reactor,
            around_thread: self.around_thread,
        })
    }
}

/// The handler of all methods that no service has.
struct UnknownMethods<F>(Arc<F>);

impl<F, Fut> Service for UnknownMethods<F>
where
    F: Fn(Request<Streaming<Raw>>, Replies<Raw>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + 'static,
{
    fn name(&self) -> &'static str {
        "the handler of unknown methods"
    }

    fn register(&self, router: &mut Router) {
        router.unknown_methods(&self.0, |handler, requests, replies| handler(requests, replies));
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("listeners", &self.listeners)
            .field("reactors", &self.reactors)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let services: Vec<_> = self.services.iter().map(|service| service.name()).collect();
        f.debug_struct("ServerBuilder").field("services", &services).finish_non_exhaustive()
    }
}
