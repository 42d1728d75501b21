//! R49: what messages cost that unfold to a gigabyte. A program of its own, so that no other test moves the figures.
#![cfg(all(target_os = "linux", feature = "gzip", feature = "zstd"))]

#[path = "field_cases/peer.rs"]
mod peer;
#[path = "field_cases/service.rs"]
#[allow(dead_code, reason = "the service of all field cases")]
mod service;
#[path = "field_cases/wire.rs"]
mod wire;

use std::time::Duration;

use fulmar::encoding::{Encoding, Gzip, Zstd};
use fulmar::{Code, Raw, Response, Status, blocking};
use peer::{Peer, RawServer};
use service::{BIDI, U, serve_built};
use wire::{END_HEADERS, END_STREAM, data, headers, literal, message, request, response, trailers_ok};

const UNFOLDED: usize = 1 << 30;

/// A gzip bomb of as many members as it takes: a mebibyte, since DEFLATE does no better than a thousandfold.
fn gzip() -> Vec<u8> {
    const MEMBER: usize = 1 << 23;
    let mut member = Vec::new();
    Gzip::default().compressor().compress(&vec![0; MEMBER], &mut member).unwrap();
    member.repeat(UNFOLDED / MEMBER)
}

/// A zstd bomb of 32 KiB: blocks that each repeat a byte 131,072 times (RFC 8878 §3.1.1.2).
fn zstd() -> Vec<u8> {
    const BLOCK: u32 = 1 << 17;
    // Magic number; a header without size; a window of 2 MiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 11 << 3];
    let blocks = UNFOLDED as u32 / BLOCK;
    for block in 1..=blocks {
        let head = BLOCK << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

fn compressed(bomb: &[u8]) -> Vec<u8> {
    let mut message = message(bomb);
    message[0] = 1;
    message
}

/// A line of `/proc/self/status`, which counts in KiB.
fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// The processor time of this process. It has ticks of 10 ms on every Linux there is.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which may hold anything but a parenthesis that closes.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// The figures of R49, with ten times its 50 ms for code that is not optimised; of processor time, so that it does not matter what else
/// the machine has to do. Unfolding all would take seconds, and a hundred times the memory.
fn cheaply<R>(what: &str, run: impl FnOnce() -> R) -> R {
    let (before, begun) = (status_bytes("VmHWM:"), processor_time());
    let result = run();
    let (grown, took) = (status_bytes("VmHWM:") - before, processor_time() - begun);
    println!("{what}: {} KiB, {took:?}", grown / 1024);
    assert!(grown < 8 << 20, "{what}: the resident set grew by {grown} bytes");
    assert!(took < Duration::from_millis(500), "{what}: {took:?}");
    result
}

fn bomb_a_server(encoding: &str, bomb: &[u8]) {
    let (server, _) =
        serve_built(|server| server.accept_compressed(Gzip::default()).accept_compressed(Zstd::default()));
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let (other, stream) = (peer.take_stream(), peer.take_stream());
    peer.send(&[headers(other, END_HEADERS, &request(BIDI)), data(other, 0, &message(b"before"))]);
    peer.expect_content(other, message(b"before").len());
    let block = [request(U), literal("grpc-encoding", encoding)].concat();
    let content = compressed(bomb);
    let answer = cheaply(&format!("{encoding} at a server"), || {
        peer.send(&[headers(stream, END_HEADERS, &block)]);
        peer.send_content(stream, &content, true);
        peer.answer(stream)
    });
    assert_eq!(answer.trailer("grpc-status"), Some("8"), "{answer:?}");
    // A stream that was open goes on, and so does the connection.
    peer.send(&[data(other, END_STREAM, &message(b"behind"))]);
    let echoed = peer.answer(other);
    assert_eq!(echoed.content, message(b"behind"));
    peer.assert_alive();
}

fn bomb_a_client(encoding: &'static str, bomb: &[u8]) {
    let raw = RawServer::bind();
    let settings = blocking::Channel::builder(raw.endpoint())
        .accept_compressed(Gzip::default())
        .accept_compressed(Zstd::default());
    let content = compressed(bomb);
    let server = std::thread::spawn(move || {
        let mut peer = raw.accept(&[]);
        let stream = peer.expect_request();
        let encoding = literal("grpc-encoding", encoding);
        peer.send(&[headers(stream, END_HEADERS, &[response(), encoding].concat())]);
        peer.send_content(stream, &content, false);
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &trailers_ok())]);
        let next = peer.expect_request();
        peer.reply(next, b"alive");
        peer
    });
    let mut channel = blocking::Channel::with(settings).unwrap();
    let failed: Result<Response<Raw>, Status> =
        cheaply(&format!("{encoding} at a client"), || channel.unary(U, Raw::default()));
    assert_eq!(failed.unwrap_err().code(), Code::ResourceExhausted);
    let alive: Response<Raw> = channel.unary(U, Raw::default()).unwrap();
    assert_eq!(alive.get_ref().as_ref(), b"alive");
    drop(server.join().unwrap());
}

#[test]
fn r49_a_gigabyte_in_a_few_kilobytes_is_refused_cheaply_at_both_ends() {
    for (encoding, bomb) in [("zstd", zstd()), ("gzip", gzip())] {
        bomb_a_server(encoding, &bomb);
        bomb_a_client(encoding, &bomb);
    }
}
