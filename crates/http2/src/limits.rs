//! Budgets: how often a peer may do what costs this end more than the peer.

use std::time::Duration;

use fulmar_base::Instant;

use crate::{Config, Error};

/// How many frames without effect a well-behaved peer may send for each stream: a window update, a reset and a priority that come
/// when it has ended, and late trailers.
const IGNORED_FRAMES_PER_STREAM: u32 = 4;

/// How many window updates a well-behaved peer may send for each frame of DATA that it gets: one for the stream and one for the
/// connection, with as much again to spare.
const WINDOW_UPDATES_PER_DATA: u32 = 4;

/// A frame of DATA that is shorter because of a window is what a peer asks for that hands out credit by the byte (CVE-2019-9511).
/// A few hundred bytes outweigh the heads of a frame and its window updates.
const DRIBBLE_BYTES: usize = 256;

/// DATA frames with less content are tiny: 4 bytes behind a head of 9.
const TINY_DATA_BYTES: usize = 5;

/// A count that is used up by one, fills itself with time, and can be earned back.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u32,
    max: u32,
    refilled: Instant,
    /// What the peer is told when nothing is left: names the field of the configuration.
    text: &'static str,
}

impl Budget {
    fn new(max: u32, text: &'static str) -> Self {
        Self { left: max, max, refilled: Instant::ZERO, text }
    }

    /// Uses up one; nothing left is a connection error.
    pub(crate) fn spend(&mut self, now: Instant, refill: Duration) -> Result<(), Error> {
        if self.left == 0 {
            self.refill(now, refill);
        } else if self.left == self.max {
            self.refilled = now;
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| Error::calm(self.text))?;
        Ok(())
    }

    /// Gives so many back.
    pub(crate) fn earn(&mut self, count: u32) {
        self.left = self.left.saturating_add(count).min(self.max);
    }

    /// Whether nothing is used up.
    pub(crate) fn is_full(&self) -> bool {
        self.left == self.max
    }

    /// Gives back everything.
    pub(crate) fn fill(&mut self) {
        self.left = self.max;
    }

    /// Is not full from here on, as if one had been used up at this time.
    pub(crate) fn note_spent(&mut self, at: Instant) {
        self.left = self.max.saturating_sub(1);
        self.refilled = at;
    }

    /// Whether everything has come back by now, or nothing was used.
    fn is_full_at(&self, now: Instant, refill: Duration) -> bool {
        self.left == self.max || self.came_back(now, refill) >= u128::from(self.max - self.left)
    }

    /// What has come back since the last time, in proportion to the time that a whole budget takes.
    fn refill(&mut self, now: Instant, refill: Duration) {
        let back = self.came_back(now, refill);
        if back > 0 {
            self.refilled = now;
            self.earn(u32::try_from(back).unwrap_or(u32::MAX));
        }
    }

    fn came_back(&self, now: Instant, refill: Duration) -> u128 {
        let passed = now.saturating_duration_since(self.refilled).as_nanos();
        passed.saturating_mul(u128::from(self.max)) / refill.as_nanos().max(1)
    }
}

/// The budgets of a connection; see the fields of the same names in [`Config`].
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) resets_received: Budget,
    pub(crate) resets_provoked: Budget,
    pub(crate) pings: Budget,
    pub(crate) settings: Budget,
    pub(crate) empty_data: Budget,
    pub(crate) tiny_data: Budget,
    pub(crate) window_updates: Budget,
    pub(crate) ignored_frames: Budget,
    pub(crate) refill: Duration,
}

impl Budgets {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            resets_received: Budget::new(
                config.resets_received_budget,
                "resets_received_budget: too many streams were reset by the peer",
            ),
            resets_provoked: Budget::new(
                config.resets_provoked_budget,
                "resets_provoked_budget: too many streams had to be reset for what the peer sent",
            ),
            pings: Budget::new(config.pings_budget, "pings_budget: too many PING frames"),
            settings: Budget::new(config.settings_budget, "settings_budget: too many SETTINGS frames"),
            empty_data: Budget::new(
                config.empty_data_budget,
                "empty_data_budget: too many empty DATA frames",
            ),
            tiny_data: Budget::new(config.tiny_data_budget, "tiny_data_budget: too many tiny DATA frames"),
            window_updates: Budget::new(
                config.window_updates_budget,
                "window_updates_budget: too many WINDOW_UPDATE frames",
            ),
            ignored_frames: Budget::new(
                config.ignored_frames_budget,
                "ignored_frames_budget: too many frames without effect",
            ),
            refill: Duration::from_millis(u64::from(config.budget_refill_ms)),
        }
    }

    /// Whether all of them are full by now.
    pub(crate) fn are_full(&self, now: Instant) -> bool {
        self.all().iter().all(|budget| budget.is_full_at(now, self.refill))
    }

    fn all(&self) -> [&Budget; 8] {
        [
            &self.resets_received,
            &self.resets_provoked,
            &self.pings,
            &self.settings,
            &self.empty_data,
            &self.tiny_data,
            &self.window_updates,
            &self.ignored_frames,
        ]
    }

    /// A stream was opened and taken.
    pub(crate) fn on_stream(&mut self) {
        self.ignored_frames.earn(IGNORED_FRAMES_PER_STREAM);
        self.window_updates.earn(WINDOW_UPDATES_PER_DATA);
    }

    /// A frame of DATA was sent. `whole`: it holds all that there was to send.
    #[inline]
    pub(crate) fn on_data_sent(&mut self, length: usize, whole: bool) {
        self.pings.fill();
        if whole || length >= DRIBBLE_BYTES {
            self.window_updates.earn(WINDOW_UPDATES_PER_DATA);
        }
    }

    /// Whether DATA with so much content that does not end its stream may be counted.
    #[inline]
    pub(crate) const fn counts_data(length: usize) -> bool {
        length < TINY_DATA_BYTES
    }

    /// A frame of DATA arrived that does not end its stream. `forced`: the peer had no window for more.
    pub(crate) fn on_data_received(
        &mut self,
        now: Instant,
        length: usize,
        forced: bool,
    ) -> Result<(), Error> {
        match length {
            0 => self.empty_data.spend(now, self.refill),
            length if length < TINY_DATA_BYTES && !forced => self.tiny_data.spend(now, self.refill),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFILL: Duration = Duration::from_secs(10);

    #[test]
    fn a_budget_of_three_is_used_up_by_three_and_named_by_the_fourth() {
        let mut budget = Budget::new(3, "three_budget: too many");
        for _ in 0..3 {
            budget.spend(Instant::ZERO, REFILL).unwrap();
        }
        assert_eq!(budget.spend(Instant::ZERO, REFILL), Err(Error::calm("three_budget: too many")));
        budget.earn(1);
        budget.spend(Instant::ZERO, REFILL).unwrap();
        assert!(budget.spend(Instant::ZERO, REFILL).is_err());
    }

    #[test]
    fn a_budget_fills_in_proportion_to_the_time_since_it_was_full() {
        let start = Instant::from_nanos(1_000_000_000_000);
        let mut budget = Budget::new(10, "");
        for _ in 0..10 {
            budget.spend(start, REFILL).unwrap();
        }
        assert!(budget.spend(start, REFILL).is_err());
        let later = start + Duration::from_secs(2);
        for _ in 0..2 {
            budget.spend(later, REFILL).unwrap();
        }
        assert!(budget.spend(later, REFILL).is_err());
    }

    #[test]
    fn a_budget_is_full_when_what_was_used_has_come_back_in_proportion_to_the_time() {
        let start = Instant::from_nanos(1_000_000_000_000);
        let mut budget = Budget::new(10, "");
        assert!(budget.is_full_at(Instant::ZERO, REFILL));
        for _ in 0..3 {
            budget.spend(start, REFILL).unwrap();
        }
        assert!(!budget.is_full_at(start + Duration::from_millis(2_999), REFILL));
        assert!(budget.is_full_at(start + Duration::from_secs(3), REFILL));
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        assert!(Budget::new(0, "").spend(Instant::from_nanos(u64::MAX), REFILL).is_err());
    }
}
