use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mailbox::TaskWaker;

/// Tells the reactors of a process apart.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReactorId(u64);

impl ReactorId {
    /// A number that no other reactor of the process has; they are counted from 1.
    pub fn number(self) -> u64 {
        self.0
    }

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

    /// Wake-ups that this thread has for the reactor that it is inside of. They need neither the lock of its mailbox nor a look
    /// whether it sleeps.
    static WOKEN: RefCell<Vec<Arc<TaskWaker>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a wake-up for the reactor that this thread is inside of. Gives back one for another reactor.
#[inline]
pub(crate) fn keep_woken(waker: Arc<TaskWaker>) -> Result<(), Arc<TaskWaker>> {
    if CURRENT.try_with(Cell::get).ok().flatten() != Some(waker.reactor()) {
        return Err(waker);
    }
    let mut waker = Some(waker);
    // A thread that is going away keeps nothing.
    let _ = WOKEN.try_with(|woken| woken.borrow_mut().extend(waker.take()));
    waker.map_or(Ok(()), Err)
}

/// Whether there are wake-ups for the reactor that this thread is inside of.
pub(crate) fn has_woken() -> bool {
    WOKEN.with_borrow(|woken| !woken.is_empty())
}

/// Takes the wake-ups out for the reactor that this thread is inside of, into `woken`, which must be empty and whose memory serves
/// the next ones.
pub(crate) fn swap_woken(woken: &mut Vec<Arc<TaskWaker>>) {
    WOKEN.with_borrow_mut(|kept| std::mem::swap(kept, woken));
}

/// While it lives, this thread is inside of a reactor.
pub(crate) struct Entered {
    outer: Option<ReactorId>,
    /// The wake-ups of the outer one.
    outer_woken: Vec<Arc<TaskWaker>>,
}

impl Entered {
    pub(crate) fn new(reactor: ReactorId) -> Self {
        let outer = CURRENT.with(|current| current.replace(Some(reactor)));
        let outer_woken = match outer {
            Some(_) => WOKEN.try_with(RefCell::take).unwrap_or_default(),
            None => Vec::new(),
        };
        Self { outer, outer_woken }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A thread that is going away has no current reactor any more, which is what is wanted.
        let _ = CURRENT.try_with(|current| current.set(self.outer));
        let Ok(mut woken) = WOKEN.try_with(RefCell::take) else { return };
        // The reactor finds the others in its mailbox when it runs again.
        woken.drain(..).for_each(TaskWaker::post);
        let kept = if self.outer.is_some() { std::mem::take(&mut self.outer_woken) } else { woken };
        let _ = WOKEN.try_with(|woken| woken.replace(kept));
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
