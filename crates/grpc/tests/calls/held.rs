//! The bounds on what was received and not taken.

use std::time::Duration;

use fulmar_base::Holding;
use fulmar_grpc::{CallKey, Code, Config, MetadataMap, Status};

use crate::support::{
    ECHO, Frame, Happened, Outcome, Pair, RST_STREAM, call_frames, finish, prefixed, reply,
};

/// A client, and a server that may hold 100,000 bytes, in messages of 50,000 at most.
fn bounded(stream_window_bytes: u32) -> Pair {
    Pair::with_configs(Config::default(), bounded_config(stream_window_bytes))
}

fn bounded_config(stream_window_bytes: u32) -> Config {
    let mut config =
        Config { held_bytes_max: 100_000, receive_message_bytes_max: 50_000, ..Config::default() };
    config.http2.stream_window_bytes = stream_window_bytes;
    config.http2.window_bytes_max = 0;
    config
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
fn what_waits_for_a_call_that_is_exhausted_does_not_hold_its_status_up() {
    let mut config = Config::default();
    config.http2.stream_window_bytes = 1_000;
    let mut pair = Pair::with_configs(config, bounded_config(65_535));
    pair.server.takes_at_once = false;
    pair.client.takes_at_once = false;
    let last = pair.start(ECHO);
    let calls = [48_000, 45_000, 30_000].map(|length| start(&mut pair, &vec![1; length]));
    let (first, _) = arrived(&pair)[0];
    // The client has the first message of the answer in its hands, and no room for another.
    for _ in 0..2 {
        pair.server.act(|server, env| server.send_message(env, first, &[3; 2_000])).unwrap();
        pair.run();
    }
    assert_eq!(pair.client.messages().len(), 1);
    assert_eq!(pair.server.pool.outstanding(), 1, "the other one waits");

    pair.client.act(|client, env| client.send_message(env, last, &[2; 30_000])).unwrap();
    pair.run();
    let finished = outcomes(&mut pair);
    let [(call, outcome)] = &finished[..] else { panic!("one call ends: {finished:?}") };
    assert_eq!((*call, outcome.code), (calls[0], Code::ResourceExhausted));
    assert!(outcome.message.starts_with("held_bytes_max: "), "{}", outcome.message);
    assert_eq!(pair.server.pool.outstanding(), 0, "nothing waits any more");
}

/// A pair whose server may hold 100,000 bytes on a connection and 120,000 on its thread, in messages of 50,000 at most, and what
/// another connection of that thread holds.
fn with_neighbour() -> (Pair, Holding) {
    let mut pair = bounded(65_535);
    pair.server.takes_at_once = false;
    pair.server.pool.set_held_bytes_max(120_000);
    (pair, Holding::default())
}

#[test]
fn a_connection_does_not_suffer_for_a_neighbour_that_holds_twice_as_much() {
    let (mut pair, mut neighbour) = with_neighbour();
    let calls = [(); 2].map(|()| pair.start(ECHO));
    pair.run();
    // The neighbour has more than may be held, with all that is under way.
    pair.server.pool.hold_for(&mut neighbour, 1_000_000);
    for round in 1..=4 {
        for call in calls {
            pair.client.act(|client, env| client.send_message(env, call, &[1; 20_000])).unwrap();
        }
        pair.run();
        assert_eq!(arrived(&pair).len(), 2 * round, "more than a window in all, but taken");
        for &(call, length) in arrived(&pair).iter().skip(2 * round - 2) {
            pair.server.act(|server, env| server.release(env, call, length));
        }
        pair.run();
    }
    start(&mut pair, b"new");
    assert_eq!(outcomes(&mut pair), [], "nothing was refused, and nothing ended");
}

#[test]
fn the_connections_that_hold_most_are_held_back_until_somebody_lets_go() {
    let (mut pair, mut neighbour) = with_neighbour();
    start(&mut pair, &[1; 30_000]);
    // A whole window of messages, each in a frame, and one more.
    let stream = pair.start(ECHO);
    for _ in 0..6 {
        pair.client.act(|client, env| client.send_message(env, stream, &[1; 13_102])).unwrap();
    }
    pair.run();
    assert_eq!(arrived(&pair).len(), 6);
    pair.server.pool.hold_for(&mut neighbour, 64_000);
    for &(call, length) in &arrived(&pair)[4..] {
        pair.server.act(|server, env| server.release(env, call, length));
    }
    pair.run();
    pair.advance(Duration::from_millis(50));
    assert_eq!(arrived(&pair).len(), 6, "no credit for what was taken");
    let refused = start(&mut pair, b"new");
    let refusals = outcomes(&mut pair);
    assert!(matches!(&refusals[..], [(call, outcome)] if *call == refused && outcome.unprocessed));

    // The neighbour lets go, of which this one hears nothing.
    pair.server.pool.unhold_for(&mut neighbour, 64_000);
    pair.run();
    assert_eq!(arrived(&pair).len(), 6);
    pair.advance(Duration::from_millis(10));
    assert_eq!(arrived(&pair).len(), 7);
    start(&mut pair, b"new");
    assert_eq!(outcomes(&mut pair), []);
}

#[test]
fn a_silent_connection_that_holds_most_ends_its_largest_call_for_the_others() {
    let (mut pair, mut neighbour) = with_neighbour();
    let calls = [40_000, 45_000].map(|length| start(&mut pair, &vec![1; length]));
    assert_eq!(pair.server.pool.held_bytes(), 85_010);
    // Others come to hold too much together, each of them less than half.
    let mut others: Vec<_> = (0..5).map(|_| Holding::default()).collect();
    for other in &mut others {
        pair.server.pool.hold_for(other, 16_000);
    }
    pair.advance(Duration::from_millis(100));
    assert_eq!(outcomes(&mut pair), [], "with what may be under way it is not too much");
    pair.server.pool.hold_for(&mut neighbour, 6_000);
    pair.advance(Duration::from_millis(100));
    let finished = outcomes(&mut pair);
    let [(call, outcome)] = &finished[..] else { panic!("one call ends: {finished:?}") };
    assert_eq!((*call, outcome.code), (calls[1], Code::ResourceExhausted));
    assert!(outcome.message.contains("all connections that"), "{}", outcome.message);
    assert_eq!(pair.server.pool.held_bytes(), 40_005 + 86_000);
}

#[test]
fn an_end_looks_at_what_others_hold_only_while_it_holds_much_itself() {
    let (mut pair, _) = with_neighbour();
    pair.server.pool.set_held_bytes_max(40_000 * 4_096);
    start(&mut pair, &[1; 30_000]);
    let quiet = pair.server.end.next_deadline();
    start(&mut pair, &[1; 20_000]);
    assert_eq!(pair.server.end.next_deadline(), Some(pair.server.now + Duration::from_millis(100)));
    let (call, length) = arrived(&pair)[0];
    pair.server.act(|server, env| server.release(env, call, length));
    assert_eq!(pair.server.end.next_deadline(), quiet);
}
