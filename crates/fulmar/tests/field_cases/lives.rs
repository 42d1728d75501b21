//! R30 to R33, R45, R53, R69 and R77: connections that are lost in every way, and how they are made again.

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{
    Backoff, Channel, Code, ConnectivityState, Http2Config, Keepalive, Raw, Request, Response, Server,
    Status, TransportError, blocking,
};

use crate::common::proxy::Proxy;
use crate::common::{block_on, eventually, soon};
use crate::peer::{
    ACK, END_HEADERS, END_STREAM, Frame, PING, Peer, RawServer, data, headers, message, ping_ack, request,
    response,
};
use crate::service::{BIG, SLOW, U, serve, serve_built};

/// What is waited for has failed the test long before.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const SHORT: Duration = Duration::from_millis(200);

fn every(time: Duration, timeout: Duration, without_calls: bool) -> Keepalive {
    Keepalive { time, timeout, without_calls }
}

fn quickly() -> Backoff {
    Backoff { initial: Duration::from_millis(50), max: SHORT, ..Backoff::default() }
}

fn unary(channel: &Channel, path: &'static str) -> Result<Response<Raw>, Status> {
    block_on(channel.unary::<Raw, Raw>(path, Request::new(Raw::from(vec![7])).with_timeout(LONG)))
}

/// A port that nobody listens on.
fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn is_question(frame: &Frame) -> bool {
    frame.kind == PING && !frame.has(ACK)
}

#[test]
fn r30_a_server_that_has_had_too_many_pings_is_asked_half_as_often_by_each_further_connection() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint())
        .keepalive_time_min(Duration::ZERO)
        .keepalive(every(SHORT, LONG, true))
        .backoff(quickly())
        .build()
        .unwrap();
    for doubled in [1, 2, 4] {
        eventually("the channel lets go", || channel.state() == ConnectivityState::Idle);
        // Before the client can have read anything.
        let began = Instant::now();
        channel.connect_now();
        let mut peer = server.accept(&[]);
        peer.until(is_question);
        let took = began.elapsed();
        assert!(took >= SHORT * doubled, "{took:?} for {doubled}");
        let mut last_words = 0_u32.to_be_bytes().to_vec();
        last_words.extend([0, 0, 0, 11]);
        last_words.extend(b"too_many_pings");
        peer.send(&[crate::wire::frame(crate::peer::GOAWAY, 0, 0, &last_words)]);
        peer.expect_orderly_end();
    }
}

#[test]
fn r30_less_than_ten_seconds_is_ten_seconds_unless_the_floor_is_lifted() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint())
        .keepalive(every(Duration::from_millis(10), LONG, true))
        .build()
        .unwrap();
    channel.connect_now();
    let mut peer = server.accept(&[]);
    thread::sleep(SHORT);
    assert_eq!(peer.settle().iter().filter(|frame| is_question(frame)).count(), 0);
}

#[test]
fn r31_a_path_that_drops_everything_fails_the_calls_on_it_and_the_next_call_takes_another() {
    let (server, _) = serve();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let channel = Channel::builder(proxy.endpoint())
        .keepalive_time_min(Duration::ZERO)
        .keepalive(every(SHORT, SHORT * 5, false))
        .build()
        .unwrap();
    unary(&channel, U).unwrap();
    let began = thread::scope(|scope| {
        let pending = scope.spawn(|| unary(&channel, SLOW));
        eventually("the call runs", || server.handle().counts().is_some_and(|counts| counts.handlers == 1));
        proxy.stall();
        let began = Instant::now();
        let status = pending.join().unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("keepalive"), "{status}");
        assert_eq!(cause(&status).io_kind(), Some(ErrorKind::TimedOut));
        began
    });
    assert!(began.elapsed() < LONG / 2, "long before the deadline: {:?}", began.elapsed());
    unary(&channel, U).unwrap();
    assert_eq!(proxy.taken(), 2);
}

#[test]
fn r31_a_blocking_client_finds_a_dead_path_out_too() {
    let (server, _) = serve();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let settings = blocking::Channel::builder(proxy.endpoint())
        .keepalive_time_min(Duration::ZERO)
        .keepalive(every(SHORT, SHORT * 5, false));
    let mut channel = blocking::Channel::with(settings).unwrap();
    let mut call = || channel.unary::<Raw, Raw>(U, Request::new(Raw::default()).with_timeout(LONG));
    call().unwrap();
    proxy.stall();
    let status = call().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    call().unwrap();
    assert_eq!(proxy.taken(), 2);
}

#[test]
fn r32_a_client_that_stops_for_good_is_cut_off_with_what_waits_for_it() {
    let (server, seen) =
        serve_built(|server| server.keepalive(every(SHORT, SHORT * 5, false)).ping_policy(None));
    let mut peer = Peer::connect_with(server.local_addr().unwrap(), &[(4, 0x7fff_ffff)]);
    peer.send(&[crate::peer::window_update(0, 0x7fff_0000 - 65_535)]);
    for path in [SLOW, BIG] {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(path)), data(stream, END_STREAM, &message(b""))]);
    }
    eventually("both calls run", || {
        seen.slow_started.load(Ordering::SeqCst) == 1 && seen.big_sent.load(Ordering::SeqCst) > 4
    });
    // The peer reads and writes nothing from here on.
    eventually("the handlers are cancelled and the socket is closed", || {
        let counts = server.handle().counts().unwrap_or_default();
        assert_eq!(counts.lingering, 0, "nobody is there to say goodbye to");
        seen.slow_cancelled.load(Ordering::SeqCst) == 1
            && seen.big_ended.load(Ordering::SeqCst) == 1
            && counts.connections == 0
    });
    drop(peer);
}

#[test]
fn r32_a_client_that_answers_is_kept() {
    let (server, _) = serve_built(|server| server.keepalive(every(SHORT, SHORT * 20, false)));
    let mut peer = Peer::connect(server.local_addr().unwrap());
    for _ in 0..3 {
        let question = peer.until(is_question);
        peer.send(&[ping_ack(&question.payload)]);
    }
    assert_eq!(peer.call(U, b"alive").content, message(b"alive"));
}

#[test]
fn r33_a_channel_whose_first_dial_fails_recovers_when_there_is_a_server() {
    let address = refusing();
    let channel = Channel::builder(format!("http://{address}")).backoff(quickly()).build().unwrap();
    let mut lazy =
        blocking::Channel::lazy(blocking::Channel::builder(format!("http://{address}")).backoff(quickly()))
            .unwrap();
    let failures = [
        unary(&channel, U).unwrap_err(),
        lazy.unary::<Raw, Raw>(U, Raw::default()).unwrap_err(),
        lazy.unary::<Raw, Raw>(U, Raw::default()).unwrap_err(),
    ];
    for status in failures {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("refused") && status.message().contains(&address.to_string()));
    }
    assert!(block_on(Channel::connect(format!("http://{address}"))).is_err(), "eager ones report it");
    eventually("it fails", || channel.state() == ConnectivityState::TransientFailure);
    assert_eq!(lazy.state(), ConnectivityState::TransientFailure);

    let server = Server::builder().reactors(1).bind(address).unwrap().spawn().unwrap();
    // By itself, without a call.
    eventually("it is ready", || channel.state() == ConnectivityState::Ready);
    assert_eq!(unary(&channel, U).unwrap_err().code(), Code::Unimplemented);
    let request = Request::new(Raw::default()).with_wait_for_ready(true);
    assert_eq!(lazy.unary::<Raw, Raw>(U, request).unwrap_err().code(), Code::Unimplemented);
    drop(server);
}

#[test]
fn r33_states_follow_the_connection_and_watchers_hear_of_them() {
    let address = refusing();
    let channel = Channel::builder(format!("http://{address}")).backoff(quickly()).build().unwrap();
    let watch = channel.watch();
    assert_eq!(channel.state(), ConnectivityState::Idle);
    channel.connect_now();
    let until = |wanted| {
        let mut state = watch.state();
        while state != wanted {
            state = block_on(watch.wait_for_change(state));
        }
    };
    until(ConnectivityState::TransientFailure);
    let server = Server::builder().reactors(1).bind(address).unwrap().spawn().unwrap();
    until(ConnectivityState::Ready);
    server.shutdown(Duration::ZERO).unwrap();
    until(ConnectivityState::Idle);
    drop(channel);
    until(ConnectivityState::Shutdown);
}

#[test]
fn r33_a_go_away_without_calls_makes_the_channel_idle_and_no_other_connection() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    channel.connect_now();
    let mut peer = server.accept(&[]);
    eventually("it is ready", || channel.state() == ConnectivityState::Ready);
    peer.send(&[crate::peer::go_away(0, 0)]);
    peer.expect_orderly_end();
    eventually("it is idle", || channel.state() == ConnectivityState::Idle);
    thread::sleep(SHORT);
    assert_eq!(channel.state(), ConnectivityState::Idle, "nobody wants a connection");
}

#[test]
fn r33_idle_channels_let_go_of_their_connection_and_connect_again_with_the_next_call() {
    let (server, _) = serve();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let channel = Channel::builder(proxy.endpoint()).idle_timeout(SHORT).build().unwrap();
    for connections in 1..=2 {
        unary(&channel, U).unwrap();
        assert_eq!((channel.state(), proxy.taken()), (ConnectivityState::Ready, connections));
        eventually("it lets go", || channel.state() == ConnectivityState::Idle);
    }
    let settings = blocking::Channel::builder(proxy.endpoint()).idle_timeout(SHORT);
    let mut channel = blocking::Channel::with(settings).unwrap();
    channel.unary::<Raw, Raw>(U, Raw::default()).unwrap();
    thread::sleep(SHORT * 2);
    channel.unary::<Raw, Raw>(U, Raw::default()).unwrap();
    assert_eq!(proxy.taken(), 4, "the blocking one looks before its next call");
}

#[test]
fn r45_attempts_against_a_server_that_hangs_up_keep_their_distance() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let initial = Duration::from_millis(100);
    let backoff = Backoff { initial, max: initial * 4, ..Backoff::default() };
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let channel = Channel::builder(endpoint).backoff(backoff).build().unwrap();
    channel.connect_now();
    let mut attempts = Vec::new();
    for _ in 0..6 {
        drop(listener.accept().unwrap());
        attempts.push(Instant::now());
    }
    // The first waits are 100, 160, 256, 400 and 400 ms, less a fifth; a busy machine only makes them longer. An attempt is seen a
    // little later than it begins, so that what is measured may be shorter by that.
    for (pair, wait) in attempts.windows(2).zip([100, 160, 256, 400, 400]) {
        let least = Duration::from_millis(wait * 8 / 10 - wait / 5);
        assert!(pair[1] - pair[0] >= least, "{:?} instead of {least:?}", pair[1] - pair[0]);
    }
}

#[test]
fn r45_a_server_that_answers_and_hangs_up_before_a_call_is_not_dialled_without_a_pause() {
    let server = RawServer::bind();
    let initial = Duration::from_millis(100);
    let backoff = Backoff { initial, max: initial, ..Backoff::default() };
    let channel = Channel::builder(server.endpoint()).backoff(backoff).build().unwrap();
    let began = Instant::now();
    for _ in 0..4 {
        eventually("it wants none", || channel.state() == ConnectivityState::Idle);
        // Without calls nobody connects, and `connect_now` would begin anew: a call is what asks here.
        let call = channel.unary::<Raw, Raw>(U, Request::new(Raw::default()).with_timeout(SHORT * 10));
        thread::scope(|scope| {
            let call = scope.spawn(|| block_on(call));
            let mut peer = server.accept(&[]);
            peer.send(&[crate::peer::go_away(0, 0)]);
            drop(peer);
            let mut peer = server.accept(&[]);
            let stream = peer.expect_request();
            peer.reply(stream, b"");
            assert!(call.join().unwrap().is_ok());
        });
    }
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[test]
fn r53_a_server_that_is_stuck_holds_up_nobody_else() {
    let (stuck, _) = serve();
    let (other, _) = serve();
    let proxy = Proxy::to(stuck.local_addr().unwrap());
    let channel = Channel::builder(proxy.endpoint()).build().unwrap();
    unary(&channel, U).unwrap();
    proxy.stall();
    let body = vec![0; 3 << 20];
    thread::scope(|scope| {
        let late: Vec<_> = (0..8)
            .map(|_| {
                let request = Request::new(Raw::from(body.clone())).with_timeout(SHORT * 5);
                let channel = &channel;
                scope.spawn(move || {
                    let began = Instant::now();
                    let status = block_on(channel.unary::<Raw, Raw>(U, request)).unwrap_err();
                    (status.code(), began.elapsed())
                })
            })
            .collect();
        let neighbour = block_on(Channel::connect(other.endpoint())).unwrap();
        for _ in 0..20 {
            unary(&neighbour, U).unwrap();
        }
        for call in late {
            let (code, took) = call.join().unwrap();
            assert_eq!(code, Code::DeadlineExceeded);
            assert!(took >= SHORT * 5 && took < LONG / 2, "{took:?}");
        }
    });
    let began = Instant::now();
    drop(channel);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[test]
fn r53_clients_that_give_no_credit_are_reaped_after_the_time_that_is_set() {
    const CLIENTS: usize = 500;
    // Two for each client, and what the other tests of this program have open.
    #[cfg(unix)]
    raise_descriptors();
    let (server, seen) = serve_built(|server| {
        server.http2(Http2Config { credit_wait_ms: 300, ..Http2Config::default() }).ping_policy(None)
    });
    let mut peers: Vec<_> =
        (0..CLIENTS).map(|_| Peer::connect_with(server.local_addr().unwrap(), &[(4, 0)])).collect();
    for peer in &mut peers {
        let stream = peer.take_stream();
        peer.send(&[headers(stream, END_HEADERS, &request(BIG)), data(stream, END_STREAM, &message(b""))]);
    }
    eventually("all are reaped", || seen.big_ended.load(Ordering::SeqCst) == CLIENTS);
    assert_eq!(server.handle().counts().map(|counts| counts.handlers), Some(0));
}

/// As many descriptors as the system lets this process have.
#[cfg(unix)]
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn r69_a_call_that_waits_for_ready_tells_at_its_deadline_what_it_has_waited_for() {
    let endpoint = format!("http://{}", refusing());
    let channel = Channel::builder(&endpoint).backoff(quickly()).build().unwrap();
    let request = || Request::new(Raw::default()).with_timeout(SHORT).with_wait_for_ready(true);
    let mut blocking =
        blocking::Channel::lazy(blocking::Channel::builder(&endpoint).backoff(quickly())).unwrap();
    let began = Instant::now();
    let failures = [
        block_on(channel.unary::<Raw, Raw>(U, request())).unwrap_err(),
        blocking.unary::<Raw, Raw>(U, request()).unwrap_err(),
    ];
    assert!(began.elapsed() >= SHORT * 2);
    for status in failures {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        for part in ["waiting for connection 0.", &endpoint, "refused"] {
            assert!(status.message().contains(part), "{part} in: {status}");
        }
    }
    // The same call that does not wait fails at once.
    let status = unary(&channel, U).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("refused"), "{status}");
}

#[test]
fn r69_a_server_that_says_nothing_costs_a_call_its_deadline_and_not_the_connect_timeout() {
    let silent = RawServer::bind();
    let channel = Channel::builder(silent.endpoint()).build().unwrap();
    let began = Instant::now();
    let request = Request::new(Raw::default()).with_timeout(Duration::from_millis(50));
    let status = block_on(channel.unary::<Raw, Raw>(U, request)).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("waiting for connection"), "{status}");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

#[test]
fn r69_a_dead_first_address_costs_a_head_start() {
    let (server, _) = serve();
    let (alive, silent, refused) = (server.local_addr().unwrap(), RawServer::bind(), refusing());
    let silent_address: SocketAddr = silent.endpoint().trim_start_matches("http://").parse().unwrap();
    let resolver = move |_: &str, _: u16| Ok(vec![refused, silent_address, alive]);
    let channel = Channel::builder("http://three.invalid:1").resolver(resolver).build().unwrap();
    let began = Instant::now();
    unary(&channel, U).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "not the connect timeout: {:?}", began.elapsed());
}

/// What is behind a status.
#[track_caller]
fn cause(status: &Status) -> TransportError {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<TransportError>() {
            return error.clone();
        }
        source = error.source();
    }
    panic!("no TransportError behind {status:?}");
}

/// Calls of both kinds of client to a server that is played by hand, and what they fail with.
fn failures(play: impl Fn(Peer) + Send + Sync + 'static) -> Vec<(String, Status)> {
    [true, false]
        .into_iter()
        .map(|is_blocking| {
            let server = RawServer::bind();
            let endpoint = server.endpoint();
            thread::scope(|scope| {
                let play = &play;
                scope.spawn(move || play(server.accept(&[])));
                let request = Request::new(Raw::default()).with_timeout(LONG);
                let status = if is_blocking {
                    let channel = blocking::Channel::connect(&endpoint);
                    channel.unwrap().unary::<Raw, Raw>(U, request).unwrap_err()
                } else {
                    let channel = Channel::builder(&endpoint).build().unwrap();
                    block_on(channel.unary::<Raw, Raw>(U, request)).unwrap_err()
                };
                (endpoint, status)
            })
        })
        .collect()
}

fn reset(peer: &Peer) {
    socket2::SockRef::from(peer.socket()).set_linger(Some(Duration::ZERO)).unwrap();
}

#[track_caller]
fn expect_unavailable(endpoint: &str, status: &Status, kinds: &[ErrorKind]) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(endpoint), "{endpoint} in: {status}");
    let cause = cause(status);
    assert_eq!((cause.endpoint(), cause.is_local()), (endpoint, false), "{status:?}");
    let io = cause.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let kind = io.map(std::io::Error::kind);
    assert!(kind.is_some_and(|kind| kinds.contains(&kind)), "{kind:?}: {status:?}");
}

#[test]
fn r77_connections_that_end_in_the_middle_of_a_call_say_so_with_the_endpoint_and_the_kind() {
    // A reset may be read as such, or found by a write.
    let lost = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
    let before_headers = |mut peer: Peer| {
        peer.expect_request();
        reset(&peer);
    };
    let in_the_middle_of_the_body = |mut peer: Peer| {
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &response()), data(stream, 0, &message(b"half")[..6])]);
        reset(&peer);
    };
    for (endpoint, status) in failures(before_headers).into_iter().chain(failures(in_the_middle_of_the_body))
    {
        expect_unavailable(&endpoint, &status, &lost);
    }
    let hangs_up = |mut peer: Peer| {
        peer.expect_request();
    };
    for (endpoint, status) in failures(hangs_up) {
        expect_unavailable(&endpoint, &status, &[ErrorKind::UnexpectedEof]);
    }
    let in_the_middle_of_a_frame = |mut peer: Peer| {
        let stream = peer.expect_request();
        let frame = headers(stream, END_HEADERS, &response());
        let mut socket = peer.socket();
        socket.write_all(&frame[..frame.len() - 3]).unwrap();
    };
    for (endpoint, status) in failures(in_the_middle_of_a_frame) {
        expect_unavailable(&endpoint, &status, &[ErrorKind::UnexpectedEof]);
    }
}

#[test]
fn r77_what_was_never_connected_says_so_with_the_endpoint_and_the_kind() {
    let endpoint = format!("http://{}", refusing());
    let channel = Channel::builder(&endpoint).build().unwrap();
    expect_unavailable(&endpoint, &unary(&channel, U).unwrap_err(), &[ErrorKind::ConnectionRefused]);
    let error = block_on(Channel::connect(&endpoint)).unwrap_err();
    assert_eq!((error.code(), error.io_kind()), (Code::Unavailable, Some(ErrorKind::ConnectionRefused)));
    let error = blocking::Channel::connect(&endpoint).unwrap_err();
    assert_eq!((error.code(), error.io_kind()), (Code::Unavailable, Some(ErrorKind::ConnectionRefused)));

    let silent = RawServer::bind();
    let timeout = Duration::from_millis(100);
    let channel = Channel::builder(silent.endpoint()).connect_timeout(timeout).build().unwrap();
    let status = unary(&channel, U).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("SETTINGS"), "{status}");

    let resolver = |host: &str, _: u16| Err(Status::unavailable(format!("nobody has heard of {host}")));
    let channel = Channel::builder("http://nowhere.invalid:1").resolver(resolver).build().unwrap();
    let status = unary(&channel, U).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("http://nowhere.invalid:1") && status.message().contains("nobody has"));
}

#[test]
fn proxies_that_cut_and_reset_cost_the_calls_that_run_and_no_others() {
    let (server, _) = serve();
    let proxy = Proxy::to(server.local_addr().unwrap());
    let channel = Channel::builder(proxy.endpoint()).build().unwrap();
    for (connections, is_cut) in [(1, true), (2, false), (3, true)] {
        thread::scope(|scope| {
            let pending = scope.spawn(|| unary(&channel, SLOW));
            eventually("the call runs", || {
                server.handle().counts().is_some_and(|counts| counts.handlers == 1)
            });
            if is_cut {
                proxy.cut()
            } else {
                proxy.reset()
            }
            let status = pending.join().unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(!cause(&status).is_local(), "{status:?}");
        });
        assert_eq!(proxy.taken(), connections);
        eventually("the handler is gone", || {
            server.handle().counts().is_some_and(|counts| counts.handlers == 0)
        });
    }
    unary(&channel, U).unwrap();
}

#[test]
fn ages_make_clients_go_with_a_word_that_says_why() {
    for word in ["max_idle", "max_age"] {
        let (server, _) = serve_built(|server| match word {
            "max_idle" => server.max_idle(SHORT),
            _ => server.max_age(SHORT),
        });
        let mut peer = Peer::connect(server.local_addr().unwrap());
        let announced = peer.until(|frame| frame.kind == crate::peer::GOAWAY);
        assert_eq!(&announced.payload[8..], word.as_bytes());
        let question = peer.until(is_question);
        peer.send(&[ping_ack(&question.payload)]);
        assert_eq!(peer.expect_go_away(), (0, 0, word.to_owned()));
        peer.expect_orderly_end();
        // Ours goes on with the next call.
        let channel = block_on(Channel::connect(server.endpoint())).unwrap();
        thread::sleep(SHORT * 2);
        unary(&channel, U).unwrap();
    }
}

#[test]
fn an_idle_client_that_does_not_read_does_not_hold_a_shutdown_up() {
    // A quarter of a second for its PING, another one for its end.
    soon(Duration::from_millis(1_500), || {
        let (server, _) = serve();
        let mut idle = blocking::Channel::connect(server.endpoint()).unwrap();
        idle.unary::<Raw, Raw>(U, Raw::default()).unwrap();
        server.shutdown(LONG).unwrap();
    });
}
