//! What few requests and responses have, behind one pointer: they are moved about more often than they are asked.

use std::cell::RefCell;
use std::fmt;
use std::thread::LocalKey;

/// How many boxes of one type wait on one thread for the next ones: more than it mostly has calls with such at a time.
const SPARE_MAX: usize = 256;

/// Boxes that wait for use.
pub(crate) type Spare<T> = LocalKey<RefCell<Vec<Box<T>>>>;

/// What can be in a [`Rare`].
pub(crate) trait Seldom: Default + 'static {
    /// What is read of a thing that nobody has written to.
    fn nothing() -> &'static Self;

    /// Where boxes of this thread wait.
    fn spare() -> &'static Spare<Self>;
}

/// A `T` that is made when it is first written to. Its box is used again by the next one of the thread, so that none is made in steady
/// state.
pub(crate) struct Rare<T: Seldom>(Option<Box<T>>);

impl<T: Seldom> Rare<T> {
    /// One that nobody has written to.
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::nothing())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(take_spare)
    }

    /// What was written, if anything was.
    #[inline]
    pub(crate) fn written_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

#[inline(never)]
fn take_spare<T: Seldom>() -> Box<T> {
    T::spare().try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps a box for the next one that is written to on this thread.
#[inline(never)]
fn keep_spare<T: Seldom>(mut thing: Box<T>) {
    // Dropped before the list is borrowed: some of it is the user's, who may make and drop others meanwhile.
    *thing = T::default();
    // A thread that is ending keeps nothing.
    let _ = T::spare().try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(thing);
        }
    });
}

impl<T: Seldom> Drop for Rare<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(thing) = self.0.take() {
            keep_spare(thing);
        }
    }
}

impl<T: Seldom> Default for Rare<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T: Seldom + Clone> Clone for Rare<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Seldom + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Number(u32);

    static ZERO: Number = Number(0);

    thread_local! {
        #[expect(clippy::vec_box)]
        static SPARE: RefCell<Vec<Box<Number>>> = const { RefCell::new(Vec::new()) };
    }

    impl Seldom for Number {
        fn nothing() -> &'static Self {
            &ZERO
        }

        fn spare() -> &'static Spare<Self> {
            &SPARE
        }
    }

    #[test]
    fn a_box_comes_back_empty_and_none_is_made_to_read() {
        let mut number = Rare::<Number>::NONE;
        assert_eq!(number.get().0, 0);
        assert!(number.written_mut().is_none());
        number.get_mut().0 = 7;
        let address: *const Number = number.get();
        drop(number);
        let mut number = Rare::<Number>::NONE;
        assert_eq!(number.get_mut().0, 0);
        assert_eq!(number.get() as *const Number, address);
    }

    #[test]
    fn what_waits_on_a_thread_is_bounded() {
        let written = |n| {
            let mut number = Rare::<Number>::NONE;
            number.get_mut().0 = n;
            number
        };
        let numbers: Vec<_> = (0..2 * SPARE_MAX as u32).map(written).collect();
        drop(numbers);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }
}
