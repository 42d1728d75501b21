//! Who sends when: turns of one frame, and trailers behind the content of their stream.

use fulmar_base::{Env, Output, Pool};
use fulmar_http2::{Config, ErrorCode, Role};

use crate::support::*;

/// A server under test with these streams answered by a head; the connection's window of 65,535 bytes is used up by stream 1001.
fn blocked_server(ids: &[u32]) -> Peer {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 24)]);
    for &id in ids.iter().chain(&[1_001]) {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
    }
    peer.answers_data(1_001, &[0; 65_535], true);
    peer.takes_frames();
    peer.takes_events();
    peer
}

fn ids_of(frames: &[Frame]) -> Vec<u32> {
    let id = |frame: &Frame| match *frame {
        Frame::Data { id, .. } | Frame::Headers { id, .. } => id,
        _ => 0,
    };
    frames.iter().map(id).collect()
}

#[test]
fn streams_with_data_waiting_take_turns_of_one_frame() {
    let mut peer = blocked_server(&[1, 3, 5]);
    for id in [1, 3, 5] {
        peer.answers_data(id, &vec![id as u8; 3 * 16_384], false);
    }
    peer.expects_silence();
    peer.sends(window_update(0, 9 * 16_384));
    assert_eq!(ids_of(&peer.takes_frames()), [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

#[test]
fn a_small_reply_waits_for_no_bulk_stream() {
    let mut peer = blocked_server(&[1, 3, 5]);
    peer.answers_data(1, &vec![1; 1 << 20], false);
    peer.answers_data(3, &vec![3; 1 << 20], false);
    peer.sends(window_update(0, 4 * 16_384));
    assert_eq!(ids_of(&peer.takes_frames()), [1, 3, 1, 3]);
    peer.answers_data(5, b"small", false);
    peer.answers(5, &trailers(), true);
    peer.sends(window_update(0, 6 * 16_384));
    assert_eq!(ids_of(&peer.takes_frames())[..5], [5, 5, 1, 3, 1]);
}

#[test]
fn a_small_reply_next_to_eight_bulk_streams_goes_ahead_however_credit_comes() {
    let bulk: Vec<u32> = (0..8).map(|n| 2 * n + 1).collect();
    // In one piece, in frames, and in less than a frame, so that turns are cut short.
    for step in [16 * 16_384, 16_384, 5_000, 1] {
        let mut peer = blocked_server(&[&bulk[..], &[17]].concat());
        for &id in &bulk {
            peer.answers_data(id, &vec![id as u8; 1 << 20], false);
        }
        // The bulk is well under way when the small reply comes.
        peer.sends(window_update(0, 11 * 16_384));
        peer.takes_frames();
        peer.answers_data(17, b"small", false);
        peer.answers(17, &trailers(), true);
        for byte in 0..b"small".len() {
            peer.sends(window_update(0, step));
            let frames = ids_of(&peer.takes_frames());
            assert_eq!(frames[0], 17, "byte {byte} with {step} bytes of credit at a time");
            if step > 5 {
                break;
            }
        }
    }
}

#[test]
fn small_replies_that_need_not_wait_for_credit_pass_bulk_that_waits_for_the_output() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 24)]);
    peer.sends(window_update(0, 1 << 24));
    let bulk: Vec<u32> = (0..8).map(|n| 2 * n + 1).collect();
    for &id in bulk.iter().chain(&[17]) {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
    }
    peer.takes_frames();
    // More than the output takes at once, and the socket takes none of it while the small reply comes.
    let keys: Vec<_> = bulk.iter().map(|&id| peer.key(id)).collect();
    let small = peer.key(17);
    let (mut pool, mut out) = (Pool::new(), Output::new());
    let mut env = Env { now: peer.now, pool: &mut pool, out: &mut out };
    for key in keys {
        peer.engine.send_data(&mut env, key, &[7; 1 << 20], false).expect("it is open");
    }
    peer.engine.transmit(&mut env);
    let ahead = env.out.len();
    assert!(ahead < Output::SOFT_LIMIT + 16_384 + 9, "{ahead} bytes wait for the socket");
    env.out.advance(2 * 16_384);
    peer.engine.send_data(&mut env, small, b"small", false).expect("it is open");
    peer.engine.transmit(&mut env);
    let mut wire = Vec::new();
    env.out.move_to(&mut wire);
    let position = wire.windows(5).position(|bytes| bytes == b"small").expect("it has left");
    assert!(position < ahead, "behind {position} bytes, though only {ahead} had been written");
}

/// Makes each of these streams of a server send more than a stream may have waiting, twice over, and lets the socket take a burst at a
/// time. Returns who was told to go on after each burst.
fn told_after_each_burst(bodies: &[usize], bursts: usize) -> Vec<Vec<u32>> {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 28)]);
    peer.sends(window_update(0, 1 << 30));
    let ids: Vec<u32> = (0..bodies.len() as u32).map(|n| 2 * n + 1).collect();
    for &id in &ids {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
    }
    peer.takes_frames();
    let keys: Vec<_> = ids.iter().map(|&id| peer.key(id)).collect();
    let (mut pool, mut out) = (Pool::new(), Output::new());
    let mut env = Env { now: peer.now, pool: &mut pool, out: &mut out };
    let bring = |engine: &mut fulmar_http2::Connection, env: &mut Env<'_>, index: usize| {
        engine.send_data(env, keys[index], &vec![7; bodies[index]], false).expect("it is open");
    };
    let empty = fulmar_base::Input::new(&[]);
    for index in 0..keys.len() {
        bring(&mut peer.engine, &mut env, index);
    }
    let mut bursts_told = Vec::new();
    for _ in 0..bursts {
        let mut told = Vec::new();
        loop {
            peer.engine.transmit(&mut env);
            if !peer.engine.has_events() {
                break;
            }
            while let Some(event) = peer.engine.next_event(&mut env, &empty).expect("nothing is wrong") {
                if let fulmar_http2::Event::Writable { stream } = event {
                    let index = keys.iter().position(|&key| key == stream).expect("it is one of them");
                    told.push(ids[index]);
                    bring(&mut peer.engine, &mut env, index);
                }
            }
        }
        assert!(env.out.len() >= Output::SOFT_LIMIT, "there is always a burst to send");
        env.out.clear();
        bursts_told.push(told);
    }
    peer.engine.close(&mut env);
    bursts_told
}

#[test]
fn senders_of_large_messages_are_told_one_by_one_that_there_is_room() {
    let bursts = told_after_each_burst(&[1 << 20; 8], 200);
    assert!(bursts.iter().all(|told| told.len() <= 1), "{bursts:?}");
    // Nor do two bursts in a row wait for a large message to be made.
    assert!(bursts.windows(2).all(|pair| pair[0].len() + pair[1].len() <= 1), "{bursts:?}");
    for id in 0..8 {
        let times = bursts.iter().flatten().filter(|&&told| told == 2 * id + 1).count();
        assert!((2..=4).contains(&times), "stream {} in {bursts:?}", 2 * id + 1);
    }
}

#[test]
fn senders_of_less_large_messages_have_their_share_beside_large_ones() {
    let bursts = told_after_each_burst(&[1 << 20, 1 << 20, 64 << 10], 300);
    let times = bursts.iter().flatten().filter(|&&told| told == 5).count();
    // 300 bursts of 128 KiB, a third of which is 200 messages of 64 KiB.
    assert!(times >= 150, "{times}");
}

#[test]
fn a_flood_of_small_replies_leaves_bulk_a_frame_in_each_16_kib() {
    let ids: Vec<u32> = (1..=100).map(|n| 2 * n + 1).collect();
    let mut peer = blocked_server(&[&[1][..], &ids].concat());
    peer.answers_data(1, &vec![1; 1 << 20], false);
    for &id in &ids {
        peer.answers_data(id, &[2; 1_000], false);
    }
    peer.sends(window_update(0, 1 << 18));
    let frames = ids_of(&peer.takes_frames());
    assert_eq!(frames[..17].iter().filter(|&&id| id == 1).count(), 0, "{frames:?}");
    for share in frames.chunks(18).take(5) {
        assert_eq!(share.iter().filter(|&&id| id == 1).count(), 1, "{frames:?}");
    }
}

#[test]
fn the_last_of_bulk_does_not_overtake_other_bulk() {
    let mut peer = blocked_server(&[1, 3]);
    peer.answers_data(1, &[1; 16_384 + 10], false);
    peer.answers_data(3, &[3; 3 * 16_384], false);
    peer.sends(window_update(0, 1 << 20));
    assert_eq!(ids_of(&peer.takes_frames()), [1, 3, 1, 3, 3]);
}

#[test]
fn whoever_has_window_does_not_overtake_those_whose_turn_comes() {
    let mut peer = blocked_server(&[1, 3]);
    peer.answers_data(1, &[1; 100], false);
    // In one read: credit for the connection, then a request that is answered before `transmit`.
    let credit = peer.encode(window_update(0, 100));
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    let input = fulmar_base::Input::new(&credit);
    assert_eq!(peer.engine.next_event(&mut env, &input), Ok(None));
    let key = peer.key(3);
    let env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    assert_eq!(peer.engine.credit(&env, key), 0);
    peer.answers_data(3, &[3; 100], false);
    assert_eq!(ids_of(&peer.takes_frames()), [1]);
    peer.sends(window_update(0, 100));
    assert_eq!(ids_of(&peer.takes_frames()), [3]);
}

#[test]
fn a_stream_blocked_by_its_own_window_leaves_its_turn_to_others() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 10)]);
    for id in [1, 3] {
        peer.requests(id, true);
        peer.answers(id, &ok(), false);
        peer.expects(headers(id, ok()));
    }
    peer.answers_data(1, &[1; 100], false);
    assert_eq!(peer.takes_data(1), [1; 10]);
    peer.answers_data(3, &[3; 10], false);
    assert_eq!(peer.takes_data(3), [3; 10]);
    peer.sends(window_update(1, 5));
    assert_eq!(peer.takes_data(1), [1; 5]);
}

#[test]
fn trailers_wait_behind_the_content_of_their_stream_and_others_go_ahead() {
    let mut peer = blocked_server(&[1, 3]);
    peer.answers_data(1, b"content", false);
    peer.answers(1, &trailers(), true);
    peer.expects_silence();
    peer.answers(3, &trailers(), true);
    peer.expects(last_headers(3, trailers()));
    peer.expects_event(Happened::Closed(3));
    peer.sends(window_update(0, 7));
    peer.expects(data(1, "content"));
    peer.expects(last_headers(1, trailers()));
    peer.expects_event(Happened::Closed(1));
    peer.expects_silence();
}

#[test]
fn trailers_that_waited_are_encoded_in_the_order_of_the_wire() {
    let mut peer = blocked_server(&[1, 3, 5]);
    let indexed = |value: &str| pairs(&[("x-shared", value), ("grpc-status", "0")]);
    peer.answers_data(1, b"content", false);
    peer.answers(1, &indexed("one"), true);
    // These enter the compression table first, although they were sent later.
    peer.answers(3, &indexed("three"), true);
    peer.answers(5, &indexed("one"), true);
    peer.sends(window_update(0, 100));
    peer.expects(last_headers(3, indexed("three")));
    peer.expects(last_headers(5, indexed("one")));
    peer.expects(data(1, "content"));
    peer.expects(last_headers(1, indexed("one")));
}

#[test]
fn resets_in_the_queue_leave_the_others_their_turns() {
    for gone in [1, 3, 5] {
        let mut peer = blocked_server(&[1, 3, 5]);
        for id in [1, 3, 5] {
            peer.answers_data(id, &vec![0; 2 * 16_384], false);
        }
        peer.sends(reset(gone, ErrorCode::Cancel));
        peer.takes_events();
        peer.sends(window_update(0, 4 * 16_384));
        let left: Vec<_> = [1, 3, 5].into_iter().filter(|&id| id != gone).collect();
        assert_eq!(ids_of(&peer.takes_frames()), [&left[..], &left[..]].concat());
    }
}

#[test]
fn a_thousand_streams_share_a_window_evenly() {
    let ids: Vec<u32> = (0..500).map(|n| 2 * n + 1).collect();
    let mut peer = blocked_server(&ids);
    for &id in &ids {
        peer.answers_data(id, &vec![0; 40_000], false);
    }
    peer.sends(window_update(0, 500 * 16_384));
    let mut seen = ids_of(&peer.takes_frames());
    seen.sort_unstable();
    assert_eq!(seen, ids);
}

#[test]
fn what_waits_may_be_dropped_so_that_trailers_leave_at_once() {
    let mut peer = blocked_server(&[1, 3]);
    for id in [1, 3] {
        peer.answers_data(id, &[id as u8; 20_000], false);
    }
    let (first, second) = (peer.key(1), peer.key(3));
    peer.act(|server, env| server.drop_waiting(env, first));
    peer.answers(1, &trailers(), true);
    peer.expects(last_headers(1, trailers()));
    assert_eq!(peer.pool.outstanding(), 1, "that of the other stream");

    // Not where the end waits already: nobody would learn that the content is cut short.
    peer.answers(3, &trailers(), true);
    peer.act(|server, env| server.drop_waiting(env, second));
    peer.sends(window_update(0, 1 << 20));
    assert_eq!(ids_of(&peer.takes_frames()), [3, 3, 3]);
}
