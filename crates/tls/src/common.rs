//! What the configurations of both ends have in common.

use rustls::RootCertStore;

use crate::error::TlsError;
use crate::identity::certificates;

/// The only protocol we speak, as ALPN names it (RFC 9113 §3.2).
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

/// The protocols to give to a configuration of the user's that names none. One that would never agree with a peer is refused when it is
/// made, and not in each handshake.
pub(crate) fn missing_protocols(named: &[Vec<u8>]) -> Result<Option<Vec<Vec<u8>>>, TlsError> {
    if named.is_empty() {
        return Ok(Some(vec![ALPN_HTTP2.to_vec()]));
    }
    if named.iter().any(|protocol| protocol == ALPN_HTTP2) {
        return Ok(None);
    }
    Err(TlsError::new("the ALPN protocols of the rustls configuration do not have \"h2\", which gRPC needs"))
}

/// The certificate authorities in a PEM text.
pub(crate) fn roots_of(ca_pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca_pem)? {
        roots.add(certificate).map_err(|error| {
            TlsError::new(format!("a certificate cannot be a certificate authority: {error}"))
        })?;
    }
    Ok(roots)
}
