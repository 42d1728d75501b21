use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Closed, Instant, Output};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, CommonState, HandshakeKind, ServerConfig};

use crate::common::ALPN_HTTP2;
use crate::explain::{self, Side};
use crate::identity::PeerCertificates;
use crate::records::{self, Failure, Opened};

/// How long a peer may take to complete the handshake, where nothing else is said: 10 s, as long as a server then waits for the preface
/// and SETTINGS. A handshake is three flights: packets of each may be lost twice, and sent again after one second and then two (RFC 6298
/// §2), before the time is up.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of a TLS connection that has not begun yet: what [`Tls`](crate::Tls) puts an endpoint behind.
pub struct TlsSession {
    engine: Engine,
    side: Side,
    assumes_http2: bool,
    /// The peer has sent a part of a handshake message in records of its own. `rustls` wants to see them again with the rest, and
    /// nothing else meanwhile.
    has_fragment: bool,
    pub(crate) limit: Limit,
    certificates: Option<PeerCertificates>,
}

enum Engine {
    /// Not begun: keys are made for connections that come about.
    NewClient(Arc<ClientConfig>, ServerName<'static>),
    NewServer(Arc<ServerConfig>),
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// How long a handshake may take.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Limit {
    /// So long from its first step.
    After(Duration),
    Until(Instant),
}

impl TlsSession {
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        limit: Limit,
        assumes_http2: bool,
    ) -> Self {
        Self::new(Engine::NewClient(config, name), Side::Client, limit, assumes_http2)
    }

    pub(crate) fn server(config: Arc<ServerConfig>, limit: Limit, assumes_http2: bool) -> Self {
        Self::new(Engine::NewServer(config), Side::Server, limit, assumes_http2)
    }

    fn new(engine: Engine, side: Side, limit: Limit, assumes_http2: bool) -> Self {
        Self { engine, side, assumes_http2, has_fragment: false, limit, certificates: None }
    }

    /// The handshake must be complete by `until`, whatever the configuration says.
    #[must_use]
    pub fn complete_by(mut self, until: Instant) -> Self {
        self.limit = Limit::Until(until);
        self
    }

    /// Tells `certificates` what the peer has shown, once it is verified, and before anything of the peer is delivered.
    #[must_use]
    pub fn tell_certificates(mut self, certificates: PeerCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Begins the handshake, if it has not begun, and says what there is to say.
    pub(crate) fn begin(&mut self, out: &mut Output) -> Result<(), Closed> {
        self.engine = match &self.engine {
            Engine::NewClient(config, name) => {
                let connection = UnbufferedClientConnection::new(config.clone(), name.clone());
                Engine::Client(Box::new(connection.map_err(|error| explain::failed(error, self.side, &[]))?))
            }
            Engine::NewServer(config) => {
                let connection = UnbufferedServerConnection::new(config.clone());
                Engine::Server(Box::new(connection.map_err(|error| explain::failed(error, self.side, &[]))?))
            }
            Engine::Client(_) | Engine::Server(_) => return Ok(()),
        };
        self.open(&mut [], &mut Vec::new(), out).map(|_| ())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.state().is_none_or(CommonState::is_handshaking)
    }

    /// Whether a handshake message of the peer's is incomplete: nothing can be sealed until it is whole.
    pub(crate) fn has_fragment(&self) -> bool {
        self.has_fragment
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.state().and_then(CommonState::handshake_kind) == Some(HandshakeKind::Resumed)
    }

    /// What is to be done once, when the handshake is complete: both ends must have agreed to speak HTTP/2 (RFC 7301), and whoever
    /// waits for the peer's certificates gets them.
    pub(crate) fn on_complete(&mut self) -> Result<(), Closed> {
        match self.state().and_then(CommonState::alpn_protocol) {
            Some(ALPN_HTTP2) => {}
            None if self.assumes_http2 => {}
            _ => return Err(explain::no_http2(self.side)),
        }
        if let Some(certificates) = self.certificates.take() {
            certificates.set(self.state().and_then(CommonState::peer_certificates));
        }
        Ok(())
    }

    /// Opens the records of `wire` that are complete, and appends their plaintext to `plain`. What the session itself has to say of
    /// them (handshake, alerts) goes to `out`, also when it fails.
    ///
    /// What is not consumed must be shown again, with whatever was changed in it, in front of the next bytes.
    pub(crate) fn open(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Output,
    ) -> Result<Opened, Closed> {
        let opened = match &mut self.engine {
            Engine::Client(connection) => records::open(&mut **connection, wire, plain, out),
            Engine::Server(connection) => records::open(&mut **connection, wire, plain, out),
            Engine::NewClient(..) | Engine::NewServer(_) => Ok(Opened::default()),
        };
        match opened {
            Ok(opened) => {
                self.has_fragment = records::begin_with_whole_one(&wire[opened.consumed..]);
                Ok(opened)
            }
            Err(Failure { error, consumed }) => {
                // The rest of the wire has not been looked at.
                self.has_fragment = true;
                Err(explain::failed(error, self.side, &wire[consumed.min(wire.len())..]))
            }
        }
    }

    /// Encrypts the front of `plain` into `wire`, some records of it. Whether it could: not while a message of the peer's is
    /// incomplete.
    pub(crate) fn seal(&mut self, plain: &mut Output, wire: &mut Output) -> Result<bool, Closed> {
        if self.has_fragment {
            return Ok(false);
        }
        let sealed = match &mut self.engine {
            Engine::Client(connection) => records::seal(&mut **connection, plain, wire),
            Engine::Server(connection) => records::seal(&mut **connection, plain, wire),
            Engine::NewClient(..) | Engine::NewServer(_) => return Ok(false),
        };
        sealed.map(|()| true).map_err(|error| explain::failed(error, self.side, &[]))
    }

    /// Tells the peer that nothing follows (RFC 8446 §6.1), if it can be told.
    pub(crate) fn close(&mut self, wire: &mut Output) {
        if self.has_fragment {
            return;
        }
        match &mut self.engine {
            Engine::Client(connection) => records::close(&mut **connection, wire),
            Engine::Server(connection) => records::close(&mut **connection, wire),
            Engine::NewClient(..) | Engine::NewServer(_) => {}
        }
    }

    fn state(&self) -> Option<&CommonState> {
        match &self.engine {
            Engine::Client(connection) => Some(connection),
            Engine::Server(connection) => Some(connection),
            Engine::NewClient(..) | Engine::NewServer(_) => None,
        }
    }
}
