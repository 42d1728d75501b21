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
    Backoff, Channel, ClientReactor, Code, Http2Config, Raw, Request, Response, Server, SocketOptions,
    Status, blocking,
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

    fn cpu_time(&self) -> Duration {
        cpu_time_of(&self.process.id().to_string())
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

/// How much processor time a process has had.
fn cpu_time_of(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
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

    // It has more clients than it has descriptors for: those that it has are served.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(echo(&channel).unwrap(), 7);
        thread::sleep(Duration::from_millis(50));
    }
    let late = Channel::builder(&endpoint).connect_timeout(Duration::from_millis(100)).build().unwrap();
    assert_eq!(echo(&late).unwrap_err().code(), Code::Unavailable);
    drop(late);

    // It does not spin.
    let (idle, cpu) = (Instant::now(), child.cpu_time());
    thread::sleep(Duration::from_secs(2));
    let used = child.cpu_time() - cpu;
    assert!(used < idle.elapsed() / 20, "it spins: {used:?} in {:?}", idle.elapsed());

    // Those who go make room for others, of the ones that it has and of the ones that wait. The machine may be late, once.
    let mut waits = Vec::new();
    for oldest_first in [false, true, false] {
        crowd.drain(if oldest_first { 0..50 } else { 50..100 });
        let freed = Instant::now();
        let fresh = block_on(Channel::connect(&endpoint)).unwrap();
        assert_eq!(echo(&fresh).unwrap(), 7);
        waits.push(freed.elapsed());
        drop(fresh);
        crowd.extend((0..50).map(|_| TcpStream::connect(&address).unwrap()));
        assert_eq!(echo(&channel).unwrap(), 7);
    }
    assert!(waits.iter().min().is_some_and(|least| *least < Duration::from_secs(1)), "{waits:?}");

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
fn r52_a_client_without_ports_keeps_its_connections_and_dials_again_when_there_are_some() {
    const NAME: &str = "r52_a_client_without_ports_keeps_its_connections_and_dials_again_when_there_are_some";
    if std::env::var(CHILD).is_ok_and(|test| test == NAME) {
        return call_without_ports();
    }
    // A network of its own, which has ten ports. Where the system gives none to this user, `r52_an_address_that_cannot_be_had_…`
    // has to do.
    let in_a_network = |command: &str| {
        let network =
            r#"ip link set lo up && echo "61000 61009" >/proc/sys/net/ipv4/ip_local_port_range && exec "$@""#;
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "sh", "-c", network, "sh", command]);
        unshare
    };
    let allowed = in_a_network("true").stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("not tried: no network namespace is to be had");
        return;
    }
    let executable = std::env::current_exe().unwrap();
    let mut test = in_a_network(executable.to_str().unwrap());
    let output = test.args(["--exact", NAME, "--nocapture"]).env(CHILD, NAME).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("HELD AND CAME BACK"), "{said}{complaint}");
}

/// What the child does: it is its own server, on a port that is none of the ten.
fn call_without_ports() {
    let server = Server::builder().reactors(1).add_service(common::Demo::default());
    let server = server.bind("127.0.0.1:50051").unwrap().spawn().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    assert_eq!(echo(&channel).unwrap(), 7);
    let address = server.local_addr().unwrap();
    let mut crowd: Vec<TcpStream> = Vec::new();
    while let Ok(stream) = TcpStream::connect(address) {
        crowd.push(stream);
        assert!(crowd.len() <= 10);
    }
    assert!(crowd.len() >= 9, "{} of ten ports", crowd.len());
    let backoff = Backoff { initial: Duration::from_millis(100), ..Backoff::default() };
    let starved = Channel::builder(server.endpoint()).backoff(backoff).build().unwrap();
    let blocking = blocking::Channel::connect(server.endpoint()).map(drop).unwrap_err();
    for said in [echo(&starved).unwrap_err().message().to_owned(), blocking.to_string()] {
        assert!(
            said.contains("Cannot assign requested address") && said.contains("127.0.0.1:50051"),
            "{said}"
        );
    }
    let cpu = cpu_time_of("self");
    thread::sleep(Duration::from_secs(1));
    let used = cpu_time_of("self") - cpu;
    assert!(used < Duration::from_millis(200), "it spins: {used:?}");
    assert_eq!(echo(&channel).unwrap(), 7, "a connection that stands is not touched");
    // Who closes first keeps the port for a minute: the server does.
    server.handle().shutdown(Duration::ZERO);
    let server = server.join();
    assert!(server.is_ok());
    drop(crowd);
    let server = Server::builder().reactors(1).add_service(common::Demo::default());
    let server = server.bind(address).unwrap().spawn().unwrap();
    for channel in [&starved, &channel] {
        let request = Request::new(number(7)).with_timeout(PATIENCE).with_wait_for_ready(true);
        let reply: Response<Raw> = block_on(channel.unary(PATH_ECHO, request)).unwrap();
        assert_eq!(value(reply.get_ref()), 7);
    }
    drop(server);
    println!("HELD AND CAME BACK");
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
