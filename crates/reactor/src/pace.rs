//! How much of a turn a connection gets, so that none is a burden to others, nor bulk to the small messages beside it.

use std::time::Duration;

use fulmar_base::{Instant, Output};

/// One connection reads at most so many times before others get their turn.
const READS_MAX: usize = 16;

/// One connection reads at most so many bytes before others get their turn: twice what it writes, so that of two ends on one thread
/// the one that reads keeps up with the one that writes, and nothing piles up between them.
const READ_BYTES_MAX: usize = 2 * WRITE_BYTES_MAX;

/// Once a connection has written so many bytes, the sockets are looked at before it writes more. All that it has written stands before
/// a small message that comes next: a larger share carries bulk faster, and lets small messages wait longer.
pub(crate) const WRITE_BYTES_MAX: usize = Output::SOFT_LIMIT;

/// In a crowd, one connection works at most about so long at what it has read before others get their turn: what a byte costs depends
/// on what it says, and a megabyte of small requests would hold everybody up for a long time.
const WORK_SHARE_NS: u64 = 20_000;

/// What one read brings is to be worked off in this time, so that a turn does not end long after its share is used up.
const READ_SHARE_NS: u64 = 10_000;

/// About what the write costs that follows a read, however little it moves. Reading less at a time does not make it cheaper, so it does
/// not count as work.
const WRITE_NS: u64 = 5_000;

/// So many bytes a nanosecond are copied to where they belong, and out of the system and into it again where they come back. That does
/// not count as work either, but is bounded by [`READ_BYTES_MAX`]: bulk is no flood.
const COPIED_BYTES_A_NANOSECOND: u64 = 2;

/// How many times these shares a connection gets while there is no crowd: fewer and larger reads and writes cost less.
const SLACK: u8 = 24;

/// A turn that others notice who wait for it. A call takes a third of it, system calls included.
const LONG_TURN_NS: u64 = 60_000;

/// How long turns stay short after somebody had to wait for a long one.
const CROWDED: Duration = Duration::from_secs(1);

/// A connection needs little if it took no more than one in so many nanoseconds of work lately. Two ends on one thread that talk to each
/// other each take more than that, so that neither waits for the other as for a stranger.
const MODEST_SHARE: u32 = 8;

/// Work of the last one or two of such spans is what was done lately, in nanoseconds as a power of two: 4 ms.
const LATELY_BITS: u32 = 22;

/// With less work than this to judge by nobody is told apart.
const EVIDENCE_NS: u32 = 500_000;

/// How many bytes a new connection is taken to work off in [`READ_SHARE`], as nobody knows.
const APPETITE_FIRST: u32 = 1024;

/// A connection whose bytes cost much reads at least so many at a time.
const APPETITE_MIN: u32 = 256;

/// As many bytes as the scratch buffer holds, and more than anybody works off in [`READ_SHARE`].
const APPETITE_MAX: u32 = 256 * 1024;

/// What is known of how much a connection takes.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many bytes it works off in [`READ_SHARE`].
    appetite: u32,
    lately: Lately,
    greedy: bool,
    /// What the last read brought took too long.
    was_slow: bool,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { appetite: APPETITE_FIRST, lately: Lately::new(), greedy: true, was_slow: false }
    }

    /// Whether it reads after the others: it had not read all there was when its last turn was over, or took long, or has had none.
    pub(crate) const fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Sees to it that what the next read brings is worked off in [`READ_SHARE_NS`], as many times as `slack` says. `full`: there may have
    /// been more to read.
    #[inline]
    fn note_read(&mut self, worked_ns: u64, received: usize, full: bool, slack: u8) {
        let share_ns = READ_SHARE_NS * u64::from(slack);
        let is_slow = worked_ns > share_ns;
        // One that takes long may be one during which the system stopped the thread.
        let was_slow = std::mem::replace(&mut self.was_slow, is_slow);
        if is_slow && was_slow {
            self.lessen(worked_ns, received as u64, full);
        } else if !is_slow && full && worked_ns < share_ns / 2 {
            self.appetite = (self.appetite * 2).min(APPETITE_MAX);
        }
    }

    #[cold]
    fn lessen(&mut self, worked_ns: u64, received: u64, full: bool) {
        let fitting = received * READ_SHARE_NS / worked_ns;
        // It may have been stopped twice in a row, so that is not believed altogether.
        let believed = if full { u64::from(self.appetite / 8) } else { u64::from(self.appetite / 2) };
        self.appetite = (fitting.max(believed) as u32).clamp(APPETITE_MIN, APPETITE_MAX);
    }
}

/// How much work there was lately: what is long ago is forgotten.
#[derive(Copy, Clone, Debug)]
struct Lately {
    /// Which span of time it is.
    span: u16,
    nanos: u32,
}

impl Lately {
    const fn new() -> Self {
        Self { span: 0, nanos: 0 }
    }

    fn add(&mut self, worked_ns: u64, now: Instant) {
        let span = (now.as_nanos() >> LATELY_BITS) as u16;
        if self.span != span {
            self.nanos = if self.span.wrapping_add(1) == span { self.nanos / 2 } else { 0 };
            self.span = span;
        }
        self.nanos = self.nanos.saturating_add(u32::try_from(worked_ns).unwrap_or(u32::MAX));
    }
}

/// Whether connections that need little are there beside some that take much.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Since the sockets were looked at, somebody had a turn that is long to wait for.
    long_turn: bool,
    until: Instant,
    /// Work of all connections.
    lately: Lately,
}

impl Crowd {
    pub(crate) const fn new() -> Self {
        Self { long_turn: false, until: Instant::ZERO, lately: Lately::new() }
    }

    /// Everybody has been served whom the last look at the sockets found ready.
    pub(crate) fn note_served(&mut self) {
        self.long_turn = false;
    }

    /// How many times its share a connection gets.
    fn slack(&self, now: Instant) -> u8 {
        if now < self.until { 1 } else { SLACK }
    }

    /// Whether a connection needs little, as far as one can tell.
    fn is_modest(&self, pace: &Pace) -> bool {
        self.lately.nanos >= EVIDENCE_NS && pace.lately.nanos <= self.lately.nanos / MODEST_SHARE
    }
}

/// A connection's turn.
pub(crate) struct Turn {
    slack: u8,
    reads: usize,
    bytes: usize,
    worked_ns: u64,
}

impl Turn {
    pub(crate) fn new(crowd: &Crowd, now: Instant) -> Self {
        Self { slack: crowd.slack(now), reads: 0, bytes: 0, worked_ns: 0 }
    }

    /// How many bytes to read at once.
    pub(crate) fn read_bytes(&self, pace: &Pace) -> usize {
        (pace.appetite as usize * usize::from(self.slack)).min(READ_BYTES_MAX)
    }

    /// So many bytes were read, and worked off in so many nanoseconds. `full`: there may have been more to read.
    #[inline]
    pub(crate) fn note_read(&mut self, pace: &mut Pace, took_ns: u64, received: usize, full: bool) {
        let worked_ns = took_ns.saturating_sub(WRITE_NS + received as u64 / COPIED_BYTES_A_NANOSECOND);
        pace.note_read(worked_ns, received, full, self.slack);
        self.reads += 1;
        self.bytes += received;
        self.worked_ns += worked_ns;
    }

    /// Whether others are to have their turn.
    pub(crate) fn is_over(&self) -> bool {
        self.reads >= READS_MAX || self.bytes >= READ_BYTES_MAX || self.worked_ns > self.share_ns()
    }

    /// The turn has ended; `dry`: there is nothing left to read.
    pub(crate) fn end(self, pace: &mut Pace, crowd: &mut Crowd, now: Instant, dry: bool) {
        let greedy = !dry || self.worked_ns > LONG_TURN_NS.max(self.share_ns());
        let was_greedy = std::mem::replace(&mut pace.greedy, greedy);
        pace.lately.add(self.worked_ns, now);
        crowd.lately.add(self.worked_ns, now);
        // One read that takes long may be one during which the system stopped the thread.
        if self.reads > 1 && self.worked_ns > LONG_TURN_NS {
            crowd.long_turn = true;
        } else if crowd.long_turn && !was_greedy && self.worked_ns <= LONG_TURN_NS && crowd.is_modest(pace) {
            crowd.until = now + CROWDED;
        }
    }

    fn share_ns(&self) -> u64 {
        WORK_SHARE_NS * u64::from(self.slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// A turn of two reads of this many bytes, with so much work together.
    fn turn(pace: &mut Pace, crowd: &mut Crowd, worked_ns: u64, bytes: usize, dry: bool) {
        let mut turn = Turn::new(crowd, NOW);
        turn.note_read(pace, WRITE_NS + bytes as u64 / 2 + worked_ns / 2, bytes, true);
        turn.note_read(pace, WRITE_NS + bytes as u64 / 2 + worked_ns / 2, bytes, !dry);
        turn.end(pace, crowd, NOW, dry);
    }

    #[test]
    fn appetite_follows_what_bytes_cost() {
        let mut pace = Pace::new();
        let mut after = |worked_ns: u64, received: u32, full| {
            pace.note_read(worked_ns, received as usize, full, 1);
            pace.appetite
        };
        assert_eq!(after(READ_SHARE_NS / 4, 100, false), APPETITE_FIRST, "there was no more to read");
        assert_eq!(after(READ_SHARE_NS / 4, APPETITE_FIRST, true), 2 * APPETITE_FIRST);
        assert_eq!(after(READ_SHARE_NS, 2 * APPETITE_FIRST, true), 2 * APPETITE_FIRST, "as it should be");
        assert_eq!(
            after(READ_SHARE_NS * 2, 200_000, true),
            2 * APPETITE_FIRST,
            "perhaps the thread was stopped"
        );
        assert_eq!(after(READ_SHARE_NS * 2, 200_000, true), 100_000);
        assert_eq!(after(READ_SHARE_NS * 1_000, 100_000, true), 12_500, "perhaps the thread was stopped");
        assert_eq!(after(READ_SHARE_NS * 2, 100, false), 6_250, "it might have been more");
        for _ in 0..20 {
            after(READ_SHARE_NS * 2, 100, true);
        }
        assert_eq!(after(READ_SHARE_NS * 2, 100, true), APPETITE_MIN);
        for _ in 0..20 {
            after(0, APPETITE_MAX, true);
        }
        assert_eq!(after(0, APPETITE_MAX, true), APPETITE_MAX);
    }

    #[test]
    fn what_writes_and_copies_cost_makes_no_read_smaller() {
        let (mut pace, mut crowd) = (Pace::new(), Crowd::new());
        crowd.until = NOW + CROWDED;
        let mut turn = Turn::new(&crowd, NOW);
        for _ in 0..10 {
            turn.note_read(&mut pace, WRITE_NS + READ_SHARE_NS / 4, 500, false);
        }
        assert_eq!(pace.appetite, APPETITE_FIRST);
        turn.note_read(&mut pace, WRITE_NS + 128 * 1024 / COPIED_BYTES_A_NANOSECOND, 128 * 1024, true);
        assert_eq!(pace.appetite, 2 * APPETITE_FIRST, "bulk");
        for appetite in [2 * APPETITE_FIRST, 500] {
            turn.note_read(&mut pace, WRITE_NS + 500 + READ_SHARE_NS * 2, 1_000, true);
            assert_eq!(pace.appetite, appetite);
        }
    }

    #[test]
    fn a_turn_of_bulk_is_over_when_its_bytes_are_used_up_and_not_before() {
        let mut pace = Pace::new();
        let mut crowd = Crowd::new();
        crowd.until = NOW + CROWDED;
        let mut turn = Turn::new(&crowd, NOW);
        let reads = 8;
        for _ in 0..reads {
            assert!(!turn.is_over());
            turn.note_read(&mut pace, WRITE_NS, READ_BYTES_MAX / reads, true);
        }
        assert!(turn.is_over());
        assert!(turn.read_bytes(&pace) <= READ_BYTES_MAX);
    }

    #[test]
    fn a_turn_is_over_when_its_share_is_used_up_in_any_way() {
        let over = |reads: usize, bytes, worked_ns: u64| {
            let mut turn = Turn::new(&Crowd::new(), NOW);
            (0..reads).for_each(|_| turn.note_read(&mut Pace::new(), WRITE_NS + worked_ns, bytes, true));
            turn.is_over()
        };
        assert!(!over(READS_MAX - 1, 1, 0));
        assert!(over(READS_MAX, 1, 0));
        assert!(over(4, READ_BYTES_MAX / 4, 0));
        assert!(!over(2, 1, WORK_SHARE_NS * u64::from(SLACK) / 2));
        assert!(over(3, 1, WORK_SHARE_NS * u64::from(SLACK) / 2));
    }

    #[test]
    fn two_who_talk_to_each_other_are_no_crowd_though_one_waits_for_the_other() {
        let mut crowd = Crowd::new();
        let (mut one, mut other) = (Pace::new(), Pace::new());
        for _ in 0..100 {
            turn(&mut one, &mut crowd, LONG_TURN_NS * 3, 2_000, false);
            turn(&mut other, &mut crowd, LONG_TURN_NS, 2_000, true);
        }
        assert!(!other.is_greedy());
        assert_eq!(crowd.slack(NOW), SLACK);
    }

    #[test]
    fn what_was_done_long_ago_is_forgotten() {
        let mut lately = Lately::new();
        let span = Duration::from_nanos(1 << LATELY_BITS);
        lately.add(100_000, NOW);
        lately.add(100_000, NOW + span);
        assert_eq!(lately.nanos, 150_000);
        lately.add(100_000, NOW + span * 4);
        assert_eq!(lately.nanos, 100_000);
    }

    #[test]
    fn turns_are_short_after_somebody_who_needs_little_had_to_wait() {
        let mut crowd = Crowd::new();
        let (mut greedy, mut modest) = (Pace::new(), Pace::new());
        for _ in 0..10 {
            assert_eq!(crowd.slack(NOW), SLACK, "there is little to judge by");
            turn(&mut greedy, &mut crowd, LONG_TURN_NS * 2, 2_000, false);
            crowd.note_served();
        }
        turn(&mut modest, &mut crowd, LONG_TURN_NS / 4, 20, true);
        assert!(!modest.is_greedy());
        turn(&mut greedy, &mut crowd, LONG_TURN_NS * 2, 2_000, false);
        assert!(greedy.is_greedy());
        assert_eq!(crowd.slack(NOW), SLACK);
        turn(&mut modest, &mut crowd, LONG_TURN_NS / 4, 20, true);
        assert_eq!(crowd.slack(NOW), 1);
        assert_eq!(crowd.slack(NOW + CROWDED), SLACK);
    }

    #[test]
    fn there_is_no_crowd_without_long_turns_or_without_somebody_who_needs_little() {
        let mut crowd = Crowd::new();
        let mut paces = [Pace::new(), Pace::new()];
        for _ in 0..10 {
            paces.iter_mut().for_each(|pace| turn(pace, &mut crowd, LONG_TURN_NS * 2, 2_000, false));
        }
        assert_eq!(crowd.slack(NOW), SLACK, "both take much");
        crowd.note_served();
        let mut paces = [Pace::new(), Pace::new()];
        for _ in 0..10 {
            paces.iter_mut().for_each(|pace| turn(pace, &mut crowd, LONG_TURN_NS / 4, 20, true));
        }
        assert_eq!(crowd.slack(NOW), SLACK, "both need little");
    }
}
