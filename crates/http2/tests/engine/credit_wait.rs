//! How long DATA waits for a client that gives no credit.

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode, Role};

use crate::support::*;

const LIMIT: Duration = Duration::from_secs(8);

/// A server under test that has answered these streams with heads; the client's first windows are `window` each.
fn server(window: u32, ids: &[u32]) -> Peer {
    let config = Config { credit_wait_ms: 8_000, ..Config::default() };
    let mut peer = Peer::silent(Role::Server, config);
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, window)]);
    for &id in ids {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
        peer.expects(headers(id, ok()));
    }
    peer
}

fn ended(id: u32) -> Happened {
    Happened::Reset { id, code: ErrorCode::EnhanceYourCalm, unprocessed: false }
}

#[test]
fn a_stream_without_credit_is_reset_when_its_time_is_over_and_others_are_not() {
    let mut peer = server(0, &[1, 3, 5]);
    peer.answers_data(1, b"content", true);
    // Nothing waits on the other streams, or it does not wait for long.
    peer.sends(window_update(3, 4));
    peer.answers_data(3, b"more", false);
    peer.expects(data(3, "more"));
    peer.waits(LIMIT / 2);
    peer.answers_data(5, b"content", true);
    peer.waits(LIMIT / 2 - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    peer.expects(reset(1, ErrorCode::EnhanceYourCalm));
    peer.expects_event(ended(1));
    peer.expects_silence();
    peer.waits(LIMIT / 2);
    peer.expects(reset(5, ErrorCode::EnhanceYourCalm));
    peer.expects_event(ended(5));
    peer.expects_silence();
    assert_eq!(peer.engine.next_deadline(), None);
    assert_eq!(peer.pool.outstanding(), 0);
    peer.sends(window_update(1, 1));
    assert_eq!(peer.error, None, "credit that was under way is no fault");
}

#[test]
fn the_text_names_the_limit() {
    let mut peer = server(0, &[1]);
    peer.answers_data(1, b"content", true);
    peer.now = peer.now + LIMIT;
    let mut env = fulmar_base::Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    peer.engine.on_deadline(&mut env).unwrap();
    let event = peer.engine.next_event(&mut env, &fulmar_base::Input::new(&[])).unwrap();
    let Some(fulmar_http2::Event::Reset { text, .. }) = event else { panic!("{event:?}") };
    assert!(text.starts_with("credit_wait_ms: "), "{text}");
}

#[test]
fn a_connection_without_credit_ends_when_its_time_is_over() {
    let mut peer = server(1 << 20, &[1]);
    peer.answers_data(1, &[7; 70_000], true);
    assert_eq!(peer.takes_data(1).len(), 65_535);
    peer.waits(LIMIT - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    let text = peer.error.clone().unwrap().text;
    assert!(text.starts_with("credit_wait_ms: "), "{text}");
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn each_byte_that_leaves_begins_the_time_anew() {
    let mut peer = server(0, &[1]);
    peer.answers_data(1, &[7; 100], true);
    for _ in 0..50 {
        peer.waits(LIMIT * 7 / 8);
        peer.sends(window_update(1, 1));
        peer.expects(data(1, [7]));
    }
    peer.waits(LIMIT - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(LIMIT / 8 + Duration::from_millis(1));
    peer.expects(reset(1, ErrorCode::EnhanceYourCalm));
}

#[test]
fn what_waits_for_the_socket_does_not_wait_for_credit() {
    let mut peer = server(1 << 20, &[1]);
    peer.sends(window_update(0, 1 << 20));
    let key = peer.key(1);
    // The output is full, and nobody empties it.
    let mut env = fulmar_base::Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    env.out.extend_from_slice(&vec![0; 512 * 1024]);
    peer.engine.send_data(&mut env, key, b"content", true).unwrap();
    for _ in 0..10 {
        env.now = env.now + LIMIT;
        peer.engine.on_deadline(&mut env).unwrap();
    }
    peer.out.clear();
    peer.act(|_, _| ());
    peer.expects(last_data(1, "content"));
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn without_a_limit_and_for_a_client_data_waits_for_ever() {
    let mut peer = Peer::silent(Role::Server, Config { credit_wait_ms: 0, ..Config::default() });
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, b"content", true);
    assert_eq!(peer.engine.next_deadline(), None);

    let mut peer = Peer::silent(Role::Client, Config { credit_wait_ms: 8_000, ..Config::default() });
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    let id = peer.is_requested(false);
    peer.answers_data(id, b"content", true);
    assert_eq!(peer.engine.next_deadline(), None);
}
