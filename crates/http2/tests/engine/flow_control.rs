//! Windows in both directions (RFC 9113 §5.2, §6.9).

use fulmar_http2::{Config, ErrorCode, Role};

use crate::support::*;

/// A server under test that has answered stream 1 with a head; the peer's initial window is `window`.
fn server_answering(window: u32) -> Peer {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, window)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.expects(headers(1, ok()));
    peer
}

fn small_windows() -> Config {
    Config { stream_window_bytes: 100, ..untuned() }
}

/// Windows keep their sizes.
fn untuned() -> Config {
    Config { window_bytes_max: 0, ..Config::default() }
}

// What this end sends.

#[test]
fn a_window_of_zero_blocks_data_until_credit_arrives() {
    let mut peer = server_answering(0);
    peer.answers_data(1, b"content", true);
    peer.expects_silence();
    peer.sends(window_update(1, 3));
    peer.expects(data(1, "con"));
    peer.sends(window_update(1, 4));
    peer.expects(last_data(1, "tent"));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn one_byte_windows_let_everything_through_byte_by_byte() {
    let mut peer = server_answering(1);
    peer.answers_data(1, b"slow", false);
    peer.answers(1, &trailers(), true);
    for (sent, byte) in b"slow".iter().enumerate() {
        if sent > 0 {
            peer.sends(window_update(1, 1));
        }
        peer.expects(data(1, [*byte]));
    }
    peer.expects(last_headers(1, trailers()));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn updates_that_arrive_together_are_used_in_one_frame() {
    let mut peer = server_answering(0);
    peer.answers_data(1, &[5; 50], false);
    peer.sends_at_once((0..50).map(|_| window_update(1, 1)));
    peer.expects(data(1, [5; 50]));
    peer.expects_event(Happened::Writable(1));
    peer.expects_silence();
}

#[test]
fn an_end_without_content_needs_no_window() {
    let mut peer = server_answering(0);
    peer.answers_data(1, b"", false);
    peer.answers_data(1, b"", true);
    peer.expects(last_data(1, ""));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn an_end_without_content_waits_behind_content() {
    let mut peer = server_answering(0);
    peer.answers_data(1, b"a", false);
    peer.answers_data(1, b"", true);
    peer.expects_silence();
    peer.sends(window_update(1, 1));
    peer.expects(last_data(1, "a"));
}

#[test]
fn the_window_of_the_connection_binds_all_streams_together() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    for id in [1, 3] {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
        peer.expects(headers(id, ok()));
    }
    peer.answers_data(1, &[1; 65_000], false);
    assert_eq!(peer.takes_data(1).len(), 65_000);
    peer.answers_data(3, &[3; 1_000], false);
    assert_eq!(peer.takes_data(3).len(), 535);
    peer.sends(window_update(3, 1_000));
    peer.expects_silence();
    peer.sends(window_update(0, 465));
    assert_eq!(peer.takes_data(3).len(), 465);
}

#[test]
fn r17_settings_shift_the_windows_of_open_streams_below_zero_and_back() {
    let mut peer = server_answering(65_535);
    peer.sends(window_update(0, 16_777_216));
    peer.answers_data(1, &vec![7; 300_000], false);
    assert_eq!(peer.takes_data(1).len(), 65_535);
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 10)]));
    peer.expects(Frame::SettingsAck);
    for _ in 0..40 {
        peer.sends(window_update(1, 1_000));
    }
    peer.expects_silence();
    peer.sends(window_update(1, 30_000));
    assert_eq!(peer.takes_data(1).len(), 4_475);
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 100_010)]));
    peer.expects(Frame::SettingsAck);
    assert_eq!(peer.takes_data(1).len(), 100_000);
}

#[test]
fn a_stream_whose_turn_was_near_does_not_send_with_a_window_that_went_negative() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 65_635)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    // The connection's window is empty, the stream's is not: the stream is in the queue.
    peer.answers_data(1, &[7; 65_600], false);
    peer.takes_frames();
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 0)]));
    peer.expects(Frame::SettingsAck);
    peer.sends(window_update(0, 1_000));
    peer.expects_silence();
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 65_536)]));
    peer.expects(Frame::SettingsAck);
    peer.expects(data(1, [7]));
}

#[test]
fn r18_the_acknowledgement_of_a_new_window_goes_before_the_data_that_uses_it() {
    let mut peer = server_answering(0);
    peer.answers_data(1, &[7; 100], false);
    for _ in 0..50 {
        peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 0)]));
        peer.expects(Frame::SettingsAck);
    }
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 65_535)]));
    peer.expects(Frame::SettingsAck);
    assert_eq!(peer.takes_data(1).len(), 100);
}

#[test]
fn only_the_last_window_of_a_settings_frame_counts() {
    let mut peer = server_answering(0);
    peer.answers_data(1, &[7; 100], false);
    let values = [100, 0, 65_535, 0, 3];
    peer.sends(Frame::Settings(values.iter().map(|&value| (INITIAL_WINDOW_SIZE, value)).collect()));
    peer.expects(Frame::SettingsAck);
    peer.expects(data(1, [7; 3]));
}

#[test]
fn windows_above_the_largest_are_errors_of_their_scope() {
    let mut peer = server_answering(65_535);
    peer.sends(window_update(1, (1 << 31) - 1));
    peer.expects(reset(1, ErrorCode::FlowControlError));
    peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::FlowControlError, unprocessed: false });
    peer.expects_silence();
    peer.sends(window_update(0, (1 << 31) - 1 - 65_535));
    peer.expects_silence();
    peer.sends(window_update(0, 1));
    peer.expects_connection_error(ErrorCode::FlowControlError);

    let mut peer = server_answering(0);
    peer.sends(window_update(1, (1 << 31) - 1));
    peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, 1)]));
    peer.expects_connection_error(ErrorCode::FlowControlError);
}

#[test]
fn updates_by_zero_are_errors_of_their_scope() {
    let mut peer = server_answering(0);
    peer.sends(window_update(1, 0));
    peer.expects(reset(1, ErrorCode::ProtocolError));
    peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::ProtocolError, unprocessed: false });
    peer.sends(window_update(1, 0));
    peer.expects_silence();
    peer.sends(window_update(0, 0));
    peer.expects_connection_error(ErrorCode::ProtocolError);
}

#[test]
fn credit_says_what_would_leave_at_once() {
    let mut peer = server_answering(100);
    let key = peer.key(1);
    let credit = |peer: &mut Peer| peer.act(|server, env| server.credit(env, key));
    assert_eq!(credit(&mut peer), 100);
    peer.answers_data(1, &[0; 60], false);
    assert_eq!(credit(&mut peer), 40);
    peer.answers_data(1, &[0; 60], false);
    assert_eq!(credit(&mut peer), 0);
    peer.sends(window_update(1, 50));
    assert_eq!(credit(&mut peer), 30);
    assert_eq!(peer.takes_data(1).len(), 120);
}

#[test]
fn begin_data_writes_a_head_only_where_the_whole_frame_may_leave() {
    let mut peer = server_answering(100);
    let key = peer.key(1);
    let begin = |peer: &mut Peer, len: usize, end: bool| {
        peer.act(|server, env| {
            let begun = server.begin_data(env, key, len, end).unwrap();
            if begun {
                env.out.extend_from_slice(&vec![6; len]);
            }
            begun
        })
    };
    assert!(!begin(&mut peer, 101, false));
    assert!(begin(&mut peer, 0, false));
    peer.expects_silence();
    assert!(begin(&mut peer, 60, false));
    peer.expects(data(1, [6; 60]));
    assert!(!begin(&mut peer, 41, false));
    peer.answers_data(1, &[6; 41], false);
    peer.expects(data(1, [6; 40]));
    // One byte waits: nothing may overtake it.
    assert!(!begin(&mut peer, 0, true));
    peer.sends(window_update(1, 1 << 20));
    peer.expects(data(1, [6]));
    assert!(!begin(&mut peer, 16_385, false));
    assert!(begin(&mut peer, 16_384, true));
    peer.expects(last_data(1, [6; 16_384]));
    peer.takes_events();
    peer.expects_silence();
}

#[test]
fn a_full_queue_is_announced_when_half_of_it_is_free_again_and_once() {
    let mut peer = Peer::silent(Role::Server, Config { send_queue_bytes_max: 100, ..Config::default() });
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.expects(headers(1, ok()));
    let key = peer.key(1);
    assert_eq!(peer.engine.may_queue(key), 100);
    peer.answers_data(1, &[0; 80], false);
    assert_eq!(peer.engine.may_queue(key), 20);
    peer.answers_data(1, &[0; 80], false);
    assert_eq!(peer.engine.may_queue(key), 0);
    peer.sends(window_update(1, 109));
    assert_eq!(peer.engine.may_queue(key), 49);
    assert_eq!(peer.takes_events(), []);
    peer.sends(window_update(1, 1));
    peer.expects_event(Happened::Writable(1));
    peer.sends(window_update(1, 10));
    assert_eq!(peer.takes_events(), []);
    // Whoever has ended the stream is not called back to it.
    peer.answers_data(1, &[0; 80], true);
    peer.sends(window_update(1, 1_000));
    peer.expects_event(Happened::Closed(1));
}

// What the peer sends.

#[test]
fn data_beyond_the_window_of_a_stream_resets_it() {
    let mut peer = Peer::of_server(small_windows());
    peer.requests(1, false);
    peer.sends(data(1, [0; 100]));
    peer.sends(data(1, ""));
    peer.takes_events();
    peer.sends(data(1, "x"));
    peer.expects(reset(1, ErrorCode::FlowControlError));
    peer.expects_event(Happened::Reset { id: 1, code: ErrorCode::FlowControlError, unprocessed: false });
    peer.expects_silence();
}

#[test]
fn data_beyond_the_window_of_the_connection_ends_it() {
    // Streams of 64 KiB each, unread; the connection's credit is automatic, so only one read of the engine can exceed it.
    let mut peer = Peer::of_server(Config {
        connection_window_bytes: 65_535,
        frame_bytes_max: 70_000,
        ..Config::default()
    });
    peer.requests(1, false);
    peer.sends(data(1, vec![0; 65_536]));
    peer.expects_connection_error(ErrorCode::FlowControlError);
}

#[test]
fn stream_credit_follows_the_application_and_connection_credit_does_not_wait_for_it() {
    let mut peer = Peer::of_server(Config { connection_window_bytes: 65_535, ..untuned() });
    peer.requests(1, false);
    peer.sends(data(1, [0; 16_382]));
    assert_eq!(peer.next_frame(), None);
    peer.sends(data(1, [0; 2]));
    peer.expects(window_update(0, 16_384));
    peer.releases(1, 16_383);
    assert_eq!(peer.next_frame(), None);
    peer.releases(1, 1);
    peer.expects(window_update(1, 16_384));
}

#[test]
fn more_is_never_credited_than_was_received() {
    let mut peer = Peer::of_server(small_windows());
    peer.requests(1, false);
    peer.releases(1, 1_000);
    peer.sends(data(1, [0; 60]));
    peer.releases(1, 1_000);
    peer.releases(1, 1_000);
    peer.expects(window_update(1, 60));
    assert_eq!(peer.next_frame(), None);
}

#[test]
fn a_stream_that_the_peer_has_ended_needs_no_credit() {
    let mut peer = Peer::of_server(small_windows());
    peer.requests(1, false);
    peer.sends(last_data(1, [0; 90]));
    peer.releases(1, 90);
    assert_eq!(peer.next_frame(), None);
}

#[test]
fn padding_and_its_length_byte_are_credited_without_the_application() {
    let mut peer = Peer::of_server(small_windows());
    peer.requests(1, false);
    // 10 bytes each: the length, three of content, six of padding.
    let padded = raw(0, PADDED, 1, b"\x06abc\0\0\0\0\0\0");
    for _ in 0..3 {
        peer.sends(padded.clone());
    }
    assert_eq!(peer.next_frame(), None);
    peer.sends(padded.clone());
    peer.expects(window_update(1, 28));
    peer.releases(1, 12);
    for _ in 0..2 {
        peer.sends(padded.clone());
    }
    peer.expects(window_update(1, 26));
    assert_eq!(peer.error, None);
}

#[test]
fn r19_data_on_dead_streams_is_credited_to_the_connection() {
    let mut peer = Peer::of_client(Config { connection_window_bytes: 65_535, ..untuned() });
    let (mut sent, mut credited) = (0, 0);
    for _ in 0..200 {
        let id = peer.is_requested(true);
        peer.sends(headers(id, ok()));
        peer.sends(data(id, "one message"));
        let key = peer.key(id);
        peer.act(|client, env| client.reset(env, key, ErrorCode::Cancel));
        peer.sends(data(id, [0; 8_192]));
        sent += 11 + 8_192;
        for frame in peer.takes_frames() {
            match frame {
                Frame::WindowUpdate { id: 0, increment } => credited += increment,
                frame => assert_eq!(frame, reset(id, ErrorCode::Cancel)),
            }
        }
    }
    assert!(sent - credited < 65_535 / 2, "{sent} bytes sent, {credited} credited");
    assert_eq!(peer.error, None);
    assert_eq!(peer.is_requested(true), 401);
}

#[test]
fn r20_streams_that_nobody_reads_stop_no_other() {
    let mut peer = Peer::of_client(Config::default());
    for _ in 0..10 {
        let id = peer.is_requested(true);
        peer.sends(headers(id, ok()));
        for _ in 0..4 {
            peer.sends(data(id, [0; 16_384]));
        }
        peer.takes_frames();
    }
    peer.takes_events();
    for _ in 0..1_000 {
        let id = peer.is_requested(true);
        peer.sends(headers(id, ok()));
        peer.sends(last_data(id, [0; 1_000]));
        assert_eq!(peer.takes_events().pop(), Some(Happened::Closed(id)));
        peer.takes_frames();
    }
}

#[test]
fn until_settings_are_acknowledged_the_larger_of_both_windows_binds_the_peer() {
    let mut peer = Peer::silent(Role::Server, Config { stream_window_bytes: 6, ..untuned() });
    peer.sends_bytes(PREFACE);
    peer.sends(Frame::Settings(vec![]));
    peer.sends(headers(1, request()));
    // The client has not read our SETTINGS: it goes by the 65,535 bytes of the protocol.
    peer.sends(data(1, [0; 1_000]));
    peer.takes_frames();
    peer.sends(Frame::SettingsAck);
    assert_eq!(peer.error, None);
    // Now the window is 6 bytes, of which 1,000 are used.
    peer.releases(1, 1_000);
    peer.expects(window_update(1, 1_000));
    peer.sends(data(1, [0; 6]));
    assert_eq!(peer.next_frame(), None);
    peer.sends(data(1, [0; 1]));
    peer.expects(reset(1, ErrorCode::FlowControlError));
}

#[test]
fn what_is_released_before_settings_are_acknowledged_is_credited_with_the_acknowledgement() {
    let mut peer = Peer::silent(Role::Server, Config { stream_window_bytes: 500, ..Config::default() });
    peer.sends_bytes(PREFACE);
    peer.sends(Frame::Settings(vec![]));
    for id in [1, 3, 5] {
        peer.sends(headers(id, request()));
        peer.sends(data(id, [0; 1_000]));
    }
    peer.releases(1, 1_000);
    peer.releases(3, 100);
    peer.sends(last_data(5, ""));
    peer.releases(5, 1_000);
    peer.takes_frames();
    peer.sends(Frame::SettingsAck);
    peer.expects(window_update(1, 1_000));
    peer.takes_events();
    peer.expects_silence();
}

#[test]
fn a_window_of_six_bytes_moves_a_long_message() {
    let mut peer = Peer::of_server(Config { stream_window_bytes: 6, ..Config::default() });
    peer.requests(1, false);
    let mut window = 6;
    for _ in 0..1_000 {
        peer.sends(data(1, [0; 3]));
        window -= 3;
        peer.releases(1, 3);
        for frame in peer.takes_frames() {
            if let Frame::WindowUpdate { id: 1, increment } = frame {
                window += increment;
            }
        }
        assert!(window >= 3, "the peer is stuck");
    }
    assert_eq!(peer.error, None);
}
