//! R60, R61 and R65 to R67: requests that are odd or wrong, and what a server answers.

use std::sync::atomic::Ordering;

use fulmar::{Raw, Replies, Request, Response, RunningServer, Status, Streaming};

use crate::common::serve_one;
use crate::peer::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,
    PING, PROTOCOL_ERROR, Peer, RST_STREAM, RawServer, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, continuation,
    data, frame, headers, literal, message, request, reset_stream, settings, window_update,
};
use crate::service::{BIDI, BIG, CS, FAIL, SLOW, U, serve};

const UNIMPLEMENTED: Option<&str> = Some("12");

fn peer_of(server: &RunningServer) -> Peer {
    Peer::connect(server.local_addr().unwrap())
}

/// Sends a call with these messages, and returns the status that it ends with.
fn status_of_call(peer: &mut Peer, path: &str, messages: &[Vec<u8>]) -> Option<String> {
    let stream = peer.take_stream();
    let content = messages.concat();
    peer.send(&[headers(stream, END_HEADERS, &request(path)), data(stream, END_STREAM, &content)]);
    peer.answer(stream).trailer("grpc-status").map(str::to_owned)
}

#[test]
fn r60_a_request_that_ends_with_its_headers_has_no_message() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    for path in [U, SLOW, BIG] {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &request(path))]);
        let answer = peer.answer(stream);
        assert_eq!(answer.trailer("grpc-status"), UNIMPLEMENTED, "{path} takes one message");
    }
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    for (path, content) in [(CS, message(&0_u64.to_be_bytes())), (BIDI, vec![])] {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &request(path))]);
        let answer = peer.answer(stream);
        assert_eq!((answer.trailer("grpc-status"), &answer.content), (Some("0"), &content), "{path}");
    }
    peer.assert_alive();
}

#[test]
fn r60_data_behind_the_end_of_a_request_is_stream_closed() {
    let (server, _) = serve();
    // The answer cannot leave, so that the stream is half-closed, and not closed.
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS | END_STREAM, &request(CS))]);
    peer.send(&[data(stream, 0, &message(b"late"))]);
    let refused = peer.until(|frame| frame.is(RST_STREAM, stream) || frame.kind == GOAWAY);
    let code = if refused.kind == GOAWAY { refused.u32_at(4) } else { refused.u32_at(0) };
    assert_eq!(code, STREAM_CLOSED);
}

#[test]
fn r61_a_server_refuses_no_and_two_messages_where_it_takes_one() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    for path in [U, BIG] {
        for messages in [&[][..], &[message(b"one"), message(b"two")]] {
            let status = status_of_call(&mut peer, path, messages);
            assert_eq!(status.as_deref(), UNIMPLEMENTED, "{path} with {} messages", messages.len());
        }
    }
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    assert_eq!(seen.big_sent.load(Ordering::SeqCst), 0);
    peer.assert_alive();
}

/// The second message may be late: the first does not start the handler.
#[test]
fn r61_a_second_message_in_a_frame_of_its_own_is_refused_as_well() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(U)), data(stream, 0, &message(b"one"))]);
    peer.settle();
    peer.send(&[data(stream, 0, &message(b"two"))]);
    assert_eq!(peer.answer(stream).trailer("grpc-status"), UNIMPLEMENTED);
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    peer.assert_alive();
}

/// [`request`] for `U` with another value for a field, or without it.
fn request_with(name: &str, value: Option<&str>) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", U),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ];
    let value_of = |(known, usual)| if known == name { value } else { Some(usual) };
    let block: Vec<_> =
        fields.iter().filter_map(|&field| value_of(field).map(|value| literal(field.0, value))).collect();
    block.concat()
}

#[test]
fn r65_a_content_type_that_is_not_grpc_is_http_415() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    for content_type in
        [Some("application/json"), Some("application/grpcx"), Some("application/grpc-web"), Some(""), None]
    {
        let answer = peer.call_with(&request_with("content-type", content_type), b"x");
        assert_eq!(answer.trailer(":status"), Some("415"), "{content_type:?}");
        assert_eq!(answer.trailer("grpc-status"), None, "it is no gRPC answer");
    }
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
        let answer = peer.call_with(&request_with("content-type", Some(content_type)), b"x");
        assert_eq!((answer.trailer("grpc-status"), &answer.content), (Some("0"), &message(b"x")));
    }
}

#[test]
fn r65_a_method_other_than_post_is_http_405_unless_it_is_not_grpc_at_all() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    for method in ["GET", "PUT", "post", "OPTIONS"] {
        let answer = peer.call_with(&request_with(":method", Some(method)), b"x");
        assert_eq!(answer.trailer(":status"), Some("405"), "{method}");
        assert_eq!(answer.trailer("grpc-status"), Some("13"), "for gRPC clients");
    }
    let stream = peer.take_stream();
    let browser = [
        literal(":method", "GET"),
        literal(":scheme", "http"),
        literal(":path", "/"),
        literal(":authority", "localhost"),
    ];
    peer.send(&[headers(stream, END_HEADERS | END_STREAM, &browser.concat())]);
    assert_eq!(peer.answer(stream).trailer(":status"), Some("415"));
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    peer.assert_alive();
}

#[test]
fn r65_te_may_be_missing() {
    let (server, _) = serve();
    let answer = peer_of(&server).call_with(&request_with("te", None), b"x");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
}

#[test]
fn r65_fields_that_http2_forbids_are_an_error_of_their_stream() {
    let (server, seen) = serve();
    let mut peer = peer_of(&server);
    let forbidden = [
        literal("X-Upper", "1"),
        literal("connection", "keep-alive"),
        literal("transfer-encoding", "chunked"),
        literal("upgrade", "h2c"),
        literal("te", "gzip"),
        literal("a b", "1"),
        literal("", "1"),
        literal("crlf", "1\r\nx: y"),
        literal(":late", "1"),
    ];
    for field in forbidden {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &[request(U), field.clone()].concat())]);
        assert_eq!(peer.expect_reset(stream), PROTOCOL_ERROR, "{}", field.escape_ascii());
    }
    assert_eq!(seen.unary.load(Ordering::SeqCst), 0, "no handler has run");
    peer.assert_alive();
}

/// Wire rule 5.
#[test]
fn whom_a_request_is_for_is_said_once() {
    let server = serve_one(|router| {
        router.unary("/demo.One/Whom", &std::sync::Arc::new(()), |_, request: Request<Raw>| async move {
            let whom = request.authority().unwrap_or("nobody").as_bytes().to_vec();
            Ok(Response::new(Raw::from(whom)))
        });
    });
    let mut peer = peer_of(&server);
    let head =
        [literal(":method", "POST"), literal(":scheme", "http"), literal(":path", "/demo.One/Whom")].concat();
    let tail = literal("content-type", "application/grpc");
    let (authority, host) = (literal(":authority", "a.example:1"), literal("host", "b.example"));
    let asked = |fields: &[&[u8]]| [&head[..], &fields.concat(), &tail].concat();
    for (block, whom) in [
        (asked(&[&authority]), "a.example:1"),
        (asked(&[&host]), "b.example"),
        (asked(&[&authority, &host]), "a.example:1"),
        (asked(&[]), "nobody"),
    ] {
        assert_eq!(peer.call_with(&block, b"").content, message(whom.as_bytes()));
    }
    for twice in
        [asked(&[&authority, &authority]), asked(&[&host, &host]), asked(&[&authority, &host, &host])]
    {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &twice)]);
        assert_eq!(peer.expect_reset(stream), PROTOCOL_ERROR);
    }
    assert_eq!(peer.call_with(&asked(&[&host]), b"").content, message(b"b.example"), "and all is well");
}

/// Frames that nobody has to know: unknown types, and those of extensions.
fn unknown_frames(stream: u32) -> Vec<Vec<u8>> {
    const ALTSVC: u8 = 0x0a;
    const ORIGIN: u8 = 0x0c;
    const PRIORITY_UPDATE: u8 = 0x10;
    [0x0b, 0xfe, ALTSVC, ORIGIN, PRIORITY_UPDATE]
        .map(|kind| frame(kind, 0xff, stream, b"whatever it may mean"))
        .to_vec()
}

#[test]
fn r66_a_server_ignores_what_it_does_not_know() {
    let (server, _) = serve();
    let unknown_settings = [(0, 7), (9, 0), (0xfafa, u32::MAX)];
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &unknown_settings);
    peer.send(&[settings(&unknown_settings)]);
    peer.until(|frame| frame.kind == SETTINGS && frame.has(ACK));

    let (open, half_closed) = (peer.take_stream(), peer.take_stream());
    peer.send(&[
        headers(open, END_HEADERS, &request(BIDI)),
        headers(half_closed, END_HEADERS, &request(SLOW)),
        data(half_closed, END_STREAM, &message(b"")),
    ]);
    peer.assert_alive();
    let closed = peer.next_stream - 2;
    for stream in [0, open, half_closed, closed, closed + 100] {
        peer.send(&unknown_frames(stream));
        peer.assert_alive();
    }
    peer.send(&[data(open, END_STREAM, &message(b"one"))]);
    let answer = peer.answer(open);
    assert_eq!((answer.trailer("grpc-status"), &answer.content), (Some("0"), &message(b"one")));
    peer.send(&[reset_stream(half_closed, CANCEL)]);
    peer.assert_alive();
}

#[test]
fn r66_reserved_bits_and_unknown_flags_are_ignored() {
    const RESERVED: u32 = 1 << 31;
    // Those flags of each type that have no meaning there.
    let (server, _) = serve();
    let mut peer = peer_of(&server);
    let stream = peer.take_stream();
    let question = message(b"one");
    peer.send(&[
        frame(SETTINGS, 0xfe, RESERVED, &[]),
        headers(stream | RESERVED, END_HEADERS | 0xd2, &request(U)),
        frame(WINDOW_UPDATE, 0xff, stream | RESERVED, &(100 | RESERVED).to_be_bytes()),
        frame(PING, 0xfe, RESERVED, b"reserved"),
        frame(DATA, END_STREAM | 0xf6, stream | RESERVED, &question),
    ]);
    assert_eq!(peer.answer(stream).content, question);
    peer.assert_alive();
}

#[test]
fn r66_an_unknown_frame_inside_a_header_block_is_a_protocol_error() {
    let (server, _) = serve();
    for kind in [0x0b, 0xfe] {
        let mut peer = peer_of(&server);
        let block = request(U);
        let (first, rest) = block.split_at(20);
        peer.send(&[headers(1, 0, first), frame(kind, 0, 1, b"unknown")]);
        let _ = peer.try_send(&[continuation(1, END_HEADERS, rest)]);
        peer.expect_failure(PROTOCOL_ERROR);
    }
}

#[test]
fn r66_a_client_ignores_what_it_does_not_know_and_takes_no_push() {
    const PUSH_PROMISE: u8 = 5;
    let server = RawServer::bind();
    let channel = fulmar::Channel::builder(server.endpoint()).build().unwrap();
    let call = |channel: &fulmar::Channel| {
        let channel = channel.clone();
        std::thread::spawn(move || {
            let answer = crate::common::block_on(channel.unary::<Raw, Raw>(U, Raw::default()));
            answer.map(|answer| answer.into_inner().as_ref().to_vec())
        })
    };
    let first = call(&channel);
    let mut peer = server.accept(&[(0, 7), (9, 0), (0xfafa, u32::MAX)]);
    let stream = peer.expect_request();
    peer.send(&unknown_frames(0));
    peer.send(&unknown_frames(stream));
    peer.send(&unknown_frames(stream + 100));
    peer.reply(stream, b"first");
    assert_eq!(first.join().unwrap().unwrap(), b"first");
    peer.send(&unknown_frames(stream));

    let second = call(&channel);
    let stream = peer.expect_request();
    let promise = [&2_u32.to_be_bytes()[..], &request(U)].concat();
    peer.send(&[frame(PUSH_PROMISE, END_HEADERS, stream, &promise)]);
    assert_eq!(peer.expect_go_away().1, PROTOCOL_ERROR);
    assert_eq!(second.join().unwrap().unwrap_err().code(), fulmar::Code::Unavailable);
}

/// The frames of the answer to a call with these messages, up to its end.
fn answer_frames(peer: &mut Peer, path: &str, messages: &[Vec<u8>]) -> Vec<Frame> {
    let stream = peer.take_stream();
    let opening = headers(stream, END_HEADERS, &request(path));
    peer.send(&[opening, data(stream, END_STREAM, &messages.concat())]);
    let mut frames = peer.all_until(|frame| frame.is(HEADERS, stream) && frame.has(END_STREAM));
    frames.extend(peer.settle());
    frames.retain(|frame| frame.stream == stream);
    frames
}

/// The answer ends with its trailers, and no DATA is empty or ends it.
fn assert_no_stray_data(frames: &[Frame], what: &str) {
    for frame in frames.iter().filter(|frame| frame.kind == DATA) {
        assert!(!frame.payload.is_empty() && !frame.has(END_STREAM), "{what}: {frames:?}");
    }
    let ends = |frame: &Frame| frame.kind == HEADERS && frame.has(END_STREAM);
    let last = frames.iter().rfind(|frame| matches!(frame.kind, HEADERS | DATA | CONTINUATION));
    assert!(last.is_some_and(ends), "{what}: {frames:?}");
}

#[test]
fn r67_answers_of_every_kind_have_no_empty_data() {
    let (server, _) = serve();
    let mut peer = peer_of(&server);
    let one = || message(b"one");
    let calls: [(&str, &[Vec<u8>]); 10] = [
        (U, &[one()]),
        (U, &[message(b"")]),
        (U, &[]),
        (CS, &[]),
        (CS, &[one(), message(b""), one()]),
        (BIDI, &[]),
        (BIDI, &[message(b"")]),
        (BIDI, &[one(), message(b""), message(&[7; 12_000])]),
        (FAIL, &[one()]),
        ("/field.Cases/Missing", &[one()]),
    ];
    for (path, messages) in calls {
        let frames = answer_frames(&mut peer, path, messages);
        assert_no_stray_data(&frames, path);
    }
    // A window that fits to the byte tempts to send what is left: nothing.
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 8)]);
    let frames = answer_frames(&mut peer, U, &[one()]);
    assert_no_stray_data(&frames, "a window of one message");
}

#[test]
fn r67_streams_of_messages_and_their_failures_have_no_empty_data() {
    let server = serve_one(|router| {
        let service = std::sync::Arc::new(());
        router.server_streaming(
            "/demo.One/Count",
            &service,
            |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                let [count, fails] = request.get_ref().as_ref() else {
                    return Err(Status::internal("two bytes"));
                };
                replies.send_metadata().await?;
                for _ in 0..*count {
                    replies.send(&Raw::default()).await?;
                }
                if *fails == 1 { Err(Status::aborted("enough")) } else { Ok(()) }
            },
        );
        router.bidi(
            "/demo.One/Wait",
            &service,
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                replies.send_metadata().await?;
                requests.message().await?;
                std::future::pending().await
            },
        );
        router.unary("/demo.One/Unit", &service, |_, _: Request<Raw>| async {
            Ok(Response::new(Raw::default()))
        });
    });
    let mut peer = peer_of(&server);
    for (count, fails) in [(0, 0), (1, 0), (3, 0), (0, 1), (3, 1)] {
        let frames = answer_frames(&mut peer, "/demo.One/Count", &[message(&[count, fails])]);
        assert_no_stray_data(&frames, "Count");
    }
    assert_no_stray_data(&answer_frames(&mut peer, "/demo.One/Unit", &[message(b"")]), "Unit");

    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request("/demo.One/Wait")), data(stream, 0, &message(b"one"))]);
    peer.until(|frame| frame.is(HEADERS, stream));
    peer.send(&[reset_stream(stream, CANCEL)]);
    assert!(peer.settle().iter().all(|frame| frame.stream != stream || frame.kind == WINDOW_UPDATE));
    peer.send(&[window_update(0, 1)]);
    assert_eq!(peer.call("/demo.One/Unit", b"").content, message(b""));
}
