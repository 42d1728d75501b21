//! Messages that arrive and that nobody takes: the bounds on what a server holds, crossed by a client that keeps every window.

use fulmar::Http2Config;

use crate::peer::{
    DATA, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, Peer, REFUSED_STREAM, RST_STREAM, headers, message,
    request, window_update,
};
use crate::service::{BIDI, U, serve_built};

/// A server that holds 100,000 bytes on a connection, or on all of them, in messages of 60,000 at most.
fn serve(of_reactor: bool) -> fulmar::RunningServer {
    let (server, _) = serve_built(|server| {
        let http2 = Http2Config { window_bytes_max: 0, ..Http2Config::default() };
        let server = server.http2(http2).receive_message_bytes_max(60_000);
        if of_reactor { server.reactor_held_bytes_max(100_000) } else { server.held_bytes_max(100_000) }
    });
    server
}

/// A client that takes nothing of what comes back, and these calls of `Bidi`.
fn connect(server: &fulmar::RunningServer, calls: usize) -> (Peer, Vec<u32>) {
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let streams: Vec<_> = (0..calls).map(|_| peer.take_stream()).collect();
    for &stream in &streams {
        peer.send(&[headers(stream, END_HEADERS, &request(BIDI))]);
    }
    peer.settle();
    (peer, streams)
}

/// Sends four messages: with the third one in its hands the handler waits for the client to take its echo, so that it does not
/// take the fourth.
fn fill(peer: &mut Peer, stream: u32, length: usize) {
    for length in [60_000, 60_000, 0, length] {
        peer.send_content(stream, &message(&vec![b'm'; length]), false);
        // What arrives together is held together until the handler's turn comes.
        peer.settle();
    }
}

/// Begins a call, and says whether the server refuses it.
fn is_refused(peer: &mut Peer) -> bool {
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(U))]);
    let frames = peer.settle();
    let reset = frames.iter().find(|frame| frame.is(RST_STREAM, stream));
    assert!(reset.is_none_or(|reset| reset.u32_at(0) == REFUSED_STREAM), "{reset:?}");
    reset.is_some()
}

/// Takes what comes back on some streams: so many bytes on each.
fn take(peer: &mut Peer, streams: &[u32], bytes: usize) {
    let credit = streams.iter().chain(&[0]).map(|&stream| window_update(stream, 1 << 24));
    peer.send(&credit.collect::<Vec<_>>());
    let mut left = bytes * streams.len();
    while left > 0 {
        left -= peer.until(|frame| frame.kind == DATA && streams.contains(&frame.stream)).payload.len();
    }
}

#[test]
fn above_the_bound_of_a_connection_new_calls_are_refused_until_messages_are_taken() {
    let server = serve(false);
    let (mut peer, streams) = connect(&server, 3);
    fill(&mut peer, streams[0], 40_000);
    fill(&mut peer, streams[1], 40_000);
    assert!(!is_refused(&mut peer));
    fill(&mut peer, streams[2], 40_000);
    assert!(is_refused(&mut peer));
    // Another connection is not held responsible.
    Peer::connect(server.local_addr().unwrap()).assert_alive();

    take(&mut peer, &streams, 160_020);
    assert!(!is_refused(&mut peer));
}

#[test]
fn above_the_bound_of_a_reactor_new_calls_are_refused_on_every_connection() {
    let server = serve(true);
    let (mut one, of_one) = connect(&server, 2);
    let (mut other, of_other) = connect(&server, 1);
    fill(&mut one, of_one[0], 40_000);
    fill(&mut one, of_one[1], 40_000);
    assert!(!is_refused(&mut other));
    fill(&mut other, of_other[0], 40_000);
    assert!(is_refused(&mut one) && is_refused(&mut other));

    take(&mut one, &of_one, 160_020);
    assert!(!is_refused(&mut one) && !is_refused(&mut other));
}

#[test]
fn a_message_above_the_bound_the_call_that_holds_most_is_exhausted_and_the_others_go_on() {
    let server = serve(false);
    let (mut peer, streams) = connect(&server, 4);
    for (&stream, length) in streams.iter().zip([40_000, 45_000, 40_000, 40_000]) {
        fill(&mut peer, stream, length);
    }
    take(&mut peer, &streams[1..2], 120_010);
    let end = peer.until(|frame| frame.is(HEADERS, streams[1]) && frame.field("grpc-status").is_some());
    assert_eq!(end.field("grpc-status"), Some("8"));
    assert!(end.field("grpc-message").is_some_and(|text| text.starts_with("held_bytes_max")), "{end:?}");

    take(&mut peer, &[streams[0], streams[2], streams[3]], 160_020);
    assert!(!is_refused(&mut peer));
}
