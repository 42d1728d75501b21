//! The four kinds of calls, whole and in pieces.

use fulmar_base::{Env, Input};
use fulmar_grpc::{Body, CallKey, Code, Event, MetadataMap, Status};

use crate::support::{
    DATA, ECHO, END_STREAM, HEADERS, Happened, OTHER, Pair, RST_STREAM, call_frames, finish, framed,
    half_close, metadata, reply, send,
};

/// What a call may say: nothing, little, and more than one frame holds.
fn messages() -> [Vec<u8>; 5] {
    [b"one".to_vec(), Vec::new(), vec![2; 20_000], b"four".to_vec(), vec![5; 70_000]]
}

#[test]
fn a_unary_call_goes_there_and_back() {
    let mut pair = Pair::new();
    let (call, at_server) = pair.unary(b"question");
    assert_eq!(
        pair.server.take_log(),
        [
            Happened::Message { call: at_server, bytes: b"question".to_vec() },
            Happened::HalfClosed { call: at_server },
        ]
    );
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    assert_eq!(pair.client.next(), Happened::Headers { call, metadata: MetadataMap::new() });
    assert_eq!(pair.client.next(), Happened::Message { call, bytes: b"answer".to_vec() });
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::Ok, ""));
    pair.assert_at_rest();
}

/// Wire rules 24 and 26.
#[test]
fn a_unary_call_is_the_frames_that_grpc_says() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    let shapes = |wire: &[u8]| {
        let frames = call_frames(wire);
        frames.iter().map(|frame| (frame.kind, frame.flags & END_STREAM, frame.stream)).collect::<Vec<_>>()
    };
    assert_eq!(shapes(&pair.to_server), [(HEADERS, 0, 1), (DATA, END_STREAM, 1)]);
    assert_eq!(call_frames(&pair.to_server)[1].payload, b"\0\0\0\0\x08question");
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert_eq!(shapes(&pair.to_client), [(HEADERS, 0, 1), (DATA, 0, 1), (HEADERS, END_STREAM, 1)]);
    assert_eq!(call_frames(&pair.to_client)[1].payload, b"\0\0\0\0\x06answer");
    assert!(call_frames(&pair.to_server).iter().all(|frame| frame.kind != RST_STREAM));
}

#[test]
fn a_client_stream_is_answered_at_its_end() {
    let mut pair = Pair::new();
    let call = pair.start(OTHER);
    for message in messages() {
        pair.client.act(|client, env| client.send_message(env, call, &message)).expect("the call is there");
        pair.run();
    }
    half_close(&mut pair.client, call);
    pair.run();
    assert!(matches!(&pair.server.log[0], Happened::Begin { path, .. } if path == OTHER));
    let at_server = pair.server.begun();
    assert_eq!(pair.server.messages(), messages());
    assert_eq!(pair.server.log.back(), Some(&Happened::HalfClosed { call: at_server }));
    reply(&mut pair.server, at_server, b"sum");
    pair.run();
    assert_eq!(pair.client.messages(), [b"sum"]);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

#[test]
fn a_server_stream_is_read_to_its_end() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    pair.server
        .act(|server, env| server.send_headers(env, at_server, &metadata(&[("a", "1")])))
        .expect("it is there");
    pair.run();
    assert!(
        matches!(pair.client.next(), Happened::Headers { metadata, .. } if metadata.get("a") == Some("1"))
    );
    for message in messages() {
        send(&mut pair.server, at_server, &message);
        pair.run();
    }
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.messages(), messages());
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

#[test]
fn both_ends_of_a_bidirectional_call_talk_in_turns() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    pair.run();
    let at_server = pair.server.begun();
    for message in messages() {
        pair.client.act(|client, env| client.send_message(env, call, &message)).expect("the call is there");
        pair.run();
        assert_eq!(pair.server.messages(), [&message[..]]);
        pair.server.log.clear();
        send(&mut pair.server, at_server, &message);
        pair.run();
        assert_eq!(pair.client.messages(), [&message[..]]);
        pair.client.log.clear();
    }
    pair.server.log.clear();
    half_close(&mut pair.client, call);
    pair.run();
    assert_eq!(pair.server.take_log(), [Happened::HalfClosed { call: at_server }]);
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

/// Wire rule 24.
#[test]
fn a_call_without_messages_ends_with_its_headers() {
    let mut pair = Pair::new();
    pair.start_with(ECHO, &MetadataMap::new(), None, None, true);
    pair.run();
    let at_server = pair.server.begun();
    assert_eq!(pair.server.take_log(), [Happened::HalfClosed { call: at_server }]);
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

/// Wire rule 21.
#[test]
fn a_message_without_bytes_is_a_message() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"");
    assert_eq!(pair.server.messages(), [b""]);
    reply(&mut pair.server, at_server, b"");
    pair.run();
    assert_eq!(pair.client.messages(), [b""]);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

#[test]
fn messages_with_their_prefixes_go_out_as_they_are() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    let block = framed(&mut pair.client.pool, &[b"one", b"", &[3; 30_000]]);
    pair.client.act(|client, env| client.send_framed(env, call, block)).expect("the call is there");
    pair.run();
    let at_server = pair.server.begun();
    assert_eq!(pair.server.messages(), [&b"one"[..], b"", &[3; 30_000]]);
    let block = framed(&mut pair.server.pool, &[b"four", b"five"]);
    pair.server.act(|server, env| server.send_framed(env, at_server, block)).expect("the call is there");
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.messages(), [b"four", b"five"]);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

#[test]
fn a_message_may_be_encoded_in_place() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    for message in messages() {
        pair.client
            .act(|client, env| {
                client.encode_message(env, call, message.len(), |buffer| buffer.extend_from_slice(&message))
            })
            .expect("the call is there");
    }
    pair.run();
    pair.server.begun();
    assert_eq!(pair.server.messages(), messages());
}

/// Wire rule 15: what happens does not depend on how the bytes arrive.
#[test]
fn bytes_may_arrive_in_any_pieces() {
    let whole = a_conversation(usize::MAX);
    for chunk_bytes in [1, 2, 3, 5, 9, 13, 14, 100, 16_384] {
        assert_eq!(a_conversation(chunk_bytes), whole, "{chunk_bytes} bytes at a time");
    }
}

/// Each kind of call over one connection; what happened at the client and at the server.
fn a_conversation(chunk_bytes: usize) -> (Vec<String>, Vec<String>) {
    let mut pair = Pair::new();
    pair.chunk_bytes = chunk_bytes;
    let mut at_server = Vec::new();
    let call = pair.start_with(ECHO, &metadata(&[("kind", "bidi")]), None, Some(&[1; 40]), false);
    for length in [0, 1, 4, 5, 6, 300, 17_000] {
        pair.client
            .act(|client, env| client.send_message(env, call, &vec![7; length]))
            .expect("the call is there");
    }
    half_close(&mut pair.client, call);
    pair.start_with("/test.Service/Nothing", &MetadataMap::new(), None, Some(b"lost"), true);
    pair.run_with(|server, happened| {
        at_server.push(told(&happened));
        match happened {
            Happened::Message { call, bytes } => send(server, call, &bytes),
            Happened::HalfClosed { call } => finish(server, call, &Status::data_loss("gone: ☂")),
            _ => {}
        }
    });
    let at_client = pair.client.take_log().iter().map(told).collect();
    pair.assert_at_rest();
    (at_client, at_server)
}

/// An event without what depends on memory: long messages by their length.
fn told(happened: &Happened) -> String {
    match happened {
        Happened::Message { call, bytes } => {
            format!("{} {} of {:?}", call_index(*call), bytes.len(), bytes.first())
        }
        other => format!("{other:?}"),
    }
}

fn call_index(call: CallKey) -> usize {
    call.index()
}

/// What has left the client and not arrived.
fn under_way(pair: &mut Pair) -> Vec<u8> {
    let mut bytes = Vec::new();
    pair.client.out.move_to(&mut bytes);
    bytes
}

/// The call that begins with these bytes, its only message if the server tells it when it is asked, and how many bytes it has read then.
fn only_message(bytes: &[u8], pair: &mut Pair) -> (CallKey, Option<Vec<u8>>, usize) {
    let server = &mut pair.server;
    let mut env = Env::new(server.now, &mut server.pool, &mut server.out);
    let input = Input::new(bytes);
    let Ok(Some(Event::Begin { call, .. })) = server.end.next_event(&mut env, &input) else {
        panic!("a call begins");
    };
    let message = server.end.next_only_message(&mut env, &input, call).map(<[u8]>::to_vec);
    let consumed = input.consumed();
    while let Ok(Some(event)) = server.end.next_event(&mut env, &input) {
        match event {
            Event::Message { call: of, body } => {
                assert_eq!((of, message.is_none()), (call, true), "told twice");
                if let Body::Block(block) = body {
                    env.pool.give(block);
                }
            }
            Event::HalfClosed { call: of } => {
                assert_eq!((of, message.is_none()), (call, true), "told twice");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(input.consumed(), bytes.len());
    (call, message, consumed)
}

#[test]
fn the_only_message_of_a_call_may_be_asked_for_when_it_has_come_with_the_call() {
    let mut pair = Pair::new();
    for (message, is_taken) in [(&b"question"[..], true), (b"", true), (&[7; 20_000], false)] {
        let call = pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(message), true);
        let bytes = under_way(&mut pair);
        let (at_server, taken, consumed) = only_message(&bytes, &mut pair);
        assert_eq!(taken.as_deref(), is_taken.then_some(message));
        assert_eq!(consumed == bytes.len(), is_taken);
        if !is_taken {
            pair.server.act(|server, env| server.release(env, at_server, message.len()));
        }
        assert_eq!(pair.server.pool.held_bytes(), 0, "it counts as taken");
        reply(&mut pair.server, at_server, b"answer");
        pair.run();
        assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
        assert_eq!(pair.client.next(), Happened::Headers { call, metadata: MetadataMap::new() });
        assert_eq!(pair.client.outcome().code, Code::Ok);
    }
    pair.assert_at_rest();
}

#[test]
fn what_is_not_one_whole_message_at_the_end_of_a_call_is_told_by_events() {
    let mut pair = Pair::new();
    let call = pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(b"first"), false);
    pair.client.act(|client, env| client.send_message(env, call, b"second")).expect("the call is there");
    half_close(&mut pair.client, call);
    let bytes = under_way(&mut pair);
    let (_, taken, _) = only_message(&bytes, &mut pair);
    assert_eq!(taken, None, "there are two");

    pair.start_with(ECHO, MetadataMap::EMPTY, None, None, true);
    let bytes = under_way(&mut pair);
    let (_, taken, _) = only_message(&bytes, &mut pair);
    assert_eq!(taken, None, "there is none");
}

#[test]
fn whether_a_message_is_the_last_may_be_asked_instead_of_waiting_to_be_told() {
    let mut pair = Pair::new();
    let whole = pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(b"all"), true);
    let part = pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(b"more follows"), false);
    let bytes = under_way(&mut pair);
    let server = &mut pair.server;
    let mut env = Env::new(server.now, &mut server.pool, &mut server.out);
    let input = Input::new(&bytes);
    let mut heard = Vec::new();
    while let Ok(Some(event)) = server.end.next_event(&mut env, &input) {
        heard.push(match event {
            Event::Begin { .. } => None,
            Event::Message { call, .. } => Some(server.end.take_half_closed(&env, &input, call)),
            other => panic!("{other:?} although it was asked for, or is not to come"),
        });
        if let Event::Message { call, .. } = event {
            assert!(!server.end.take_half_closed(&env, &input, call), "it is told once");
            server.end.release(&mut env, call, 3);
        }
    }
    assert_eq!(heard, [None, Some(true), None, Some(false)]);
    half_close(&mut pair.client, part);
    pair.run();
    assert!(matches!(pair.server.take_log()[..], [Happened::HalfClosed { .. }]), "of the other one");
    assert_ne!(whole, part);
}
