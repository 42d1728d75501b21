//! GOAWAY, draining, and the end of stream ids (RFC 9113 §6.8).

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode, OpenError};

use crate::support::*;

fn go_away(last_id: u32, code: ErrorCode, debug: &str) -> Frame {
    Frame::GoAway { last_id, code, debug: debug.to_owned() }
}

#[test]
fn r34_a_server_drains_in_two_phases_and_serves_what_was_under_way() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.act(|server, env| server.drain(env));
    peer.expects(go_away(0x7fff_ffff, ErrorCode::NoError, ""));
    let Some(Frame::Ping(payload)) = peer.next_frame() else { panic!("no PING behind the first GOAWAY") };
    assert!(peer.engine.is_going_away() && !peer.engine.is_drained());
    // On its way before the client has read the GOAWAY.
    peer.requests(3, true);
    peer.sends(Frame::Pong(payload));
    peer.expects(go_away(3, ErrorCode::NoError, ""));
    peer.sends(last_headers(5, request()));
    peer.sends(data(5, "ignored as well"));
    peer.expects_silence();
    for id in [1, 3] {
        assert!(!peer.engine.is_drained());
        peer.answers(id, &ok(), true);
        peer.expects(last_headers(id, ok()));
        peer.expects_event(Happened::Closed(id));
    }
    assert!(peer.engine.is_drained());
    assert_eq!(peer.engine.next_deadline(), None);
    peer.expects_silence();
}

#[test]
fn a_drain_waits_for_the_answer_to_its_ping_no_longer_than_configured() {
    let mut peer = Peer::of_server(Config { drain_ms: 700, ..Config::default() });
    peer.requests(1, false);
    peer.act(|server, env| server.drain(env));
    peer.act(|server, env| server.drain(env));
    assert_eq!(peer.takes_frames().len(), 2);
    peer.waits(Duration::from_millis(699));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    peer.expects(go_away(1, ErrorCode::NoError, ""));
    assert!(!peer.engine.is_drained());
}

#[test]
fn without_streams_a_drain_waits_for_its_answer_less_long() {
    let mut peer = Peer::of_server(Config { drain_ms: 700, drain_idle_ms: 300, ..Config::default() });
    peer.act(|server, env| server.drain(env));
    assert_eq!(peer.takes_frames().len(), 2);
    peer.waits(Duration::from_millis(299));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    peer.expects(go_away(0, ErrorCode::NoError, ""));
    assert!(peer.engine.is_drained());
}

#[test]
fn header_blocks_of_ignored_streams_keep_the_tables_in_step() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.act(|server, env| server.go_away(env, ErrorCode::NoError, b"bye"));
    peer.expects(go_away(1, ErrorCode::NoError, "bye"));
    let indexed = pairs(&[("x-indexed", "by an ignored request")]);
    peer.sends(last_headers(3, [request(), indexed.clone()].concat()));
    peer.expects_silence();
    peer.sends(last_headers(1, indexed.clone()));
    peer.expects_event(Happened::Headers { id: 1, fields: indexed, end: true });
}

#[test]
fn a_later_go_away_never_raises_the_last_stream_id() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.act(|server, env| server.go_away(env, ErrorCode::NoError, b""));
    peer.sends(last_headers(3, request()));
    peer.act(|server, env| server.go_away(env, ErrorCode::EnhanceYourCalm, b"too_many_pings"));
    peer.expects(go_away(1, ErrorCode::NoError, ""));
    peer.expects(go_away(1, ErrorCode::EnhanceYourCalm, "too_many_pings"));
}

#[test]
fn streams_above_the_last_id_of_a_go_away_are_unprocessed_and_the_others_go_on() {
    let mut peer = Peer::of_client(Config::default());
    let ids: Vec<_> = (0..4).map(|_| peer.is_requested(true)).collect();
    assert_eq!(ids, [1, 3, 5, 7]);
    peer.sends(go_away(0x7fff_ffff, ErrorCode::NoError, ""));
    peer.expects_event(Happened::GoAway { last_id: 0x7fff_ffff, code: ErrorCode::NoError });
    assert_eq!(peer.engine.streams(), 4);
    peer.sends(go_away(3, ErrorCode::NoError, ""));
    peer.expects_event(Happened::GoAway { last_id: 3, code: ErrorCode::NoError });
    for id in [7, 5] {
        peer.expects_event(Happened::Reset { id, code: ErrorCode::RefusedStream, unprocessed: true });
    }
    assert!(peer.engine.is_going_away());
    let opened = peer.act(|client, env| client.open(env, fields(&request()), true));
    assert_eq!(opened, Err(OpenError::GoingAway));
    for id in [1, 3] {
        peer.sends(last_headers(id, ok()));
        peer.expects_event(Happened::Headers { id, fields: ok(), end: true });
        peer.expects_event(Happened::Closed(id));
    }
    peer.sends(go_away(1, ErrorCode::InternalError, ""));
    peer.expects_event(Happened::GoAway { last_id: 1, code: ErrorCode::InternalError });
    peer.expects_silence();
}

#[test]
fn a_go_away_that_raises_the_last_id_or_names_a_stream_of_the_server_is_an_error() {
    let mut peer = Peer::of_client(Config::default());
    peer.sends(go_away(1, ErrorCode::NoError, ""));
    peer.takes_events();
    peer.sends(go_away(3, ErrorCode::NoError, ""));
    peer.expects_connection_error(ErrorCode::ProtocolError);

    let mut peer = Peer::of_client(Config::default());
    peer.sends(go_away(2, ErrorCode::NoError, ""));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn a_client_that_goes_away_is_told_to_the_server_and_still_served() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.sends(go_away(0, ErrorCode::NoError, "done"));
    peer.expects_event(Happened::GoAway { last_id: 0, code: ErrorCode::NoError });
    peer.answers(1, &ok(), true);
    peer.expects(last_headers(1, ok()));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn a_client_drains_with_one_go_away() {
    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(true);
    peer.act(|client, env| client.drain(env));
    peer.expects(go_away(0, ErrorCode::NoError, ""));
    assert!(!peer.engine.is_drained());
    peer.sends(last_headers(id, ok()));
    assert!(peer.engine.is_drained());
}

#[test]
fn debug_data_is_cut_at_a_kibibyte() {
    let mut peer = Peer::of_client(Config::default());
    peer.act(|client, env| client.go_away(env, ErrorCode::NoError, &[b'x'; 5_000]));
    peer.expects(go_away(0, ErrorCode::NoError, &"x".repeat(1_024)));
}

#[test]
fn after_an_error_verbs_do_nothing_and_the_error_stays() {
    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(false);
    let key = peer.key(id);
    peer.sends(window_update(0, 0));
    peer.expects_connection_error(ErrorCode::ProtocolError);
    peer.act(|client, env| {
        assert_eq!(client.open(env, fields(&request()), true), Err(OpenError::GoingAway));
        assert!(client.send_data(env, key, b"x", false).is_err());
        assert_eq!((client.credit(env, key), client.may_queue(key)), (0, 0));
        client.transmit(env);
    });
    assert_eq!(peer.next_frame(), None);
}

#[test]
fn a_server_opens_no_streams() {
    let mut peer = Peer::of_server(Config::default());
    let opened = peer.act(|server, env| server.open(env, fields(&request()), true));
    assert_eq!(opened, Err(OpenError::GoingAway));
    peer.expects_silence();
}
