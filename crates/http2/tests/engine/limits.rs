//! Budgets: what a peer may do now and then, and not without end (RFC 9113 §10.5).

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode, OpenError, Role};

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
        tiny_data_budget: 5,
        window_updates_budget: 5,
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
fn r48_pings_without_end() {
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
fn r48_settings_without_end() {
    let mut peer = frugal();
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(Frame::Settings(vec![]))), 5);
    expects_calm(&mut peer, "settings_budget");
}

#[test]
fn r48_settings_with_entries_without_end() {
    let mut peer = Peer::of_server(Config { settings_entries_max: 3, ..Config::default() });
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1); 3]));
    assert_eq!(peer.error, None);
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1); 4]));
    expects_calm(&mut peer, "settings_entries_max");
}

#[test]
fn r48_empty_data_without_end() {
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
fn r48_tiny_data_without_end() {
    let mut peer = frugal();
    peer.requests(1, false);
    (0..10).for_each(|_| peer.sends(data(1, "12345")));
    assert_eq!(floods(&mut peer, |peer, n| peer.sends(data(1, &b"1234"[n as usize % 4..]))), 5);
    expects_calm(&mut peer, "tiny_data_budget");
}

#[test]
fn tiny_data_on_a_dead_stream_without_end() {
    let mut peer = frugal();
    peer.requests(1, false);
    let key = peer.key(1);
    peer.act(|server, env| server.reset(env, key, ErrorCode::Cancel));
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(data(1, "x"))), 5);
    expects_calm(&mut peer, "tiny_data_budget");
}

#[test]
fn data_that_is_tiny_because_the_window_is_is_no_flood() {
    let mut peer = Peer::of_server(Config {
        stream_window_bytes: 3,
        window_bytes_max: 0,
        tiny_data_budget: 5,
        ..Config::default()
    });
    peer.requests(1, false);
    for _ in 0..100 {
        peer.sends(data(1, "abc"));
        peer.releases(1, 3);
        peer.expects(window_update(1, 3));
    }
    assert_eq!(peer.error, None);
    let rounds = floods(&mut peer, |peer, _| {
        peer.sends(data(1, "x"));
        peer.releases(1, 1);
    });
    assert_eq!(rounds, 5);
    expects_calm(&mut peer, "tiny_data_budget");
}

#[test]
fn r48_window_updates_without_end() {
    for id in [0, 1] {
        let mut peer = frugal();
        peer.requests(1, false);
        assert_eq!(floods(&mut peer, |peer, _| peer.sends(window_update(id, 1))), 5);
        expects_calm(&mut peer, "window_updates_budget");
    }
}

#[test]
fn r48_credit_that_dribbles_makes_no_frames_of_a_byte_without_end() {
    let mut peer = frugal();
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 0)]));
    peer.expects(Frame::SettingsAck);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, &[b'd'; 10_000], true);
    peer.expects(headers(1, ok()));
    let rounds = floods(&mut peer, |peer, _| peer.sends(window_update(1, 1)));
    assert_eq!(rounds, 5);
    (0..5).for_each(|_| peer.expects(data(1, "d")));
    expects_calm(&mut peer, "window_updates_budget");
}

#[test]
fn a_peer_that_credits_each_frame_twice_is_no_flood() {
    for length in [1, 20_000] {
        let mut peer = frugal();
        peer.requests(1, true);
        peer.answers(1, &ok(), false);
        peer.takes_frames();
        for _ in 0..100 {
            peer.answers_data(1, &vec![b'd'; length], false);
            let sent = peer.takes_data(1).len() as u32;
            assert_eq!(sent as usize, length);
            peer.sends(window_update(0, sent));
            peer.sends(window_update(1, sent));
        }
        assert_eq!(peer.error, None);
    }
}

#[test]
fn a_frame_that_never_ends() {
    for frame in [headers(1, request()), data(1, "content"), Frame::Settings(vec![])] {
        let mut peer = Peer::of_server(Config { frame_ms: 500, ..Config::default() });
        let bytes = peer.encode(frame);
        peer.sends_bytes(&bytes[..1]);
        peer.waits(Duration::from_millis(300));
        peer.sends_bytes(&bytes[1..8]);
        peer.waits(Duration::from_millis(199));
        assert_eq!(peer.error, None);
        peer.waits(Duration::from_millis(1));
        expects_calm(&mut peer, "frame_ms");
    }
}

#[test]
fn frames_that_come_slowly_but_in_time_leave_no_deadline() {
    let mut peer = Peer::of_server(Config { frame_ms: 500, ..Config::default() });
    for n in 0..10 {
        let bytes = peer.encode(last_headers(2 * n + 1, request()));
        let (front, back) = bytes.split_at(12);
        peer.sends_bytes(front);
        peer.waits(Duration::from_millis(499));
        peer.sends_bytes(back);
        assert_eq!(peer.engine.next_deadline(), None);
    }
    assert_eq!(peer.error, None);
}

/// A server with many responses for a client that gives no credit; `stalled_bytes_max` is 6,400.
fn stalled(length: usize) -> Peer {
    let config = Config {
        stalled_bytes_max: 6_400,
        queued_bytes_max: 10_000,
        stall_ms: 500,
        credit_wait_ms: 0,
        ..Config::default()
    };
    let mut peer = Peer::silent(Role::Server, config);
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, &vec![b'd'; length], true);
    peer.takes_frames();
    peer
}

#[test]
fn responses_that_nobody_takes() {
    let mut peer = stalled(9_000);
    peer.waits(Duration::from_millis(499));
    // Too little: less than a byte of 64.
    peer.sends(window_update(1, 9_000 / 64 - 1));
    assert_eq!(peer.error, None);
    peer.waits(Duration::from_millis(1));
    expects_calm(&mut peer, "stall_ms");
}

#[test]
fn a_client_that_takes_little_may_take_its_time_over_it() {
    let mut peer = stalled(6_400);
    assert_eq!(peer.engine.next_deadline(), None);
    peer.waits(Duration::from_secs(100_000));
    assert_eq!(peer.error, None);
}

#[test]
fn a_client_that_goes_on_taking_is_not_hurried() {
    let mut peer = stalled(9_000);
    while peer.engine.next_deadline().is_some() {
        peer.sends(window_update(1, 9_000 / 64 + 1));
        peer.waits(Duration::from_millis(500));
        assert_eq!(peer.error, None);
    }
    let taken: usize = peer.takes_data(1).len();
    assert!((2_600..2_800).contains(&taken), "{taken} bytes were taken when it was little enough");
}

#[test]
fn a_client_that_gives_up_is_not_hurried() {
    let mut peer = stalled(9_000);
    peer.sends(reset(1, ErrorCode::Cancel));
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn while_too_much_waits_new_streams_are_refused() {
    let mut peer = stalled(10_001);
    peer.sends(last_headers(3, request()));
    peer.expects(reset(3, ErrorCode::RefusedStream));
    peer.sends(window_update(1, 1));
    peer.expects(data(1, "d"));
    peer.requests(5, true);
}

#[test]
fn r48_frames_without_effect_without_end() {
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
fn farewells_without_end() {
    for role in [Role::Server, Role::Client] {
        let mut peer = Peer::silent(role, Config { ignored_frames_budget: 5, ..Config::default() });
        peer.shakes_hands(&[]);
        let rounds = floods(&mut peer, |peer, _| {
            peer.sends(Frame::GoAway { last_id: 0, code: ErrorCode::NoError, debug: String::new() });
        });
        assert_eq!(rounds, 6, "the first one has an effect");
        expects_calm(&mut peer, "ignored_frames_budget");
    }
}

#[test]
fn requests_behind_our_farewell_without_end() {
    let mut peer = frugal();
    peer.act(|server, env| server.go_away(env, ErrorCode::NoError, b""));
    peer.takes_frames();
    assert_eq!(floods(&mut peer, |peer, n| peer.sends(last_headers(2 * n + 1, request()))), 5);
    expects_calm(&mut peer, "ignored_frames_budget");
}

#[test]
fn interim_responses_without_end() {
    let mut peer = Peer::of_client(Config { ignored_frames_budget: 5, ..Config::default() });
    let id = peer.is_requested(true);
    let early = pairs(&[(":status", "103")]);
    assert_eq!(floods(&mut peer, |peer, _| peer.sends(headers(id, early.clone()))), 5);
    expects_calm(&mut peer, "ignored_frames_budget");
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
fn r48_answers_that_a_peer_does_not_read_are_bounded_whatever_they_answer() {
    type Flood = fn(u32) -> Vec<Frame>;
    let ways: [Flood; 5] = [
        |_| vec![Frame::Ping([7; 8])],
        |_| vec![Frame::Settings(vec![])],
        |id| vec![headers(id, request()), window_update(id, 0)],
        |id| vec![last_headers(id, [request(), pairs(&[("large", &"~".repeat(2_000))])].concat())],
        // DATA on a stream that the peer itself has reset.
        |id| vec![headers(id, request()), reset(id, ErrorCode::Cancel), data(id, "late")],
    ];
    for way in ways {
        let mut peer = Peer::of_server(Config {
            output_bytes_max: 1_000,
            header_list_bytes_max: 1_000,
            pings_budget: u32::MAX,
            settings_budget: u32::MAX,
            resets_received_budget: u32::MAX,
            resets_provoked_budget: u32::MAX,
            ..Config::default()
        });
        let flood: Vec<_> = (0..1_000).flat_map(|n| way(2 * n + 1)).collect();
        let bytes: Vec<u8> = flood.into_iter().flat_map(|frame| peer.encode(frame)).collect();
        let (error, waiting) = peer.is_not_read(&bytes);
        let error = error.expect("a thousand answers are too many");
        assert_eq!(error.code, ErrorCode::EnhanceYourCalm);
        assert!(error.text.starts_with("output_bytes_max"), "{error}");
        assert!(waiting < 1_200, "{waiting} bytes of output");
    }
}

#[test]
fn a_client_opens_no_streams_behind_output_that_its_server_does_not_read() {
    let mut peer = Peer::of_client(Config { output_bytes_max: 10_000, ..Config::default() });
    let list = request();
    let (opened, refused, waiting) = peer.act(|client, env| {
        let mut opened = 0;
        // Each leaves its head and a reset behind, and its place to the next one.
        loop {
            match client.open(env, fields(&list), true) {
                Ok(stream) => client.reset(env, stream, ErrorCode::Cancel),
                Err(refused) => break (opened, refused, env.out.len()),
            }
            client.transmit(env);
            opened += 1;
            assert!(opened < 10_000, "without an end");
        }
    });
    assert!(opened > 200, "{opened} streams");
    assert_eq!(refused, OpenError::LimitReached);
    assert!((10_001..10_200).contains(&waiting), "{waiting} bytes of output");

    // The server has read.
    peer.takes_wire();
    peer.act(|_, _| ());
    peer.expects_event(Happened::StreamSlotFree);
    peer.act(|client, env| client.open(env, fields(&list), true)).expect("there is room");
}

#[test]
fn what_a_server_writes_unasked_is_bounded_by_its_open_streams() {
    const STREAMS: u32 = 35;
    let interim = pairs(&[(":status", "103"), ("link", &"~".repeat(200))]);
    // Of another value each, so that nothing is compressed.
    let large = |n: usize| pairs(&[("large", &format!("{n:~>1000}"))]);
    let mut peer = Peer::of_server(Config { output_bytes_max: 10_000, ..Config::default() });
    let ids: Vec<_> = (0..STREAMS).map(|n| 2 * n + 1).collect();
    ids.iter().for_each(|&id| peer.requests(id, false));
    let keys: Vec<_> = ids.iter().map(|&id| peer.key(id)).collect();
    let waiting = peer.act(|server, env| {
        for &key in keys.iter().cycle().take(10_000) {
            server.send_headers(env, key, fields(&interim), false).unwrap();
        }
        for (n, &key) in keys.iter().enumerate() {
            server.send_headers(env, key, fields(&[ok(), large(2 * n)].concat()), false).unwrap();
            server.send_data(env, key, &[0; 1_000], false).unwrap();
            server.send_headers(env, key, fields(&large(2 * n + 1)), true).unwrap();
            server.reset_after_end(env, key, ErrorCode::NoError);
            server.reset(env, key, ErrorCode::Cancel);
        }
        env.out.len()
    });
    let most = 10_000 + 300 + STREAMS as usize * (1_050 + 1_010 + 1_050 + 13);
    assert!((most * 9 / 10..=most).contains(&waiting), "{waiting} bytes of output, and not {most}");
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
