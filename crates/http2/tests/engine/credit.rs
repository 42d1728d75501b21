//! Credit: never late, never lost, and held by nobody who cannot use it.

use std::time::Duration;

use bytes::Bytes;
use fulmar_http2::{Config, ErrorCode, Event, Role};

use crate::path::Path;
use crate::support::*;

fn untuned() -> Config {
    Config { window_bytes_max: 0, ..Config::default() }
}

// Never late: a reader that takes what arrives never stops its sender.

#[test]
fn a_reader_that_keeps_pace_lets_a_window_through_in_each_round_trip_with_four_updates_for_it() {
    const ROUND_TRIP: Duration = Duration::from_millis(10);
    for window in [1_000, 65_535, 65_536, 1 << 20] {
        let config = Config { stream_window_bytes: window, connection_window_bytes: 4 << 20, ..untuned() };
        let mut path = Path::new(ROUND_TRIP, u64::MAX, config, untuned());
        // Our SETTINGS bind the server from here on.
        let until = path.now + ROUND_TRIP;
        path.run(until, &mut |_, _, _| (), &mut |_, _, _| ());
        path.client.sent.window_updates = 0;

        let windows = 50;
        let content = Bytes::from(vec![1; window as usize * windows]);
        path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
        let mut received = 0;
        // The request takes half a round trip, and so does the last window.
        let until = path.now + ROUND_TRIP * windows as u32;
        path.run(
            until,
            &mut |client, env, event| {
                if let Event::Data { stream, bytes, .. } = *event {
                    received += bytes.len();
                    client.release(env, stream, bytes.len());
                }
            },
            &mut |server, env, event| {
                if let Event::Headers { stream, .. } = *event {
                    server.send_headers(env, stream, fields(&ok()), false).unwrap();
                    server.send_shared(env, stream, content.clone(), true).unwrap();
                }
            },
        );
        assert_eq!(received, content.len(), "a window of {window}");
        // Four for each window of the stream, and those for the connection.
        let of_connection = content.len() / (1 << 20);
        let updates = path.client.sent.window_updates;
        assert!(updates <= 4 * windows + of_connection, "{updates} updates for a window of {window}");
    }
}

#[test]
fn a_peer_is_never_stopped_while_a_quarter_of_the_window_is_taken() {
    for window in [1_u32, 2, 3, 7, 100, 65_536] {
        let config = Config { stream_window_bytes: window, ..untuned() };
        for held in 0..window.min(200) {
            let held = if window > 200 { held * (window / 200) } else { held };
            let mut peer = Peer::of_server(config.clone());
            peer.requests(1, false);
            for piece in vec![0; window as usize].chunks(16_384) {
                peer.sends(data(1, piece));
            }
            peer.releases(1, (window - held) as usize);
            let credited: u32 = peer
                .takes_frames()
                .iter()
                .map(|frame| match *frame {
                    Frame::WindowUpdate { id: 1, increment } => increment,
                    _ => 0,
                })
                .sum();
            let taken = window - held;
            let expected = if taken >= window / 4 { taken } else { 0 };
            assert_eq!(credited, expected, "{held} of {window} held");
        }
    }
}

// Never lost: whatever becomes of a stream, the connection gets back what its DATA took.

/// Sends padded DATA on a stream until 100,000 bytes have gone, and asserts that all but a quarter of the window has come back.
fn assert_credited(peer: &mut Peer, id: u32) {
    let padded = raw(0, PADDED, id, [&[200][..], b"content", &[0; 200]].concat());
    let (mut sent, mut credited) = (0, 0);
    while sent < 100_000 {
        peer.sends(padded.clone());
        sent += 208;
        for frame in peer.takes_frames() {
            if let Frame::WindowUpdate { id: 0, increment } = frame {
                credited += increment;
            }
        }
    }
    assert_eq!(peer.error, None);
    assert!(sent - credited <= 65_535 / 4 + 208, "{credited} of {sent} bytes came back");
}

fn narrow() -> Config {
    Config { connection_window_bytes: 65_535, ..untuned() }
}

#[test]
fn padding_on_streams_that_this_end_has_reset_comes_back() {
    let mut peer = Peer::of_server(narrow());
    peer.requests(1, false);
    let key = peer.key(1);
    peer.act(|server, env| server.reset(env, key, ErrorCode::Cancel));
    assert_credited(&mut peer, 1);
}

#[test]
fn padding_on_streams_that_were_refused_or_came_too_late_comes_back() {
    let mut peer = Peer::of_server(Config { streams_max: 1, ..narrow() });
    peer.requests(1, false);
    peer.sends(headers(3, request()));
    peer.expects(reset(3, ErrorCode::RefusedStream));
    assert_credited(&mut peer, 3);

    let mut peer = Peer::of_server(narrow());
    peer.act(|server, env| server.go_away(env, ErrorCode::NoError, b""));
    peer.sends(headers(1, request()));
    assert_credited(&mut peer, 1);
}

#[test]
fn padding_on_a_stream_that_is_answered_already_comes_back_to_the_connection() {
    let mut peer = Peer::of_server(narrow());
    peer.requests(1, false);
    peer.answers(1, &ok(), false);
    // Its END_STREAM waits for the connection's window; what the client sends meanwhile is discarded.
    peer.answers_data(1, &[0; 65_536], false);
    peer.answers(1, &trailers(), true);
    let key = peer.key(1);
    peer.act(|server, env| server.reset_after_end(env, key, ErrorCode::NoError));
    let padded = raw(0, PADDED, 1, [&[200][..], b"content", &[0; 200]].concat());
    let mut credited = 0;
    // Not more than the stream's window, which gets nothing back.
    for _ in 0..65_536 / 208 {
        peer.sends(padded.clone());
        for frame in peer.takes_frames() {
            if let Frame::WindowUpdate { id, increment } = frame {
                assert_eq!(id, 0, "nobody wants more of the stream");
                credited += increment;
            }
        }
    }
    assert_eq!((credited, peer.error), (49_296, None));
}

#[test]
fn data_that_is_a_stream_error_comes_back() {
    let mut peer = Peer::of_server(Config { stream_window_bytes: 10, ..narrow() });
    let mut credited = 0;
    for n in 0..20 {
        let id = 2 * n + 1;
        peer.sends(headers(id, request()));
        // Beyond the window of the stream, within that of the connection.
        peer.sends(data(id, [0; 10_000]));
        for frame in peer.takes_frames() {
            if let Frame::WindowUpdate { id: 0, increment } = frame {
                credited += increment;
            }
        }
    }
    assert_eq!(peer.error, None);
    assert!(credited >= 200_000 - 65_535 / 4 - 10_000, "{credited}");
}

// Held by nobody who cannot use it.

#[test]
fn streams_that_may_not_send_hold_no_credit_of_the_connection() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    for n in 0..100 {
        let id = 2 * n + 1;
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
        if n < 99 {
            peer.answers_data(id, &[0; 10_000], true);
        }
    }
    peer.takes_frames();
    peer.sends(window_update(199, 1 << 20));
    peer.answers_data(199, &[0; 70_000], true);
    assert_eq!(peer.takes_data(199).len(), 65_535, "all that the connection has");
}

#[test]
fn streams_that_are_open_and_send_nothing_hold_no_credit_of_the_connection() {
    let mut peer = Peer::of_client(Config::default());
    let ids: Vec<_> = (0..100).map(|_| peer.is_requested(false)).collect();
    let last = ids[99];
    peer.sends(window_update(last, 1 << 20));
    peer.takes_frames();
    peer.answers_data(last, &[0; 70_000], true);
    assert_eq!(peer.takes_data(last).len(), 65_535, "all that the connection has");
}

#[test]
fn credit_that_waited_for_a_stream_goes_to_others_when_it_is_reset() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    for id in [1, 3, 5] {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
    }
    peer.takes_frames();
    peer.answers_data(1, &[0; 65_535], true);
    peer.takes_frames();
    peer.answers_data(3, &[3; 1_000], true);
    peer.answers_data(5, &[5; 1_000], true);
    peer.takes_events();
    peer.sends(reset(3, ErrorCode::Cancel));
    peer.sends(window_update(0, 1_000));
    peer.expects(last_data(5, [5; 1_000]));
}

#[test]
fn a_stream_takes_its_window_with_it_and_not_that_of_the_connection() {
    // What a peer gave to a stream that was reset is of no use to the next one, and no harm.
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 100)]);
    peer.sends(window_update(0, 1 << 20));
    for n in 0..50 {
        let id = 2 * n + 1;
        peer.requests(id, true);
        peer.sends(window_update(id, (1 << 31) - 1 - 100));
        peer.answers(id, &ok(), false);
        peer.expects(headers(id, ok()));
        peer.answers_data(id, &[0; 10_000], false);
        assert_eq!(peer.takes_data(id).len(), 10_000);
        peer.sends(reset(id, ErrorCode::Cancel));
        peer.takes_events();
    }
    peer.requests(101, true);
    peer.answers(101, &ok(), false);
    peer.expects(headers(101, ok()));
    peer.answers_data(101, &[0; 10_000], false);
    assert_eq!(peer.takes_data(101).len(), 100);
}
