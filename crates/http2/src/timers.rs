//! The few timers of a connection, in a fixed table.

use fulmar_base::Instant;

/// Which timer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// When the peer's preface and first SETTINGS must have arrived.
    Preface,
    /// When our SETTINGS must have been acknowledged.
    SettingsAck,
    /// When the frame that has begun must be there.
    Frame,
    /// When the header block that has begun must have ended.
    HeaderBlock,
    /// When enough of what waits must have left.
    Stall,
    /// When DATA may have waited too long for credit.
    Credit,
    /// When a graceful shutdown settles its last stream id although its PING was not answered.
    Drain,
    /// When a connection without streams gives memory back.
    Shrink,
    /// When to look whether the peer is alive.
    Keepalive,
    /// When the connection may have been without streams for too long.
    Idle,
    /// When the connection is old enough to go away, and then when its grace is over.
    Age,
}

impl Timer {
    const ALL: [Self; 11] = [
        Self::Preface,
        Self::SettingsAck,
        Self::Frame,
        Self::HeaderBlock,
        Self::Stall,
        Self::Credit,
        Self::Drain,
        Self::Shrink,
        Self::Keepalive,
        Self::Idle,
        Self::Age,
    ];
}

/// The deadline of a timer that does not run: later than any time there is.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// When each timer ends; [`NEVER`] if it does not run.
#[derive(Debug)]
pub(crate) struct Timers {
    deadlines: [Instant; Timer::ALL.len()],
}

impl Default for Timers {
    fn default() -> Self {
        Self { deadlines: [NEVER; Timer::ALL.len()] }
    }
}

impl Timers {
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines[timer as usize] = deadline;
    }

    #[inline]
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = NEVER;
    }

    /// Whether a timer is set.
    #[inline]
    pub(crate) fn runs(&self, timer: Timer) -> bool {
        self.deadline(timer) != NEVER
    }

    /// When a timer ends.
    #[inline]
    pub(crate) fn deadline(&self, timer: Timer) -> Instant {
        self.deadlines[timer as usize]
    }

    /// Whether no timer but these is set.
    pub(crate) fn runs_none_but(&self, timers: &[Timer]) -> bool {
        Timer::ALL.into_iter().all(|timer| timers.contains(&timer) || !self.runs(timer))
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let next = self.deadlines.iter().fold(NEVER, |next, &deadline| next.min(deadline));
        (next != NEVER).then_some(next)
    }

    /// Stops a timer whose deadline has come, and says which.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Timer> {
        let is_due = |timer: &Timer| self.runs(*timer) && self.deadline(*timer) <= now;
        let expired = Timer::ALL.into_iter().find(is_due)?;
        self.stop(expired);
        Some(expired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_next_and_only_expired_timers_are_taken() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        assert!(timers.runs_none_but(&[]));
        timers.set(Timer::SettingsAck, Instant::from_nanos(20));
        assert!(
            timers.runs_none_but(&[Timer::SettingsAck, Timer::Age])
                && !timers.runs_none_but(&[Timer::Shrink])
        );
        timers.set(Timer::Preface, Instant::from_nanos(10));
        assert_eq!(timers.next(), Some(Instant::from_nanos(10)));
        assert_eq!(timers.take_expired(Instant::from_nanos(9)), None);
        assert_eq!(timers.take_expired(Instant::from_nanos(10)), Some(Timer::Preface));
        assert_eq!(timers.take_expired(Instant::from_nanos(10)), None);
        timers.stop(Timer::SettingsAck);
        assert_eq!(timers.next(), None);
    }
}
