//! A request: a message, or a stream of them, with its metadata and deadline.

use std::time::Duration;

use fulmar_grpc::{Compression, MetadataMap};
use fulmar_reactor::clock;

use crate::call::Cancellation;
use crate::context::CallContext;
use crate::extensions::Extensions;
use crate::peer::Peer;

/// What a client sends and a handler receives: a message (or a [`Streaming`](crate::Streaming) of them) and what belongs to the
/// call.
///
/// ```
/// use std::time::Duration;
/// use fulmar::Request;
///
/// let mut request = Request::new("message").with_timeout(Duration::from_millis(50));
/// request.metadata_mut().insert("x-trace", "42").unwrap();
/// assert_eq!(request.metadata().get("x-trace"), Some("42"));
/// assert_eq!(request.into_inner(), "message");
/// ```
#[derive(Clone, Debug)]
pub struct Request<T> {
    message: T,
    context: CallContext,
}

impl<T> Request<T> {
    /// A request without metadata and without a deadline.
    pub fn new(message: T) -> Self {
        Self { message, context: CallContext::default() }
    }

    pub(crate) fn with_context(message: T, context: CallContext) -> Self {
        Self { message, context }
    }

    pub(crate) fn into_message_and_context(self) -> (T, CallContext) {
        (self.message, self.context)
    }

    /// The same request with a deadline: the whole call, all its messages included, must end within `timeout` from when it is
    /// started, or it fails with `DEADLINE_EXCEEDED` on both ends (PROTOCOL-HTTP2 "grpc-timeout").
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.context.set_timeout(Some(timeout));
        self
    }

    /// Sets the deadline, as [`with_timeout`](Self::with_timeout) does.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.context.set_timeout(Some(timeout));
    }

    /// Client: the timeout that was set. Handler: the time that was left when the request arrived; `None` without a deadline.
    pub fn timeout(&self) -> Option<Duration> {
        self.context.timeout()
    }

    /// How long the call may still take: in a handler, from this moment on to the deadline of the call, and nothing once that has
    /// passed. `None` without a deadline.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::Request;
    ///
    /// let request = Request::new("message").with_timeout(Duration::from_millis(50));
    /// assert_eq!(request.time_left(), Some(Duration::from_millis(50)), "the call has not begun");
    /// ```
    pub fn time_left(&self) -> Option<Duration> {
        match self.context.deadline() {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(clock());
                Some(self.context.timeout().map_or(left, |timeout| timeout.min(left)))
            }
            None => self.context.timeout(),
        }
    }

    /// Binds the call to the deadline of another one, besides its own timeout: it ends when the first of them comes.
    ///
    /// Calls made in a handler, or in futures that the handler itself polls, inherit the deadline of the call being handled by
    /// themselves. This is for work that was moved elsewhere: to a task, another thread, a blocking client.
    ///
    /// ```
    /// # use fulmar::{Channel, Raw, Request, Response, Status};
    /// async fn handler(channel: Channel, request: Request<Raw>) -> Result<Response<Raw>, Status> {
    ///     let mut question = Request::new(Raw::default());
    ///     question.set_deadline_of(&request);
    ///     std::thread::spawn(move || {
    ///         // `channel.unary(…, question)` here ends with the call that asked for it.
    ///         drop((channel, question));
    ///     });
    ///     Ok(Response::new(request.into_inner()))
    /// }
    /// ```
    pub fn set_deadline_of<U>(&mut self, other: &Request<U>) {
        self.context.set_deadline_of(&other.context);
    }

    /// The same request, bound to the deadline of another one as by [`set_deadline_of`](Self::set_deadline_of).
    #[must_use]
    pub fn with_deadline_of<U>(mut self, other: &Request<U>) -> Self {
        self.set_deadline_of(other);
        self
    }

    /// Whether the call, when it is made in a handler, inherits the deadline of the call being handled. It does by default: work
    /// whose result nobody waits for any more is not worth doing. False is for calls that must go on all the same, such as one
    /// that records what happened; it leaves the request's own timeout as it is. (The call must then also be moved out of the
    /// handler's future, with which it is dropped and cancelled.)
    pub fn set_inherits_deadline(&mut self, inherits: bool) {
        self.context.set_detached(!inherits);
    }

    /// The same request, not bound to the deadline of the call in whose handler it is made; see
    /// [`set_inherits_deadline`](Self::set_inherits_deadline).
    #[must_use]
    pub fn without_inherited_deadline(mut self) -> Self {
        self.set_inherits_deadline(false);
        self
    }

    /// Handler: tells, from now on and to whoever it is handed to, whether and why the call was cancelled. Costs nothing where it is
    /// not asked for. The requests that a client makes are never cancelled: dropping the call is how a client cancels.
    pub fn cancellation(&self) -> Cancellation {
        self.context.cancellation()
    }

    /// Whether, and how, the messages that this side sends on the call are compressed; by default as the channel is set. A
    /// handler's request sends nothing, and it has no effect there.
    ///
    /// ```
    /// use fulmar::{Compression, Request};
    ///
    /// let mut request = Request::new("message");
    /// request.set_compression(Compression::encoding("gzip"));
    /// ```
    pub fn set_compression(&mut self, compression: Compression) {
        self.context.set_compression(compression);
    }

    /// Client: whether the call waits for a connection where none can be had, up to its deadline, or fails at once with `UNAVAILABLE`
    /// and what went wrong when the last one was tried (gRPC "wait-for-ready"). By default as the
    /// [channel](crate::ChannelBuilder::wait_for_ready) says. While a connection is being made for the first time, calls wait in any
    /// case.
    pub fn set_wait_for_ready(&mut self, waits: bool) {
        self.context.set_waits_for_ready(waits);
    }

    /// The same request, which [waits for ready](Self::set_wait_for_ready), or does not.
    #[must_use]
    pub fn with_wait_for_ready(mut self, waits: bool) -> Self {
        self.set_wait_for_ready(waits);
        self
    }

    /// The same request with other [compression](Self::set_compression).
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.set_compression(compression);
        self
    }

    /// Handler: what the client compresses its messages with, as far as it does (`grpc-encoding`); None for plain messages.
    pub fn encoding(&self) -> Option<&str> {
        self.context.encoding().map(|encoding| &**encoding)
    }

    /// Handler: whether the message of a call that takes one was compressed on its way: its flag was 1. For a stream see
    /// [`Streaming::last_was_compressed`](crate::Streaming::last_was_compressed).
    pub fn was_compressed(&self) -> bool {
        self.context.was_compressed()
    }

    /// Handler: who is at the other end of the connection that the call came over. Knows nothing in a client, and of in-process calls.
    pub fn peer(&self) -> &Peer {
        self.context.peer()
    }

    /// Handler: the path of the method that was called, `/package.Service/Method`. Empty in a client, which names it when it calls.
    pub fn path(&self) -> &str {
        self.context.path()
    }

    /// The request's metadata, as sent or to be sent ahead of the first message.
    pub fn metadata(&self) -> &MetadataMap {
        self.context.metadata()
    }

    /// The metadata, to add to.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        self.context.metadata_mut()
    }

    /// What belongs to the call on this side of the wire: an interceptor's findings for the handler, a caller's for its interceptors.
    pub fn extensions(&self) -> &Extensions {
        self.context.extensions()
    }

    /// The extensions, to add to.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.context.extensions_mut()
    }

    /// The message alone; metadata is dropped.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message, to read.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change; a handler reads a stream through it.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// A request of metadata and a message, without a deadline.
    ///
    /// ```
    /// let mut request = fulmar::Request::new("message");
    /// request.metadata_mut().insert("x-trace", "42").unwrap();
    /// let (metadata, message) = request.into_parts();
    /// let same = fulmar::Request::from_parts(metadata, message);
    /// assert_eq!(same.metadata().get("x-trace"), Some("42"));
    /// ```
    pub fn from_parts(metadata: MetadataMap, message: T) -> Self {
        let mut request = Self::new(message);
        if !metadata.is_empty() {
            request.context.set_metadata(metadata.into());
        }
        request
    }

    /// Handler: the host, and the port if there is one, that the client wanted to call (`:authority`, or the `host` of a request that
    /// has none). `None` in a client, and for requests that do not say it.
    pub fn authority(&self) -> Option<&str> {
        self.metadata().get(":authority")
    }

    /// The metadata and the message; timeout and peer are dropped.
    pub fn into_parts(mut self) -> (MetadataMap, T) {
        (self.context.take_metadata().into_map(), self.message)
    }

    /// The same call with another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Request<U> {
        Request { message: change(self.message), context: self.context }
    }
}

impl<T> From<T> for Request<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}

impl<T: crate::Payload> Request<crate::Streaming<T>> {
    /// The next message of the stream, as [`Streaming::message`](crate::Streaming::message).
    ///
    /// # Errors
    /// The status that ended the call: `CANCELLED` when the client gave up, `INTERNAL` when a message could not be decoded.
    pub async fn message(&mut self) -> Result<Option<T>, crate::Status> {
        self.message.message().await
    }

    /// Reads the next message into one that the handler already has, as
    /// [`Streaming::message_into`](crate::Streaming::message_into).
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub async fn message_into(&mut self, message: &mut T) -> Result<bool, crate::Status> {
        self.message.message_into(message).await
    }
}

/// What a call takes: a message, or a [`Request`] around one to set metadata and a deadline.
///
/// ```no_run
/// # async fn call(channel: &fulmar::Channel) -> Result<(), fulmar::Status> {
/// use fulmar::{Raw, Request, Response};
///
/// let reply: Response<Raw> = channel.unary("/demo.Greeter/Greet", Raw::default()).await?;
/// let request = Request::new(Raw::default()).with_timeout(std::time::Duration::from_secs(1));
/// let reply: Response<Raw> = channel.unary("/demo.Greeter/Greet", request).await?;
/// # Ok(())
/// # }
/// ```
pub trait IntoRequest<T> {
    /// The request to send.
    fn into_request(self) -> Request<T>;
}

/// Messages only, so that the type of the message in a [`Request`] is never in doubt.
impl<T: crate::Payload> IntoRequest<T> for T {
    fn into_request(self) -> Request<T> {
        Request::new(self)
    }
}

impl<T> IntoRequest<T> for Request<T> {
    fn into_request(self) -> Self {
        self
    }
}
