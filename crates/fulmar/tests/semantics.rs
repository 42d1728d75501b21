//! What a call can do besides sending messages both ways: early headers, half-closing, trailers of failures, cardinality, encoded
//! messages, the caller's address, and the door of a server.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Demo, PATH_ECHO, PATH_HANG, PATH_SUM, block_on, number, serve_one, value};
use fulmar::{
    Channel, Code, Duplex, Encoded, Raw, Replies, Request, Response, RunningServer, Server, Status,
    Streaming, blocking,
};

const PATH: &str = "/demo.One/Call";

/// Serves a handler that streams both ways, which a client may call as a method of any kind.
fn serve_both_ways<Fut: Future<Output = Result<(), Status>> + 'static>(
    handler: impl Fn(Request<Streaming<Raw>>, Replies<Raw>) -> Fut + Send + Sync + Copy + 'static,
) -> RunningServer {
    serve_one(move |router| {
        router.bidi(PATH, &Arc::new(()), move |_, requests, replies| handler(requests, replies));
    })
}

fn end(server: RunningServer) {
    server.shutdown(Duration::from_secs(5)).unwrap();
}

/// Sends metadata at once, and a sum at the end.
async fn greet_then_sum(
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    replies.metadata(|metadata| metadata.insert("x-early", "yes")).unwrap();
    replies.send_metadata().await?;
    let mut sum = 0;
    while let Some(addend) = requests.message().await? {
        sum += value(&addend);
    }
    replies.send(&number(sum)).await
}

#[test]
fn headers_that_a_handler_sends_early_are_readable_before_any_message() {
    let server = serve_both_ways(greet_then_sum);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH, ()).await.unwrap();
        assert_eq!(replies.metadata().await.unwrap().get("x-early"), Some("yes"));
        requests.send(&number(3)).await.unwrap();
        requests.finish();
        assert_eq!(replies.message().await.unwrap(), Some(number(3)));

        let mut upload = channel.client_streaming::<Raw, Raw>(PATH, ()).await.unwrap();
        assert_eq!(upload.metadata().await.unwrap().get("x-early"), Some("yes"));
        upload.send(&number(1)).await.unwrap();
        assert!(upload.try_send(&number(2)).unwrap());
        let reply = upload.finish().await.unwrap();
        assert_eq!((value(reply.get_ref()), reply.metadata().get("x-early")), (3, Some("yes")));
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH, ()).unwrap();
    assert_eq!(upload.metadata().unwrap().get("x-early"), Some("yes"));
    upload.send(&number(4)).unwrap();
    assert_eq!(value(upload.finish().unwrap().get_ref()), 4);
    let mut call = channel.bidi::<Raw, Raw>(PATH, ()).unwrap();
    assert_eq!(call.metadata().unwrap().get("x-early"), Some("yes"));
    drop(call);
    drop(channel);
    end(server);
}

#[test]
fn metadata_of_an_upload_that_fails_before_any_is_the_failure() {
    let server = serve_both_ways(|_, _| async { Err(Status::aborted("not today")) });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH, ()).await.unwrap();
        assert_eq!(upload.metadata().await.unwrap_err().code(), Code::Aborted);
        assert_eq!(upload.finish().await.unwrap_err().code(), Code::Aborted);
    });
    end(server);
}

#[test]
fn a_half_closed_call_goes_on_and_a_cancelled_one_does_not() {
    let server = serve_both_ways(|mut requests, mut replies| async move {
        while requests.message().await?.is_some() {}
        for turn in 0..1_000 {
            replies.send(&number(turn)).await?;
        }
        replies.trailers(|trailers| trailers.insert("x-end", "whole")).unwrap();
        Ok(())
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { requests, mut replies } = channel.bidi::<Raw, Raw>(PATH, ()).await.unwrap();
        requests.finish();
        for turn in 0..1_000 {
            assert_eq!(replies.message().await.unwrap(), Some(number(turn)));
        }
        assert_eq!(replies.message().await.unwrap(), None);
        assert_eq!(replies.trailers().get("x-end"), Some("whole"));

        let Duplex { requests, mut replies } = channel.bidi::<Raw, Raw>(PATH, ()).await.unwrap();
        drop(requests);
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Cancelled);
    });
    end(server);
}

/// Sends one message, then fails with trailers in both places that there are for them.
async fn fail_late(_: Request<Streaming<Raw>>, mut replies: Replies<Raw>) -> Result<(), Status> {
    replies.send(&number(1)).await?;
    replies.trailers(|trailers| trailers.insert("x-replies", "1")).unwrap();
    let mut status = Status::with_code_and_details(Code::Aborted, "enough", vec![9, 9]);
    status.metadata_mut().insert("x-status", "2").unwrap();
    Err(status)
}

#[test]
fn trailers_of_a_failure_are_readable_from_status_and_stream() {
    let check = |status: &Status| {
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::Aborted, "enough", &[9, 9][..])
        );
        assert_eq!(status.metadata().get("x-replies"), Some("1"));
        assert_eq!(status.metadata().get("x-status"), Some("2"));
    };
    let server = serve_both_ways(fail_late);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut replies: Streaming<Raw> =
            channel.server_streaming(PATH, number(0)).await.unwrap().into_inner();
        assert_eq!(replies.message().await.unwrap(), Some(number(1)));
        check(&replies.message().await.unwrap_err());
        assert_eq!(replies.trailers().get("x-status"), Some("2"));
        check(&channel.unary::<Raw, Raw>(PATH, number(0)).await.unwrap_err());
        let upload = channel.client_streaming::<Raw, Raw>(PATH, ()).await.unwrap();
        check(&upload.finish().await.unwrap_err());
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    check(&channel.unary::<Raw, Raw>(PATH, number(0)).unwrap_err());
    let mut replies = channel.server_streaming::<Raw, Raw>(PATH, number(0)).unwrap().into_inner();
    assert_eq!(replies.message().unwrap(), Some(number(1)));
    check(&replies.message().unwrap_err());
    assert_eq!(replies.trailers().get("x-replies"), Some("1"));
    drop(replies);
    drop(channel);
    end(server);
}

/// Answers with as many messages as the first request says.
async fn answer_as_asked(
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    let count = requests.message().await?.map_or(0, |count| value(&count));
    for turn in 0..count {
        replies.send(&number(turn)).await?;
    }
    Ok(())
}

#[test]
fn none_or_two_replies_where_there_must_be_one_are_unimplemented_on_every_client() {
    let server = serve_both_ways(answer_as_asked);
    let is_unimplemented = |result: Result<Response<Raw>, Status>| {
        let status = result.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    };
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        assert!(channel.unary::<Raw, Raw>(PATH, number(1)).await.is_ok());
        for count in [0, 2] {
            is_unimplemented(channel.unary(PATH, number(count)).await);
            let mut upload = channel.client_streaming::<Raw, Raw>(PATH, ()).await.unwrap();
            upload.send(&number(count)).await.unwrap();
            is_unimplemented(upload.finish().await);
        }
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    for count in [0, 2] {
        is_unimplemented(channel.unary(PATH, number(count)));
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH, ()).unwrap();
        upload.send(&number(count)).unwrap();
        is_unimplemented(upload.finish());
    }
    drop(channel);
    end(server);
}

#[test]
fn none_or_two_requests_where_there_must_be_one_are_unimplemented_on_the_server() {
    let server = serve_one(|router| {
        let service = Arc::new(());
        router.unary("/demo.One/Unary", &service, |_, request: Request<Raw>| async move {
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
        router.server_streaming(
            "/demo.One/List",
            &service,
            |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                replies.send(request.get_ref()).await
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for (path, count) in
            [("/demo.One/Unary", 0), ("/demo.One/Unary", 2), ("/demo.One/List", 0), ("/demo.One/List", 2)]
        {
            let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(path, ()).await.unwrap();
            for turn in 0..count {
                // The server may have answered before the last one.
                let _ = requests.send(&number(turn)).await;
            }
            requests.finish();
            assert_eq!(replies.message().await.unwrap_err().code(), Code::Unimplemented, "{path} {count}");
        }
    });
    end(server);
}

#[test]
fn encoded_messages_go_out_in_place_of_their_messages() {
    let server = serve_both_ways(|mut requests, mut replies| async move {
        let twice = Encoded::new(&number(21));
        while requests.message().await?.is_some() {
            replies.send_encoded(&twice).await?;
            replies.send_encoded(&twice.clone()).await?;
        }
        Ok(())
    });
    let one: Encoded<Raw> = Encoded::new(&number(1));
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut replies: Streaming<Encoded<Raw>> =
            channel.server_streaming(PATH, one.clone()).await.unwrap().into_inner();
        for _ in 0..2 {
            assert_eq!(replies.message().await.unwrap().unwrap().decode().unwrap(), number(21));
        }
        assert!(replies.message().await.unwrap().is_none());
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH, ()).await.unwrap();
        requests.send_encoded(&one).await.unwrap();
        requests.finish();
        assert_eq!(replies.message().await.unwrap(), Some(number(21)));
    });
    end(server);
    let server = common::serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap();
        for _ in 0..3 {
            upload.send_encoded(&one).await.unwrap();
        }
        assert_eq!(value(upload.finish().await.unwrap().get_ref()), 3);
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).unwrap();
    upload.send_encoded(&one).unwrap();
    assert_eq!(value(upload.finish().unwrap().get_ref()), 1);
    let mut chat = channel.bidi::<Raw, Raw>(common::PATH_CHAT, ()).unwrap();
    chat.send_encoded(&one).unwrap();
    assert_eq!(chat.message().unwrap(), Some(number(2)));
    drop(chat);
    drop(channel);
    end(server);
}

#[test]
fn handlers_of_streams_know_who_calls() {
    let server = serve_both_ways(|requests, mut replies| async move {
        let peer = requests.peer().address().map_or(String::new(), |peer| peer.ip().to_string());
        replies.send(&Raw::from(peer.into_bytes())).await
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let reply: Response<Raw> = channel.unary(PATH, number(0)).await.unwrap();
        assert_eq!(reply.get_ref().as_ref(), b"127.0.0.1");
        let reply: Response<Raw> = server.in_process().unary(PATH, number(0)).await.unwrap();
        assert_eq!(reply.get_ref().as_ref(), b"");
    });
    end(server);
}

#[test]
fn who_is_not_admitted_meets_no_handler_and_hears_why() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let server = Server::builder()
        .reactors(1)
        .unknown_methods(|requests, mut replies| async move {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            replies.send(&Raw::from(requests.path().as_bytes().to_vec())).await
        })
        .admit(|request| match request.metadata().get("x-token") {
            Some("secret") => Ok(()),
            _ => Err(Status::unauthenticated(format!("no token for {}", request.path()))),
        })
        .admit(|request| {
            assert_ne!(request.path(), "/a.B/Panic", "as asked");
            assert!(request.peer().address().is_some() && request.timeout().is_some());
            if request.path() == "/a.B/Secret" { Err(Status::permission_denied("no")) } else { Ok(()) }
        })
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let call = |path: &'static str, token: &'static str| {
            let mut request = Request::new(number(1)).with_timeout(Duration::from_secs(60));
            request.metadata_mut().insert("x-token", token).unwrap();
            channel.unary::<Raw, Raw>(path, request)
        };
        let status = call("/a.B/C", "wrong").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no token for /a.B/C"));
        assert_eq!(call("/a.B/Secret", "secret").await.unwrap_err().code(), Code::PermissionDenied);
        let status = call("/a.B/Panic", "secret").await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert_eq!(BEGUN.load(Ordering::SeqCst), 0);
        assert!(call("/a.B/C", "secret").await.is_ok(), "the connection lives on");
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
    });
    end(server);
}

#[test]
fn the_door_counts_the_calls_under_way() {
    let (counted, counts) = mpsc::channel();
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = Server::builder()
        .reactors(1)
        .add_service(demo)
        .admit(move |request| {
            counted.send((request.calls(), request.connection_calls())).unwrap();
            if request.calls() < 2 { Ok(()) } else { Err(Status::resource_exhausted("two are enough")) }
        })
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let first = Channel::connect(server.endpoint()).await.unwrap();
        let second = Channel::connect(server.endpoint()).await.unwrap();
        let hang = |channel: &Channel| {
            let channel = channel.clone();
            async move { channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap() }
        };
        let uploads = [hang(&first).await, hang(&second).await];
        assert_eq!(counts.recv().unwrap().1, 0);
        assert_eq!(counts.recv().unwrap(), (1, 0));
        let status = second.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(counts.recv().unwrap(), (2, 1));
        for upload in uploads {
            upload.finish().await.unwrap();
        }
        assert!(second.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.is_ok());
        assert_eq!(counts.recv().unwrap(), (0, 0));
    });
    // A deadline may pass before the handler is called: then it is not dropped either.
    common::eventually("a handler is dropped", || {
        block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            let hanging = Request::new(number(1)).with_timeout(Duration::from_millis(50));
            let status = channel.unary::<Raw, Raw>(PATH_HANG, hanging).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
        });
        seen.dropped.load(Ordering::SeqCst) > 0
    });
    common::eventually("calls that were cut off are not under way", || {
        block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            assert!(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.is_ok());
        });
        counts.try_iter().last() == Some((0, 0))
    });
    end(server);
}

#[test]
fn a_connection_that_is_not_admitted_is_closed_and_others_are_served() {
    let (asks, asked) = mpsc::channel();
    let allowed = Arc::new(AtomicUsize::new(0));
    let open = allowed.clone();
    let server = Server::builder()
        .reactors(1)
        .add_service(Demo::default())
        .admit_connections(move |peer| {
            asks.send(peer.address().unwrap().ip()).unwrap();
            open.load(Ordering::SeqCst) > 0
        })
        .admit_connections(|peer| peer.address().unwrap().ip().is_loopback())
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let refused = Channel::connect(server.endpoint()).await;
        assert!(refused.is_err());
        assert_eq!(asked.try_iter().last(), Some(std::net::Ipv4Addr::LOCALHOST.into()));
        allowed.store(1, Ordering::SeqCst);
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        assert!(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.is_ok());
        assert!(server.in_process().unary::<Raw, Raw>(PATH_ECHO, number(1)).await.is_ok());
        assert_eq!(asked.try_iter().count(), 1, "only about connections over sockets");
    });
    end(server);
}
