//! R46 to R48: what clients that flood a server do to one that behaves, and to the server's memory.
//!
//! One test, so that nothing else runs in the process. It prints a table; `cargo test --release -p fulmar --test floods --
//! --nocapture` is how the one in `docs/security.md` was made.
//!
//! The attackers run on the cores that the server and the client run on, and so do the machine's other users. Whoever finds all cores
//! taken waits for milliseconds, which is up to the system, and says nothing about the server. So the test tells two figures: how long
//! calls took, and how long they took without the time for which others had the core that the client's thread or the server's needed.

#[path = "field_cases/peer.rs"]
mod peer;
#[allow(dead_code, reason = "a vocabulary, of which a test uses what it needs")]
#[path = "field_cases/service.rs"]
mod service;
#[path = "field_cases/wire.rs"]
mod wire;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peer::{
    CANCEL, END_HEADERS, END_STREAM, PREFACE, Peer, continuation, data, frame, headers, inserted, literal,
    message, ping, priority, request, reset_stream, settings, settings_ack, window_update,
};
use service::{BIDI, SLOW, U, serve};

/// How long each flood lasts, at least.
const FLOOD: Duration = Duration::from_millis(250);

/// How many calls are made meanwhile, at least.
const CALLS: usize = 200;

/// Threads that share a core hand it over in less. Whoever waits for longer waits for the end of another one's time slice.
const HANDED_OVER: Duration = Duration::from_micros(100);

/// What waking a thread takes on another core, of which a quiet client sees nothing if both threads have the same.
const NOISE: Duration = Duration::from_micros(50);

/// What a thread may wait for a core, where the system does not tell how long it did.
const SCHEDULING: Duration = Duration::from_millis(20);

/// How many connections flood at the same time, each followed by the next as soon as it was cut off.
const ATTACKERS: usize = 2;

/// What a client sends behind its preface, as fast as it can, without ever reading.
struct Flood {
    name: &'static str,
    bytes: Vec<u8>,
    /// It leaves when it has sent all.
    leaves: bool,
}

impl Flood {
    /// `round` is given the id of a stream that is new.
    fn new(name: &'static str, rounds: u32, round: impl Fn(u32) -> Vec<u8>) -> Self {
        let mut bytes = [PREFACE, &settings(&[]), &settings_ack()].concat();
        // Something for those floods to work on that need an open stream.
        bytes.extend(headers(1, END_HEADERS, &request(BIDI)));
        (1..=rounds).for_each(|n| bytes.extend(round(2 * n + 1)));
        Self { name, bytes, leaves: false }
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
        // As many as the server allows, one of which is open already.
        Flood { leaves: true, ..Flood::new("calls abandoned", 999, |id| request_for(SLOW, id)) },
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
        if flood.leaves {
            let _ = socket.shutdown(Shutdown::Write);
        }
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

/// Reads what attackers send it and cuts them off now and then: somebody who keeps them as busy as a server does.
fn sink(listener: &TcpListener, stop: &AtomicBool) {
    let mut scratch = vec![0; 64 * 1024];
    while let Ok((mut stream, _)) = listener.accept() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        for _ in 0..16 {
            if !stream.read(&mut scratch).is_ok_and(|read| read > 0) {
                break;
            }
        }
    }
}

/// The 99th percentile of how long a call took.
#[derive(Copy, Clone)]
struct Latency {
    whole: Duration,
    /// Without the time for which others had a core that its threads needed, where the system tells.
    served: Duration,
}

/// Calls for as long as `going` says.
fn p99(peer: &mut Peer, waits: &mut Waits, going: impl Fn(usize) -> bool) -> Latency {
    let (mut whole, mut served) = (Vec::new(), Vec::new());
    while going(whole.len()) {
        let waited = waits.total();
        let begun = Instant::now();
        peer.assert_alive();
        let took = begun.elapsed();
        let waited = waits.total().saturating_sub(waited);
        whole.push(took);
        served.push(if waited > HANDED_OVER { took.saturating_sub(waited) } else { took });
    }
    let p99 = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() * 99 / 100]
    };
    Latency { whole: p99(whole), served: p99(served) }
}

/// How long the client's thread, which is this one, and the server's have waited for a core since they began.
struct Waits(Vec<File>);

impl Waits {
    /// Without effect where the system does not tell.
    fn new() -> Self {
        let own = fs::read_link("/proc/thread-self").unwrap_or_default();
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let watched = threads.filter(|thread| {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            Some(&*thread.file_name()) == own.file_name() || name.starts_with("fulmar-")
        });
        Self(watched.filter_map(|thread| File::open(thread.path().join("schedstat")).ok()).collect())
    }

    fn total(&mut self) -> Duration {
        self.0.iter_mut().map(waited).sum()
    }
}

/// The second of three figures.
fn waited(schedstat: &mut File) -> Duration {
    let mut figures = [0; 128];
    let read = schedstat.rewind().and_then(|()| schedstat.read(&mut figures)).unwrap_or(0);
    let figures = String::from_utf8_lossy(&figures[..read]);
    Duration::from_nanos(figures.split(' ').nth(1).and_then(|figure| figure.parse().ok()).unwrap_or(0))
}

/// Resident memory of the process in bytes, where the system tells.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4_096
}

/// Runs `call` while attackers flood an address. Also returns how many connections they needed.
fn during<R>(address: SocketAddr, flood: &Flood, call: impl FnOnce() -> R) -> (R, usize) {
    let (stop, connections) = (AtomicBool::new(false), AtomicUsize::new(0));
    let result = thread::scope(|scope| {
        for _ in 0..ATTACKERS {
            scope.spawn(|| attack(address, flood, &stop, &connections));
        }
        let _stop = SetOnDrop(&stop);
        call()
    });
    (result, connections.into_inner())
}

/// The latency while the attackers flood somebody else.
fn beside_busy_neighbours(flood: &Flood, call: impl FnOnce() -> Latency) -> Latency {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| sink(&listener, &stop));
        let (latency, _) = during(address, flood, call);
        stop.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = std::net::TcpStream::connect(address);
        latency
    })
}

#[test]
fn r48_a_client_that_behaves_is_served_under_every_flood_and_memory_stays_flat() {
    let floods = floods();
    let (server, seen) = serve();
    let address = server.local_addr().expect("it listens");
    let mut peer = Peer::connect(address);
    peer.send(&[window_update(0, 1 << 30)]);
    let mut waits = Waits::new();
    let tells = waits.0.len() == 2;
    p99(&mut peer, &mut waits, |calls| calls < CALLS);
    let mut measure = || {
        let begun = Instant::now();
        p99(&mut peer, &mut waits, |calls| calls < CALLS || begun.elapsed() < FLOOD)
    };
    let quiet = measure();
    let busy = beside_busy_neighbours(&floods[0], &mut measure);
    println!("99th percentile of a call, and without the time for which others had the core");
    println!("{:20} {:>9.0?} {:>9.0?}", "quiet", quiet.whole, quiet.served);
    println!("{:20} {:>9.0?} {:>9.0?}", "busy neighbours", busy.whole, busy.served);
    for flood in &floods {
        let before = resident_bytes();
        let (flooded, connections) = during(address, flood, &mut measure);
        let grown = resident_bytes().saturating_sub(before);
        println!(
            "{:20} {:>9.0?} {:>9.0?} {:5.1} times quiet, {:5.1} times beside busy neighbours, {connections} connections, {} KiB",
            flood.name,
            flooded.whole,
            flooded.served,
            flooded.served.as_secs_f64() / quiet.served.as_secs_f64(),
            flooded.served.as_secs_f64() / busy.served.as_secs_f64(),
            grown / 1_024
        );
        // Three times is the aim, and this ten times that.
        let limit = 30 * quiet.served.max(if tells { NOISE } else { SCHEDULING });
        let served = flooded.served;
        assert!(served < limit, "under {}: {served:?} instead of {:?}", flood.name, quiet.served);
        assert!(grown < 8 << 20, "{} costs {} bytes of memory", flood.name, grown);
    }
    let most = seen.slow_most.load(Ordering::SeqCst);
    assert!(most <= 2 * 1_000, "{most} handlers ran at the same time");
}
