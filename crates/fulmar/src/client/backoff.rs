//! How long to wait between attempts to connect (gRPC "connection-backoff").

use std::time::Duration;

use crate::random;

/// How long a channel waits before it tries to connect again, counted from the start of the attempt that failed.
///
/// The first wait is `initial`; each further one is `multiplier` times as long, up to `max`. All vary by `jitter` in either
/// direction, so that clients that lost a server at the same time do not come back at the same time. A connection on which the
/// server has sent its SETTINGS begins anew with `initial`.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Backoff {
    /// The first wait. Default: 1 s.
    pub initial: Duration,
    /// How much longer each further wait is. At least 1. Default: 1.6.
    pub multiplier: f64,
    /// The longest wait. Default: 120 s.
    pub max: Duration,
    /// Which part of the wait may be added to it or taken from it, at random. 0 to 1. Default: 0.2.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), multiplier: 1.6, max: Duration::from_secs(120), jitter: 0.2 }
    }
}

/// Parts of a whole that randomness is measured in.
const STEPS: u32 = 1_000_000;

impl Backoff {
    /// The wait after so many attempts in a row that failed; at random.
    pub(crate) fn after(&self, failures: u32) -> Duration {
        self.spread(failures, random::between(0, 2 * STEPS))
    }

    /// The same with a given random number of 0 to two million; one million leaves the wait as it is.
    fn spread(&self, failures: u32, random: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let longer = self.multiplier.max(1.0).powi(exponent);
        let wait = (self.initial.as_secs_f64() * longer).min(self.max.as_secs_f64());
        let off = f64::from(random) / f64::from(STEPS) - 1.0;
        let jitter = self.jitter.clamp(0.0, 1.0);
        // Too large a time, and what is none, is as good as the longest.
        Duration::try_from_secs_f64(wait * (1.0 + jitter * off)).unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(backoff: &Backoff, failures: u32, random: u32) -> u128 {
        backoff.spread(failures, random).as_millis()
    }

    #[test]
    fn r45_waits_grow_by_the_factor_up_to_the_longest_one() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (1..=12).map(|failures| millis(&backoff, failures, STEPS)).collect();
        assert_eq!(waits[..5], [1_000, 1_600, 2_560, 4_096, 6_553]);
        assert_eq!(waits[10..], [109_951, 120_000]);
        assert_eq!(millis(&backoff, u32::MAX, STEPS), 120_000);
    }

    #[test]
    fn r45_the_jitter_takes_or_adds_a_fifth_at_most() {
        let backoff = Backoff::default();
        assert_eq!((millis(&backoff, 1, 0), millis(&backoff, 1, 2 * STEPS)), (800, 1_200));
        let waits: Vec<_> = (0..1_000).map(|_| backoff.after(2).as_millis()).collect();
        assert!(waits.iter().all(|wait| (1_280..=1_920).contains(wait)));
        let early = waits.iter().filter(|&&wait| wait < 1_600).count();
        assert!((300..700).contains(&early), "{early} of 1,000 in the first half");
    }

    #[test]
    fn r45_channels_that_begin_together_do_not_try_together() {
        let backoff = Backoff::default();
        let mut bins = std::collections::HashMap::<u128, u32>::new();
        for _ in 0..200 {
            let mut at = backoff.after(1);
            // From the third attempt on, half a minute long.
            for failures in 2.. {
                at += backoff.after(failures);
                if at > Duration::from_secs(30) {
                    break;
                }
                *bins.entry(at.as_millis() / 100).or_default() += 1;
            }
        }
        let (most, all) = (bins.values().max().copied().unwrap_or(0), bins.values().sum::<u32>());
        assert!(all >= 700 && most * 100 <= all * 15, "{most} of {all} attempts in 100 ms");
    }

    #[test]
    fn settings_that_make_no_sense_make_no_panic() {
        let odd = Backoff {
            initial: Duration::MAX,
            multiplier: f64::NAN,
            max: Duration::from_secs(3),
            jitter: f64::INFINITY,
        };
        assert!(odd.after(7) <= Duration::from_secs(6));
        let odd = Backoff { multiplier: f64::INFINITY, ..Backoff::default() };
        assert!(odd.after(7) <= Duration::from_secs(144));
    }
}
