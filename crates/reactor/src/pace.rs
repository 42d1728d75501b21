//! How much of a turn a connection gets, so that none is a burden to others.

use std::time::Duration;

use fulmar_base::Instant;

/// One connection reads at most so many times before others get their turn.
const READS_MAX: usize = 16;

/// One connection reads at most so many bytes before others get their turn.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// In a crowd, one connection works at most about so long at what it has read before others get their turn: what a byte costs depends
/// on what it says, and a megabyte of small requests would hold everybody up for a long time.
const WORK_SHARE: Duration = Duration::from_micros(20);

/// What one read brings is to be worked off in this time, so that a turn does not end long after its share is used up.
const READ_SHARE: Duration = Duration::from_micros(10);

/// About what the system calls of a read and of the write that follows cost, however little they move. Reading less at a time does not
/// make them cheaper, so they do not count where it is judged how much to read.
const SYSTEM_CALLS: Duration = Duration::from_micros(10);

/// How many times these shares a connection gets while there is no crowd: fewer and larger reads and writes cost less.
const SLACK: u32 = 12;

/// A turn that others notice who wait for it. A call takes a third of it, system calls included.
const LONG_TURN: Duration = Duration::from_micros(60);

/// How long turns stay short after somebody had to wait for a long one.
const CROWDED: Duration = Duration::from_secs(1);

/// How many bytes a new connection is taken to work off in [`READ_SHARE`], as nobody knows.
const APPETITE_FIRST: usize = 1024;

/// A connection whose bytes cost much reads at least so many at a time.
const APPETITE_MIN: usize = 256;

/// As many bytes as the scratch buffer holds, and more than anybody works off in [`READ_SHARE`].
const APPETITE_MAX: usize = 256 * 1024;

/// What is known of how much a connection takes.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many bytes it works off in [`READ_SHARE`].
    appetite: usize,
    greedy: bool,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { appetite: APPETITE_FIRST, greedy: true }
    }

    /// Whether it reads after the others: it had not read all there was when its last turn was over, or took long, or has had none.
    pub(crate) const fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Sees to it that what the next read brings is worked off in [`READ_SHARE`]. `full`: there may have been more to read.
    fn note_read(&mut self, took: Duration, received: usize, full: bool) {
        if took > READ_SHARE {
            let fitting = received as u128 * READ_SHARE.as_nanos() / took.as_nanos();
            // The system may have stopped the thread meanwhile, so one look is not believed altogether.
            let believed = if full { received / 8 } else { self.appetite / 2 };
            self.appetite = (fitting as usize).max(believed).max(APPETITE_MIN);
        } else if full && took < READ_SHARE / 2 {
            self.appetite = (self.appetite * 2).min(APPETITE_MAX);
        }
    }
}

/// Whether connections that need little are there beside some that take much.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Since the sockets were looked at, somebody had a turn that is long to wait for.
    long_turn: bool,
    until: Instant,
}

impl Crowd {
    pub(crate) const fn new() -> Self {
        Self { long_turn: false, until: Instant::ZERO }
    }

    /// Everybody has been served whom the last look at the sockets found ready.
    pub(crate) fn note_served(&mut self) {
        self.long_turn = false;
    }

    /// How many times its share a connection gets.
    fn slack(&self, now: Instant) -> u32 {
        if now < self.until { 1 } else { SLACK }
    }
}

/// A connection's turn.
pub(crate) struct Turn {
    slack: u32,
    reads: usize,
    bytes: usize,
    worked: Duration,
}

impl Turn {
    pub(crate) fn new(crowd: &Crowd, now: Instant) -> Self {
        Self { slack: crowd.slack(now), reads: 0, bytes: 0, worked: Duration::ZERO }
    }

    /// How many bytes to read at once.
    pub(crate) fn read_bytes(&self, pace: &Pace) -> usize {
        pace.appetite * self.slack as usize
    }

    /// So many bytes were read and worked off. `full`: there may have been more to read.
    pub(crate) fn note_read(&mut self, pace: &mut Pace, took: Duration, received: usize, full: bool) {
        let worked = took.saturating_sub(SYSTEM_CALLS);
        pace.note_read(worked / self.slack, received / self.slack as usize, full);
        self.reads += 1;
        self.bytes += received;
        self.worked += took;
    }

    /// Whether others are to have their turn.
    pub(crate) fn is_over(&self) -> bool {
        self.reads >= READS_MAX || self.bytes >= READ_BYTES_MAX || self.worked > WORK_SHARE * self.slack
    }

    /// The turn has ended; `dry`: there is nothing left to read.
    pub(crate) fn end(self, pace: &mut Pace, crowd: &mut Crowd, now: Instant, dry: bool) {
        let greedy = !dry || self.worked > LONG_TURN.max(WORK_SHARE * self.slack);
        let was_greedy = std::mem::replace(&mut pace.greedy, greedy);
        // One read that takes long may be one during which the system stopped the thread.
        if self.reads > 1 && self.worked > LONG_TURN {
            crowd.long_turn = true;
        } else if crowd.long_turn && !was_greedy && self.worked <= LONG_TURN {
            crowd.until = now + CROWDED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// A turn of two reads of this many bytes, which took so long together.
    fn turn(pace: &mut Pace, crowd: &mut Crowd, took: Duration, bytes: usize, dry: bool) {
        let mut turn = Turn::new(crowd, NOW);
        turn.note_read(pace, took / 2, bytes, true);
        turn.note_read(pace, took / 2, bytes, !dry);
        turn.end(pace, crowd, NOW, dry);
    }

    #[test]
    fn appetite_follows_what_bytes_cost() {
        let mut pace = Pace::new();
        let mut after = |took: Duration, received, full| {
            pace.note_read(took, received, full);
            pace.appetite
        };
        assert_eq!(after(READ_SHARE / 4, 100, false), APPETITE_FIRST, "there was no more to read");
        assert_eq!(after(READ_SHARE / 4, APPETITE_FIRST, true), 2 * APPETITE_FIRST);
        assert_eq!(after(READ_SHARE, 2 * APPETITE_FIRST, true), 2 * APPETITE_FIRST, "as it should be");
        assert_eq!(after(READ_SHARE * 2, 200_000, true), 100_000);
        assert_eq!(after(READ_SHARE * 1_000, 100_000, true), 12_500, "perhaps the thread was stopped");
        assert_eq!(after(READ_SHARE * 2, 100, false), 6_250, "it might have been more");
        assert_eq!(after(READ_SHARE * 2, 100, true), APPETITE_MIN);
        for _ in 0..20 {
            after(Duration::ZERO, APPETITE_MAX, true);
        }
        assert_eq!(after(Duration::ZERO, APPETITE_MAX, true), APPETITE_MAX);
    }

    #[test]
    fn what_system_calls_cost_alone_makes_no_read_smaller() {
        let (mut pace, mut crowd) = (Pace::new(), Crowd::new());
        crowd.until = NOW + CROWDED;
        let mut turn = Turn::new(&crowd, NOW);
        for _ in 0..10 {
            turn.note_read(&mut pace, SYSTEM_CALLS + READ_SHARE / 4, 500, false);
        }
        assert_eq!(pace.appetite, APPETITE_FIRST);
        turn.note_read(&mut pace, SYSTEM_CALLS + READ_SHARE * 2, 1_000, true);
        assert_eq!(pace.appetite, 500);
    }

    #[test]
    fn a_turn_is_over_when_its_share_is_used_up_in_any_way() {
        let over = |reads: usize, bytes, took| {
            let mut turn = Turn::new(&Crowd::new(), NOW);
            (0..reads).for_each(|_| turn.note_read(&mut Pace::new(), took, bytes, true));
            turn.is_over()
        };
        assert!(!over(READS_MAX - 1, 1, Duration::ZERO));
        assert!(over(READS_MAX, 1, Duration::ZERO));
        assert!(over(4, READ_BYTES_MAX / 4, Duration::ZERO));
        assert!(!over(2, 1, WORK_SHARE * SLACK / 2));
        assert!(over(3, 1, WORK_SHARE * SLACK / 2));
    }

    #[test]
    fn turns_are_short_after_somebody_who_needs_little_had_to_wait() {
        let mut crowd = Crowd::new();
        let (mut greedy, mut modest) = (Pace::new(), Pace::new());
        turn(&mut modest, &mut crowd, LONG_TURN / 4, 20, true);
        assert!(!modest.is_greedy());
        turn(&mut greedy, &mut crowd, LONG_TURN * 2, 2_000, false);
        assert!(greedy.is_greedy());
        assert_eq!(crowd.slack(NOW), SLACK);
        turn(&mut modest, &mut crowd, LONG_TURN / 4, 20, true);
        assert_eq!(crowd.slack(NOW), 1);
        assert_eq!(crowd.slack(NOW + CROWDED), SLACK);
    }

    #[test]
    fn there_is_no_crowd_without_long_turns_or_without_somebody_who_needs_little() {
        let mut crowd = Crowd::new();
        let mut paces = [Pace::new(), Pace::new()];
        for _ in 0..10 {
            paces.iter_mut().for_each(|pace| turn(pace, &mut crowd, LONG_TURN * 2, 2_000, false));
        }
        assert_eq!(crowd.slack(NOW), SLACK, "both take much");
        crowd.note_served();
        let mut paces = [Pace::new(), Pace::new()];
        for _ in 0..10 {
            paces.iter_mut().for_each(|pace| turn(pace, &mut crowd, LONG_TURN / 4, 20, true));
        }
        assert_eq!(crowd.slack(NOW), SLACK, "both need little");
    }
}
