//! Budgets: what a peer may do now and then, and not without end (RFC 9113 §10.5).

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode};

use crate::support::*;

/// A server under test whose budgets are all 5; its peer has opened no stream.
fn frugal() -> Peer {
    Peer::of_server(Config {
        resets_received_budget: 5,
        resets_provoked_budget: 5,
        pings_budget: 5,
        // One is used up by the handshake.
        settings_budget: 6,
        empty_data_budget: 5,
        // What a stream that is opened earns back is bounded by the budget.
        ignored_frames_budget: 5,
        ..Config::default()
    })
}

/// Sends until the engine has enough; returns after how many rounds.
fn floods(peer: &mut Peer, mut round: impl FnMut(&mut Peer, u32)) -> u32 {
    for n in 0..1_000 {
        round(peer, n);
        if peer.error.is_some() {
            return n;
        }
    }
    panic!("a thousand rounds and no error");
}

#[track_caller]
fn expects_calm(peer: &mut Peer, limit: &str) {
    let error = peer.error.clone().unwrap();
    assert!(error.text.starts_with(limit), "{error}");
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn r46_streams_opened_and_reset_without_end() {
    let mut peer = frugal();
    let rounds = floods(&mut peer, |peer, n| {
        peer.sends_at_once([last_headers(2 * n + 1, request()), reset(2 * n + 1, ErrorCode::Cancel)]);
    });
    assert_eq!(rounds, 5);
    expects_calm(&mut peer, "resets_received_budget");
}

#[test]
fn a_client_that_cancels_as_often_as_it_finishes_is_no_flood() {
    let mut peer = frugal();
    for n in 0..500 {
        let (cancelled, finished) = (4 * n + 1, 4 * n + 3);
        peer.sends_at_once([last_headers(cancelled, request()), reset(cancelled, ErrorCode::Cancel)]);
        peer.sends(last_headers(finished, request()));
        peer.takes_events();
        peer.answers(finished, &ok(), true);
        peer.takes_frames();
    }
    assert_eq!(peer.error, None);
}

#[test]
fn resets_of_streams_that_were_answered_are_no_flood() {
    let mut peer = frugal();
    for n in 0..500 {
        let id = 2 * n + 1;
        peer.sends(headers(id, request()));
        peer.answers(id, &ok(), true);
        peer.sends(reset(id, ErrorCode::NoError));
        peer.takes_frames();
        peer.takes_events();
    }
    assert_eq!(peer.error, None);
}

#[test]
fn r47_resets_provoked_in_each_way_use_up_one_budget() {
    type Provoke = fn(u32) -> Vec<Frame>;
    let ways: [Provoke; 7] = [
        |id| vec![headers(id, request()), window_update(id, 0)],
        |id| vec![headers(id, request()), window_update(id, (1 << 31) - 1)],
        |id| vec![last_headers(id, request()), data(id, "behind the end")],
        |id| vec![headers(id, [request(), pairs(&[("content-length", "1")])].concat()), last_data(id, "")],
        |id| vec![headers(id, pairs(&[("malformed", "request")]))],
        |id| vec![headers(id, request()), raw(2, 0, id, [&id.to_be_bytes()[..], &[0]].concat())],
        |id| vec![last_headers(id, [request(), pairs(&[("large", &"~".repeat(20_000))])].concat())],
    ];
    for way in ways {
        let mut peer = Peer::of_server(Config {
            resets_provoked_budget: 5,
            frame_bytes_max: 30_000,
            ..Config::default()
        });
        let rounds = floods(&mut peer, |peer, n| peer.sends_at_once(way(2 * n + 1)));
        assert_eq!(rounds, 5);
        expects_calm(&mut peer, "resets_provoked_budget");
    }
}

#[test]
fn refused_streams_count_as_provoked_resets() {
    let mut peer = Peer::of_server(Config { streams_max: 0, resets_provoked_budget: 5, ..Config::default() });
    assert_eq!(floods(&mut peer, |peer, n| peer.sends(headers(2 * n + 1, request()))), 5);
    expects_calm(&mut peer, "resets_provoked_budget");
}

#[test]
fn pings_without_end() {
    let mut peer = frugal();
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(Frame::Ping([0; 8]))), 5);
    expects_calm(&mut peer, "pings_budget");
}

#[test]
fn pings_beside_real_work_are_no_flood() {
    let mut peer = frugal();
    for n in 0..100 {
        let id = 2 * n + 1;
        (0..5).for_each(|_| peer.sends(Frame::Ping([0; 8])));
        peer.requests(id, true);
        peer.answers(id, &ok(), true);
        peer.takes_frames();
        peer.takes_events();
    }
    assert_eq!(peer.error, None);
}

#[test]
fn settings_without_end() {
    let mut peer = frugal();
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(Frame::Settings(vec![]))), 5);
    expects_calm(&mut peer, "settings_budget");
}

#[test]
fn settings_with_entries_without_end() {
    let mut peer = Peer::of_server(Config { settings_entries_max: 3, ..Config::default() });
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1); 3]));
    assert_eq!(peer.error, None);
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1); 4]));
    expects_calm(&mut peer, "settings_entries_max");
}

#[test]
fn empty_data_without_end() {
    let mut peer = frugal();
    peer.requests(1, false);
    let rounds = floods(&mut peer, |peer, n| match n % 2 {
        0 => peer.sends(data(1, "")),
        // Padding alone is no content.
        _ => peer.sends(raw(0, PADDED, 1, b"\x01\0")),
    });
    assert_eq!(rounds, 5);
    expects_calm(&mut peer, "empty_data_budget");
}

#[test]
fn frames_without_effect_without_end() {
    type Flood = fn() -> Frame;
    let ways: [Flood; 6] = [
        || raw(0xfe, 0, 0, ""),
        || raw(2, 0, 9, b"\0\0\0\0\x10"),
        || Frame::SettingsAck,
        || Frame::Pong([0; 8]),
        || window_update(1, 1),
        || reset(1, ErrorCode::Cancel),
    ];
    for way in ways {
        let mut peer = frugal();
        peer.requests(1, false);
        peer.sends(reset(1, ErrorCode::Cancel));
        peer.takes_events();
        assert_eq!(floods(&mut peer, |peer, _| peer.sends(way())), 5);
        expects_calm(&mut peer, "ignored_frames_budget");
    }
}

#[test]
fn what_is_under_way_to_streams_that_we_have_reset_is_no_flood() {
    let mut peer = Peer::of_client(Config { ignored_frames_budget: 4, ..Config::default() });
    for _ in 0..100 {
        let id = peer.is_requested(true);
        let key = peer.key(id);
        peer.act(|client, env| client.reset(env, key, ErrorCode::Cancel));
        peer.sends(headers(id, ok()));
        (0..100).for_each(|_| peer.sends(data(id, "under way")));
        peer.sends(last_headers(id, trailers()));
        peer.sends(window_update(id, 1));
        peer.takes_frames();
    }
    assert_eq!(peer.error, None);
}

#[test]
fn header_sections_of_dead_streams_without_end() {
    let mut peer = frugal();
    peer.requests(1, false);
    let key = peer.key(1);
    peer.act(|server, env| server.reset(env, key, ErrorCode::Cancel));
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(last_headers(1, trailers()))), 5);
    expects_calm(&mut peer, "ignored_frames_budget");
}

#[test]
fn a_budget_fills_again_with_time() {
    let mut peer = frugal();
    for _ in 0..10 {
        (0..5).for_each(|_| peer.sends(Frame::Ping([0; 8])));
        assert_eq!(peer.error, None);
        peer.takes_frames();
        peer.waits(Duration::from_secs(10));
    }
}

#[test]
fn r48_output_that_a_peer_does_not_read_is_bounded() {
    use fulmar_base::{Env, Input};

    let config = Config { output_bytes_max: 1_000, pings_budget: u32::MAX, ..Config::default() };
    let mut peer = Peer::of_server(config);
    let pings = peer.encode(Frame::Ping([7; 8])).repeat(1_000);
    let input = Input::new(&pings);
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    let error = peer.engine.next_event(&mut env, &input).unwrap_err();
    assert_eq!(error.code, ErrorCode::EnhanceYourCalm);
    assert!(error.text.starts_with("output_bytes_max"), "{error}");
    assert!(env.out.len() < 1_200, "{} bytes of output", env.out.len());
}

#[test]
fn defaults_leave_honest_peers_alone() {
    let mut peer = Peer::of_server(Config::default());
    for n in 0..3_000 {
        let id = 2 * n + 1;
        // As the C++ client does: a window update and a reset behind each finished call.
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
        peer.answers_data(id, b"reply", false);
        peer.answers(id, &trailers(), true);
        peer.takes_frames();
        peer.takes_events();
        peer.sends(window_update(id, 5));
        peer.sends(reset(id, ErrorCode::NoError));
        peer.sends(Frame::Ping([0; 8]));
        peer.takes_frames();
    }
    assert_eq!(peer.error, None);
}
