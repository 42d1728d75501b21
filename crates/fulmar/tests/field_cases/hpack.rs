//! R24 to R29: header compression, and limits on header lists.

use crate::peer::{
    COMPRESSION_ERROR, END_HEADERS, END_STREAM, Peer, headers, indexed, inserted, message, request,
    size_update,
};
use crate::service::{U, serve};

#[test]
fn r24_size_updates_may_stand_in_front_of_a_block_and_one_of_zero_empties_the_table() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let entry = inserted("x-kept", "yes");
    let answer = peer.call_with(&[request(U), entry].concat(), b"1");
    assert_eq!(answer.header("x-kept"), Some("yes"));
    assert_eq!(answer.content, message(b"1"));
    let answer = peer.call_with(&[request(U), indexed(62)].concat(), b"2");
    assert_eq!(answer.header("x-kept"), Some("yes"), "the entry is in the table");

    assert_eq!([size_update(0), size_update(4_096)].concat(), [0x20, 0x3f, 0xe1, 0x1f]);
    let answer = peer.call_with(&[size_update(0), size_update(4_096), request(U)].concat(), b"3");
    assert_eq!(answer.trailer("grpc-status"), Some("0"));

    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS | END_STREAM, &[request(U), indexed(62)].concat())]);
    peer.expect_failure(COMPRESSION_ERROR);
}
