use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::error::TlsError;
use crate::provider::provider;

/// A server's certificate chain and its private key, which may be replaced at any time: handshakes that begin later show the new one.
#[derive(Debug)]
pub(crate) struct Identity {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    pub(crate) fn from_pem(certificates_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { current: RwLock::new(Arc::new(certified_key(certificates_pem, key_pem)?)) })
    }

    /// Replaces the certificate and the key, or leaves both as they are.
    pub(crate) fn reload(&self, certificates_pem: &[u8], key_pem: &[u8]) -> Result<(), TlsError> {
        let next = Arc::new(certified_key(certificates_pem, key_pem)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A certificate that a peer has shown, and that was verified.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// The X.509 certificate in DER.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Certificate {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({} bytes)", self.0.len())
    }
}

/// Where a peer's certificates appear once its handshake is complete, and before anything of it is delivered. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(Arc<OnceLock<Vec<Certificate>>>);

impl PeerCertificates {
    /// The chain, the peer's own certificate first. Empty when the peer has shown none, or not yet.
    pub fn chain(&self) -> &[Certificate] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn set(&self, chain: Option<&[CertificateDer<'static>]>) {
        let chain = chain.unwrap_or_default().iter().cloned().map(Certificate).collect();
        // A handshake is completed once.
        let _ = self.0.set(chain);
    }
}

/// The certificates in a PEM text, at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::new(format!("a certificate cannot be read from the PEM text: {error}")))?;
    if certificates.is_empty() {
        return Err(TlsError::new("the PEM text holds no certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(certificates)
}

/// A certificate chain and the private key that it goes with.
pub(crate) fn certified_key(certificates_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificates_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|error| TlsError::new(format!("no private key can be read from the PEM text: {error}")))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| TlsError::new(format!("the certificate and key do not serve: {error}")))
}
