//! Requests, responses, trailers, and malformed ones (RFC 9113 §8).

use fulmar_http2::{Config, ErrorCode, SendError};

use crate::support::*;

fn malformed(id: u32) -> Happened {
    Happened::Reset { id, code: ErrorCode::ProtocolError, unprocessed: false }
}

#[test]
fn a_request_with_content_and_trailers_is_delivered_in_order() {
    let mut peer = Peer::of_server(Config::default());
    peer.sends_at_once([headers(1, request()), data(1, "con"), data(1, "tent"), last_headers(1, trailers())]);
    peer.expects_event(Happened::Headers { id: 1, fields: request(), end: false });
    peer.expects_event(Happened::Data { id: 1, bytes: b"con".to_vec(), end: false });
    peer.expects_event(Happened::Data { id: 1, bytes: b"tent".to_vec(), end: false });
    peer.expects_event(Happened::Headers { id: 1, fields: trailers(), end: true });
    peer.expects_silence();
}

#[test]
fn a_response_may_follow_interim_ones() {
    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(true);
    let interim = pairs(&[(":status", "103"), ("link", "x")]);
    peer.sends(headers(id, interim.clone()));
    peer.sends(headers(id, interim.clone()));
    peer.sends(headers(id, ok()));
    peer.sends(data(id, "content"));
    peer.sends(last_headers(id, trailers()));
    for _ in 0..2 {
        peer.expects_event(Happened::Headers { id, fields: interim.clone(), end: false });
    }
    peer.expects_event(Happened::Headers { id, fields: ok(), end: false });
    peer.expects_event(Happened::Data { id, bytes: b"content".to_vec(), end: false });
    peer.expects_event(Happened::Headers { id, fields: trailers(), end: true });
    peer.expects_event(Happened::Closed(id));
    peer.expects_silence();
}

#[test]
fn a_server_may_send_interim_responses_before_the_final_one_and_only_then() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    let interim = pairs(&[(":status", "103")]);
    let key = peer.key(1);
    peer.answers(1, &interim, false);
    peer.answers(1, &interim, false);
    let early = peer.act(|server, env| server.send_data(env, key, b"early", false));
    assert_eq!(early, Err(SendError::Misplaced));
    peer.answers(1, &ok(), false);
    let second = peer.act(|server, env| server.send_headers(env, key, fields(&interim), false));
    assert_eq!(second, Err(SendError::Misplaced));
    peer.answers(1, &trailers(), true);
    for expected in [interim.clone(), interim, ok()] {
        peer.expects(headers(1, expected));
    }
    peer.expects(last_headers(1, trailers()));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn malformed_requests_are_reset_without_an_event_and_the_connection_goes_on() {
    let with = |name: &str, value: &str| [request(), pairs(&[(name, value)])].concat();
    let mut peer = Peer::of_server(Config::default());
    let mut id = 1;
    for list in [
        with("Upper", "case"),
        with("connection", "close"),
        with("te", "gzip"),
        with(":method", "GET"),
        with(":status", "200"),
        with("a", "b\r\nc"),
        with("content-length", "no number"),
        pairs(&[(":method", "GET"), (":path", "/")]),
        pairs(&[(":method", "GET"), (":scheme", "http"), (":path", "")]),
        pairs(&[("a", "b"), (":method", "GET"), (":scheme", "http"), (":path", "/")]),
        pairs(&[]),
    ] {
        peer.sends(headers(id, list));
        peer.expects(reset(id, ErrorCode::ProtocolError));
        peer.sends(last_data(id, "on its way already"));
        peer.expects_silence();
        id += 2;
    }
    assert_eq!(peer.engine.streams(), 0);
    peer.requests(id, true);
}

#[test]
fn malformed_trailers_reset_the_stream() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.sends(last_headers(1, pairs(&[(":status", "200")])));
    peer.expects(reset(1, ErrorCode::ProtocolError));
    peer.expects_event(malformed(1));
    // A second header section that does not end the stream.
    peer.requests(3, false);
    peer.sends(headers(3, trailers()));
    peer.expects(reset(3, ErrorCode::ProtocolError));
    peer.expects_event(malformed(3));
    peer.expects_silence();
}

#[test]
fn malformed_responses_reset_the_stream() {
    for frame in [headers as fn(u32, Pairs) -> Frame, last_headers].into_iter().flat_map(|frame| {
        [
            frame(1, pairs(&[("server", "without status")])),
            frame(1, pairs(&[(":status", "101")])),
            frame(1, pairs(&[(":status", "200"), ("Upper", "case")])),
            last_headers(1, pairs(&[(":status", "103")])),
            data(1, "before the header section"),
        ]
    }) {
        let mut peer = Peer::of_client(Config::default());
        let id = peer.is_requested(false);
        peer.sends(frame);
        peer.expects(reset(id, ErrorCode::ProtocolError));
        peer.expects_event(malformed(id));
        peer.expects_silence();
    }
}

#[test]
fn content_is_exactly_as_long_as_content_length_says() {
    let announced = |length: &str| [request(), pairs(&[("content-length", length)])].concat();
    let mut peer = Peer::of_server(Config::default());
    peer.sends(headers(1, announced("5")));
    peer.sends(data(1, "123"));
    peer.sends(last_data(1, "45"));
    peer.sends(headers(3, announced("5")));
    peer.sends(data(3, "12345"));
    peer.sends(last_headers(3, trailers()));
    assert_eq!(peer.takes_events().len(), 6);
    peer.expects_silence();

    for (id, frames) in [
        (5, vec![data(5, "123456")]),
        (7, vec![data(7, "123"), data(7, "456")]),
        (9, vec![last_data(9, "1234")]),
        (11, vec![data(11, "1234"), last_headers(11, trailers())]),
    ] {
        peer.sends(headers(id, announced("5")));
        frames.into_iter().for_each(|frame| peer.sends(frame));
        peer.expects(reset(id, ErrorCode::ProtocolError));
        assert_eq!(peer.takes_events().pop(), Some(malformed(id)));
    }
    // A request that ends at once can have no content; the application never sees it.
    peer.sends(last_headers(13, announced("1")));
    peer.expects(reset(13, ErrorCode::ProtocolError));
    peer.expects_silence();
}

#[test]
fn requests_that_come_again_and_again_are_each_held_to_the_content_length_of_their_own() {
    let announced = |length: &str| [request(), pairs(&[("content-length", length)])].concat();
    let mut peer = Peer::of_server(Config::default());
    // Whatever the engine remembers of equal sections, it has seen these by then.
    for id in (1..25).step_by(2) {
        let length = id as usize / 2 % 3;
        peer.sends(headers(id, announced(&length.to_string())));
        peer.sends(last_data(id, &"123"[..length]));
        assert_eq!(peer.takes_events().len(), 2, "{id}");
        peer.expects_silence();
    }
    for (id, length, frames) in [
        (25, "2", vec![last_data(25, "1")]),
        (27, "2", vec![data(27, "1"), last_data(27, "23")]),
        (29, "1", vec![data(29, "12")]),
        (31, "2", vec![data(31, "1"), last_headers(31, trailers())]),
        (33, "0", vec![data(33, "1")]),
        (35, "2", vec![raw(0, PADDED | END_STREAM, 35, b"\x01x\0")]),
    ] {
        peer.sends(headers(id, announced(length)));
        frames.into_iter().for_each(|frame| peer.sends(frame));
        peer.expects(reset(id, ErrorCode::ProtocolError));
        assert_eq!(peer.takes_events().pop(), Some(malformed(id)));
    }
    peer.sends(last_headers(37, announced("2")));
    peer.expects(reset(37, ErrorCode::ProtocolError));
    peer.expects_silence();
    peer.sends(last_headers(39, announced("0")));
    peer.expects_event(Happened::Headers { id: 39, fields: announced("0"), end: true });
    peer.expects_silence();
}

#[test]
fn padding_is_no_content() {
    let mut peer = Peer::of_server(Config::default());
    peer.sends(headers(1, [request(), pairs(&[("content-length", "1")])].concat()));
    peer.sends(raw(0, PADDED | END_STREAM, 1, b"\x05x\0\0\0\0\0"));
    peer.takes_events();
    peer.expects_silence();
}

#[test]
fn responses_without_content_may_announce_a_length() {
    let announced = |status| pairs(&[(":status", status), ("content-length", "100")]);
    let head = pairs(&[(":method", "HEAD"), (":scheme", "http"), (":path", "/")]);
    let mut peer = Peer::of_client(Config::default());
    let key = peer.act(|client, env| client.open(env, fields(&head), true)).unwrap();
    peer.learn(key);
    peer.takes_frames();
    peer.sends(last_headers(1, announced("200")));
    peer.expects_event(Happened::Headers { id: 1, fields: announced("200"), end: true });
    peer.expects_event(Happened::Closed(1));

    let id = peer.is_requested(true);
    peer.sends(last_headers(id, announced("304")));
    peer.expects_event(Happened::Headers { id, fields: announced("304"), end: true });
    peer.expects_event(Happened::Closed(id));

    let id = peer.is_requested(true);
    peer.sends(headers(id, announced("204")));
    peer.sends(data(id, "content after all"));
    peer.takes_events();
    peer.expects(reset(id, ErrorCode::ProtocolError));
}

#[test]
fn a_server_may_answer_before_the_request_has_ended_and_want_no_more_of_it() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.answers(1, &ok(), false);
    peer.answers(1, &trailers(), true);
    let key = peer.key(1);
    peer.act(|server, env| server.reset_after_end(env, key, ErrorCode::NoError));
    peer.expects(headers(1, ok()));
    peer.expects(last_headers(1, trailers()));
    peer.expects(reset(1, ErrorCode::NoError));
    peer.expects_event(Happened::Closed(1));
    peer.sends(data(1, "on its way already"));
    peer.sends(last_headers(1, trailers()));
    peer.expects_silence();
}

#[test]
fn an_early_answer_that_waits_for_windows_is_not_cut_by_the_reset_behind_it() {
    let mut peer = Peer::silent(fulmar_http2::Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 4)]);
    peer.requests(1, false);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, b"answer", false);
    peer.answers(1, &trailers(), true);
    let key = peer.key(1);
    peer.act(|server, env| server.reset_after_end(env, key, ErrorCode::NoError));
    peer.expects(headers(1, ok()));
    peer.expects(data(1, "answ"));
    peer.sends(data(1, "discarded"));
    peer.expects_silence();
    peer.sends(window_update(1, 100));
    peer.expects(data(1, "er"));
    peer.expects(last_headers(1, trailers()));
    peer.expects(reset(1, ErrorCode::NoError));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
    assert_eq!(peer.pool.outstanding(), 0);
}

#[test]
fn a_request_that_ends_by_itself_needs_no_reset_behind_the_answer() {
    let mut peer = Peer::silent(fulmar_http2::Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, false);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, b"answer", true);
    let key = peer.key(1);
    peer.act(|server, env| server.reset_after_end(env, key, ErrorCode::NoError));
    peer.sends(last_data(1, "discarded"));
    peer.sends(window_update(1, 100));
    peer.expects(headers(1, ok()));
    peer.expects(last_data(1, "answer"));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn a_client_that_wants_no_more_of_the_response_resets_at_once() {
    let mut peer = Peer::silent(fulmar_http2::Role::Client, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    let id = peer.is_requested(false);
    peer.answers_data(id, b"waits", true);
    let key = peer.key(id);
    peer.act(|client, env| client.reset_after_end(env, key, ErrorCode::Cancel));
    peer.expects(reset(id, ErrorCode::Cancel));
    peer.expects_silence();
    assert_eq!((peer.pool.outstanding(), peer.engine.streams()), (0, 0));
}

#[test]
fn a_reset_of_a_stream_that_has_not_ended_drops_what_waits() {
    let mut peer = Peer::silent(fulmar_http2::Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, false);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, b"never sent", false);
    assert_eq!(peer.pool.outstanding(), 1);
    let key = peer.key(1);
    peer.act(|server, env| server.reset_after_end(env, key, ErrorCode::InternalError));
    peer.expects(headers(1, ok()));
    peer.expects(reset(1, ErrorCode::InternalError));
    peer.expects_silence();
    assert_eq!((peer.pool.outstanding(), peer.engine.streams()), (0, 0));
}
