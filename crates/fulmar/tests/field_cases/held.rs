//! Messages that arrive and that nobody takes: the bounds on what a server holds, crossed by a client that keeps every window.

use fulmar::Http2Config;

use crate::peer::{
    DATA, END_HEADERS, Frame, HEADERS, INITIAL_WINDOW_SIZE, Peer, REFUSED_STREAM, RST_STREAM, headers,
    message, request, window_update,
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

/// What the handler takes before it waits: more than may wait to be sent, and one message more. Each is small, as what is on its way
/// counts while it is read.
const TAKEN: [usize; 6] = [16_000, 16_000, 16_000, 16_000, 16_000, 0];

/// Sends so many messages that the handler waits for the client to take its echo, and one that it therefore does not take. Returns
/// what came back.
fn fill(peer: &mut Peer, stream: u32, length: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    for length in TAKEN.into_iter().chain([length]) {
        peer.send_content(stream, &message(&vec![b'm'; length]), false);
        // What arrives together is held together until the handler's turn comes.
        frames.extend(peer.settle());
    }
    frames
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

/// Takes what comes back on some streams, each of which was filled with a message of this length.
fn take(peer: &mut Peer, streams: &[u32], length: usize) {
    let bytes: usize = TAKEN.into_iter().chain([length]).map(|length| message(&[]).len() + length).sum();
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

    take(&mut peer, &streams, 40_000);
    assert!(!is_refused(&mut peer));
}

#[test]
fn above_the_bound_of_a_reactor_the_connection_that_holds_most_gets_no_new_calls_and_the_others_do() {
    let server = serve(true);
    let (mut greedy, streams) = connect(&server, 2);
    let (mut other, of_other) = connect(&server, 1);
    fill(&mut greedy, streams[0], 40_000);
    fill(&mut greedy, streams[1], 40_000);
    assert!(!is_refused(&mut greedy));
    fill(&mut other, of_other[0], 30_000);
    assert!(is_refused(&mut greedy));
    assert!(!is_refused(&mut other));
    Peer::connect(server.local_addr().unwrap()).assert_alive();

    take(&mut greedy, &streams, 40_000);
    assert!(!is_refused(&mut greedy));
}

#[test]
fn a_message_above_the_bound_of_a_reactor_the_connection_that_holds_most_ends_a_call_although_it_is_silent() {
    let server = serve(true);
    let (mut greedy, streams) = connect(&server, 3);
    for (&stream, length) in streams.iter().zip([40_000, 45_000, 40_000]) {
        fill(&mut greedy, stream, length);
    }
    let (mut other, of_other) = connect(&server, 1);
    fill(&mut other, of_other[0], 40_000);
    let end = greedy.until(|frame| frame.kind == HEADERS && frame.field("grpc-status").is_some());
    assert_eq!((end.stream, end.field("grpc-status")), (streams[1], Some("8")));
    assert!(end.field("grpc-message").is_some_and(|text| text.contains("all connections")), "{end:?}");
    // The other one has its call, and gets more.
    take(&mut other, &of_other, 40_000);
    assert!(!is_refused(&mut other));
}

#[test]
fn a_message_above_the_bound_the_call_that_holds_most_is_exhausted_at_once_and_the_others_go_on() {
    let server = serve(false);
    let (mut peer, streams) = connect(&server, 4);
    let fills = streams.iter().zip([40_000, 45_000, 40_000, 40_000]);
    let frames: Vec<_> = fills.flat_map(|(&stream, length)| fill(&mut peer, stream, length)).collect();
    // Its echo waits for credit that never comes; its status does not.
    let end = frames.iter().find(|frame| frame.field("grpc-status").is_some()).expect("a call ends");
    assert_eq!(end.stream, streams[1]);
    assert_eq!(end.field("grpc-status"), Some("8"));
    assert!(end.field("grpc-message").is_some_and(|text| text.starts_with("held_bytes_max")), "{end:?}");

    take(&mut peer, &[streams[0], streams[2], streams[3]], 40_000);
    assert!(!is_refused(&mut peer));
}
