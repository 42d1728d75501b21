use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the reactors of a process apart.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReactorId(u64);

impl ReactorId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether this thread is inside of a reactor: in a handler, a transport, a host, or a local task.
///
/// What waits for I/O by blocking the thread must not do it here: nothing else of that reactor would move meanwhile, perhaps not
/// even what is waited for.
pub fn on_reactor_thread() -> bool {
    current_reactor().is_some()
}

/// The reactor this thread is inside of; of several, one inside the other, the innermost.
pub fn current_reactor() -> Option<ReactorId> {
    CURRENT.with(Cell::get)
}

thread_local! {
    static CURRENT: Cell<Option<ReactorId>> = const { Cell::new(None) };
}

/// While it lives, this thread is inside of a reactor.
pub(crate) struct Entered {
    outer: Option<ReactorId>,
}

impl Entered {
    pub(crate) fn new(reactor: ReactorId) -> Self {
        Self { outer: CURRENT.with(|current| current.replace(Some(reactor))) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread that is going away has no current reactor any more, which is what is wanted.
        let _ = CURRENT.try_with(|current| current.set(self.outer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_an_inner_reactor_returns_to_the_outer_one() {
        assert!(!on_reactor_thread());
        let (outer, inner) = (ReactorId::next(), ReactorId::next());
        let entered_outer = Entered::new(outer);
        {
            let _entered_inner = Entered::new(inner);
            assert_eq!(current_reactor(), Some(inner));
        }
        assert_eq!(current_reactor(), Some(outer));
        drop(entered_outer);
        assert!(!on_reactor_thread());
    }
}
