//! Certificates for what is measured over TLS: made when a program first needs them, and gone with it.

use std::process::Command;
use std::sync::{Arc, LazyLock};

use fulmar::tls::rustls::pki_types::pem::PemObject;
use fulmar::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use fulmar::tls::{ClientTls, ServerTls, rustls};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Where a process finds the certificate of the one that has started it.
const SHARED: &str = "FULMAR_BENCHES_CERTIFICATE";

static OWN: LazyLock<Own> = LazyLock::new(|| {
    if let Ok(shared) = std::env::var(SHARED)
        && let Some((certificate, key)) = shared.split_once(BETWEEN)
    {
        return Own { certificate: certificate.to_owned(), key: key.to_owned() };
    }
    let own =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate can be made");
    Own { certificate: own.cert.pem(), key: own.signing_key.serialize_pem() }
});

/// A certificate that signs itself, for `localhost`, as PEM.
struct Own {
    certificate: String,
    key: String,
}

/// Between a certificate and its key; PEM has no such line.
const BETWEEN: &str = "=====\n";

/// Lets a process that is about to be started have the same certificate, of whichever end it is.
pub fn share(command: &mut Command) {
    command.env(SHARED, format!("{}{BETWEEN}{}", OWN.certificate, OWN.key));
}

/// What a server of ours shows.
pub fn server() -> ServerTls {
    ServerTls::from_pem(&OWN.certificate, &OWN.key).expect("the pair is one")
}

/// A client of ours that trusts [`server`], whatever address it is at.
pub fn client() -> ClientTls {
    let tls = ClientTls::from_ca_pem(&OWN.certificate).and_then(|tls| tls.server_name("localhost"));
    tls.expect("it is a certificate")
}

/// The same for `rustls` alone, without tickets, which would come behind the handshake.
pub fn rustls() -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let certificate =
        CertificateDer::from_pem_slice(OWN.certificate.as_bytes()).expect("it is a certificate");
    let key = PrivateKeyDer::from_pem_slice(OWN.key.as_bytes()).expect("it is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("it is an authority, too");
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the pair is one");
    server.send_tls13_tickets = 0;
    (Arc::new(client), Arc::new(server))
}

/// What a server of tonic's shows: the same.
pub fn tonic_server() -> ServerTlsConfig {
    ServerTlsConfig::new().identity(Identity::from_pem(&OWN.certificate, &OWN.key))
}

/// A client of tonic's that trusts it.
pub fn tonic_client() -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&OWN.certificate)).domain_name("localhost")
}
