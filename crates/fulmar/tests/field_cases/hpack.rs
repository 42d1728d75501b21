//! R24 to R29: header compression, and limits on header lists.

use std::sync::mpsc;
use std::thread;

use fulmar::{Channel, Code, Http2Config, Raw, Request, Response, Status, blocking};
use fulmar_hpack::{Encoder, Field};

use crate::common::block_on;
use crate::peer::{
    CANCEL, COMPRESSION_ERROR, END_HEADERS, END_STREAM, HEADER_TABLE_SIZE, HEADERS, INTERNAL_ERROR,
    MAX_HEADER_LIST_SIZE, NO_ERROR, Peer, REFUSED_STREAM, RST_STREAM, RawServer, continuation, data, headers,
    indexed, inserted, integer, literal, message, request, reset_stream, response, settings, size_update,
    string, trailers_ok,
};
use crate::service::{FAIL, SLOW, U, serve, serve_with};

/// Sends a request whose header block the server cannot decode.
fn assert_compression_error(peer: &mut Peer, block: &[u8]) {
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS | END_STREAM, block)]);
    let text = peer.expect_failure(COMPRESSION_ERROR);
    assert!(!text.is_empty(), "the debug text says what is wrong");
}

/// The header block of a normal request, with more fields in pieces.
fn request_and(more: &[Vec<u8>]) -> Vec<u8> {
    [request(U), more.concat()].concat()
}

/// A call of the echo that fails if it is not answered within its deadline.
fn unary(channel: &mut blocking::Channel, request: Request<Raw>) -> Result<Response<Raw>, Status> {
    channel.unary::<Raw, Raw>(U, request.with_timeout(crate::peer::PATIENCE))
}

/// A client that makes one call after another, and a server played by hand.
fn with_blocking_client(calls: impl FnOnce(blocking::Channel) + Send + 'static, serve: impl FnOnce(Peer)) {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || calls(blocking::Channel::connect(endpoint).unwrap()));
    serve(raw.accept(&[]));
    client.join().unwrap();
}

#[test]
fn r24_size_updates_may_stand_in_front_of_a_request_and_one_of_zero_empties_the_table() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let answer = peer.call_with(&request_and(&[inserted("x-kept", "yes")]), b"1");
    assert_eq!(answer.header("x-kept"), Some("yes"));
    let answer = peer.call_with(&request_and(&[indexed(62)]), b"2");
    assert_eq!(answer.header("x-kept"), Some("yes"), "the entry is in the table");

    let updates = [size_update(0), size_update(4_096)].concat();
    assert_eq!(updates, [0x20, 0x3f, 0xe1, 0x1f]);
    let answer = peer.call_with(&[updates, request_and(&[inserted("x-new", "1")])].concat(), b"3");
    assert_eq!(answer.header("x-new"), Some("1"));
    assert_eq!(answer.content, message(b"3"));
    let answer = peer.call_with(&request_and(&[indexed(62)]), b"4");
    assert_eq!(answer.header("x-new"), Some("1"), "the table is in use again");
    assert_compression_error(&mut peer, &request_and(&[indexed(63)]));
}

#[test]
fn r24_size_updates_may_stand_in_front_of_a_response_and_one_of_zero_empties_the_table() {
    let calls = |mut channel: blocking::Channel| {
        for expected in ["old", "old", "new"] {
            let reply = unary(&mut channel, Request::new(Raw::default())).unwrap();
            assert_eq!(reply.metadata().get("x-kept"), Some(expected));
        }
        let status = unary(&mut channel, Request::new(Raw::default())).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "the connection is lost: {status}");
    };
    with_blocking_client(calls, |mut peer| {
        let updates = [size_update(0), size_update(4_096)].concat();
        let answers = [
            [response(), inserted("x-kept", "old")].concat(),
            [response(), indexed(62)].concat(),
            [updates, response(), inserted("x-kept", "new")].concat(),
        ];
        for block in answers {
            let stream = peer.expect_request();
            peer.send(&[headers(stream, END_HEADERS, &block), data(stream, 0, &message(b""))]);
            peer.send(&[headers(stream, END_HEADERS | END_STREAM, &trailers_ok())]);
        }
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &[response(), indexed(63)].concat())]);
        peer.expect_failure(COMPRESSION_ERROR);
    });
}

#[test]
fn r25_a_size_update_behind_a_field_is_a_compression_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let block = [literal(":method", "POST"), size_update(0), literal(":scheme", "http")].concat();
    assert_compression_error(&mut peer, &block);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    assert_compression_error(&mut peer, &request_and(&[size_update(4_096)]));
}

#[test]
fn r25_a_size_update_above_the_acknowledged_setting_is_a_compression_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let update = size_update(4_097);
    assert_eq!(update, [0x3f, 0xe2, 0x1f]);
    assert_compression_error(&mut peer, &[update, request(U)].concat());

    let (server, _) = serve_with(Http2Config { header_table_bytes_max: 8_192, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    assert_eq!(peer.setting(HEADER_TABLE_SIZE), Some(8_192));
    let answer = peer.call_with(&[size_update(8_192), request(U)].concat(), b"");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
    assert_compression_error(&mut peer, &[size_update(8_193), request(U)].concat());

    // Above what was acknowledged, although not above what was offered.
    let mut peer = Peer::open(server.local_addr().unwrap());
    peer.send(&[crate::peer::PREFACE.to_vec(), settings(&[])]);
    assert_compression_error(&mut peer, &[size_update(8_192), request(U)].concat());
}

/// RFC 7541 §4.2: an encoder answers a smaller table with an update in its next block.
#[test]
fn r25_a_smaller_table_that_was_acknowledged_must_be_used() {
    let (server, _) = serve_with(Http2Config { header_table_bytes_max: 0, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let answer = peer.call_with(&[size_update(0), request(U)].concat(), b"");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));
    peer.assert_alive();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    assert_compression_error(&mut peer, &request(U));
}

/// A field named `x-h` whose value is given as it is on the wire, length included.
fn with_raw_value(value: &[u8]) -> Vec<u8> {
    request_and(&[vec![0x00], string(b"x-h"), value.to_vec()])
}

#[test]
fn r26_strings_and_integers_that_are_wrong_are_compression_errors() {
    let six_octets = [&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..], &[b'z'; 127]].concat();
    let wrong: &[(&str, Vec<u8>)] = &[
        ("two octets of padding", with_raw_value(&[0x82, 0xff, 0xff])),
        ("an octet of padding behind a whole symbol", with_raw_value(&[0x82, 0x1f, 0xff])),
        ("padding of zeros", with_raw_value(&[0x81, 0x18])),
        ("padding with a zero in it", with_raw_value(&[0x81, 0x1d])),
        ("EOS", with_raw_value(&[0x84, 0xff, 0xff, 0xff, 0xff])),
        ("EOS behind a symbol", with_raw_value(&[0x85, 0x1f, 0xff, 0xff, 0xff, 0xff])),
        ("a length above 2^32", with_raw_value(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])),
        ("the same, Huffman", with_raw_value(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])),
        (
            "a length of 2^64 - 1",
            with_raw_value(&[0x7f, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ),
        ("a length of 2^32", with_raw_value(&[0x7f, 0x81, 0xff, 0xff, 0xff, 0x0f])),
        // The octets are all there: only their number is wrong.
        ("six octets behind the prefix", with_raw_value(&six_octets)),
        ("a string longer than the block", with_raw_value(&[0x05, b'a'])),
        ("a length that is cut off", with_raw_value(&[0x7f, 0x80])),
        ("index 0", request_and(&[vec![0x80]])),
        ("index 62 of an empty table", request_and(&[vec![0xbe]])),
        ("an index above 2^32", request_and(&[vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]])),
        ("a name at index 62 of an empty table", request_and(&[integer(0x40, 6, 62), string(b"v")])),
        ("a table above 2^32", [vec![0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], request(U)].concat()),
        ("a block that ends in a field", request_and(&[vec![0x00]])),
    ];
    let (server, _) = serve();
    for (what, block) in wrong {
        let mut peer = Peer::connect(server.local_addr().unwrap());
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, block)]);
        let (_, code, text) = peer.expect_go_away();
        assert_eq!(code, COMPRESSION_ERROR, "{what}: {text}");
        peer.expect_end();
    }
}

#[test]
fn r26_strings_that_are_right_are_taken() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    // From RFC 7541, appendices C.4.1, C.4.3 and C.6.1: symbols span octets. And seven bits of padding at the most.
    let examples: [(&str, &[u8]); 5] = [
        ("www.example.com", b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"),
        ("custom-value", b"\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
        (
            "Mon, 21 Oct 2013 20:13:21 GMT",
            &[
                0x96, 0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b,
                0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
            ],
        ),
        ("a", &[0x81, 0x1f]),
        ("", &[0x80]),
    ];
    for (text, wire) in examples {
        let answer = peer.call_with(&with_raw_value(wire), b"");
        assert_eq!(answer.header("x-h"), Some(text));
    }
    // A length in six octets that is not more than it says: zeros in front are no error.
    let answer = peer.call_with(
        &with_raw_value(
            &[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00].iter().copied().chain([b'z'; 127]).collect::<Vec<u8>>(),
        ),
        b"",
    );
    assert_eq!(answer.header("x-h"), Some("z".repeat(127).as_str()));
}

#[test]
fn r26_strings_of_every_length_arrive_as_they_were_sent() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let mut encoder = Encoder::new(4_096);
    let visible: Vec<u8> = (0x21..0x7f).collect();
    for length in 0..=64 {
        let value: Vec<u8> = visible.iter().cycle().skip(length * 7).take(length).copied().collect();
        let mut block = request(U);
        encoder.encode([Field::new(b"x-h", &value), Field::new(b"x-plain", b"p")], &mut block);
        let answer = peer.call_with(&block, b"");
        assert_eq!(answer.header("x-h").map(str::as_bytes), Some(value.as_slice()));
        assert_eq!(answer.header("x-plain"), Some("p"));
    }
}

/// Sends a header block in as many frames as it takes.
fn send_block(peer: &mut Peer, stream: u32, flags: u8, block: &[u8]) {
    let mut pieces = block.chunks(16_384).peekable();
    let mut frames = Vec::new();
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        frames.push(match frames.is_empty() {
            true => headers(stream, flags | end, piece),
            false => continuation(stream, end, piece),
        });
    }
    peer.send(&frames);
}

/// A request whose list is too large fails alone and says why.
fn assert_too_large(peer: &mut Peer, block: &[u8]) -> String {
    let stream = peer.take_stream();
    send_block(peer, stream, END_STREAM, block);
    let answer = peer.answer(stream);
    assert_eq!(answer.trailer(":status"), Some("431"), "{answer:?}");
    assert_eq!(answer.trailer("grpc-status"), Some("8"), "{answer:?}");
    let text = answer.trailer("grpc-message").unwrap();
    assert!(text.contains("header_list_bytes_max") || text.contains("header_fields_max"), "{answer:?}");
    text.to_owned()
}

#[test]
fn r27_a_bomb_of_references_fails_its_call_and_keeps_the_table_in_step() {
    let (server, seen) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let value = "v".repeat(4_000);
    let bomb = [inserted("x-bomb", &value), indexed(62).repeat(16_000), inserted("x-behind", "b")];
    assert_too_large(&mut peer, &request_and(&bomb));
    assert_eq!(seen.unary.load(std::sync::atomic::Ordering::SeqCst), 0, "no handler saw it");
    let answer = peer.call_with(&request_and(&[indexed(62), indexed(63)]), b"");
    assert_eq!(answer.header("x-behind"), Some("b"));
    assert_eq!(answer.header("x-bomb"), Some(value.as_str()));
}

#[test]
fn r27_a_bomb_of_empty_fields_fails_its_call_only() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let empty = literal("", "");
    assert_eq!(empty, [0, 0, 0]);
    assert_too_large(&mut peer, &request_and(&[empty.repeat(5_000)]));
    peer.assert_alive();
}

/// The size of the list of the normal request (RFC 9113 §6.5.2).
fn request_list_bytes() -> usize {
    [
        ":methodPOST",
        ":schemehttp",
        ":path",
        U,
        ":authoritylocalhost",
        "tetrailers",
        "content-typeapplication/grpc",
    ]
    .concat()
    .len()
        + 6 * 32
}

#[test]
fn r27_a_list_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() {
    for limit in [1_000, 16 * 1024] {
        let (server, _) = serve_with(Http2Config { header_list_bytes_max: limit, ..Http2Config::default() });
        let mut peer = Peer::connect(server.local_addr().unwrap());
        assert_eq!(peer.setting(MAX_HEADER_LIST_SIZE), Some(limit));
        let left = limit as usize - request_list_bytes() - "x-fill".len() - 32;
        let fill = |bytes: usize| request_and(&[literal("x-fill", "f".repeat(bytes))]);
        let answer = peer.call_with(&fill(left), b"");
        assert_eq!(answer.header("x-fill").map(str::len), Some(left));
        let text = assert_too_large(&mut peer, &fill(left + 1));
        let (size, limit) = (format!(" {} bytes", limit + 1), format!(" {limit} are taken"));
        assert!(text.contains(&size) && text.contains(&limit), "size and limit are named: {text}");
        let answer = peer.call_with(&fill(left - 1), b"");
        assert_eq!(answer.trailer("grpc-status"), Some("0"));
    }
}

#[test]
fn r27_as_many_fields_as_allowed_are_taken_and_one_more_is_not() {
    let (server, _) = serve_with(Http2Config { header_fields_max: 20, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let fields = |count: usize| request_and(&[literal("x-f", "").repeat(count - 6)]);
    let answer = peer.call_with(&fields(20), b"");
    assert_eq!(answer.headers.iter().filter(|field| field.0 == "x-f").count(), 14);
    let text = assert_too_large(&mut peer, &fields(21));
    assert!(text.contains("more than 20 fields"), "the limit is named: {text}");
    peer.assert_alive();
}

#[test]
fn r27_a_bomb_in_a_response_fails_its_call_and_keeps_the_table_in_step() {
    let calls = |mut channel: blocking::Channel| {
        for limit in ["header_list_bytes_max", "header_list_bytes_max", "header_fields_max"] {
            let status = unary(&mut channel, Request::new(Raw::default())).unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.message().contains(limit), "{status}");
        }
        let reply = unary(&mut channel, Request::new(Raw::default())).unwrap();
        assert_eq!(reply.metadata().get("x-bomb"), Some("v".repeat(4_000).as_str()));
    };
    with_blocking_client(calls, |mut peer| {
        // In headers, then in trailers.
        let bomb = [inserted("x-bomb", "v".repeat(4_000)), indexed(62).repeat(10_000)].concat();
        let stream = peer.expect_request();
        send_block(&mut peer, stream, 0, &[response(), bomb.clone()].concat());
        peer.expect_reset(stream);
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &response()), data(stream, 0, &message(b""))]);
        send_block(&mut peer, stream, END_STREAM, &[trailers_ok(), bomb].concat());
        let stream = peer.expect_request();
        send_block(&mut peer, stream, END_STREAM, &[response(), literal("x", "").repeat(300)].concat());
        let stream = peer.expect_request();
        peer.send(&[
            headers(stream, END_HEADERS, &[response(), indexed(62)].concat()),
            data(stream, 0, &message(b"")),
            headers(stream, END_HEADERS | END_STREAM, &trailers_ok()),
        ]);
        peer.expect_end();
    });
}

const R28_LIMIT: u32 = 8 * 1024;

#[test]
fn r28_a_request_over_the_limit_fails_its_stream_only_and_what_it_inserted_stays() {
    let (server, _) = serve_with(Http2Config { header_list_bytes_max: R28_LIMIT, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let other = peer.take_stream();
    peer.send(&[headers(other, END_HEADERS, &request(U))]);
    let value = "3".repeat(3_000);
    let block = request_and(&[
        inserted("x-one", "1".repeat(3_000)),
        inserted("x-two", "2".repeat(3_000)),
        inserted("x-three", &value),
    ]);
    assert_too_large(&mut peer, &block);
    let answer = peer.call_with(&request_and(&[indexed(62)]), b"");
    assert_eq!(answer.header("x-three"), Some(value.as_str()));
    peer.send(&[data(other, END_STREAM, &message(b"other"))]);
    assert_eq!(peer.answer(other).content, message(b"other"), "calls beside it go on");

    // With the request still to come: no more of it is wanted.
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &block)]);
    let refusal = peer.until(|frame| frame.is(HEADERS, stream));
    assert!(refusal.has(END_STREAM) && refusal.field(":status") == Some("431"), "{refusal:?}");
    assert_eq!(peer.expect_reset(stream), NO_ERROR);
    peer.send(&[data(stream, END_STREAM, &message(b"under way"))]);
    peer.assert_alive();
}

/// A request with so many bytes of metadata.
fn request_with_metadata(bytes: usize) -> Request<Raw> {
    let mut request = Request::new(Raw::default());
    request.metadata_mut().insert("x-large", &"m".repeat(bytes)).unwrap();
    request
}

#[test]
fn r28_a_client_refuses_metadata_over_the_limit_of_the_server_and_sends_nothing() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        let assert_refused = |status: Status| {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            let text = status.message();
            assert!(text.contains("1000") && text.contains(" 2"), "size and limit are named: {text}");
        };
        let mut channel = blocking::Channel::connect(&endpoint).unwrap();
        assert_refused(unary(&mut channel, request_with_metadata(2_000)).unwrap_err());
        unary(&mut channel, Request::new(Raw::default())).unwrap();
        drop(channel);
        block_on(async {
            let channel = Channel::connect(&endpoint).await.unwrap();
            let refused = channel.unary::<Raw, Raw>(U, request_with_metadata(2_000)).await;
            assert_refused(refused.unwrap_err());
            channel.unary::<Raw, Raw>(U, Raw::default()).await.unwrap();
        });
    });
    for _ in 0..2 {
        let mut peer = raw.accept(&[(MAX_HEADER_LIST_SIZE, 1_000)]);
        let first = peer.until(|frame| frame.kind == HEADERS || frame.kind == RST_STREAM);
        assert_eq!((first.kind, first.stream), (HEADERS, 1), "the refused call took no stream");
        assert_eq!(first.field("x-large"), None);
        peer.reply(first.stream, b"");
        while let Some(frame) = peer.try_next() {
            assert_ne!(frame.kind, HEADERS, "nothing more was called");
        }
    }
    client.join().unwrap();
}

#[test]
fn r28_a_server_fails_a_call_whose_answer_is_over_the_limit_of_the_client_and_says_why() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(MAX_HEADER_LIST_SIZE, 1_000)]);
    for (name, content) in [("x-headers", vec![]), ("t-trailers", message(b"sent before"))] {
        let answer = peer.call_with(&request_and(&[literal(name, "e".repeat(2_000))]), b"sent before");
        assert_eq!(answer.content, content);
        assert_eq!(answer.trailer("grpc-status"), Some("8"), "{answer:?}");
        let text = answer.trailer("grpc-message").unwrap();
        assert!(text.contains("1000") && text.contains(" 2"), "size and limit are named: {text}");
        peer.assert_alive();
    }
}

/// A limit that even a status is over.
#[test]
fn r28_a_server_resets_a_call_whose_client_takes_no_status() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(MAX_HEADER_LIST_SIZE, 100)]);
    for path in [U, FAIL, "/no/method"] {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(path)), data(stream, END_STREAM, &message(b""))]);
        let frame = peer.until(|frame| frame.stream == stream);
        assert_eq!((frame.kind, frame.u32_at(0)), (RST_STREAM, INTERNAL_ERROR), "{path}");
    }
    peer.send(&[settings(&[(MAX_HEADER_LIST_SIZE, 1_000)])]);
    peer.assert_alive();
}

#[test]
fn r28_a_response_over_the_limit_fails_its_call_only() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        let config = Http2Config { header_list_bytes_max: R28_LIMIT, ..Http2Config::default() };
        let settings = blocking::Channel::builder(endpoint).http2(config);
        let mut channel = blocking::Channel::with(settings).unwrap();
        for _ in 0..2 {
            let status = unary(&mut channel, Request::new(Raw::default())).unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            let text = status.message();
            assert!(text.contains("header_list_bytes_max"), "{status}");
            assert!(
                text.contains(" 8192 are taken") && text.contains(" bytes"),
                "size and limit are named: {text}"
            );
        }
        let reply = unary(&mut channel, Request::new(Raw::default())).unwrap();
        assert_eq!(reply.metadata().get("x-three"), Some("3".repeat(3_000).as_str()));
    });
    let mut peer = raw.accept(&[]);
    assert_eq!(peer.setting(MAX_HEADER_LIST_SIZE), Some(R28_LIMIT));
    let large = [
        inserted("x-one", "1".repeat(3_000)),
        inserted("x-two", "2".repeat(3_000)),
        inserted("x-three", "3".repeat(3_000)),
    ]
    .concat();
    let stream = peer.expect_request();
    peer.send(&[headers(stream, END_HEADERS, &[response(), large.clone()].concat())]);
    peer.expect_reset(stream);
    let stream = peer.expect_request();
    peer.send(&[
        headers(stream, END_HEADERS, &response()),
        data(stream, 0, &message(b"")),
        headers(stream, END_HEADERS | END_STREAM, &[trailers_ok(), large].concat()),
    ]);
    let stream = peer.expect_request();
    peer.send(&[
        headers(stream, END_HEADERS, &[response(), indexed(62)].concat()),
        data(stream, 0, &message(b"")),
        headers(stream, END_HEADERS | END_STREAM, &trailers_ok()),
    ]);
    client.join().unwrap();
}

#[test]
fn r29_headers_for_a_cancelled_call_are_decoded_by_the_client() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let (step, steps) = mpsc::channel();
    let client = thread::spawn(move || {
        block_on(async {
            let channel = Channel::connect(endpoint).await.unwrap();
            let mut call = Box::pin(channel.unary::<Raw, Raw>(SLOW, Raw::default()));
            let pending =
                std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending()));
            assert!(pending.await, "nobody has answered");
            steps.recv().expect("the request has arrived");
            drop(call);
            steps.recv().expect("the cancelled call was answered");
            channel.unary::<Raw, Raw>(U, Raw::default()).await.unwrap()
        })
    });
    let mut peer = raw.accept(&[]);
    let stream = peer.expect_request();
    step.send(()).unwrap();
    answer_a_cancelled_call(&mut peer, stream);
    step.send(()).unwrap();
    answer_by_indices(&mut peer);
    assert_both_fields(&client.join().unwrap());
}

#[test]
fn r29_headers_for_a_call_whose_deadline_passed_are_decoded_by_a_blocking_client() {
    let calls = |mut channel: blocking::Channel| {
        let late = Request::new(Raw::default()).with_timeout(std::time::Duration::from_millis(20));
        let status = channel.unary::<Raw, Raw>(SLOW, late).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_both_fields(&unary(&mut channel, Request::new(Raw::default())).unwrap());
    };
    with_blocking_client(calls, |mut peer| {
        let stream = peer.expect_request();
        answer_a_cancelled_call(&mut peer, stream);
        answer_by_indices(&mut peer);
    });
}

/// Waits for the reset of a call, and sends headers and trailers as if there had been none. They insert two fields.
fn answer_a_cancelled_call(peer: &mut Peer, stream: u32) {
    assert_eq!(peer.expect_reset(stream), CANCEL);
    peer.send(&[
        headers(stream, END_HEADERS, &[response(), inserted("x-first", "1")].concat()),
        headers(stream, END_STREAM, &trailers_ok()),
        continuation(stream, END_HEADERS, &inserted("x-second", "2")),
    ]);
}

/// Answers the next call with the two fields.
fn answer_by_indices(peer: &mut Peer) {
    let stream = peer.expect_request();
    peer.send(&[
        headers(stream, END_HEADERS, &[response(), indexed(62), indexed(63)].concat()),
        data(stream, 0, &message(b"")),
        headers(stream, END_HEADERS | END_STREAM, &trailers_ok()),
    ]);
}

fn assert_both_fields(reply: &Response<Raw>) {
    assert_eq!(reply.metadata().get("x-second"), Some("2"));
    assert_eq!(reply.metadata().get("x-first"), Some("1"));
}

#[test]
fn r29_headers_of_a_refused_call_are_decoded_by_the_server() {
    let (server, _) = serve_with(Http2Config { streams_max: 1, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let only = peer.take_stream();
    peer.send(&[headers(only, END_HEADERS, &request(SLOW)), data(only, END_STREAM, &message(b""))]);
    let refused = peer.take_stream();
    peer.send(&[
        headers(refused, END_STREAM, &request_and(&[inserted("x-first", "1")])),
        continuation(refused, END_HEADERS, &inserted("x-second", "2")),
    ]);
    assert_eq!(peer.expect_reset(refused), REFUSED_STREAM);
    peer.send(&[reset_stream(only, CANCEL)]);
    let answer = peer.call_with(&request_and(&[indexed(62), indexed(63)]), b"");
    assert_eq!((answer.header("x-second"), answer.header("x-first")), (Some("2"), Some("1")));
}

/// Trailers for a call that the server has ended already, and headers of a call that it found malformed.
#[test]
fn r29_headers_for_ended_and_malformed_calls_are_decoded_by_the_server() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let ended = peer.take_stream();
    peer.send(&[headers(ended, END_HEADERS, &request(FAIL))]);
    assert_eq!(peer.expect_reset(ended), NO_ERROR);
    peer.send(&[headers(ended, END_HEADERS | END_STREAM, &inserted("x-late", "1"))]);
    let malformed = peer.take_stream();
    let block = request_and(&[inserted("x-broken", "2"), literal("Upper-Case", "no")]);
    peer.send(&[headers(malformed, END_HEADERS, &block)]);
    assert_eq!(peer.expect_reset(malformed), crate::peer::PROTOCOL_ERROR);
    let answer = peer.call_with(&request_and(&[indexed(62), indexed(63)]), b"");
    assert_eq!((answer.header("x-broken"), answer.header("x-late")), (Some("2"), Some("1")));
}
