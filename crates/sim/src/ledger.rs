use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use fulmar_base::Instant;
use fulmar_grpc::Code;

use crate::plan::{Plan, Scale};

/// What both ends of a world tell, and what is checked across them: that every call ends exactly once, and as it may.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) seed: u64,
    pub(crate) scale: Scale,
    /// Calls that wait for a connection that takes them.
    pub(crate) waiting: VecDeque<u64>,
    /// Calls that have reached the server.
    begun: BTreeSet<u64>,
    ended: BTreeMap<u64, End>,
    /// Whether a connection was cut: calls may then end with UNAVAILABLE.
    pub(crate) cut: bool,
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
    pub(crate) at: Instant,
    pub(crate) name: &'static str,
    pub(crate) numbers: [u64; 3],
}

impl Ledger {
    pub(crate) fn new(seed: u64, scale: Scale) -> Self {
        Self {
            seed,
            scale,
            waiting: VecDeque::new(),
            begun: BTreeSet::new(),
            ended: BTreeMap::new(),
            cut: false,
            notes: Vec::new(),
            broken: None,
        }
    }

    pub(crate) fn plan(&self, id: u64) -> Plan {
        Plan::draw(self.seed, id, self.scale)
    }

    pub(crate) fn note(&mut self, at: Instant, name: &'static str, numbers: [u64; 3]) {
        self.notes.push(Note { at, name, numbers });
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

    /// A call has reached the server.
    pub(crate) fn begin(&mut self, id: u64) {
        let new = self.begun.insert(id);
        self.check(new, || format!("call {id} reached the server twice"));
        let ended = self.ended.get(&id).copied();
        self.check(
            matches!(ended, None | Some(End::Cancelled | End::Status(Code::DeadlineExceeded))),
            || format!("call {id} reached the server after it had ended with {ended:?}"),
        );
    }

    /// A call was not processed, by the word of the server: it is started again.
    pub(crate) fn retry(&mut self, id: u64) {
        let begun = self.begun.contains(&id);
        self.check(!begun, || format!("call {id} is said to be unprocessed, but had reached the server"));
        self.waiting.push_back(id);
    }

    /// The user has cancelled a call.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.end(id, End::Cancelled);
    }

    /// A call has ended with a status, after so many replies.
    pub(crate) fn finish(&mut self, at: Instant, plan: &Plan, code: Code, text: &str, replies: usize) {
        let id = plan.id;
        self.note(at, "finished", [id, code as u64, replies as u64]);
        self.end(id, End::Status(code));
        let planned = code == plan.outcome;
        let timed_out = code == Code::DeadlineExceeded && plan.timeout.is_some();
        let lost = code == Code::Unavailable && self.cut;
        self.check(planned || timed_out || lost, || {
            format!("call {id} ended with {code:?} ({text}), planned was {:?}", plan.outcome)
        });
        let expected = plan.replies.len();
        self.check(!planned || replies == expected, || {
            format!("call {id} ended with {code:?} after {replies} of {expected} replies")
        });
    }

    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    fn end(&mut self, id: u64, end: End) {
        let earlier = self.ended.insert(id, end);
        self.check(earlier.is_none(), || format!("call {id} ended twice: {earlier:?}, then {end:?}"));
    }
}
