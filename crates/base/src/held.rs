use std::fmt;

/// One class for nothing, and one for each power of two.
const CLASSES: usize = usize::BITS as usize + 1;

/// What one connection holds of what its peer has sent: its part of what the [`Pool`](crate::Pool) of its thread counts as
/// [held](crate::Pool::hold). Whoever drops it first lets go of all of it.
#[derive(Debug, Default)]
pub struct Holding {
    bytes: usize,
}

impl Holding {
    /// How many bytes are held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which power of two it has reached; 0 for nothing.
    const fn class(&self) -> usize {
        (usize::BITS - self.bytes.leading_zeros()) as usize
    }
}

/// What all connections of a thread hold. How many of them have reached which power of two is all that is known of them: enough to
/// tell the greediest ones without a list of connections.
pub(crate) struct Held {
    bytes: usize,
    holders: [u32; CLASSES],
}

impl Held {
    pub(crate) const NOTHING: Self = Self { bytes: 0, holders: [0; CLASSES] };

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    #[inline]
    pub(crate) fn subtract(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "no more is taken than was held");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    #[inline]
    pub(crate) fn add_to(&mut self, holding: &mut Holding, bytes: usize) {
        self.add(bytes);
        self.change(holding, holding.bytes.saturating_add(bytes));
    }

    #[inline]
    pub(crate) fn subtract_from(&mut self, holding: &mut Holding, bytes: usize) {
        self.subtract(bytes);
        self.change(holding, holding.bytes.saturating_sub(bytes));
    }

    /// Whether no other connection has reached a higher power of two.
    pub(crate) fn is_among_the_greediest(&self, holding: &Holding) -> bool {
        let greediest = self.holders.iter().rposition(|&holders| holders > 0);
        holding.bytes > 0 && greediest.is_none_or(|class| class <= holding.class())
    }

    #[inline]
    fn change(&mut self, holding: &mut Holding, bytes: usize) {
        let before = holding.class();
        holding.bytes = bytes;
        let after = holding.class();
        if before == after {
            return;
        }
        if before > 0 {
            self.holders[before] = self.holders[before].saturating_sub(1);
        }
        if after > 0 {
            self.holders[after] = self.holders[after].saturating_add(1);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greediest_have_at_least_half_of_what_the_greediest_one_has() {
        let mut held = Held::NOTHING;
        let mut holdings: Vec<_> = (0..5).map(|_| Holding::default()).collect();
        for (holding, bytes) in holdings.iter_mut().zip([0, 1, 60_000, 70_000, 131_071]) {
            held.add_to(holding, bytes);
        }
        let greedy = |held: &Held, holdings: &[Holding]| -> Vec<_> {
            holdings.iter().map(|holding| held.is_among_the_greediest(holding)).collect()
        };
        assert_eq!(greedy(&held, &holdings), [false, false, false, true, true]);
        assert_eq!(held.bytes(), 1 + 60_000 + 70_000 + 131_071);
        held.add_to(&mut holdings[4], 1);
        assert_eq!(greedy(&held, &holdings), [false, false, false, false, true]);
        held.subtract_from(&mut holdings[4], 131_072);
        assert_eq!(greedy(&held, &holdings), [false, false, false, true, false]);
        held.subtract_from(&mut holdings[3], 70_000);
        held.subtract_from(&mut holdings[2], 60_000);
        assert_eq!(greedy(&held, &holdings), [false, true, false, false, false]);
        held.subtract_from(&mut holdings[1], 1);
        assert_eq!(greedy(&held, &holdings), [false; 5]);
        assert_eq!((held.bytes(), held.holders.iter().sum::<u32>()), (0, 0));
    }

    #[test]
    fn what_nobody_has_on_his_account_makes_nobody_greedy() {
        let mut held = Held::NOTHING;
        held.add(1_000_000);
        let mut holding = Holding::default();
        assert!(!held.is_among_the_greediest(&holding));
        held.add_to(&mut holding, 1);
        assert!(held.is_among_the_greediest(&holding), "of those who have an account");
        held.subtract(1_000_000);
        assert_eq!(held.bytes(), 1);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut held = Held::NOTHING;
        let mut holding = Holding::default();
        held.add_to(&mut holding, usize::MAX);
        held.add_to(&mut holding, usize::MAX);
        assert_eq!((held.bytes(), holding.bytes()), (usize::MAX, usize::MAX));
        held.subtract_from(&mut holding, usize::MAX);
        assert_eq!((held.bytes(), holding.bytes()), (0, 0));
    }
}
