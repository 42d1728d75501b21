//! Calls of all four kinds, ours against ours: over TCP, in-process, blocking and asynchronous.

mod common;

use std::time::Duration;

use common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_FAIL, PATH_SUM, number, serve, value};
use fulmar::{Channel, Code, LocalReactor, Raw, Request, Response, Server, Status, blocking};

#[test]
fn the_four_kinds_work_on_one_thread() {
    let server = Server::builder().add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    reactor.block_on(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        common::four_kinds(&channel).await;
    });
}

#[test]
fn the_four_kinds_work_between_threads() {
    let server = serve();
    common::block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        common::four_kinds(&channel).await;
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn the_four_kinds_work_in_process_from_any_thread() {
    let server = Server::builder()
        .reactors(2)
        .add_service(Demo::default())
        .without_listener()
        .unwrap()
        .spawn()
        .unwrap();
    let channel = server.in_process();
    common::block_on(common::four_kinds(&channel));
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn the_four_kinds_work_in_process_on_one_thread() {
    let server = Server::builder().add_service(Demo::default()).without_listener().unwrap();
    let mut reactor = LocalReactor::new().unwrap();
    let channel = reactor.serve(server).unwrap().in_process();
    reactor.block_on(common::four_kinds(&channel));
}

#[test]
fn the_four_kinds_work_on_a_blocking_channel() {
    let server = serve();
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();

    let reply: Response<Raw> = channel.unary(PATH_ECHO, number(7)).unwrap();
    assert_eq!(value(reply.get_ref()), 7);

    let count = channel.server_streaming::<_, Raw>(PATH_COUNT, number(5)).unwrap().into_inner();
    let counted: Vec<u64> = count.map(|message| value(&message.unwrap())).collect();
    assert_eq!(counted, [0, 1, 2, 3, 4]);

    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).unwrap();
    for addend in 1..=100 {
        upload.send(&number(addend)).unwrap();
    }
    assert_eq!(value(upload.finish().unwrap().get_ref()), 5050);

    let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).unwrap();
    for turn in 0..10 {
        chat.send(&number(turn)).unwrap();
        assert_eq!(chat.message().unwrap().map(|reply| value(&reply)), Some(turn * 2));
    }
    chat.finish_sending();
    assert!(chat.message().unwrap().is_none());
    assert_eq!(chat.trailers().get("x-turns"), Some("10"));
    drop(chat);
    drop(channel);
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn metadata_goes_both_ways_and_failures_carry_their_text() {
    let server = serve();
    common::block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut request = Request::new(number(1));
        request.metadata_mut().insert("x-echo", "there and back").unwrap();
        request.metadata_mut().append_bin("x-echo-bin", &[0, 1, 2, 255]).unwrap();
        let reply = channel.unary::<Raw, Raw>(PATH_ECHO, request).await.unwrap();
        assert_eq!(reply.metadata().get("x-echo"), Some("there and back"));
        assert_eq!(reply.trailers().get_bin("x-echo-bin").as_deref(), Some(&[0, 1, 2, 255][..]));

        let failed: Result<Response<Raw>, Status> = channel.unary(PATH_FAIL, number(9)).await;
        let status = failed.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
        assert_eq!(status.message(), "\t9 ist zu groß: ☺ 🐦\r\n");
    });
}

#[test]
fn a_message_larger_than_every_window_gets_through_both_ways() {
    let server = serve();
    let large = Raw::from((0..3 << 20).map(|index: u32| (index % 251) as u8).collect::<Vec<u8>>());
    common::block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let reply: Response<Raw> = channel.unary(PATH_ECHO, large.clone()).await.unwrap();
        assert!(*reply.get_ref() == large);
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let reply: Response<Raw> = channel.unary(PATH_ECHO, large.clone()).unwrap();
    assert!(*reply.get_ref() == large);
}

#[test]
fn a_thousand_calls_at_once_share_a_connection() {
    let server = serve();
    common::block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let calls = (0..1_000).map(|index| {
            let channel = channel.clone();
            async move {
                let reply: Response<Raw> = channel.unary(PATH_ECHO, number(index)).await.unwrap();
                assert_eq!(value(reply.get_ref()), index);
            }
        });
        common::join_all(calls).await;
    });
}
