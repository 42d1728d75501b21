//! Errors that are not a call's: connecting, binding, building a server.

use std::fmt;

use fulmar_grpc::Status;

/// A channel could not be made or connected.
#[derive(Clone, Debug)]
pub struct ConnectError {
    endpoint: String,
    reason: String,
}

impl ConnectError {
    pub(crate) fn new(endpoint: &str, reason: impl Into<String>) -> Self {
        Self { endpoint: endpoint.to_owned(), reason: reason.into() }
    }

    /// The endpoint, as it was given.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
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
        Self::unavailable(error.to_string()).with_source(std::sync::Arc::new(error))
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
