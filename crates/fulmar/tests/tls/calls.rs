//! Calls of every kind.

use std::sync::Arc;
use std::time::Duration;

use fulmar::tls::ServerTls;
use fulmar::{
    Channel, LocalReactor, Raw, Request, Response, Router, RunningServer, Server, Service, blocking,
};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, number, value};
use crate::pki::{Authority, Pair, der};

pub const LONG: Duration = Duration::from_secs(20);

/// A message longer than many records and the first window.
const LARGE_BYTES: usize = 3_000_000;

pub fn serve(tls: ServerTls) -> (RunningServer, String) {
    let server =
        Server::builder().reactors(1).tls(tls).add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    assert_eq!(server.endpoint(), format!("https://{}", server.local_addr().unwrap()));
    let endpoint = format!("https://localhost:{}", server.local_addr().unwrap().port());
    (server, endpoint)
}

pub fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

pub fn large() -> Raw {
    Raw::from((0..LARGE_BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>())
}

async fn call_every_kind(channel: &Channel) {
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(7))).await.unwrap();
    assert_eq!(value(reply.get_ref()), 7);
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).await.unwrap();
    assert!(reply.get_ref().as_ref() == large().as_ref(), "the large message is another one");
    let mut replies =
        channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1000))).await.unwrap().into_inner();
    for index in 0..1000 {
        assert_eq!(value(&replies.message().await.unwrap().unwrap()), index);
    }
    assert!(replies.message().await.unwrap().is_none());
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).await.unwrap();
    for index in 0..1000 {
        upload.send(&number(index)).await.unwrap();
    }
    assert_eq!(value(upload.finish().await.unwrap().get_ref()), 499_500);
    let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
    for index in 0..100 {
        chat.requests.send(&number(index)).await.unwrap();
        assert!(chat.replies.message().await.unwrap().is_some());
    }
}

#[test]
fn calls_of_every_kind_go_through_an_asynchronous_channel() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.server_tls());
    block_on(async {
        let channel = Channel::builder(&endpoint).tls(authority.client_tls()).connect().await.unwrap();
        call_every_kind(&channel).await;
    });
}

#[test]
fn calls_of_every_kind_go_through_one_reactor() {
    let authority = Authority::new("authority");
    let server = Server::builder().tls(authority.server_tls()).add_service(Demo::default());
    let server = server.bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", server.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    reactor.block_on(async {
        let channel = Channel::builder(&endpoint).tls(authority.client_tls()).connect().await.unwrap();
        call_every_kind(&channel).await;
    });
}

#[test]
fn calls_of_every_kind_go_through_a_blocking_channel() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.server_tls());
    let mut channel =
        blocking::Channel::with(blocking::Channel::builder(&endpoint).tls(authority.client_tls())).unwrap();
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).unwrap();
    assert!(reply.get_ref().as_ref() == large().as_ref(), "the large message is another one");
    let mut replies =
        channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1000))).unwrap().into_inner();
    for index in 0..1000 {
        assert_eq!(value(&replies.message().unwrap().unwrap()), index);
    }
    assert!(replies.message().unwrap().is_none());
    drop(replies);
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
    for index in 0..1000 {
        upload.send(&number(index)).unwrap();
    }
    assert_eq!(value(upload.finish().unwrap().get_ref()), 499_500);
    let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
    for index in 0..100 {
        chat.send(&number(index)).unwrap();
        assert!(chat.message().unwrap().is_some());
    }
}

struct Certified;

impl Service for Certified {
    fn name(&self) -> &'static str {
        "demo.Demo"
    }

    fn register(&self, router: &mut Router) {
        router.unary(PATH_ECHO, &Arc::new(()), |_, request: Request<Raw>| async move {
            let chain = request.peer().certificates().unwrap_or_default();
            let bytes = chain.iter().map(|certificate| certificate.as_der().len() as u64).sum();
            Ok(Response::new(number(bytes)))
        });
    }
}

/// A server whose only method answers with how many bytes its client's certificates have.
fn serve_certified(tls: ServerTls) -> (RunningServer, String) {
    let server = Server::builder().reactors(1).tls(tls).add_service(Certified);
    let server = server.bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = format!("https://localhost:{}", server.local_addr().unwrap().port());
    (server, endpoint)
}

#[test]
fn a_handler_sees_the_certificates_of_its_client_from_the_first_call_on() {
    let authority = Authority::new("authority");
    let Pair { certificate, key } = authority.client("alice");
    let der = der(&certificate);
    let alice = authority.client_tls().identity_pem(&certificate, &key).unwrap();
    let required = authority.server_tls().require_client_certificates(authority.pem()).unwrap();
    let requested = authority.server_tls().request_client_certificates(authority.pem()).unwrap();
    for (server, client, bytes) in [
        (required, alice.clone(), der.len()),
        (requested.clone(), alice.clone(), der.len()),
        (requested, authority.client_tls(), 0),
        (authority.server_tls(), alice, 0),
    ] {
        let (_server, endpoint) = serve_certified(server);
        let settings = || Channel::builder(&endpoint).tls(client.clone());
        // The later connections resume the session of the first.
        for _ in 0..2 {
            block_on(async {
                let channel = settings().connect().await.unwrap();
                let seen = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).await.unwrap();
                assert_eq!(value(seen.get_ref()), bytes as u64);
            });
            let mut channel = blocking::Channel::with(settings()).unwrap();
            let seen = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).unwrap();
            assert_eq!(value(seen.get_ref()), bytes as u64);
        }
    }
}

#[test]
fn a_certificate_is_reloaded_under_a_channel_whose_calls_go_on() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let tls = old.server_tls();
    let (_server, endpoint) = serve(tls.clone());
    block_on(async {
        let channel = Channel::builder(&endpoint).tls(old.client_tls()).connect().await.unwrap();
        let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        chat.requests.send(&number(1)).await.unwrap();
        assert!(chat.replies.message().await.unwrap().is_some());

        let Pair { certificate, key } = new.server(&["localhost"]);
        tls.reload(certificate, key).unwrap();
        Channel::builder(&endpoint).tls(new.client_tls()).connect().await.unwrap();
        let refused = Channel::builder(&endpoint).tls(old.client_tls()).connect().await.unwrap_err();
        assert!(refused.reason().contains("not signed by an authority"), "{refused}");

        chat.requests.send(&number(2)).await.unwrap();
        assert!(chat.replies.message().await.unwrap().is_some(), "the connection that was open goes on");
        channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(3))).await.unwrap();
    });
}

#[cfg(target_os = "linux")]
#[test]
fn calls_go_over_tls_on_a_unix_socket() {
    let authority = Authority::new("authority");
    let name = format!("unix-abstract:fulmar-tls-{}", std::process::id());
    let server = Server::builder().reactors(1).tls(authority.server_tls()).add_service(Demo::default());
    let _server = server.bind(name.as_str()).unwrap().spawn().unwrap();
    let settings = || Channel::builder(&name).tls(authority.client_tls());
    block_on(async {
        let channel = settings().connect().await.unwrap();
        channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).await.unwrap();
    });
    let mut channel = blocking::Channel::with(settings()).unwrap();
    channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).unwrap();
}
