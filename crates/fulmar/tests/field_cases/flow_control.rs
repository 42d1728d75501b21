//! R16 to R19, R22: flow control.

use crate::peer::{
    CANCEL, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, PROTOCOL_ERROR, Peer, data, headers, message,
    priority, request, reset_stream, window_update,
};
use crate::service::{U, serve};

/// Calls until the stream ids are used up to `last`, a hundred at a time.
fn use_streams(peer: &mut Peer, last: u32) {
    let block = request(U);
    let body = message(b"one of many");
    while peer.next_stream <= last {
        let batch: Vec<u32> = (0..100).map(|_| peer.take_stream()).collect();
        let frames: Vec<Vec<u8>> = batch
            .iter()
            .map(|&id| [headers(id, END_HEADERS, &block), data(id, END_STREAM, &body)].concat())
            .collect();
        peer.send(&frames);
        for _ in batch {
            let end = peer.until(|frame| frame.kind == HEADERS && frame.has(END_STREAM));
            assert_eq!(end.field("grpc-status"), Some("0"), "{end:?}");
        }
    }
}

/// What a peer may still send for streams that have ended, because it had not heard of the end: the end of a call is often
/// followed by RST_STREAM.
#[test]
fn r22_late_frames_on_finished_streams_are_ignored_and_idle_streams_are_an_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let late = [
        window_update(1, 100),
        window_update(3, 100),
        reset_stream(5, NO_ERROR),
        reset_stream(5, CANCEL),
        priority(7),
    ];
    for _ in 0..5 {
        peer.assert_alive();
    }
    peer.send(&late);
    assert_eq!(peer.settle(), [], "nothing is answered");
    peer.assert_alive();

    peer.send(&[window_update(0, 1 << 20)]);
    use_streams(&mut peer, 20_000);
    peer.send(&late);
    assert_eq!(peer.settle(), [], "nor when the streams are long forgotten");
    peer.assert_alive();

    peer.send(&[window_update(peer.next_stream + 100, 1)]);
    peer.expect_failure(PROTOCOL_ERROR);
}

#[test]
fn r22_a_reset_of_an_idle_stream_is_an_error() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    peer.send(&[reset_stream(101, CANCEL)]);
    peer.expect_failure(PROTOCOL_ERROR);
}
