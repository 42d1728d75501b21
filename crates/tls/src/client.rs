use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use crate::common::{missing_protocols, roots_of};
use crate::error::TlsError;
use crate::identity::certified_key;
use crate::provider::provider;
use crate::session::{HANDSHAKE_TIMEOUT, Limit, TlsSession};

/// How clients do TLS: whom they trust, what they show, and their patience. TLS 1.3 and 1.2. Clones share everything.
///
/// Sessions are resumed: a second connection to the same server costs less than the first.
#[derive(Clone)]
pub struct ClientTls {
    rustls: Rustls,
    server_name: Option<ServerName<'static>>,
    handshake_timeout: Duration,
    assumes_http2: bool,
}

/// What `rustls` is to do in the connections that begin.
#[derive(Clone)]
enum Rustls {
    Fixed(Arc<ClientConfig>),
    /// It shows a certificate that can be replaced, and each certificate has a configuration of its own: `rustls` resumes a session, in
    /// which the server knows the client by the certificate of back then, wherever the resolver of certificates is the same `Arc`.
    Identified(Arc<RwLock<Arc<ClientConfig>>>),
}

impl ClientTls {
    /// A client that trusts the certificate authorities Mozilla trusts, as of the release of the crate `webpki-roots` in use.
    ///
    /// # Errors
    /// None known; the provider of the cryptography could refuse its own defaults.
    pub fn new() -> Result<Self, TlsError> {
        Self::with_roots(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }

    /// A client that trusts the certificate authorities in `ca_pem`, and nobody else.
    ///
    /// # Errors
    /// The text holds no readable certificate, or one that cannot be an authority.
    pub fn from_ca_pem(ca_pem: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        Self::with_roots(roots_of(ca_pem.as_ref())?)
    }

    /// A client that trusts the certificate authorities that this machine trusts, as they are now.
    ///
    /// # Errors
    /// The machine has none that can be read.
    #[cfg(feature = "native-roots")]
    pub fn with_native_roots() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            return Err(TlsError::new(format!(
                "this machine has no certificate authorities that can be read: {}",
                if reasons.is_empty() { "none found".to_owned() } else { reasons.join("; ") }
            )));
        }
        Self::with_roots(roots)
    }

    /// A client with a `rustls` configuration of the user's. Where that names no protocols for ALPN, `h2` is added.
    ///
    /// # Errors
    /// It names protocols, and `h2` is not among them.
    pub fn from_rustls(config: impl Into<Arc<ClientConfig>>) -> Result<Self, TlsError> {
        let mut config = config.into();
        if let Some(protocols) = missing_protocols(&config.alpn_protocols)? {
            Arc::make_mut(&mut config).alpn_protocols = protocols;
        }
        Ok(Self {
            rustls: Rustls::Fixed(config),
            server_name: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            assumes_http2: false,
        })
    }

    /// Shows servers that ask for it the certificate chain in `certificates_pem`, the client's own certificate first, and proves it
    /// with the private key in `key_pem` (mutual TLS).
    ///
    /// # Errors
    /// One of the texts holds no readable certificate or key, or the key is not the certificate's.
    pub fn identity_pem(
        mut self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<Self, TlsError> {
        let config = showing(&self.rustls.current(), certificates_pem.as_ref(), key_pem.as_ref())?;
        self.rustls = Rustls::Identified(Arc::new(RwLock::new(config)));
        Ok(self)
    }

    /// Shows another certificate from here on, on this configuration, its clones, and the channels that have them. Connections that
    /// are open stay as they are, and their sessions are not resumed: whoever is connected to later sees the new certificate. From any
    /// thread; it never waits for a handshake.
    ///
    /// # Errors
    /// As [`identity_pem`](Self::identity_pem), and the old certificate stays; or none was given that way.
    pub fn reload_identity(
        &self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<(), TlsError> {
        let Rustls::Identified(config) = &self.rustls else {
            return Err(TlsError::new("there is no certificate to replace: none was given by identity_pem"));
        };
        let next = showing(&self.rustls.current(), certificates_pem.as_ref(), key_pem.as_ref())?;
        *config.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Asks for the certificate of `name`, a DNS name or an IP address, whatever the endpoint is called. A DNS name is told to the
    /// server, too (SNI, RFC 6066 §3).
    ///
    /// # Errors
    /// It is neither a DNS name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsError> {
        self.server_name = Some(parse_server_name(name)?);
        Ok(self)
    }

    /// How long a server may take to complete the handshake, where nothing else bounds it. Default: 10 s. A channel bounds it by
    /// its own time to connect.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Takes servers that do not negotiate a protocol at all (ALPN, RFC 7301) to speak HTTP/2. By default they are refused, as RFC 9113
    /// §3.2 wants it.
    #[must_use]
    pub fn assume_http2(mut self) -> Self {
        self.assumes_http2 = true;
        self
    }

    /// The name that the certificate of a server at `host` must bear: the host, unless this configuration names another.
    ///
    /// # Errors
    /// The host is neither a DNS name nor an IP address, and no other name is set.
    pub fn name_for(&self, host: &str) -> Result<TlsName, TlsError> {
        self.server_name.clone().map_or_else(|| parse_server_name(host), Ok).map(TlsName)
    }

    /// The client's end of one connection, to a server whose certificate bears `name`.
    #[must_use]
    pub fn session(&self, name: &TlsName) -> TlsSession {
        let limit = Limit::After(self.handshake_timeout);
        TlsSession::client(self.rustls.current(), name.0.clone(), limit, self.assumes_http2)
    }

    fn with_roots(roots: RootCertStore) -> Result<Self, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(format!("the provider refuses its defaults: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::from_rustls(config)
    }
}

impl Rustls {
    fn current(&self) -> Arc<ClientConfig> {
        match self {
            Self::Fixed(config) => config.clone(),
            Self::Identified(config) => config.read().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// What a server's certificate can bear: a DNS name or an IP address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsName(ServerName<'static>);

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// `config` with another certificate to show.
fn showing(
    config: &ClientConfig,
    certificates_pem: &[u8],
    key_pem: &[u8],
) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = config.clone();
    config.client_auth_cert_resolver =
        Arc::new(SingleCertAndKey::from(certified_key(certificates_pem, key_pem)?));
    Ok(Arc::new(config))
}

fn parse_server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    // In a URL, and so in an authority, an IPv6 address stands in brackets.
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        TlsError::new(format!(
            "\"{name}\" is neither a DNS name nor an IP address: no certificate can be its"
        ))
    })
}
