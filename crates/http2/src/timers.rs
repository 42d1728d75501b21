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
}

impl Timer {
    const ALL: [Self; 8] = [
        Self::Preface,
        Self::SettingsAck,
        Self::Frame,
        Self::HeaderBlock,
        Self::Stall,
        Self::Credit,
        Self::Drain,
        Self::Shrink,
    ];
}

/// When each timer ends, if it runs.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    deadlines: [Option<Instant>; Timer::ALL.len()],
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines[timer as usize] = Some(deadline);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = None;
    }

    /// Whether a timer is set.
    pub(crate) fn runs(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize].is_some()
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Stops a timer whose deadline has come, and says which.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Timer> {
        let expired = Timer::ALL
            .into_iter()
            .find(|&timer| self.deadlines[timer as usize].is_some_and(|at| at <= now))?;
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
        timers.set(Timer::SettingsAck, Instant::from_nanos(20));
        timers.set(Timer::Preface, Instant::from_nanos(10));
        assert_eq!(timers.next(), Some(Instant::from_nanos(10)));
        assert_eq!(timers.take_expired(Instant::from_nanos(9)), None);
        assert_eq!(timers.take_expired(Instant::from_nanos(10)), Some(Timer::Preface));
        assert_eq!(timers.take_expired(Instant::from_nanos(10)), None);
        timers.stop(Timer::SettingsAck);
        assert_eq!(timers.next(), None);
    }
}
