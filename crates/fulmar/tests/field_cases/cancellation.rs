//! R42 and R43: a cancellation is seen, as what it is, and is no half-close.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use fulmar::{
    CallEnd, Cancellation, Channel, Http2Config, Raw, Replies, Request, Response, Router, RunningServer,
    Server, Service, Status, Streaming, blocking,
};

use crate::common::{block_on, eventually};
use crate::peer::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, Peer, RST_STREAM, RawServer, data, headers, literal,
    message, request, reset_stream,
};

/// Waits for its next message.
const READS: &str = "/field.Watched/Reads";
/// Sends until it has to wait for the client's window.
const WRITES: &str = "/field.Watched/Writes";
/// Sleeps.
const SLEEPS: &str = "/field.Watched/Sleeps";
/// Says that it was called, and ends.
const UNARY: &str = "/field.Watched/Unary";

/// Ten times what the field case asks for on a quiet machine.
const SOON: Duration = Duration::from_millis(200);

/// A handler that has begun, or has just been dropped.
enum Heard {
    Began(Cancellation),
    /// With what it hears about why.
    Dropped(Option<CallEnd>),
}

struct Watched(Mutex<Sender<Heard>>);

/// Tells when the future that owns it is dropped.
struct OnDrop(Sender<Heard>, Cancellation);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(Heard::Dropped(self.1.reason()));
    }
}

impl Service for Watched {
    fn name(&self) -> &'static str {
        "field.Watched"
    }

    fn register(&self, router: &mut Router) {
        let sender = Arc::new(Mutex::new(self.0.lock().unwrap().clone()));
        fn begin<T>(sender: &Mutex<Sender<Heard>>, request: &Request<T>) -> OnDrop {
            let (sender, cancellation) = (sender.lock().unwrap().clone(), request.cancellation());
            let _ = sender.send(Heard::Began(cancellation.clone()));
            OnDrop(sender, cancellation)
        }
        router.client_streaming(READS, &sender, |sender, mut requests: Request<Streaming<Raw>>| async move {
            let _on_drop = begin(&sender, &requests);
            while requests.message().await?.is_some() {}
            Ok(Response::new(Raw::default()))
        });
        router.server_streaming(
            WRITES,
            &sender,
            |sender, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                let _on_drop = begin(&sender, &request);
                loop {
                    replies.send(&Raw::from(vec![0; 60_000])).await?;
                }
            },
        );
        router.unary(SLEEPS, &sender, |sender, request: Request<Raw>| async move {
            let _on_drop = begin(&sender, &request);
            std::future::pending::<Result<Response<Raw>, Status>>().await
        });
        router.unary(UNARY, &sender, |sender, request: Request<Raw>| async move {
            let _on_drop = begin(&sender, &request);
            Ok(Response::new(request.into_inner()))
        });
    }
}

/// A server that takes one call at a time, so that a call which does not free its place is found out.
fn serve() -> (RunningServer, Receiver<Heard>) {
    let (sender, receiver) = channel();
    let config = Http2Config { streams_max: 1, ..Http2Config::default() };
    let server = Server::builder()
        .reactors(1)
        .ping_policy(None)
        .http2(config)
        .add_service(Watched(Mutex::new(sender)));
    (server.bind("127.0.0.1:0").unwrap().spawn().unwrap(), receiver)
}

impl Peer {
    /// Begins a call whose handler does what its path says, and waits until the handler has begun.
    fn begin(&mut self, path: &str, block: &[u8], heard: &Receiver<Heard>) -> (u32, Cancellation) {
        let stream = self.take_stream();
        let end = if path == READS { 0 } else { END_STREAM };
        self.send(&[headers(stream, END_HEADERS, block), data(stream, end, &message(b"begin"))]);
        let Ok(Heard::Began(cancellation)) = heard.recv_timeout(Duration::from_secs(10)) else {
            panic!("the handler of {path} begins");
        };
        self.settle();
        (stream, cancellation)
    }

    /// Closes with a reset (RST of TCP).
    fn break_off(self) {
        socket2::SockRef::from(self.socket()).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// How long it takes after `act` until the hook tells of an end, which is `expected`, and the handler is dropped with the same.
fn time_to_end(
    act: impl FnOnce(),
    cancellation: &Cancellation,
    heard: &Receiver<Heard>,
    expected: CallEnd,
) -> Duration {
    assert_eq!((cancellation.reason(), cancellation.is_cancelled()), (None, false));
    let mut ended = pin!(cancellation.cancelled());
    assert!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let began = Instant::now();
    act();
    assert_eq!(block_on(ended), expected);
    let took = began.elapsed();
    assert_eq!((cancellation.reason(), cancellation.is_cancelled()), (Some(expected), true));
    let dropped = heard.recv_timeout(Duration::from_secs(10)).expect("the handler is dropped");
    assert!(matches!(dropped, Heard::Dropped(Some(end)) if end == expected), "{expected:?}");
    took
}

/// One of a few attempts is fast: what takes its time on principle takes it each time.
fn assert_soon(what: &str, mut attempt: impl FnMut() -> Duration) {
    let fastest = (0..5).map(|_| attempt()).min().unwrap();
    assert!(fastest < SOON, "{what} took {fastest:?} at least");
}

#[test]
fn r42_a_reset_is_seen_by_handlers_that_read_write_or_sleep_and_frees_their_place() {
    let (server, heard) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for path in [READS, WRITES, SLEEPS] {
        assert_soon(path, || {
            let (stream, cancellation) = peer.begin(path, &request(path), &heard);
            let reset = || peer.send(&[reset_stream(stream, CANCEL)]);
            time_to_end(reset, &cancellation, &heard, CallEnd::ClientCancelled)
        });
    }
}

#[test]
fn r42_a_connection_that_ends_in_order_or_not_is_seen_as_such() {
    let (server, heard) = serve();
    for path in [READS, WRITES, SLEEPS] {
        for in_order in [true, false] {
            assert_soon(path, || {
                let mut peer = Peer::connect(server.local_addr().unwrap());
                let (_, cancellation) = peer.begin(path, &request(path), &heard);
                let mut peer = Some(peer);
                let end = || match peer.take() {
                    Some(open) if in_order => {
                        open.socket().shutdown(std::net::Shutdown::Write).unwrap();
                        peer = Some(open);
                    }
                    open => open.into_iter().for_each(Peer::break_off),
                };
                time_to_end(end, &cancellation, &heard, CallEnd::ConnectionLost)
            });
        }
    }
}

#[test]
fn r42_deadline_and_shutdown_are_told_apart_from_a_cancellation() {
    let (server, heard) = serve();
    let address = server.local_addr().unwrap();
    for path in [READS, WRITES, SLEEPS] {
        let mut peer = Peer::connect(address);
        let block = [request(path), literal("grpc-timeout", "100m")].concat();
        let (stream, cancellation) = peer.begin(path, &block, &heard);
        time_to_end(|| (), &cancellation, &heard, CallEnd::DeadlineExceeded);
        assert_eq!(peer.expect_reset(stream), CANCEL);
    }
    for path in [READS, WRITES, SLEEPS] {
        let (server, heard) = serve();
        let mut peer = Peer::connect(server.local_addr().unwrap());
        let (_, cancellation) = peer.begin(path, &request(path), &heard);
        let shut_down = || server.handle().shutdown(Duration::ZERO);
        time_to_end(shut_down, &cancellation, &heard, CallEnd::ServerShutdown);
        peer.expect_go_away();
    }
}

#[test]
fn r42_a_handler_that_returns_is_an_end_and_no_cancellation() {
    let (server, heard) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let answer = peer.call(UNARY, b"only once");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
    let Ok(Heard::Began(cancellation)) = heard.recv() else { panic!("the handler begins") };
    assert_eq!(block_on(cancellation.ended()), CallEnd::Finished);
    assert!(!cancellation.is_cancelled());
    // The future is dropped when its output is there, and with it what tells.
    assert!(matches!(heard.recv(), Ok(Heard::Dropped(None | Some(CallEnd::Finished)))));
}

#[test]
fn r42_a_fault_in_what_the_client_sends_is_neither() {
    let (server, heard) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let (stream, cancellation) = peer.begin(READS, &request(READS), &heard);
    // A compressed message, of a call that has no compression (wire rule 16).
    let fault = || peer.send(&[data(stream, 0, &[1, 0, 0, 0, 1, 0])]);
    time_to_end(fault, &cancellation, &heard, CallEnd::Failed);
    assert_eq!(peer.answer(stream).trailer("grpc-status"), Some("13"));
}

/// R43, and R42 for a handler that has not begun.
#[test]
fn r43_a_call_that_is_cancelled_in_the_middle_of_its_request_reaches_no_handler() {
    let (server, heard) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let half = &message(b"a whole message")[..9];
    for _ in 0..3 {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(UNARY)), data(stream, 0, half)]);
        peer.send(&[reset_stream(stream, CANCEL)]);
        assert_eq!(peer.settle(), [], "nothing is said about it");
        // And with the message whole, but not the request.
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(UNARY)), data(stream, 0, &message(b"one"))]);
        peer.send(&[reset_stream(stream, CANCEL)]);
        assert_eq!(peer.settle(), []);
    }
    assert!(heard.try_recv().is_err(), "no handler was called");
    let answer = peer.call(UNARY, b"the place is free");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
}

#[test]
fn r43_a_request_that_ends_in_the_middle_of_a_message_is_internal() {
    let (server, heard) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let half = &message(b"a whole message")[..9];
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(UNARY)), data(stream, END_STREAM, half)]);
    assert_eq!(peer.answer(stream).trailer("grpc-status"), Some("13"));
    assert!(heard.try_recv().is_err(), "no handler was called");
}

/// What arrives for a stream of a client up to its RST_STREAM, which is the only thing that ends it.
fn assert_cancelled_only(peer: &mut Peer, stream: u32) {
    let frames = peer.all_until(|frame| frame.is(RST_STREAM, stream));
    let reset = frames.last().unwrap();
    assert_eq!(reset.u32_at(0), CANCEL);
    for frame in frames.iter().filter(|frame| frame.stream == stream && matches!(frame.kind, DATA | HEADERS))
    {
        assert!(!frame.has(END_STREAM), "a call that was given up is never half-closed: {frame:?}");
    }
    let after = peer.settle();
    assert!(after.iter().all(|frame| frame.stream != stream), "nothing follows: {after:?}");
}

#[test]
fn r42_a_client_that_drops_an_upload_sends_a_reset_and_no_end() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    let mut peer = None;
    for messages in [0, 1, 5] {
        let mut upload = block_on(channel.client_streaming::<Raw, Raw>(READS, Request::new(()))).unwrap();
        let peer = peer.get_or_insert_with(|| server.accept(&[]));
        let stream = peer.expect_request();
        for _ in 0..messages {
            block_on(upload.send(&Raw::from(vec![1; 100]))).unwrap();
        }
        drop(upload);
        assert_cancelled_only(peer, stream);

        // One that waits for the reply has half-closed before; then only the reset follows.
        let upload = block_on(channel.client_streaming::<Raw, Raw>(READS, Request::new(()))).unwrap();
        let stream = peer.expect_request();
        let mut finishing = Box::pin(upload.finish());
        assert!(finishing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        peer.until(|frame| frame.is(DATA, stream) && frame.has(END_STREAM));
        drop(finishing);
        assert_cancelled_only(peer, stream);

        let call = block_on(channel.bidi::<Raw, Raw>(READS, Request::new(()))).unwrap();
        let stream = peer.expect_request();
        drop(call.requests);
        assert_cancelled_only(peer, stream);
    }
}

#[test]
fn r42_a_blocking_client_that_drops_an_upload_sends_a_reset_and_no_end() {
    let server = RawServer::bind();
    let endpoint = server.endpoint();
    let client = std::thread::spawn(move || {
        let mut channel = blocking::Channel::connect(endpoint).unwrap();
        for messages in [0, 1, 5] {
            let mut upload = channel.client_streaming::<Raw, Raw>(READS, Request::new(())).unwrap();
            for _ in 0..messages {
                upload.send(&Raw::from(vec![1; 100])).unwrap();
            }
        }
        // Answers the questions of the peer's meanwhile.
        let _ = channel.unary::<Raw, Raw>(UNARY, Request::new(Raw::default()));
    });
    let mut peer = server.accept(&[]);
    for _ in 0..3 {
        let frames = peer.all_until(|frame| frame.kind == RST_STREAM);
        let reset = frames.last().unwrap();
        assert_eq!(reset.u32_at(0), CANCEL);
        assert!(
            frames.iter().all(|frame| !matches!(frame.kind, DATA | HEADERS) || !frame.has(END_STREAM)),
            "{frames:?}"
        );
    }
    let stream = peer.expect_request();
    peer.reply(stream, b"");
    client.join().unwrap();
}

/// Wire rule 48, as the peer sees it: the ids of calls that were given up before they left are not missing, and nobody hears of them.
#[test]
fn r42_a_call_that_is_given_up_before_it_has_left_never_was() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    for _ in 0..10 {
        let mut call = pin!(channel.unary::<Raw, Raw>(UNARY, Raw::default()));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let mut call = Box::pin(channel.unary::<Raw, Raw>(UNARY, Raw::default()));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut peer = server.accept(&[]);
    let stream = peer.expect_request();
    assert_eq!(stream, 1, "the first stream of a client (RFC 9113 §5.1.1)");
    peer.reply(stream, b"");
    eventually("the reply arrives", || {
        call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    });
    let others = peer.settle();
    assert!(others.iter().all(|frame| frame.kind != RST_STREAM), "{others:?}");
}
