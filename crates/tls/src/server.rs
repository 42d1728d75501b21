use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::common::{ALPN_HTTP2, missing_protocols, roots_of};
use crate::error::TlsError;
use crate::identity::Identity;
use crate::provider::{provider, ticketer};
use crate::session::{HANDSHAKE_TIMEOUT, Limit, TlsSession};

/// How servers do TLS: the certificate, whom they ask for one, and their patience. TLS 1.3 and 1.2. Clones share everything.
///
/// Clients that come back are let in without a whole handshake: they get tickets that only this configuration can open.
#[derive(Clone)]
pub struct ServerTls {
    rustls: Arc<ServerConfig>,
    /// None where it is the business of a configuration of the user's.
    identity: Option<Arc<Identity>>,
    handshake_timeout: Duration,
    assumes_http2: bool,
    asks: bool,
}

impl ServerTls {
    /// A server that shows the certificate chain in `certificates_pem`, its own certificate first, and holds the private key in
    /// `key_pem` (PKCS #8, PKCS #1 or SEC 1). Clients are not asked for certificates.
    ///
    /// # Errors
    /// One of the texts holds no readable certificate or key, or the key is not the certificate's.
    pub fn from_pem(certificates_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let identity = Identity::from_pem(certificates_pem.as_ref(), key_pem.as_ref())?;
        Self::with_identity(Arc::new(identity), WebPkiClientVerifier::no_client_auth())
    }

    /// A server with a `rustls` configuration of the user's. Where that names no protocols for ALPN, `h2` is added.
    ///
    /// # Errors
    /// It names protocols, and `h2` is not among them; or it allows early data, which could be a call that is replayed.
    pub fn from_rustls(config: impl Into<Arc<ServerConfig>>) -> Result<Self, TlsError> {
        let mut config = config.into();
        if let Some(protocols) = missing_protocols(&config.alpn_protocols)? {
            Arc::make_mut(&mut config).alpn_protocols = protocols;
        }
        if config.max_early_data_size > 0 {
            // What comes before the handshake is complete can be replayed by anybody (RFC 8446 §8), and a call must not be.
            return Err(TlsError::new("the rustls configuration allows early data (max_early_data_size)"));
        }
        Ok(Self {
            rustls: config,
            identity: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            assumes_http2: false,
            asks: true,
        })
    }

    /// Lets in only clients that show a certificate signed by one of the authorities in `ca_pem` (mutual TLS).
    ///
    /// # Errors
    /// The text holds no readable certificate, or one that cannot be an authority; or this is a configuration of the user's, which says
    /// itself whom it asks.
    pub fn require_client_certificates(self, ca_pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots_of(ca_pem.as_ref())?.into(), provider())
                .build();
        self.asking(verifier.map_err(refused)?)
    }

    /// Asks clients for a certificate signed by one of the authorities in `ca_pem`, and lets those without one in as well. One that
    /// was not signed by them is refused.
    ///
    /// # Errors
    /// As [`require_client_certificates`](Self::require_client_certificates).
    pub fn request_client_certificates(self, ca_pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots_of(ca_pem.as_ref())?.into(), provider())
                .allow_unauthenticated()
                .build();
        self.asking(verifier.map_err(refused)?)
    }

    /// How long a client may take to complete the handshake. Default: 10 s.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Takes clients that do not negotiate a protocol at all (ALPN, RFC 7301) to speak HTTP/2. By default they are refused, as RFC 9113
    /// §3.2 wants it. Clients that negotiate and do not know `h2` are refused in any case.
    #[must_use]
    pub fn assume_http2(mut self) -> Self {
        self.assumes_http2 = true;
        self
    }

    /// Shows another certificate from here on, on this configuration, its clones, and the servers that have them. Connections that
    /// are open stay as they are. From any thread; it never waits for a handshake.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem), and the old certificate stays; or this is a configuration of the user's, whose own resolver
    /// can change what it shows.
    pub fn reload(
        &self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<(), TlsError> {
        match &self.identity {
            Some(identity) => identity.reload(certificates_pem.as_ref(), key_pem.as_ref()),
            None => Err(TlsError::new(
                "the certificate is in the rustls configuration that was handed in: \
                 give that a certificate resolver of your own, and change what it resolves to",
            )),
        }
    }

    /// The server's end of one connection.
    #[must_use]
    pub fn session(&self) -> TlsSession {
        TlsSession::server(self.rustls.clone(), Limit::After(self.handshake_timeout), self.assumes_http2)
    }

    /// Whether clients may show certificates: where nobody asks for them, nothing need be kept for them.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks
    }

    /// The same server, asking its clients as `verifier` does.
    fn asking(mut self, verifier: Arc<dyn ClientCertVerifier>) -> Result<Self, TlsError> {
        let Some(identity) = self.identity.take() else {
            return Err(TlsError::new(
                "the rustls configuration that was handed in says itself whether clients are asked for certificates",
            ));
        };
        let asking = Self::with_identity(identity, verifier)?;
        Ok(Self { rustls: asking.rustls, identity: asking.identity, asks: true, ..self })
    }

    fn with_identity(
        identity: Arc<Identity>,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<Self, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(identity.clone());
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        config.ticketer = ticketer().map_err(refused)?;
        Ok(Self {
            rustls: Arc::new(config),
            identity: Some(identity),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            assumes_http2: false,
            asks: false,
        })
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("handshake_timeout", &self.handshake_timeout)
            .finish_non_exhaustive()
    }
}

fn refused(error: impl fmt::Display) -> TlsError {
    TlsError::new(format!("it does not serve: {error}"))
}
