//! Calls that wait for a connection, or for a stream on one.

use std::collections::VecDeque;

use fulmar_base::{DeadlineHeap, DeadlineKey, Instant, Key, Slab};
use fulmar_grpc::Status;

use super::PendingCall;
use crate::counts::Counts;

/// Calls that nobody waits for any more are looked for once so many wait, and then each time their number has doubled.
const SWEEP_MIN: usize = 64;

/// A queue of calls in the order of their arrival, which calls leave in the middle when their deadline passes or their caller gives
/// them up.
pub(crate) struct WaitingCalls {
    slots: Slab<Waiting>,
    /// May hold keys of calls that have left: at most as many as there are others, and a few.
    order: VecDeque<Key<Waiting>>,
    deadlines: DeadlineHeap<Key<Waiting>>,
    calls_max: usize,
    /// At how many calls to look for those that were given up.
    sweep_at: usize,
}

struct Waiting {
    pending: PendingCall,
    deadline: Option<DeadlineKey>,
}

impl WaitingCalls {
    /// A queue of at most so many calls.
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            slots: Slab::new(),
            order: VecDeque::new(),
            deadlines: DeadlineHeap::new(),
            calls_max,
            sweep_at: SWEEP_MIN,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What waits here; calls that were given up do not count, whose callers have heard.
    pub(crate) fn counts(&self) -> Counts {
        let cells = self.slots.iter().map(|(_, waiting)| waiting.pending.cell());
        let waiting_calls = cells.filter(|cell| !cell.lock().cancelled).count();
        Counts { waiting_calls, ..Counts::default() }
    }

    /// Appends a call; ends it with `RESOURCE_EXHAUSTED` where too many wait already.
    pub(crate) fn push_back(&mut self, pending: PendingCall) {
        if self.slots.len() >= self.sweep_at {
            self.sweep();
        }
        if self.slots.len() >= self.calls_max {
            return pending.end(Status::resource_exhausted(format!(
                "{} calls wait for a connection or a stream already: waiting_calls_max",
                self.slots.len()
            )));
        }
        let key = self.insert(pending);
        self.order.push_back(key);
    }

    /// Puts back a call that was taken, as the next to be taken.
    pub(crate) fn push_front(&mut self, pending: PendingCall) {
        let key = self.insert(pending);
        self.order.push_front(key);
    }

    /// Takes the call that has waited longest.
    pub(crate) fn pop_front(&mut self) -> Option<PendingCall> {
        loop {
            let key = self.order.pop_front()?;
            if let Some(pending) = self.remove(key) {
                return Some(pending);
            }
        }
    }

    /// The first deadline of a call that waits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Ends the calls whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(key) = self.deadlines.pop_expired(now) {
            if let Some(Waiting { pending, .. }) = self.slots.remove(key) {
                pending.end(Status::deadline_exceeded(
                    "the deadline passed while the call waited for a connection or a stream",
                ));
            }
        }
        self.compact();
    }

    fn insert(&mut self, pending: PendingCall) -> Key<Waiting> {
        let deadline = pending.cell().lock().deadline;
        let deadlines = &mut self.deadlines;
        self.slots.insert_with(|key| Waiting {
            pending,
            deadline: deadline.map(|deadline| deadlines.insert(deadline, key)),
        })
    }

    fn remove(&mut self, key: Key<Waiting>) -> Option<PendingCall> {
        let Waiting { pending, deadline } = self.slots.remove(key)?;
        if let Some(deadline) = deadline {
            self.deadlines.remove(deadline);
        }
        Some(pending)
    }

    /// Drops the calls that were given up: their callers have heard.
    pub(crate) fn sweep(&mut self) {
        for position in 0..self.order.len() {
            let key = self.order[position];
            if self.slots.get(key).is_some_and(|waiting| waiting.pending.cell().lock().cancelled) {
                drop(self.remove(key));
            }
        }
        self.compact();
        self.sweep_at = (2 * self.slots.len()).max(SWEEP_MIN);
    }

    /// Forgets the keys of calls that have left, once they are in the majority.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.slots.len() + SWEEP_MIN {
            let slots = &self.slots;
            self.order.retain(|key| slots.contains(*key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fulmar_grpc::Code;

    use super::*;
    use crate::call::CallCell;

    fn call(deadline: Option<u64>) -> (Arc<CallCell>, PendingCall) {
        let cell = Arc::new(CallCell::default());
        cell.lock().deadline = deadline.map(Instant::from_nanos);
        (cell.clone(), PendingCall::call(cell))
    }

    fn code(cell: &CallCell) -> Option<Code> {
        cell.lock().status.as_ref().map(Status::code)
    }

    #[test]
    fn calls_leave_in_order_and_one_that_is_put_back_is_the_next() {
        let mut waiting = WaitingCalls::new(10);
        let cells: Vec<_> = (0..3)
            .map(|_| {
                let (cell, pending) = call(None);
                waiting.push_back(pending);
                cell
            })
            .collect();
        let first = waiting.pop_front().unwrap();
        assert!(Arc::ptr_eq(first.cell(), &cells[0]));
        waiting.push_front(first);
        for cell in &cells {
            assert!(Arc::ptr_eq(&waiting.pop_front().unwrap().take(), cell));
        }
        assert!(waiting.pop_front().is_none() && waiting.is_empty());
    }

    #[test]
    fn a_deadline_ends_its_call_only() {
        let mut waiting = WaitingCalls::new(10);
        let cells: Vec<_> = [Some(30), None, Some(10), Some(20)]
            .into_iter()
            .map(|deadline| {
                let (cell, pending) = call(deadline);
                waiting.push_back(pending);
                cell
            })
            .collect();
        assert_eq!(waiting.next_deadline(), Some(Instant::from_nanos(10)));
        waiting.expire(Instant::from_nanos(20));
        let codes: Vec<_> = cells.iter().map(|cell| code(cell)).collect();
        assert_eq!(codes, [None, None, Some(Code::DeadlineExceeded), Some(Code::DeadlineExceeded)]);
        assert_eq!(waiting.next_deadline(), Some(Instant::from_nanos(30)));
        for cell in &cells[..2] {
            assert!(Arc::ptr_eq(&waiting.pop_front().unwrap().take(), cell));
        }
        assert_eq!((waiting.next_deadline(), waiting.pop_front().is_none()), (None, true));
    }

    #[test]
    fn one_call_too_many_is_refused_with_the_name_of_the_limit() {
        let mut waiting = WaitingCalls::new(2);
        let cells: Vec<_> = (0..3)
            .map(|_| {
                let (cell, pending) = call(None);
                waiting.push_back(pending);
                cell
            })
            .collect();
        assert_eq!((code(&cells[1]), code(&cells[2])), (None, Some(Code::ResourceExhausted)));
        assert!(cells[2].lock().status.as_ref().unwrap().message().contains("waiting_calls_max"));
    }

    #[test]
    fn calls_that_were_given_up_do_not_pile_up() {
        let mut waiting = WaitingCalls::new(100);
        let (kept, pending) = call(None);
        waiting.push_back(pending);
        for _ in 0..10_000 {
            let (cell, pending) = call(Some(1_000));
            waiting.push_back(pending);
            cell.abandon();
            assert_eq!(code(&cell), Some(Code::Cancelled), "and not refused for the limit");
        }
        assert!(waiting.slots.len() <= 2 * SWEEP_MIN && waiting.order.len() <= 4 * SWEEP_MIN);
        assert!(Arc::ptr_eq(&waiting.pop_front().unwrap().take(), &kept));
    }
}
