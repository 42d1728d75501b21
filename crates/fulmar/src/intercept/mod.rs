//! Interceptors: code around calls of any kind and any message type, on either side.

mod call;
mod credentials;
mod hooks;
mod passing;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use call::{CallHead, CallInfo};
pub use credentials::{CallCredentials, WithCredentials};
use fulmar_grpc::{MetadataMap, Status};
pub(crate) use hooks::CallHooks;
pub(crate) use passing::{Passed, Passing};

/// Code around calls: authentication, logging, metrics, limits.
///
/// One trait serves both sides: a client's channel ([`Channel::intercept`](crate::Channel::intercept),
/// [`ChannelBuilder::intercept`](crate::ChannelBuilder::intercept)), a whole server
/// ([`ServerBuilder::intercept`](crate::ServerBuilder::intercept)), or one service of it ([`Intercepted`](crate::Intercepted)).
/// Each hook has a default that does nothing, and calls are handled as they are without interceptors where there are none.
///
/// Of several interceptors the one that was added first is the outermost: it is asked first about calls and requests, and last about
/// responses and the end. Those of a server are around those of a service.
///
/// An interceptor is shared by all calls. What belongs to one call it keeps in the call's
/// [extensions](CallHead::extensions_mut), where handlers see it too. A hook that panics ends its call with `UNKNOWN`, like a
/// handler.
///
/// ```
/// use fulmar::{CallHead, CallInfo, Interceptor, MetadataMap, Status};
///
/// /// Lets nobody in without the right token, and tells how calls end.
/// struct Guard;
///
/// impl Interceptor for Guard {
///     async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
///         match call.metadata().get("authorization") {
///             Some("Bearer secret") => Ok(()),
///             _ => Err(Status::unauthenticated("a token is missing")),
///         }
///     }
///
///     fn on_finish(&self, call: &CallInfo, status: &mut Status, _trailers: &mut MetadataMap) {
///         println!("{}: {status}", call.path());
///     }
/// }
///
/// let server = fulmar::Server::builder().intercept(Guard);
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Asked before anything else happens for a call: on a client before it is sent, on a server before its handler is called or
    /// any of its messages is looked at. It may change the metadata of the request and add extensions, and wait as long as it
    /// likes; the deadline of the call goes on meanwhile, and a call that ends drops the future.
    ///
    /// A future that holds something costs one allocation a call.
    ///
    /// # Errors
    /// Ends the call with this status: no request is sent, no handler is called. Of the chain only the interceptors that let the
    /// call pass hear of its end.
    fn on_call(&self, call: &mut CallHead) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = call;
        GoOn
    }

    /// Sees each request message as it is encoded, on a client when it is sent, on a server when it is taken.
    ///
    /// # Errors
    /// The message is not passed on. Whoever sends or takes it hears the status; a call with one request ends with it.
    fn on_request_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        let _ = (call, message);
        Ok(())
    }

    /// Sees, and may change, the metadata ahead of the first response message, on a server before it is sent, on a client before it is
    /// read. Not called for a call that fails before there is any.
    ///
    /// # Errors
    /// As for messages.
    fn on_response_metadata(&self, call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        let _ = (call, metadata);
        Ok(())
    }

    /// Sees each response message as it is encoded, on a server when it is sent, on a client when it is taken.
    ///
    /// # Errors
    /// As [`on_request_message`](Self::on_request_message).
    fn on_response_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        let _ = (call, message);
        Ok(())
    }

    /// Told once, when a call that it let pass is over, with the status and the metadata behind the last message, and may change
    /// both. A failure carries metadata of its own too, which on a client is all there is.
    ///
    /// It is told of calls that were given up as well: the status is then `CANCELLED` or `DEADLINE_EXCEEDED`, and nobody reads
    /// it any more. On a client, the end of a stream is when it has been read to its end or was dropped.
    fn on_finish(&self, call: &CallInfo, status: &mut Status, trailers: &mut MetadataMap) {
        let _ = (call, status, trailers);
    }
}

/// Lets a call pass at once. It has no size, so that a box of it is no allocation.
struct GoOn;

impl Future for GoOn {
    type Output = Result<(), Status>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

type Asked<'c> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'c>>;

/// An [`Interceptor`] of whatever type.
pub(crate) trait AnyInterceptor: Send + Sync {
    fn on_call<'c>(&'c self, call: &'c mut CallHead) -> Asked<'c>;
    fn on_request_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status>;
    fn on_response_metadata(&self, call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status>;
    fn on_response_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status>;
    fn on_finish(&self, call: &CallInfo, status: &mut Status, trailers: &mut MetadataMap);
}

impl<I: Interceptor> AnyInterceptor for I {
    fn on_call<'c>(&'c self, call: &'c mut CallHead) -> Asked<'c> {
        Box::pin(Interceptor::on_call(self, call))
    }

    fn on_request_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        Interceptor::on_request_message(self, call, message)
    }

    fn on_response_metadata(&self, call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        Interceptor::on_response_metadata(self, call, metadata)
    }

    fn on_response_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        Interceptor::on_response_message(self, call, message)
    }

    fn on_finish(&self, call: &CallInfo, status: &mut Status, trailers: &mut MetadataMap) {
        Interceptor::on_finish(self, call, status, trailers);
    }
}

/// Interceptors, the outermost first. Most have none, and are as large as a pointer and a length.
#[derive(Clone, Default)]
pub(crate) struct Chain(Option<Arc<[Arc<dyn AnyInterceptor>]>>);

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The same chain with one more, as the innermost.
    pub(crate) fn with(&self, interceptor: impl Interceptor) -> Self {
        Self(Some(self.iter().cloned().chain([Arc::new(interceptor) as _]).collect()))
    }

    /// The same chain around another one.
    pub(crate) fn around(&self, inner: &Self) -> Self {
        if inner.is_empty() {
            return self.clone();
        }
        Self(Some(self.iter().chain(inner.iter()).cloned().collect()))
    }

    fn iter(&self) -> std::slice::Iter<'_, Arc<dyn AnyInterceptor>> {
        self.0.as_deref().unwrap_or_default().iter()
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("interceptors", &self.iter().len()).finish()
    }
}
