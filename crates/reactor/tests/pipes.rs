//! Connections joined in memory.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Closed, Output};
use fulmar_reactor::{ConnectionKey, ReactorConfig};
use support::*;

struct End {
    key: ConnectionKey,
    log: Rc<RefCell<Log>>,
}

fn pipe(reactor: &mut Toys, one: Lines, other: Lines) -> (End, End) {
    let logs = (Rc::clone(&one.log), Rc::clone(&other.log));
    let keys = reactor.core().pipe(|_| one, |_| other);
    (End { key: keys.0, log: logs.0 }, End { key: keys.1, log: logs.1 })
}

#[test]
fn a_line_comes_back_within_one_turn() {
    let mut reactor = toys();
    let (one, _) = pipe(&mut reactor, Lines::default(), Lines::echo());
    say(&mut reactor, one.key, "hello\nwor");
    say(&mut reactor, one.key, "ld\n");
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(one.log.borrow().text(), "hello\nworld\n");
}

#[test]
fn a_partial_line_waits_for_its_rest() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::echo());
    for (piece, whole) in [("hel", ""), ("lo\nwor", "hello\n"), ("ld", "hello\n"), ("\n", "hello\nworld\n")] {
        say(&mut reactor, one.key, piece);
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
        assert_eq!(other.log.borrow().text(), whole);
        assert_eq!(one.log.borrow().text(), whole);
    }
}

#[test]
fn much_passes_one_way_and_both_ways_in_shares_of_the_soft_limit() {
    const BYTES: usize = 10_000_000;
    for back in [0, BYTES] {
        let mut reactor = toys();
        let one = Lines { bulk: BYTES, ..Lines::raw() };
        let other = Lines { bulk: back, ..Lines::raw() };
        let (one, other) = pipe(&mut reactor, one, other);
        let received = |end: &End| end.log.borrow().received.len();
        let mut most = 0;
        turn_until(&mut reactor, |reactor| {
            let before = received(&other);
            reactor.turn(Some(Duration::ZERO)).expect("turning works");
            most = most.max(received(&other) - before);
            received(&other) == BYTES && received(&one) == back
        });
        assert!(most <= 17 * Output::SOFT_LIMIT, "a turn moved {most} bytes");
    }
}

#[test]
fn lines_longer_than_the_scratch_buffer_pass() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::default());
    let line = "x".repeat(900_000) + "\n";
    say(&mut reactor, one.key, &line);
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(other.log.borrow().text(), line);
}

#[test]
fn the_limits_hold_for_pipes_too() {
    let mut reactor = toys_with(ReactorConfig { unread_bytes_max: 1000, ..ReactorConfig::default() });
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::default());
    say(&mut reactor, one.key, &"x".repeat(1001));
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    let text = "the peer sent a frame that is longer than the limit of 1000 bytes";
    assert_eq!(reactor.host().closed_text(other.key), Some(text));
    assert_eq!(reactor.host().closed_text(one.key), Some("the peer closed the connection"));
}

#[test]
fn closing_one_end_delivers_its_last_bytes_and_closes_the_other() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::echo());
    say(&mut reactor, one.key, "one\nquit\n");
    turn_until(&mut reactor, |reactor| reactor.host().closed.len() == 2);
    assert_eq!(one.log.borrow().text(), "one\nquit\nbye\n");
    assert_eq!(reactor.host().closed_text(other.key), Some("it quit"));
    assert_eq!(reactor.host().closed_text(one.key), Some("the peer closed the connection"));
    assert_eq!((reactor.core().connections(), reactor.core().lingering()), (0, 0));
}

#[test]
fn the_host_may_close_either_end_or_both() {
    let mut reactor = toys();
    for (first, second) in [(true, false), (false, true), (true, true)] {
        let (one, other) = pipe(&mut reactor, Lines::default(), Lines::default());
        say(&mut reactor, one.key, "last\npart");
        if first {
            reactor.core().close(one.key, &Closed::local("enough"));
        }
        if second {
            reactor.core().close(other.key, &Closed::local("enough"));
        }
        turn_until(&mut reactor, |reactor| reactor.core().connections() + reactor.core().lingering() == 0);
        if !second {
            let text =
                "the peer closed the connection in the middle of a frame, of which 4 bytes had arrived";
            assert_eq!(other.log.borrow().text(), "last\n");
            assert_eq!(reactor.host().closed_text(other.key), Some(text));
        }
        assert_eq!((one.log.borrow().closes.len(), other.log.borrow().closes.len()), (1, 1));
    }
}

#[test]
fn what_is_sent_to_an_end_that_has_ended_is_dropped() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::default());
    command(&mut reactor, other.key, Command::Fail("enough"));
    say(&mut reactor, one.key, "into the void\n");
    turn_until(&mut reactor, |reactor| reactor.core().connections() == 0);
    assert_eq!(one.log.borrow().text(), "failed\n");
    assert_eq!(other.log.borrow().text(), "");
    assert_eq!(reactor.core().lingering(), 0);
}

#[test]
fn two_ends_that_answer_each_other_for_ever_do_not_starve_the_sockets() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::echo(), Lines::echo());
    say(&mut reactor, one.key, "ball\n");
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    say(&mut reactor, key, "hello\n");
    turn_until(&mut reactor, |_| log.borrow().text() == "hello\n");
    assert!(other.log.borrow().receives > 0);
}

#[test]
fn commands_to_both_ends_in_one_turn_cost_one_transmit_each() {
    let mut reactor = toys();
    let (one, other) = pipe(&mut reactor, Lines::default(), Lines::default());
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    let transmits = |end: &End| end.log.borrow().transmits;
    let before = (transmits(&one), transmits(&other));
    for number in 0..10 {
        say(&mut reactor, one.key, &format!("{number}\n"));
    }
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(other.log.borrow().receives, 1);
    // One for the commands; one for what the other end received.
    assert_eq!((transmits(&one), transmits(&other)), (before.0 + 1, before.1 + 1));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the loop contract is broken")]
fn a_reactor_does_not_sleep_while_a_transport_has_work() {
    let mut reactor = toys();
    let (one, _other) = pipe(&mut reactor, Lines { lazy: true, ..Lines::default() }, Lines::echo());
    command(&mut reactor, one.key, Command::Bulk(1));
    for _ in 0..3 {
        reactor.turn(Some(Duration::from_millis(1))).expect("turning works");
    }
}
