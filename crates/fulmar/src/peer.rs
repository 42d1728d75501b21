//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use fulmar_reactor::{Address, Socket, UnixCredentials};
#[cfg(feature = "_tls")]
use fulmar_tls::{Certificate, PeerCertificates};

use crate::wire::ServerSecurity;

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
    /// Filled when the handshake is complete. None where nobody asks for them.
    #[cfg(feature = "_tls")]
    certificates: Option<PeerCertificates>,
}

impl Peer {
    /// That of a call that came over no socket.
    pub(crate) const NOBODY: Self = Self { facts: None };

    /// Asks the system about the socket of a new connection to a server that is secured so.
    #[cfg_attr(
        not(feature = "_tls"),
        expect(unused_variables, reason = "without TLS there are no certificates")
    )]
    pub(crate) fn of(socket: &Socket, security: &ServerSecurity) -> Self {
        let facts = Facts {
            remote: socket.peer().clone(),
            local: socket.local_address(),
            credentials: socket.unix_credentials(),
            #[cfg(feature = "_tls")]
            certificates: security.asks_for_certificates().then(PeerCertificates::default),
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

    /// The certificates that the peer has shown, and that the server has verified: its own first, then those that lead to an authority
    /// ([`ServerTls::require_client_certificates`](crate::tls::ServerTls::require_client_certificates)). `None` where it has shown none
    /// or was not asked, and without TLS.
    ///
    /// What is in them is not looked at here: a crate for X.509 reads the DER.
    ///
    /// ```
    /// # use fulmar::{Raw, Request, Response, Status};
    /// async fn handler(request: Request<Raw>) -> Result<Response<Raw>, Status> {
    ///     let Some([own, ..]) = request.peer().certificates() else {
    ///         return Err(Status::unauthenticated("a certificate is needed for this"));
    ///     };
    ///     println!("a certificate of {} bytes", own.as_der().len());
    ///     Ok(Response::new(request.into_inner()))
    /// }
    /// ```
    #[cfg(feature = "_tls")]
    pub fn certificates(&self) -> Option<&[Certificate]> {
        let chain = self.facts.as_ref()?.certificates.as_ref()?.chain();
        Some(chain).filter(|chain| !chain.is_empty())
    }

    /// Where the handshake is to put them.
    #[cfg(feature = "_tls")]
    pub(crate) fn wanted_certificates(&self) -> Option<PeerCertificates> {
        self.facts.as_ref()?.certificates.clone()
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
