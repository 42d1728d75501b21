//! R40: whatever a user holds is dropped in any order, while the peer does what it likes: nothing panics, and nothing is left.
//!
//! Each round is made from a seed: a handful of calls of all four kinds, and a few dozen random steps, of which each polls, sends,
//! finishes, drops, or lets the other side act. `R40_ROUNDS` sets how many rounds there are, `R40_SEED` the first seed; a failure
//! names the seed of its round.

mod callers;
mod handlers;
mod hostile;
mod round;

use std::cell::Cell;
use std::sync::Once;

use round::Round;

thread_local! {
    /// Panics on this thread since it began to look at them. Negative: it does not.
    static PANICS: Cell<i64> = const { Cell::new(-1) };
}

/// Counts the panics of this thread from now on, those included that are caught later: a round runs on one thread, the reactor with it.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if PANICS.get() >= 0 {
                PANICS.set(PANICS.get() + 1);
            }
            before(info);
        }));
    });
    PANICS.set(0);
}

/// A number from the environment, or the default.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A generator of numbers (SplitMix64): the same seed, the same round.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in so many cases of 100.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

fn rounds(other_side: round::OtherSide, default: u64) {
    count_panics();
    let (first, count) = (setting("R40_SEED", 1), setting("R40_ROUNDS", default));
    for seed in first..first + count {
        Round::new(seed, other_side).run();
        assert_eq!(PANICS.get(), 0, "R40_SEED={seed}: something panicked");
    }
    PANICS.set(-1);
}

#[test]
fn r40_handles_dropped_in_any_order_against_a_hostile_server_leave_nothing() {
    rounds(round::OtherSide::Hostile, 150);
}

#[test]
fn r40_handles_dropped_in_any_order_at_both_ends_leave_nothing() {
    rounds(round::OtherSide::Ours, 150);
}

#[test]
fn r40_handles_dropped_in_any_order_in_process_leave_nothing() {
    rounds(round::OtherSide::InProcess, 300);
}
