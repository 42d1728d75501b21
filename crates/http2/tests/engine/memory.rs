//! A peer drives each part of a connection's memory as far as it can: never beyond the sum, and far enough to show that the sum is no
//! fable.

use std::time::Duration;

use fulmar_base::Block;
use fulmar_http2::{Config, ErrorCode, Memory, Role, Sends};

use crate::support::*;

/// What the users of these tests send at most.
const SENDS: Sends = Sends { data_bytes_max: 20_000, fields_max: 20, field_bytes_max: 2_000 };

fn config() -> Config {
    Config { streams_max: 200, ..Config::default() }
}

fn measure(peer: &Peer) -> Memory {
    Memory { output: peer.out.capacity(), ..peer.engine.memory() }
}

/// No part is above the most it may be.
#[track_caller]
fn assert_within(peer: &Peer, config: &Config) -> Memory {
    let (held, most) = (measure(peer), config.memory_max(&SENDS));
    for ((name, held), (_, most)) in held.parts().into_iter().zip(most.parts()) {
        assert!(held <= most, "{name}: {held} bytes, more than {most}");
    }
    held
}

/// A part is within its bound, and has come to so many percent of it.
#[track_caller]
fn assert_reaches(peer: &Peer, config: &Config, part: fn(&Memory) -> usize, percent: usize) {
    let (held, most) = (part(&assert_within(peer, config)), part(&config.memory_max(&SENDS)));
    assert!(held * 100 >= most * percent, "{held} bytes are less than {percent} % of {most}");
}

fn field(name: &str, value_bytes: usize) -> (String, String) {
    (name.to_owned(), "v".repeat(value_bytes))
}

#[test]
fn compression_tables_full_of_the_smallest_entries_and_then_of_the_largest() {
    let config = config();
    let mut peer = Peer::of_server(config.clone());
    for n in 0..150 {
        let id = 2 * n + 1;
        let small =
            (0..12).map(|k| field(&format!("{}", (b'a' + (k + n as u8) % 26) as char), 1 + n as usize % 3));
        peer.sends(last_headers(id, [request(), small.clone().collect()].concat()));
        peer.answers(id, &[ok(), small.collect()].concat(), true);
        assert_within(&peer, &config);
    }
    let large = vec![field("x", 4_000)];
    peer.sends(last_headers(1_001, [request(), large.clone()].concat()));
    peer.answers(1_001, &[ok(), large].concat(), true);
    assert_reaches(&peer, &config, |memory| memory.compression, 50);
}

#[test]
fn a_field_list_at_its_limits() {
    let config = config();
    let mut peer = Peer::of_server(config.clone());
    let many: Pairs = (0..251).map(|n| field(&format!("n{n}"), 24)).collect();
    peer.sends(last_headers(1, [request(), many].concat()));
    let large = vec![field("large", 15_000), field("last", 900)];
    peer.sends(last_headers(3, [request(), large].concat()));
    assert_within(&peer, &config);
    // The one that is too much is decoded, too, and dropped.
    let larger = [request(), vec![field("large", 15_000), field(&"n".repeat(16_000), 16_000)]].concat();
    let block = peer.encode_block(&larger);
    let parts: Vec<_> = block.chunks(16_000).collect();
    for (n, part) in parts.iter().enumerate() {
        let end = if n + 1 == parts.len() { END_HEADERS } else { 0 };
        peer.sends(raw(if n == 0 { 1 } else { 9 }, end, 5, part));
    }
    assert_eq!(peer.error, None);
    assert_reaches(&peer, &config, |memory| memory.fields, 50);
}

#[test]
fn a_header_block_that_does_not_end() {
    let config = config();
    let mut peer = Peer::of_server(config.clone());
    peer.sends(raw(1, 0, 1, [0; 16_000]));
    for _ in 0..4 {
        assert!(peer.error.is_none());
        assert_within(&peer, &config);
        peer.sends(raw(9, 0, 1, [0; 12_000]));
    }
    assert_reaches(&peer, &config, |memory| memory.header_block, 90);
    peer.sends(raw(9, 0, 1, [0; 16_000]));
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
    assert_within(&peer, &config);
}

#[test]
fn a_header_block_too_large_is_not_even_copied() {
    let config = Config { header_block_bytes_max: 1_000, ..config() };
    let mut peer = Peer::of_server(config.clone());
    peer.sends(raw(1, 0, 1, [0; 1_001]));
    assert_eq!(measure(&peer).header_block, 0);
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn as_many_streams_as_there_may_be() {
    let config = config();
    let mut peer = Peer::of_server(config.clone());
    for n in 0..300 {
        peer.sends(headers(2 * n + 1, request()));
        assert_within(&peer, &config);
    }
    assert_eq!(peer.engine.streams(), 200);
    assert_reaches(&peer, &config, |memory| memory.streams, 60);
}

/// A peer without credit, and a user who sends until he is to stop: in pieces, in blocks with room to spare, and trailers behind.
#[test]
fn output_of_all_streams_waits_for_a_window_of_zero() {
    for piece in [5, 700, 4_096, 9_000, 20_000] {
        let config = Config { streams_max: 20, ..config() };
        let mut peer = Peer::silent(Role::Server, config.clone());
        peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
        for n in 0..20 {
            let id = 2 * n + 1;
            peer.sends(last_headers(id, request()));
            peer.answers(id, &ok(), false);
            let key = peer.key(id);
            while peer.engine.may_queue(key) > 0 {
                let mut block: Block = peer.pool.take(piece + piece / 3);
                block.extend_from_slice(&vec![7; piece]);
                peer.act(|engine, env| engine.send_block(env, key, block, false)).unwrap();
            }
            let trailers: Pairs = (0..20).map(|n| field(&format!("t{n}"), 60)).collect();
            peer.answers(id, &trailers, true);
            peer.takes_frames();
            assert_within(&peer, &config);
        }
        assert_reaches(&peer, &config, |memory| memory.waiting, 20);

        // One byte of credit after the other: the front of each block goes first, and its memory last.
        for _ in 0..30 {
            (0..20).for_each(|n| peer.sends(window_update(2 * n + 1, 111)));
            peer.takes_frames();
            assert_within(&peer, &config);
        }
        (0..20).for_each(|n| peer.sends(reset(2 * n + 1, ErrorCode::Cancel)));
        assert!(assert_within(&peer, &config).waiting < 100_000, "what nobody takes is dropped");
        assert_eq!(peer.pool.outstanding(), 0);
    }
}

#[test]
fn many_small_messages_that_wait_take_about_what_they_are() {
    let mut peer = Peer::silent(Role::Server, config());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 0)]);
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    let key = peer.key(1);
    for _ in 0..10_000 {
        let mut block = peer.pool.take(6);
        block.extend_from_slice(b"single");
        peer.act(|engine, env| engine.send_block(env, key, block, false)).unwrap();
    }
    let waiting = measure(&peer).waiting;
    assert!(waiting < 80_000, "60,000 bytes wait in {waiting}");
}

#[test]
fn events_of_all_streams_at_once() {
    let config = config();
    let mut peer = Peer::of_client(config.clone());
    for _ in 0..200 {
        peer.is_requested(true);
    }
    assert_within(&peer, &config);
    peer.sends(Frame::GoAway { last_id: 0, code: ErrorCode::NoError, debug: String::new() });
    assert_eq!(peer.engine.streams(), 0);
    assert_reaches(&peer, &config, |memory| memory.events, 30);
}

#[test]
fn a_client_opens_no_more_streams_than_its_own_limit() {
    let mut peer = Peer::of_client(Config { streams_max: 3, ..Config::default() });
    let ids: Vec<_> = (0..3).map(|_| peer.is_requested(true)).collect();
    let request = request();
    let opened = peer.act(|client, env| client.open(env, fields(&request), true));
    assert_eq!(opened, Err(fulmar_http2::OpenError::LimitReached));
    peer.sends(last_headers(ids[0], ok()));
    assert!(peer.takes_events().contains(&Happened::StreamSlotFree));
    peer.is_requested(true);
}

#[test]
fn output_for_a_peer_that_does_not_read() {
    let config = Config { pings_budget: u32::MAX, output_bytes_max: 600_000, ..config() };
    let mut peer = Peer::of_server(config.clone());
    let flood: Vec<u8> = (0..60_000_u64).flat_map(|n| peer.encode(Frame::Ping(n.to_be_bytes()))).collect();
    let (error, waiting) = peer.is_not_read(&flood);
    assert_eq!(error.map(|error| error.code), Some(ErrorCode::EnhanceYourCalm));
    assert!(waiting > 600_000);
    assert_reaches(&peer, &config, |memory| memory.output, 15);
}

#[test]
fn at_most_a_frame_is_left_unread() {
    let config = Config { frame_bytes_max: 20_000, ..config() };
    let mut peer = Peer::of_server(config.clone());
    peer.requests(1, false);
    let frame = peer.encode(data(1, [0; 20_000]));
    let most = config.memory_max(&SENDS).unread;
    let mut unread: Vec<u8> = Vec::new();
    for chunk in frame.chunks(1_000) {
        unread.extend_from_slice(chunk);
        assert!(unread.capacity() <= most);
    }
    assert!(frame.len() * 100 >= most * 50);
    peer.sends_bytes(&frame[..frame.len() - 1]);
    assert_eq!(peer.takes_events(), []);
    peer.sends_bytes(&frame[frame.len() - 1..]);
    assert_eq!(peer.takes_events().len(), 1);
}

#[test]
fn an_idle_connection_gives_memory_back_but_not_at_once() {
    let config = config();
    let mut peer = Peer::of_server(config.clone());
    let large = [request(), vec![field("large", 10_000)]].concat();
    let burst = |peer: &mut Peer, first: u32| {
        (0..200).for_each(|n| peer.sends(last_headers(first + 2 * n, large.clone())));
        (0..200).for_each(|n| peer.answers(first + 2 * n, &ok(), true));
        peer.takes_frames();
        peer.takes_events();
    };
    let fresh = measure(&peer);
    burst(&mut peer, 1);
    let busy = measure(&peer);
    assert!(busy.streams > 20_000 && busy.fields > 10_000, "{busy}");

    peer.waits(Duration::from_secs(9));
    assert_eq!(measure(&peer), busy, "the next burst may come soon");
    burst(&mut peer, 1_001);
    assert_eq!(measure(&peer).streams, busy.streams, "and takes no more");
    peer.sends(headers(2_001, request()));
    peer.waits(Duration::from_secs(60));
    assert_eq!(measure(&peer).streams, busy.streams, "a stream is open");
    peer.sends(reset(2_001, ErrorCode::Cancel));

    peer.waits(Duration::from_secs(10));
    let idle = measure(&peer);
    assert_eq!((idle.streams, idle.fields, idle.events), (fresh.streams, fresh.fields, 0));
    assert_eq!(peer.engine.next_deadline(), None);
    // It goes on, and keys from before are as stale as they were.
    let stale = peer.key(1);
    peer.takes_events();
    peer.requests(3_001, true);
    assert_ne!(peer.key(3_001), stale);
    assert_eq!(peer.engine.user(stale), None);
}

#[test]
fn a_sum_is_printed_line_by_line() {
    let text = config().memory_max(&SENDS).to_string();
    let numbers: Vec<usize> =
        text.lines().map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    let (sum, parts) = numbers.split_last().unwrap();
    assert_eq!(parts.iter().sum::<usize>(), *sum, "{text}");
    assert!(text.contains("header_block") && text.contains("waiting"), "{text}");
}

#[test]
fn what_counts_beside_the_streams_leaves_fewer_of_them_and_tells_when_it_is_gone() {
    let mut peer = Peer::of_client(Config { streams_max: 3, ..Config::default() });
    peer.is_requested(true);
    peer.act(|client, _| client.set_streams_beside(2));
    assert!(!peer.engine.has_slot());
    let request = request();
    let opened = peer.act(|client, env| client.open(env, fields(&request), true));
    assert_eq!(opened, Err(fulmar_http2::OpenError::LimitReached));
    peer.act(|_, _| ());
    assert!(!peer.takes_events().contains(&Happened::StreamSlotFree), "it is still there");
    peer.act(|client, _| client.set_streams_beside(1));
    assert!(peer.takes_events().contains(&Happened::StreamSlotFree));
    assert!(peer.act(|client, env| client.open(env, fields(&request), true)).is_ok());
}
