use fulmar_base::{DeadlineHeap, DeadlineKey, Instant, Key, Slab};

use crate::keys::{ConnectionKey, ListenerKey, TimerKey};

/// What a timer is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// A connection looks at its deadlines.
    Connection(ConnectionKey),
    /// A listener that ran out of descriptors tries again.
    Listener(ListenerKey),
    /// A letter is delivered.
    Letter(TimerKey),
}

/// The timers of a reactor: at most one for each connection and listener, and the letters that wait for their time.
///
/// A heap and no wheel: most pokes leave a connection's timer alone (see [`Armed::rearm`]), so that its O(log n) is seldom paid, and
/// it fires to the nanosecond in order.
pub(crate) struct Timers<L> {
    heap: DeadlineHeap<Due>,
    letters: Slab<Waiting<L>>,
}

struct Waiting<L> {
    letter: L,
    heap_key: DeadlineKey,
}

impl<L> Timers<L> {
    pub(crate) fn new() -> Self {
        Self { heap: DeadlineHeap::new(), letters: Slab::new() }
    }

    /// How many letters wait for their time.
    pub(crate) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// The time of the earliest timer.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.next()
    }

    /// Takes out the earliest timer whose time has come.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<Due> {
        self.heap.pop_expired(now)
    }

    pub(crate) fn set_letter(&mut self, at: Instant, letter: L) -> TimerKey {
        let heap = &mut self.heap;
        TimerKey::of(self.letters.insert_with(|key: Key<Waiting<L>>| {
            let heap_key = heap.insert(at, Due::Letter(TimerKey::of(key)));
            Waiting { letter, heap_key }
        }))
    }

    pub(crate) fn cancel_letter(&mut self, key: TimerKey) -> Option<L> {
        let waiting = self.letters.remove(key.key())?;
        self.heap.remove(waiting.heap_key);
        Some(waiting.letter)
    }

    /// The letter of a timer that has just been popped.
    pub(crate) fn take_letter(&mut self, key: TimerKey) -> Option<L> {
        self.letters.remove(key.key()).map(|waiting| waiting.letter)
    }

    pub(crate) fn arm_listener(&mut self, at: Instant, key: ListenerKey) {
        self.heap.insert(at, Due::Listener(key));
    }
}

/// The one timer of a connection: when it fires, and where it is in the heap.
#[derive(Default)]
pub(crate) struct Armed(Option<(Instant, DeadlineKey)>);

impl Armed {
    /// Makes the timer fire at `deadline` or before.
    ///
    /// A timer armed for an earlier time stays: when it fires, the connection looks at its deadline again. So a deadline that moves
    /// away again and again, as those of calls do that end in time, costs a comparison.
    pub(crate) fn rearm<L>(&mut self, deadline: Option<Instant>, key: ConnectionKey, timers: &mut Timers<L>) {
        let Some(deadline) = deadline else { return };
        if let Some((armed, heap_key)) = self.0 {
            if armed <= deadline {
                return;
            }
            timers.heap.remove(heap_key);
        }
        self.0 = Some((deadline, timers.heap.insert(deadline, Due::Connection(key))));
    }

    /// When the timer fires.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }

    /// The timer has fired.
    pub(crate) fn fired(&mut self) {
        self.0 = None;
    }

    /// The connection is going away.
    pub(crate) fn disarm<L>(&mut self, timers: &mut Timers<L>) {
        if let Some((_, heap_key)) = self.0.take() {
            timers.heap.remove(heap_key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn key() -> ConnectionKey {
        ConnectionKey::of(Slab::new().insert(()))
    }

    #[test]
    fn letters_come_in_the_order_of_their_times_and_cancelled_ones_never() {
        let mut timers = Timers::new();
        timers.set_letter(at(30), 'c');
        timers.set_letter(at(10), 'a');
        let cancelled = timers.set_letter(at(15), 'x');
        timers.set_letter(at(20), 'b');
        assert_eq!(timers.cancel_letter(cancelled), Some('x'));
        assert_eq!(timers.cancel_letter(cancelled), None);

        let mut letters = String::new();
        for now in [9, 25, 30] {
            while let Some(due) = timers.pop_expired(at(now)) {
                let Due::Letter(key) = due else { panic!("only letters were set") };
                letters.extend(timers.take_letter(key));
            }
            letters.push('.');
        }
        assert_eq!(letters, ".ab.c.");
    }

    #[test]
    fn a_deadline_that_moves_away_leaves_the_timer_and_one_that_comes_nearer_moves_it() {
        let mut timers: Timers<()> = Timers::new();
        let mut armed = Armed::default();
        armed.rearm(Some(at(100)), key(), &mut timers);
        armed.rearm(Some(at(500)), key(), &mut timers);
        armed.rearm(None, key(), &mut timers);
        assert_eq!((timers.next(), timers.heap.len()), (Some(at(100)), 1));
        armed.rearm(Some(at(50)), key(), &mut timers);
        assert_eq!((timers.next(), timers.heap.len()), (Some(at(50)), 1));
        assert_eq!(timers.pop_expired(at(50)), Some(Due::Connection(key())));
        armed.fired();
        armed.rearm(Some(at(500)), key(), &mut timers);
        assert_eq!(timers.next(), Some(at(500)));
        armed.disarm(&mut timers);
        assert!(timers.heap.is_empty());
    }
}
