//! Errors that are not a call's: connecting, binding, building a server.

use std::error::Error as _;
use std::fmt;

use fulmar_base::{Closed, Fault};
use fulmar_grpc::{Code, Status};

/// A channel could not be made or connected.
///
/// What went wrong with a connection is its [source](std::error::Error::source), a [`TransportError`]; an endpoint, a name or a setting
/// that cannot be has none.
#[derive(Clone, Debug)]
pub struct ConnectError {
    endpoint: String,
    code: Code,
    reason: String,
    cause: Option<TransportError>,
}

impl ConnectError {
    pub(crate) fn new(endpoint: &str, reason: impl Into<String>) -> Self {
        Self { endpoint: endpoint.to_owned(), code: Code::Unavailable, reason: reason.into(), cause: None }
    }

    /// The same with the code, text and cause of a status.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Self {
        let cause = status.source().and_then(|source| source.downcast_ref()).cloned();
        let reason = status.message().to_owned();
        Self { endpoint: endpoint.to_owned(), code: status.code(), reason, cause }
    }

    /// The endpoint, as it was given.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What calls say that needed the connection: [`Code::Unavailable`], unless a [`Resolve`](crate::Resolve) of one's own says
    /// otherwise.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What happened.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The kind of the operating system's error, such as [`ConnectionRefused`](std::io::ErrorKind::ConnectionRefused), where one is
    /// behind it.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        self.cause.as_ref()?.io_kind()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}: {}", self.endpoint, self.reason)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::new(error.code, error.to_string()).with_source(std::sync::Arc::new(error))
    }
}

/// What a client's connection has come to, or failed to come to. The [source](std::error::Error::source) of statuses that the library
/// made for that reason, and of [`ConnectError`]; its own source is an [`io::Error`](std::io::Error) where one is behind it.
///
/// ```no_run
/// # async fn run(channel: fulmar::Channel) {
/// use std::error::Error;
/// use fulmar::{Raw, TransportError};
///
/// if let Err(status) = channel.unary::<Raw, Raw>("/demo.Greeter/Greet", Raw::default()).await {
///     let mut cause = status.source();
///     while let Some(error) = cause {
///         if let Some(error) = error.downcast_ref::<TransportError>() {
///             println!("{} ({:?}, by this end: {})", error.endpoint(), error.io_kind(), error.is_local());
///         }
///         cause = error.source();
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TransportError {
    endpoint: String,
    text: String,
    fault: Fault,
    io: Option<std::sync::Arc<std::io::Error>>,
}

impl TransportError {
    pub(crate) fn new(endpoint: &str, closed: &Closed) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            text: closed.text.clone().into_owned(),
            fault: closed.fault,
            io: closed.io.map(|kind| std::sync::Arc::new(kind.into())),
        }
    }

    /// The endpoint of the channel, as it was given.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether this end has ended the connection, or this machine could not make it, and not the server or the network.
    pub fn is_local(&self) -> bool {
        self.fault != Fault::Peer
    }

    /// The kind of the operating system's error, where one is behind it: refused, reset, timed out, and
    /// [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof) where the server hung up.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        self.io.as_ref().map(|error| error.kind())
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.is_local() { "by this end" } else { "by the server" };
        write!(f, "connection to {} ended {side}: {}", self.endpoint, self.text)
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io.as_deref().map(|error| error as _)
    }
}

/// A server could not be built, bound or run.
#[derive(Debug)]
pub struct ServerError {
    what: String,
    source: Option<std::io::Error>,
}

impl ServerError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self { what: what.into(), source: Some(source) }
    }

    /// The kind of the operating system's error, such as [`AddrInUse`](std::io::ErrorKind::AddrInUse), where one is behind it.
    pub fn io_kind(&self) -> Option<std::io::ErrorKind> {
        self.source.as_ref().map(std::io::Error::kind)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
