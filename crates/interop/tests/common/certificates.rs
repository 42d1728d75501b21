//! Certificates, made when a test runs.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority, as PEM, and what it has signed.
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) server: Pair,
    pub(crate) client: Pair,
}

impl Certificates {
    /// Those of a server that is called `name`, and of its client.
    pub(crate) fn of(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are fine names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority signs itself");
        let sign = |params: CertificateParams| {
            let key = KeyPair::generate().expect("keys can be made");
            let certificate = params.signed_by(&key, &authority).expect("an authority signs");
            Pair { certificate: certificate.pem(), key: key.serialize_pem() }
        };
        let server = CertificateParams::new(vec![name.to_owned()]).expect("it is a name");
        let mut client = CertificateParams::new(Vec::new()).expect("no names are fine names");
        client.distinguished_name.push(DnType::CommonName, "client");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Self { authority: authority.pem(), server: sign(server), client: sign(client) }
    }
}
