//! Connections over loopback TCP, driven by a reactor.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use fulmar_base::{Closed, Output};
use fulmar_reactor::{ConnectionKey, ReactorConfig, clock};
use support::*;

#[test]
fn a_line_comes_back() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    say(&mut reactor, key, "hello\n");
    turn_until(&mut reactor, |_| log.borrow().text() == "hello\n");
    assert_eq!(reactor.host().connected, [key]);
    assert_eq!(reactor.core().connections(), 2);
}

#[test]
fn commands_given_while_dialling_leave_when_connected_and_not_before() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    for number in 0..10 {
        say(&mut reactor, key, &format!("{number}\n"));
    }
    assert_eq!(log.borrow().commands, 10, "commands are given at once");
    assert_eq!(log.borrow().transmits, 0, "nothing is transmitted before the connection is there");
    turn_until(&mut reactor, |_| log.borrow().received.len() == 20);
    assert_eq!(log.borrow().text(), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

#[test]
fn many_commands_to_one_connection_leave_after_one_transmit() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().connected == [key]);
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let before = log.borrow().transmits;
    let mailbox = reactor.core().mailbox();
    for number in 0..100 {
        mailbox.send(letter(move |_, core| {
            assert!(core.command(key, Command::Say(format!("{number}\n").into_bytes())).is_ok());
        }));
    }
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(log.borrow().commands, 100);
    assert_eq!(log.borrow().transmits, before + 1);
    let server = reactor.host().accepted[0].1.clone();
    turn_until(&mut reactor, |_| server.borrow().received.len() == 290);
}

#[test]
fn five_hundred_connections_at_once() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let clients: Vec<_> = (0..500).map(|_| dial(&mut reactor, address, Lines::default())).collect();
    for (number, (key, _)) in clients.iter().enumerate() {
        say(&mut reactor, *key, &format!("I am {number}\n"));
    }
    turn_until(&mut reactor, |_| clients.iter().all(|(_, log)| !log.borrow().received.is_empty()));
    for (number, (key, log)) in clients.iter().enumerate() {
        assert_eq!(log.borrow().text(), format!("I am {number}\n"));
        reactor.core().close(*key, &Closed::caller("done"));
    }
    turn_until(&mut reactor, |reactor| reactor.core().connections() == 0 && reactor.core().lingering() == 0);
    assert_eq!(reactor.host().closed.len(), 1000);
}

#[test]
fn one_byte_at_a_time_makes_whole_lines() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mut stream = client(address);
    stream.set_nodelay(true).expect("it takes the option");
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let log = reactor.host().accepted[0].1.clone();
    for byte in b"one\ntwo\nthr" {
        let before = log.borrow().receives;
        stream.write_all(&[*byte]).expect("it is open");
        turn_until(&mut reactor, |_| log.borrow().receives == before + 1);
    }
    assert_eq!(log.borrow().text(), "one\ntwo\n");
    assert_eq!(reactor.core().pool().outstanding(), 1, "the rest of a line waits in a block");
    write_all(&mut stream, "ee\n");
    turn_until(&mut reactor, |_| log.borrow().text() == "one\ntwo\nthree\n");
    assert_eq!(reactor.core().pool().outstanding(), 0, "an idle connection holds no memory");
    let mut echoed = [0; 14];
    stream.read_exact(&mut echoed).expect("all comes back");
    assert_eq!(&echoed, b"one\ntwo\nthree\n");
}

#[test]
fn a_slow_reader_gets_everything_and_the_writer_stays_within_its_limit() {
    const BYTES: usize = 20_000_000;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines { bulk: BYTES, ..Lines::default() });
    let mut stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    for _ in 0..200 {
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
    }
    let waiting = |reactor: &mut Toys| reactor.core().transport(key).expect("it is open").bulk;
    let stuck_at = waiting(&mut reactor);
    assert!(stuck_at > BYTES / 2, "sockets do not hold as much as that: {stuck_at}");
    let reader = std::thread::spawn(move || {
        let (mut total, mut scratch) = (0, vec![0; 100_000]);
        while total < BYTES {
            total += stream.read(&mut scratch).expect("it comes");
        }
        (total, stream)
    });
    turn_until(&mut reactor, |reactor| waiting(reactor) == 0 && reader.is_finished());
    assert_eq!(reader.join().expect("the reader reads").0, BYTES);
}

/// Of two ends on one thread the one that reads keeps up with the one that writes, whatever the sockets would hold.
#[test]
fn little_bulk_stands_before_a_small_message() {
    const TRIES: usize = 15;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines { bulk: usize::MAX, ..Lines::raw() });
    let (_, log) = dial(&mut reactor, address, Lines::raw());
    turn_until(&mut reactor, |_| log.borrow().received.len() > 20_000_000);
    let server = reactor.host().accepted[0].0;
    let mut ahead: Vec<usize> = (0..TRIES)
        .map(|_| {
            log.borrow_mut().received.clear();
            command(&mut reactor, server, Command::Say(b"small".to_vec()));
            let mut position = None;
            turn_until(&mut reactor, |_| {
                position = log.borrow().received.iter().position(|&byte| byte != b'.');
                position.is_some()
            });
            position.expect("it has arrived")
        })
        .collect();
    // A thread that is stopped while it reads may read less than it should for a turn or two.
    ahead.sort_unstable();
    let usual = ahead[TRIES / 2];
    assert!(usual <= 3 * Output::SOFT_LIMIT, "{ahead:?} bytes of bulk stood before a small message");
}

#[test]
fn a_turn_writes_only_so_much_of_bulk_though_the_socket_would_take_more() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines { bulk: usize::MAX, ..Lines::raw() });
    let stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    for _ in 0..20 {
        let left = |reactor: &mut Toys| reactor.core().transport(key).expect("it is open").bulk;
        let before = left(&mut reactor);
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
        let taken = before - left(&mut reactor);
        // A share behind each of two looks at the sockets, and what may be in the output.
        assert!(taken <= 4 * Output::SOFT_LIMIT, "{taken} bytes in one turn");
    }
    drop(stream);
}

#[test]
fn two_ends_that_send_much_at_the_same_time_both_get_it() {
    const BYTES: usize = 5_000_000;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines { bulk: BYTES, ..Lines::raw() });
    let (_, log) = dial(&mut reactor, address, Lines { bulk: BYTES, ..Lines::raw() });
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let server = reactor.host().accepted[0].1.clone();
    turn_until(&mut reactor, |_| {
        log.borrow().received.len() == BYTES && server.borrow().received.len() == BYTES
    });
}

#[test]
fn a_firehose_does_not_starve_its_neighbours_and_is_read_to_the_end() {
    const BYTES: usize = 30_000_000;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines::raw());
    let mut hose = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let log = reactor.host().accepted[0].1.clone();
    let writer = std::thread::spawn(move || {
        hose.write_all(&vec![b'.'; BYTES]).expect("it is read");
        hose
    });
    // Whatever the socket held, a turn never takes more than its share, and what is left is taken without another announcement.
    let mut most = 0;
    turn_until(&mut reactor, |reactor| {
        let before = log.borrow().received.len();
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
        most = most.max(log.borrow().received.len() - before);
        log.borrow().received.len() == BYTES
    });
    assert!(most <= 1024 * 1024 + 256 * 1024, "a turn took {most} bytes");
    drop(writer.join().expect("the writer writes"));
}

#[test]
fn a_refused_connection_says_where_and_why() {
    let mut reactor = toys();
    let address =
        TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("loopback has ports");
    let (key, _) = dial(&mut reactor, address, Lines::default());
    say(&mut reactor, key, "nobody hears this\n");
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
    assert_eq!(
        reactor.host().closed_text(key),
        Some(format!("connect to {address}: Connection refused").as_str())
    );
    assert!(reactor.host().connected.is_empty());
    assert_eq!((reactor.core().connections(), reactor.core().lingering()), (0, 0));
    assert!(reactor.core().command(key, Command::Bulk(1)).is_err(), "the command comes back");
}

#[cfg(target_os = "linux")]
#[test]
fn a_dial_that_nobody_answers_times_out() {
    use socket2::{Domain, Socket, Type};

    // A listener whose queue is full lets the system drop further attempts.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("loopback has ports");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().expect("it is bound").as_socket().expect("it is TCP");
    let mut reactor = toys();
    let timeout = Duration::from_millis(200);
    let keys: Vec<ConnectionKey> =
        (0..8).map(|_| reactor.core().dial(address, Some(timeout), |_| Lines::default())).collect();
    turn_until(&mut reactor, |reactor| reactor.host().closed.len() + reactor.host().connected.len() == 8);
    let text = format!("connect to {address}: no answer within 200ms");
    let timed_out =
        keys.iter().filter(|key| reactor.host().closed_text(**key) == Some(text.as_str())).count();
    assert!(timed_out >= 4, "{:?}", reactor.host().closed);
}

#[test]
fn a_deadline_passes_also_while_dialling() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let lines = Lines { deadline: Some(clock()), ..Lines::default() };
    let (_, log) = dial(&mut reactor, address, lines);
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(log.borrow().deadlines.len(), 1);
}

#[test]
fn the_last_bytes_arrive_although_the_peer_sends_on() {
    // It lingers until the peer has ended, for as long as the test may take.
    let mut reactor = toys_with(ReactorConfig { linger: PATIENCE, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    let mut stream = client(address);
    let peer = std::thread::spawn(move || {
        write_all(&mut stream, "quit\n");
        // It quits when that is the last it has read: nothing may follow before it has answered.
        stream.peek(&mut [0]).expect("an answer");
        // More than the sockets hold: it has to be read for the peer to come to the answer, and a reset would overtake that.
        write_all(&mut stream, &"more\n".repeat(2_000_000));
        read_to_end(&mut stream)
    });
    turn_until(&mut reactor, |reactor| peer.is_finished() && reactor.core().lingering() == 0);
    assert_eq!(peer.join().expect("no reset"), "quit\nbye\n");
    assert_eq!(reactor.host().closed.len(), 1);
    assert_eq!(reactor.host().closed[0].1, "it quit");
    assert_eq!(reactor.host().accepted[0].1.borrow().receives, 1, "what follows the end is heard by nobody");
}

#[test]
fn a_large_answer_is_flushed_after_the_end() {
    const BYTES: usize = 3_000_000;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines::default());
    let mut stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    command(&mut reactor, key, Command::Say(vec![b'.'; BYTES]));
    command(&mut reactor, key, Command::Say(b"end".to_vec()));
    reactor.core().close(key, &Closed::local("enough"));
    let reader = std::thread::spawn(move || read_to_end(&mut stream));
    turn_until(&mut reactor, |reactor| reader.is_finished() && reactor.core().lingering() == 0);
    let text = reader.join().expect("no reset");
    assert_eq!(text.len(), BYTES + 3);
    assert!(text.ends_with("end"));
}

#[test]
fn the_last_bytes_arrive_although_the_thread_is_kept_from_its_work() {
    const BYTES: usize = 30_000_000;
    let linger = Duration::from_millis(100);
    let mut reactor =
        toys_with(ReactorConfig { linger, output_bytes_max: BYTES * 2, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines::default());
    let mut stream = client(address);
    stream.set_nonblocking(true).expect("it takes the mode");
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    command(&mut reactor, key, Command::Say(vec![b'.'; BYTES]));
    reactor.core().close(key, &Closed::local("enough"));
    assert_eq!(reactor.core().lingering(), 1, "more than the socket takes at once");
    let (mut buffer, mut taken) = (vec![0; BYTES], 0);
    let mut take = || {
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            taken += read;
        }
        taken
    };
    assert!(take() < BYTES);
    std::thread::sleep(linger * 2);
    turn_until(&mut reactor, |_| take() == BYTES);
}

#[test]
fn a_peer_that_never_closes_is_lingered_for_only_so_long() {
    let linger = Duration::from_millis(50);
    let mut reactor = toys_with(ReactorConfig { linger, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    let stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    let start = clock();
    reactor.core().close(key, &Closed::local("enough"));
    assert_eq!(reactor.core().lingering(), 1);
    turn_until(&mut reactor, |reactor| reactor.core().lingering() == 0);
    assert!(clock().saturating_duration_since(start) >= linger / 2);
    drop(stream);
}

#[test]
fn the_end_of_the_peer_is_told_with_what_was_left_of_a_frame() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mut whole = client(address);
    write_all(&mut whole, "whole\n");
    whole.shutdown(Shutdown::Write).expect("it is open");
    turn_until(&mut reactor, |reactor| reactor.host().closed.len() == 1);
    assert_eq!(reactor.host().closed[0].1, "the peer closed the connection");
    assert_eq!(read_to_end(&mut whole), "whole\n", "what came before the end is answered");

    let mut partial = client(address);
    write_all(&mut partial, "whole\npart");
    drop(partial);
    turn_until(&mut reactor, |reactor| reactor.host().closed.len() == 2);
    let text = "the peer closed the connection in the middle of a frame, of which 4 bytes had arrived";
    assert_eq!(reactor.host().closed[1].1, text);
    assert_eq!(reactor.host().accepted[1].1.borrow().text(), "whole\n");
}

#[test]
fn a_reset_is_told_with_the_reason_of_the_system() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let stream = client(address);
    let peer = stream.local_addr().expect("it is open");
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("it takes the option");
    drop(stream);
    turn_until(&mut reactor, |reactor| reactor.host().closed.len() == 1);
    assert_eq!(reactor.host().closed[0].1, format!("read from {peer}: Connection reset by peer"));
    assert_eq!(reactor.core().lingering(), 0);
}

#[test]
fn what_the_peer_said_before_a_write_failed_is_heard() {
    let mut reactor = toys();
    let (stream, mut peer) = socket_pair();
    let log = std::rc::Rc::default();
    let lines = Lines { log: std::rc::Rc::clone(&log), ..Lines::default() };
    let key = reactor.core().adopt(stream.into(), |_| lines);
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    // The peer gets a line, does not read it, says why it goes, and goes: that makes a reset.
    say(&mut reactor, key, "unread\n");
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    peer.peek(&mut [0]).expect("it has arrived");
    write_all(&mut peer, "the reason\n");
    drop(peer);
    turn_until(&mut reactor, |reactor| {
        let _ = reactor.core().command(key, Command::Say(b"x\n".to_vec()));
        !reactor.host().closed.is_empty()
    });
    assert_eq!(log.borrow().text(), "the reason\n");
}

#[test]
fn a_command_that_ends_the_connection_still_flushes_and_gives_later_commands_back() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mut stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    command(&mut reactor, key, Command::Fail("told to"));
    assert!(reactor.core().command(key, Command::Bulk(1)).is_err());
    assert!(reactor.host().closed.is_empty(), "the host is told in the turn, not from inside a call");
    turn_until(&mut reactor, |reactor| reactor.host().closed_text(key) == Some("told to"));
    assert_eq!(read_to_end(&mut stream), "failed\n");
}

#[test]
fn a_frame_over_the_limit_ends_the_connection() {
    let config = ReactorConfig { unread_bytes_max: 300_000, ..ReactorConfig::default() };
    let mut reactor = toys_with(config);
    let address = listen(&mut reactor);
    let mut stream = client(address);
    let writer = std::thread::spawn(move || {
        // A line of 290,000 bytes is taken, one of 400,000 is not.
        write_all(&mut stream, &("a".repeat(290_000) + "\n"));
        write_all(&mut stream, &"b".repeat(400_000));
        stream
    });
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
    let text = "the peer sent a frame that is longer than the limit of 300000 bytes";
    assert_eq!(reactor.host().closed[0].1, text);
    assert_eq!(reactor.host().accepted[0].1.borrow().received.len(), 290_001);
    drop(writer.join().expect("the bytes are drained"));
}

#[test]
fn a_peer_that_sends_and_never_reads_is_cut_off() {
    let config = ReactorConfig { output_bytes_max: 1_000_000, ..ReactorConfig::default() };
    let mut reactor = toys_with(config);
    let address = listen(&mut reactor);
    let stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    let mut said = 0;
    turn_until(&mut reactor, |reactor| {
        if reactor.core().command(key, Command::Say(vec![b'.'; Output::SOFT_LIMIT])).is_ok() {
            said += 1;
        }
        reactor.host().closed.len() == 1
    });
    assert!(said > 4, "less than the limit is borne");
    assert!(
        reactor.host().closed[0].1.starts_with("the peer does not read: "),
        "{:?}",
        reactor.host().closed
    );
    assert_eq!(reactor.core().lingering(), 0);
    drop(stream);
}

#[test]
fn a_peer_that_takes_nothing_is_given_so_much_time_and_one_that_takes_a_little_more() {
    let write_stall = Duration::from_millis(300);
    let mut reactor = toys_with(ReactorConfig { write_stall, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    let stuck = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let mut slow = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 2);
    let keys = [0, 1].map(|n| reactor.host().accepted[n].0);
    keys.iter().for_each(|key| command(&mut reactor, *key, Command::Bulk(100_000_000)));
    let begun = clock();
    let mut buffer = vec![0; 4_000_000];
    // The slow one has a whole buffer taken off it now and then, which is what a socket sees as progress.
    turn_until(&mut reactor, |reactor| {
        slow.set_nonblocking(true).expect("it takes the mode");
        while slow.read(&mut buffer).is_ok_and(|read| read > 0) {}
        !reactor.host().closed.is_empty()
    });
    assert!(clock().saturating_duration_since(begun) >= write_stall);
    let text = reactor.host().closed_text(keys[0]).expect("the one that takes nothing").to_owned();
    assert!(text.starts_with("the peer does not read: ") && text.ends_with(" in 300ms"), "{text}");
    assert_eq!(reactor.host().closed_text(keys[1]), None);
    drop(stuck);
}

#[test]
fn a_peer_that_made_room_while_the_thread_was_kept_from_its_work_is_not_cut_off() {
    let write_stall = Duration::from_millis(50);
    let mut reactor = toys_with(ReactorConfig { write_stall, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    let mut peer = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let key = reactor.host().accepted[0].0;
    command(&mut reactor, key, Command::Bulk(50_000_000));
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    peer.set_nonblocking(true).expect("it takes the mode");
    let (mut buffer, mut taken) = (vec![0; 4_000_000], 0);
    for _ in 0..5 {
        while let Ok(read @ 1..) = peer.read(&mut buffer) {
            taken += read;
        }
        std::thread::sleep(write_stall * 2);
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
        assert!(reactor.host().closed.is_empty(), "{:?} after {taken} bytes", reactor.host().closed);
    }
}

#[test]
fn a_connection_whose_bytes_cost_much_gets_fewer_of_them_at_a_time() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || Some(Lines { slow: Duration::from_millis(1), ..Lines::raw() });
    let mut stream = client(address);
    let writer = std::thread::spawn(move || {
        stream.write_all(&vec![b'.'; 500_000]).expect("it is read");
        stream
    });
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let log = reactor.host().accepted[0].1.clone();
    turn_until(&mut reactor, |_| log.borrow().received.len() > 400_000);
    let offered = log.borrow().offered;
    assert!((1..=8 * 1024).contains(&offered), "{offered} bytes at a time");
    turn_until(&mut reactor, |_| log.borrow().received.len() == 500_000);
    drop(writer.join());
}

#[test]
fn whoever_needs_little_waits_for_one_of_those_who_take_much() {
    const GREEDY: usize = 8;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mut modest = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let line = reactor.host().accepted[0].1.clone();
    write_all(&mut modest, "a line\n");
    turn_until(&mut reactor, |_| line.borrow().receives == 1);
    reactor.host().make = || Some(Lines { slow: Duration::from_millis(5), ..Lines::raw() });
    let hoses: Vec<TcpStream> = (0..GREEDY)
        .map(|_| {
            let mut hose = client(address);
            write_all(&mut hose, &".".repeat(60_000));
            hose
        })
        .collect();
    turn_until(&mut reactor, |reactor| {
        let accepted = &reactor.host().accepted;
        accepted.len() == 1 + GREEDY && accepted.iter().all(|(_, log)| log.borrow().receives > 0)
    });
    let receives = |reactor: &mut Toys| -> usize {
        reactor.host().accepted[1..].iter().map(|(_, log)| log.borrow().receives).sum()
    };
    let before = receives(&mut reactor);
    write_all(&mut modest, "another\n");
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(line.borrow().receives, 2, "it is served in the next turn");
    let served = receives(&mut reactor) - before;
    assert!((1..GREEDY).contains(&served), "{served} of those who take much were served in the same turn");
    drop(hoses);
}

#[test]
fn a_host_may_refuse_connections() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    reactor.host().make = || None;
    let mut stream = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().refused == 1);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
    assert_eq!(reactor.core().connections(), 0);
}

#[test]
fn connections_over_the_limit_are_closed_and_those_below_are_served() {
    let mut reactor = toys_with(ReactorConfig { connections_max: 2, ..ReactorConfig::default() });
    let address = listen(&mut reactor);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| client(address)).collect();
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 2);
    for stream in &mut streams[2..] {
        reactor.turn(Some(Duration::from_millis(1))).expect("turning works");
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
    }
    streams.truncate(1);
    turn_until(&mut reactor, |reactor| reactor.core().connections() + reactor.core().lingering() == 1);
    let _another = client(address);
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 3);
}

#[test]
fn more_connections_than_one_turn_accepts_are_all_accepted() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let streams: Vec<TcpStream> = (0..100).map(|_| client(address)).collect();
    reactor.turn(Some(PATIENCE)).expect("turning works");
    assert!((1..=64).contains(&reactor.host().accepted.len()), "a turn has its share");
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 100);
    drop(streams);
}

#[test]
fn a_closed_listener_refuses_at_once() {
    let mut reactor = toys();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let key = reactor.core().listen(listener).expect("the selector takes it");
    drop(client(address));
    reactor.core().close_listener(key);
    assert!(TcpStream::connect(address).is_err());
    reactor.core().close_listener(key);
}

#[test]
fn a_socket_may_be_adopted_by_another_reactor() {
    let mut reactor = toys();
    let (mut stream, peer) = socket_pair();
    let socket = fulmar_reactor::Socket::from(peer);
    let mailbox = reactor.core().mailbox();
    let sender = std::thread::spawn(move || {
        mailbox.send(letter(move |toy, core| {
            let lines = Lines::echo();
            let log = lines.log.clone();
            toy.accepted.push((core.adopt(socket, |_| lines), log));
        }));
    });
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    sender.join().expect("it sends");
    write_all(&mut stream, "hello\n");
    let log = reactor.host().accepted[0].1.clone();
    turn_until(&mut reactor, |_| log.borrow().text() == "hello\n");
    let mut echoed = [0; 6];
    stream.read_exact(&mut echoed).expect("it comes back");
}

#[test]
fn dropping_the_reactor_closes_everything_and_tells_everybody() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (_, log) = dial(&mut reactor, address, Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let server = reactor.host().accepted[0].1.clone();
    drop(reactor);
    for log in [log, server] {
        assert_eq!(log.borrow().closes, [Closed::local("the reactor is stopping")]);
    }
}
