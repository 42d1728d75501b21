//! R52 and R53: when descriptors run out, and when sockets are stuck.
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATH_CHAT, PATH_COUNT, PATH_ECHO, block_on, eventually, number, value};
use fulmar::{
    Channel, ClientReactor, Code, Http2Config, Raw, Request, Response, Server, SocketOptions, Status,
    blocking,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Says that this process is the server of a test, and which.
const CHILD: &str = "FULMAR_EXHAUSTION_CHILD";

const PATIENCE: Duration = Duration::from_secs(10);

/// A process that runs the test of the same name as a server, with 64 descriptors.
struct ChildServer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl ChildServer {
    fn start(test: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, test)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The rest of the line of the child's that has `key` in it.
    fn told(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child has ended without {key}");
            if let Some((_, rest)) = line.split_once(key) {
                return rest.trim().to_owned();
            }
        }
    }

    /// How much processor time the child has had.
    fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// Ends the child, which tells how often it has logged.
    fn end(mut self) -> usize {
        self.process.stdin.take().unwrap().write_all(b"end\n").unwrap();
        let logged = self.told("LOGGED ").parse().unwrap();
        assert!(self.process.wait().unwrap().success());
        logged
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn limit_descriptors(most: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).unwrap();
}

static LOGGED: AtomicUsize = AtomicUsize::new(0);

/// Counts warnings.
struct Counter;

impl tracing::Subscriber for Counter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target() == "fulmar::connection"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        LOGGED.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What the child does.
fn serve_until_told() {
    tracing::subscriber::set_global_default(Counter).unwrap();
    let server =
        Server::builder().reactors(1).add_service(common::Demo::default()).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    limit_descriptors(64);
    println!("SERVING {}", server.endpoint());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("LOGGED {}", LOGGED.load(Ordering::SeqCst));
    server.shutdown(Duration::ZERO).unwrap();
}

fn echo(channel: &Channel) -> Result<u64, Status> {
    let request = Request::new(number(7)).with_timeout(PATIENCE);
    let reply: Response<Raw> = block_on(channel.unary(PATH_ECHO, request))?;
    Ok(value(reply.get_ref()))
}

#[test]
fn r52_a_server_without_descriptors_serves_on_and_accepts_when_there_are_some() {
    const NAME: &str = "r52_a_server_without_descriptors_serves_on_and_accepts_when_there_are_some";
    if std::env::var(CHILD).is_ok_and(|test| test == NAME) {
        return serve_until_told();
    }
    let mut child = ChildServer::start(NAME);
    let endpoint = child.told("SERVING ");
    let address = endpoint.strip_prefix("http://").unwrap().to_owned();
    let channel = block_on(Channel::connect(&endpoint)).unwrap();
    let mut crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();

    // It has more clients than it has descriptors for: those that it has are served, at no cost.
    let (begun, cpu) = (Instant::now(), child.cpu_time());
    while begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(echo(&channel).unwrap(), 7);
        thread::sleep(Duration::from_millis(50));
    }
    let used = child.cpu_time() - cpu;
    assert!(used < begun.elapsed() / 2, "it spins: {used:?} in {:?}", begun.elapsed());
    let late = Channel::builder(&endpoint).connect_timeout(Duration::from_millis(100)).build().unwrap();
    assert_eq!(echo(&late).unwrap_err().code(), Code::Unavailable);

    crowd.truncate(50);
    let freed = Instant::now();
    let fresh = block_on(Channel::connect(&endpoint)).unwrap();
    assert_eq!(echo(&fresh).unwrap(), 7);
    assert!(freed.elapsed() < PATIENCE, "{:?}", freed.elapsed());

    let seconds = begun.elapsed().as_secs() as usize + 2;
    let logged = child.end();
    assert!((1..=seconds).contains(&logged), "{logged} lines in {seconds} s");
}

#[test]
fn r52_connections_that_are_reset_before_they_are_accepted_harm_nobody() {
    let server = common::serve();
    let address = server.local_addr().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    for _ in 0..1_000 {
        let stream = TcpStream::connect(address).unwrap();
        // Closing resets the connection.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    assert_eq!(echo(&channel).unwrap(), 7);
    assert_eq!(echo(&block_on(Channel::connect(server.endpoint())).unwrap()).unwrap(), 7);
    eventually("only the channels are left", || {
        server.handle().counts().is_some_and(|counts| counts.connections <= 2)
    });
}

#[test]
fn r52_a_client_without_descriptors_keeps_its_connections_and_dials_again_when_there_are_some() {
    const NAME: &str =
        "r52_a_client_without_descriptors_keeps_its_connections_and_dials_again_when_there_are_some";
    if std::env::var(CHILD).is_ok_and(|test| test == NAME) {
        return call_without_descriptors();
    }
    let mut child = ChildServer::start(NAME);
    child.told("SERVING ");
    child.end();
}

/// What the child does: it is its own server, all of whose connections are there before descriptors run out.
fn call_without_descriptors() {
    let server = common::serve();
    let reactor = ClientReactor::start().unwrap();
    let channel = block_on(Channel::builder(server.endpoint()).reactor(&reactor).connect()).unwrap();
    assert_eq!(echo(&channel).unwrap(), 7);
    limit_descriptors(64);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    let other = Channel::builder(server.endpoint()).reactor(&reactor).build().unwrap();
    let status = echo(&other).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("Too many open files"), "{status}");
    let error = blocking::Channel::connect(server.endpoint()).unwrap_err();
    assert!(error.to_string().contains("Too many open files"), "{error}");
    assert_eq!(echo(&channel).unwrap(), 7, "a connection that stands is not touched");
    files.clear();
    // A channel that has failed may wait a while before it tries again.
    eventually("it dials again", || echo(&other).is_ok());
    println!("SERVING nobody");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("LOGGED 0");
}

#[test]
fn r52_an_address_that_cannot_be_had_is_named_and_other_channels_go_on() {
    // What happens when ports run out (EADDRNOTAVAIL), brought about by an address that no machine has (RFC 5737).
    let server = common::serve();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let local_address = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let options = SocketOptions { local_address, ..SocketOptions::default() };
    let starved = Channel::builder(server.endpoint()).socket_options(options).build().unwrap();
    for _ in 0..3 {
        let status = echo(&starved).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("Cannot assign requested address"), "{status}");
        assert_eq!(echo(&channel).unwrap(), 7);
    }
}

/// A server that exchanges SETTINGS and then reads nothing any more.
fn stuck_server() -> (String, thread::JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let accepting = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // SETTINGS with large windows, an acknowledgement, and as much credit for the connection: only the socket is full.
        let window = 0x7fff_0000_u32.to_be_bytes();
        let mut frames = vec![0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4];
        frames.extend(window);
        frames.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]);
        frames.extend([0, 0, 4, 8, 0, 0, 0, 0, 0]);
        frames.extend(window);
        stream.write_all(&frames).unwrap();
        stream
    });
    (endpoint, accepting)
}

#[test]
fn r53_an_endpoint_that_stops_reading_disturbs_no_other() {
    let server = common::serve();
    let (endpoint, stuck) = stuck_server();
    let reactor = ClientReactor::start().unwrap();
    let to = |endpoint: &str| Channel::builder(endpoint).reactor(&reactor).build().unwrap();
    let (a, b) = (to(&endpoint), to(&server.endpoint()));
    assert_eq!(echo(&b).unwrap(), 7);

    // Fill whatever lies between, for as long as the calls have time.
    let timeout = Duration::from_millis(800);
    let begun = Instant::now();
    let fillers: Vec<_> = (0..4)
        .map(|_| {
            let a = a.clone();
            thread::spawn(move || {
                block_on(async {
                    let request = Request::new(()).with_timeout(timeout);
                    let mut call = a.bidi::<Raw, Raw>(PATH_CHAT, request).await.unwrap();
                    let large = Raw::from(vec![7; 1 << 20]);
                    loop {
                        if let Err(status) = call.requests.send(&large).await {
                            return (status.code(), begun.elapsed());
                        }
                    }
                })
            })
        })
        .collect();
    while begun.elapsed() < timeout / 2 {
        let call = Instant::now();
        assert_eq!(echo(&b).unwrap(), 7);
        assert_eq!(echo(&to(&server.endpoint())).unwrap(), 7, "others can be dialled");
        assert!(call.elapsed() < PATIENCE);
    }
    for filler in fillers {
        let (code, elapsed) = filler.join().unwrap();
        assert_eq!(code, Code::DeadlineExceeded);
        assert!(elapsed < timeout + PATIENCE, "the deadline is on time: {elapsed:?}");
    }
    let dropped = Instant::now();
    drop(a);
    assert!(dropped.elapsed() < Duration::from_secs(1), "{:?}", dropped.elapsed());
    assert_eq!(echo(&b).unwrap(), 7);
    drop(stuck.join().unwrap());
}

#[test]
fn r53_clients_that_give_no_credit_are_reaped() {
    let http2 = Http2Config { credit_wait_ms: 300, ..Http2Config::default() };
    let server = Server::builder().reactors(1).http2(http2).add_service(common::Demo::default());
    let server = server.bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = server.endpoint();
    let reactor = ClientReactor::start().unwrap();
    // Clients whose applications never read: the windows of their streams stay at zero once they are full.
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let channel = Channel::builder(&endpoint).reactor(&reactor).build().unwrap();
            block_on(channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(u64::MAX))).unwrap()
        })
        .collect();
    eventually("all of them are reaped", || {
        server.handle().counts().is_some_and(|counts| counts.handlers == 0)
    });
    drop(calls);
}
