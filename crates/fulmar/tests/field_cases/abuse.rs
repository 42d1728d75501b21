//! R46 to R48: clients that want to hurt. (What floods do to other clients is measured in `tests/floods.rs`, which has its process
//! for itself.)

use std::sync::atomic::Ordering;

use fulmar::Http2Config;

use crate::common::eventually;
use crate::peer::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, Peer,
    REFUSED_STREAM, RST_STREAM, data, frame, headers, literal, message, request, reset_stream, settings,
    window_update,
};
use crate::service::{BIDI, BIG, CS, SLOW, U, serve, serve_with};

/// Sends rounds, which are given the id of a new stream, until the server takes no more or `rounds_max` are sent; then expects
/// GOAWAY with ENHANCE_YOUR_CALM and a debug text that names `limit`.
fn floods(peer: &mut Peer, rounds_max: usize, limit: &str, mut round: impl FnMut(u32) -> Vec<u8>) {
    let mut sent = 0;
    while sent < rounds_max {
        let flight: Vec<Vec<u8>> = (0..1_000).map(|_| round(peer.take_stream())).collect();
        if peer.try_send(&flight).is_err() {
            break;
        }
        sent += flight.len();
    }
    let (_, code, text) = peer.expect_go_away();
    assert_eq!(code, ENHANCE_YOUR_CALM, "{text}");
    assert!(text.starts_with(limit), "{text}");
}

/// A whole request for a handler that sleeps.
fn slow_request(stream: u32) -> Vec<u8> {
    [headers(stream, END_HEADERS, &request(SLOW)), data(stream, END_STREAM, &message(b""))].concat()
}

#[test]
fn r46_rapid_reset_ends_the_connection_and_runs_one_handler_at_a_time() {
    let (server, seen) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    floods(&mut peer, 100_000, "resets_received_budget", |stream| {
        [slow_request(stream), reset_stream(stream, CANCEL)].concat()
    });
    let started = seen.slow_started.load(Ordering::SeqCst);
    // The default of the budget; it refills while the flood lasts.
    assert!((1_000..2_000).contains(&started), "{started} handlers were started");
    assert_eq!(
        seen.slow_most.load(Ordering::SeqCst),
        1,
        "a reset ends the handler before the next frame is read"
    );
    eventually("all handlers end", || seen.slow_cancelled.load(Ordering::SeqCst) == started);
    Peer::connect(server.local_addr().unwrap()).assert_alive();
}

#[test]
fn r46_the_budget_of_resets_is_the_one_configured() {
    let config =
        Http2Config { resets_received_budget: 10, budget_refill_ms: 3_600_000, ..Http2Config::default() };
    let (server, seen) = serve_with(config);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    floods(&mut peer, 1_000, "resets_received_budget", |stream| {
        [slow_request(stream), reset_stream(stream, CANCEL)].concat()
    });
    assert_eq!(
        seen.slow_started.load(Ordering::SeqCst),
        11,
        "ten resets are allowed, and the eleventh is not"
    );
}

#[test]
fn r46_open_handlers_are_bounded_by_the_limit_of_streams_however_resets_are_mixed_in() {
    let config = Http2Config { streams_max: 20, resets_received_budget: u32::MAX, ..Http2Config::default() };
    let (server, seen) = serve_with(config);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for _ in 0..50 {
        let mut flight = Vec::new();
        for _ in 0..10 {
            let streams: Vec<u32> = (0..4).map(|_| peer.take_stream()).collect();
            flight.extend(streams.iter().map(|&stream| slow_request(stream)));
            flight.extend(streams.iter().take(2).map(|&stream| reset_stream(stream, CANCEL)));
        }
        peer.send(&flight);
        let answers = peer.settle();
        assert!(answers.iter().all(|frame| frame.kind == RST_STREAM && frame.u32_at(0) == REFUSED_STREAM));
        let running = seen.slow_started.load(Ordering::SeqCst) - seen.slow_cancelled.load(Ordering::SeqCst);
        assert!(running <= 20, "{running} handlers run");
        assert!(seen.slow_most.load(Ordering::SeqCst) <= 20);
        if running == 20 {
            // Start again, as at the limit nothing more happens.
            peer = Peer::connect(server.local_addr().unwrap());
            eventually("the handlers of a lost connection end", || {
                seen.slow_started.load(Ordering::SeqCst) == seen.slow_cancelled.load(Ordering::SeqCst)
            });
        }
    }
}

/// Ten thousand calls a second, of which one of ten is given up, are an ordinary client with deadlines.
#[test]
fn r46_a_client_that_cancels_one_of_ten_calls_is_left_alone() {
    // Ten times as many are given up as the budget has, and it does not fill by itself.
    let config =
        Http2Config { resets_received_budget: 100, budget_refill_ms: 3_600_000, ..Http2Config::default() };
    let (server, seen) = serve_with(config);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for _ in 0..1_000 {
        let mut flight = Vec::new();
        let given_up = peer.take_stream();
        flight.extend([slow_request(given_up), reset_stream(given_up, CANCEL)]);
        for _ in 0..9 {
            let stream = peer.take_stream();
            flight.extend([
                headers(stream, END_HEADERS, &request(U)),
                data(stream, END_STREAM, &message(b"x")),
            ]);
        }
        peer.send(&flight);
        for _ in 0..9 {
            let end = peer.until(|frame| {
                assert_ne!(frame.kind, GOAWAY, "{frame:?}");
                frame.kind == HEADERS && frame.has(END_STREAM)
            });
            assert_eq!(end.field("grpc-status"), Some("0"));
        }
        peer.send(&[window_update(0, 1_000)]);
    }
    assert_eq!(seen.slow_cancelled.load(Ordering::SeqCst), 1_000);
    peer.assert_alive();
}

/// What makes a server reset a stream on which it has begun to work (CVE-2025-8671).
#[test]
fn r47_resets_that_the_client_provokes_end_the_connection_whatever_provokes_them() {
    type Provocation = fn(u32) -> Vec<u8>;
    let ways: [(&str, Provocation); 8] = [
        ("WINDOW_UPDATE by 0", |id| [slow_request(id), window_update(id, 0)].concat()),
        ("WINDOW_UPDATE above the largest window", |id| {
            [slow_request(id), window_update(id, 0x7fff_ffff)].concat()
        }),
        ("DATA behind END_STREAM", |id| [slow_request(id), data(id, 0, b"more")].concat()),
        ("HEADERS behind END_STREAM", |id| {
            [slow_request(id), headers(id, END_HEADERS | END_STREAM, &literal("late", "trailers"))].concat()
        }),
        ("less content than content-length says", |id| {
            let block = [request(SLOW), literal("content-length", "100")].concat();
            [headers(id, END_HEADERS, &block), data(id, END_STREAM, &message(b""))].concat()
        }),
        ("a header list over the limit", |id| {
            let block = [request(SLOW), literal("x-large", [b'l'; 20_000])].concat();
            let (front, back) = block.split_at(16_000);
            [headers(id, 0, front), crate::peer::continuation(id, END_HEADERS, back)].concat()
        }),
        ("a stream that depends on itself", |id| {
            let priority = [&id.to_be_bytes()[..], &[15]].concat();
            [slow_request(id), frame(crate::peer::PRIORITY, 0, id, &priority)].concat()
        }),
        ("a malformed request", |id| headers(id, END_HEADERS, &literal("UPPER", "case"))),
    ];
    let (server, seen) = serve();
    for (way, provocation) in ways {
        let before = seen.slow_started.load(Ordering::SeqCst);
        let mut peer = Peer::connect(server.local_addr().unwrap());
        floods(&mut peer, 5_000, "resets_provoked_budget", provocation);
        let started = seen.slow_started.load(Ordering::SeqCst) - before;
        assert!(started < 2_000, "{way}: {started} handlers were started");
    }
    assert_eq!(seen.slow_most.load(Ordering::SeqCst), 1, "a stream that was reset has no handler");
    let started = seen.slow_started.load(Ordering::SeqCst);
    eventually("all handlers end", || seen.slow_cancelled.load(Ordering::SeqCst) == started);
    Peer::connect(server.local_addr().unwrap()).assert_alive();
}

#[test]
fn r47_streams_that_are_refused_count_as_well() {
    let (server, seen) = serve_with(Http2Config { streams_max: 5, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    floods(&mut peer, 5_000, "resets_provoked_budget", slow_request);
    assert_eq!(seen.slow_started.load(Ordering::SeqCst), 5);
    eventually("all handlers end", || seen.slow_cancelled.load(Ordering::SeqCst) == 5);
}

#[test]
fn r47_resets_provoked_while_the_server_shuts_down_count_as_well() {
    // The peer does not answer the PING, after which its new streams would be unprocessed, and may be slow.
    let patient = Http2Config { drain_ms: 60_000, drain_idle_ms: 60_000, ..Http2Config::default() };
    let (server, seen) = serve_with(patient);
    let mut peer = Peer::connect(server.local_addr().unwrap());
    server.handle().shutdown(std::time::Duration::from_secs(60));
    let (_, code, _) = peer.expect_go_away();
    assert_eq!(code, crate::peer::NO_ERROR);
    floods(&mut peer, 5_000, "resets_provoked_budget", |id| {
        [slow_request(id), window_update(id, 0)].concat()
    });
    assert_eq!(seen.slow_most.load(Ordering::SeqCst), 1);
}

#[test]
fn r48_a_settings_frame_with_thousands_of_entries_is_not_worked_through() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for _ in 0..256 {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(BIDI))]);
    }
    let alternating = |entries: usize| -> Vec<(u16, u32)> {
        (0..entries).map(|n| (INITIAL_WINDOW_SIZE, n as u32 % 2)).collect()
    };
    peer.send(&[settings(&alternating(64))]);
    assert_eq!(peer.settle().len(), 1, "an acknowledgement");
    peer.send(&[settings(&alternating(16_384 / 6))]);
    assert!(peer.expect_failure(ENHANCE_YOUR_CALM).starts_with("settings_entries_max"));
}

#[test]
fn r48_credit_by_the_byte_does_not_make_frames_of_a_byte_without_end() {
    let (server, _) = serve();
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(BIG)), data(stream, END_STREAM, &message(b""))]);
    peer.until(|frame| frame.is(HEADERS, stream));
    let dribble = vec![window_update(stream, 1); 30_000];
    // It may end before all of it is written.
    let _ = peer.try_send(&dribble);
    let frames = peer.all_until(|frame| frame.kind == GOAWAY);
    let [tiny @ .., go_away] = &frames[..] else { panic!("no frames") };
    assert_eq!(go_away.u32_at(4), ENHANCE_YOUR_CALM);
    assert!(String::from_utf8_lossy(&go_away.payload).contains("window_updates_budget"));
    assert!(tiny.iter().all(|frame| frame.is(DATA, stream)));
    // Updates that are read together are used together: far fewer frames than updates.
    assert!(tiny.len() < 15_000, "{} frames for 30,000 bytes of credit", tiny.len());
}

#[test]
fn r48_data_by_the_byte_ends_the_connection() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(CS))]);
    let bytes: Vec<Vec<u8>> = message(&[0; 60_000]).chunks(1).map(|byte| data(stream, 0, byte)).collect();
    let _ = peer.try_send(&bytes);
    assert!(peer.expect_failure(ENHANCE_YOUR_CALM).starts_with("tiny_data_budget"));
}
