use std::io::{BufRead, IoSlice, Write};

use fulmar_base::{Closed, Output};
use rustls::{AlertDescription, CertificateError, ClientConnection, Error, ServerConnection};

use crate::config::{TlsClientConfig, TlsConfigError, TlsServerConfig};

/// How many pieces of plaintext one call hands to rustls, which packs them into records.
const SLICES_MAX: usize = 16;

/// A TLS session, over memory: the only place that knows how rustls is spoken to.
pub(crate) struct Session {
    rustls: rustls::Connection,
}

/// What opening the records of the wire told, besides their plaintext.
pub(crate) struct Opened {
    /// The peer said `close_notify`: nothing follows (RFC 8446 §6.1).
    pub(crate) peer_has_closed: bool,
}

impl Session {
    pub(crate) fn client(config: &TlsClientConfig, host: &str) -> Result<Self, TlsConfigError> {
        let name = config.name_for(host)?;
        let connection = ClientConnection::new(config.rustls.clone(), name).map_err(refused)?;
        Ok(Self { rustls: connection.into() })
    }

    pub(crate) fn server(config: &TlsServerConfig) -> Result<Self, TlsConfigError> {
        let connection = ServerConnection::new(config.rustls.clone()).map_err(refused)?;
        Ok(Self { rustls: connection.into() })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    /// The protocol agreed upon (RFC 7301), after the handshake.
    pub(crate) fn alpn_protocol(&self) -> Option<&[u8]> {
        self.rustls.alpn_protocol()
    }

    /// Takes all of `wire`, and appends the plaintext of all records that are complete to `plain`.
    pub(crate) fn open(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<Opened, Closed> {
        let mut peer_has_closed = false;
        while !wire.is_empty() && !peer_has_closed {
            self.rustls.read_tls(&mut wire).map_err(|error| Closed::peer(format!("TLS: {error}")))?;
            let state = self.rustls.process_new_packets().map_err(explain)?;
            peer_has_closed = state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.rustls.reader();
            while left > 0 {
                let chunk = reader.fill_buf().map_err(|error| Closed::local(format!("TLS: {error}")))?;
                plain.extend_from_slice(chunk);
                let taken = chunk.len();
                left = if taken == 0 { 0 } else { left.saturating_sub(taken) };
                reader.consume(taken);
            }
        }
        Ok(Opened { peer_has_closed })
    }

    /// Encrypts the front of `plain` into `wire`, some records of it.
    pub(crate) fn seal(&mut self, plain: &mut Output, wire: &mut Output) -> Result<(), Closed> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = plain.slices(&mut slices);
        let sealed = self
            .rustls
            .writer()
            .write_vectored(&slices[..filled])
            .map_err(|error| Closed::local(format!("TLS: {error}")))?;
        plain.advance(sealed);
        self.flush(wire);
        Ok(())
    }

    /// Moves what the session has to say (handshake, alerts, records) to the wire.
    pub(crate) fn flush(&mut self, wire: &mut Output) {
        while self.rustls.wants_write() {
            self.rustls.write_tls(wire.bytes_mut()).expect("writing to a Vec cannot fail");
        }
    }

    /// Tells the peer that nothing follows (RFC 8446 §6.1).
    pub(crate) fn close(&mut self, wire: &mut Output) {
        self.rustls.send_close_notify();
        self.flush(wire);
    }
}

fn refused(error: Error) -> TlsConfigError {
    TlsConfigError::new(format!("no session can be made of it: {error}"))
}

/// Says whose fault an error is, and what to do about the common ones.
fn explain(error: Error) -> Closed {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => Closed::peer(
            "TLS: the server's certificate is not signed by an authority this client trusts; \
             if it is one of your own, pass the authority to TlsClientConfig::from_ca_pem",
        ),
        Error::InvalidCertificate(error) => {
            Closed::peer(format!("TLS: the peer's certificate is not valid: {error}"))
        }
        Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            Closed::peer(
                "TLS: the peer does not speak HTTP/2: no protocol in common (ALPN \"h2\", RFC 9113 §3.2)",
            )
        }
        Error::AlertReceived(alert) => {
            Closed::peer(format!("TLS: the peer refuses to go on: alert {alert:?}"))
        }
        Error::InvalidMessage(error) => {
            Closed::peer(format!("TLS: the peer sent something that is not TLS: {error:?}"))
        }
        Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes | Error::General(_) => {
            Closed::local(format!("TLS: {error}"))
        }
        error => Closed::peer(format!("TLS: {error}")),
    }
}
