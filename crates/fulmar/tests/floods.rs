//! R46 to R48: what clients that flood a server do to one that behaves, and to the server's memory.
//!
//! One test, so that nothing else runs in the process. It prints a table; `cargo test --release -p fulmar --test floods --
//! --nocapture` is how the one in `docs/security.md` was made.

#[path = "field_cases/peer.rs"]
mod peer;
#[allow(dead_code, reason = "a vocabulary, of which a test uses what it needs")]
#[path = "field_cases/service.rs"]
mod service;
#[path = "field_cases/wire.rs"]
mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peer::{
    CANCEL, END_HEADERS, END_STREAM, PREFACE, Peer, continuation, data, frame, headers, inserted, literal,
    message, ping, priority, request, reset_stream, settings, settings_ack, window_update,
};
use service::{BIDI, SLOW, U, serve};

/// How long each flood lasts.
const FLOOD: Duration = Duration::from_millis(100);

/// How many connections flood at the same time, each followed by the next as soon as it was cut off.
const ATTACKERS: usize = 2;

/// What a client sends behind its preface, as fast as it can, without ever reading.
struct Flood {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Flood {
    /// `round` is given the id of a stream that is new.
    fn new(name: &'static str, rounds: u32, round: impl Fn(u32) -> Vec<u8>) -> Self {
        let mut bytes = [PREFACE, &settings(&[]), &settings_ack()].concat();
        // Something for those floods to work on that need an open stream.
        bytes.extend(headers(1, END_HEADERS, &request(BIDI)));
        (1..=rounds).for_each(|n| bytes.extend(round(2 * n + 1)));
        Self { name, bytes }
    }
}

fn floods() -> Vec<Flood> {
    // More than the largest budget, and more than the others.
    const MANY: u32 = 12_000;
    const SOME: u32 = 3_000;
    let request_for =
        |path, id| [headers(id, END_HEADERS, &request(path)), data(id, END_STREAM, &message(b""))].concat();
    let churn = |id: u32| {
        let entry = inserted(&format!("x-{id}"), [b'v'; 100]);
        headers(id, END_HEADERS | END_STREAM, &[request(SLOW), entry.repeat(50)].concat())
    };
    // An entry of 4,000 bytes, then references to it: 4 MB of fields in a kilobyte.
    let bomb = |id: u32| {
        let block = [request(U), inserted("x-bomb", [b'b'; 4_000]), vec![0xbe; 1_000]].concat();
        headers(id, END_HEADERS | END_STREAM, &block)
    };
    let endless =
        [headers(3, 0, &[]), continuation(3, 0, &literal("x-more", "and more")).repeat(MANY as usize)];
    vec![
        Flood::new("rapid reset", SOME, |id| [request_for(SLOW, id), reset_stream(id, CANCEL)].concat()),
        Flood::new("provoked resets", SOME, |id| [request_for(SLOW, id), window_update(id, 0)].concat()),
        Flood::new("PING", SOME, |_| ping([7; 8])),
        Flood::new("SETTINGS", SOME, |_| settings(&[])),
        Flood::new("WINDOW_UPDATE by 1", MANY, |_| window_update(0, 1)),
        Flood::new("PRIORITY", MANY, |_| priority(1)),
        Flood::new("unknown frames", MANY, |_| frame(0xfe, 0, 0, b"unknown")),
        Flood::new("empty DATA", SOME, |_| data(1, 0, b"")),
        Flood::new("DATA of a byte", MANY, |_| data(1, 0, b"\0")),
        Flood::new("CONTINUATION", 1, |_| endless.concat()),
        Flood::new("header bombs", SOME, bomb),
        Flood::new("table churn", SOME, churn),
        Flood::new("requests unread", SOME, |id| request_for(U, id)),
    ]
}

/// Connects, floods, and comes again when it was cut off, until it is told to stop. Counts the connections.
fn attack(address: SocketAddr, flood: &Flood, stop: &AtomicBool, connections: &AtomicUsize) {
    while !stop.load(Ordering::SeqCst) {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(1).expect("brought up to the smallest that there is");
        socket.connect(&address.into()).expect("the server goes on accepting");
        let tick = Some(Duration::from_millis(20));
        socket.set_write_timeout(tick).expect("not zero");
        socket.set_read_timeout(tick).expect("not zero");
        connections.fetch_add(1, Ordering::SeqCst);
        // The server may have closed before all is written. Only then is anything read: how it ends.
        let until_cut_off = |step: &mut dyn FnMut() -> std::io::Result<usize>| {
            while !stop.load(Ordering::SeqCst) {
                match step() {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let mut rest = &flood.bytes[..];
        until_cut_off(&mut || {
            let written = (&socket).write(rest)?;
            rest = &rest[written..];
            Ok(written)
        });
        until_cut_off(&mut || (&socket).read(&mut [0; 4_096]));
    }
}

/// Sets a flag also when a check fails, so that the failure is told.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Calls for as long as `going` says, and returns the 99th percentile of how long a call took.
fn p99(peer: &mut Peer, going: impl Fn(usize) -> bool) -> Duration {
    let mut took = Vec::new();
    while going(took.len()) {
        let begun = Instant::now();
        peer.assert_alive();
        took.push(begun.elapsed());
    }
    took.sort();
    took[took.len() * 99 / 100]
}

/// Resident memory of the process in bytes, where the system tells.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4_096
}

#[test]
fn r48_a_client_that_behaves_is_served_under_every_flood_and_memory_stays_flat() {
    let floods = floods();
    let (server, seen) = serve();
    let address = server.local_addr().expect("it listens");
    let mut peer = Peer::connect(address);
    peer.send(&[window_update(0, 1 << 30)]);
    p99(&mut peer, |calls| calls < 200);
    let quiet = p99(&mut peer, |calls| calls < 500);
    println!("{:20} {:>9.0?} 99th percentile of a call", "quiet", quiet);
    for flood in &floods {
        let before = resident_bytes();
        let (stop, connections) = (AtomicBool::new(false), AtomicUsize::new(0));
        let flooded = thread::scope(|scope| {
            for _ in 0..ATTACKERS {
                scope.spawn(|| attack(address, flood, &stop, &connections));
            }
            let _stop = SetOnDrop(&stop);
            let begun = Instant::now();
            p99(&mut peer, |calls| calls < 50 || begun.elapsed() < FLOOD)
        });
        let grown = resident_bytes().saturating_sub(before);
        println!(
            "{:20} {flooded:>9.0?} {:5.1} times, {} connections, {} KiB more memory",
            flood.name,
            flooded.as_secs_f64() / quiet.as_secs_f64(),
            connections.into_inner(),
            grown / 1_024
        );
        // Three times is the aim, and this ten times that; others use the machine too.
        let limit = 30 * quiet.max(Duration::from_millis(20));
        assert!(flooded < limit, "under {}: {flooded:?} instead of {quiet:?}", flood.name);
        assert!(grown < 8 << 20, "{} costs {} bytes of memory", flood.name, grown);
    }
    let most = seen.slow_most.load(Ordering::SeqCst);
    assert!(most <= 1_000, "{most} handlers ran at the same time");
}
