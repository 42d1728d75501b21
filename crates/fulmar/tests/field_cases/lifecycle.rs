//! R34 to R39 and R44: how connections and streams begin and end.

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Http2Config, Raw, Request, Response, RunningServer, Status};

use crate::common::eventually;
use crate::peer::{
    ACK, CANCEL, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, MAX_CONCURRENT_STREAMS, NO_ERROR,
    PING, PREFACE, PROTOCOL_ERROR, Peer, REFUSED_STREAM, RST_STREAM, RawServer, STREAM_CLOSED, data, go_away,
    headers, message, ping, ping_ack, request, reset_stream, settings,
};
use crate::service::{BIDI, CS, FAIL, SLOW, U, serve, serve_with};

/// The highest stream id there is.
const LAST_ID: u32 = 0x7fff_ffff;

/// A call that its test polls by hand.
struct Call {
    future: Pin<Box<dyn Future<Output = Result<Response<Raw>, Status>>>>,
    result: Option<Result<Response<Raw>, Status>>,
}

impl Call {
    /// Begins a unary call.
    fn begin(channel: &Channel, body: &[u8]) -> Self {
        Self::begin_with(channel, Request::new(Raw::from(body.to_vec())))
    }

    fn begin_with(channel: &Channel, request: Request<Raw>) -> Self {
        let channel = channel.clone();
        let future = Box::pin(async move { channel.unary::<Raw, Raw>(U, request).await });
        let mut call = Self { future, result: None };
        call.is_over();
        call
    }

    fn is_over(&mut self) -> bool {
        if self.result.is_none()
            && let Poll::Ready(result) = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.result = Some(result);
        }
        self.result.is_some()
    }

    /// Waits for the end.
    fn end(mut self) -> Result<Response<Raw>, Status> {
        eventually("the call ends", || self.is_over());
        self.result.expect("it is over")
    }

    /// Waits for the reply.
    #[track_caller]
    fn reply(self) -> Vec<u8> {
        self.end().expect("the call succeeds").into_inner().as_ref().to_vec()
    }

    /// Waits for the failure.
    #[track_caller]
    fn failure(self) -> Status {
        self.end().expect_err("the call fails")
    }
}

fn channel_to(server: &RawServer) -> Channel {
    Channel::builder(server.endpoint()).build().unwrap()
}

/// A server whose drain goes on when its PING is answered, and not before.
fn serve_patiently() -> RunningServer {
    serve_with(Http2Config { drain_ms: 3_600_000, drain_idle_ms: 3_600_000, ..Http2Config::default() }).0
}

/// A peer whose server is about to shut down, and who has one open call on stream 1.
fn peer_of_a_server_that_shuts_down() -> (Peer, impl FnOnce() -> bool) {
    let server = serve_patiently();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(BIDI)), data(stream, 0, &message(b"one"))]);
    peer.until(|frame| frame.is(DATA, stream));
    server.handle().shutdown(Duration::from_secs(60));
    let ends = move || server.handle().wait_ended(Duration::from_secs(5));
    (peer, ends)
}

#[test]
fn r34_calls_that_start_before_the_client_has_seen_the_first_go_away_are_served() {
    let (mut peer, server_ends) = peer_of_a_server_that_shuts_down();
    let announced = peer.next();
    assert_eq!((announced.kind, announced.u32_at(0), announced.u32_at(4)), (GOAWAY, LAST_ID, NO_ERROR));
    let question = peer.next();
    assert!(question.is(PING, 0) && !question.has(ACK), "{question:?}");
    assert_eq!(peer.call(U, b"on its way").content, message(b"on its way"));

    peer.send(&[ping_ack(&question.payload)]);
    assert_eq!(peer.expect_go_away(), (3, NO_ERROR, String::new()));
    let late = peer.take_stream();
    peer.send(&[headers(late, END_HEADERS, &request(U)), data(late, END_STREAM, &message(b"too late"))]);
    assert_eq!(peer.settle(), [], "a stream behind the last GOAWAY is ignored");

    peer.send(&[data(1, END_STREAM, &message(b"two"))]);
    let answer = peer.answer(1);
    assert_eq!(answer.content, message(b"two"));
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
    peer.expect_orderly_end();
    drop(peer);
    assert!(server_ends());
}

#[test]
fn r34_an_idle_connection_closes_when_its_ping_is_answered() {
    let server = serve_patiently();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    server.handle().shutdown(Duration::from_secs(60));
    let ping = peer.until(|frame| frame.kind == PING);
    peer.send(&[ping_ack(&ping.payload)]);
    assert_eq!(peer.expect_go_away(), (1, NO_ERROR, String::new()));
    peer.expect_orderly_end();
    drop(peer);
    assert!(server.handle().wait_ended(Duration::from_secs(5)));
}

#[test]
fn r34_a_client_that_does_not_answer_the_ping_holds_nobody_up() {
    let (server, _) = serve_with(Http2Config { drain_ms: 200, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    server.handle().shutdown(Duration::from_secs(60));
    peer.expect_go_away();
    assert_eq!(peer.expect_go_away(), (1, NO_ERROR, String::new()));
    peer.expect_orderly_end();
}

#[test]
fn r34_a_client_finishes_its_calls_on_the_old_connection_and_starts_others_on_a_new_one() {
    let server = RawServer::bind();
    let channel = channel_to(&server);
    let first = Call::begin(&channel, b"1");
    let mut old = server.accept(&[]);
    let stream = old.expect_request();
    old.send(&[go_away(LAST_ID, NO_ERROR), ping(*b"draining")]);
    old.until(|frame| frame.kind == PING);

    let second = Call::begin(&channel, b"2");
    let mut new = server.accept(&[]);
    let request = new.expect_request();
    new.reply(request, b"on the new one");
    assert_eq!(second.reply(), b"on the new one");

    old.send(&[go_away(stream, NO_ERROR)]);
    old.reply(stream, b"on the old one");
    assert_eq!(first.reply(), b"on the old one");
    old.expect_end();
}

/// Reads slowly, in small pieces, to the orderly end of the connection.
fn reads_slowly_to_the_end(peer: &mut Peer) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = peer.try_next() {
        frames.push(frame);
        thread::sleep(Duration::from_micros(200));
    }
    peer.expect_orderly_end();
    frames
}

/// Closing a socket with bytes unread makes the kernel reset the connection, and the reset overtakes what was written last.
#[test]
fn r35_a_server_that_shuts_down_loses_neither_response_nor_go_away() {
    let run = || {
        let (server, _) = serve();
        let address = server.local_addr().unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        // Smaller than the response, so that the response is still on its way when the server closes.
        socket.set_recv_buffer_size(20_000).unwrap();
        socket.connect(&address.into()).unwrap();
        let mut peer = Peer::new(socket.into());
        peer.send(&[PREFACE.to_vec(), settings(&[])]);
        peer.exchange_settings();
        let body = vec![b'r'; 60_000];
        peer.send(&[
            headers(1, END_HEADERS, &request(U)),
            data(1, 0, &message(&body)[..16_384]),
            data(1, 0, &message(&body)[16_384..32_768]),
            data(1, 0, &message(&body)[32_768..49_152]),
            data(1, END_STREAM, &message(&body)[49_152..]),
            // Two uploads that never end.
            headers(3, END_HEADERS, &request(CS)),
            headers(5, END_HEADERS, &request(CS)),
        ]);
        peer.until(|frame| frame.is(DATA, 1));
        server.handle().shutdown(Duration::ZERO);
        let mut flood = vec![ping([7; 8]); 20];
        for stream in [3, 5] {
            flood.extend(vec![data(stream, 0, &[0; 10_000]); 5]);
        }
        // The server may be past reading any of it.
        peer.try_send(&flood).unwrap();
        let frames = reads_slowly_to_the_end(&mut peer);
        let last = frames.iter().rfind(|frame| frame.stream == 1).expect("the response goes on");
        assert!(last.kind == HEADERS && last.has(END_STREAM), "the response has its end: {last:?}");
        assert!(frames.iter().any(|frame| frame.kind == GOAWAY));
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| run()));
        }
    });
}

#[test]
fn r35_a_go_away_for_an_error_arrives_although_the_client_goes_on_sending() {
    let (server, _) = serve();
    for _ in 0..10 {
        let mut peer = Peer::connect(server.local_addr().unwrap());
        // More than a reactor reads at a time.
        peer.send(&[headers(2, END_HEADERS, &request(U)), vec![0; 8 << 20]]);
        let (_, code, text) = peer.expect_go_away();
        assert_eq!(code, PROTOCOL_ERROR, "{text}");
        peer.expect_orderly_end();
    }
}

#[test]
fn r36_a_server_refuses_streams_beyond_its_limit_and_serves_the_others() {
    let (server, _) = serve_with(Http2Config { streams_max: 10, ..Http2Config::default() });
    let mut peer = Peer::open(server.local_addr().unwrap());
    let ids: Vec<u32> = (0..30).map(|_| peer.take_stream()).collect();
    let mut flight = vec![PREFACE.to_vec(), settings(&[])];
    flight.extend(ids.iter().map(|&id| headers(id, END_HEADERS, &request(U))));
    peer.send(&flight);
    peer.exchange_settings();
    assert_eq!(peer.setting(MAX_CONCURRENT_STREAMS), Some(10));
    let (taken, refused) = ids.split_at(10);
    for &id in refused {
        assert_eq!(peer.expect_reset(id), REFUSED_STREAM);
    }
    for &id in taken {
        peer.send(&[data(id, END_STREAM, &message(b"taken"))]);
        assert_eq!(peer.answer(id).content, message(b"taken"));
    }
    peer.assert_alive();
}

#[test]
fn r36_a_call_that_was_refused_once_is_repeated_and_succeeds() {
    let server = RawServer::bind();
    let channel = channel_to(&server);
    let call = Call::begin(&channel, b"again");
    let mut peer = server.accept(&[]);
    let first = peer.expect_request();
    peer.send(&[reset_stream(first, REFUSED_STREAM)]);
    let second = peer.expect_request();
    assert!(second > first);
    let body = peer.until(|frame| frame.is(DATA, second));
    assert_eq!(body.payload, message(b"again"), "the request is the same");
    peer.reply(second, b"done");
    assert_eq!(call.reply(), b"done");
}

#[test]
fn r36_a_call_that_is_always_refused_fails_as_unavailable_and_the_connection_stays() {
    let server = RawServer::bind();
    let channel = channel_to(&server);
    let mut call = Call::begin(&channel, b"again and again");
    let mut peer = server.accept(&[]);
    let mut attempts = 0;
    eventually("the call fails", || {
        for frame in peer.settle() {
            if frame.kind == HEADERS {
                attempts += 1;
                peer.send(&[reset_stream(frame.stream, REFUSED_STREAM)]);
            }
        }
        call.is_over()
    });
    assert_eq!(attempts, 2, "one transparent retry");
    assert_eq!(call.failure().code(), Code::Unavailable);
    let other = Call::begin(&channel, b"other");
    let stream = peer.expect_request();
    peer.reply(stream, b"the same connection");
    assert_eq!(other.reply(), b"the same connection");
}

/// The streams of the requests that a client has sent by now.
fn requests(peer: &mut Peer) -> Vec<u32> {
    peer.settle().iter().filter(|frame| frame.kind == HEADERS).map(|frame| frame.stream).collect()
}

#[test]
fn r37_a_limit_that_is_lowered_under_way_is_kept() {
    let server = RawServer::bind();
    let channel = channel_to(&server);
    let mut calls: Vec<Call> = (0..20).map(|n| Call::begin(&channel, &[n])).collect();
    let mut peer = server.accept(&[(MAX_CONCURRENT_STREAMS, 5)]);
    let mut open: Vec<u32> = (0..5).map(|_| peer.expect_request()).collect();
    assert_eq!(open, [1, 3, 5, 7, 9]);
    assert_eq!(requests(&mut peer), [], "five are five");
    peer.send(&[settings(&[(MAX_CONCURRENT_STREAMS, 1)])]);
    let mut served = 0;
    let mut next = 11;
    while served < 20 {
        let stream = open.remove(0);
        peer.reply(stream, b"");
        served += 1;
        let more = requests(&mut peer);
        if open.is_empty() && served < 20 {
            assert_eq!(more, [next], "one at a time, and the ids rise");
            open.push(next);
            next += 2;
        } else {
            assert_eq!(more, [], "{} streams are open", open.len());
        }
    }
    eventually("all calls end", || calls.iter_mut().all(Call::is_over));
    calls.into_iter().for_each(|call| assert_eq!(call.reply(), b""));
}

#[test]
fn r37_queued_calls_obey_their_deadline_and_their_callers_without_touching_the_wire() {
    let server = RawServer::bind();
    let channel = channel_to(&server);
    let probe = Call::begin(&channel, b"probe");
    let mut peer = server.accept(&[]);
    let stream = peer.expect_request();
    peer.send(&[settings(&[(MAX_CONCURRENT_STREAMS, 0)])]);
    peer.reply(stream, b"");
    probe.reply();
    peer.settle();

    let begun = Instant::now();
    let timeout = Duration::from_millis(300);
    let hurried = Call::begin_with(&channel, Request::new(Raw::default()).with_timeout(timeout));
    assert_eq!(hurried.failure().code(), Code::DeadlineExceeded);
    let waited = begun.elapsed();
    assert!(waited >= timeout && waited < timeout * 10, "{waited:?}");

    let given_up: Vec<Call> = (0..1_000).map(|_| Call::begin(&channel, b"given up")).collect();
    assert_eq!(peer.settle(), [], "nothing of all this is on the wire");
    drop(given_up);
    let wanted: Vec<Call> = (0..7).map(|n| Call::begin(&channel, &[n])).collect();
    assert_eq!(peer.settle(), []);
    peer.send(&[settings(&[(MAX_CONCURRENT_STREAMS, 5)])]);
    for n in 0..5 {
        let stream = peer.expect_request();
        assert_eq!(stream, 3 + 2 * n, "no id was burnt");
        let body = peer.until(|frame| frame.is(DATA, stream));
        assert_eq!(body.payload, message(&[n as u8]), "the order is that of the calls");
    }
    assert_eq!(requests(&mut peer), []);
    for stream in [3, 5, 7, 9, 11, 13, 15] {
        peer.reply(stream, b"");
    }
    wanted.into_iter().for_each(|call| assert_eq!(call.reply(), b""));
}

#[test]
fn r38_a_slot_is_free_when_the_client_has_seen_the_end_of_its_stream() {
    let (server, _) = serve_with(Http2Config { streams_max: 1, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let (unknown, fail) = (request("/field.Cases/Unknown"), request(FAIL));
    for n in 0..10_000 {
        let stream = peer.take_stream();
        let (block, flags) = if n % 2 == 0 { (&unknown, END_STREAM) } else { (&fail, 0) };
        peer.send(&[headers(stream, END_HEADERS | flags, block)]);
        // No pause: the next one leaves with the first sight of the end.
        let end = peer.until(|frame| {
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            frame.stream == stream && (frame.kind == RST_STREAM || frame.has(END_STREAM))
        });
        assert_eq!(end.kind, HEADERS, "{end:?}");
    }
    peer.assert_alive();
}

#[test]
fn r38_a_slot_is_free_when_the_client_has_reset_its_stream() {
    let (server, seen) = serve_with(Http2Config { streams_max: 1, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let slow = request(SLOW);
    let mut open = peer.take_stream();
    peer.send(&[headers(open, END_HEADERS, &slow), data(open, END_STREAM, &message(b""))]);
    for _ in 0..500 {
        let next = peer.take_stream();
        let flight = [reset_stream(open, CANCEL), headers(next, END_HEADERS, &slow)];
        peer.send(&[flight.concat(), data(next, END_STREAM, &message(b""))]);
        open = next;
    }
    peer.send(&[reset_stream(open, CANCEL)]);
    assert_eq!(peer.settle(), [], "none was refused");
    assert_eq!(seen.slow_started.load(Ordering::SeqCst), 501);
    assert_eq!(seen.slow_cancelled.load(Ordering::SeqCst), 501);
    peer.assert_alive();
}

#[test]
fn r39_the_last_stream_id_is_answered_and_a_lower_one_ends_the_connection() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.next_stream = LAST_ID;
    peer.send(&[
        headers(LAST_ID, END_HEADERS, &request(U)),
        data(LAST_ID, END_STREAM, &message(b"the last one")),
    ]);
    assert_eq!(peer.answer(LAST_ID).content, message(b"the last one"));
    peer.send(&[headers(1, END_HEADERS, &request(U))]);
    let (last_id, code, text) = peer.expect_go_away();
    assert_eq!(last_id, LAST_ID);
    assert!([PROTOCOL_ERROR, STREAM_CLOSED].contains(&code), "{code}: {text}");
    peer.expect_orderly_end();
    Peer::connect(server.local_addr().unwrap()).assert_alive();
}

#[test]
fn r39_a_client_out_of_stream_ids_goes_on_with_another_connection() {
    let server = RawServer::bind();
    let config = Http2Config { stream_id_max: 10, ..Http2Config::default() };
    let channel = Channel::builder(server.endpoint()).http2(config).build().unwrap();
    let mut calls: Vec<Call> = (0..10).map(|n| Call::begin(&channel, &[n])).collect();
    let mut old = server.accept(&[]);
    let old_ids: Vec<u32> = (0..5).map(|_| old.expect_request()).collect();
    let mut new = server.accept(&[]);
    let new_ids: Vec<u32> = (0..5).map(|_| new.expect_request()).collect();
    assert_eq!((&old_ids[..], &new_ids[..]), (&[1, 3, 5, 7, 9][..], &[1, 3, 5, 7, 9][..]));
    new_ids.iter().for_each(|&stream| new.reply(stream, b"new"));
    old_ids.iter().for_each(|&stream| old.reply(stream, b"old"));
    eventually("all calls end", || calls.iter_mut().all(Call::is_over));
    let replies: Vec<Vec<u8>> = calls.into_iter().map(Call::reply).collect();
    assert_eq!(replies.iter().filter(|reply| *reply == b"old").count(), 5);
    assert_eq!(replies.iter().filter(|reply| *reply == b"new").count(), 5);
    old.expect_orderly_end();
}

#[test]
fn r39_a_blocking_client_out_of_stream_ids_goes_on_with_another_connection() {
    let (server, _) = serve();
    let config = Http2Config { stream_id_max: 10, ..Http2Config::default() };
    let settings = fulmar::blocking::Channel::builder(server.endpoint()).http2(config);
    let mut channel = fulmar::blocking::Channel::with(settings).unwrap();
    let started = Instant::now();
    for n in 0..12 {
        let request = Request::new(Raw::from(vec![n])).with_timeout(Duration::from_secs(10));
        let reply: Response<Raw> = channel.unary::<Raw, _>(U, request).unwrap();
        assert_eq!(reply.get_ref().as_ref(), [n]);
    }
    assert!(started.elapsed() < Duration::from_secs(4), "no call waits until its old connection is drained");
}

#[test]
fn r44_what_is_not_http2_is_closed_in_order() {
    let (server, _) = serve();
    let mut wrong_at_the_end = PREFACE.to_vec();
    wrong_at_the_end[23] = b'!';
    // The beginning of a ClientHello: a record of handshake, TLS 1.0, and its random bytes.
    let client_hello =
        [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03][..], &[0xa5; 506]];
    let random = [0x5a, 0x00, 0xff, 0x13, 0x37, 0x42, 0x99, 0x01].repeat(3);
    let others = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n".to_vec(),
        random,
        wrong_at_the_end,
        client_hello.concat(),
    ];
    for other in others {
        let mut peer = Peer::open(server.local_addr().unwrap());
        // What a client of HTTP/2 would say next does not make up for it. And more than the server and both sockets take, so that
        // something is left unread when it closes.
        peer.send(&[other, settings(&[]), vec![b'x'; 8 << 20]]);
        let (last_id, code, _) = peer.expect_go_away();
        assert_eq!((last_id, code), (0, PROTOCOL_ERROR));
        peer.expect_orderly_end();
    }
    Peer::connect(server.local_addr().unwrap()).assert_alive();
}

#[test]
fn r44_a_preface_in_single_bytes_works() {
    let (server, _) = serve();
    let mut peer = Peer::open(server.local_addr().unwrap());
    for byte in PREFACE {
        peer.socket().write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    peer.send(&[settings(&[])]);
    peer.exchange_settings();
    peer.assert_alive();
}

#[test]
fn requests_that_come_behind_the_header_sections_of_others_are_served_or_refused_as_ever() {
    let (server, seen) = serve_with(Http2Config::default());
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let streams: [u32; 5] = std::array::from_fn(|_| peer.take_stream());
    let [usual, slow, none, two, reset] = streams;
    let path = |stream| if stream == slow { SLOW } else { U };
    let mut flight: Vec<_> =
        streams.iter().map(|&stream| headers(stream, END_HEADERS, &request(path(stream)))).collect();
    flight.extend([
        reset_stream(reset, CANCEL),
        data(two, 0, &message(b"1")),
        data(two, END_STREAM, &message(b"2")),
        data(none, END_STREAM, b""),
        data(slow, END_STREAM, &message(b"")),
        data(usual, END_STREAM, &message(b"usual")),
    ]);
    peer.send(&[flight.concat()]);
    let unimplemented = Some("12");
    assert_eq!(peer.answer(two).trailer("grpc-status"), unimplemented);
    assert_eq!(peer.answer(none).trailer("grpc-status"), unimplemented);
    assert_eq!(peer.answer(usual).content, message(b"usual"));
    assert_eq!(seen.slow_started.load(Ordering::SeqCst), 1);
    peer.send(&[reset_stream(slow, CANCEL)]);
    eventually("the handler is dropped", || seen.slow_cancelled.load(Ordering::SeqCst) == 1);
    peer.assert_alive();
}
