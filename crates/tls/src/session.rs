use std::io::{BufRead, IoSlice, Write};
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Closed, Instant, Output};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

use crate::explain::{self, Side};
use crate::identity::PeerCertificates;
use crate::provider::ALPN_HTTP2;

/// How long a peer may take to complete the handshake: 10 s, ten times what the slowest of honest networks takes.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many pieces of plaintext one call hands to rustls, which packs them into records.
const SLICES_MAX: usize = 16;

/// One end of a TLS connection that has not begun yet: what [`Tls`](crate::Tls) puts an endpoint behind.
pub struct TlsSession {
    engine: Engine,
    side: Side,
    assumes_http2: bool,
    pub(crate) limit: Limit,
    certificates: Option<PeerCertificates>,
}

enum Engine {
    /// Not begun: keys are made for connections that come about.
    Client(Arc<ClientConfig>, ServerName<'static>),
    Server(Arc<ServerConfig>),
    Begun(Box<rustls::Connection>),
}

/// How long a handshake may take.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Limit {
    /// So long from its first step.
    After(Duration),
    Until(Instant),
}

/// What opening the records of the wire told, besides their plaintext.
pub(crate) struct Opened {
    /// How many bytes of the wire are done with.
    pub(crate) consumed: usize,
    /// The peer said `close_notify`: nothing follows (RFC 8446 §6.1).
    pub(crate) peer_has_closed: bool,
}

impl TlsSession {
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        limit: Limit,
        assumes_http2: bool,
    ) -> Self {
        let engine = Engine::Client(config, name);
        Self { engine, side: Side::Client, assumes_http2, limit, certificates: None }
    }

    pub(crate) fn server(config: Arc<ServerConfig>, limit: Limit, assumes_http2: bool) -> Self {
        let engine = Engine::Server(config);
        Self { engine, side: Side::Server, assumes_http2, limit, certificates: None }
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

    /// Begins the handshake, if it has not begun.
    pub(crate) fn begin(&mut self) -> Result<(), Closed> {
        let begun = match &self.engine {
            Engine::Begun(_) => return Ok(()),
            Engine::Client(config, name) => {
                ClientConnection::new(config.clone(), name.clone()).map(rustls::Connection::from)
            }
            Engine::Server(config) => ServerConnection::new(config.clone()).map(rustls::Connection::from),
        };
        let begun = begun.map_err(|error| Closed::local(format!("TLS: {error}")))?;
        self.engine = Engine::Begun(Box::new(begun));
        Ok(())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.engine {
            Engine::Begun(rustls) => rustls.is_handshaking(),
            Engine::Client(..) | Engine::Server(_) => true,
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        matches!(&self.engine, Engine::Begun(rustls) if rustls.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// What is to be done once, when the handshake is complete: both ends must have agreed to speak HTTP/2 (RFC 7301), and whoever
    /// waits for the peer's certificates gets them.
    pub(crate) fn on_complete(&mut self) -> Result<(), Closed> {
        let Engine::Begun(rustls) = &self.engine else { return Ok(()) };
        match rustls.alpn_protocol() {
            Some(ALPN_HTTP2) => {}
            None if self.assumes_http2 => {}
            _ => return Err(explain::no_http2(self.side)),
        }
        if let Some(certificates) = self.certificates.take() {
            certificates.set(rustls.peer_certificates());
        }
        Ok(())
    }

    /// Opens the records of `wire` that are complete, and appends their plaintext to `plain`.
    pub(crate) fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, Closed> {
        let mut opened = Opened { consumed: wire.len(), peer_has_closed: false };
        let (mut rest, is_first) = (&wire[..], self.is_handshaking());
        let Engine::Begun(rustls) = &mut self.engine else { return Ok(opened) };
        while !rest.is_empty() && !opened.peer_has_closed {
            rustls.read_tls(&mut rest).map_err(|error| Closed::peer(format!("TLS: {error}")))?;
            let state = rustls
                .process_new_packets()
                .map_err(|error| explain::failed(error, self.side, if is_first { wire } else { &[] }))?;
            opened.peer_has_closed = state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = rustls.reader();
            while left > 0 {
                let chunk = reader.fill_buf().map_err(|error| Closed::local(format!("TLS: {error}")))?;
                plain.extend_from_slice(chunk);
                let taken = chunk.len();
                left = if taken == 0 { 0 } else { left.saturating_sub(taken) };
                reader.consume(taken);
            }
        }
        Ok(opened)
    }

    /// Encrypts the front of `plain` into `wire`, some records of it.
    pub(crate) fn seal(&mut self, plain: &mut Output, wire: &mut Output) -> Result<(), Closed> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = plain.slices(&mut slices);
        let Engine::Begun(rustls) = &mut self.engine else { return Ok(()) };
        let sealed = rustls
            .writer()
            .write_vectored(&slices[..filled])
            .map_err(|error| Closed::local(format!("TLS: {error}")))?;
        plain.advance(sealed);
        self.flush(wire);
        Ok(())
    }

    /// Moves what the session has to say (handshake, alerts, records) to the wire.
    pub(crate) fn flush(&mut self, wire: &mut Output) {
        let Engine::Begun(rustls) = &mut self.engine else { return };
        while rustls.wants_write() {
            rustls.write_tls(wire.bytes_mut()).expect("writing to a Vec cannot fail");
        }
    }

    /// Tells the peer that nothing follows (RFC 8446 §6.1).
    pub(crate) fn close(&mut self, wire: &mut Output) {
        if let Engine::Begun(rustls) = &mut self.engine {
            rustls.send_close_notify();
        }
        self.flush(wire);
    }
}
