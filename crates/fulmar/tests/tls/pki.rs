//! Certificates, made when a test runs.

use fulmar::tls::{ClientTls, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

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
