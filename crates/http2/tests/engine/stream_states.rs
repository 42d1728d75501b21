//! States of streams and what may happen in each (RFC 9113 §5.1).

use fulmar_http2::{Config, ErrorCode, SendError};

use crate::support::*;

#[test]
fn a_stream_goes_from_open_to_closed_whichever_end_ends_first() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.sends(last_data(1, ""));
    peer.expects_event(Happened::Data { id: 1, bytes: vec![], end: true });
    assert_eq!(peer.engine.streams(), 1);
    peer.answers(1, &ok(), true);
    peer.expects(last_headers(1, ok()));
    peer.expects_event(Happened::Closed(1));
    assert_eq!(peer.engine.streams(), 0);

    peer.requests(3, false);
    peer.answers(3, &ok(), true);
    peer.expects(last_headers(3, ok()));
    peer.expects_silence();
    peer.sends(last_data(3, "x"));
    peer.expects_event(Happened::Data { id: 3, bytes: b"x".to_vec(), end: true });
    peer.expects_event(Happened::Closed(3));
    peer.expects_silence();
}

#[test]
fn half_closed_by_the_peer_it_may_send_no_more_data_and_headers() {
    for late in [data(1, "late"), last_data(1, ""), last_headers(1, trailers())] {
        let mut peer = Peer::of_server(Config::default());
        peer.requests(1, true);
        peer.sends(late);
        peer.expects(reset(1, ErrorCode::StreamClosed));
        peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::StreamClosed, unprocessed: false });
        peer.expects_silence();
    }
}

#[test]
fn half_closed_by_the_peer_it_may_send_window_updates_priorities_and_a_reset() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.sends(window_update(1, 1));
    peer.sends(raw(2, 0, 1, b"\0\0\0\0\x10"));
    peer.expects_silence();
    peer.sends(reset(1, ErrorCode::Cancel));
    peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::Cancel, unprocessed: false });
    peer.expects_silence();
}

#[test]
fn closed_by_both_ends_data_and_headers_are_a_connection_error() {
    for late in [data(1, "late"), last_headers(1, request()), last_headers(1, trailers())] {
        let mut peer = Peer::of_server(Config::default());
        peer.requests(1, true);
        peer.answers(1, &ok(), true);
        peer.sends(late);
        peer.expects_connection_error(ErrorCode::StreamClosed);
    }
}

#[test]
fn closed_by_the_peers_reset_data_and_headers_are_a_stream_error() {
    for late in [data(1, "late"), last_headers(1, trailers())] {
        let mut peer = Peer::of_server(Config::default());
        peer.requests(1, false);
        peer.sends(reset(1, ErrorCode::Cancel));
        peer.takes_events();
        peer.sends(late);
        peer.expects(reset(1, ErrorCode::StreamClosed));
        peer.expects_silence();
    }
}

#[test]
fn closed_by_our_reset_everything_is_ignored_for_as_long_as_the_connection_lives() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    let key = peer.key(1);
    peer.act(|server, env| server.reset(env, key, ErrorCode::Cancel));
    peer.expects(reset(1, ErrorCode::Cancel));
    for id in (3..203).step_by(2) {
        peer.requests(id, true);
        peer.answers(id, &ok(), true);
        peer.takes_events();
    }
    peer.takes_frames();
    for late in
        [data(1, "late"), window_update(1, 5), last_headers(1, trailers()), reset(1, ErrorCode::Cancel)]
    {
        peer.sends(late);
    }
    peer.expects_silence();
}

#[test]
fn r22_late_window_updates_and_resets_on_finished_streams_are_ignored() {
    let mut peer = Peer::of_server(Config::default());
    let finish = |peer: &mut Peer, ids: std::ops::Range<u32>| {
        for id in ids.step_by(2) {
            peer.requests(id, true);
            peer.answers(id, &ok(), true);
            peer.expects(last_headers(id, ok()));
            peer.expects_event(Happened::Closed(id));
        }
    };
    let late = |peer: &mut Peer| {
        peer.sends(window_update(1, 100));
        peer.sends(window_update(3, 100));
        peer.sends(reset(5, ErrorCode::NoError));
        peer.sends(reset(5, ErrorCode::Cancel));
        peer.sends(raw(2, 0, 7, b"\0\0\0\0\x10"));
        peer.expects_silence();
    };
    finish(&mut peer, 1..11);
    late(&mut peer);
    finish(&mut peer, 11..20_011);
    late(&mut peer);
    peer.sends(window_update(30_001, 1));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn stream_ids_rise_and_are_odd() {
    for (first, second) in [(5, 3), (0x7fff_ffff, 1)] {
        let mut peer = Peer::of_server(Config::default());
        peer.requests(first, false);
        peer.sends(last_headers(second, request()));
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
    let mut peer = Peer::of_server(Config::default());
    peer.sends(last_headers(2, request()));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn r39_the_last_stream_id_there_is_is_answered() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(0x7fff_ffff, true);
    peer.answers(0x7fff_ffff, &ok(), true);
    peer.expects(last_headers(0x7fff_ffff, ok()));
    peer.expects_event(Happened::Closed(0x7fff_ffff));
}

#[test]
fn skipped_streams_are_closed_and_not_idle() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(9, false);
    peer.sends(window_update(3, 1));
    peer.sends(reset(5, ErrorCode::Cancel));
    peer.expects_silence();
}

#[test]
fn a_refused_stream_of_a_client_is_told_to_be_unprocessed() {
    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(false);
    peer.sends(reset(id, ErrorCode::RefusedStream));
    peer.expects_event(Happened::Reset { id, code: ErrorCode::RefusedStream, unprocessed: true });
    peer.expects_silence();
    assert_eq!(peer.engine.streams(), 0);
}

#[test]
fn a_server_refuses_streams_over_its_limit_and_takes_the_next_one_when_one_has_ended() {
    let mut peer = Peer::of_server(Config { streams_max: 2, ..Config::default() });
    peer.requests(1, false);
    peer.requests(3, true);
    let indexed = [request(), pairs(&[("x-indexed", "by the refused one")])].concat();
    peer.sends(headers(5, indexed.clone()));
    peer.expects(reset(5, ErrorCode::RefusedStream));
    peer.sends(last_data(5, "on its way already"));
    peer.expects_silence();
    peer.answers(3, &ok(), true);
    peer.takes_frames();
    peer.takes_events();
    peer.sends(headers(7, indexed.clone()));
    peer.expects_event(Happened::Headers { id: 7, fields: indexed, end: false });
}

#[test]
fn a_stream_that_ended_and_was_turned_away_takes_nothing_more() {
    for (list, code) in [(request(), ErrorCode::RefusedStream), (pairs(&[]), ErrorCode::ProtocolError)] {
        let streams_max = if code == ErrorCode::RefusedStream { 0 } else { 1 };
        let mut peer = Peer::of_server(Config { streams_max, ..Config::default() });
        peer.sends(last_headers(1, list));
        peer.expects(reset(1, code));
        peer.sends(data(1, "behind the end"));
        peer.expects_connection_error(ErrorCode::StreamClosed);
    }
}

#[test]
fn r38_a_slot_is_free_with_the_frame_that_ends_its_stream() {
    let mut peer = Peer::of_server(Config { streams_max: 1, ..Config::default() });
    let mut id = 1;
    for _ in 0..300 {
        peer.requests(id, true);
        peer.answers(id, &ok(), true);
        peer.expects(last_headers(id, ok()));
        peer.expects_event(Happened::Closed(id));
        peer.sends_at_once([
            headers(id + 2, request()),
            reset(id + 2, ErrorCode::Cancel),
            last_headers(id + 4, request()),
        ]);
        let events = peer.takes_events();
        assert_eq!(events.len(), 3, "{events:?}");
        peer.answers(id + 4, &ok(), true);
        peer.expects(last_headers(id + 4, ok()));
        peer.expects_event(Happened::Closed(id + 4));
        id += 6;
    }
}

#[test]
fn verbs_on_streams_that_have_gone_or_ended_say_so() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    let key = peer.key(1);
    peer.answers(1, &ok(), true);
    peer.takes_frames();
    peer.act(|server, env| {
        assert_eq!(server.send_data(env, key, b"x", false), Err(SendError::Gone));
        assert_eq!(server.send_headers(env, key, fields(&trailers()), true), Err(SendError::Gone));
        assert_eq!(server.begin_data(env, key, 1, false), Err(SendError::Gone));
        assert_eq!((server.credit(env, key), server.may_queue(key)), (0, 0));
        assert_eq!(server.stream_id(key), Some(1));
    });
    peer.sends(reset(1, ErrorCode::Cancel));
    peer.act(|server, env| {
        assert_eq!(server.send_data(env, key, b"x", false), Err(SendError::Gone));
        server.release(env, key, 10);
        server.reset(env, key, ErrorCode::Cancel);
        server.reset_after_end(env, key, ErrorCode::NoError);
        server.set_user(key, 7);
        assert_eq!((server.stream_id(key), server.user(key)), (None, None));
    });
    assert_eq!(peer.next_frame(), None);
}

#[test]
fn a_stream_that_goes_before_its_room_is_told_is_not_told_of() {
    use fulmar_base::{Env, Input};

    let mut peer = Peer::silent(fulmar_http2::Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, b"waits", false);
    let (key, update) = (peer.key(1), peer.encode(window_update(1, 100)));
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    assert_eq!(peer.engine.next_event(&mut env, &Input::new(&update)), Ok(None));
    peer.engine.transmit(&mut env);
    assert!(peer.engine.has_events());
    peer.engine.reset(&mut env, key, ErrorCode::Cancel);
    assert_eq!(peer.engine.next_event(&mut env, &Input::new(b"")), Ok(None));
}

#[test]
fn a_key_is_never_mistaken_for_that_of_a_later_stream() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    let old = peer.key(1);
    peer.sends(reset(1, ErrorCode::Cancel));
    peer.takes_events();
    peer.requests(3, false);
    assert_ne!(old, peer.key(3));
    peer.act(|server, env| server.reset(env, old, ErrorCode::Cancel));
    peer.expects_silence();
    assert_eq!(peer.engine.streams(), 1);
}

#[test]
fn what_the_user_stores_comes_back_with_the_last_event_of_the_stream() {
    use fulmar_base::{Env, Input};
    use fulmar_http2::Event;

    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    let key = peer.key(1);
    peer.engine.set_user(key, 77);
    assert_eq!(peer.engine.user(key), Some(77));
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    peer.engine.send_headers(&mut env, key, fields(&ok()), true).unwrap();
    assert_eq!(peer.engine.user(key), Some(77), "until the event is delivered");
    let event = peer.engine.next_event(&mut env, &Input::new(b"")).unwrap();
    assert_eq!(event, Some(Event::Closed { stream: key, user: 77 }));
}

#[test]
fn a_stream_that_both_ends_have_ended_may_be_forgotten_before_its_event() {
    use fulmar_base::{Env, Input};

    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.requests(3, true);
    let key = peer.key(1);
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    assert!(!peer.engine.forget(&mut env, key), "this end goes on");
    peer.engine.send_headers(&mut env, key, fields(&ok()), true).unwrap();
    assert!(peer.engine.forget(&mut env, key) && !peer.engine.forget(&mut env, key));
    assert_eq!((peer.engine.streams(), peer.engine.user(key)), (1, None));
    assert!(!peer.engine.has_events());
    assert_eq!(peer.engine.next_event(&mut env, &Input::new(b"")).unwrap(), None);
}
