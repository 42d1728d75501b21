use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time: nanoseconds since a start that the world chooses.
///
/// Engines never read a clock; whoever drives them passes the time in [`Env::now`](crate::Env::now). The reactor counts from the
/// start of the process, a simulated world from zero. All arithmetic saturates: the last instant, some 584 years after the start,
/// means "never".
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The world's start.
    pub const ZERO: Self = Self(0);

    /// The instant so many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant moved into the future, at most to the last one.
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The time passed since `earlier`; zero if `earlier` is later.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates, like [`Instant::saturating_add`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_saturates_at_the_last_instant() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(Instant::from_nanos(1) + Duration::from_secs(1), Instant::from_nanos(1_000_000_001));
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, last);
        assert_eq!(last + Duration::from_nanos(1), last);
    }

    #[test]
    fn time_since_a_later_instant_is_zero() {
        let (early, late) = (Instant::from_nanos(10), Instant::from_nanos(25));
        assert_eq!(late.saturating_duration_since(early), Duration::from_nanos(15));
        assert_eq!(early.saturating_duration_since(late), Duration::ZERO);
    }

    #[test]
    fn debug_prints_the_time_since_the_start() {
        assert_eq!(format!("{:?}", Instant::from_nanos(1_500_000)), "1.5ms");
    }
}
