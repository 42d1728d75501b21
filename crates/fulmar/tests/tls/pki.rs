//! Certificates, made when a test runs.

use std::sync::Arc;

use fulmar::tls::{ClientTls, ServerTls, rustls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate of a PEM text.
pub fn der(certificate_pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certificate_pem.as_bytes()).unwrap()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// Somebody who signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a server that is called `names`.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign(
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap(),
        )
    }

    /// A certificate for the client `name`.
    pub fn client(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A server's certificate for `localhost` that has expired long ago.
    pub fn expired(&self) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    pub fn server_tls(&self) -> ServerTls {
        self.server(&["localhost", "127.0.0.1"]).server_tls()
    }

    /// Trusts this authority and nobody else.
    pub fn client_tls(&self) -> ClientTls {
        ClientTls::from_ca_pem(self.pem()).unwrap()
    }

    /// A client's configuration of `rustls`, of these versions, that trusts this authority and offers these protocols.
    pub fn rustls_client(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        alpn: &[&str],
    ) -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols(alpn);
        config
    }

    /// A server's configuration of `rustls`, with a certificate for `localhost`, that takes these protocols.
    pub fn rustls_server(&self, alpn: &[&str]) -> rustls::ServerConfig {
        let Pair { certificate, key } = self.server(&["localhost"]);
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der(&certificate)], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            .unwrap();
        config.alpn_protocols = protocols(alpn);
        config
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    pub fn server_tls(&self) -> ServerTls {
        ServerTls::from_pem(&self.certificate, &self.key).unwrap()
    }
}
