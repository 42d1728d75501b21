//! R80, R81: what a large message costs on its way out.

use std::io::IoSlice;

use bytes::Bytes;
use fulmar_base::{Env, Output};
use fulmar_http2::{Config, Role};

use crate::support::*;

/// As many slices as the reactor writes at once.
const SLICES: usize = 64;

/// What leaves when all that waits is written, each time as much as one write takes: how many writes that are, and how many bytes of
/// them lie in `shared`.
fn write_all(peer: &mut Peer, shared: &Bytes) -> (usize, usize, Vec<u8>) {
    let (mut writes, mut lent, mut wire) = (0, 0, Vec::new());
    loop {
        let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
        peer.engine.transmit(&mut env);
        if peer.out.is_empty() {
            return (writes, lent, wire);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let filled = peer.out.slices(&mut slices);
        for slice in &slices[..filled] {
            let place = shared.as_ptr().addr()..shared.as_ptr().addr() + shared.len();
            lent += if place.contains(&slice.as_ptr().addr()) { slice.len() } else { 0 };
            wire.extend_from_slice(slice);
        }
        let written = slices[..filled].iter().map(|slice| slice.len()).sum();
        peer.out.advance(written);
        writes += 1;
    }
}

fn server_with_window() -> Peer {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[(INITIAL_WINDOW_SIZE, 1 << 24)]);
    peer.sends(window_update(0, 1 << 24));
    peer.requests(1, true);
    peer.answers(1, &ok(), false);
    peer.takes_frames();
    peer
}

#[test]
fn r80_a_message_of_a_mebibyte_leaves_in_few_writes() {
    let mut peer = server_with_window();
    let (key, body) = (peer.key(1), Bytes::from(vec![7; 1 << 20]));
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    peer.engine.queue_data(&mut env, key, b"\0\0\x10\0\0").expect("it is open");
    peer.engine.queue_shared(&mut env, key, body.clone()).expect("it is open");
    assert!(peer.out.is_empty(), "nothing leaves before it is asked for, so that frames span pieces");
    let (writes, _, wire) = write_all(&mut peer, &body);
    assert!(writes <= 9, "{writes} writes");
    let frames = wire.len() - body.len() - 5;
    assert_eq!(frames, 9 * (body.len() + 5).div_ceil(16_384), "all frames but the last are full");
}

#[test]
fn r81_bytes_that_are_shared_are_not_copied() {
    let mut peer = server_with_window();
    let (key, body) = (peer.key(1), Bytes::from(vec![7; 1 << 20]));
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    peer.engine.queue_data(&mut env, key, b"\0\0\x10\0\0").expect("it is open");
    peer.engine.queue_shared(&mut env, key, body.clone()).expect("it is open");
    let (_, lent, _) = write_all(&mut peer, &body);
    // The first frame has the prefix, and so less of the body than is worth a slice of its own; the last one has the rest.
    assert!(
        lent >= body.len() - 2 * Output::SHARED_MIN,
        "{lent} bytes of {} left from where they lay",
        body.len()
    );
    assert!(body.is_unique(), "the connection is done with them");
    assert_eq!(peer.pool.outstanding(), 0);
}

#[test]
fn pieces_may_be_queued_on_a_stream_that_is_open_and_on_no_other() {
    let mut peer = Peer::silent(Role::Server, Config::default());
    peer.shakes_hands(&[]);
    peer.requests(1, true);
    let key = peer.key(1);
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    let early = peer.engine.queue_data(&mut env, key, b"before the head");
    assert_eq!(early, Err(fulmar_http2::SendError::Misplaced));
    peer.answers(1, &trailers(), true);
    let mut env = Env { now: peer.now, pool: &mut peer.pool, out: &mut peer.out };
    let late = peer.engine.queue_shared(&mut env, key, Bytes::from_static(b"behind the end"));
    assert_eq!(late, Err(fulmar_http2::SendError::Gone));
}
