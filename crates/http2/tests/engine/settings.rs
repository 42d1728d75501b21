//! Prefaces and SETTINGS (RFC 9113 §3.4, §6.5).

use std::time::Duration;

use fulmar_http2::{Config, ErrorCode, OpenError, Role, SendError};

use crate::support::*;

#[test]
fn a_server_says_its_limits_first_and_a_client_the_preface_before() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    let limits =
        [(MAX_CONCURRENT_STREAMS, 1_000), (INITIAL_WINDOW_SIZE, 65_536), (MAX_HEADER_LIST_SIZE, 16_384)];
    peer.expects(Frame::Settings(limits.to_vec()));
    peer.expects(window_update(0, 1024 * 1024 - 65_535));
    peer.expects_silence();

    let mut peer = Peer::silent(Role::Client, Config::default());
    assert_eq!(peer.takes_bytes(PREFACE.len()), PREFACE);
    let limits = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, 65_536), (MAX_HEADER_LIST_SIZE, 16_384)];
    peer.expects(Frame::Settings(limits.to_vec()));
    peer.expects(window_update(0, 1024 * 1024 - 65_535));
    peer.expects_silence();
}

#[test]
fn limits_out_of_the_bounds_of_the_protocol_are_brought_within() {
    let config = Config {
        stream_window_bytes: u32::MAX,
        connection_window_bytes: 1,
        frame_bytes_max: 1,
        frame_bytes_sent_max: u32::MAX,
        ..Config::default()
    };
    let peer = Peer::of_server(config);
    let config = peer.engine.config();
    assert_eq!(config.stream_window_bytes, (1 << 31) - 1);
    assert_eq!(config.connection_window_bytes, 65_535);
    assert_eq!((config.frame_bytes_max, config.frame_bytes_sent_max), (16_384, (1 << 24) - 1));
}

#[test]
fn a_preface_in_single_bytes_works_and_a_wrong_byte_anywhere_does_not() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.chunk = 1;
    peer.takes_frames();
    peer.sends_bytes(PREFACE);
    peer.sends(Frame::Settings(vec![]));
    peer.expects(Frame::SettingsAck);
    peer.expects_event(Happened::Ready);

    for wrong in 0..PREFACE.len() {
        let mut peer = Peer::silent(Role::Server, Config::default());
        let mut preface = PREFACE.to_vec();
        preface[wrong] ^= 0x20;
        // The error is found before the rest arrives.
        peer.sends_bytes(&preface[..=wrong]);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
}

#[test]
fn other_protocols_are_told_apart_from_their_first_bytes() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0"] {
        let mut peer = Peer::silent(Role::Server, Config::default());
        peer.sends_bytes(bytes);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
}

#[test]
fn the_first_frame_must_be_settings_and_no_acknowledgement() {
    for frame in [Frame::Ping([0; 8]), Frame::SettingsAck, window_update(0, 1), headers(1, request())] {
        let mut peer = Peer::silent(Role::Server, Config::default());
        peer.sends_bytes(PREFACE);
        peer.sends(frame.clone());
        peer.expects_connection_error(ErrorCode::ProtocolError);

        let mut peer = Peer::silent(Role::Client, Config::default());
        peer.takes_bytes(PREFACE.len());
        peer.sends(frame);
        peer.expects_connection_error(ErrorCode::ProtocolError);
    }
}

#[test]
fn a_preface_that_never_comes_ends_the_connection_in_time() {
    for sent in [&b""[..], &PREFACE[..20], PREFACE] {
        // A peer that does not speak acknowledges nothing either, for which it has more time here.
        let mut peer = Peer::silent(Role::Server, Config { settings_ack_ms: 20_000, ..Config::default() });
        peer.sends_bytes(sent);
        assert_eq!(peer.engine.next_deadline(), Some(peer.now + Duration::from_secs(10)));
        peer.waits(Duration::from_millis(9_999));
        assert_eq!(peer.error, None);
        peer.waits(Duration::from_millis(1));
        assert!(peer.error.as_ref().is_some_and(|error| error.text.starts_with("preface_ms")));
        peer.expects_connection_error(ErrorCode::SettingsTimeout);
        assert_eq!(peer.engine.next_deadline(), None);
    }
}

#[test]
fn settings_that_are_never_acknowledged_end_the_connection_in_time() {
    let mut peer = Peer::silent(Role::Server, Config { settings_ack_ms: 3_000, ..Config::default() });
    peer.sends_bytes(PREFACE);
    peer.sends(Frame::Settings(vec![]));
    peer.waits(Duration::from_millis(2_999));
    assert_eq!(peer.error, None);
    peer.waits(Duration::from_millis(1));
    peer.expects_connection_error(ErrorCode::SettingsTimeout);
}

#[test]
fn a_finished_handshake_leaves_no_deadline() {
    assert_eq!(Peer::of_server(Config::default()).engine.next_deadline(), None);
    assert_eq!(Peer::of_client(Config::default()).engine.next_deadline(), None);
}

#[test]
fn every_settings_frame_is_acknowledged_and_unknown_settings_are_ignored() {
    let mut peer = Peer::of_server(Config::default());
    peer.sends(Frame::Settings(vec![(0xff, 1), (0, 0), (8, 1), (9, 1)]));
    peer.expects(Frame::SettingsAck);
    peer.sends(Frame::Settings(vec![]));
    peer.expects(Frame::SettingsAck);
    peer.sends(Frame::SettingsAck);
    peer.expects_silence();
}

#[test]
fn values_that_no_setting_may_have_are_connection_errors() {
    for (setting, value, code) in [
        (ENABLE_PUSH, 2, ErrorCode::ProtocolError),
        (INITIAL_WINDOW_SIZE, 1 << 31, ErrorCode::FlowControlError),
        (MAX_FRAME_SIZE, 16_383, ErrorCode::ProtocolError),
        (MAX_FRAME_SIZE, 1 << 24, ErrorCode::ProtocolError),
    ] {
        let mut peer = Peer::of_server(Config::default());
        peer.sends(Frame::Settings(vec![(setting, value)]));
        peer.expects_connection_error(code);
    }
    // A server may not even mention push to a client but to turn it off.
    let mut peer = Peer::of_client(Config::default());
    peer.sends(Frame::Settings(vec![(ENABLE_PUSH, 0)]));
    peer.expects(Frame::SettingsAck);
    peer.sends(Frame::Settings(vec![(ENABLE_PUSH, 1)]));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn frames_are_as_large_as_the_peer_takes_and_not_larger() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(MAX_FRAME_SIZE, 20_000), (INITIAL_WINDOW_SIZE, 1 << 20)]);
    assert_eq!(peer.engine.max_frame(), 20_000);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.answers_data(1, &[7; 50_000], true);
    peer.expects(headers(1, ok()));
    peer.expects(data(1, [7; 20_000]));
    peer.expects(data(1, [7; 20_000]));
    peer.expects(last_data(1, [7; 10_000]));
    peer.sends(Frame::Settings(vec![(MAX_FRAME_SIZE, (1 << 24) - 1)]));
    assert_eq!(peer.engine.max_frame(), 64 * 1024);
}

#[test]
fn a_client_opens_as_many_streams_as_the_server_allows_at_that_moment() {
    let mut peer = Peer::silent(Role::Client, Config { streams_assumed: 2, ..Config::default() });
    peer.takes_wire();
    let open = |peer: &mut Peer| {
        let key = peer.act(|client, env| client.open(env, fields(&request()), true))?;
        Ok(peer.learn(key))
    };
    assert_eq!((open(&mut peer), open(&mut peer)), (Ok(1), Ok(3)));
    assert_eq!(open(&mut peer), Err(OpenError::LimitReached));

    peer.sends(Frame::Settings(vec![(MAX_CONCURRENT_STREAMS, 3)]));
    peer.expects_event(Happened::Ready);
    peer.expects_event(Happened::StreamSlotFree);
    assert_eq!(open(&mut peer), Ok(5));
    assert_eq!(open(&mut peer), Err(OpenError::LimitReached));

    // A lower limit leaves open streams alone, and holds from now on.
    peer.sends(Frame::Settings(vec![(MAX_CONCURRENT_STREAMS, 1)]));
    peer.sends(last_headers(1, ok()));
    peer.sends(last_headers(3, ok()));
    assert_eq!(open(&mut peer), Err(OpenError::LimitReached));
    peer.takes_events();
    peer.sends(last_headers(5, ok()));
    let events = peer.takes_events();
    assert_eq!(events[1..], [Happened::Closed(5), Happened::StreamSlotFree]);
    assert_eq!(open(&mut peer), Ok(7));

    peer.sends(Frame::Settings(vec![(MAX_CONCURRENT_STREAMS, 0)]));
    peer.sends(last_headers(7, ok()));
    assert_eq!(open(&mut peer), Err(OpenError::LimitReached));
    peer.takes_events();
    peer.sends(Frame::Settings(vec![(MAX_CONCURRENT_STREAMS, 1)]));
    peer.expects_event(Happened::Ready);
    peer.expects_event(Happened::StreamSlotFree);
    assert_eq!(open(&mut peer), Ok(9));
}

#[test]
fn a_header_list_above_what_the_peer_takes_is_refused_here() {
    let mut peer = Peer::silent(Role::Client, Config::default());
    let size: usize = request().iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    peer.shakes_hands(&[(MAX_HEADER_LIST_SIZE, size as u32)]);
    let id = peer.is_requested(false);
    let large = [request(), pairs(&[("a", "b")])].concat();
    let opened = peer.act(|client, env| client.open(env, fields(&large), true));
    assert_eq!(opened, Err(OpenError::HeadersTooLarge { size: size + 34, limit: size }));
    let key = peer.key(id);
    let sent = peer.act(|client, env| client.send_headers(env, key, fields(&large), true));
    assert_eq!(sent, Err(SendError::HeadersTooLarge { size: size + 34, limit: size }));
    peer.expects_silence();
    // The refused request has taken no id and left no trace in the compression table.
    assert_eq!(peer.is_requested(true), 3);
}

#[test]
fn the_peers_table_size_binds_the_encoder_before_the_next_block() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, true);
    peer.answers(1, &[ok(), pairs(&[("server", "first")])].concat(), true);
    peer.takes_frames();
    peer.sends(Frame::Settings(vec![(HEADER_TABLE_SIZE, 0)]));
    peer.expects(Frame::SettingsAck);
    peer.takes_events();
    peer.requests(3, true);
    peer.answers(3, &ok(), true);
    let (kind, _, _, block) = peer.next_raw().unwrap();
    assert_eq!((kind, block[0]), (1, 0x20), "a block that begins with a table size update to 0");
}

#[test]
fn our_table_size_binds_the_peer_once_it_has_acknowledged_it() {
    // A smaller table: the next block has to begin with an update of its size.
    let mut peer = Peer::of_server(Config { header_table_bytes_max: 0, ..Config::default() });
    peer.sends(last_headers(1, request()));
    peer.expects_connection_error(ErrorCode::CompressionError);

    // A larger one: updates up to 8,192 are legal from now on (0x3f 0xe1 0x3f), and one more is not.
    let larger = Config { header_table_bytes_max: 8_192, ..Config::default() };
    for (update, legal) in [(b"\x3f\xe1\x3f", true), (b"\x3f\xe2\x3f", false)] {
        let mut peer = Peer::of_server(larger.clone());
        let block = [&update[..], &peer.encode_block(&request())].concat();
        peer.sends(raw(1, END_HEADERS | END_STREAM, 1, block));
        assert_eq!(peer.error.is_none(), legal);
    }
}
