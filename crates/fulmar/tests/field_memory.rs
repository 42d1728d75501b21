//! R27: what a header bomb costs in memory. A program of its own, so that no other test moves the figure.
#![cfg(target_os = "linux")]

#[path = "field_cases/peer.rs"]
mod peer;
#[path = "field_cases/service.rs"]
#[allow(dead_code, reason = "the service of all field cases")]
mod service;
#[path = "field_cases/wire.rs"]
mod wire;

use fulmar::Http2Config;
use peer::Peer;
use service::{U, serve_with};
use wire::{
    END_HEADERS, END_STREAM, continuation, headers, indexed, inserted, literal, request, window_update,
};

/// A line of `/proc/self/status`, which counts in KiB.
fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Sends a block of less than 32 KiB in two frames.
fn send_bomb(peer: &mut Peer, block: &[u8]) {
    let stream = peer.take_stream();
    let (front, back) = block.split_at(block.len() / 2);
    peer.send(&[headers(stream, END_STREAM, front), continuation(stream, END_HEADERS, back)]);
    assert_eq!(peer.answer(stream).trailer(":status"), Some("431"));
}

#[test]
fn r27_header_bombs_take_less_than_a_megabyte() {
    const BOMBS: usize = 50;
    // The limit on bytes is to hold without that on fields.
    let (server, _) = serve_with(Http2Config { header_fields_max: 1 << 20, ..Http2Config::default() });
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.send(&[window_update(0, 1 << 20)]);
    let references = [request(U), inserted("x-bomb", "v".repeat(4_000)), indexed(62).repeat(16_000)].concat();
    let empty = [request(U), literal("", "").repeat(5_000)].concat();
    for _ in 0..10 {
        peer.assert_alive();
    }
    let before = status_bytes("VmHWM:");
    for _ in 0..BOMBS {
        send_bomb(&mut peer, &references);
        send_bomb(&mut peer, &empty);
    }
    peer.assert_alive();
    let after = status_bytes("VmHWM:");
    // One bomb made whole would have 64 MB.
    assert!(after - before < 1 << 20, "the resident set grew by {} bytes", after - before);
}
