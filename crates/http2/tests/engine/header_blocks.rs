//! Header blocks in several frames, over limits, and undecodable (RFC 9113 §4.3, §6.10).

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode, Field, Role};

use crate::support::*;

/// Sends a request in pieces: HEADERS, then CONTINUATION.
fn sends_in_pieces(peer: &mut Peer, id: u32, block: &[u8], piece: usize, end: bool) {
    let pieces: Vec<_> = block.chunks(piece).collect();
    for (n, part) in pieces.iter().enumerate() {
        let last = if n + 1 == pieces.len() { END_HEADERS } else { 0 };
        match n {
            0 => peer.sends(raw(1, last | u8::from(end), id, part)),
            _ => peer.sends(raw(9, last, id, part)),
        }
    }
}

#[test]
fn a_header_block_may_come_in_any_number_of_frames() {
    for piece in [1, 2, 7, 1_000] {
        let mut peer = Peer::of_server(Config::default());
        let block = peer.encode_block(&request());
        sends_in_pieces(&mut peer, 1, &block, piece, true);
        peer.expects_event(Happened::Headers { id: 1, fields: request(), end: true });
        peer.expects_silence();
        assert_eq!(peer.pool.outstanding(), 0);
        assert_eq!(peer.engine.next_deadline(), None);
    }
}

#[test]
fn trailers_may_come_in_pieces_too_and_empty_pieces_count_for_nothing() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    let block = peer.encode_block(&trailers());
    peer.sends(raw(1, END_STREAM, 1, ""));
    peer.sends(raw(9, 0, 1, ""));
    peer.sends(raw(9, 0, 1, &block));
    peer.sends(raw(9, END_HEADERS, 1, ""));
    peer.expects_event(Happened::Headers { id: 1, fields: trailers(), end: true });
}

#[test]
fn nothing_may_come_between_the_parts() {
    for between in [
        data(1, "x"),
        headers(3, request()),
        raw(2, 0, 1, b"\0\0\0\0\x10"),
        reset(1, ErrorCode::Cancel),
        Frame::Settings(vec![]),
        Frame::Ping([0; 8]),
        Frame::GoAway { last_id: 0, code: ErrorCode::NoError, debug: String::new() },
        window_update(0, 1),
        raw(9, END_HEADERS, 3, ""),
        raw(0xfe, 0, 0, ""),
    ] {
        let mut peer = Peer::of_server(Config::default());
        let block = peer.encode_block(&request());
        peer.sends(raw(1, 0, 1, &block[..2]));
        peer.sends(between);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
}

#[test]
fn a_continuation_without_a_block_is_a_connection_error() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.sends(raw(9, END_HEADERS, 1, ""));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn a_block_that_cannot_be_decoded_ends_the_connection() {
    for block in
        [&b"\xff\xff\xff\xff\xff\xff"[..], b"\x80", b"\xbe", b"\x82\x20", b"\x3f\xe2\x1f", b"\x40\x01"]
    {
        let mut peer = Peer::of_server(Config::default());
        peer.sends(raw(1, END_HEADERS, 1, block));
        peer.expects_connection_error(ErrorCode::CompressionError);
    }
}

#[test]
fn a_block_without_end_is_bounded_in_bytes() {
    let mut peer = Peer::of_server(Config { header_block_bytes_max: 20_000, ..Config::default() });
    peer.sends(raw(1, 0, 1, vec![0; 16_384]));
    peer.sends(raw(9, 0, 1, vec![0; 3_616]));
    assert_eq!(peer.error, None);
    peer.sends(raw(9, 0, 1, vec![0; 1]));
    assert!(peer.error.as_ref().unwrap().text.starts_with("header_block_bytes_max"));
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_block_without_end_is_bounded_in_frames() {
    let mut peer = Peer::of_server(Config { continuations_max: 3, ..Config::default() });
    peer.sends(raw(1, 0, 1, ""));
    (0..3).for_each(|_| peer.sends(raw(9, 0, 1, "")));
    assert_eq!(peer.error, None);
    peer.sends(raw(9, 0, 1, ""));
    assert!(peer.error.as_ref().unwrap().text.starts_with("continuations_max"));
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_block_without_end_is_bounded_in_time() {
    let mut peer = Peer::of_server(Config { header_block_ms: 500, ..Config::default() });
    peer.sends(raw(1, 0, 1, ""));
    peer.waits(Duration::from_millis(499));
    peer.sends(raw(9, 0, 1, ""));
    assert_eq!(peer.error, None);
    peer.waits(Duration::from_millis(1));
    assert!(peer.error.as_ref().unwrap().text.starts_with("header_block_ms"));
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn r28_a_request_over_the_list_limit_is_answered_431_and_the_tables_stay_in_step() {
    for end in [true, false] {
        let mut peer = Peer::of_server(Config { header_list_bytes_max: 8_192, ..Config::default() });
        let indexed = [request(), pairs(&[("x-indexed", "early")])].concat();
        let value = "v".repeat(9 * 1_024);
        let large = [indexed.clone(), pairs(&[("x-large", &value)])].concat();
        peer.sends(Frame::Headers { id: 1, fields: large, end });
        peer.expects(last_headers(1, pairs(&[(":status", "431")])));
        if !end {
            peer.expects(reset(1, ErrorCode::NoError));
            peer.sends(last_data(1, "on its way already"));
        }
        peer.expects_silence();
        peer.sends(last_headers(3, indexed.clone()));
        peer.expects_event(Happened::Headers { id: 3, fields: indexed, end: true });
    }
}

#[test]
fn r28_the_upper_layer_may_say_what_a_request_over_the_limit_is_answered() {
    const ANSWER: &[Field<'static>] = &[Field::new(b":status", b"431"), Field::new(b"who", b"the server")];
    let size: usize = request().iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    let why = format!("a header list of {size} bytes, at most 100 are taken: header_list_bytes_max");
    let whole = pairs(&[(":status", "431"), ("who", "the server"), ("why", &why)]);
    for (peer_list_bytes_max, answer) in [(1_000, whole), (150, pairs(&[(":status", "431")]))] {
        let mut peer = Peer::of_server(Config { header_list_bytes_max: 100, ..Config::default() });
        peer.engine.answer_too_large_with(ANSWER, b"why");
        peer.sends(Frame::Settings(vec![(MAX_HEADER_LIST_SIZE, peer_list_bytes_max)]));
        peer.expects(Frame::SettingsAck);
        peer.sends(last_headers(1, request()));
        peer.expects(last_headers(1, answer));
        peer.expects_silence();
    }
}

#[test]
fn a_list_at_the_limit_passes_and_a_byte_more_does_not() {
    let size: usize = request().iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    let mut peer = Peer::of_server(Config { header_list_bytes_max: size as u32 + 34, ..Config::default() });
    let with = |value: &str| [request(), pairs(&[("a", value)])].concat();
    peer.sends(last_headers(1, with("b")));
    peer.expects_event(Happened::Headers { id: 1, fields: with("b"), end: true });
    peer.sends(last_headers(3, with("bc")));
    peer.expects(last_headers(3, pairs(&[(":status", "431")])));
    peer.expects_silence();
}

#[test]
fn too_many_fields_are_treated_like_a_list_that_is_too_large() {
    let mut peer = Peer::of_server(Config { header_fields_max: 5, ..Config::default() });
    let with = |n| [request(), vec![("a".to_owned(), "b".to_owned()); n]].concat();
    peer.sends(last_headers(1, with(1)));
    peer.expects_event(Happened::Headers { id: 1, fields: with(1), end: true });
    peer.sends(last_headers(3, with(2)));
    peer.expects(last_headers(3, pairs(&[(":status", "431")])));
}

#[test]
fn trailers_and_responses_over_the_limit_end_their_stream_only() {
    let code = ErrorCode::EnhanceYourCalm;
    let large = pairs(&[("x", &"v".repeat(20_000))]);
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    let block = peer.encode_block(&large);
    sends_in_pieces(&mut peer, 1, &block, 16_000, true);
    peer.expects(reset(1, code));
    peer.expects_event(Happened::Reset { id: 1, code, unprocessed: false });
    peer.requests(3, true);

    let mut peer = Peer::of_client(Config::default());
    let id = peer.is_requested(true);
    let block = peer.encode_block(&[ok(), large].concat());
    sends_in_pieces(&mut peer, id, &block, 16_000, false);
    peer.expects(reset(id, code));
    peer.expects_event(Happened::Reset { id, code, unprocessed: false });
    assert_eq!(peer.is_requested(true), 3);
}

#[test]
fn r29_header_blocks_for_dead_streams_still_change_the_table() {
    let mut peer = Peer::of_client(Config::default());
    let first = peer.is_requested(true);
    let key = peer.key(first);
    peer.act(|client, env| client.reset(env, key, ErrorCode::Cancel));
    peer.expects(reset(first, ErrorCode::Cancel));
    let head = [ok(), pairs(&[("x-one", "1")])].concat();
    let end = pairs(&[("x-two", "2")]);
    peer.sends(headers(first, head.clone()));
    peer.sends(last_headers(first, end.clone()));
    peer.expects_silence();
    let second = peer.is_requested(true);
    peer.sends(headers(second, head.clone()));
    peer.sends(last_headers(second, end.clone()));
    peer.expects_event(Happened::Headers { id: second, fields: head, end: false });
    peer.expects_event(Happened::Headers { id: second, fields: end, end: true });
    peer.expects_event(Happened::Closed(second));
}

#[test]
fn large_header_lists_of_ours_are_continued_where_the_peer_takes_no_larger_frame() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    let value = "~".repeat(50_000);
    let large = [ok(), pairs(&[("x-large", &value)])].concat();
    peer.answers(1, &large, true);
    let wire = peer.takes_wire();
    let mut rest = &wire[..];
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        assert!(length <= 16_384);
        kinds.push((rest[3], rest[4]));
        rest = &rest[9 + length..];
    }
    assert_eq!(kinds.first(), Some(&(1, END_STREAM)));
    assert_eq!(kinds.last(), Some(&(9, END_HEADERS)));
    assert!(kinds[1..kinds.len() - 1].iter().all(|&kind| kind == (9, 0)));

    // And they read as what they were.
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[]);
    peer.requests(1, true);
    peer.answers(1, &large, true);
    peer.expects(last_headers(1, large));
}

#[test]
fn sections_that_repeat_are_what_they_were_whatever_the_table_does_between() {
    let mut peer = Peer::of_server(Config::default());
    let with = |name: &str, value: &str| [request(), pairs(&[(name, value)])].concat();
    let mut id = 1;
    let mut comes = |peer: &mut Peer, list: Pairs, end: bool| {
        peer.sends(if end { last_headers(id, list.clone()) } else { headers(id, list.clone()) });
        peer.expects_event(Happened::Headers { id, fields: list, end });
        id += 2;
    };
    for round in 0..4 {
        // The same bytes three times, so that they are known; then the table changes, and the same bytes mean something else.
        for _ in 0..3 {
            comes(&mut peer, with("x-round", &format!("{round}")), true);
            comes(&mut peer, request(), false);
        }
    }
    // Entries pass by until those of the first rounds are gone.
    for round in 0..100 {
        for _ in 0..3 {
            comes(&mut peer, with("x-large", &format!("{round:0200}")), true);
        }
    }
}

#[test]
fn a_section_known_as_trailers_is_no_request_and_the_other_way_round() {
    let mut peer = Peer::of_server(Config::default());
    for id in [1, 3, 5] {
        peer.requests(id, false);
        peer.sends(last_headers(id, trailers()));
        peer.expects_event(Happened::Headers { id, fields: trailers(), end: true });
    }
    peer.sends(last_headers(7, trailers()));
    peer.expects(reset(7, ErrorCode::ProtocolError));
    peer.requests(9, false);
    peer.sends(last_headers(9, request()));
    peer.expects(reset(9, ErrorCode::ProtocolError));
}

#[test]
fn a_known_section_with_a_size_update_owed_is_refused_all_the_same() {
    let mut peer = Peer::silent(Role::Server, Config { header_table_bytes_max: 0, ..Config::default() });
    peer.sends_bytes(PREFACE);
    peer.sends(Frame::Settings(vec![]));
    let block = [0x83, 0x84, 0x86];
    for id in [1, 3, 5] {
        peer.sends(raw(1, END_HEADERS | END_STREAM, id, block));
    }
    let begun = |happened: &Happened| matches!(happened, Happened::Headers { .. });
    assert_eq!(peer.takes_events().iter().filter(|happened| begun(happened)).count(), 3);
    // From here on the table must be empty, which the peer's next block has to say.
    peer.sends(Frame::SettingsAck);
    peer.takes_frames();
    peer.sends(raw(1, END_HEADERS | END_STREAM, 7, block));
    peer.expects_connection_error(ErrorCode::CompressionError);
}
