//! Errors that are not a call's: connecting, binding, building a server.

use std::fmt;

use fulmar_grpc::{Code, Status};

/// A channel could not be made or connected.
#[derive(Clone, Debug)]
pub struct ConnectError {
    endpoint: String,
    code: Code,
    reason: String,
}

impl ConnectError {
    pub(crate) fn new(endpoint: &str, reason: impl Into<String>) -> Self {
        Self { endpoint: endpoint.to_owned(), code: Code::Unavailable, reason: reason.into() }
    }

    /// The same with the code and text of a status.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Self {
        Self { endpoint: endpoint.to_owned(), code: status.code(), reason: status.message().to_owned() }
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
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}: {}", self.endpoint, self.reason)
    }
}

impl std::error::Error for ConnectError {}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::new(error.code, error.to_string()).with_source(std::sync::Arc::new(error))
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
