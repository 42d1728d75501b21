//! R62: the rules of the compressed flag, and R78: limits count what a message unfolds to.

use std::thread;

use fulmar::{Channel, ChannelBuilder, Code, Compression, Raw, Request, Response, ServerBuilder, Status};

use crate::common::block_on;
use crate::common::encodings::RunLength;
use crate::peer::{Answer, Peer, RawServer};
use crate::service::{BIDI, U, serve_built};
use crate::wire::{END_HEADERS, END_STREAM, data, headers, literal, message, request, response, trailers_ok};

/// A message with any flag.
fn flagged(flag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = message(body);
    message[0] = flag;
    message
}

/// Calls `U` with this header field and content.
fn call(peer: &mut Peer, encoding: Option<&str>, content: &[u8]) -> Answer {
    let stream = peer.take_stream();
    let encoding = encoding.map(|name| literal("grpc-encoding", name)).unwrap_or_default();
    let block = [request(U), encoding].concat();
    peer.send(&[headers(stream, END_HEADERS, &block), data(stream, END_STREAM, content)]);
    peer.answer(stream)
}

fn rle(server: ServerBuilder) -> ServerBuilder {
    server.accept_compressed(RunLength("rle")).accept_compressed(RunLength("other"))
}

#[test]
fn r62_a_server_keeps_the_rules_of_the_flag() {
    let (server, _) = serve_built(rle);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for (encoding, content, expected) in [
        // Flag 1 without an encoding (wire rule 16).
        (None, flagged(1, &[3, 7]), Err("13")),
        (Some("identity"), flagged(1, &[3, 7]), Err("13")),
        // No flag at all.
        (Some("rle"), flagged(2, &[3, 7]), Err("13")),
        (Some("rle"), flagged(0x80, &[3, 7]), Err("13")),
        (None, flagged(0x80, &[3, 7]), Err("13")),
        // Corrupt (wire rule 18), and a decompressor that panics.
        (Some("rle"), flagged(1, &[3, 7, 1]), Err("13")),
        (Some("rle"), flagged(1, &[0, 7]), Err("13")),
        (Some("rle"), flagged(1, b"panic"), Err("13")),
        // As it should be, plain under an encoding, and empty both ways.
        (Some("rle"), flagged(1, &[3, 7]), Ok(&[7, 7, 7][..])),
        (Some("rle"), flagged(0, &[3, 7]), Ok(&[3, 7])),
        (Some("rle"), flagged(1, &[]), Ok(&[])),
        (Some("rle"), flagged(0, &[]), Ok(&[])),
    ] {
        let answer = call(&mut peer, encoding, &content);
        match expected {
            Ok(body) => assert_eq!(answer.content, message(body), "{encoding:?} {content:?}"),
            Err(code) => {
                assert_eq!(answer.trailer("grpc-status"), Some(code), "{encoding:?} {content:?}: {answer:?}");
            }
        }
        peer.assert_alive();
    }
}

/// Wire rule 17.
#[test]
fn r62_an_unknown_encoding_is_answered_with_those_that_are_known() {
    let (server, seen) = serve_built(rle);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for unknown in ["snappy", "RLE", "rle,other", ""] {
        let answer = call(&mut peer, Some(unknown), &flagged(1, &[3, 7]));
        assert_eq!(answer.trailer("grpc-status"), Some("12"), "{unknown}");
        let accepted: Vec<_> = answer.trailer("grpc-accept-encoding").unwrap().split(',').collect();
        assert_eq!(accepted, ["rle", "other", "identity"]);
        assert!(!accepted.contains(&unknown));
    }
    assert_eq!(seen.unary.load(std::sync::atomic::Ordering::SeqCst), 0, "no handler ran");
    peer.assert_alive();
}

/// Answers one call with this encoding and content, and returns what the client made of it.
fn answered(encoding: Option<&str>, content: Vec<u8>) -> Result<Response<Raw>, Status> {
    answered_to(|client| client, encoding, content)
}

fn answered_to(
    build: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    encoding: Option<&str>,
    content: Vec<u8>,
) -> Result<Response<Raw>, Status> {
    let raw = RawServer::bind();
    let channel = Channel::builder(raw.endpoint()).accept_compressed(RunLength("rle"));
    let channel = build(channel).build().unwrap();
    let encoding = encoding.map(|name| literal("grpc-encoding", name)).unwrap_or_default();
    let server = thread::spawn(move || {
        let mut peer = raw.accept(&[]);
        let request = peer.until(|frame| frame.kind == crate::wire::HEADERS);
        assert_eq!(request.field("grpc-accept-encoding"), Some("rle,identity"));
        let stream = request.stream;
        peer.send(&[headers(stream, END_HEADERS, &[response(), encoding].concat())]);
        peer.send(&[data(stream, 0, &content), headers(stream, END_HEADERS | END_STREAM, &trailers_ok())]);
        // Whatever the client made of that, it goes on.
        let next = peer.expect_request();
        peer.reply(next, b"alive");
        peer
    });
    let reply = block_on(channel.unary(U, Raw::default()));
    let alive: Response<Raw> = block_on(channel.unary(U, Raw::default())).unwrap();
    assert_eq!(alive.get_ref().as_ref(), b"alive");
    drop(channel);
    drop(server.join().unwrap());
    reply
}

#[test]
fn r62_a_client_keeps_the_rules_of_the_flag() {
    for (encoding, content) in [
        (None, flagged(1, &[3, 7])),
        (Some("identity"), flagged(1, &[3, 7])),
        (Some("rle"), flagged(2, &[3, 7])),
        (Some("rle"), flagged(1, &[3, 7, 1])),
        (Some("rle"), flagged(1, b"panic")),
        (Some("snappy"), flagged(1, &[3, 7])),
        (Some("snappy"), flagged(0, &[3, 7])),
    ] {
        let failed = answered(encoding, content.clone()).expect_err("it breaks the rules");
        assert_eq!(failed.code(), Code::Internal, "{encoding:?} {content:?}: {failed}");
    }
    for (encoding, content, body, was_compressed) in [
        (Some("rle"), flagged(1, &[3, 7]), &[7, 7, 7][..], true),
        (Some("rle"), flagged(0, &[3, 7]), &[3, 7], false),
        (Some("rle"), flagged(1, &[]), &[], true),
        (Some("identity"), flagged(0, &[3, 7]), &[3, 7], false),
    ] {
        let reply = answered(encoding, content).unwrap();
        assert_eq!((reply.get_ref().as_ref(), reply.was_compressed()), (body, was_compressed));
    }
}

/// 1,000 and 1,001 bytes, compressed.
fn runs(last: u8) -> Vec<u8> {
    vec![255, 1, 255, 2, 255, 3, last, 4]
}

/// Wire rule 20: at a server, then at a client.
#[test]
fn r78_the_limit_counts_what_a_message_unfolds_to() {
    let (server, _) = serve_built(|server| rle(server).receive_message_bytes_max(1_000));
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let at_limit = call(&mut peer, Some("rle"), &flagged(1, &runs(235)));
    assert_eq!(at_limit.content.len(), 1_005);
    let above = call(&mut peer, Some("rle"), &flagged(1, &runs(236)));
    assert_eq!(above.trailer("grpc-status"), Some("8"));
    let text = above.trailer("grpc-message").unwrap();
    assert!(text.contains("8 compressed bytes") && text.contains("1000 bytes"), "{text}");
    // What cannot be made smaller is longer on its way: that much passes, and not more.
    let uneven: Vec<u8> = (0..500).flat_map(|index| [1, index as u8]).collect();
    assert_eq!(call(&mut peer, Some("rle"), &flagged(1, &uneven)).content.len(), 505);
    let long = call(&mut peer, Some("rle"), &flagged(1, &[1; 4_000]));
    assert_eq!(long.trailer("grpc-status"), Some("8"));
    peer.assert_alive();

    let limited = |client: ChannelBuilder| client.receive_message_bytes_max(1_000);
    let at_limit = answered_to(limited, Some("rle"), flagged(1, &runs(235))).unwrap();
    assert_eq!(at_limit.get_ref().as_ref().len(), 1_000);
    let above = answered_to(limited, Some("rle"), flagged(1, &runs(236))).expect_err("a byte too many");
    assert_eq!(above.code(), Code::ResourceExhausted);
    assert!(above.message().contains("1000 bytes"), "{above}");
}

#[test]
fn r78_the_limit_for_sending_counts_a_message_before_it_is_compressed() {
    let (server, _) =
        serve_built(|server| rle(server).send_compressed(RunLength("rle")).send_message_bytes_max(1_000));
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let builder = Channel::builder(endpoint).accept_compressed(RunLength("rle"));
    let call = |channel: &Channel, bytes: usize| {
        let request = Request::new(Raw::from(vec![5; bytes])).with_compression(Compression::On);
        block_on(channel.unary::<Raw, Raw>(U, request))
    };
    let limited = builder.clone().send_message_bytes_max(900).build().unwrap();
    assert!(call(&limited, 900).unwrap().was_compressed());
    let refused = call(&limited, 901).expect_err("a byte too many");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("901") && refused.message().contains("900"), "{refused}");

    let free = builder.build().unwrap();
    assert!(call(&free, 1_000).unwrap().was_compressed());
    let refused = call(&free, 1_001).expect_err("the server's reply has a byte too many");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("1001") && refused.message().contains("1000"), "{refused}");
}

/// R49 in small: one frame of messages that each unfold to the limit, for an application that takes none of them.
#[test]
fn r49_many_messages_in_one_frame_do_not_unfold_to_more_than_may_be_held() {
    const HELD: usize = 1_000_000;
    let (server, _) = serve_built(|server| rle(server).receive_message_bytes_max(HELD).held_bytes_max(HELD));
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    let block = [request(BIDI), literal("grpc-encoding", "rle")].concat();
    peer.send(&[headers(stream, END_HEADERS, &block)]);
    let bomb = flagged(1, &[255, 0].repeat(1_000));
    // The handler echoes, for which there is no room, and takes no more than a message or two.
    let frame = data(stream, 0, &bomb.repeat(8));
    peer.send(&[frame.clone(), frame.clone(), frame.clone(), frame]);
    let answer = peer.answer(stream);
    assert_eq!(answer.trailer("grpc-status"), Some("8"), "{:?}", answer.trailers);
    assert!(answer.trailer("grpc-message").unwrap().contains("held_bytes_max"), "{:?}", answer.trailers);
    peer.assert_alive();
}
