use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use fulmar_grpc::Code;

use crate::plan::{Direction, Plan, Scale};

/// What both ends of a world tell, and what is checked across them: that every call ends exactly once, and as it may.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) seed: u64,
    pub(crate) scale: Scale,
    /// Calls of each client that wait for a connection that takes them.
    pub(crate) waiting: Vec<VecDeque<u64>>,
    /// Calls that a server did not take, to be started again.
    pub(crate) retries: Vec<u64>,
    /// Calls that have reached the server.
    begun: BTreeSet<u64>,
    ended: BTreeMap<u64, End>,
    /// Bytes of messages sent and received, by call and direction.
    bytes: BTreeMap<(u64, Direction), (usize, usize)>,
    /// Connections that were cut, or whose ends could take each other for dead: calls on them may end with UNAVAILABLE.
    pub(crate) harmed: BTreeSet<u64>,
    /// Whether a clock has jumped: the server may then see a deadline pass before its client does.
    pub(crate) clocks_jumped: bool,
    notes: Vec<Note>,
    broken: Option<String>,
}

/// Both ends and their world write into one ledger. All on one thread, one at a time.
pub(crate) type SharedLedger = Rc<RefCell<Ledger>>;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Cancelled,
    Status(Code),
}

/// Something for the trace.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Note {
    pub(crate) who: &'static str,
    pub(crate) what: &'static str,
    pub(crate) numbers: [u64; 3],
}

impl Ledger {
    pub(crate) fn new(seed: u64, scale: Scale, clients: usize) -> Self {
        Self {
            seed,
            scale,
            waiting: vec![VecDeque::new(); clients],
            retries: Vec::new(),
            begun: BTreeSet::new(),
            ended: BTreeMap::new(),
            bytes: BTreeMap::new(),
            harmed: BTreeSet::new(),
            clocks_jumped: false,
            notes: Vec::new(),
            broken: None,
        }
    }

    pub(crate) fn plan(&self, id: u64) -> Plan {
        Plan::draw(self.seed, id, self.scale)
    }

    pub(crate) fn note(&mut self, who: &'static str, what: &'static str, numbers: [u64; 3]) {
        self.notes.push(Note { who, what, numbers });
    }

    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Something must hold; the first that does not is what the world reports.
    pub(crate) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(what());
        }
    }

    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// A message was handed to an engine.
    pub(crate) fn sent(&mut self, id: u64, direction: Direction, bytes: usize) {
        self.bytes.entry((id, direction)).or_default().0 += bytes;
    }

    /// A message came out of an engine.
    pub(crate) fn received(&mut self, id: u64, direction: Direction, bytes: usize) {
        let totals = self.bytes.entry((id, direction)).or_default();
        totals.1 += bytes;
        let (sent, received) = *totals;
        self.check(received <= sent, || {
            format!("call {id}: {received} bytes arrived as {direction:?}, but {sent} were sent")
        });
    }

    /// All messages of a direction have arrived, by the word of the engine.
    pub(crate) fn received_all(&mut self, id: u64, direction: Direction) {
        let (sent, received) = self.bytes.get(&(id, direction)).copied().unwrap_or_default();
        self.check(received == sent, || {
            format!("call {id}: the {direction:?} ended after {received} of {sent} bytes")
        });
    }

    /// A call has reached the server.
    pub(crate) fn begin(&mut self, id: u64, connection: u64) {
        let new = self.begun.insert(id);
        self.check(new, || format!("call {id} reached the server twice"));
        let ended = self.ended.get(&id).copied();
        let harmed = self.harmed.contains(&connection);
        let may = match ended {
            None | Some(End::Cancelled | End::Status(Code::DeadlineExceeded)) => true,
            Some(End::Status(Code::Unavailable)) => harmed,
            Some(End::Status(_)) => false,
        };
        self.check(may, || format!("call {id} reached the server after it had ended with {ended:?}"));
    }

    /// A call was not processed, by the word of the server: it is started again.
    pub(crate) fn retry(&mut self, id: u64) {
        let begun = self.begun.contains(&id);
        self.check(!begun, || format!("call {id} is said to be unprocessed, but had reached the server"));
        self.bytes.retain(|&(call, _), _| call != id);
        self.retries.push(id);
    }

    /// The user has cancelled a call.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.end(id, End::Cancelled);
    }

    /// A call on this connection has ended with a status, after so many replies.
    pub(crate) fn finish(&mut self, connection: u64, plan: &Plan, code: Code, text: &str, replies: usize) {
        let id = plan.id;
        self.note("call", "has ended (call, code, replies):", [id, code as u64, replies as u64]);
        self.end(id, End::Status(code));
        let planned = code == plan.outcome;
        let timed_out = plan.timeout.is_some()
            && (code == Code::DeadlineExceeded || code == Code::Cancelled && self.clocks_jumped);
        // A server that takes its client for dead resets the stream, or the connection ends.
        let given_up = code == Code::Unavailable
            || code == Code::ResourceExhausted
                && text.contains("the peer reset the stream (ENHANCE_YOUR_CALM)");
        let lost = given_up && self.harmed.contains(&connection);
        self.check(planned || timed_out || lost, || {
            format!("call {id} ended with {code:?} ({text}), planned was {:?}", plan.outcome)
        });
        let expected = plan.replies.len();
        self.check(!planned || replies == expected, || {
            format!("call {id} ended with {code:?} after {replies} of {expected} replies")
        });
        if planned {
            self.received_all(id, Direction::Reply);
        }
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    fn end(&mut self, id: u64, end: End) {
        let earlier = self.ended.insert(id, end);
        self.check(earlier.is_none(), || format!("call {id} ended twice: {earlier:?}, then {end:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Answer, Way};

    const SCALE: Scale = Scale { messages_max: 3, message_bytes_max: 100, metadata_bytes_max: 100 };

    fn plan(timeout: Option<Duration>) -> Plan {
        Plan {
            id: 7,
            filler_bytes: 0,
            requests: vec![10],
            replies: vec![20, 30],
            answer: Answer::Afterwards,
            outcome: Code::NotFound,
            think: Duration::ZERO,
            hold: Duration::ZERO,
            cancel: None,
            timeout,
            way: Way::Message,
        }
    }

    /// What the ledger has to say to this, if anything.
    fn verdict(act: impl FnOnce(&mut Ledger)) -> Option<String> {
        let mut ledger = Ledger::new(0, SCALE, 1);
        act(&mut ledger);
        ledger.broken().map(str::to_owned)
    }

    #[track_caller]
    fn assert_broken(text: &str, act: impl FnOnce(&mut Ledger)) {
        let verdict = verdict(act).expect("this must not pass");
        assert!(verdict.contains(text), "{verdict}");
    }

    fn both_replies(ledger: &mut Ledger) {
        ledger.sent(7, Direction::Reply, 50);
        ledger.received(7, Direction::Reply, 50);
    }

    #[test]
    fn a_call_that_ends_as_planned_passes() {
        let verdict = verdict(|ledger| {
            ledger.begin(7, 0);
            both_replies(ledger);
            ledger.finish(0, &plan(None), Code::NotFound, "", 2);
        });
        assert_eq!(verdict, None);
    }

    #[test]
    fn a_call_ends_once_and_reaches_the_server_once() {
        assert_broken("ended twice", |ledger| {
            both_replies(ledger);
            ledger.finish(0, &plan(None), Code::NotFound, "", 2);
            ledger.cancel(7);
        });
        assert_broken("reached the server twice", |ledger| {
            ledger.begin(7, 0);
            ledger.begin(7, 1);
        });
    }

    #[test]
    fn a_call_ends_as_planned_or_with_an_excuse() {
        let end = |code: Code, timeout: Option<Duration>, harmed: bool| {
            verdict(|ledger| {
                if harmed {
                    ledger.harmed.insert(3);
                }
                ledger.finish(3, &plan(timeout), code, "", 0);
            })
        };
        assert!(end(Code::Unavailable, None, false).is_some());
        assert_eq!(end(Code::Unavailable, None, true), None);
        assert!(end(Code::DeadlineExceeded, None, true).is_some());
        assert_eq!(end(Code::DeadlineExceeded, Some(Duration::from_secs(1)), false), None);
        assert!(end(Code::Internal, Some(Duration::from_secs(1)), true).is_some());
        assert!(end(Code::NotFound, None, true).is_some(), "as planned, but without the replies");
    }

    #[test]
    fn bytes_arrive_after_they_were_sent_and_all_of_them() {
        assert_broken("21 bytes arrived", |ledger| {
            ledger.sent(7, Direction::Request, 20);
            ledger.received(7, Direction::Request, 21);
        });
        assert_broken("ended after 10 of 20 bytes", |ledger| {
            ledger.sent(7, Direction::Request, 20);
            ledger.received(7, Direction::Request, 10);
            ledger.received_all(7, Direction::Request);
        });
    }

    #[test]
    fn what_reached_the_server_was_processed() {
        assert_broken("said to be unprocessed", |ledger| {
            ledger.begin(7, 0);
            ledger.retry(7);
        });
        assert_broken("after it had ended", |ledger| {
            ledger.harmed.insert(0);
            ledger.finish(0, &plan(None), Code::Unavailable, "", 0);
            ledger.begin(7, 1);
        });
    }
}
