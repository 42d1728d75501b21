//! R50, R51: what connections and loads leave in memory. A program of its own, whose tests take turns, so that no other moves the
//! figures.
#![cfg(target_os = "linux")]

#[path = "field_cases/peer.rs"]
mod peer;
#[path = "field_cases/service.rs"]
#[allow(dead_code, reason = "the service of all field cases")]
mod service;
#[path = "field_cases/wire.rs"]
mod wire;

use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

use peer::Peer;
use service::{U, serve};
use wire::{
    CANCEL, END_HEADERS, INITIAL_WINDOW_SIZE, data, headers, message, request, reset_stream, window_update,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is resident.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * KIB
}

/// A connection that has made a call, of which only the socket is kept here.
fn idle(address: SocketAddr) -> TcpStream {
    let mut peer = Peer::connect(address);
    peer.assert_alive();
    peer.socket().try_clone().unwrap()
}

#[test]
fn r50_an_idle_connection_holds_less_than_ten_kibibytes() {
    const CONNECTIONS: usize = 400;
    let _turn = turn();
    let (server, _) = serve();
    let address = server.local_addr().unwrap();
    // Connections that come and go are not what an idle one holds.
    drop((0..50).map(|_| idle(address)).collect::<Vec<_>>());
    let before = resident_bytes();
    let connections: Vec<_> = (0..CONNECTIONS).map(|_| idle(address)).collect();
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    assert!(each < 10 * KIB, "{each} bytes for each connection");

    // Their memory serves others.
    drop(connections);
    let again: Vec<_> = (0..CONNECTIONS).map(|_| idle(address)).collect();
    let each = resident_bytes().saturating_sub(before) / again.len();
    assert!(each < 10 * KIB, "{each} bytes for each connection of the second time");
}

/// A connection whose windows do not hold the server up.
fn spacious(address: SocketAddr) -> Peer {
    let mut peer = Peer::connect_with(address, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.send(&[window_update(0, 1 << 30)]);
    peer
}

#[test]
fn r51_a_peak_of_large_messages_is_given_back() {
    let _turn = turn();
    let (server, _) = serve();
    let address = server.local_addr().unwrap();
    spacious(address).assert_alive();
    let before = resident_bytes();
    for _ in 0..3 {
        let mut peers: Vec<_> = (0..10).map(|_| spacious(address)).collect();
        let mut calls = Vec::new();
        for peer in &mut peers {
            let streams: Vec<_> = (0..5).map(|_| peer.take_stream()).collect();
            for &stream in &streams {
                peer.send(&[headers(stream, END_HEADERS, &request(U))]);
                peer.send_content(stream, &message(&vec![7; MIB]), true);
            }
            calls.push(streams);
        }
        for (peer, streams) in peers.iter_mut().zip(&calls) {
            for &stream in streams {
                assert_eq!(peer.answer(stream).content.len(), MIB + 5);
            }
        }
    }
    let after = resident_bytes();
    assert!(after < before + 64 * MIB, "{} bytes more than before", after - before);
}

#[test]
fn r51_messages_given_up_midway_leave_nothing() {
    let _turn = turn();
    let (server, _) = serve();
    let mut peer = spacious(server.local_addr().unwrap());
    let (content, mut before) = (message(&vec![7; MIB]), 0);
    for round in 0..1_000 {
        if round % 50 == 0 {
            peer.assert_alive();
        }
        if round == 100 {
            before = resident_bytes();
        }
        let stream = peer.take_stream();
        peer.send(&[
            headers(stream, END_HEADERS, &request(U)),
            data(stream, 0, &content[..16_384]),
            data(stream, 0, &content[16_384..32_768]),
            reset_stream(stream, CANCEL),
        ]);
    }
    peer.assert_alive();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 2 * MIB, "{grown} bytes are left of messages that never came");
}
