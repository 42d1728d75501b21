//! The bounds on what was received and not taken.

use std::time::Duration;

use fulmar_grpc::{CallKey, Code, Config, MetadataMap, Status};

use crate::support::{
    ECHO, Frame, Happened, Outcome, Pair, RST_STREAM, call_frames, finish, prefixed, reply,
};

/// A client, and a server that may hold 100,000 bytes, in messages of 50,000 at most.
fn bounded(stream_window_bytes: u32) -> Pair {
    let mut config =
        Config { held_bytes_max: 100_000, receive_message_bytes_max: 50_000, ..Config::default() };
    config.http2.stream_window_bytes = stream_window_bytes;
    config.http2.window_bytes_max = 0;
    Pair::with_configs(Config::default(), config)
}

/// Starts a call with one message that is on its way as far as windows go.
fn start(pair: &mut Pair, message: &[u8]) -> CallKey {
    let call = pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(message), true);
    pair.run();
    call
}

/// The calls of which the server holds messages, and their lengths.
fn arrived(pair: &Pair) -> Vec<(CallKey, usize)> {
    let length = |happened: &Happened| match happened {
        Happened::Message { call, bytes } => Some((*call, bytes.len())),
        _ => None,
    };
    pair.server.log.iter().filter_map(length).collect()
}

fn outcomes(pair: &mut Pair) -> Vec<(CallKey, Outcome)> {
    let outcome = |happened| match happened {
        Happened::Finished { call, outcome } => Some((call, outcome?)),
        _ => None,
    };
    pair.client.take_log().into_iter().filter_map(outcome).collect()
}

#[test]
fn bytes_are_held_from_their_arrival_until_the_application_takes_them() {
    let mut pair = Pair::new();
    pair.server.takes_at_once = false;
    let call = pair.start(ECHO);
    let message = prefixed(&[1; 40_000]);
    let send = |pair: &mut Pair, bytes: &[u8]| {
        pair.client.act(|client, env| client.send_framed_slice(env, call, bytes)).unwrap();
        pair.run();
        pair.server.pool.held_bytes()
    };
    assert_eq!(send(&mut pair, &message[..3]), 3, "a part of a prefix");
    assert_eq!(send(&mut pair, &message[3..30_000]), 30_000, "a part of a message");
    assert_eq!(send(&mut pair, &message[30_000..]), 40_005, "a message");
    assert_eq!(send(&mut pair, &prefixed(b"small")), 40_005 + 10, "and one that lay in a frame");
    let at_server = pair.server.begun();
    pair.server.act(|server, env| server.release(env, at_server, 40_000));
    assert_eq!(pair.server.pool.held_bytes(), 10);
    // What is taken twice was held once.
    pair.server.act(|server, env| server.release(env, at_server, 40_000));
    assert_eq!(send(&mut pair, &message[..100]), 100);
    // The call ends in the middle of a message.
    pair.client.act(|client, env| client.cancel(env, call));
    pair.run();
    assert_eq!(pair.server.pool.held_bytes(), 0);
}

#[test]
fn above_the_bound_the_oldest_unfinished_message_completes_and_then_the_next() {
    let mut pair = bounded(1_000);
    for n in 0..10 {
        pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(&[n; 40_000]), true);
    }
    let mut order = Vec::new();
    pair.run_with(|server, happened| match happened {
        Happened::Message { call, bytes } => {
            assert_eq!(bytes.len(), 40_000);
            order.push(bytes[0]);
            reply(server, call, b"done");
        }
        Happened::Begin { .. } | Happened::HalfClosed { .. } | Happened::Finished { .. } => {}
        other => panic!("{other:?}"),
    });
    assert_eq!(order, (0..10).collect::<Vec<_>>(), "the oldest first");
    // Together they have 400,000 bytes.
    let held_max = pair.server.held_max;
    assert!((100_000..150_000).contains(&held_max), "{held_max}");
    let outcomes = outcomes(&mut pair);
    assert_eq!(outcomes.len(), 10);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.code == Code::Ok), "{outcomes:?}");
    pair.assert_at_rest();
}

#[test]
fn without_the_bound_as_much_is_held_as_windows_allow() {
    let mut config = Config::default();
    config.http2.stream_window_bytes = 1_000;
    let mut pair = Pair::with_configs(Config::default(), config);
    for n in 0..10 {
        pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(&[n; 40_000]), true);
    }
    pair.run();
    assert!(pair.server.held_max > 350_000, "the bound of the test above is what held them back");
}

#[test]
fn above_the_bound_new_streams_are_refused_until_something_is_taken() {
    let mut pair = bounded(65_535);
    pair.server.takes_at_once = false;
    for _ in 0..3 {
        start(&mut pair, &[1; 40_000]);
    }
    assert_eq!(arrived(&pair).len(), 3);
    let refused = start(&mut pair, b"one more");
    let [(call, outcome)] = &outcomes(&mut pair)[..] else { panic!("one call ends") };
    assert_eq!((*call, outcome.code, outcome.unprocessed), (refused, Code::Unavailable, true));
    assert!(outcome.message.contains("REFUSED_STREAM"), "{}", outcome.message);

    let (first, _) = arrived(&pair)[0];
    pair.server.act(|server, env| server.release(env, first, 40_000));
    let taken = start(&mut pair, b"one more");
    let (last, length) = *arrived(&pair).last().unwrap();
    assert_eq!((arrived(&pair).len(), length), (4, 8));
    finish(&mut pair.server, last, &Status::ok(""));
    pair.run();
    let [(call, outcome)] = &outcomes(&mut pair)[..] else { panic!("one call ends") };
    assert_eq!((*call, outcome.code), (taken, Code::Ok));
}

#[test]
fn more_than_a_message_above_the_bound_the_call_that_holds_most_is_exhausted() {
    let mut pair = bounded(65_535);
    pair.server.takes_at_once = false;
    let later = [(); 2].map(|()| pair.start(ECHO));
    let calls: Vec<_> = [30_000, 48_000, 21_000].map(|length| start(&mut pair, &vec![1; length])).to_vec();
    assert_eq!(pair.server.pool.held_bytes(), 99_015);
    // The last one crosses what is above the bound.
    for call in later {
        pair.client.act(|client, env| client.send_message(env, call, &[2; 30_000])).unwrap();
        pair.run();
    }
    let [(call, outcome)] = &outcomes(&mut pair)[..] else { panic!("one call ends") };
    assert_eq!((*call, outcome.code), (calls[1], Code::ResourceExhausted));
    assert!(outcome.message.starts_with("held_bytes_max: "), "{}", outcome.message);
    assert!(outcome.message.contains("100000 bytes, and this call had 48005"), "{}", outcome.message);
    assert_eq!(pair.server.pool.held_bytes(), 99_015 - 48_005 + 2 * 30_005);
    assert!(pair.server.held_max <= 150_000 + 16_384, "a frame above it at most: {}", pair.server.held_max);

    // The others go on.
    for (call, length) in arrived(&pair) {
        pair.server.act(|server, env| server.release(env, call, length));
        if length != 48_000 {
            reply(&mut pair.server, call, b"done");
        }
    }
    pair.run();
    assert!(outcomes(&mut pair).iter().all(|(_, outcome)| outcome.code == Code::Ok));
    pair.server.log.clear();
    pair.assert_at_rest();
}

#[test]
fn a_client_is_bound_as_well() {
    let mut config =
        Config { held_bytes_max: 100_000, receive_message_bytes_max: 50_000, ..Config::default() };
    config.http2.stream_window_bytes = 60_000;
    let mut pair = Pair::with_configs(config, Config::default());
    pair.client.takes_at_once = false;
    let mut calls = Vec::new();
    for length in [50_000, 45_000, 45_000, 45_000] {
        let (call, at_server) = pair.unary(b"question");
        pair.server.log.clear();
        calls.push(call);
        pair.server
            .act(|server, env| server.send_message(env, at_server, &vec![3; length]))
            .expect("the call is there");
        pair.run();
    }
    let finished = outcomes(&mut pair);
    let [(call, outcome)] = &finished[..] else { panic!("one call ends: {finished:?}") };
    assert_eq!((*call, outcome.code), (calls[0], Code::ResourceExhausted));
    assert!(outcome.message.starts_with("held_bytes_max: "), "{}", outcome.message);
    assert_eq!(pair.client.pool.held_bytes(), 3 * 45_005);
    let resets = |frame: &Frame| frame.kind == RST_STREAM && frame.payload == 8u32.to_be_bytes();
    assert_eq!(call_frames(&pair.to_server).iter().filter(|frame| resets(frame)).count(), 1, "CANCEL");
}

#[test]
fn what_is_kept_for_the_end_of_its_call_is_credited_and_held() {
    let mut pair = Pair::new();
    pair.client.takes_at_once = false;
    let (call, at_server) = pair.unary(b"question");
    pair.server.log.clear();
    for sent in 1..=100 {
        pair.server
            .act(|server, env| server.send_message(env, at_server, &[1; 1_000]))
            .expect("the call is there");
        pair.run();
        pair.client.act(|client, env| client.keep(env, call, 1_000));
        pair.run();
        assert_eq!(pair.client.messages().len(), sent, "more than a window");
        assert_eq!(pair.client.pool.held_bytes(), sent * 1_005);
    }
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.pool.held_bytes(), 0);
}

#[test]
fn what_other_connections_of_the_thread_hold_holds_this_one_back_until_they_let_go() {
    let mut pair = bounded(1_000);
    pair.server.pool.set_held_bytes_max(500_000);
    let call = pair.start(ECHO);
    pair.run();
    // Another connection of the thread holds more than the thread may.
    pair.server.pool.hold(500_001);
    let send = |pair: &mut Pair, messages: usize| {
        let message = prefixed(&[1; 95]);
        pair.client
            .act(|client, env| client.send_framed_slice(env, call, &message.repeat(messages)))
            .expect("the call is there");
        pair.run();
        pair.server.messages().len()
    };
    // Small messages are taken as they come, but the peer is given nothing for them.
    assert_eq!(send(&mut pair, 50), 10, "a window of them");
    pair.advance(Duration::from_millis(50));
    assert_eq!(pair.server.messages().len(), 10);
    let refused = start(&mut pair, b"new");
    let refusals = outcomes(&mut pair);
    assert!(refusals.iter().any(|(call, outcome)| *call == refused && outcome.unprocessed), "{refusals:?}");

    // The other one lets go, of which this one hears nothing.
    pair.server.pool.unhold(500_001);
    pair.run();
    pair.advance(Duration::from_millis(10));
    assert_eq!(pair.server.messages().len(), 50);
    assert_eq!(pair.server.end.next_deadline(), None, "nothing is waited for any more");
}

#[test]
fn what_other_connections_of_the_thread_hold_ends_calls_that_hold_more_than_is_left() {
    let mut pair = bounded(65_535);
    pair.server.takes_at_once = false;
    pair.server.pool.set_held_bytes_max(500_000);
    let calls = [(); 2].map(|()| pair.start(ECHO));
    pair.run();
    pair.server.pool.hold(499_000);
    for call in calls {
        assert_eq!(outcomes(&mut pair), []);
        pair.client.act(|client, env| client.send_message(env, call, &[1; 50_000])).unwrap();
        pair.run();
    }
    let finished = outcomes(&mut pair);
    let [(call, outcome)] = &finished[..] else { panic!("one call ends: {finished:?}") };
    assert!(calls.contains(call));
    assert_eq!(outcome.code, Code::ResourceExhausted);
    assert!(outcome.message.contains("all connections"), "{}", outcome.message);
}
