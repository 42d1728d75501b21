//! Calls of every kind.

use std::time::Duration;

use fulmar::tls::ServerTls;
use fulmar::{Channel, LocalReactor, Raw, Request, RunningServer, Server, blocking};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, number, value};
use crate::pki::Authority;

pub const LONG: Duration = Duration::from_secs(20);

/// A message longer than many records and the first window.
const LARGE_BYTES: usize = 3_000_000;

pub fn serve(tls: ServerTls) -> (RunningServer, String) {
    let server =
        Server::builder().reactors(1).tls(tls).add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    let endpoint = format!("https://localhost:{}", server.local_addr().unwrap().port());
    (server, endpoint)
}

pub fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

fn large() -> Raw {
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
