//! Deadlines, at the end that set them and at the other.

use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::{CallKey, Code, Ending, MetadataMap, Status};
use fulmar_http2::ErrorCode;

use crate::support::{ECHO, Happened, Pair, RST_STREAM, call_frames, finish, metadata, reply, send};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a call with this timeout and carries it to the server.
fn call_with_timeout(pair: &mut Pair, timeout: Duration) -> CallKey {
    let call = pair.start_with(ECHO, &MetadataMap::new(), Some(timeout), Some(b"question"), true);
    pair.run();
    call
}

fn cancels(wire: &[u8]) -> usize {
    let cancel = ErrorCode::Cancel.as_u32().to_be_bytes();
    call_frames(wire).iter().filter(|frame| frame.kind == RST_STREAM && frame.payload == cancel).count()
}

/// Wire rules 6 and 7.
#[test]
fn the_server_learns_the_deadline() {
    let mut pair = Pair::new();
    let now = pair.server.now;
    for timeout in [Duration::from_nanos(1), Duration::from_millis(250), 30 * SECOND, 100_000_000 * SECOND] {
        call_with_timeout(&mut pair, timeout);
        let Happened::Begin { deadline: Some(deadline), call, .. } = pair.server.next() else {
            panic!("a call with a deadline begins");
        };
        let seen = deadline.saturating_duration_since(now);
        assert!(seen >= timeout && seen <= timeout + timeout / 100, "{timeout:?} arrives as {seen:?}");
        assert_eq!(pair.server.end.deadline(call), Some(deadline));
        pair.server.log.clear();
    }
    pair.start_with(ECHO, &MetadataMap::new(), None, Some(b"question"), true);
    pair.run();
    assert!(matches!(pair.server.next(), Happened::Begin { deadline: None, .. }));
}

/// Wire rule 9.
#[test]
fn the_client_gives_up_at_its_deadline() {
    let mut pair = Pair::new();
    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    send(&mut pair.server, at_server, b"part");
    pair.run();
    pair.client.log.clear();
    pair.server.log.clear();
    let deadline = pair.client.end.next_deadline().expect("the call has one");
    assert!(deadline <= pair.client.now.saturating_add(SECOND));

    let just_before = pair.client.now.saturating_add(SECOND - Duration::from_nanos(1));
    pair.client.advance_to(just_before);
    assert_eq!(pair.client.take_log(), []);
    pair.client.advance_to(just_before.saturating_add(Duration::from_nanos(1)));
    let outcome = pair.client.outcome();
    assert_eq!(outcome.code, Code::DeadlineExceeded);
    assert!(!outcome.message.is_empty());
    pair.run();
    assert_eq!(cancels(&pair.to_server), 1);
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    pair.assert_at_rest();
}

/// Wire rule 8.
#[test]
fn the_server_cancels_at_the_deadline() {
    let mut pair = Pair::new();
    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    pair.server.log.clear();
    let later = pair.server.now.saturating_add(2 * SECOND);
    pair.server.advance_to(later);
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    // The clock of the client has come past the deadline too, but its timer has not fired yet.
    pair.client.now = later;
    pair.run();
    assert_eq!(cancels(&pair.to_client), 1);
    assert_eq!(pair.client.outcome().code, Code::DeadlineExceeded, "built at the client");
    pair.assert_at_rest();
}

/// Wire rule 8: nor do trailers count that say CANCELLED when the deadline has passed.
#[test]
fn a_cancelled_status_after_the_deadline_is_the_deadline() {
    let mut pair = Pair::new();
    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    let trailers = metadata(&[("a", "1")]);
    let status = Status::cancelled("the handler was stopped");
    pair.server
        .act(|server, env| server.finish(env, at_server, &status, &trailers))
        .expect("the call is there");
    pair.client.now = pair.client.now.saturating_add(SECOND);
    pair.run();
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.trailers), (Code::DeadlineExceeded, MetadataMap::new()));
}

/// Wire rule 8: a client whose own deadline has not come has been cancelled.
#[test]
fn a_cancellation_before_the_own_deadline_is_a_cancellation() {
    let mut pair = Pair::new();
    call_with_timeout(&mut pair, SECOND);
    pair.server.begun();
    pair.server.advance_to(pair.server.now.saturating_add(2 * SECOND));
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Cancelled);
}

/// Wire rule 8: what the server says after the deadline does not count.
#[test]
fn an_answer_after_the_deadline_is_late() {
    let mut pair = Pair::new();
    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    pair.server.log.clear();
    reply(&mut pair.server, at_server, b"answer");
    let later = pair.client.now.saturating_add(SECOND);
    pair.client.advance_to(later);
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::DeadlineExceeded);
    pair.server.log.clear();
    pair.assert_at_rest();
}

/// Wire rule 7.
#[test]
fn a_deadline_that_has_passed_runs_nothing() {
    let mut pair = Pair::new();
    let start = fulmar_grpc::Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: Some(Duration::ZERO),
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    pair.client
        .act(|client, env| client.start(env, start, Some(b"question"), true))
        .expect("the call starts");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::DeadlineExceeded);
    assert_eq!(pair.server.take_log(), []);
    pair.assert_at_rest();
}

#[test]
fn a_call_that_ends_in_time_leaves_no_timer() {
    let mut pair = Pair::new();
    let idle = (pair.client.end.next_deadline(), pair.server.end.next_deadline());
    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    assert_eq!((pair.client.end.next_deadline(), pair.server.end.next_deadline()), idle);
    pair.server.log.clear();
    pair.advance(10 * SECOND);
    assert_eq!((pair.client.take_log(), pair.server.take_log()), (vec![], vec![]));
    pair.assert_at_rest();
}

#[test]
fn deadlines_of_many_calls_come_in_order() {
    let mut pair = Pair::new();
    let mut expected = Vec::new();
    for seconds in [5, 1, 4, 2, 3] {
        let call = call_with_timeout(&mut pair, seconds * SECOND);
        expected.push((seconds, call));
    }
    expected.sort();
    for (_, call) in expected {
        let now = pair.client.now.saturating_add(SECOND);
        pair.client.advance_to(now);
        let ended: Vec<_> = pair.client.take_log();
        assert!(
            matches!(&ended[..], [Happened::Finished { call: ended, .. }] if *ended == call),
            "{ended:?}"
        );
    }
}

/// How the server sees calls end that it has not answered.
#[test]
fn the_server_tells_apart_why_a_call_ended_before_its_answer() {
    let mut pair = Pair::new();
    let ending_after = |timeout, end: &dyn Fn(&mut Pair, CallKey)| {
        let mut pair = Pair::new();
        let call = pair.start_with(ECHO, &MetadataMap::new(), timeout, Some(b"question"), false);
        pair.run();
        pair.server.begun();
        end(&mut pair, call);
        pair.run();
        let ended = pair.server.take_log();
        assert!(matches!(ended.last(), Some(Happened::Finished { .. })), "{ended:?}");
        pair.server.end.ending()
    };
    let cancel = |pair: &mut Pair, call| pair.client.act(|client, env| client.cancel(env, call));
    let in_a_second = |side_now: Instant| side_now.saturating_add(SECOND);
    assert_eq!(ending_after(None, &cancel), Ending::Cancelled);
    assert_eq!(ending_after(Some(SECOND), &cancel), Ending::Cancelled, "in time");
    assert_eq!(
        ending_after(Some(SECOND), &|pair, _| pair.server.advance_to(in_a_second(pair.server.now))),
        Ending::DeadlineExceeded
    );
    // The client's clock runs out first, and its RST_STREAM arrives when the server's has, too.
    let late = |pair: &mut Pair, _| {
        pair.client.advance_to(in_a_second(pair.client.now));
        pair.server.now = in_a_second(pair.server.now);
    };
    assert_eq!(ending_after(Some(SECOND), &late), Ending::DeadlineExceeded);
    let lost = |pair: &mut Pair, _| pair.server.close(&fulmar_base::Closed::peer("gone"));
    assert_eq!(ending_after(None, &lost), Ending::ConnectionLost);

    call_with_timeout(&mut pair, SECOND);
    let at_server = pair.server.begun();
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.server.end.ending(), Ending::Answered);
}

/// Field case R70: the answer arrives within a millisecond of the deadline, on either side of it or at the same time, and the
/// client's timer fires before or after it is read.
#[test]
fn r70_an_answer_that_races_the_deadline_is_one_outcome_and_leaves_nothing() {
    let mut pair = Pair::new();
    let idle = pair.client.end.next_deadline();
    let (mut in_time, mut late) = (0, 0);
    for round in 0..10_000_u64 {
        call_with_timeout(&mut pair, SECOND);
        let at_server = pair.server.begun();
        // From a millisecond before to a millisecond after, in steps of 200 ns.
        let deadline = pair.client.now.as_nanos() + 1_000_000_000;
        let arrives = Instant::from_nanos(deadline - 1_000_000 + round * 200);
        match round % 3 {
            0 => {
                send(&mut pair.server, at_server, b"part");
                pair.run();
                finish(&mut pair.server, at_server, &Status::ok(""));
            }
            1 => finish(&mut pair.server, at_server, &Status::ok("")),
            _ => reply(&mut pair.server, at_server, b"answer"),
        }
        if round % 2 == 0 {
            pair.client.advance_to(arrives);
        } else {
            pair.client.now = arrives;
        }
        pair.run();
        pair.client.advance_to(arrives);
        match pair.client.outcome().code {
            Code::Ok => in_time += 1,
            Code::DeadlineExceeded if arrives.as_nanos() >= deadline => late += 1,
            other => panic!("round {round}: {other:?}"),
        }
        pair.run();
        pair.server.now = pair.client.now;
        pair.server.log.clear();
        assert_eq!((pair.client.end.calls(), pair.server.end.calls()), (0, 0));
    }
    assert!(in_time >= 5_000 && late >= 2_500, "{in_time} in time, {late} late");
    assert_eq!(pair.client.end.next_deadline(), idle, "no timer is left");
    pair.assert_at_rest();
}
