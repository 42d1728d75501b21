//! Numbers that nobody foresees, for what must not happen everywhere at once. Not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number from a range, both ends included.
pub(crate) fn between(least: u32, most: u32) -> u32 {
    static TURN: AtomicU64 = AtomicU64::new(0);
    // A fresh state has keys of its own, which the system's source of randomness seeded; the turn makes each number another one.
    let bits = RandomState::new().hash_one(TURN.fetch_add(1, Ordering::Relaxed));
    let span = u64::from(most.saturating_sub(least)) + 1;
    // The span is far smaller than the range of `bits`, so that all numbers are as good as equally likely.
    least + u32::try_from(bits % span).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_are_spread_over_it() {
        let mut seen = [0; 11];
        for _ in 0..11_000 {
            seen[between(5, 15) as usize - 5] += 1;
        }
        assert!(seen.iter().all(|&times| (700..1_300).contains(&times)), "{seen:?}");
        assert_eq!(between(7, 7), 7);
    }
}
