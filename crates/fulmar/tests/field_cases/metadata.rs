//! R63 and R64: binary metadata and the message of a status, as they are on the wire.

use std::sync::Arc;

use fulmar::{Channel, Code, Http2Config, MetadataMap, Raw, Request, Response, Status};

use crate::common::{block_on, serve_one};
use crate::peer::{
    END_HEADERS, END_STREAM, HEADERS, MAX_HEADER_LIST_SIZE, Peer, RawServer, continuation, data, headers,
    literal, message, request, response, trailers_ok,
};
use crate::service::{U, serve_with};

/// Values on the wire, and what they are; None for what is no base64.
fn binary_values() -> Vec<(String, Option<Vec<Vec<u8>>>)> {
    // 64 KiB of zeros: groups of three bytes, and one byte.
    let long = "AAAA".repeat(21_845) + "AA";
    let known = |wire: &str, values: &[&[u8]]| {
        (wire.to_owned(), Some(values.iter().map(|value| value.to_vec()).collect()))
    };
    vec![
        known("AQI", &[b"\x01\x02"]),
        known("AQI=", &[b"\x01\x02"]),
        known("AQ", &[b"\x01"]),
        known("AQ==", &[b"\x01"]),
        known("AQI,AwQ=", &[b"\x01\x02", b"\x03\x04"]),
        known("AQI=, AwQ", &[b"\x01\x02", b"\x03\x04"]),
        known("", &[b""]),
        known("+/8", &[b"\xfb\xff"]),
        (long, Some(vec![vec![0; 65_536]])),
        ("!!!".to_owned(), None),
        ("A".to_owned(), None),
        ("AQI=AQI".to_owned(), None),
        ("AQI,!".to_owned(), None),
    ]
}

/// Room for 64 KiB in base64.
fn roomy() -> Http2Config {
    let bytes = 512 * 1024;
    Http2Config { header_list_bytes_max: bytes, header_block_bytes_max: bytes, ..Http2Config::default() }
}

/// Base64 without padding of zeros and of the little that the cases have.
fn unpadded(value: &[u8]) -> String {
    let mut text = Vec::new();
    fulmar_grpc::base64::encode(value, &mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn r63_a_server_takes_binary_metadata_padded_or_not_and_sends_it_without_padding() {
    let (server, _) = serve_with(roomy());
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(MAX_HEADER_LIST_SIZE, 512 * 1024)]);
    for (wire, values) in binary_values() {
        let stream = peer.take_stream();
        let block =
            [request(U), literal("x-k-bin", &wire), literal("x-k-bin", "/w"), literal("t-k-bin", &wire)]
                .concat();
        send_block(&mut peer, stream, 0, &block);
        peer.send(&[data(stream, END_STREAM, &message(b""))]);
        let answer = peer.answer(stream);
        let Some(values) = values else {
            assert_eq!(answer.trailer("grpc-status"), Some("13"), "{wire:?} is no base64");
            assert!(answer.trailer("grpc-message").is_some_and(|text| text.contains("k-bin is not base64")));
            peer.assert_alive();
            continue;
        };
        assert_eq!(
            answer.trailer("grpc-status"),
            Some("0"),
            "{}",
            answer.trailer("grpc-message").unwrap_or("")
        );
        let mut expected: Vec<_> = values.iter().map(|value| unpadded(value)).collect();
        assert_eq!(all(&answer.trailers, "t-k-bin"), expected);
        expected.push("/w".to_owned());
        assert_eq!(all(&answer.headers, "x-k-bin"), expected, "in the order that they came");
    }
}

/// Each part of a value becomes a value of its own, which takes more memory than a comma.
#[test]
fn r63_a_value_of_commas_fails_its_call_only() {
    let (server, seen) = serve_with(Http2Config::default());
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let answer = peer.call_with(&[request(U), literal("x-k-bin", ",".repeat(2_000))].concat(), b"");
    assert_eq!(answer.trailer("grpc-status"), Some("8"));
    let text = answer.trailer("grpc-message").unwrap();
    assert!(text.contains("x-k-bin") && text.contains("16384"), "name and limit are told: {text}");
    assert_eq!(seen.unary.load(std::sync::atomic::Ordering::SeqCst), 0, "no handler has run");
    peer.assert_alive();
}

/// Sends a header block, with END_STREAM or without, in as many frames as it needs.
fn send_block(peer: &mut Peer, stream: u32, end: u8, block: &[u8]) {
    let pieces: Vec<_> = block.chunks(16_384).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let end_headers = if index + 1 == pieces.len() { END_HEADERS } else { 0 };
        match index {
            0 => peer.send(&[headers(stream, end | end_headers, piece)]),
            _ => peer.send(&[continuation(stream, end_headers, piece)]),
        }
    }
}

/// All values of a field, in order.
fn all(fields: &[(String, String)], name: &str) -> Vec<String> {
    fields.iter().filter(|field| field.0 == name).map(|field| field.1.clone()).collect()
}

#[test]
fn r63_a_client_takes_binary_metadata_padded_or_not_and_sends_it_without_padding() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).http2(roomy()).build().unwrap();
    let client = std::thread::spawn(move || {
        for (wire, values) in binary_values() {
            let mut request = Request::new(Raw::default());
            for value in values.iter().flatten() {
                request.metadata_mut().append_bin("k-bin", value).unwrap();
            }
            let answer = block_on(channel.unary::<Raw, Raw>(U, request));
            match (answer, values) {
                (Ok(answer), Some(values)) => {
                    assert_eq!(answer.metadata().get_all_bin("k-bin").collect::<Vec<_>>(), values);
                    assert_eq!(answer.trailers().get_all_bin("k-bin").collect::<Vec<_>>(), values);
                }
                (Err(status), None) => {
                    assert_eq!(status.code(), Code::Internal, "{wire:?}");
                    assert!(status.message().contains("k-bin"), "{status}");
                }
                (answer, _) => panic!("{:.20}: {:?}", wire, answer.map(drop)),
            }
        }
    });
    let mut peer = server.accept(&[(MAX_HEADER_LIST_SIZE, 512 * 1024)]);
    for (wire, values) in binary_values() {
        let call = peer.until(|frame| frame.kind == HEADERS);
        let sent: Vec<_> = values.iter().flatten().map(|value| unpadded(value)).collect();
        assert_eq!(all(&call.fields, "k-bin"), sent);
        let field = literal("k-bin", &wire);
        send_block(&mut peer, call.stream, 0, &[response(), field.clone()].concat());
        if values.is_some() {
            peer.send(&[data(call.stream, 0, &message(b""))]);
            send_block(&mut peer, call.stream, END_STREAM, &[trailers_ok(), field].concat());
        }
    }
    client.join().unwrap();
}

/// Messages of a status, and what they are on the wire.
const MESSAGES: [(&str, &str); 8] = [
    ("\n", "%0A"),
    ("\r\nx: y", "%0D%0Ax: y"),
    ("é%", "%C3%A9%25"),
    ("\u{1f600}", "%F0%9F%98%80"),
    ("a\0b", "a%00b"),
    ("\t \x7f~", "%09 %7F~"),
    ("%zz %41", "%25zz %2541"),
    ("plain text, (of) [all] {sorts}!", "plain text, (of) [all] {sorts}!"),
];

/// Fails with the message that the request says.
fn serve_failures() -> fulmar::RunningServer {
    serve_one(|router| {
        router.unary("/demo.One/Fail", &Arc::new(()), |_, request: Request<Raw>| async move {
            let text = String::from_utf8_lossy(request.get_ref().as_ref()).into_owned();
            Err::<Response<Raw>, _>(Status::data_loss(text))
        });
    })
}

#[test]
fn r64_a_server_encodes_the_message_of_a_status() {
    let server = serve_failures();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for (text, wire) in MESSAGES {
        let answer = peer.call("/demo.One/Fail", text.as_bytes());
        assert_eq!((answer.trailer("grpc-status"), answer.trailer("grpc-message")), (Some("15"), Some(wire)));
        assert_eq!(answer.trailer("x"), None, "nothing is smuggled into the block");
    }
}

#[test]
fn r64_a_client_decodes_every_message_of_a_status() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    let odd: [(&str, &[u8]); 6] = [
        ("%zz", b"%zz"),
        ("100%", b"100%"),
        ("%4", b"%4"),
        ("caf\u{fffd}", b"caf\xe9"),
        ("\u{fffd}!", b"%FF!"),
        ("☺", b"%e2%98%BA"),
    ];
    let cases = || MESSAGES.iter().map(|(text, wire)| (*text, wire.as_bytes())).chain(odd);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (text, _) in cases() {
                let status = block_on(channel.unary::<Raw, Raw>(U, Raw::default())).unwrap_err();
                assert_eq!((status.code(), status.message()), (Code::DataLoss, text));
            }
        });
        let mut peer = server.accept(&[]);
        for (_, wire) in cases() {
            let stream = peer.expect_request();
            let block = [response(), literal("grpc-status", "15"), literal("grpc-message", wire)].concat();
            peer.send(&[headers(stream, END_HEADERS | END_STREAM, &block)]);
        }
        peer.expect_end();
    });
}

/// A message of 100 KiB is over the limit of every peer; what arrives is its beginning, with its code.
#[test]
fn r64_a_message_longer_than_the_peer_takes_is_cut() {
    let server = serve_failures();
    let text = "é".repeat(51_200);
    for limit in [1_000, 8_192, 16_384] {
        let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(MAX_HEADER_LIST_SIZE, limit)]);
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request("/demo.One/Fail"))]);
        peer.send_content(stream, &message(text.as_bytes()), true);
        let answer = peer.answer(stream);
        assert_eq!(answer.trailer("grpc-status"), Some("15"));
        let kept = answer.trailer("grpc-message").expect("some of it").to_owned();
        assert!(kept.len() >= 200 && kept.replace("%C3%A9", "").is_empty(), "whole characters: {kept}");
        let list: usize = answer.trailers.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(list <= limit as usize, "{list} bytes");
        assert_eq!(peer.call("/demo.One/Fail", b"short").trailer("grpc-message"), Some("short"));
    }
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let channel = Channel::builder(endpoint).build().unwrap();
    let status =
        block_on(channel.unary::<Raw, Raw>("/demo.One/Fail", Raw::from(text.into_bytes()))).unwrap_err();
    assert_eq!(status.code(), Code::DataLoss);
    assert!(!status.message().is_empty() && status.message().chars().all(|character| character == 'é'));
    assert_eq!(status.metadata(), MetadataMap::EMPTY);
}

/// Feature 32: the program in front of the library.
#[test]
fn the_user_agent_names_the_program_and_the_library() {
    let server = RawServer::bind();
    let builder = |name: &str| Channel::builder(server.endpoint()).user_agent(name);
    let library = concat!("fulmar/", env!("CARGO_PKG_VERSION"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (name, sent) in
                [("", library.to_owned()), (" shop/1.4 (beta) ", format!("shop/1.4 (beta) {library}"))]
            {
                let mut peer = server.accept(&[]);
                let call = peer.until(|frame| frame.kind == HEADERS);
                assert_eq!(call.field("user-agent"), Some(sent.as_str()), "{name:?}");
                assert_eq!(all(&call.fields, "user-agent").len(), 1);
                peer.reply(call.stream, b"");
                peer.expect_end();
            }
        });
        for name in ["", " shop/1.4 (beta) "] {
            let channel = builder(name).build().unwrap();
            block_on(channel.unary::<Raw, Raw>(U, Raw::default())).unwrap();
        }
    });
    for name in ["caf\u{e9}", "a\r\nx: y", "tab\there", &"x".repeat(257)] {
        let error = builder(name).build().unwrap_err();
        assert!(error.reason().contains("user agent"), "{error}");
    }
}
