//! tonic and Fulmar over TLS, with certificates on both sides: our client against tonic's server, tonic's against ours.

use fulmar::tls::{ClientTls, ServerTls};
use fulmar::{Channel, Code, blocking};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig};

use crate::certificates::{Certificates, Pair};
use crate::fulmar_lab::FulmarLab;
use crate::proto::Order;
use crate::proto::lab_client::LabClient;
use crate::proto::tonic::lab_client::LabClient as TonicClient;
use crate::tonic_lab::TonicLab;
use crate::within::within_limit;

const NAME: &str = "localhost";

impl Certificates {
    fn for_tonic_server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(Identity::from_pem(&self.server.certificate, &self.server.key))
            .client_ca_root(Certificate::from_pem(&self.authority))
    }

    fn for_our_server(&self) -> ServerTls {
        ServerTls::from_pem(&self.server.certificate, &self.server.key)
            .and_then(|tls| tls.require_client_certificates(&self.authority))
            .expect("the configuration serves")
    }

    fn for_tonic_client(&self) -> ClientTlsConfig {
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authority)).domain_name(NAME)
    }

    fn for_our_client(&self) -> ClientTls {
        ClientTls::from_ca_pem(&self.authority).expect("it is an authority")
    }
}

fn order(bytes: usize) -> Order {
    Order { body: vec![7; bytes], ..Order::default() }
}

/// In one record, and in many.
const BODIES: [usize; 3] = [5, 20_000, 1_000_000];

#[test]
fn our_clients_call_tonics_server_over_mutual_tls() {
    within_limit(|| {
        let certificates = Certificates::of(NAME);
        let lab = TonicLab::start_secured(certificates.for_tonic_server());
        let endpoint = format!("https://localhost:{}", lab.address.port());
        let Pair { certificate, key } = &certificates.client;
        let tls = certificates.for_our_client().identity_pem(certificate, key).expect("the pair is one");
        futures::executor::block_on(async {
            let channel =
                Channel::builder(&endpoint).tls(tls.clone()).connect().await.expect("tonic lets us in");
            let client = LabClient::new(channel);
            for bytes in BODIES {
                let answer = client.echo(order(bytes)).await.expect("tonic answers");
                assert_eq!(answer.get_ref().body.len(), bytes);
            }
        });
        let channel = blocking::Channel::with(blocking::Channel::builder(&endpoint).tls(tls));
        let mut client =
            crate::proto::lab_client::blocking::LabClient::new(channel.expect("tonic lets us in"));
        for bytes in BODIES {
            let answer = client.echo(order(bytes)).expect("tonic answers");
            assert_eq!(answer.get_ref().body.len(), bytes);
        }
        // Without a certificate nobody gets in.
        let settings = blocking::Channel::builder(&endpoint).tls(certificates.for_our_client());
        let status = match blocking::Channel::with(settings) {
            Err(error) => error.into(),
            Ok(channel) => crate::proto::lab_client::blocking::LabClient::new(channel)
                .echo(order(5))
                .expect_err("a certificate is required"),
        };
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("requires a certificate of the client"), "{status}");
    });
}

#[test]
fn tonics_client_calls_our_server_over_mutual_tls() {
    within_limit(|| {
        let certificates = Certificates::of(NAME);
        let lab = FulmarLab::start_with(fulmar::Server::builder().tls(certificates.for_our_server()));
        let uri = format!("https://{}", lab.address);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a tokio runtime").block_on(async {
            let Pair { certificate, key } = &certificates.client;
            let tls = certificates.for_tonic_client().identity(Identity::from_pem(certificate, key));
            let endpoint = Endpoint::from_shared(uri.clone()).expect("a URI").tls_config(tls);
            let channel = endpoint.expect("the configuration serves").connect().await.expect("we let it in");
            let mut client = TonicClient::new(channel);
            for bytes in BODIES {
                let answer = client.echo(order(bytes)).await.expect("we answer");
                assert_eq!(answer.get_ref().body.len(), bytes);
            }
            // Without a certificate nobody gets in.
            let endpoint =
                Endpoint::from_shared(uri).expect("a URI").tls_config(certificates.for_tonic_client());
            if let Ok(channel) = endpoint.expect("the configuration serves").connect().await {
                TonicClient::new(channel).echo(order(5)).await.expect_err("a certificate is required");
            }
        });
    });
}
