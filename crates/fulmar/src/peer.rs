//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use fulmar_reactor::{Address, Socket, UnixCredentials};

/// Who is at the other end of the connection that a call came over.
///
/// All calls of a connection share it, and clones are cheap. It outlives the connection. A client's requests, and those of
/// in-process calls, have one that knows nothing.
///
/// ```
/// # use fulmar::{Raw, Request, Response, Status};
/// async fn handler(request: Request<Raw>) -> Result<Response<Raw>, Status> {
///     match request.peer().unix_credentials() {
///         Some(credentials) if credentials.uid == 0 => Ok(Response::new(request.into_inner())),
///         _ => Err(Status::permission_denied(format!("{} is not root", request.peer()))),
///     }
/// }
/// ```
#[derive(Clone, Default)]
pub struct Peer {
    facts: Option<Arc<Facts>>,
}

/// What is kept once a connection.
#[derive(Debug)]
struct Facts {
    remote: Address,
    local: Option<Address>,
    credentials: Option<UnixCredentials>,
}

impl Peer {
    /// That of a call that came over no socket.
    pub(crate) const NOBODY: Self = Self { facts: None };

    /// Asks the system about the socket of a new connection.
    pub(crate) fn of(socket: &Socket) -> Self {
        let facts = Facts {
            remote: socket.peer().clone(),
            local: socket.local_address(),
            credentials: socket.unix_credentials(),
        };
        Self { facts: Some(Arc::new(facts)) }
    }

    /// The IP address and port that the connection came from; `None` where it did not come over TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.remote()?.ip()
    }

    /// The IP address and port that it came to; `None` where it did not come over TCP.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local()?.ip()
    }

    /// Who opened the other end of a Unix socket, as the kernel knows it. Only for Unix sockets, on Linux and Android.
    pub fn unix_credentials(&self) -> Option<UnixCredentials> {
        self.facts.as_ref()?.credentials
    }

    /// Where the connection came from, by TCP or a Unix socket (whose clients seldom have a name). `None` in-process.
    pub fn remote(&self) -> Option<&Address> {
        self.facts.as_ref().map(|facts| &facts.remote)
    }

    /// Where it came to, by TCP or a Unix socket. `None` in-process.
    pub fn local(&self) -> Option<&Address> {
        self.facts.as_ref()?.local.as_ref()
    }
}

impl fmt::Display for Peer {
    /// Where the connection came from, for texts: `127.0.0.1:41234`, `unix:`, and `in-process` where there is no socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remote() {
            Some(remote) => remote.fmt(f),
            None => f.write_str("in-process"),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Some(facts) => facts.fmt(f),
            None => f.write_str("in-process"),
        }
    }
}
