//! The blocking channel: peers that die, deadlines, streams that are dropped, and threads that must not wait.

mod common;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use common::raw::{RawPeer, raw_server};
use common::{
    Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, PATH_SUM, eventually, number, serve, serve_demo,
    serve_one, value,
};
use fulmar::blocking::Channel;
use fulmar::{Code, LocalReactor, Raw, Replies, Request, Status, Streaming};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

/// A request that ends a test which would hang.
fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

fn echo(channel: &mut Channel, index: u64) -> Result<u64, Status> {
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(index)))?;
    Ok(value(reply.get_ref()))
}

/// A server that begins to answer its first call and then dies.
fn dying_server() -> (String, thread::JoinHandle<()>) {
    raw_server(|listener| {
        let mut peer = RawPeer::accept(&listener, &[]);
        let stream = peer.next_request().unwrap();
        peer.begin(stream);
        peer.message(stream, &5_u64.to_be_bytes());
    })
}

#[test]
fn a_peer_that_dies_in_the_middle_ends_a_call_of_every_kind() {
    let end = |what: &str, replied: Result<(), Status>, endpoint: &str| {
        let status = replied.expect_err(what);
        assert_eq!(status.code(), Code::Unavailable, "{what}: {status}");
        assert!(status.message().contains(endpoint), "{what}: {status}");
    };
    let (endpoint, server) = dying_server();
    let mut channel = Channel::connect(&endpoint).unwrap();
    end("unary", channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).map(drop), &endpoint);
    server.join().unwrap();

    let (endpoint, server) = dying_server();
    let mut channel = Channel::connect(&endpoint).unwrap();
    let replies = channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1))).unwrap();
    let mut replies = replies.into_inner();
    assert_eq!(replies.message().unwrap().map(|reply| value(&reply)), Some(5));
    end("server streaming", replies.message().map(drop), &endpoint);
    assert!(replies.message().unwrap().is_none(), "an end is told once");
    drop(replies);
    server.join().unwrap();

    let (endpoint, server) = dying_server();
    let mut channel = Channel::connect(&endpoint).unwrap();
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
    let large = Raw::from(vec![7; 30_000]);
    end("client streaming", (0..1_000).try_for_each(|_| upload.send(&large)), &endpoint);
    end("its end", upload.finish().map(drop), &endpoint);
    server.join().unwrap();

    let (endpoint, server) = dying_server();
    let mut channel = Channel::connect(&endpoint).unwrap();
    let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
    call.send(&number(1)).unwrap();
    assert_eq!(call.message().unwrap().map(|reply| value(&reply)), Some(5));
    end("bidi", call.message().map(drop), &endpoint);
    server.join().unwrap();
}

#[test]
fn goaway_between_calls_costs_no_call() {
    // Nobody waits for the old connections, which take a second each to be given up.
    common::soon(Duration::from_millis(900), calls_with_a_goaway_between);
}

fn calls_with_a_goaway_between() {
    let (endpoint, server) = raw_server(|listener| {
        let mut connections = Vec::new();
        for _ in 0..3 {
            let mut peer = RawPeer::accept(&listener, &[]);
            let stream = peer.next_request().unwrap();
            peer.reply(stream, &5_u64.to_be_bytes());
            peer.go_away(stream);
            connections.push(peer);
        }
        connections.into_iter().for_each(|mut peer| assert!(peer.next_request().is_none()));
    });
    let mut channel = Channel::connect(&endpoint).unwrap();
    for _ in 0..3 {
        assert_eq!(echo(&mut channel, 5).unwrap(), 5);
        thread::sleep(Duration::from_millis(5));
    }
    drop(channel);
    server.join().unwrap();
}

#[test]
fn a_deadline_ends_a_stream_whichever_way_it_waits() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    let hurried = |message| Request::new(message).with_timeout(Duration::from_millis(400));

    let mut replies =
        channel.server_streaming::<Raw, Raw>(PATH_COUNT, hurried(number(u64::MAX))).unwrap().into_inner();
    let status = loop {
        match replies.message() {
            Ok(message) => assert!(message.is_some()),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(replies);

    // The handler reads nothing, so that the sender waits.
    let server = serve_one(|router| {
        router.client_streaming(
            "/demo.One/Ignore",
            &Arc::new(()),
            |_, requests: Request<Streaming<Raw>>| async move {
                std::future::pending::<()>().await;
                drop(requests);
                Err::<fulmar::Response<Raw>, _>(Status::internal("it came back"))
            },
        );
    });
    let mut other = Channel::connect(server.endpoint()).unwrap();
    let hurried = Request::new(()).with_timeout(Duration::from_millis(400));
    let mut upload = other.client_streaming::<Raw, Raw>("/demo.One/Ignore", hurried).unwrap();
    let large = Raw::from(vec![7; 30_000]);
    let status = (0..1_000).try_for_each(|_| upload.send(&large)).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(upload);

    let hang = Request::new(number(1)).with_timeout(Duration::from_millis(20));
    let status = channel.unary::<Raw, Raw>(PATH_HANG, hang).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(echo(&mut channel, 5).unwrap(), 5);
    eventually("the handler hears", || seen.dropped.load(Ordering::SeqCst) == 1);
}

#[test]
fn large_messages_cross_each_other() {
    let server = serve_one(|router| {
        router.bidi(
            "/demo.One/Echo",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                while let Some(message) = requests.message().await? {
                    replies.send(&message).await?;
                }
                Ok::<(), Status>(())
            },
        );
    });
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    let mut call = channel.bidi::<Raw, Raw>("/demo.One/Echo", bounded(())).unwrap();
    let large: Vec<_> = [3 << 20, 1, 200_000, 0, 1 << 20]
        .into_iter()
        .map(|length| Raw::from(vec![length as u8; length]))
        .collect();
    for message in &large {
        call.send(message).unwrap();
        assert!(call.message().unwrap().as_ref() == Some(message));
    }
    // Two under way at a time.
    call.send(&large[0]).unwrap();
    for message in &large[1..] {
        call.send(message).unwrap();
    }
    call.finish_sending();
    for message in &large {
        assert!(call.message().unwrap().as_ref() == Some(message));
    }
    assert!(call.message().unwrap().is_none());
}

#[test]
fn calls_that_are_dropped_in_the_middle_leave_the_channel_as_it_was() {
    let server = serve();
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    for turn in 0..100 {
        let mut replies =
            channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1_000))).unwrap().into_inner();
        assert!(replies.message().unwrap().is_some());
        drop(replies);
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
        upload.send(&number(turn)).unwrap();
        drop(upload);
        let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
        call.send(&number(turn)).unwrap();
        if turn % 2 == 0 {
            assert_eq!(call.message().unwrap().map(|reply| value(&reply)), Some(turn * 2));
        }
        drop(call);
        assert_eq!(echo(&mut channel, turn).unwrap(), turn);
    }
}

#[test]
fn nothing_waits_on_a_reactors_thread() {
    let server = serve();
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    let mut reactor = LocalReactor::new().unwrap();
    let refused = |result: Result<(), Status>| {
        let status = result.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status}");
    };
    reactor.block_on(async { refused(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).map(drop)) });

    let mut replies =
        channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(2))).unwrap().into_inner();
    reactor.block_on(async { refused(replies.message().map(drop)) });
    assert_eq!(replies.message().unwrap().map(|reply| value(&reply)), Some(0), "a refusal harms no stream");
    drop(replies);

    let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
    reactor.block_on(async {
        refused(call.send(&number(1)));
        refused(call.metadata().map(drop));
    });
    call.send(&number(1)).unwrap();
    call.finish_sending();
    assert_eq!(call.message().unwrap().map(|reply| value(&reply)), Some(2));
    drop(call);

    let upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
    reactor.block_on(async { refused(upload.finish().map(drop)) });
    assert_eq!(echo(&mut channel, 5).unwrap(), 5);
}

#[test]
fn no_time_to_connect_is_an_error_that_says_so() {
    // Connections wait in the listener's queue, and nobody answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(10)] {
        let settings = || Channel::builder(&endpoint).connect_timeout(timeout);
        let blocking = Channel::with(settings()).unwrap_err().to_string();
        let asynchronous = common::block_on(settings().connect()).unwrap_err().to_string();
        for text in [blocking, asynchronous] {
            let says_so = ["within", "in time"].iter().any(|words| text.contains(words));
            assert!(says_so && text.contains(&endpoint), "{text}");
        }
    }
}

#[test]
fn a_blocking_channel_and_its_streams_move_between_threads() {
    let server = serve();
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    thread::scope(|scope| {
        let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
        call.send(&number(1)).unwrap();
        let moved = scope.spawn(move || {
            let reply = call.message().unwrap().map(|reply| value(&reply));
            drop(call);
            reply
        });
        assert_eq!(moved.join().unwrap(), Some(2));
    });
    let moved = thread::spawn(move || echo(&mut channel, 5));
    assert_eq!(moved.join().unwrap().unwrap(), 5);
}

#[test]
fn a_thread_that_unwinds_in_a_call_leaves_its_channel_usable() {
    let server = serve();
    let mut channel = Channel::connect(server.endpoint()).unwrap();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
        upload.send(&number(1)).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    assert_eq!(echo(&mut channel, 5).unwrap(), 5);
}
