//! Calls that wait for a connection, or for a stream on one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use fulmar_base::{DeadlineHeap, DeadlineKey, Instant, Key, Slab};
use fulmar_grpc::Status;

use super::PendingCall;
use crate::call::QueuePlace;
use crate::counts::Counts;
use crate::lock;

/// So many keys of calls that have left may be in the order before it is looked through for them.
const STALE_KEYS_MIN: usize = 64;

/// A queue of calls in the order of their arrival, which calls leave in the middle when their deadline passes or their caller gives
/// them up. It has no memory until a call waits, nor after it has rested.
pub(crate) struct WaitingCalls {
    queue: Option<Box<Queue>>,
    calls_max: usize,
    /// Has [`let_leave`](Self::let_leave) called.
    waker: Option<Waker>,
}

struct Queue {
    slots: Slab<Waiting>,
    /// May hold keys of calls that have left: at most as many as there are others, and a few.
    order: VecDeque<Key<Waiting>>,
    deadlines: DeadlineHeap<Key<Waiting>>,
    given_up: Arc<GivenUp>,
    /// Memory for the next swap with what was given up.
    leaving: Vec<u64>,
}

/// Where callers leave word of the calls in a queue that they have given up.
#[derive(Debug)]
pub(crate) struct GivenUp {
    /// Of the calls' places, as numbers.
    keys: Mutex<Vec<u64>>,
    /// Tells whoever has the queue to let them leave; None where it looks by itself.
    waker: Option<Waker>,
}

impl GivenUp {
    /// A call that waits under this key is given up.
    pub(crate) fn add(&self, key: u64) {
        let mut keys = lock(&self.keys);
        let is_first = keys.is_empty();
        keys.push(key);
        drop(keys);
        if is_first && let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

struct Waiting {
    pending: PendingCall,
    since: Instant,
    deadline: Option<DeadlineKey>,
}

impl WaitingCalls {
    /// A queue of at most so many calls. `waker` has [`let_leave`](Self::let_leave) called; without one, whoever has the queue does that
    /// when calls may have been given up.
    pub(crate) fn new(calls_max: usize, waker: Option<Waker>) -> Self {
        Self { queue: None, calls_max, waker }
    }

    pub(crate) fn set_calls_max(&mut self, calls_max: usize) {
        self.calls_max = calls_max;
    }

    /// Takes the waker that `make` makes, unless there is one.
    pub(crate) fn hear_with(&mut self, make: impl FnOnce() -> Option<Waker>) {
        if self.waker.is_none() {
            self.waker = make();
        }
    }

    /// Gives the memory of an empty queue back, and forgets the waker.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            (self.queue, self.waker) = (None, None);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.slots.is_empty())
    }

    /// What waits here; calls that were given up and are about to leave do not count.
    pub(crate) fn counts(&self) -> Counts {
        let slots = self.queue.iter().flat_map(|queue| queue.slots.iter());
        let cells = slots.map(|(_, waiting)| waiting.pending.cell());
        let waiting_calls = cells.filter(|cell| !cell.lock().cancelled).count();
        Counts { waiting_calls, ..Counts::default() }
    }

    /// Appends a call; ends it with `RESOURCE_EXHAUSTED` where too many wait already. One that was given up does not get in.
    pub(crate) fn push_back(&mut self, pending: PendingCall, now: Instant) {
        let calls_max = self.calls_max;
        let queue = self.queue();
        if queue.slots.len() >= calls_max {
            queue.let_leave();
        }
        if queue.slots.len() >= calls_max {
            return pending.end(Status::resource_exhausted(format!(
                "{} calls wait for a connection or a stream already: waiting_calls_max",
                queue.slots.len()
            )));
        }
        if let Some(key) = queue.insert(pending, now) {
            queue.order.push_back(key);
        }
    }

    /// Puts back a call that was taken, as the next to be taken. It waits since when it did.
    pub(crate) fn push_front(&mut self, pending: PendingCall, since: Instant) {
        let queue = self.queue();
        if let Some(key) = queue.insert(pending, since) {
            queue.order.push_front(key);
        }
    }

    /// Takes the call that has waited longest, and tells since when.
    pub(crate) fn pop_front(&mut self) -> Option<(PendingCall, Instant)> {
        let queue = self.queue.as_mut()?;
        loop {
            let key = queue.order.pop_front()?;
            if let Some(popped) = queue.remove(key) {
                return Some(popped);
            }
        }
    }

    /// The first deadline of a call that waits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.queue.as_ref()?.deadlines.next()
    }

    /// Ends the calls whose deadline has passed. `why` tells what one has waited for, and so long.
    pub(crate) fn expire(&mut self, now: Instant, why: impl Fn(Duration) -> String) {
        let Some(queue) = &mut self.queue else { return };
        while let Some(key) = queue.deadlines.pop_expired(now) {
            if let Some((pending, since)) = queue.remove(key) {
                pending.end(Status::deadline_exceeded(why(now.saturating_duration_since(since))));
            }
        }
        queue.compact();
    }

    /// Takes out the calls that are `wanted`, in their order.
    pub(crate) fn take_where(&mut self, wanted: impl Fn(&PendingCall) -> bool) -> Vec<PendingCall> {
        let Some(queue) = &mut self.queue else { return Vec::new() };
        let is_wanted =
            |key: &Key<Waiting>| queue.slots.get(*key).is_some_and(|waiting| wanted(&waiting.pending));
        let keys: Vec<_> = queue.order.iter().copied().filter(is_wanted).collect();
        let taken = keys.into_iter().filter_map(|key| Some(queue.remove(key)?.0)).collect();
        queue.compact();
        taken
    }

    /// Lets the calls leave that were given up: their callers have heard.
    pub(crate) fn let_leave(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.let_leave();
        }
    }

    fn queue(&mut self) -> &mut Queue {
        let waker = &self.waker;
        self.queue.get_or_insert_with(|| Box::new(Queue::new(waker.clone())))
    }
}

impl Queue {
    fn new(waker: Option<Waker>) -> Self {
        Self {
            slots: Slab::new(),
            order: VecDeque::new(),
            deadlines: DeadlineHeap::new(),
            given_up: Arc::new(GivenUp { keys: Mutex::default(), waker }),
            leaving: Vec::new(),
        }
    }

    fn let_leave(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        std::mem::swap(&mut leaving, &mut *lock(&self.given_up.keys));
        for key in leaving.drain(..) {
            drop(self.remove(Key::from_u64(key)));
        }
        self.leaving = leaving;
        self.compact();
    }

    /// Gives a call its place; `None`, and the call dropped, where it was given up.
    fn insert(&mut self, pending: PendingCall, since: Instant) -> Option<Key<Waiting>> {
        let cell = pending.cell().clone();
        let mut state = cell.lock();
        if state.cancelled {
            drop(state);
            return None;
        }
        let deadlines = &mut self.deadlines;
        let key = self.slots.insert_with(|key| Waiting {
            pending,
            since,
            deadline: state.deadline.map(|deadline| deadlines.insert(deadline, key)),
        });
        state.queue_place = Some(QueuePlace::new(&self.given_up, key.to_u64()));
        Some(key)
    }

    fn remove(&mut self, key: Key<Waiting>) -> Option<(PendingCall, Instant)> {
        let Waiting { pending, since, deadline } = self.slots.remove(key)?;
        pending.cell().lock().queue_place = None;
        if let Some(deadline) = deadline {
            self.deadlines.remove(deadline);
        }
        Some((pending, since))
    }

    /// Forgets the keys of calls that have left, once they are in the majority.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.slots.len() + STALE_KEYS_MIN {
            let slots = &self.slots;
            self.order.retain(|key| slots.contains(*key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use fulmar_grpc::Code;

    use super::*;
    use crate::call::CallCell;

    fn call(deadline: Option<u64>) -> (Arc<CallCell>, PendingCall) {
        let cell = Arc::new(CallCell::default());
        cell.lock().deadline = deadline.map(Instant::from_nanos);
        (cell.clone(), PendingCall::call(cell))
    }

    const NOW: Instant = Instant::ZERO;

    fn pop(waiting: &mut WaitingCalls) -> PendingCall {
        waiting.pop_front().expect("a call waits").0
    }

    fn queue(waiting: &WaitingCalls) -> &Queue {
        waiting.queue.as_deref().expect("something has waited")
    }

    fn code(cell: &CallCell) -> Option<Code> {
        cell.lock().status.as_ref().map(Status::code)
    }

    #[test]
    fn calls_leave_in_order_and_one_that_is_put_back_is_the_next() {
        let mut waiting = WaitingCalls::new(10, None);
        let cells: Vec<_> = (0..3)
            .map(|_| {
                let (cell, pending) = call(None);
                waiting.push_back(pending, NOW);
                cell
            })
            .collect();
        let first = pop(&mut waiting);
        assert!(Arc::ptr_eq(first.cell(), &cells[0]));
        waiting.push_front(first, NOW);
        for cell in &cells {
            assert!(Arc::ptr_eq(&pop(&mut waiting).take(), cell));
        }
        assert!(waiting.pop_front().is_none() && waiting.is_empty());
    }

    #[test]
    fn a_deadline_ends_its_call_only() {
        let mut waiting = WaitingCalls::new(10, None);
        let cells: Vec<_> = [Some(30), None, Some(10), Some(20)]
            .into_iter()
            .map(|deadline| {
                let (cell, pending) = call(deadline);
                waiting.push_back(pending, NOW);
                cell
            })
            .collect();
        assert_eq!(waiting.next_deadline(), Some(Instant::from_nanos(10)));
        waiting.expire(Instant::from_nanos(20), |_| String::new());
        let codes: Vec<_> = cells.iter().map(|cell| code(cell)).collect();
        assert_eq!(codes, [None, None, Some(Code::DeadlineExceeded), Some(Code::DeadlineExceeded)]);
        assert_eq!(waiting.next_deadline(), Some(Instant::from_nanos(30)));
        for cell in &cells[..2] {
            assert!(Arc::ptr_eq(&pop(&mut waiting).take(), cell));
        }
        assert_eq!((waiting.next_deadline(), waiting.pop_front().is_none()), (None, true));
    }

    #[test]
    fn a_call_that_is_put_back_has_waited_since_it_came() {
        let mut waiting = WaitingCalls::new(10, None);
        let (cell, pending) = call(Some(50));
        waiting.push_back(pending, Instant::from_nanos(10));
        for _ in 0..2 {
            let (pending, since) = waiting.pop_front().unwrap();
            waiting.push_front(pending, since);
        }
        waiting.expire(Instant::from_nanos(50), |waited| format!("{} ns", waited.as_nanos()));
        assert_eq!(cell.lock().status.as_ref().map(Status::message), Some("40 ns"));
    }

    #[test]
    fn one_call_too_many_is_refused_with_the_name_of_the_limit() {
        let mut waiting = WaitingCalls::new(2, None);
        let cells: Vec<_> = (0..3)
            .map(|_| {
                let (cell, pending) = call(None);
                waiting.push_back(pending, NOW);
                cell
            })
            .collect();
        assert_eq!((code(&cells[1]), code(&cells[2])), (None, Some(Code::ResourceExhausted)));
        assert!(cells[2].lock().status.as_ref().unwrap().message().contains("waiting_calls_max"));
    }

    #[test]
    fn calls_that_were_given_up_leave_at_once_and_the_others_keep_their_order() {
        struct Bell(AtomicUsize);
        impl Wake for Bell {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let bell = Arc::new(Bell(AtomicUsize::new(0)));
        let mut waiting = WaitingCalls::new(100, Some(bell.clone().into()));
        let mut cells: VecDeque<_> = (0..100)
            .map(|_| {
                let (cell, pending) = call(Some(1_000));
                waiting.push_back(pending, NOW);
                cell
            })
            .collect();
        for turn in 1..1_000 {
            // One from within, which makes place for another.
            let cell = cells.remove(turn * 7 % 100).unwrap();
            cell.abandon();
            assert_eq!(bell.0.load(Ordering::Relaxed), turn, "who has the queue hears of it");
            waiting.let_leave();
            assert_eq!(Arc::strong_count(&cell), 1, "the queue has let go");
            assert_eq!((waiting.counts().waiting_calls, queue(&waiting).deadlines.len()), (99, 99));
            let (cell, pending) = call(Some(1_000));
            waiting.push_back(pending, NOW);
            cells.push_back(cell);
        }
        assert!(queue(&waiting).order.len() <= 2 * 100 + STALE_KEYS_MIN);
        for cell in cells {
            assert!(Arc::ptr_eq(pop(&mut waiting).cell(), &cell));
        }
        assert_eq!(queue(&waiting).deadlines.len(), 0);
    }

    #[test]
    fn calls_that_were_given_up_make_place_where_nobody_is_told_of_them() {
        let mut waiting = WaitingCalls::new(100, None);
        let (kept, pending) = call(None);
        waiting.push_back(pending, NOW);
        for _ in 0..10_000 {
            let (cell, pending) = call(Some(1_000));
            waiting.push_back(pending, NOW);
            cell.abandon();
            assert_eq!(code(&cell), Some(Code::Cancelled), "and not refused for the limit");
        }
        assert!(queue(&waiting).slots.len() <= 100 && queue(&waiting).order.len() <= 200 + STALE_KEYS_MIN);
        assert!(Arc::ptr_eq(&pop(&mut waiting).take(), &kept));
    }

    #[test]
    fn a_call_that_was_given_up_does_not_get_in_and_one_that_has_left_names_no_place() {
        let mut waiting = WaitingCalls::new(10, None);
        let (cell, pending) = call(Some(5));
        cell.abandon();
        waiting.push_back(pending, NOW);
        assert!(waiting.is_empty() && queue(&waiting).order.is_empty() && waiting.next_deadline().is_none());

        let (first, pending) = call(None);
        waiting.push_back(pending, NOW);
        let taken = pop(&mut waiting);
        let (second, pending) = call(None);
        waiting.push_back(pending, NOW);
        first.abandon();
        drop(taken);
        waiting.let_leave();
        assert!(Arc::ptr_eq(&pop(&mut waiting).take(), &second), "in the same slot");
    }

    #[test]
    fn a_queue_has_memory_only_once_a_call_has_waited_and_until_it_rests() {
        let mut waiting = WaitingCalls::new(10, None);
        assert!(waiting.is_empty() && waiting.pop_front().is_none() && waiting.queue.is_none());
        let (_cell, pending) = call(None);
        waiting.push_back(pending, NOW);
        waiting.rest();
        assert!(!waiting.is_empty() && waiting.pop_front().is_some());
        waiting.rest();
        assert!(waiting.queue.is_none());
        let (cell, pending) = call(Some(5));
        waiting.push_back(pending, NOW);
        waiting.expire(Instant::from_nanos(5), |_| String::new());
        assert_eq!(code(&cell), Some(Code::DeadlineExceeded));
        waiting.rest();
        assert!(waiting.queue.is_none());
    }
}
