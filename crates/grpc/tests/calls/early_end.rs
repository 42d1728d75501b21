//! Calls that one end is done with while bytes of the other are still under way.

use std::sync::Arc;
use std::time::Duration;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_grpc::{CallKey, Code, Config, Event, MetadataMap, Server, Status};
use fulmar_http2::ErrorCode;

use crate::support::{
    DATA, ECHO, END_STREAM, HEADERS, Happened, Pair, RST_STREAM, Side, call_frames, finish, framed,
    half_close, new_client, routes, send,
};

/// Fills the client's window and leaves messages waiting at the server; how many were sent.
fn send_more_than_the_window(pair: &mut Pair, call: CallKey) -> usize {
    pair.client.takes_at_once = false;
    let mut sent = 0;
    while pair.server.end.may_send(call) > 0 {
        send(&mut pair.server, call, &[1; 1_000]);
        pair.run();
        sent += 1;
        assert!(sent < 1_000, "what may be queued has a limit");
    }
    sent
}

/// Wire rule 34: the reset must not overtake what the client is to get.
#[test]
fn a_server_that_is_done_early_is_heard_out_before_it_resets() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    pair.run();
    let at_server = pair.server.begun();
    let sent = send_more_than_the_window(&mut pair, at_server);
    finish(&mut pair.server, at_server, &Status::failed_precondition("enough"));
    pair.client.act(|client, env| client.send_message(env, call, &[2; 5_000])).expect("it goes on");
    pair.run();
    assert_eq!(pair.server.take_log(), [], "the call is not over, and nobody waits for its messages");

    let mut taken = 0;
    while taken < sent {
        let arrived = pair.client.messages().len();
        assert!(arrived > taken, "messages follow as others are taken");
        for _ in taken..arrived {
            pair.client.act(|client, env| client.release(env, call, 1_000));
        }
        taken = arrived;
        pair.run();
    }
    assert_eq!(pair.client.outcome().code, Code::FailedPrecondition);
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    let frames = call_frames(&pair.to_client);
    let last: Vec<_> =
        frames[frames.len() - 3..].iter().map(|frame| (frame.kind, frame.flags & END_STREAM)).collect();
    assert_eq!(last, [(DATA, 0), (HEADERS, END_STREAM), (RST_STREAM, 0)]);
    pair.assert_at_rest();
}

/// Wire rule 8, for an answer that the client lets lie.
#[test]
fn the_deadline_ends_a_call_whose_answer_still_waits() {
    let mut pair = Pair::new();
    let timeout = Some(Duration::from_secs(1));
    let call = pair.start_with(ECHO, &MetadataMap::new(), timeout, Some(b"question"), true);
    pair.run();
    let at_server = pair.server.begun();
    pair.server.log.clear();
    send_more_than_the_window(&mut pair, at_server);
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.server.take_log(), []);

    pair.server.advance_to(pair.server.now.saturating_add(Duration::from_secs(1)));
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    pair.advance(Duration::from_secs(1));
    assert_eq!(pair.client.outcome().code, Code::DeadlineExceeded);
    let reset = call_frames(&pair.to_client).pop().expect("frames have gone");
    assert_eq!((reset.kind, &reset.payload[..]), (RST_STREAM, &ErrorCode::Cancel.as_u32().to_be_bytes()[..]));
    assert_eq!(pair.client.end.may_send(call), 0);
    pair.assert_at_rest();
}

#[test]
fn a_message_that_lies_about_its_length_ends_its_call_and_no_other() {
    for length in [3, 9, 20_000] {
        let mut pair = Pair::new();
        let (_, lying) = pair.unary(b"one");
        pair.server.log.clear();
        let (_, other) = pair.unary(b"two");
        pair.server.log.clear();
        let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(b"nothing");
        let sent = pair.server.act(|server, env| server.encode_message(env, lying, length, encode));
        assert!(sent.is_err(), "{length}");
        assert_eq!(pair.server.take_log(), [Happened::Finished { call: lying, outcome: None }]);
        crate::support::reply(&mut pair.server, other, b"answer");
        pair.run();
        let log = pair.client.take_log();
        let codes: Vec<Code> = log
            .iter()
            .filter_map(|happened| match happened {
                Happened::Finished { outcome, .. } => outcome.as_ref().map(|outcome| outcome.code),
                _ => None,
            })
            .collect();
        assert_eq!(codes, [Code::Internal, Code::Ok], "{length}: {log:?}");
        pair.server.log.clear();
        pair.assert_at_rest();
    }
}

#[test]
fn a_request_that_lies_about_its_length_is_internal() {
    for half_close in [false, true] {
        let mut pair = Pair::new();
        let start = fulmar_grpc::Start {
            path: ECHO,
            metadata: MetadataMap::EMPTY,
            timeout: None,
            deadline: None,
            compression: &fulmar_grpc::Compression::Default,
        };
        pair.client
            .act(|client, env| client.start_encoded(env, start, 3, half_close, |buffer| buffer.push(0)))
            .expect("the call starts");
        pair.run();
        assert_eq!(pair.client.outcome().code, Code::Internal);
        assert!(
            matches!(pair.server.take_log().last(), Some(Happened::Finished { .. })),
            "half_close: {half_close}"
        );
        pair.assert_at_rest();
    }
}

/// A call with several messages in one frame, whose bytes the receiver has at once.
fn frame_of_messages(from_server: bool) -> (Pair, CallKey, CallKey, Vec<u8>) {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    pair.run();
    let at_server = pair.server.begun();
    let mut bytes = Vec::new();
    if from_server {
        let block = framed(&mut pair.server.pool, &[b"one", b"two", b"three"]);
        pair.server.act(|server, env| server.send_framed(env, at_server, block)).expect("the call is there");
        pair.server.out.move_to(&mut bytes);
    } else {
        let block = framed(&mut pair.client.pool, &[b"one", b"two", b"three"]);
        pair.client.act(|client, env| client.send_framed(env, call, block)).expect("the call is there");
        pair.client.out.move_to(&mut bytes);
    }
    (pair, call, at_server, bytes)
}

#[test]
fn a_client_that_cancels_between_two_messages_of_a_frame_gets_no_more() {
    let (mut pair, call, _, bytes) = frame_of_messages(true);
    let Side { end, pool, out, now, .. } = &mut pair.client;
    let mut env = Env::new(*now, pool, out);
    let input = Input::new(&bytes);
    let mut events = Vec::new();
    while let Some(event) = end.next_event(&mut env, &input).expect("well-formed") {
        let is_message = matches!(event, Event::Message { .. });
        events.push(format!("{event:?}"));
        if is_message {
            end.cancel(&mut env, call);
        }
    }
    assert_eq!(events.len(), 2, "headers and a message: {events:?}");
    assert_eq!(input.consumed(), bytes.len());
    pair.run();
    pair.assert_at_rest();
}

#[test]
fn a_server_that_finishes_between_two_messages_of_a_frame_gets_no_more() {
    let (mut pair, _, at_server, bytes) = frame_of_messages(false);
    let Side { end, pool, out, now, .. } = &mut pair.server;
    let mut env = Env::new(*now, pool, out);
    let input = Input::new(&bytes);
    let mut events = Vec::new();
    while let Some(event) = end.next_event(&mut env, &input).expect("well-formed") {
        let is_message = matches!(event, Event::Message { .. });
        events.push(format!("{event:?}"));
        if is_message {
            end.finish(&mut env, at_server, &Status::ok(""), MetadataMap::EMPTY).expect("the call is there");
        }
    }
    assert_eq!(events.len(), 2, "a message and the end: {events:?}");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

#[test]
fn verbs_on_a_connection_that_is_lost_do_nothing() {
    let mut pair = Pair::new();
    let (call, at_server) = pair.unary(b"question");
    let closed = fulmar_base::Closed::peer("gone");
    let mut env = Env::new(pair.client.now, &mut pair.client.pool, &mut pair.client.out);
    pair.client.end.closed(&mut env, &closed);
    assert!(pair.client.end.send_message(&mut env, call, b"more").is_err());
    pair.client.end.half_close(&mut env, call);
    pair.client.end.transmit(&mut env);
    pair.client.end.on_deadline(&mut env).expect("no timer is left");
    pair.client.end.cancel(&mut env, call);
    let next = pair.client.end.next_event(&mut env, &Input::new(b"anything")).expect("nothing is read");
    assert!(next.is_none(), "a call that was cancelled is not reported");
    assert_eq!((pair.client.end.next_deadline(), pair.client.out.len()), (None, 0));

    let mut env = Env::new(pair.server.now, &mut pair.server.pool, &mut pair.server.out);
    pair.server.end.closed(&mut env, &closed);
    assert!(pair.server.end.finish(&mut env, at_server, &Status::ok(""), MetadataMap::EMPTY).is_err());
    pair.server.act(|_, _| ());
    assert_eq!(pair.server.take_log().last(), Some(&Happened::Finished { call: at_server, outcome: None }));
    assert_eq!(pair.server.out.len(), 0);
    pair.assert_at_rest();
}

#[test]
fn an_end_that_was_never_used_wants_nothing_but_to_say_hello() {
    let (mut pool, mut out) = (Pool::new(), Output::new());
    let mut env = Env::new(Instant::ZERO, &mut pool, &mut out);
    let mut server = Server::new(Config::default(), Arc::new(routes()));
    let mut client = new_client(Config::default());
    assert!(!server.has_events() && !client.has_events());
    assert!(server.next_event(&mut env, &Input::new(&[])).expect("no input").is_none());
    assert!(client.next_event(&mut env, &Input::new(&[])).expect("no input").is_none());
    assert!(!client.is_ready() && client.going_away().is_none());
    client.transmit(&mut env);
    server.transmit(&mut env);
    assert!(!out.is_empty() && pool.outstanding() == 0);
}

#[test]
fn an_answered_call_that_is_forgotten_is_gone_at_once_and_not_reported() {
    let mut pair = Pair::new();
    for is_half_closed in [true, false] {
        let call = pair.start(ECHO);
        pair.client.act(|client, env| client.send_message(env, call, b"?")).expect("it goes on");
        if is_half_closed {
            half_close(&mut pair.client, call);
        }
        pair.run();
        let at_server = pair.server.begun();
        pair.server.take_log();
        let (early, calls) = pair.server.act(|server, env| {
            let early = server.forget(env, at_server);
            server
                .reply(env, at_server, MetadataMap::EMPTY, 1, |out| out.push(b'!'), MetadataMap::EMPTY)
                .expect("the call waits for it");
            assert!(server.forget(env, at_server) && server.forget(env, at_server), "{is_half_closed}");
            (early, server.calls())
        });
        assert_eq!((early, calls), (false, 0), "what is not answered cannot be forgotten");
        pair.run();
        assert_eq!(pair.server.take_log(), []);
        assert_eq!(pair.client.outcome().code, Code::Ok);
        pair.client.take_log();
    }
    pair.assert_at_rest();
}

#[test]
fn a_call_whose_answer_waits_is_not_forgotten_and_reported_when_it_has_left() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    half_close(&mut pair.client, call);
    pair.run();
    let at_server = pair.server.begun();
    let sent = send_more_than_the_window(&mut pair, at_server);
    finish(&mut pair.server, at_server, &Status::default());
    pair.server.take_log();
    assert!(!pair.server.act(|server, env| server.forget(env, at_server)));
    for _ in 0..sent {
        pair.client.act(|client, env| client.release(env, call, 1_000));
        pair.run();
    }
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

/// The parts of an answer in one go are those of one in parts.
#[test]
fn an_answer_in_one_go_is_the_same_bytes_as_one_in_parts() {
    let bytes_of = |answer: fn(&mut Server, &mut Env<'_>, CallKey)| {
        let mut pair = Pair::new();
        for _ in 0..3 {
            let call = pair.start(ECHO);
            half_close(&mut pair.client, call);
            pair.run();
            let at_server = pair.server.begun();
            pair.server.take_log();
            pair.server.act(|server, env| answer(server, env, at_server));
            pair.run();
            pair.server.take_log();
        }
        pair.to_client
    };
    let whole = bytes_of(|server, env, call| {
        let sent =
            server.reply(env, call, MetadataMap::EMPTY, 2, |out| out.extend(b"hi"), MetadataMap::EMPTY);
        sent.expect("the call waits for it");
    });
    let parts = bytes_of(|server, env, call| {
        server.send_headers(env, call, MetadataMap::EMPTY).expect("nothing was sent");
        server.send_message(env, call, b"hi").expect("it goes on");
        server.finish(env, call, &Status::default(), MetadataMap::EMPTY).expect("it goes on");
    });
    assert_eq!(whole, parts);
}
