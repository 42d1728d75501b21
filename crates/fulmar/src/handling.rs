//! The deadline of the call that this thread handles: calls that its handler makes inherit it.
//!
//! Like the reactor that a thread runs, it is known to the thread and not handed on, since a handler calls its clients through code
//! that knows nothing of either.

use std::cell::Cell;

use fulmar_base::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it lives, this thread runs code of a handler; or, with [`nothing`](Self::nothing), code of nobody's.
pub(crate) struct Handling {
    outer: Option<Instant>,
}

impl Handling {
    /// Code of a call that has, or has not, a deadline.
    pub(crate) fn call(deadline: Option<Instant>) -> Self {
        Self { outer: DEADLINE.replace(deadline) }
    }

    /// Code that belongs to no call, such as a foreign executor's.
    pub(crate) fn nothing() -> Self {
        Self::call(None)
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        // A thread that is going away handles no call any more, which is what is wanted.
        let _ = DEADLINE.try_with(|deadline| deadline.set(self.outer));
    }
}

/// The deadline of the call in whose handler this thread is.
pub(crate) fn inherited_deadline() -> Option<Instant> {
    DEADLINE.try_with(Cell::get).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_polled_inside_of_a_handler_inherits_and_what_is_woken_does_not() {
        assert_eq!(inherited_deadline(), None);
        let deadline = Some(Instant::from_nanos(7));
        let handling = Handling::call(deadline);
        assert_eq!(inherited_deadline(), deadline);
        {
            let _nothing = Handling::nothing();
            assert_eq!(inherited_deadline(), None);
        }
        assert_eq!(inherited_deadline(), deadline);
        drop(handling);
        assert_eq!(inherited_deadline(), None);
    }
}
