use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The only protocol we speak, as ALPN names it (RFC 9113 §3.2).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

/// How long a peer may take to complete the handshake: 10 s, ten times what the slowest of honest networks takes.
const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// How a server end does TLS: its certificate, its key, and its patience. Clones share everything.
#[derive(Clone, Debug)]
pub struct TlsServerConfig {
    pub(crate) rustls: Arc<ServerConfig>,
    pub(crate) handshake_timeout: Duration,
}

impl TlsServerConfig {
    /// A server that shows the certificate chain in `certificates_pem`, its own certificate first, and holds the private key in
    /// `key_pem` (PKCS #8, PKCS #1 or SEC 1). Clients are not asked for certificates.
    ///
    /// # Errors
    /// One of the texts holds no readable certificate or key, or the key is not the certificate's.
    pub fn from_pem(certificates_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsConfigError> {
        let chain = certificates(certificates_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| {
            TlsConfigError::new(format!("no private key can be read from the PEM text: {error}"))
        })?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| TlsConfigError::new(format!("the certificate and key do not serve: {error}")))?;
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        Ok(Self { rustls: Arc::new(config), handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT })
    }

    /// How long a client may take to complete the handshake. Default: 10 s.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }
}

/// How a client end does TLS: whom it trusts, and its patience. Clones share everything.
#[derive(Clone, Debug)]
pub struct TlsClientConfig {
    pub(crate) rustls: Arc<ClientConfig>,
    pub(crate) handshake_timeout: Duration,
    server_name: Option<ServerName<'static>>,
}

impl TlsClientConfig {
    /// A client that trusts the certificate authorities Mozilla trusts, as of the release of the crate `webpki-roots` in use.
    ///
    /// # Errors
    /// None known; the provider could refuse its own defaults.
    pub fn new() -> Result<Self, TlsConfigError> {
        Self::with_roots(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// A client that trusts the certificate authorities in `ca_pem`, and nobody else.
    ///
    /// # Errors
    /// The text holds no readable certificate, or one that cannot be an authority.
    pub fn from_ca_pem(ca_pem: &[u8]) -> Result<Self, TlsConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_pem)? {
            roots.add(certificate).map_err(|error| {
                TlsConfigError::new(format!("a certificate cannot be a certificate authority: {error}"))
            })?;
        }
        Self::with_roots(roots)
    }

    /// Expects the certificate of `name`, a DNS name or an IP address, whatever address is connected to.
    ///
    /// # Errors
    /// It is neither a DNS name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsConfigError> {
        self.server_name = Some(parse_server_name(name)?);
        Ok(self)
    }

    /// How long a server may take to complete the handshake. Default: 10 s.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// The name to expect of a server at `host`.
    pub(crate) fn name_for(&self, host: &str) -> Result<ServerName<'static>, TlsConfigError> {
        self.server_name.clone().map_or_else(|| parse_server_name(host), Ok)
    }

    fn with_roots(roots: RootCertStore) -> Result<Self, TlsConfigError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::new(format!("the provider refuses its defaults: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        Ok(Self { rustls: Arc::new(config), handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT, server_name: None })
    }
}

/// A TLS configuration that cannot be: the text says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfigError {
    text: Cow<'static, str>,
}

impl TlsConfigError {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS configuration: {}", self.text)
    }
}

impl std::error::Error for TlsConfigError {}

/// Named, so that two rustls providers in one program do not make a default ambiguous.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let certificates =
        CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| {
            TlsConfigError::new(format!("a certificate cannot be read from the PEM text: {error}"))
        })?;
    if certificates.is_empty() {
        return Err(TlsConfigError::new("the PEM text holds no certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(certificates)
}

fn parse_server_name(name: &str) -> Result<ServerName<'static>, TlsConfigError> {
    // In a URL, and so in an authority, an IPv6 address stands in brackets.
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        TlsConfigError::new(format!(
            "\"{name}\" is neither a DNS name nor an IP address: no certificate can be its"
        ))
    })
}
