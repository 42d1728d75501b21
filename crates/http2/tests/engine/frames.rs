//! Each type of frame, good and bad (RFC 9113 §4, §6).

use fulmar_http2::{Config, ErrorCode};

use crate::support::*;

/// A server under test with stream 1 open and half-closed by nobody.
fn server_with_stream() -> Peer {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer
}

#[test]
fn frames_that_show_in_their_head_to_be_wrong_end_the_connection_before_their_payload_arrives() {
    let size = ErrorCode::FrameSizeError;
    let protocol = ErrorCode::ProtocolError;
    for (length, kind, flags, id, code) in [
        (16_385, 0, 0, 1, size),
        (16_385, 1, END_HEADERS, 3, size),
        (16_385, 0x77, 0, 1, size),
        (5, 0, 0, 0, protocol),
        (5, 1, END_HEADERS, 0, protocol),
        (5, 2, 0, 0, protocol),
        (4, 3, 0, 0, protocol),
        (3, 3, 0, 1, size),
        (5, 3, 0, 1, size),
        (6, 4, 0, 1, protocol),
        (7, 4, 0, 0, size),
        (6, 4, 1, 0, size),
        (8, 6, 0, 1, protocol),
        (7, 6, 0, 0, size),
        (9, 6, 0, 0, size),
        (8, 7, 0, 1, protocol),
        (7, 7, 0, 0, size),
        (3, 8, 0, 0, size),
        (5, 8, 0, 1, size),
        (5, 9, END_HEADERS, 0, protocol),
        (5, 9, END_HEADERS, 1, protocol),
    ] {
        let mut peer = server_with_stream();
        peer.chunk = 1;
        let head = assemble(kind, flags, id, &vec![0; length]);
        peer.sends_bytes(&head[..9]);
        assert!(peer.error.is_some(), "frame type {kind} of {length} bytes on stream {id}");
        peer.expects_connection_error(code);
    }
}

#[test]
fn padding_is_dropped_and_must_fit_its_frame() {
    let mut peer = server_with_stream();
    peer.sends(raw(0, PADDED, 1, b"\x03abc\0\0\0"));
    peer.expects_event(Happened::Data { id: 1, bytes: b"abc".to_vec(), end: false });
    peer.sends(raw(0, PADDED | END_STREAM, 1, b"\x03\0\0\0"));
    peer.expects_event(Happened::Data { id: 1, bytes: vec![], end: true });

    for (payload, code) in [(&b"\x01"[..], ErrorCode::ProtocolError), (b"", ErrorCode::FrameSizeError)] {
        for kind in [0, 1] {
            let mut peer = server_with_stream();
            peer.sends(raw(kind, PADDED | END_HEADERS, 1, payload));
            peer.expects_connection_error(code);
        }
    }
}

#[test]
fn headers_may_be_padded_and_carry_a_priority() {
    let mut peer = Peer::of_server(Config::default());
    let block = peer.encode_block(&request());
    let payload = [b"\x02\x80\0\0\x05\x10", &block[..], b"\0\0"].concat();
    peer.sends(raw(1, PADDED | PRIORITY | END_HEADERS | END_STREAM, 1, payload));
    peer.expects_event(Happened::Headers { id: 1, fields: request(), end: true });

    peer.sends(raw(1, PRIORITY | END_HEADERS, 3, b"\0\0\0\x01"));
    peer.expects_connection_error(ErrorCode::FrameSizeError);
}

#[test]
fn priorities_are_ignored_but_for_wrong_sizes_and_self_dependency() {
    let mut peer = server_with_stream();
    for id in [1, 3, 5, 99] {
        peer.sends(raw(2, 0, id, b"\0\0\0\x07\x10"));
    }
    peer.expects_silence();
    peer.sends(raw(2, 0, 1, b"\0\0\0\x01\x10"));
    peer.expects(reset(1, ErrorCode::ProtocolError));
    peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::ProtocolError, unprocessed: false });
    peer.requests(3, false);
    peer.sends(raw(2, 0, 3, b"\0\0\0\x01"));
    peer.expects(reset(3, ErrorCode::FrameSizeError));
    peer.expects_event(Happened::Reset { id: 3, code: ErrorCode::FrameSizeError, unprocessed: false });
    // There is no stream to reset.
    peer.sends(raw(2, 0, 5, b"\0\0\0\x05\x10"));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn a_request_that_depends_on_itself_is_reset_and_leaves_the_tables_in_step() {
    let mut peer = Peer::of_server(Config::default());
    let list = [request(), pairs(&[("x-indexed", "by the first")])].concat();
    let block = peer.encode_block(&list);
    let payload = [b"\0\0\0\x01\x10", &block[..]].concat();
    peer.sends(raw(1, PRIORITY | END_HEADERS, 1, payload));
    peer.expects(reset(1, ErrorCode::ProtocolError));
    peer.expects_silence();
    peer.sends(last_headers(3, list.clone()));
    peer.expects_event(Happened::Headers { id: 3, fields: list, end: true });
}

#[test]
fn push_promise_is_refused_by_both_ends() {
    let mut peer = server_with_stream();
    peer.sends(raw(5, END_HEADERS, 1, b"\0\0\0\x02"));
    peer.expects_connection_error(ErrorCode::ProtocolError);
    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(false);
    peer.sends(raw(5, END_HEADERS, id, b"\0\0\0\x02"));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn pings_are_answered_at_once_with_the_same_payload_and_acknowledgements_never_asked_for_ignored() {
    let mut peer = server_with_stream();
    peer.sends(Frame::Ping(*b"whoareu?"));
    peer.expects(Frame::Pong(*b"whoareu?"));
    peer.sends(Frame::Pong(*b"whoareu?"));
    // Flags that PING does not have are ignored.
    peer.sends(raw(6, 0xfe, 0, b"12345678"));
    peer.expects(Frame::Pong(*b"12345678"));
    peer.expects_silence();
}

#[test]
fn the_answer_to_an_own_ping_is_told_once() {
    let mut peer = Peer::of_client(Config::default());
    peer.act(|client, env| client.ping(env, *b"payload1"));
    peer.act(|client, env| client.ping(env, *b"payload2"));
    peer.expects(Frame::Ping(*b"payload1"));
    peer.expects(Frame::Ping(*b"payload2"));
    peer.sends(Frame::Pong(*b"payload2"));
    peer.expects_event(Happened::Pong(*b"payload2"));
    peer.sends(Frame::Pong(*b"payload2"));
    peer.sends(Frame::Pong(*b"payload1"));
    peer.expects_event(Happened::Pong(*b"payload1"));
    peer.expects_silence();
}

#[test]
fn of_many_unanswered_pings_the_last_sixteen_are_remembered() {
    let mut peer = Peer::of_client(Config::default());
    for n in 0..17 {
        peer.act(|client, env| client.ping(env, [n; 8]));
        peer.expects(Frame::Ping([n; 8]));
    }
    peer.sends(Frame::Pong([0; 8]));
    peer.expects_silence();
    for n in (1..17).rev() {
        peer.sends(Frame::Pong([n; 8]));
        peer.expects_event(Happened::Pong([n; 8]));
    }
}

#[test]
fn a_ping_goes_ahead_of_data_that_waits() {
    let mut peer = server_with_stream();
    peer.answers(1, &ok(), false);
    peer.answers_data(1, &[0; 70_000], true);
    peer.expects(headers(1, ok()));
    assert_eq!(peer.takes_data(1).len(), 65_535);
    peer.sends_at_once([Frame::Ping([1; 8]), window_update(0, 10_000), window_update(1, 10_000)]);
    peer.expects(Frame::Pong([1; 8]));
    assert_eq!(peer.takes_data(1).len(), 70_000 - 65_535);
}

#[test]
fn unknown_frames_are_ignored_with_any_flags_on_any_stream() {
    let mut peer = server_with_stream();
    for id in [0, 1, 2, 7] {
        peer.sends(raw(0x0a, 0xff, id, b"whatever"));
        peer.sends(raw(0xff, 0, id, b""));
    }
    peer.expects_silence();
}

#[test]
fn the_reserved_bit_of_stream_ids_and_increments_is_ignored() {
    let mut peer = server_with_stream();
    let mut ping = assemble(6, 0, 0, &[3; 8]);
    ping[5] |= 0x80;
    peer.sends_bytes(&ping);
    peer.expects(Frame::Pong([3; 8]));
    peer.sends(raw(8, 0, 1, 0x8000_0001_u32.to_be_bytes()));
    peer.expects_silence();
}

#[test]
fn frames_on_idle_streams_are_connection_errors() {
    for frame in
        [data(3, "x"), reset(3, ErrorCode::Cancel), window_update(3, 1), data(2, "x"), window_update(2, 1)]
    {
        let mut peer = server_with_stream();
        peer.sends(frame);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
    for frame in
        [data(3, "x"), headers(3, ok()), headers(2, ok()), reset(2, ErrorCode::Cancel), window_update(5, 1)]
    {
        let mut peer = Peer::of_client(Config::default());
        assert_eq!(peer.is_requested(false), 1);
        peer.sends(frame);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
}

#[test]
fn a_frame_may_arrive_in_any_number_of_pieces() {
    let mut peer = Peer::of_server(Config::default());
    peer.chunk = 1;
    peer.requests(1, false);
    peer.sends(data(1, "in pieces"));
    peer.expects_event(Happened::Data { id: 1, bytes: b"in pieces".to_vec(), end: false });
    peer.sends(Frame::Ping([9; 8]));
    peer.expects(Frame::Pong([9; 8]));
    peer.sends(last_headers(1, trailers()));
    peer.expects_event(Happened::Headers { id: 1, fields: trailers(), end: true });
    peer.expects_silence();
}

#[test]
fn garbage_behind_the_handshake_ends_with_an_error_and_never_with_a_panic() {
    // A small generator (xorshift64*) with a seed per round, so that a failing one can be repeated.
    for seed in 1..=300_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        let mut peer = server_with_stream();
        while peer.error.is_none() {
            let length = (next() % 40) as usize;
            let payload: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            peer.sends(raw((next() % 11) as u8, next() as u8, (next() % 6) as u32, payload));
        }
    }
}
