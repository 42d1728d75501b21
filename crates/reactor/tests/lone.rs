//! One connection driven by the thread that calls.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fulmar_base::Closed;
use fulmar_reactor::{Lone, clock};
use support::*;

fn lone(stream: TcpStream, lines: Lines) -> Lone<Lines> {
    Lone::adopt(stream, || lines).expect("the stream is of use")
}

fn text(lone: &mut Lone<Lines>) -> String {
    lone.transport().log.borrow().text()
}

fn say_alone(lone: &mut Lone<Lines>, text: &str) {
    lone.command(Command::Say(text.as_bytes().to_vec())).expect("it is open");
}

/// Echoes until the end.
fn echo(mut stream: TcpStream) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut scratch = vec![0; 64 * 1024];
        while let Ok(received @ 1..) = stream.read(&mut scratch) {
            if stream.write_all(&scratch[..received]).is_err() {
                break;
            }
        }
    })
}

#[test]
fn a_line_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let mut lone = Lone::connect(address, Some(PATIENCE), Lines::default).expect("the listener is there");
    let echoing = echo(listener.accept().expect("it was connected").0);
    for round in 1..=100 {
        say_alone(&mut lone, "hello\n");
        while text(&mut lone).len() < round * 6 {
            lone.turn(None).expect("it is open");
        }
    }
    assert_eq!(text(&mut lone), "hello\n".repeat(100));
    assert!(!fulmar_reactor::on_reactor_thread());
    drop(lone);
    echoing.join().expect("it sees the end");
}

#[test]
fn what_does_not_fit_into_the_sockets_is_read_while_it_is_written() {
    // The other end reads nothing before it has written more than the sockets hold, and the other way round.
    const BYTES: usize = 20_000_000;
    let (stream, mut peer) = socket_pair();
    let other = thread::spawn(move || {
        peer.write_all(&vec![b'.'; BYTES]).expect("it is read");
        let mut total = 0;
        let mut scratch = vec![0; 64 * 1024];
        while total < BYTES {
            total += peer.read(&mut scratch).expect("it comes");
        }
        peer
    });
    let mut lone = lone(stream, Lines::raw());
    lone.command(Command::Bulk(BYTES)).expect("it is open");
    while lone.transport().bulk > 0 || lone.transport().log.borrow().received.len() < BYTES {
        lone.turn(Some(clock() + PATIENCE)).expect("both get on");
    }
    // The rest is in the output, and leaves while the other end reads.
    while !other.is_finished() {
        lone.turn(Some(clock() + Duration::from_millis(1))).expect("both get on");
    }
    drop(other.join().expect("it got everything"));
}

#[test]
fn a_peer_that_does_not_read_is_waited_for_and_not_spun_for() {
    let (stream, peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    lone.command(Command::Bulk(20_000_000)).expect("it is open");
    lone.flush().expect("it is open");
    let until = clock() + Duration::from_millis(50);
    let mut turns = 0;
    while clock() < until {
        lone.turn(Some(until)).expect("it is open");
        turns += 1;
    }
    assert!(turns < 50, "{turns}");
    assert!(lone.transport().bulk > 1_000_000, "it stops at the limit of the output");
    drop(peer);
}

#[test]
fn a_large_line_comes_back() {
    let (stream, peer) = socket_pair();
    let echoing = echo(peer);
    let mut lone = lone(stream, Lines::default());
    let line = "x".repeat(1_000_000) + "\n";
    say_alone(&mut lone, &line);
    while text(&mut lone).is_empty() {
        lone.turn(Some(clock() + PATIENCE)).expect("it is open");
    }
    assert_eq!(text(&mut lone), line);
    drop(lone);
    echoing.join().expect("it sees the end");
}

#[test]
fn a_turn_ends_at_its_time() {
    let (stream, _peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    let until = clock() + Duration::from_millis(30);
    let mut turns = 0;
    while clock() < until {
        lone.turn(Some(until)).expect("it is open");
        turns += 1;
    }
    assert!(clock().saturating_duration_since(until) < PATIENCE);
    assert!(turns < 50, "it waits, and does not spin: {turns}");
    // A time that has passed does not wait at all.
    lone.turn(Some(until)).expect("it is open");
}

#[test]
fn the_deadline_of_the_transport_is_kept() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    let deadline = clock() + Duration::from_millis(20);
    lone.command(Command::At(deadline)).expect("it is open");
    while lone.transport().log.borrow().deadlines.is_empty() {
        lone.turn(None).expect("it is open");
    }
    assert!(lone.transport().log.borrow().deadlines[0] >= deadline);
    peer.read_exact(&mut [0; 5]).expect("what it wrote at its deadline has left");
}

#[test]
fn draining_takes_what_is_there_and_does_not_wait() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    lone.drain().expect("nothing is there");
    write_all(&mut peer, "one\ntw");
    while text(&mut lone).is_empty() {
        lone.drain().expect("it is open");
    }
    write_all(&mut peer, "o\n");
    while text(&mut lone) != "one\ntwo\n" {
        lone.drain().expect("it is open");
    }
    drop(peer);
    let closed = loop {
        if let Err(closed) = lone.drain() {
            break closed;
        }
    };
    let expected = Closed::peer("the peer closed the connection").caused_by(ErrorKind::UnexpectedEof);
    assert_eq!(closed, expected);
    assert_eq!(lone.closed(), Some(&closed));
    assert_eq!(lone.turn(None), Err(closed.clone()), "what has ended stays ended");
    assert_eq!(lone.command(Command::Bulk(1)), Err(closed.clone()));
    assert_eq!(lone.transport().log.borrow().closes, [closed], "the transport is told once");
}

#[test]
fn the_end_of_the_peer_ends_the_wait_and_says_what_was_left() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    write_all(&mut peer, "whole\npart");
    peer.shutdown(Shutdown::Write).expect("it is open");
    let closed = loop {
        if let Err(closed) = lone.turn(None) {
            break closed;
        }
    };
    let text_of_end = "the peer closed the connection in the middle of a frame, of which 4 bytes had arrived";
    assert_eq!(closed, Closed::peer(text_of_end).caused_by(ErrorKind::UnexpectedEof));
    assert_eq!(text(&mut lone), "whole\n");
}

#[test]
fn a_transport_that_ends_it_gets_its_last_bytes_across() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::echo());
    write_all(&mut peer, "quit\n");
    let writer = thread::spawn(move || {
        // More than is read: without lingering, a reset would overtake the answer.
        let _ = peer.write_all(&vec![b'.'; 1_000_000]);
        read_to_end(&mut peer)
    });
    let closed = loop {
        if let Err(closed) = lone.turn(None) {
            break closed;
        }
    };
    assert_eq!(closed, Closed::peer("it quit"));
    assert_eq!(writer.join().expect("no reset"), "quit\nbye\n");
}

#[test]
fn the_reason_of_a_peer_that_went_away_is_heard_although_writing_fails() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    say_alone(&mut lone, "unread\n");
    lone.flush().expect("it is open");
    peer.peek(&mut [0]).expect("it has arrived");
    write_all(&mut peer, "the reason\n");
    drop(peer);
    let closed = loop {
        let said = lone.command(Command::Say(b"x\n".to_vec())).and_then(|()| lone.flush());
        if let Err(closed) = said {
            break closed;
        }
    };
    assert_eq!(closed.fault, fulmar_base::Fault::Peer);
    assert_eq!(text(&mut lone), "the reason\n");
}

#[test]
fn a_refused_connection_says_where_and_why() {
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("loopback has ports");
    let error = Lone::connect(address, Some(PATIENCE), Lines::default).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), format!("connect to {address}: Connection refused"));
}

#[test]
fn a_dropped_connection_tells_its_transport_and_ends_in_order() {
    let (stream, mut peer) = socket_pair();
    let mut lone = lone(stream, Lines::default());
    let log = lone.transport().log.clone();
    say_alone(&mut lone, "last words\n");
    drop(lone);
    assert_eq!(log.borrow().closes, [Closed::caller("the connection was dropped")]);
    assert_eq!(read_to_end(&mut peer), "last words\n");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the loop contract is broken")]
fn a_thread_does_not_wait_while_its_transport_has_work() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let lazy = || Lines { lazy: true, ..Lines::default() };
    let mut lone = Lone::connect(address, Some(PATIENCE), lazy).expect("the listener is there");
    lone.command(Command::Bulk(1)).expect("it is open");
    let _ = lone.turn(Some(clock() + Duration::from_millis(1)));
}
