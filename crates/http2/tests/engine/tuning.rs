//! Bandwidth-delay tuning: windows grow where that makes transfers faster, and nothing is sent where it would not.

use std::time::Duration;

use bytes::Bytes;
use fulmar_base::{Env, Instant};
use fulmar_http2::{Config, Connection, Event, Role, StreamKey};

use crate::path::Path;
use crate::support::*;

const MIB: usize = 1 << 20;
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// No rate at all: only delay.
const FAST: u64 = u64::MAX;

fn untuned() -> Config {
    Config { window_bytes_max: 0, ..Config::default() }
}

/// A server that answers each request with so many bytes.
fn answers(len: usize) -> impl FnMut(&mut Connection, &mut Env<'_>, &Event<'_>) {
    let content = Bytes::from(vec![7; len]);
    move |engine, env, event| {
        if let Event::Headers { stream, .. } = *event {
            engine.send_headers(env, stream, fields(&ok()), false).unwrap();
            engine.send_shared(env, stream, content.clone(), true).unwrap();
        }
    }
}

/// A client that takes everything at once; counts bytes, and the streams that ended.
fn takes<'t>(
    bytes: &'t mut usize,
    ended: &'t mut usize,
) -> impl FnMut(&mut Connection, &mut Env<'_>, &Event<'_>) {
    move |engine, env, event| match *event {
        Event::Data { stream, bytes: content, end } => {
            *bytes += content.len();
            *ended += usize::from(end);
            engine.release(env, stream, content.len());
        }
        Event::Pong { payload } => panic!("the answer to {payload:?}, which the user has not sent"),
        Event::Reset { ref text, .. } => panic!("{text}"),
        _ => {}
    }
}

/// How long the client waits for an answer of so many bytes.
fn download(path: &mut Path, len: usize) -> Duration {
    path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
    let (began, mut received, mut ended) = (path.now, 0, 0);
    let mut server = answers(len);
    while ended == 0 {
        let until = path.now + Duration::from_millis(1);
        path.run(until, &mut takes(&mut received, &mut ended), &mut server);
        assert!(path.now < began + Duration::from_secs(1_000), "{received} of {len} bytes have arrived");
    }
    assert_eq!(received, len);
    path.now.saturating_duration_since(began)
}

#[test]
fn r23_a_large_answer_over_a_long_path_is_many_times_faster_with_tuning() {
    let mut path = Path::new(ROUND_TRIP, FAST, untuned(), Config::default());
    let untuned = download(&mut path, 64 * MIB);
    assert_eq!(path.client.sent.pings, 0);
    // One window each round trip.
    assert!(untuned > 1_000 * ROUND_TRIP, "{untuned:?}");

    let mut path = Path::new(ROUND_TRIP, FAST, Config::default(), Config::default());
    let tuned = download(&mut path, 64 * MIB);
    assert!(tuned < untuned / 20, "{tuned:?} instead of {untuned:?}");
    assert!(path.client.sent.pings <= 40, "{} probes", path.client.sent.pings);

    // The connection has learnt: the next stream starts where windows of streams start, and grows at once.
    let second = download(&mut path, 64 * MIB);
    assert!(second < 14 * ROUND_TRIP, "{second:?}");
}

#[test]
fn windows_that_do_not_hold_whole_frames_are_tuned_as_well() {
    for window in [40_000, 70_000, 100_000] {
        let config = Config { stream_window_bytes: window, ..Config::default() };
        let mut path = Path::new(ROUND_TRIP, FAST, config, Config::default());
        let duration = download(&mut path, 32 * MIB);
        assert!(duration < 40 * ROUND_TRIP, "{duration:?} with a window of {window} bytes at first");
    }
}

#[test]
fn a_large_request_is_tuned_by_the_server() {
    let mut path = Path::new(ROUND_TRIP, FAST, Config::default(), Config::default());
    let content = Bytes::from(vec![7; 64 * MIB]);
    let stream = path.on_client(|client, env| {
        let stream = client.open(env, fields(&request()), false).unwrap();
        client.send_shared(env, stream, content, true).unwrap();
        stream
    });
    let (mut received, mut ended) = (0, 0);
    let until = path.now + 50 * ROUND_TRIP;
    path.run(until, &mut |_, _, _| (), &mut takes(&mut received, &mut ended));
    assert_eq!((received, ended), (64 * MIB, 1), "{stream:?}");
}

#[test]
fn many_streams_grow_the_window_of_the_connection_that_binds_them() {
    // 40 streams of 1 MiB in one go: their windows alone would let them go, were it not for the connection's.
    let large = |window_bytes_max| Config {
        stream_window_bytes: 2 << 20,
        connection_window_bytes: 1 << 20,
        window_bytes_max,
        ..Config::default()
    };
    let duration = |config: Config| {
        let mut path = Path::new(ROUND_TRIP, FAST, config, Config::default());
        for _ in 0..40 {
            path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
        }
        let (mut received, mut ended) = (0, 0);
        let mut server = answers(MIB);
        while ended < 40 {
            let until = path.now + Duration::from_millis(1);
            path.run(until, &mut takes(&mut received, &mut ended), &mut server);
        }
        path.now.saturating_duration_since(Instant::ZERO)
    };
    let (untuned, tuned) = (duration(large(0)), duration(large(16 << 20)));
    assert!(tuned < untuned / 2, "{tuned:?} instead of {untuned:?}");
}

#[test]
fn windows_stop_growing_at_their_maximum_and_so_do_the_probes() {
    let config = Config { window_bytes_max: 2 << 20, ..Config::default() };
    let mut path = Path::new(ROUND_TRIP, FAST, config, Config::default());
    download(&mut path, 64 * MIB);
    let pings = path.client.sent.pings;
    let duration = download(&mut path, 64 * MIB);
    assert_eq!(path.client.sent.pings, pings, "there is nothing left to find out");
    assert!(duration > 64 / 2 * ROUND_TRIP, "2 MiB a round trip at most: {duration:?}");
    assert!(duration < 50 * ROUND_TRIP, "nearly 2 MiB a round trip: {duration:?}");
}

#[test]
fn windows_do_not_grow_where_the_path_is_full_already() {
    // 500 KB/s over 20 ms: ten kilobytes fill it.
    let mut path = Path::new(Duration::from_millis(20), 500_000, Config::default(), Config::default());
    download(&mut path, 8 * MIB);
    let updates = path.client.sent.window_updates;
    download(&mut path, 8 * MIB);
    // What is learnt from the queue in front of the path is forgiven: a window of half a megabyte, not of sixteen.
    let each = 8 * MIB / (path.client.sent.window_updates - updates);
    assert!(each < 256 * 1024, "a window of twice {each} bytes");
    assert!(path.client.sent.pings < 60, "{} probes in {:?}", path.client.sent.pings, path.now);
}

#[test]
fn windows_over_a_short_path_stay_below_what_only_makes_a_queue() {
    // 100 µs, at any rate and at 2 GB/s, of which 200 KB fill it. What lies in windows beyond that is what a small call waits for.
    for rate in [FAST, 2_000_000_000] {
        let mut path = Path::new(Duration::from_micros(100), rate, Config::default(), Config::default());
        download(&mut path, 64 * MIB);
        let updates = path.client.sent.window_updates;
        let duration = download(&mut path, 64 * MIB);
        // Of the stream and of the connection, a quarter of a window each time.
        let each = 2 * 64 * MIB / (path.client.sent.window_updates - updates);
        assert!(each <= MIB / 4 + 16_384, "{each} bytes of credit at a time at a rate of {rate}");
        let at_best = Duration::from_nanos(64 * MIB as u64 * 1_000_000_000 / 2_000_000_000);
        assert!(duration < at_best + at_best / 4, "{duration:?} instead of {at_best:?}");
    }
}

#[test]
fn what_was_learnt_of_a_short_path_outlasts_a_rest() {
    let mut path = Path::new(Duration::from_micros(100), FAST, Config::default(), Config::default());
    download(&mut path, 64 * MIB);
    let pings = path.client.sent.pings;
    download(&mut path, 64 * MIB);
    assert_eq!(path.client.sent.pings, pings, "there is nothing left to find out");

    // Budgets fill again, and the end of the last stream is forgotten.
    let until = path.now + Duration::from_secs(60);
    path.run(until, &mut |_, _, _| (), &mut |_, _, _| ());
    let resting = path.client.engine.rest(path.now).expect("nothing is under way");
    path.client.engine = Connection::new(Role::Client, Config::default());
    path.client.engine.resume(resting);
    download(&mut path, 64 * MIB);
    assert_eq!(path.client.sent.pings, pings, "there is nothing to find out again");
}

#[test]
fn an_idle_or_slow_connection_is_never_probed() {
    let mut path = Path::new(ROUND_TRIP, 20_000, Config::default(), Config::default());
    // 20 KB/s: half a window lasts more than a second.
    download(&mut path, MIB);
    let (mut received, mut ended) = (0, 0);
    let until = path.now + Duration::from_secs(3_600);
    path.run(until, &mut takes(&mut received, &mut ended), &mut answers(0));
    assert_eq!((path.client.sent.pings, path.server.sent.pings), (0, 0));
}

#[test]
fn r23_small_calls_are_hardly_probed_however_many_there_are() {
    let mut path = Path::new(Duration::from_micros(100), FAST, Config::default(), Config::default());
    let mut server = answers(100);
    let (mut received, mut ended) = (0, 0);
    let began = path.now;
    for _ in 0..50_000 {
        path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
        let until = path.now + Duration::from_micros(20);
        path.run(until, &mut takes(&mut received, &mut ended), &mut server);
    }
    assert_eq!(path.now.saturating_duration_since(began), Duration::from_secs(1));
    assert!(ended > 49_000);
    assert!(path.client.sent.pings < 20, "{}", path.client.sent.pings);
}

#[test]
fn a_stream_that_is_not_read_stays_at_its_first_window() {
    let mut path = Path::new(ROUND_TRIP, FAST, Config::default(), Config::default());
    // The connection learns that large windows help.
    download(&mut path, 64 * MIB);
    path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
    let mut held = 0;
    let until = path.now + 20 * ROUND_TRIP;
    path.run(
        until,
        &mut |_, _, event| {
            if let Event::Data { bytes, .. } = event {
                held += bytes.len();
            }
        },
        &mut answers(MIB),
    );
    assert_eq!(held, 64 * 1024);
}

#[test]
fn a_stream_whose_reader_lags_behind_does_not_grow() {
    let mut path = Path::new(ROUND_TRIP, FAST, Config::default(), Config::default());
    download(&mut path, 64 * MIB);
    let stream = path.on_client(|client, env| client.open(env, fields(&request()), true)).unwrap();
    let (mut held, mut held_max, mut taken) = (0usize, 0, 0);
    let mut server = answers(8 * MIB);
    for _ in 0..400 {
        let until = path.now + ROUND_TRIP / 10;
        path.run(
            until,
            &mut |_, _, event| {
                if let Event::Data { bytes, .. } = event {
                    held += bytes.len();
                    held_max = held_max.max(held);
                }
            },
            &mut server,
        );
        // 20 KiB at a time, while more than half a window waits.
        let step = held.saturating_sub(34 * 1024).min(20 * 1024);
        path.on_client(|client, env| client.release(env, stream, step));
        held -= step;
        taken += step;
    }
    assert!(taken > MIB / 2, "the reader does read: {taken}");
    assert!(held_max <= 64 * 1024, "{held_max}");
}

// What the peer sees and says.

/// A client under test that has asked for something, and the head of the answer.
fn asking(config: Config) -> (Peer, u32, StreamKey) {
    let mut peer = Peer::of_client(config);
    let id = peer.is_requested(true);
    peer.sends(headers(id, ok()));
    peer.takes_events();
    peer.takes_frames();
    let key = peer.key(id);
    (peer, id, key)
}

/// Sends half a window, which is taken. Returns the payload of the PING if one is sent, and the windows' increments.
fn sends_half(peer: &mut Peer, id: u32, half: usize) -> (Option<[u8; 8]>, Vec<(u32, u32)>) {
    let (mut ping, mut updates) = (None, Vec::new());
    let mut left = half;
    while left > 0 {
        let step = left.min(16_384);
        peer.sends(data(id, vec![0; step]));
        peer.releases(id, step);
        left -= step;
    }
    peer.takes_events();
    for frame in peer.takes_frames() {
        match frame {
            Frame::Ping(payload) => assert_eq!(ping.replace(payload), None, "two probes"),
            Frame::WindowUpdate { id, increment } => updates.push((id, increment)),
            frame => panic!("{frame:?}"),
        }
    }
    (ping, updates)
}

#[test]
fn at_most_one_probe_is_under_way_and_a_peer_that_never_answers_gets_no_other() {
    let (mut peer, id, _) = asking(Config::default());
    let pings: usize = (0..100).map(|_| usize::from(sends_half(&mut peer, id, 32 * 1024).0.is_some())).sum();
    assert_eq!(pings, 1);
    assert_eq!(peer.error, None);
}

#[test]
fn answers_to_other_pings_are_not_taken_for_the_probes_and_the_other_way_round() {
    let (mut peer, id, _) = asking(Config::default());
    assert_eq!(sends_half(&mut peer, id, 32 * 1024).0, None, "a probe begins with the next byte");
    let probe = sends_half(&mut peer, id, 32 * 1024).0.expect("a probe");
    assert_eq!(&probe[..4], b"bdp:");
    peer.act(|client, env| client.ping(env, *b"of user!"));
    peer.expects(Frame::Ping(*b"of user!"));

    // None of these is an answer to the probe.
    let mut stale = probe;
    stale[7] -= 1;
    peer.sends(Frame::Pong([0; 8]));
    peer.sends(Frame::Pong(stale));
    peer.sends(Frame::Pong(*b"of user!"));
    peer.expects_event(Happened::Pong(*b"of user!"));
    peer.expects_silence();
    for _ in 0..10 {
        assert_eq!(sends_half(&mut peer, id, 32 * 1024).0, None, "the probe is still under way");
    }

    // The answer is; the user does not see it. Its window has doubled.
    peer.now = peer.now + ROUND_TRIP;
    peer.sends(Frame::Pong(probe));
    assert_eq!(peer.takes_events(), []);
    let (_, updates) = sends_half(&mut peer, id, 32 * 1024);
    assert_eq!(updates, [(id, 16_384 + 64 * 1024)]);
    // Once more is an acknowledgement never asked for.
    peer.sends(Frame::Pong(probe));
    assert_eq!(peer.takes_events(), []);
    assert_eq!(peer.error, None);
}

#[test]
fn switched_off_windows_stay_and_nothing_is_probed() {
    let (mut peer, id, _) = asking(untuned());
    for _ in 0..100 {
        assert_eq!(sends_half(&mut peer, id, 32 * 1024).0, None);
    }
    let mut peer = Peer::of_server(untuned());
    peer.requests(1, false);
    let (ping, updates) = sends_half(&mut peer, 1, 64 * 1024);
    assert_eq!((ping, updates), (None, vec![(1, 16_384); 4]));
}

#[test]
fn a_window_above_the_maximum_is_not_made_smaller() {
    let config = Config { stream_window_bytes: 100_000, window_bytes_max: 50_000, ..Config::default() };
    let mut peer = Peer::silent(Role::Server, config);
    peer.shakes_hands(&[]);
    peer.requests(1, false);
    let (ping, updates) = sends_half(&mut peer, 1, 100_000);
    assert_eq!((ping, updates), (None, vec![(1, 32_768); 3]));
}
