//! R70 and R76: a deadline covers the whole stream, and a stream ends once.

use std::future::Future;
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Raw, Request, Status, blocking};

use crate::common::block_on;
use crate::peer::{
    CANCEL, END_HEADERS, END_STREAM, Frame, HEADERS, Peer, RST_STREAM, RawServer, data, headers, literal,
    message, request, response,
};
use crate::service::{BIG, U, serve};

const DEADLINE: Duration = Duration::from_millis(300);

/// Sends headers at once and then a message every 10 ms for ever, until the client ends the call. Returns the last frame.
fn drip(mut peer: Peer) -> Frame {
    let stream = peer.expect_request();
    peer.send(&[headers(stream, END_HEADERS, &response())]);
    let mut writing = Peer::new(peer.socket().try_clone().unwrap());
    let writer = thread::spawn(move || {
        // Until the client's end closes.
        while writing.try_send(&[data(stream, 0, &message(b"drip"))]).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let last = peer.until(|frame| frame.is(RST_STREAM, stream));
    // The client may have closed already.
    let _ = peer.socket().shutdown(Shutdown::Both);
    writer.join().unwrap();
    last
}

/// A call that has ended: how it ended, after how long, and after how many messages.
type Ended = (Status, Duration, usize);

fn asynchronous(endpoint: &str) -> Ended {
    block_on(async {
        let channel = Channel::connect(endpoint).await.unwrap();
        let began = Instant::now();
        let request = Request::new(Raw::default()).with_timeout(DEADLINE);
        let mut replies = channel.server_streaming::<Raw, Raw>(BIG, request).await.unwrap().into_inner();
        let mut messages = 0;
        loop {
            match replies.message().await {
                Ok(message) => messages += usize::from(message.is_some()),
                Err(status) => return (status, began.elapsed(), messages),
            }
        }
    })
}

fn waiting(endpoint: &str) -> Ended {
    let mut channel = blocking::Channel::connect(endpoint).unwrap();
    let began = Instant::now();
    let request = Request::new(Raw::default()).with_timeout(DEADLINE);
    let mut replies = channel.server_streaming::<Raw, Raw>(BIG, request).unwrap().into_inner();
    let mut messages = 0;
    loop {
        match replies.message() {
            Ok(message) => messages += usize::from(message.is_some()),
            Err(status) => return (status, began.elapsed(), messages),
        }
    }
}

#[test]
fn r70_a_deadline_ends_a_stream_that_never_pauses() {
    for call in [asynchronous, waiting] {
        let mut fastest = Duration::MAX;
        // Ten times the slack of the field case; one of a few attempts has no more of it than the machine takes.
        for _ in 0..5 {
            let server = RawServer::bind();
            let endpoint = server.endpoint();
            let dripping: JoinHandle<Frame> = thread::spawn(move || drip(server.accept(&[])));
            let (status, took, messages) = call(&endpoint);
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
            assert!(took >= DEADLINE && messages > 0, "{took:?}, {messages} messages");
            assert_eq!(dripping.join().unwrap().u32_at(0), CANCEL);
            fastest = fastest.min(took);
            if fastest < DEADLINE + Duration::from_millis(200) {
                break;
            }
        }
        assert!(fastest < DEADLINE + Duration::from_millis(200), "{fastest:?} at least");
    }
}

#[test]
fn r70_the_server_ends_a_stream_at_the_deadline_that_its_client_has_set() {
    let (server, seen) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    let block = [request(BIG), literal("grpc-timeout", "100m")].concat();
    peer.send(&[headers(stream, END_HEADERS, &block), data(stream, END_STREAM, &message(b""))]);
    assert_eq!(peer.expect_reset(stream), CANCEL, "wire rule 8");
    assert!(peer.settle().iter().all(|frame| frame.stream != stream));
    assert_eq!(seen.big_ended.load(std::sync::atomic::Ordering::SeqCst), 1, "the handler is dropped");
}

/// Kills the connection of a stream in its middle.
fn dying_server(how: fn(&Peer)) -> (String, JoinHandle<()>) {
    let server = RawServer::bind();
    let endpoint = server.endpoint();
    let thread = thread::spawn(move || {
        let mut peer = server.accept(&[]);
        let stream = peer.expect_request();
        peer.send(&[
            headers(stream, END_HEADERS, &response()),
            data(stream, 0, &message(b"one")),
            // Of the second message there is a half.
            data(stream, 0, &message(b"two")[..6]),
        ]);
        peer.settle();
        how(&peer);
    });
    (endpoint, thread)
}

fn ends_in_order(peer: &Peer) {
    peer.socket().shutdown(Shutdown::Both).unwrap();
}

fn breaks_off(peer: &Peer) {
    socket2::SockRef::from(peer.socket()).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn r76_a_stream_whose_peer_dies_gives_one_error_and_then_nothing_for_ever() {
    for how in [ends_in_order, breaks_off] {
        let (endpoint, server) = dying_server(how);
        block_on(async {
            let channel = Channel::connect(&endpoint).await.unwrap();
            let mut replies =
                channel.server_streaming::<Raw, Raw>(BIG, Raw::default()).await.unwrap().into_inner();
            assert_eq!(replies.message().await.unwrap().unwrap().as_ref(), b"one");
            let status = replies.message().await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            let mut message = Raw::default();
            for _ in 0..100 {
                assert!(replies.message().await.unwrap().is_none());
                assert!(!replies.message_into(&mut message).await.unwrap());
                let polled = replies.poll_message(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(polled, Poll::Ready(Ok(None))), "{polled:?}");
            }
        });
        server.join().unwrap();

        let (endpoint, server) = dying_server(how);
        let mut channel = blocking::Channel::connect(&endpoint).unwrap();
        let mut replies = channel.server_streaming::<Raw, Raw>(BIG, Raw::default()).unwrap().into_inner();
        let items: Vec<_> = replies.by_ref().take(10).collect();
        assert_eq!(items.len(), 2, "{items:?}");
        assert_eq!(items[1].as_ref().unwrap_err().code(), Code::Unavailable);
        assert!((0..100).all(|_| matches!(replies.message(), Ok(None))));
        drop(replies);
        server.join().unwrap();
    }
}

#[test]
fn r76_a_stream_that_cannot_be_decoded_gives_one_error_and_then_nothing() {
    /// No message can be read into it.
    #[derive(Debug, Default)]
    struct Unreadable;

    impl fulmar::Payload for Unreadable {
        fn encoded_len(&self) -> usize {
            0
        }

        fn encode(&self, _: &mut impl bytes::BufMut) {}

        fn decode_from(&mut self, _: &mut fulmar_grpc::MessageBuf<'_>) -> Result<(), Status> {
            Err(Status::new(Code::Internal, "unreadable"))
        }
    }

    let (server, _) = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let replies = channel.server_streaming::<Raw, Unreadable>(BIG, Raw::default()).await.unwrap();
        let mut replies = replies.into_inner();
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Internal);
        for _ in 0..10 {
            assert!(replies.message().await.unwrap().is_none());
        }
        let call = pin!(channel.unary::<Raw, Raw>(U, Raw::default()));
        assert!(call.await.is_ok(), "the connection is alive");
    });
}

/// What a value of `grpc-timeout` comes to.
fn parsed(value: &str) -> Duration {
    let (number, unit) = value.split_at(value.len() - 1);
    assert!(number.len() <= 8 && number.bytes().all(|byte| byte.is_ascii_digit()), "{value}");
    let number: u64 = number.parse().unwrap();
    match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => panic!("an unknown unit: {value}"),
    }
}

#[test]
fn r68_timeouts_of_any_length_leave_in_eight_digits_and_no_shorter() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    let hour = Duration::from_secs(3_600);
    let mut peer = None;
    for timeout in [hour, 24 * 30 * hour, 24 * 365 * 300 * hour, Duration::MAX] {
        let began = Instant::now();
        let mut call = pin!(channel.unary::<Raw, Raw>(U, Request::new(Raw::default()).with_timeout(timeout)));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let peer = peer.get_or_insert_with(|| server.accept(&[]));
        let request = peer.until(|frame| frame.kind == HEADERS);
        let sent = parsed(request.field("grpc-timeout").expect("a call with a timeout"));
        // The clock of this end counts 584 years.
        let least = timeout.min(Duration::from_secs(24 * 365 * 300 * 3_600)).saturating_sub(began.elapsed());
        assert!(sent >= least, "{timeout:?} was sent as {sent:?}");
        assert!(sent <= timeout.saturating_add(hour), "{timeout:?} was sent as {sent:?}");
    }
}

#[test]
fn r68_the_longest_timeout_there_is_runs_and_malformed_ones_are_internal() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for (value, status) in [
        ("99999999H", "0"),
        ("60S", "0"),
        ("5x", "13"),
        ("", "13"),
        ("-1S", "13"),
        ("1.5S", "13"),
        ("123456789n", "13"),
    ] {
        let answer = peer.call_with(&[request(U), literal("grpc-timeout", value)].concat(), b"hello");
        assert_eq!(answer.trailer("grpc-status"), Some(status), "{value:?}: {answer:?}");
    }
    peer.assert_alive();
}
