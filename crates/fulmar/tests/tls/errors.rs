//! What goes wrong with TLS, and what is said about it: field cases R71 and R72.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::tls::{ClientTls, ServerTls, rustls};
use fulmar::{Channel, ChannelBuilder, Code, Raw, Server, Status, blocking};

use crate::calls::{bounded, serve};
use crate::common::{Demo, PATH_ECHO, block_on, number};
use crate::pki::{Authority, Pair};

/// What a call of either kind of channel ends with. Each names the endpoint, is `UNAVAILABLE`, and comes long before any time is up.
fn failures(settings: impl Fn() -> ChannelBuilder, endpoint: &str) -> Vec<Status> {
    let began = Instant::now();
    let of_asynchronous = block_on(async {
        let channel = settings().build().unwrap();
        channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).await.map(drop).unwrap_err()
    });
    let of_blocking = match blocking::Channel::with(settings()) {
        Err(error) => error.into(),
        // With TLS 1.3 a client is through with its handshake before the server has seen its certificate.
        Ok(mut channel) => channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).map(drop).unwrap_err(),
    };
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    let statuses: Vec<Status> = vec![of_asynchronous, of_blocking];
    for status in &statuses {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(endpoint), "{status}");
    }
    statuses
}

fn assert_said(statuses: &[Status], parts: &[&str]) {
    for status in statuses {
        for part in parts {
            assert!(status.message().contains(part), "\"{part}\" is missing: {}", status.message());
        }
    }
}

#[test]
fn field_case_r72_a_plain_client_of_a_tls_server_is_told_to_use_https() {
    let (_server, endpoint) = serve(Authority::new("authority").server_tls());
    let plain = endpoint.replace("https://", "http://");
    let statuses = failures(|| Channel::builder(&plain), &plain);
    assert_said(&statuses, &["the server speaks TLS", "https://"]);
}

#[test]
fn field_case_r72_a_tls_client_of_a_plain_server_is_told_to_use_http() {
    let server = Server::builder().reactors(1).add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    let endpoint = format!("https://{}", server.local_addr().unwrap());
    let statuses = failures(|| Channel::builder(&endpoint), &endpoint);
    assert_said(&statuses, &["TLS: the server sent something that is not TLS", "SETTINGS", "http://"]);
}

#[test]
fn field_case_r72_schemes_and_settings_that_contradict_each_other_are_refused_when_the_channel_is_built() {
    let tls = Authority::new("authority").client_tls();
    let error = Channel::builder("http://localhost:1").tls(tls.clone()).build().unwrap_err();
    assert!(error.reason().contains("\"https\""), "{error}");
    assert!(Channel::builder("localhost:1").tls(tls.clone()).build().is_ok());
    let error = Channel::builder("https://not_a-name-:1").tls(tls).build().unwrap_err();
    assert!(error.reason().contains("no certificate can be its"), "{error}");
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused_with_advice() {
    let (_server, endpoint) = serve(Authority::new("ours").server_tls());
    // By the scheme alone: the authorities that Mozilla trusts.
    let statuses = failures(|| Channel::builder(&endpoint), &endpoint);
    assert_said(&statuses, &["not signed by an authority this client trusts", "ClientTls::from_ca_pem"]);
    let stranger = Authority::new("theirs").client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(stranger.clone()), &endpoint);
    assert_said(&statuses, &["not signed by an authority this client trusts", "ClientTls::from_ca_pem"]);
}

#[test]
fn a_certificate_of_another_name_is_refused_with_advice_and_taken_when_that_name_is_asked_for() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.server(&["other.example"]).server_tls());
    let tls = authority.client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["not valid for name \"localhost\"", "ClientTls::server_name"]);
    let asking = tls.server_name("other.example").unwrap();
    block_on(async { Channel::builder(&endpoint).tls(asking).connect().await.map(drop) }).unwrap();
}

#[test]
fn an_expired_certificate_is_refused_with_advice() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.expired().server_tls());
    let tls = authority.client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["certificate expired", "renewed", "clock"]);
}

#[test]
fn a_client_without_a_certificate_is_told_that_one_is_required() {
    let authority = Authority::new("authority");
    let tls = authority.server_tls().require_client_certificates(authority.pem()).unwrap();
    let (_server, endpoint) = serve(tls);
    let tls = authority.client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["requires a certificate of the client", "ClientTls::identity_pem"]);
}

#[test]
fn a_client_whose_certificate_is_not_trusted_is_told_so() {
    let authority = Authority::new("authority");
    let tls = authority.server_tls().require_client_certificates(authority.pem()).unwrap();
    let (_server, endpoint) = serve(tls);
    let Pair { certificate, key } = Authority::new("stranger").client("mallory");
    let tls = authority.client_tls().identity_pem(certificate, key).unwrap();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["TLS: the server refuses to go on", "does not trust the authority"]);
}

#[test]
fn a_server_that_speaks_tls_and_takes_no_version_of_ours_is_said_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            // A fatal alert: protocol_version (RFC 8446 §6.2).
            stream.write_all(&[0x15, 3, 3, 0, 2, 2, 70]).unwrap();
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    let statuses = failures(|| Channel::builder(&endpoint), &endpoint);
    assert_said(&statuses, &["neither TLS 1.2 nor 1.3"]);
    server.join().unwrap();
}

/// Answers every handshake with this configuration, and nothing behind it but the SETTINGS of HTTP/2.
fn handshakes(config: rustls::ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let config = Arc::new(config);
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            thread::spawn(move || {
                let mut tls = rustls::Stream::new(&mut tls, &mut stream);
                let _ = tls.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
                let _ = tls.read(&mut [0; 4096]);
                let _ = tls.read(&mut [0; 4096]);
            });
        }
    });
    endpoint
}

#[test]
fn field_case_r71_a_server_without_alpn_is_refused_by_name_unless_http2_is_assumed() {
    let authority = Authority::new("authority");
    let endpoint = handshakes(authority.rustls_server(&[]));
    let tls = authority.client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["ALPN", "\"h2\"", "ClientTls::assume_http2"]);
    let assuming = tls.assume_http2();
    block_on(async { Channel::builder(&endpoint).tls(assuming).connect().await.map(drop) }).unwrap();
}

#[test]
fn field_case_r71_a_server_of_http_1_1_only_is_refused_by_name() {
    let authority = Authority::new("authority");
    let endpoint = handshakes(authority.rustls_server(&["http/1.1"]));
    let tls = authority.client_tls();
    let statuses = failures(|| Channel::builder(&endpoint).tls(tls.clone()), &endpoint);
    assert_said(&statuses, &["does not speak HTTP/2", "ALPN", "h2"]);
}

#[test]
fn field_case_r71_our_server_selects_h2_and_refuses_a_client_that_does_not_offer_it() {
    let authority = Authority::new("authority");
    let (server, _) = serve(authority.server_tls());
    let address = server.local_addr().unwrap();
    for (offered, selected) in
        [(&["h2", "http/1.1"][..], Some(&b"h2"[..])), (&["http/1.1"], None), (&[], None)]
    {
        let config = authority.rustls_client(rustls::DEFAULT_VERSIONS, offered);
        let mut tls =
            rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let read = rustls::Stream::new(&mut tls, &mut stream).read(&mut [0; 9]);
        assert_eq!(tls.alpn_protocol(), selected, "{offered:?}");
        match (offered, read) {
            (["h2", ..], read) => assert_eq!(read.unwrap(), 9, "SETTINGS follow"),
            // Alert 120 is no_application_protocol (RFC 7301 §3.2).
            (["http/1.1"], read) => {
                let text = read.unwrap_err().to_string();
                assert!(text.contains("NoApplicationProtocol"), "{text}");
            }
            (_, read) => assert_eq!(read.unwrap(), 0, "close_notify"),
        }
    }
}

#[test]
fn configurations_of_rustls_are_taken_on_both_sides() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(ServerTls::from_rustls(authority.rustls_server(&[])).unwrap());
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let config = authority.rustls_client(versions, &[]);
        let tls = ClientTls::from_rustls(config).unwrap();
        block_on(async {
            let channel = Channel::builder(&endpoint).tls(tls).connect().await.unwrap();
            channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).await.unwrap();
        });
    }
}
