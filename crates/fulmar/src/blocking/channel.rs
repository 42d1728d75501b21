//! The blocking channel: one connection, driven by whoever calls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use fulmar_base::{Closed, Instant};
use fulmar_grpc::Status;
use fulmar_reactor::{Address, Lone, clock};

use super::{Duplex, Streaming, Upload};
use crate::call::cell::CellState;
use crate::call::{CallCell, CellShape, CellShelf};
use crate::client::endpoint::{ClientEndpoint, Command, NO_SETTINGS};
use crate::client::handed::HANDED_IN_IS_OVER;
use crate::client::resolve::unresolved;
use crate::client::target::Target;
use crate::client::{
    ChannelBuilder, ChannelConfig, ChannelSpec, ConnectivityState, PendingCall, Place, Return, calls,
    interleaved, pass_blocking, reply, share_of, too_late,
};
use crate::context::CallContext;
use crate::counts::Counts;
use crate::error::{ConnectError, TransportError};
use crate::intercept::{Chain, Interceptor};
use crate::local::refuse_on_reactor;
use crate::metadata_lease::{MetadataLease, MetadataShelf};
use crate::payload::Payload;
use crate::request::IntoRequest;
use crate::response::Response;
use crate::wire::{NO_HANDSHAKE, Wire};

/// How often one call is given to a connection: again after one that turned out to take no calls, and once more.
const STARTS_MAX: usize = 3;

/// A connection to a server, for one thread at a time: the calling thread writes and reads the socket itself.
///
/// It is `Send` but not `Clone`, and calls take `&mut self`: they run one after the other. Between calls nothing moves, so a
/// server with keepalive may close an idle connection; each call first looks at what has arrived, and a connection that is dead or
/// told to end is replaced before the call leaves. For many callers, or for life between calls, use the asynchronous
/// [`Channel`](crate::Channel).
///
/// ```no_run
/// use fulmar::{Raw, Response, blocking::Channel};
///
/// let mut channel = Channel::connect("http://127.0.0.1:50051")?;
/// let reply: Response<Raw> = channel.unary("/helloworld.Greeter/SayHello", Raw::from(vec![0x0a, 0x01, b'x']))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Channel {
    spec: Arc<ChannelSpec>,
    connection: Option<Connection>,
    cells: CellShelf,
    shelf: Arc<MetadataShelf>,
    chain: Chain,
    /// What the last attempt to connect has come to, if it has failed.
    failed: Option<Box<Failed>>,
}

/// An attempt to connect that has failed.
struct Failed {
    error: ConnectError,
    /// How many in a row have.
    failures: u32,
    /// When there may be another one.
    retry_at: Instant,
}

type Connection = Lone<Wire<ClientEndpoint>>;

impl Channel {
    /// Connects to `endpoint`, which is written as for [`Channel::connect`](crate::Channel::connect), and waits for the server's
    /// SETTINGS, 20 s at most.
    ///
    /// # Errors
    /// An endpoint that is none, a name that does not resolve, a server that does not answer or does not speak HTTP/2; also on a
    /// reactor's thread, which waiting would stop.
    pub fn connect(endpoint: impl AsRef<str>) -> Result<Self, ConnectError> {
        Self::with(Self::builder(endpoint))
    }

    /// Settings for [`with`](Self::with) and [`lazy`](Self::lazy). A [client reactor](ChannelBuilder::reactor) in them does not count.
    pub fn builder(endpoint: impl AsRef<str>) -> ChannelBuilder {
        crate::Channel::builder(endpoint)
    }

    /// Connects with other settings than the defaults.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use fulmar::blocking::Channel;
    ///
    /// let settings = Channel::builder("http://127.0.0.1:50051").connect_timeout(Duration::from_secs(1));
    /// let channel = Channel::with(settings)?;
    /// # Ok::<(), fulmar::ConnectError>(())
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn with(settings: ChannelBuilder) -> Result<Self, ConnectError> {
        let mut channel = Self::lazy(settings)?;
        refuse_on_reactor("connecting a blocking channel")
            .map_err(|status| ConnectError::from_status(channel.spec.name(), &status))?;
        let connect_by = clock().saturating_add(channel.config().connect_timeout);
        channel.connection = Some(channel.open(connect_by)?);
        Ok(channel)
    }

    /// Makes a channel that connects with its first call, which fails if that fails, and leaves it to a later one to try again.
    ///
    /// # Errors
    /// An endpoint that is none, and other settings that cannot be.
    pub fn lazy(settings: ChannelBuilder) -> Result<Self, ConnectError> {
        let (place, config, chain) = settings.into_parts()?;
        Ok(Self {
            spec: Arc::new(ChannelSpec::new(0, place, config)),
            connection: None,
            cells: CellShelf::default(),
            shelf: Arc::default(),
            chain,
            failed: None,
        })
    }

    /// What state the channel is in, as far as it knows without looking: ready if it has a connection, failing if the last attempt to
    /// make one has failed, idle otherwise.
    pub fn state(&mut self) -> ConnectivityState {
        let takes_calls = |connection: &mut Connection| connection.transport().endpoint_mut().takes_calls();
        if self.connection.as_mut().is_some_and(takes_calls) {
            ConnectivityState::Ready
        } else if self.failed.is_some() {
            ConnectivityState::TransientFailure
        } else {
            ConnectivityState::Idle
        }
    }

    /// How much is in use for this channel.
    pub fn counts(&mut self) -> Counts {
        let of_calls =
            Counts { cells: self.cells.in_use(), metadata_maps: self.shelf.in_use(), ..Counts::default() };
        match &mut self.connection {
            Some(connection) => {
                let blocks = connection.pool().outstanding();
                let held_bytes = connection.pool().held_bytes();
                let counts = Counts {
                    connections: 1,
                    blocks,
                    held_bytes,
                    ..connection.transport().endpoint_mut().counts()
                };
                counts + of_calls
            }
            None => of_calls,
        }
    }

    /// The same channel with an interceptor around its calls, inside of those that are there. The calling thread sleeps while an
    /// interceptor waits, at most until the deadline of the call, and its connection with it.
    #[must_use]
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.chain = self.chain.with(interceptor);
        self
    }

    /// Calls a method that takes one message and answers with one. `path` is `/package.Service/Method`.
    ///
    /// # Errors
    /// The server's status; `DEADLINE_EXCEEDED` when the request's timeout has passed; `UNAVAILABLE` when there is no
    /// connection; `INTERNAL` on a reactor's thread.
    pub fn unary<Req: Payload, Resp: Payload>(
        &mut self,
        path: &str,
        request: impl IntoRequest<Req>,
    ) -> Result<Response<Resp>, Status> {
        let (message, context) = request.into_request().into_message_and_context();
        let cell = self.begin(path, context, CellShape::OneReply, Some(&message))?;
        self.reply(cell)
    }

    /// Calls a method that takes one message and answers with a stream of them. Waits for the server's metadata.
    ///
    /// # Errors
    /// As [`unary`](Self::unary), for calls that fail before there is any metadata; later failures come from the stream.
    pub fn server_streaming<Req: Payload, Resp: Payload>(
        &mut self,
        path: &str,
        request: impl IntoRequest<Req>,
    ) -> Result<Response<Streaming<'_, Resp>>, Status> {
        let (message, context) = request.into_request().into_message_and_context();
        let cell = self.begin(path, context, CellShape::EachMessage, Some(&message))?;
        let mut replies = Streaming::new(self, cell.clone());
        if let Err(status) = replies.wait(CellState::check_metadata) {
            return Err(cell.fail(status));
        }
        let metadata = cell.take_metadata(|metadata| replies.shelf().lease_from(metadata))?;
        let encoding = cell.lock().encoding_in.clone();
        Ok(Response::with_leases(replies, metadata, MetadataLease::default()).received(encoding, false))
    }

    /// Calls a method that takes a stream of messages and answers with one. The request carries metadata and deadline only.
    ///
    /// # Errors
    /// `UNAVAILABLE` when there is no connection; `INTERNAL` on a reactor's thread.
    pub fn client_streaming<Req: Payload, Resp: Payload>(
        &mut self,
        path: &str,
        request: impl IntoRequest<()>,
    ) -> Result<Upload<'_, Req, Resp>, Status> {
        let ((), context) = request.into_request().into_message_and_context();
        let cell = self.begin::<Req>(path, context, CellShape::WholeCall, None)?;
        Ok(Upload::new(self, cell))
    }

    /// Calls a method that streams both ways. The request carries metadata and deadline only.
    ///
    /// # Errors
    /// `UNAVAILABLE` when there is no connection; `INTERNAL` on a reactor's thread.
    pub fn bidi<Req: Payload, Resp: Payload>(
        &mut self,
        path: &str,
        request: impl IntoRequest<()>,
    ) -> Result<Duplex<'_, Req, Resp>, Status> {
        let ((), context) = request.into_request().into_message_and_context();
        let cell = self.begin::<Req>(path, context, CellShape::EachMessage, None)?;
        Ok(Duplex::new(self, cell))
    }
}

/// Running a call.
impl Channel {
    /// Prepares a call and gives it to the connection, with its only message if it has one.
    fn begin<Req: Payload>(
        &mut self,
        path: &str,
        mut context: CallContext,
        shape: CellShape,
        only: Option<&Req>,
    ) -> Result<Arc<CallCell>, Status> {
        refuse_on_reactor("a blocking call")?;
        let extensions = context.take_extensions();
        let mut cell = self.cells.take();
        let prepared = calls::prepare(&mut cell, path, &mut context, shape, &self.spec);
        if let Err(status) = prepared {
            self.give_cell(cell);
            return Err(status);
        }
        if !self.chain.is_empty() {
            pass_blocking(&self.chain, path, extensions, &cell).map_err(|status| cell.fail(status))?;
        }
        let encoded = match only {
            Some(message) => CallCell::encode_whole(&mut cell, message, self.send_message_bytes_max(), None),
            None => Ok(false),
        };
        let started = encoded.and_then(|_| self.start(PendingCall::call(cell.clone())));
        match started {
            Ok(()) => Ok(cell),
            Err(status) => Err(cell.fail(status)),
        }
    }

    /// Gives a call to the connection, which is replaced first if it is dead.
    fn start(&mut self, pending: PendingCall) -> Result<(), Status> {
        let usable = self.connection.as_mut().is_some_and(|connection| {
            connection.drain().is_ok() && connection.transport().endpoint_mut().takes_calls()
        });
        if !usable {
            self.connection = None;
            let state = pending.cell().lock();
            let (deadline, waits) = (state.deadline, state.waits_for_ready);
            drop(state);
            match self.reconnect(deadline, waits) {
                Ok(connection) => self.connection = Some(connection),
                Err(status) => {
                    pending.end(status.clone());
                    return Err(status);
                }
            }
        }
        if let Some(connection) = &mut self.connection {
            // A connection that fails here tells the call's cell, or gives the call back.
            let _ = connection.command(Command::Start(pending));
        }
        Ok(())
    }

    /// Makes a connection for a call: at once, or when it is time to try again, which only a call waits for that `waits` for ready.
    fn reconnect(&mut self, deadline: Option<Instant>, waits: bool) -> Result<Connection, Status> {
        let began_waiting = clock();
        loop {
            let began = clock();
            if let Some(failed) = self.failed.as_ref().filter(|failed| failed.retry_at > began) {
                if !waits {
                    return Err(failed.error.clone().into());
                }
                let until = deadline.map_or(failed.retry_at, |deadline| deadline.min(failed.retry_at));
                thread::sleep(time_left(until));
            }
            let (began, is_late) = (clock(), |now| deadline.is_some_and(|deadline| deadline <= now));
            let error = self.failed.as_ref().map(|failed| failed.error.reason());
            if is_late(began) {
                let waited = began.saturating_duration_since(began_waiting);
                return Err(Status::deadline_exceeded(too_late(self.spec.name(), waited, error)));
            }
            let connect_by = began.saturating_add(self.config().connect_timeout);
            match self.open(deadline.map_or(connect_by, |deadline| deadline.min(connect_by))) {
                Ok(connection) => {
                    self.failed = None;
                    return Ok(connection);
                }
                Err(error) if is_late(clock()) => {
                    let waited = clock().saturating_duration_since(began_waiting);
                    let text = too_late(self.spec.name(), waited, Some(error.reason()));
                    return Err(Status::deadline_exceeded(text));
                }
                Err(error) => {
                    let failures = self.failed.as_ref().map_or(0, |failed| failed.failures).saturating_add(1);
                    let retry_at = began.saturating_add(self.config().backoff.after(failures));
                    self.failed = Some(Box::new(Failed { error: error.clone(), failures, retry_at }));
                    if !waits {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Resolves the name and tries each address until one speaks HTTP/2.
    fn open(&self, connect_by: Instant) -> Result<Connection, ConnectError> {
        let fail = |status: &Status| ConnectError::from_status(self.spec.name(), status);
        let target = match &self.spec.place {
            Place::Tcp(target) => target,
            Place::Connected(handed) => {
                let socket = handed.take().ok_or_else(|| fail(&Status::unavailable(HANDED_IN_IS_OVER)))?;
                let adopt = |make| Lone::adopt(socket, make);
                return self.open_by(connect_by, adopt).map_err(|status| fail(&status));
            }
            Place::Dialled(dialer) => {
                let socket = dialer.dial(&self.spec.socket_options()).map_err(|status| fail(&status))?;
                let adopt = |make| Lone::adopt(socket, make);
                return self.open_by(connect_by, adopt).map_err(|status| fail(&status));
            }
            // There is no way to make a blocking channel to one.
            Place::InProcess(_) => return Err(fail(&Status::unavailable("it has no socket"))),
        };
        let mut last_error = Status::unavailable("the name has no addresses");
        let addresses = self
            .addresses(target, connect_by)
            .map_err(|status| ConnectError::from_status(target.uri(), &status))?;
        let addresses = interleaved(addresses);
        let count = addresses.len();
        for (tried, address) in addresses.into_iter().enumerate() {
            let left = time_left(connect_by);
            if left.is_zero() && tried > 0 {
                break;
            }
            let by = clock().saturating_add(share_of(left, count - tried));
            let connect =
                |make| Lone::connect((address, &self.spec.socket_options()), Some(time_left(by)), make);
            match self.open_by(by, connect) {
                Ok(connection) => return Ok(connection),
                Err(status) => last_error = status,
            }
        }
        Err(fail(&last_error))
    }

    /// Why there is no connection at an address.
    fn failure(&self, closed: &Closed) -> Status {
        Status::unavailable(closed.text.clone()).with_source(TransportError::new(self.spec.name(), closed))
    }

    fn addresses(&self, target: &Target, connect_by: Instant) -> Result<Vec<Address>, Status> {
        if let Some(address) = target.literal_address() {
            return Ok(vec![address]);
        }
        self.config()
            .resolver()
            .resolve_within(target.host(), target.port, time_left(connect_by))
            .map(|addresses| addresses.into_iter().map(Address::Ip).collect())
            .map_err(|error| unresolved(&error))
    }

    /// Connects in the way given, and waits for the server's SETTINGS.
    fn open_by(
        &self,
        by: Instant,
        connect: impl FnOnce(Box<dyn FnOnce() -> Wire<ClientEndpoint>>) -> io::Result<Connection>,
    ) -> Result<Connection, Status> {
        // The time is watched here: an endpoint that fails takes its leave of the peer, which takes time of its own.
        let for_ever = Instant::from_nanos(u64::MAX);
        let (spec, wiring) = (self.spec.clone(), self.spec.security().wiring(for_ever));
        let make = move || {
            let not_processed = Return::Kept(VecDeque::new());
            wiring.wire(ClientEndpoint::new(spec, None, not_processed, for_ever))
        };
        let mut connection = connect(Box::new(make))
            .map_err(|error| self.failure(&Closed::peer(error.to_string()).caused_by(error.kind())))?;
        while !connection.transport().endpoint_mut().is_ready() {
            if time_left(by).is_zero() {
                let is_handshaking = connection.transport().is_handshaking();
                let text = if is_handshaking { NO_HANDSHAKE } else { NO_SETTINGS };
                return Err(self.failure(&Closed::peer(text).caused_by(io::ErrorKind::TimedOut)));
            }
            if let Err(closed) = connection.turn(Some(by)) {
                return Err(self.failure(&connection.transport().explain(&closed)));
            }
        }
        Ok(connection)
    }

    /// Drives the connection until `check` finds in the call's cell what it looks for.
    pub(super) fn wait<R>(
        &mut self,
        cell: &Arc<CallCell>,
        mut check: impl FnMut(&mut CellState) -> Poll<R>,
    ) -> R {
        let mut starts = 1;
        loop {
            if let Poll::Ready(found) = check(&mut cell.lock()) {
                return found;
            }
            let (turned, returned) = match self.take_returned() {
                // Given back when it was to start: nothing will come for it.
                Some(pending) => (Ok(()), Some(pending)),
                None => (self.look(cell).and_then(|()| self.turn()), self.take_returned()),
            };
            match (turned, returned) {
                (_, Some(pending)) if starts < STARTS_MAX => {
                    starts += 1;
                    // A failure ends the call, and the check sees it.
                    let _ = self.start(pending);
                }
                (Ok(()), None) => {}
                // A connection that ends tells its calls; this one was not there when it did.
                (Ok(()) | Err(_), _) => {
                    self.connection = None;
                    let text = format!("the connection to {} was lost", self.spec.name());
                    let ended = cell.lock().end(Status::unavailable(text));
                    // Nobody but this thread waits.
                    ended.into_iter().for_each(drop);
                }
            }
        }
    }

    /// Makes the connection see what the user's side of the call has done.
    fn look(&mut self, cell: &Arc<CallCell>) -> Result<(), Closed> {
        let state = cell.lock();
        let slot = state.slot.filter(|_| state.knocked);
        drop(state);
        match (slot, &mut self.connection) {
            (Some(slot), Some(connection)) => connection.command(Command::Look(slot)),
            _ => Ok(()),
        }
    }

    /// A call that the connection took and did not send.
    fn take_returned(&mut self) -> Option<PendingCall> {
        self.connection.as_mut()?.transport().endpoint_mut().take_returned()
    }

    fn turn(&mut self) -> Result<(), Closed> {
        match &mut self.connection {
            Some(connection) => connection.turn(None),
            None => Err(Closed::local("there is no connection")),
        }
    }

    /// Makes the connection see what the user's side of the call has done, and writes what comes of it, without waiting.
    pub(super) fn flush(&mut self, cell: &Arc<CallCell>) {
        // A connection that fails tells the call, whose next use sees it.
        let _ = self.look(cell);
        if let Some(connection) = &mut self.connection {
            let _ = connection.flush();
        }
    }

    /// Waits for the end of a call that has one reply.
    pub(super) fn reply<Resp: Payload>(&mut self, mut cell: Arc<CallCell>) -> Result<Response<Resp>, Status> {
        self.wait(&cell, CellState::check_end);
        let response = reply::take_single(&mut cell, &self.shelf);
        self.give_cell(cell);
        response
    }

    pub(super) fn give_cell(&mut self, cell: Arc<CallCell>) {
        if let Some(connection) = &mut self.connection {
            connection.transport().endpoint_mut().forget_given_up();
        }
        self.cells.give(cell);
    }

    pub(super) fn shelf(&self) -> &Arc<MetadataShelf> {
        &self.shelf
    }

    pub(super) fn send_message_bytes_max(&self) -> usize {
        self.config().grpc.send_message_bytes_max
    }

    fn config(&self) -> &ChannelConfig {
        &self.spec.config
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close(&Closed::local("the channel was dropped"));
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("endpoint", &self.spec.name()).finish_non_exhaustive()
    }
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(clock())
}
