use std::collections::VecDeque;
use std::time::Duration;

use fulmar_base::Instant;

use crate::Random;

/// How bytes travel on a [`Link`]. A stream is slow, stalled or cut, but never holed: that is what TCP promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How long a byte travels, at least.
    pub delay: Duration,
    /// How much longer it may travel. Bytes never overtake each other.
    pub jitter: Duration,
    /// Bytes a second that the link carries.
    pub rate: u64,
    /// How many bytes arrive together at most: 1 shows each byte alone.
    pub chunk_max: usize,
    /// How many bytes may be under way at once: the sender's socket is full beyond that.
    pub under_way_max: usize,
}

impl Weather {
    /// Bytes arrive at once, all together.
    pub const CALM: Self = Self {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        rate: u64::MAX,
        chunk_max: usize::MAX,
        under_way_max: usize::MAX,
    };

    /// Some weather, from calm to foul.
    pub fn draw(random: &mut Random) -> Self {
        let delays = [0, 20, 500, 20_000, 150_000].map(Duration::from_micros);
        let mut weather = Self {
            delay: delays[random.within(0..=4)],
            jitter: delays[random.within(0..=3)],
            // Together these leave 100 kB/s, so that what may be under way and wait takes less than the 10 s an engine gives
            // a peer to answer.
            rate: [200_000, 1_000_000, 100_000_000, u64::MAX][random.within(0..=3)],
            chunk_max: [1, 2, 9, 100, 1460, 65_536][random.within(0..=5)],
            under_way_max: [1_000, 16_384, 212_992, 512 * 1024][random.within(0..=3)],
        };
        if weather.under_way_max < 16_384 {
            weather.delay = weather.delay.min(delays[2]);
            weather.jitter = weather.jitter.min(delays[2]);
        }
        weather
    }
}

/// How a direction of a connection ends before its time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that was sent arrives, and then the end of the file: FIN.
    Eof,
    /// What is under way is lost: RST.
    Reset,
}

/// One direction of a connection, in virtual time.
#[derive(Debug)]
pub struct Link {
    weather: Weather,
    random: Random,
    bytes: VecDeque<u8>,
    /// When the next bytes arrive, and how many, in order.
    arrivals: VecDeque<(Instant, usize)>,
    /// Nothing arrives before.
    stalled_until: Instant,
    /// When the last byte accepted has been put on the line, as far as `rate` says.
    sent_until: Instant,
    /// Behind which byte the direction ends, and how.
    cut: Option<(u64, Ending)>,
    accepted: u64,
    delivered: u64,
    lost: u64,
}

impl Link {
    /// A link with nothing under way.
    pub fn new(weather: Weather, random: Random) -> Self {
        Self {
            weather,
            random,
            bytes: VecDeque::new(),
            arrivals: VecDeque::new(),
            stalled_until: Instant::ZERO,
            sent_until: Instant::ZERO,
            cut: None,
            accepted: 0,
            delivered: 0,
            lost: 0,
        }
    }

    /// Accepts as many of `bytes` as there is room for, from the first on, and returns how many. A link that was full has room
    /// when a quarter is free, as sockets are writable again: else every byte that arrives would let one byte follow. What is
    /// written behind a [cut](Self::cut) is accepted and lost, as a sender does not know of it yet.
    pub fn write(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if let Some(left) = self.left_to_cut(self.accepted)
            && left < bytes.len()
        {
            let accepted = self.put(now, &bytes[..left]);
            let lost = if accepted == left { bytes.len() - left } else { 0 };
            self.accepted += lost as u64;
            self.lost += lost as u64;
            return accepted + lost;
        }
        self.put(now, bytes)
    }

    fn put(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let free = self.weather.under_way_max.saturating_sub(self.bytes.len());
        let room = if free < bytes.len().min(self.weather.under_way_max / 4) { 0 } else { free };
        let accepted = &bytes[..bytes.len().min(room)];
        let mut rest = accepted;
        while !rest.is_empty() {
            let most = self.weather.chunk_max.min(rest.len());
            let len = if self.weather.chunk_max == usize::MAX { most } else { self.random.within(1..=most) };
            let at = self.arrival(now, len);
            self.arrivals.push_back((at, len));
            rest = &rest[len..];
        }
        self.bytes.extend(accepted);
        self.accepted += accepted.len() as u64;
        accepted.len()
    }

    /// Moves the next bytes that have arrived to the end of `into`; false if none have.
    pub fn read(&mut self, now: Instant, into: &mut Vec<u8>) -> bool {
        match self.arrivals.front() {
            Some(&(_, len)) if self.next_arrival().is_some_and(|at| at <= now) => {
                self.arrivals.pop_front();
                let left = self.left_to_cut(self.delivered).unwrap_or(len).min(len);
                into.extend(self.bytes.drain(..left));
                self.delivered += left as u64;
                self.bytes.drain(..len - left);
                self.lost += (len - left) as u64;
                self.lose_behind_cut();
                true
            }
            _ => false,
        }
    }

    /// When the next bytes arrive.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.arrivals.front().map(|&(at, _)| at.max(self.stalled_until))
    }

    /// How many bytes are under way.
    pub fn under_way(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes were accepted since the start, and how many of them were delivered or lost behind a cut.
    pub fn totals(&self) -> (u64, u64, u64) {
        (self.accepted, self.delivered, self.lost)
    }

    /// Ends the direction `after` so many more bytes: of those that are still to be sent with [`Ending::Eof`], of those that are
    /// still to arrive with [`Ending::Reset`]. The earlier of two cuts counts.
    pub fn cut(&mut self, after: u64, ending: Ending) {
        let at = after.saturating_add(match ending {
            Ending::Eof => self.accepted,
            Ending::Reset => self.delivered,
        });
        if self.cut.is_none_or(|(earlier, _)| at < earlier) {
            self.cut = Some((at, ending));
        }
        self.lose_behind_cut();
    }

    /// How the direction has ended, for who reads it: all that still arrives has arrived.
    pub fn ended(&self) -> Option<Ending> {
        self.cut.filter(|&(at, _)| self.delivered >= at).map(|(_, ending)| ending)
    }

    fn left_to_cut(&self, from: u64) -> Option<usize> {
        self.cut.map(|(at, _)| usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX))
    }

    fn lose_behind_cut(&mut self) {
        if self.ended().is_some() {
            self.lost += self.bytes.len() as u64;
            self.bytes.clear();
            self.arrivals.clear();
        }
    }

    /// Lets nothing arrive before `until`, without losing anything.
    pub fn stall(&mut self, until: Instant) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Makes the weather calm for what is sent from here on.
    pub fn heal(&mut self) {
        self.weather = Weather::CALM;
    }

    /// When the next `len` bytes arrive, if they are sent now.
    fn arrival(&mut self, now: Instant, len: usize) -> Instant {
        let nanos = (len as u128 * 1_000_000_000 / u128::from(self.weather.rate.max(1))) as u64;
        self.sent_until = self.sent_until.max(now) + Duration::from_nanos(nanos);
        let at = self.sent_until + self.weather.delay + self.random.time(self.weather.jitter);
        at.max(self.arrivals.back().map_or(Instant::ZERO, |&(last, _)| last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(link: &mut Link, now: Instant) -> Vec<u8> {
        let mut bytes = Vec::new();
        while link.read(now, &mut bytes) {}
        bytes
    }

    #[test]
    fn bytes_arrive_in_order_and_none_is_lost_in_any_weather() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut link = Link::new(Weather::draw(&mut random), Random::new(seed));
            let sent: Vec<u8> = (0..3000).map(|_| random.bits() as u8).collect();
            let (mut now, mut left, mut arrived) = (Instant::ZERO, &sent[..], Vec::new());
            while arrived.len() < sent.len() {
                left = &left[link.write(now, left)..];
                now = link.next_arrival().expect("something is under way");
                arrived.extend(drain(&mut link, now));
                let (accepted, delivered, lost) = link.totals();
                assert_eq!((accepted, lost), (delivered + link.under_way() as u64, 0));
            }
            assert_eq!(arrived, sent, "seed {seed}");
        }
    }

    #[test]
    fn a_full_link_accepts_no_more() {
        let weather = Weather { under_way_max: 10, delay: Duration::from_millis(1), ..Weather::CALM };
        let mut link = Link::new(weather, Random::new(0));
        assert_eq!((link.write(Instant::ZERO, &[1; 20]), link.write(Instant::ZERO, &[1; 20])), (10, 0));
        assert!(drain(&mut link, Instant::ZERO).is_empty(), "nothing arrives before its time");
        assert_eq!(drain(&mut link, Instant::ZERO + Duration::from_millis(1)).len(), 10);
        assert_eq!(link.write(Instant::ZERO, &[1; 20]), 10);
    }

    #[test]
    fn a_link_that_was_full_has_room_when_a_quarter_is_free() {
        let mut link =
            Link::new(Weather { under_way_max: 100, chunk_max: 1, ..Weather::CALM }, Random::new(0));
        assert_eq!(link.write(Instant::ZERO, &[1; 200]), 100);
        let mut bytes = Vec::new();
        for _ in 0..24 {
            link.read(Instant::ZERO, &mut bytes);
        }
        assert_eq!((link.write(Instant::ZERO, &[1; 200]), link.write(Instant::ZERO, &[1; 24])), (0, 24));
        for _ in 0..25 {
            link.read(Instant::ZERO, &mut bytes);
        }
        assert_eq!(link.write(Instant::ZERO, &[1; 200]), 25);
    }

    #[test]
    fn rate_and_delay_say_when_bytes_arrive() {
        let weather = Weather { rate: 1000, delay: Duration::from_millis(5), ..Weather::CALM };
        let mut link = Link::new(weather, Random::new(0));
        link.write(Instant::ZERO, &[1; 100]);
        assert_eq!(link.next_arrival(), Some(Instant::ZERO + Duration::from_millis(105)));
        link.heal();
        link.write(Instant::ZERO, &[1]);
        drain(&mut link, Instant::ZERO + Duration::from_millis(105));
        assert_eq!(link.under_way(), 0, "what is sent later does not overtake, and need not wait");
    }

    #[test]
    fn a_stalled_link_holds_bytes_back_and_loses_none() {
        let mut link = Link::new(Weather::CALM, Random::new(0));
        let later = Instant::ZERO + Duration::from_secs(1);
        link.write(Instant::ZERO, b"abc");
        link.stall(later);
        assert!(drain(&mut link, Instant::ZERO).is_empty());
        assert_eq!(link.next_arrival(), Some(later));
        assert_eq!(drain(&mut link, later), b"abc");
    }

    #[test]
    fn a_chunk_of_one_shows_each_byte_alone() {
        let mut link = Link::new(Weather { chunk_max: 1, ..Weather::CALM }, Random::new(0));
        link.write(Instant::ZERO, b"abc");
        let mut bytes = Vec::new();
        assert!(link.read(Instant::ZERO, &mut bytes));
        assert_eq!(bytes, b"a");
    }

    #[test]
    fn a_cut_shows_every_byte_before_it_and_none_behind() {
        for (ending, sent_before, at) in [(Ending::Eof, 3, 5), (Ending::Reset, 3, 2), (Ending::Reset, 0, 4)] {
            let mut link = Link::new(Weather::CALM, Random::new(0));
            assert_eq!(link.write(Instant::ZERO, &b"abcdefgh"[..sent_before]), sent_before);
            link.cut(if ending == Ending::Eof { at - sent_before as u64 } else { at }, ending);
            assert_eq!(link.ended(), None);
            let rest = &b"abcdefgh"[sent_before..];
            assert_eq!(link.write(Instant::ZERO, rest), rest.len(), "a sender does not know of the cut");
            assert_eq!(drain(&mut link, Instant::ZERO), b"abcdefgh"[..at as usize]);
            assert_eq!((link.ended(), link.totals()), (Some(ending), (8, at, 8 - at)));
            assert_eq!((link.under_way(), link.next_arrival()), (0, None));
        }
    }

    #[test]
    fn a_reset_loses_what_is_under_way_and_an_eof_does_not() {
        let mut link = Link::new(Weather::CALM, Random::new(0));
        link.write(Instant::ZERO, b"abc");
        link.cut(0, Ending::Eof);
        assert_eq!((link.ended(), link.under_way()), (None, 3));
        link.cut(0, Ending::Reset);
        assert_eq!((link.ended(), link.under_way(), link.totals()), (Some(Ending::Reset), 0, (3, 0, 3)));
    }
}
