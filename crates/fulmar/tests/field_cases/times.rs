//! R31 and R45, and rules 43, 44 and 50 of the wire: what happens when times are over, where the two ends meet over sockets.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{
    Backoff, Channel, Code, ConnectivityState, PingPolicy, Raw, Request, Response, Server, Status, blocking,
};

use crate::common::{block_on, eventually};
use crate::lives::{LONG, SHORT, is_question};
use crate::peer::{
    END_HEADERS, GOAWAY, HEADERS, Peer, REFUSED_STREAM, RawServer, go_away, headers, ping, reset_stream,
    response, settings,
};
use crate::service::{U, serve_built};

/// ENHANCE_YOUR_CALM (RFC 9113 §7).
const CALM: u32 = 11;

fn within(channel: &Channel, time: Duration) -> Result<Response<Raw>, Status> {
    block_on(channel.unary::<Raw, Raw>(U, Request::new(Raw::default()).with_timeout(time)))
}

#[test]
fn r31_three_deadlines_without_a_byte_in_between_have_a_server_asked_without_any_keepalive() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    channel.connect_now();
    let mut peer = server.accept(&[]);
    for deadlines in 1..=3 {
        assert_eq!(within(&channel, SHORT / 2).unwrap_err().code(), Code::DeadlineExceeded);
        if deadlines < 3 {
            let asked = peer.all_until(|frame| frame.kind == HEADERS);
            assert!(!asked.iter().any(is_question), "after {deadlines} deadlines");
        }
    }
    peer.until(is_question);
}

#[test]
fn r31_a_server_that_answers_in_between_is_not_asked() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    channel.connect_now();
    let mut peer = server.accept(&[]);
    for _ in 0..6 {
        assert_eq!(within(&channel, SHORT / 4).unwrap_err().code(), Code::DeadlineExceeded);
        // Its answers to these are bytes enough.
        assert!(!peer.settle().iter().any(is_question));
    }
}

#[test]
fn a_server_ends_connections_of_clients_that_ping_too_often_and_lets_those_be_that_it_permits() {
    let pings = |policy: Option<PingPolicy>| {
        let server = Server::builder().reactors(1);
        let server =
            policy.map_or_else(|| Server::builder().reactors(1), |policy| server.ping_policy(policy));
        let server = server.bind("127.0.0.1:0").unwrap().spawn().unwrap();
        let mut peer = Peer::connect(server.local_addr().unwrap());
        peer.send(&[b"one_____", b"two_____", b"three___", b"four____"].map(|payload| ping(*payload)));
        (server, peer)
    };
    // The first one sets the clock, and the third of those that come too early is one too many.
    let (_server, mut peer) = pings(None);
    assert_eq!(peer.expect_go_away(), (0, CALM, "too_many_pings".to_owned()));
    peer.expect_end();
    let permitted = PingPolicy { interval_min: Duration::ZERO, without_calls: true, ..PingPolicy::default() };
    let (_server, mut peer) = pings(Some(permitted));
    peer.until(|frame| frame.payload == b"four____");
    assert!(!peer.settle().iter().any(|frame| frame.kind == GOAWAY));
}

#[test]
fn connections_that_begin_together_do_not_end_together_by_their_age() {
    const AGE: Duration = Duration::from_secs(1);
    let (server, _) = serve_built(|server| server.max_age(AGE));
    let address = server.local_addr().unwrap();
    let ages: Vec<_> = thread::scope(|scope| {
        let live = || {
            let began = Instant::now();
            Peer::connect(address).until(|frame| frame.kind == GOAWAY);
            began.elapsed()
        };
        let peers: Vec<_> = (0..30).map(|_| scope.spawn(live)).collect();
        peers.into_iter().map(|peer| peer.join().unwrap()).collect()
    });
    let (least, most) = (*ages.iter().min().unwrap(), *ages.iter().max().unwrap());
    assert!(least >= AGE * 9 / 10, "a tenth at most: {least:?}");
    assert!(most - least > AGE / 20, "{least:?} to {most:?}");
}

#[test]
fn r45_waits_count_from_the_start_of_an_attempt_whatever_it_takes() {
    // An attempt fails after two seconds, the next one is due two tenths later, and two seconds later would be wrong.
    let timeout = Duration::from_secs(2);
    let backoff = Backoff { initial: timeout * 11 / 10, jitter: 0.0, ..Backoff::default() };
    let distance = |server: RawServer| {
        let first = server.accept_silently();
        let began = Instant::now();
        let second = server.accept_silently();
        drop((first, second));
        began.elapsed()
    };
    let silent = RawServer::bind();
    let channel =
        Channel::builder(silent.endpoint()).connect_timeout(timeout).backoff(backoff).build().unwrap();
    channel.connect_now();
    let also_silent = RawServer::bind();
    let settings =
        blocking::Channel::builder(also_silent.endpoint()).connect_timeout(timeout).backoff(backoff);
    let mut blocking = blocking::Channel::lazy(settings).unwrap();
    let distances = thread::scope(|scope| {
        let distances = [silent, also_silent].map(|server| scope.spawn(|| distance(server)));
        let request = Request::new(Raw::default()).with_timeout(timeout * 2).with_wait_for_ready(true);
        assert!(blocking.unary::<Raw, Raw>(U, request).is_err());
        distances.map(|distance| distance.join().unwrap())
    });
    for distance in distances {
        assert!(distance < timeout * 19 / 10, "{distance:?}");
    }
}

#[test]
fn r45_settings_and_a_call_begin_the_backoff_anew() {
    let server = RawServer::bind();
    let initial = Duration::from_millis(100);
    // The waits are 0.1 s, 1 s, 10 s.
    let backoff = Backoff { initial, multiplier: 10.0, max: LONG, jitter: 0.0 };
    let channel = Channel::builder(server.endpoint()).backoff(backoff).build().unwrap();
    let call = || Request::new(Raw::default()).with_timeout(LONG).with_wait_for_ready(true);
    let called = |serve: &dyn Fn(Peer)| {
        thread::scope(|scope| {
            let call = scope.spawn(|| block_on(channel.unary::<Raw, Raw>(U, call())));
            for _ in 0..2 {
                drop(server.accept_silently());
            }
            let began = Instant::now();
            serve(server.accept(&[]));
            assert!(call.join().unwrap().is_ok());
            began.elapsed()
        })
    };
    let answer = |mut peer: Peer| {
        let stream = peer.expect_request();
        peer.reply(stream, b"");
    };
    called(&answer);
    eventually("the connection is lost", || channel.state() != ConnectivityState::Ready);
    let took = called(&answer);
    assert!(
        took < Duration::from_secs(8),
        "ten seconds would be the wait after the third in a row: {took:?}"
    );
}

#[test]
fn a_call_whose_answer_has_begun_is_not_made_again() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(|| within(&channel, LONG));
        let mut peer = server.accept(&[]);
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &response()), reset_stream(stream, REFUSED_STREAM)]);
        assert_eq!(call.join().unwrap().unwrap_err().code(), Code::Unavailable);
        assert!(!peer.settle().iter().any(|frame| frame.kind == HEADERS));
    });
}

#[test]
fn a_deadline_covers_both_attempts_of_a_call_that_is_made_again_and_neither_is_counted() {
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    channel.connect_now();
    let mut peer = server.accept(&[]);
    thread::scope(|scope| {
        let call = scope.spawn(|| within(&channel, LONG));
        let mut timeouts = Vec::new();
        for attempt in 0..2 {
            let request = peer.until(|frame| frame.kind == HEADERS);
            assert_eq!(request.field("grpc-previous-rpc-attempts"), None);
            let timeout = request.field("grpc-timeout").expect("a deadline").to_owned();
            let (digits, unit) = timeout.split_at(timeout.len() - 1);
            let micros = match unit {
                "u" => 1,
                "m" => 1_000,
                "S" => 1_000_000,
                _ => panic!("{timeout}"),
            };
            timeouts.push(Duration::from_micros(digits.parse::<u64>().unwrap() * micros));
            thread::sleep(SHORT);
            match attempt {
                0 => peer.send(&[reset_stream(request.stream, REFUSED_STREAM)]),
                _ => peer.reply(request.stream, b""),
            }
        }
        assert!(call.join().unwrap().is_ok());
        assert!(timeouts[1] <= timeouts[0] - SHORT, "{timeouts:?}");
    });
}

#[test]
fn r45_a_server_that_answers_and_hangs_up_is_dialled_ever_less_often() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let over = AtomicBool::new(false);
    let backoff = Backoff { initial: SHORT / 2, ..Backoff::default() };
    let channel = Channel::builder(format!("http://{address}")).backoff(backoff).build().unwrap();
    let attempts = thread::scope(|scope| {
        let hanging_up = scope.spawn(|| {
            let mut taken = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                if over.load(Ordering::SeqCst) {
                    return taken.len();
                }
                let _ = stream.write_all(&settings(&[]));
                // It is ready, and has a call. Nothing was processed: the call may be made again.
                thread::sleep(SHORT / 10);
                let _ = stream.write_all(&go_away(0, 0));
                let _ = stream.shutdown(Shutdown::Write);
                taken.push(stream);
            }
        });
        let began = Instant::now();
        while began.elapsed() < SHORT * 8 {
            assert!(within(&channel, SHORT).is_err());
        }
        over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(address).unwrap());
        hanging_up.join().unwrap()
    });
    // At 0, 100, 260, 516 and 926 ms, and whatever a fifth more or less makes of that.
    assert!((2..=12).contains(&attempts), "{attempts} attempts");
}

#[test]
fn whoever_connects_by_hand_does_not_wait_for_the_backoff() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let backoff = Backoff { initial: LONG * 10, max: LONG * 10, ..Backoff::default() };
    let channel = Channel::builder(format!("http://{address}")).backoff(backoff).build().unwrap();
    channel.connect_now();
    eventually("it fails", || channel.state() == ConnectivityState::TransientFailure);
    let _server = Server::builder().reactors(1).bind(address).unwrap().spawn().unwrap();
    assert!(within(&channel, LONG).unwrap_err().message().contains("refused"), "calls wait for it, or fail");
    channel.connect_now();
    eventually("it is ready", || channel.state() == ConnectivityState::Ready);
}

#[test]
fn r33_a_channel_that_has_recovered_forgets_what_went_wrong_before() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let backoff = Backoff { initial: SHORT / 4, max: SHORT, ..Backoff::default() };
    let channel = Channel::builder(format!("http://{address}")).backoff(backoff).build().unwrap();
    assert!(within(&channel, LONG).unwrap_err().message().contains("refused"));
    let serve = || Server::builder().reactors(1).bind(address).unwrap().spawn().unwrap();
    let server = serve();
    eventually("it recovers", || channel.state() == ConnectivityState::Ready);
    server.shutdown(Duration::ZERO).unwrap();
    eventually("its connection is lost", || channel.state() == ConnectivityState::Idle);
    let _server = serve();
    // A call without a service: it has been to the server.
    assert_eq!(within(&channel, LONG).unwrap_err().code(), Code::Unimplemented);
}
