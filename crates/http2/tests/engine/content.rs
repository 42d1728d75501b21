//! The ways content is sent, and what becomes of its memory.

use bytes::Bytes;
use fulmar_base::{Input, Output};
use fulmar_http2::{Config, ErrorCode, Plain, Role, Sent};

use crate::support::*;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

/// A server under test that has answered stream 1 with a head; the peer's windows are as given.
fn server(stream_window: u32, connection_window: u32) -> Peer {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, stream_window)]);
    if connection_window > 65_535 {
        peer.sends(window_update(0, connection_window - 65_535));
    }
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.expects(headers(1, ok()));
    peer
}

#[test]
fn bytes_blocks_and_shared_bytes_arrive_the_same_whatever_the_windows() {
    for window in [1_000_000, 70_000, 30_000, 16_384, 1_000] {
        let mut peer = server(window, 1 << 20);
        let key = peer.key(1);
        let pieces = [content(10), content(40_000), content(5), content(20_000), content(300)];
        peer.act(|server, env| {
            server.send_data(env, key, &pieces[0], false).unwrap();
            let mut block = env.pool.take(pieces[1].len());
            block.extend_from_slice(&pieces[1]);
            server.send_block(env, key, block, false).unwrap();
            server.send_data(env, key, &pieces[2], false).unwrap();
            server.send_shared(env, key, Bytes::from(pieces[3].clone()), false).unwrap();
            server.send_shared(env, key, Bytes::from(pieces[4].clone()), true).unwrap();
        });
        let mut received = Vec::new();
        while received.len() < pieces.concat().len() {
            received.extend(peer.takes_data(1));
            peer.sends(window_update(1, 777));
        }
        assert_eq!(received, pieces.concat());
        assert_eq!(peer.takes_events().pop(), Some(Happened::Closed(1)));
        assert_eq!(peer.pool.outstanding(), 0, "all blocks are back");
    }
}

#[test]
fn large_shared_bytes_leave_without_a_copy() {
    let mut peer = server(1 << 20, 1 << 20);
    let key = peer.key(1);
    let shared = Bytes::from(content(3 * Output::SHARED_MIN));
    let addresses = shared.as_ptr_range();
    peer.engine
        .send_shared(
            &mut fulmar_base::Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out },
            key,
            shared.clone(),
            true,
        )
        .unwrap();
    let mut slices = [std::io::IoSlice::new(&[]); 16];
    let filled = peer.out.slices(&mut slices);
    let lent = slices[..filled].iter().filter(|slice| addresses.contains(&slice.as_ptr()));
    assert_eq!(lent.map(|slice| slice.len()).sum::<usize>(), shared.len());
}

#[test]
fn a_block_on_a_stream_that_has_gone_goes_back_to_the_pool() {
    let mut peer = server(100, 0);
    let key = peer.key(1);
    peer.act(|server, env| {
        server.reset(env, key, fulmar_http2::ErrorCode::Cancel);
        let block = env.pool.take(100);
        assert!(server.send_block(env, key, block, true).is_err());
    });
    assert_eq!(peer.pool.outstanding(), 0);
}

#[test]
fn blocks_come_back_however_the_stream_ends() {
    let waiting = || {
        let mut peer = server(10, 0);
        peer.answers_data(1, &content(50_000), false);
        assert!(peer.pool.outstanding() > 0);
        peer.takes_frames();
        peer
    };
    let mut peer = waiting();
    let key = peer.key(1);
    peer.act(|server, env| server.reset(env, key, fulmar_http2::ErrorCode::Cancel));
    assert_eq!(peer.pool.outstanding(), 0);

    let mut peer = waiting();
    peer.sends(reset(1, fulmar_http2::ErrorCode::Cancel));
    assert_eq!(peer.pool.outstanding(), 0);

    let mut peer = waiting();
    peer.sends(window_update(1, 0));
    assert_eq!(peer.pool.outstanding(), 0);

    let mut peer = waiting();
    peer.engine.close(&mut fulmar_base::Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out });
    assert_eq!((peer.pool.outstanding(), peer.engine.streams()), (0, 0));
    assert!(peer.engine.is_going_away());
}

#[test]
fn data_stops_at_the_room_of_the_output_and_control_frames_do_not() {
    let mut peer = server(1 << 24, 1 << 24);
    let key = peer.key(1);
    let body = vec![9; 2 * Output::SOFT_LIMIT];
    let mut env = fulmar_base::Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    peer.engine.send_data(&mut env, key, &body, true).unwrap();
    assert_eq!(env.out.room(), 0);
    let overshoot = env.out.len() - Output::SOFT_LIMIT;
    assert!(overshoot < peer.engine.max_frame() + 9, "{overshoot} bytes beyond the limit");
    assert_eq!(peer.engine.credit(&env, key), 0);
    let before = env.out.len();
    peer.engine.transmit(&mut env);
    assert_eq!(env.out.len(), before);
    peer.engine.ping(&mut env, [1; 8]);
    assert_eq!(env.out.len(), before + 17);
    // Half of it has left: as much follows.
    env.out.advance(before / 2);
    peer.engine.transmit(&mut env);
    assert_eq!(env.out.room(), 0);
}

#[test]
fn steady_traffic_takes_no_new_block() {
    let mut peer = server(0, 1 << 30);
    let round = |peer: &mut Peer| {
        peer.answers_data(1, &content(10_000), false);
        peer.sends(window_update(1, 10_000));
        assert_eq!(peer.takes_data(1), content(10_000));
        assert_eq!(peer.pool.outstanding(), 0);
    };
    round(&mut peer);
    let retained = peer.pool.retained_bytes();
    (0..100).for_each(|_| round(&mut peer));
    assert_eq!(peer.pool.retained_bytes(), retained);
}

/// What `send_response` makes of a response to stream 1, whose request is over, and what it sends.
fn respond(peer: &mut Peer, head: &Pairs, content: &[u8], is_good: bool) -> (Sent, Vec<Frame>) {
    let key = peer.key(1);
    let trailers = trailers();
    let sent = peer.act(|server, env| {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(content);
            is_good
        };
        server.send_response(env, key, Plain(fields(head)), content.len(), write, Plain(fields(&trailers)))
    });
    (sent, peer.takes_frames())
}

fn asked(settings: &[(u16, u32)]) -> Peer {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(settings);
    peer.requests(1, true);
    peer.takes_events();
    peer
}

#[test]
fn a_response_in_one_go_is_all_there_and_ends_its_stream() {
    let mut peer = asked(&[]);
    let whole = [headers(1, ok()), data(1, b"content"), last_headers(1, trailers())];
    assert_eq!(respond(&mut peer, &ok(), b"content", true), (Sent::All, whole.to_vec()));
    assert_eq!(peer.takes_events(), [Happened::Closed(1)]);
    assert_eq!(respond(&mut peer, &ok(), b"content", true), (Sent::Nothing, vec![]), "the stream has gone");
}

#[test]
fn a_response_that_may_not_leave_whole_is_not_begun() {
    let long = pairs(&[(":status", "200"), ("x-long", &"v".repeat(200))]);
    for (settings, head, len) in [
        (&[(INITIAL_WINDOW_SIZE, 6)][..], ok(), 7),
        (&[(MAX_HEADER_LIST_SIZE, 200)], long, 7),
        (&[], ok(), 16_385),
    ] {
        let mut peer = asked(settings);
        assert_eq!(respond(&mut peer, &head, &content(len), true), (Sent::Nothing, vec![]), "{settings:?}");
        // Its parts find what it found.
        peer.answers(1, &ok(), false);
        peer.expects(headers(1, ok()));
        assert_eq!(respond(&mut peer, &ok(), b"", true), (Sent::Nothing, vec![]), "the head has left");
    }
}

#[test]
fn a_response_whose_content_is_not_what_it_should_be_goes_on_without_trailers() {
    let mut peer = asked(&[]);
    let begun = [headers(1, ok()), data(1, b"oops")];
    assert_eq!(respond(&mut peer, &ok(), b"oops", false), (Sent::WithoutTrailers, begun.to_vec()));
    peer.answers(1, &trailers(), true);
    peer.expects(last_headers(1, trailers()));
}

/// Padding by nothing changes nothing but the way that a frame takes through the engine.
#[test]
fn usual_frames_do_what_unusual_ones_with_the_same_content_do() {
    let run = |is_padded: bool| {
        let mut peer = Peer::silent(Role::Server, Config::default());
        peer.shakes_hands(&[]);
        let frame = |peer: &mut Peer, kind, flags, id, payload: &[u8]| {
            let padded = [&[0], payload].concat();
            peer.sends(if is_padded {
                raw(kind, flags | PADDED, id, padded)
            } else {
                raw(kind, flags, id, payload)
            });
        };
        for id in (1..40).step_by(2) {
            let block = peer.encode_block(&request());
            frame(&mut peer, 1, END_HEADERS, id, &block);
            frame(&mut peer, 0, 0, id, &content(id as usize));
        }
        for id in (1..40).step_by(4) {
            frame(&mut peer, 0, 0, id, b"x");
            frame(&mut peer, 0, 0, id, b"");
            frame(&mut peer, 0, END_STREAM, id, &content(9));
        }
        // A long one, and one behind the end of its stream.
        frame(&mut peer, 0, 0, 3, &content(16_000));
        let events = peer.takes_events();
        frame(&mut peer, 0, 0, 1, b"late!");
        (events, peer.takes_events(), peer.takes_frames().len())
    };
    let (usual, padded) = (run(false), run(true));
    assert_eq!((&usual.0, &usual.1), (&padded.0, &padded.1));
    assert_eq!(usual.0.len(), 20 + 20 + 10 + 10 + 1);
}

#[test]
fn the_last_data_of_a_stream_may_be_asked_for_and_nothing_else_is_taken() {
    let mut peer = Peer::of_server(Config::default());
    peer.requests(1, false);
    peer.requests(3, false);
    peer.requests(5, false);
    let key = peer.key(3);
    for other in [
        data(3, "more follows"),
        last_data(1, "of another stream"),
        raw(0, PADDED | END_STREAM, 5, b"\x01padded\0"),
        Frame::Ping([7; 8]),
    ] {
        let bytes = peer.encode(other);
        let (taken, consumed) = peer.act(|engine, env| {
            let input = Input::new(&bytes);
            (engine.next_last_data(env, &input, key), input.consumed())
        });
        assert_eq!((taken, consumed), (None, 0));
        peer.sends_bytes(&bytes);
    }
    assert_eq!(peer.takes_events().len(), 3, "what was not taken is told as ever");
    peer.takes_frames();

    let bytes = peer.encode(last_data(3, "the last"));
    peer.act(|engine, env| {
        let part = Input::new(&bytes[..bytes.len() - 1]);
        assert_eq!((engine.next_last_data(env, &part, key), part.consumed()), (None, 0));
        let input = Input::new(&bytes);
        assert_eq!(engine.next_last_data(env, &input, key), Some(&b"the last"[..]));
        assert_eq!(input.consumed(), bytes.len());
        assert_eq!(engine.next_last_data(env, &input, key), None);
    });
    peer.expects_silence();
    // The stream has ended for the client.
    peer.sends(data(3, "more"));
    peer.expects(reset(3, ErrorCode::StreamClosed));
}
