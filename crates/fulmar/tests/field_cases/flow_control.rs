//! R16 to R19, R22: flow control.

use std::thread;

use fulmar::{Channel, Code, Http2Config, Raw, Request, Response, blocking};

use crate::common::block_on;
use crate::peer::{
    ACK, CANCEL, DATA, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR, HEADER_TABLE_SIZE, HEADERS,
    INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, NO_ERROR, PATIENCE, PROTOCOL_ERROR, Peer, REFUSED_STREAM, RawServer,
    SETTINGS, data, data_bytes, headers, message, ping, priority, request, reset_stream, response, settings,
    trailers_ok, window_update,
};
use crate::service::{BIDI, BIG, CS, FAIL, SLOW, U, serve, serve_with};

/// The largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Starts a call with one empty message and returns its stream.
fn begin(peer: &mut Peer, path: &str) -> u32 {
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(path)), data(stream, END_STREAM, &message(b""))]);
    stream
}

/// Windows of a stream that stay as they begin.
fn with_stream_window(bytes: u32) -> Http2Config {
    Http2Config { stream_window_bytes: bytes, window_bytes_max: 0, ..Http2Config::default() }
}

/// Bytes that tell whether one is missing or out of place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|position| (position % 251) as u8).collect()
}

/// Windows of 64 KiB, and of one byte more than the prefix of a message.
const R16_CASES: [(u32, usize); 2] = [(64 * 1024, 3 << 20), (6, 6_000)];

#[test]
fn r16_a_request_larger_than_the_stream_window_arrives() {
    for (window, length) in R16_CASES {
        let (server, _) = serve_with(with_stream_window(window));
        let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, WINDOW_MAX)]);
        peer.send(&[window_update(0, WINDOW_MAX - 65_535)]);
        let body = pattern(length);
        for path in [U, CS] {
            let stream = peer.take_stream();
            peer.send(&[headers(stream, END_HEADERS, &request(path))]);
            peer.send_content(stream, &message(&body), true);
            let answer = peer.answer(stream);
            let expected = if path == U { message(&body) } else { message(&(length as u64).to_be_bytes()) };
            assert!(answer.content == expected, "{path} with a window of {window}");
            assert_eq!(answer.trailer("grpc-status"), Some("0"));
        }
    }
}

/// What a client does with a server's messages that are larger than its window.
fn receive_large_reply(window: u32, length: usize, call: impl FnOnce(String) -> Vec<u8> + Send + 'static) {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || call(endpoint));
    let mut peer = raw.accept(&[]);
    assert_eq!(peer.setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535), window);
    let stream = peer.expect_request();
    peer.send(&[headers(stream, END_HEADERS, &response())]);
    peer.send_content(stream, &message(&pattern(length)), false);
    peer.send(&[headers(stream, END_HEADERS | END_STREAM, &trailers_ok())]);
    assert!(client.join().unwrap() == pattern(length), "the reply is whole");
}

#[test]
fn r16_a_reply_larger_than_the_stream_window_arrives() {
    for (window, length) in R16_CASES {
        receive_large_reply(window, length, move |endpoint| {
            let settings = Channel::builder(endpoint).http2(with_stream_window(window));
            block_on(async {
                let channel = settings.connect().await.unwrap();
                let reply: Response<Raw> = channel.unary(U, Raw::default()).await.unwrap();
                reply.into_inner().as_ref().to_vec()
            })
        });
        receive_large_reply(window, length, move |endpoint| {
            let settings = blocking::Channel::builder(endpoint).http2(with_stream_window(window));
            let mut channel = blocking::Channel::with(settings).unwrap();
            let reply: Response<Raw> = channel.unary(U, Raw::default()).unwrap();
            reply.into_inner().as_ref().to_vec()
        });
        receive_large_reply(window, length, move |endpoint| {
            let settings = Channel::builder(endpoint).http2(with_stream_window(window));
            block_on(async {
                let channel = settings.connect().await.unwrap();
                let mut replies =
                    channel.server_streaming::<Raw, Raw>(BIG, Raw::default()).await.unwrap().into_inner();
                let message = replies.message().await.unwrap().unwrap();
                assert_eq!(replies.message().await.unwrap(), None);
                message.as_ref().to_vec()
            })
        });
    }
}

/// Takes all DATA of a stream up to its end, and credits each frame when it has come. Returns the content.
fn take_content(peer: &mut Peer, stream: u32) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let frame = peer.until(|frame| frame.stream == stream && matches!(frame.kind, DATA | HEADERS));
        content.extend(&frame.payload[..if frame.kind == DATA { frame.payload.len() } else { 0 }]);
        if frame.has(END_STREAM) {
            return content;
        }
        if let Ok(bytes @ 1..) = u32::try_from(frame.payload.len()) {
            // The end may be under way already: then the other side has no use for credit, and may be gone.
            let _ = peer.try_send(&[window_update(stream, bytes), window_update(0, bytes)]);
        }
    }
}

#[test]
fn r16_a_reply_larger_than_the_window_of_the_client_leaves_as_credit_comes() {
    for (window, length) in R16_CASES {
        let (server, _) = serve();
        let address = server.local_addr().unwrap();
        let mut peer = Peer::connect_with(address, &[(INITIAL_WINDOW_SIZE, window)]);
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(U))]);
        peer.send_content(stream, &message(&pattern(length)), true);
        peer.until(|frame| frame.is(HEADERS, stream));
        assert!(take_content(&mut peer, stream) == message(&pattern(length)));
    }
}

/// What a server sees of a client's request that is larger than its window.
fn take_large_request(window: u32, length: usize, call: impl FnOnce(String, Raw) + Send + 'static) {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || call(endpoint, Raw::from(pattern(length))));
    let mut peer = raw.accept(&[(INITIAL_WINDOW_SIZE, window)]);
    let stream = peer.expect_request();
    assert!(take_content(&mut peer, stream) == message(&pattern(length)));
    peer.reply(stream, b"");
    client.join().unwrap();
}

#[test]
fn r16_a_request_larger_than_the_window_of_the_server_leaves_as_credit_comes() {
    for (window, length) in R16_CASES {
        take_large_request(window, length, |endpoint, message| {
            block_on(async {
                let channel = Channel::connect(endpoint).await.unwrap();
                channel.unary::<Raw, Raw>(U, message).await.unwrap();
            });
        });
        take_large_request(window, length, |endpoint, message| {
            let mut channel = blocking::Channel::connect(endpoint).unwrap();
            channel.unary::<Raw, Raw>(U, message).unwrap();
        });
        take_large_request(window, length, |endpoint, message| {
            let mut channel = blocking::Channel::connect(endpoint).unwrap();
            let mut upload = channel.client_streaming::<Raw, Raw>(CS, ()).unwrap();
            upload.send(&message).unwrap();
            upload.finish().unwrap();
        });
    }
}

/// Both ends hold credit back, until a part of the window is to be given; together they may not hold back all of it.
#[test]
fn r16_messages_of_any_size_pass_small_windows_both_ways() {
    for window in [1, 2, 3, 4, 6, 7, 64] {
        let (server, _) = serve_with(with_stream_window(window));
        block_on(async {
            let settings = Channel::builder(server.endpoint()).http2(with_stream_window(window));
            let channel = settings.connect().await.unwrap();
            let within_patience = Request::new(()).with_timeout(PATIENCE);
            let mut call = channel.bidi::<Raw, Raw>(BIDI, within_patience).await.unwrap();
            for length in 0..60 {
                call.requests.send(&Raw::from(pattern(length))).await.unwrap();
                let echoed = call.replies.message().await.unwrap().unwrap();
                assert_eq!(echoed.as_ref(), pattern(length));
            }
            call.requests.finish();
            assert_eq!(call.replies.message().await.unwrap(), None);
        });
    }
}

/// The peer has used up the window of a stream, and the other side has more. SETTINGS lower the window below zero, credit comes
/// in pieces, SETTINGS raise it.
fn lower_the_window_below_zero(peer: &mut Peer, stream: u32) {
    peer.expect_content(stream, 65_535);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 10)])]);
    peer.send(&[window_update(stream, 1_000).repeat(40)]);
    peer.expect_content(stream, 0);
    peer.send(&[window_update(stream, 25_525)]);
    peer.expect_content(stream, 0);
    peer.send(&[window_update(stream, 4_475)]);
    peer.expect_content(stream, 4_475);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 100_010)])]);
    peer.expect_content(stream, 100_000);
}

#[test]
fn r17_a_server_sends_nothing_into_a_window_that_settings_made_negative() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.send(&[window_update(0, 16_777_216)]);
    let stream = begin(&mut peer, BIG);
    lower_the_window_below_zero(&mut peer, stream);
    // The window of another stream is what SETTINGS say last, and the connection's was never touched.
    let other = begin(&mut peer, BIG);
    peer.expect_content(other, 100_010);
}

#[test]
fn r17_a_whole_answer_waits_for_a_negative_window_and_its_trailers_for_the_content() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 1_000)]);
    let stream = peer.take_stream();
    let body = message(&pattern(5_000));
    peer.send(&[headers(stream, END_HEADERS, &request(U)), data(stream, END_STREAM, &body)]);
    peer.expect_content(stream, 1_000);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 0)]), window_update(stream, 1_000)]);
    let frames = peer.settle();
    assert!(frames.iter().all(|frame| frame.stream != stream), "neither content nor trailers: {frames:?}");
    peer.send(&[window_update(stream, 1)]);
    peer.expect_content(stream, 1);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 10_000)])]);
    let rest = peer.answer(stream);
    assert!(rest.content == body[1_001..]);
    assert_eq!(rest.trailer("grpc-status"), Some("0"));
}

#[test]
fn r17_settings_leave_the_window_of_the_connection_alone() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 30_000)]);
    let stream = begin(&mut peer, BIG);
    peer.expect_content(stream, 30_000);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 1 << 20)])]);
    peer.expect_content(stream, 65_535 - 30_000);
    peer.send(&[
        settings(&[(INITIAL_WINDOW_SIZE, 10)]),
        window_update(0, 1_000),
        settings(&[(INITIAL_WINDOW_SIZE, 1 << 20)]),
    ]);
    peer.expect_content(stream, 1_000);
}

#[test]
fn r17_a_client_sends_nothing_into_a_window_that_settings_made_negative() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        block_on(async {
            let channel = Channel::connect(endpoint).await.unwrap();
            let mut upload = channel.client_streaming::<Raw, Raw>(CS, ()).await.unwrap();
            let message = Raw::from(vec![b'c'; 10_000]);
            while upload.send(&message).await.is_ok() {}
            upload.finish().await.unwrap_err()
        })
    });
    let mut peer = raw.accept(&[]);
    peer.send(&[window_update(0, 16_777_216)]);
    let stream = peer.expect_request();
    lower_the_window_below_zero(&mut peer, stream);
    peer.send(&[reset_stream(stream, CANCEL)]);
    assert_eq!(client.join().unwrap().code(), Code::Cancelled);
}

#[test]
fn r17_a_window_above_the_largest_is_a_flow_control_error() {
    let (server, _) = serve();
    let connect = || Peer::connect(server.local_addr().unwrap());

    let mut peer = connect();
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, WINDOW_MAX)])]);
    peer.assert_alive();
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, WINDOW_MAX + 1)])]);
    peer.expect_failure(FLOW_CONTROL_ERROR);

    let mut peer = connect();
    let stream = begin(&mut peer, SLOW);
    peer.send(&[window_update(stream, WINDOW_MAX - 65_535)]);
    peer.assert_alive();
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 65_536)])]);
    peer.expect_failure(FLOW_CONTROL_ERROR);

    let mut peer = connect();
    let stream = begin(&mut peer, SLOW);
    peer.send(&[window_update(stream, WINDOW_MAX - 65_535), window_update(stream, 1)]);
    assert_eq!(peer.expect_reset(stream), FLOW_CONTROL_ERROR, "of the stream only");
    peer.assert_alive();

    let mut peer = connect();
    peer.send(&[window_update(0, WINDOW_MAX - 65_535)]);
    peer.assert_alive();
    peer.send(&[window_update(0, 65_536)]);
    peer.expect_failure(FLOW_CONTROL_ERROR);
}

/// A window lower than what is under way, on the side that receives: what was sent before the acknowledgement is taken.
#[test]
fn r17_settings_of_a_smaller_window_do_not_punish_what_was_under_way() {
    let (server, _) = serve_with(with_stream_window(1_000));
    let mut peer = Peer::open(server.local_addr().unwrap());
    let stream = peer.take_stream();
    let body = message(&pattern(60_000));
    peer.send(&[
        crate::peer::PREFACE.to_vec(),
        settings(&[(INITIAL_WINDOW_SIZE, WINDOW_MAX)]),
        headers(stream, END_HEADERS, &request(U)),
    ]);
    let frames: Vec<Vec<u8>> = body.chunks(10_000).map(|piece| data(stream, 0, piece)).collect();
    peer.send(&frames);
    peer.exchange_settings();
    peer.send(&[data(stream, END_STREAM, b"")]);
    assert!(peer.answer(stream).content == body);
    peer.assert_alive();
}

#[test]
fn r18_settings_are_acknowledged_before_anything_that_relies_on_them() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 0)]);
    peer.send(&[window_update(0, 1 << 30)]);
    for round in 0..200 {
        let stream = begin(&mut peer, BIG);
        assert_eq!(data_bytes(&peer.settle(), stream), 0, "the window is 0");
        let raise = settings(&[(INITIAL_WINDOW_SIZE, 65_535), (MAX_FRAME_SIZE, 32_768)]);
        let lower = settings(&[(INITIAL_WINDOW_SIZE, 0), (MAX_FRAME_SIZE, 16_384)]);
        if round % 2 == 0 {
            peer.send(&[raise]);
        } else {
            // Other frames that are answered in the same turn.
            let racing = peer.take_stream();
            let call = [headers(racing, END_HEADERS, &request(U)), data(racing, END_STREAM, &message(b"r"))];
            peer.send(&[ping(*b"race-one"), call.concat(), raise, ping(*b"race-two")]);
        }
        let frames = peer.all_until(|frame| frame.kind == DATA);
        let acknowledged = frames.iter().any(|frame| frame.kind == SETTINGS && frame.has(ACK));
        assert!(acknowledged, "round {round}: DATA ahead of the acknowledgement: {frames:?}");
        peer.send(&[reset_stream(stream, CANCEL), lower]);
        peer.settle();
    }
}

#[test]
fn r18_a_client_acknowledges_settings_before_anything_that_relies_on_them() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        let mut channel = blocking::Channel::connect(endpoint).unwrap();
        channel.unary::<Raw, Raw>(U, Raw::from(pattern(5_000))).unwrap();
    });
    let mut peer = raw.accept(&[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = peer.expect_request();
    let content = message(&pattern(5_000));
    let mut window = 0;
    while window < content.len() {
        window += 25;
        peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, window as u32)])]);
        let frames = peer.all_until(|frame| frame.kind == DATA);
        let acknowledged = frames.iter().any(|frame| frame.kind == SETTINGS && frame.has(ACK));
        assert!(acknowledged, "DATA ahead of the acknowledgement: {frames:?}");
        assert_eq!(data_bytes(&frames, stream), 25.min(content.len() + 25 - window));
    }
    peer.reply(stream, b"");
    client.join().unwrap();
}

#[test]
fn r18_settings_are_acknowledged_while_no_data_may_leave() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = begin(&mut peer, BIG);
    peer.expect_content(stream, 65_535);
    peer.send(&[settings(&[(INITIAL_WINDOW_SIZE, 1 << 20)])]);
    let frames = peer.settle();
    assert!(frames.iter().any(|frame| frame.kind == SETTINGS && frame.has(ACK)), "{frames:?}");
    assert_eq!(data_bytes(&frames, stream), 0, "the window of the connection is used up");
    peer.send(&[window_update(0, 1_000)]);
    peer.expect_content(stream, 1_000);
}

#[test]
fn r18_a_smaller_header_table_is_used_after_the_acknowledgement() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    let stream = peer.take_stream();
    peer.send(&[
        settings(&[(HEADER_TABLE_SIZE, 0)]),
        headers(stream, END_HEADERS, &request(U)),
        data(stream, END_STREAM, &message(b"")),
    ]);
    let frames = peer.all_until(|frame| frame.kind == HEADERS);
    assert!(frames.iter().any(|frame| frame.kind == SETTINGS && frame.has(ACK)), "{frames:?}");
    assert_eq!(frames.last().unwrap().payload[0], 0x20, "the block begins with a size update to 0");
    assert_eq!(peer.answer(stream).trailer("grpc-status"), Some("0"));
}

/// The smallest window of a connection, for good, so that little is enough to leak all of it.
fn with_small_connection_window() -> Http2Config {
    Http2Config { connection_window_bytes: 65_535, window_bytes_max: 0, ..Http2Config::default() }
}

/// All but what waits for a quarter of the window to be full was credited.
fn assert_all_credited(peer: &Peer) {
    let (spent, credited) = (peer.spent(0), peer.credited(0));
    assert!(spent > 10 * 65_535, "more than any window: {spent}");
    assert!(credited <= spent && spent - credited < 65_535 / 4, "{spent} bytes sent, {credited} credited");
}

const R19_CALLS: usize = 200;

/// Serves a client that cancels each of [`R19_CALLS`] calls after its first message, makes one more, and ends.
fn send_to_cancelled_calls(raw: &RawServer) {
    let mut peer = raw.accept(&[]);
    for _ in 0..R19_CALLS {
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &response())]);
        peer.send_content(stream, &message(b"one"), false);
        assert_eq!(peer.expect_reset(stream), CANCEL);
        // As if the reset had not been seen: content, padding, trailers.
        peer.send_content(stream, &[b'x'; 8 * 1024], false);
        peer.send_padded(stream, &[b'y'; 100], 255);
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &trailers_ok())]);
    }
    let stream = peer.expect_request();
    peer.reply(stream, b"fine");
    peer.expect_end();
    assert_all_credited(&peer);
}

#[test]
fn r19_what_comes_for_cancelled_calls_is_credited_to_the_connection_of_a_channel() {
    let raw = RawServer::bind();
    let settings = Channel::builder(raw.endpoint()).http2(with_small_connection_window());
    let client = thread::spawn(move || {
        block_on(async {
            let channel = settings.connect().await.unwrap();
            for _ in 0..R19_CALLS {
                let mut replies =
                    channel.server_streaming::<Raw, Raw>(BIG, Raw::default()).await.unwrap().into_inner();
                assert_eq!(replies.message().await.unwrap().unwrap().as_ref(), b"one");
            }
            channel.unary::<Raw, Raw>(U, Raw::default()).await.map(Response::into_inner)
        })
    });
    send_to_cancelled_calls(&raw);
    assert_eq!(client.join().unwrap().unwrap().as_ref(), b"fine");
}

#[test]
fn r19_what_comes_for_cancelled_calls_is_credited_to_the_connection_of_a_blocking_channel() {
    let raw = RawServer::bind();
    let settings = blocking::Channel::builder(raw.endpoint()).http2(with_small_connection_window());
    let client = thread::spawn(move || {
        let mut channel = blocking::Channel::with(settings).unwrap();
        for _ in 0..R19_CALLS {
            let mut replies = channel.server_streaming::<Raw, Raw>(BIG, Raw::default()).unwrap().into_inner();
            assert_eq!(replies.message().unwrap().unwrap().as_ref(), b"one");
        }
        channel.unary::<Raw, Raw>(U, Raw::default()).map(Response::into_inner)
    });
    send_to_cancelled_calls(&raw);
    assert_eq!(client.join().unwrap().unwrap().as_ref(), b"fine");
}

/// A server ends calls early when their handler does, and refuses calls above its limit. What their clients had under way counts
/// against the connection too.
#[test]
fn r19_what_comes_for_ended_and_refused_calls_is_credited_to_the_connection_of_a_server() {
    let config = Http2Config { streams_max: 1, ..with_small_connection_window() };
    let (server, _) = serve_with(config);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for _ in 0..100 {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(FAIL))]);
        assert_eq!(peer.expect_reset(stream), NO_ERROR, "the answer is whole, no more is wanted");
        peer.send_content(stream, &[b'x'; 8 * 1024], false);
        peer.send_padded(stream, &[b'y'; 100], 255);
        peer.send(&[reset_stream(stream, CANCEL)]);
    }
    let only = begin(&mut peer, SLOW);
    for _ in 0..100 {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(U))]);
        peer.send_content(stream, &[b'x'; 8 * 1024], false);
        peer.send_padded(stream, &[b'y'; 100], 255);
        assert_eq!(peer.expect_reset(stream), REFUSED_STREAM);
    }
    peer.send(&[reset_stream(only, CANCEL)]);
    peer.assert_alive();
    assert_all_credited(&peer);
}

/// Calls until the stream ids are used up to `last`, a hundred at a time.
fn use_streams(peer: &mut Peer, last: u32) {
    let block = request(U);
    let body = message(b"one of many");
    while peer.next_stream <= last {
        let batch: Vec<u32> = (0..100).map(|_| peer.take_stream()).collect();
        let frames: Vec<Vec<u8>> = batch
            .iter()
            .map(|&id| [headers(id, END_HEADERS, &block), data(id, END_STREAM, &body)].concat())
            .collect();
        peer.send(&frames);
        for _ in batch {
            let end = peer.until(|frame| frame.kind == HEADERS && frame.has(END_STREAM));
            assert_eq!(end.field("grpc-status"), Some("0"), "{end:?}");
        }
    }
}

/// What a peer may still send for streams that have ended, because it had not heard of the end: the end of a call is often
/// followed by RST_STREAM.
#[test]
fn r22_late_frames_on_finished_streams_are_ignored_and_idle_streams_are_an_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let late = [
        window_update(1, 100),
        window_update(3, 100),
        reset_stream(5, NO_ERROR),
        reset_stream(5, CANCEL),
        priority(7),
    ];
    for _ in 0..5 {
        peer.assert_alive();
    }
    peer.send(&late);
    assert_eq!(peer.settle(), [], "nothing is answered");
    peer.assert_alive();

    peer.send(&[window_update(0, 1 << 20)]);
    use_streams(&mut peer, 20_000);
    peer.send(&late);
    assert_eq!(peer.settle(), [], "nor when the streams are long forgotten");
    peer.assert_alive();

    peer.send(&[window_update(peer.next_stream + 100, 1)]);
    peer.expect_failure(PROTOCOL_ERROR);
}

#[test]
fn r22_a_reset_of_an_idle_stream_is_an_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    peer.send(&[reset_stream(101, CANCEL)]);
    peer.expect_failure(PROTOCOL_ERROR);
}

#[test]
fn r22_a_client_takes_frames_on_idle_streams_for_an_error() {
    for frame in [window_update(101, 1), reset_stream(101, CANCEL), data(101, 0, b"")] {
        let raw = RawServer::bind();
        let endpoint = raw.endpoint();
        let client = thread::spawn(move || {
            let mut channel = blocking::Channel::connect(endpoint).unwrap();
            channel.unary::<Raw, Raw>(U, Raw::default()).unwrap_err()
        });
        let mut peer = raw.accept(&[]);
        peer.expect_request();
        peer.send(&[frame]);
        peer.expect_failure(PROTOCOL_ERROR);
        drop(peer);
        assert_eq!(client.join().unwrap().code(), Code::Unavailable);
    }
}

/// The same from servers: the C core of gRPC sends RST_STREAM behind its trailers.
#[test]
fn r22_a_client_ignores_late_frames_on_finished_streams() {
    const CALLS: usize = 100;
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        let mut channel = blocking::Channel::connect(endpoint).unwrap();
        for _ in 0..CALLS {
            let reply: Response<Raw> = channel.unary(U, Raw::default()).unwrap();
            assert_eq!(reply.get_ref().as_ref(), b"fine");
        }
    });
    let mut peer = raw.accept(&[]);
    for call in 0..CALLS {
        let stream = peer.expect_request();
        if call > 0 {
            let ended = stream - 2;
            peer.send(&[reset_stream(ended, NO_ERROR), window_update(ended, 5), window_update(1, 5)]);
            peer.send(&[reset_stream(1, CANCEL)]);
        }
        peer.reply(stream, b"fine");
    }
    client.join().unwrap();
}
