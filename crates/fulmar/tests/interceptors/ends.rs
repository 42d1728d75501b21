//! What interceptors hear of calls that do not end by themselves.

use std::time::Duration;

use fulmar::{Channel, Code, Duplex, Raw, Request, RunningServer, Server, Streaming, blocking};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_HANG, PATH_PANIC, PATH_SUM, block_on, number};
use crate::{Log, Recorder, end};

fn serve(log: &Log) -> RunningServer {
    Server::builder()
        .reactors(1)
        .add_service(Demo::default())
        .intercept(Recorder::new("server", log))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap()
}

fn finishes(log: Vec<String>) -> Vec<String> {
    log.into_iter().filter(|line| line.contains("finish")).collect()
}

#[test]
fn a_cancelled_call_of_any_kind_is_told_once_on_both_sides() {
    let (at_server, at_client) = (Log::default(), Log::default());
    let server = serve(&at_server);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let channel = channel.intercept(Recorder::new("client", &at_client));
        let check = |what: &str| {
            assert_eq!(finishes(at_client.take()), ["client finish CANCELLED"], "{what}");
            assert_eq!(finishes(at_server.take_after_ends(1)), ["server finish CANCELLED"], "{what}");
        };

        let Duplex { requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
        let mut requests = requests;
        requests.send(&number(1)).await.unwrap();
        replies.message().await.unwrap();
        drop(replies);
        check("the reader was dropped");
        drop(requests);

        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
        requests.send(&number(1)).await.unwrap();
        replies.message().await.unwrap();
        drop(requests);
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Cancelled);
        check("the writer was dropped");

        let mut count: Streaming<Raw> =
            channel.server_streaming(PATH_COUNT, number(1_000_000)).await.unwrap().into_inner();
        count.message().await.unwrap();
        drop(count);
        check("a listing was dropped");

        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap();
        upload.send(&number(1)).await.unwrap();
        crate::common::eventually("the server has begun", || {
            at_server.0.lock().unwrap().iter().any(|line| line.contains("request"))
        });
        drop(upload);
        check("an upload was dropped");
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    channel = channel.intercept(Recorder::new("client", &at_client));
    let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).unwrap();
    chat.send(&number(1)).unwrap();
    chat.message().unwrap();
    drop(chat);
    assert_eq!(finishes(at_client.take()), ["client finish CANCELLED"]);
    assert_eq!(finishes(at_server.take_after_ends(1)), ["server finish CANCELLED"]);
    drop(channel);
    end(server);
}

#[test]
fn a_deadline_is_told_as_one_by_a_client() {
    let log = Log::default();
    let server = crate::common::serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let channel = channel.intercept(Recorder::new("client", &log));
        let request = Request::new(number(1)).with_timeout(Duration::from_millis(20));
        let status = channel.unary::<Raw, Raw>(PATH_HANG, request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(finishes(log.take()), ["client finish DEADLINE_EXCEEDED"]);
    });
    end(server);
}

/// A blocking client that does nothing does not cancel its call at the deadline either: the server finds it out alone.
#[test]
fn a_deadline_is_told_as_one_by_a_server() {
    let log = Log::default();
    let server = serve(&log);
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let mut chat =
        channel.bidi::<Raw, Raw>(PATH_CHAT, Request::new(()).with_timeout(Duration::from_secs(1))).unwrap();
    chat.send(&number(1)).unwrap();
    assert_eq!(finishes(log.take_after_ends(1)), ["server finish DEADLINE_EXCEEDED"]);
    assert_eq!(
        chat.message().map(drop).and_then(|()| chat.message()).unwrap_err().code(),
        Code::DeadlineExceeded
    );
    drop(chat);
    drop(channel);
    end(server);
}

#[test]
fn a_panic_of_the_handler_is_told_as_unknown() {
    let log = Log::default();
    let server = serve(&log);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let status = channel.unary::<Raw, Raw>(PATH_PANIC, number(1)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        assert_eq!(finishes(log.take_after_ends(1)), ["server finish UNKNOWN"]);
    });
    end(server);
}

#[test]
fn a_second_request_and_a_lost_connection_are_told_too() {
    let (at_server, at_client) = (Log::default(), Log::default());
    let server = serve(&at_server);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let channel = channel.intercept(Recorder::new("client", &at_client));
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_COUNT, ()).await.unwrap();
        requests.send(&number(1)).await.unwrap();
        let _ = requests.send(&number(1)).await;
        requests.finish();
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Unimplemented);
        assert_eq!(finishes(at_client.take()), ["client finish UNIMPLEMENTED"]);
        assert_eq!(finishes(at_server.take_after_ends(1)), ["server finish UNIMPLEMENTED"]);

        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
        requests.send(&number(1)).await.unwrap();
        replies.message().await.unwrap();
        server.shutdown(Duration::ZERO).unwrap();
        let status = replies.message().await.unwrap_err();
        assert_eq!(finishes(at_client.take()), [format!("client finish {}", status.code())]);
        assert_eq!(finishes(at_server.take_after_ends(1)), ["server finish CANCELLED"]);
    });
}

#[test]
fn a_call_to_nowhere_is_told_as_unavailable() {
    let log = Log::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    block_on(async {
        let channel = Channel::builder(endpoint).intercept(Recorder::new("client", &log)).build().unwrap();
        let status = channel.unary::<Raw, Raw>(PATH_SUM, number(1)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(finishes(log.take()), ["client finish UNAVAILABLE"]);
    });
}
