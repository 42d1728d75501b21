use std::ops::RangeInclusive;
use std::time::Duration;

/// A seeded generator: the only source of chance in a world, so that a seed is a world.
///
/// SplitMix64 (Steele, Lea, Flood 2014): every seed is a good one, and a generator can be split off for each part of a world, so
/// that what one part draws does not move what another gets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for the part called `part`, the same however much was drawn of this one.
    pub fn part(seed: u64, part: u64) -> Self {
        let mut random = Self::new(seed ^ part.wrapping_mul(0xD134_2543_DE82_EF95));
        random.bits();
        random
    }

    /// 64 bits of chance.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `range`.
    pub fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let (low, high) = range.into_inner();
        let span = (high.saturating_sub(low) as u64).saturating_add(1);
        low + (self.bits() % span) as usize
    }

    /// A number of at most `max`, where each order of magnitude is as likely as the next: many small ones, a few large ones.
    pub fn magnitude(&mut self, max: usize) -> usize {
        let bits = self.within(0..=(usize::BITS - max.leading_zeros()) as usize);
        let low = if bits == 0 { 0 } else { 1 << (bits - 1) };
        self.within(low..=(low * 2).saturating_sub(1).clamp(low, max.max(low))).min(max)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.within(1..=n.max(1)) == 1
    }

    /// A time of at most `max`.
    pub fn time(&mut self, max: Duration) -> Duration {
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.bits() % nanos.saturating_add(1).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let drawn: Vec<_> = (0..1000).map(|_| random.within(3..=7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        let drawn: Vec<_> = (0..5000).map(|_| random.magnitude(100)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&100)));
        assert!((0..1000).all(|_| random.time(Duration::from_nanos(9)) <= Duration::from_nanos(9)));
        assert_eq!(random.within(4..=4), 4);
    }

    #[test]
    fn a_part_draws_the_same_whatever_others_draw() {
        let mut one = Random::part(9, 2);
        let mut other = Random::part(9, 2);
        assert_eq!(one.bits(), other.bits());
        assert_ne!(Random::part(9, 3).bits(), Random::part(9, 2).bits());
    }
}
