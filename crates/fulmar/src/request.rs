//! A request: a message, or a stream of them, with its metadata and deadline.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use fulmar_grpc::MetadataMap;

use crate::metadata_lease::MetadataLease;

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

/// What belongs to a call besides its messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallContext {
    pub(crate) metadata: MetadataLease,
    pub(crate) timeout: Option<Duration>,
    pub(crate) peer: Option<SocketAddr>,
    /// Empty in a client.
    pub(crate) path: Cow<'static, str>,
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
        self.context.timeout = Some(timeout);
        self
    }

    /// Sets the deadline, as [`with_timeout`](Self::with_timeout) does.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.context.timeout = Some(timeout);
    }

    /// Client: the timeout that was set. Handler: the time that was left when the request arrived; `None` without a deadline.
    pub fn timeout(&self) -> Option<Duration> {
        self.context.timeout
    }

    /// The address that the call came from; `None` in a client and for in-process calls.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.context.peer
    }

    /// Handler: the path of the method that was called, `/package.Service/Method`. Empty in a client, which names it when it calls.
    pub fn path(&self) -> &str {
        &self.context.path
    }

    /// The request's metadata, as sent or to be sent ahead of the first message.
    pub fn metadata(&self) -> &MetadataMap {
        self.context.metadata.get()
    }

    /// The metadata, to add to.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        self.context.metadata.get_mut()
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
        Self { message, context: CallContext { metadata: metadata.into(), ..CallContext::default() } }
    }

    /// The metadata and the message; timeout and peer are dropped.
    pub fn into_parts(self) -> (MetadataMap, T) {
        (self.context.metadata.into_map(), self.message)
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
