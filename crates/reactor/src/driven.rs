//! A reactor as a part of another event loop: that of a tokio runtime.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::core::Root;
use crate::current::Entered;
use crate::mailbox::{Target, TaskWaker};
use crate::outside::Outside;
use crate::reactor::{EVENTS_MAX, Host, Reactor};

/// How many turns in a row a poll takes before the runtime's other tasks have theirs.
const TURNS_MAX: usize = 16;

/// Drives a [`Reactor`] from a task of a tokio runtime, which waits for the reactor's selector, its earliest timer and its mail.
///
/// Each `poll_…` does all there is to do, without waiting, and has the task woken when there is more. Letters from tasks of the
/// same runtime wake the task alone: they cost no system call. Timers are tokio's, and as late as those: up to a millisecond.
///
/// Polls of one driver always concern the one reactor that it was made for.
pub struct Driver {
    outside: Outside,
    root: Waker,
    is_stopping: bool,
}

impl Driver {
    /// A driver for this reactor. To be called inside the runtime whose tasks will poll it.
    ///
    /// # Errors
    /// There is no tokio runtime here, or the system is not a Unix.
    ///
    /// # Panics
    /// If the runtime was built without I/O or without time (`enable_all` has both).
    pub fn new<H: Host>(reactor: &Reactor<H>) -> io::Result<Self> {
        let root = TaskWaker::waker(Target::Root, reactor.core.inbox.post());
        Ok(Self { outside: Outside::new(&reactor.core.poll)?, root, is_stopping: false })
    }

    /// As [`Reactor::run`]: ready when the reactor was stopped, and has taken leave of its peers.
    ///
    /// # Errors
    /// The selector fails, or the runtime shuts down.
    pub fn poll_run<H: Host>(
        &mut self,
        reactor: &mut Reactor<H>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_turns(reactor, context, |driver, reactor| {
            if std::mem::take(&mut reactor.core.stopping) {
                driver.is_stopping = true;
                reactor.close_all();
            }
            (driver.is_stopping && reactor.core.lingering() == 0).then_some(())
        })
    }

    /// As [`Reactor::block_on`], without blocking: ready when `future` is. It is polled when it is woken, and once by the first
    /// poll after [`begin`](Self::begin).
    ///
    /// # Errors
    /// The selector fails, or the runtime shuts down.
    pub fn poll_until<H: Host, F: Future>(
        &mut self,
        reactor: &mut Reactor<H>,
        mut future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<F::Output>> {
        let root = self.root.clone();
        self.poll_turns(reactor, context, |_, reactor| {
            reactor.poll_root(future.as_mut(), &mut Context::from_waker(&root))
        })
    }

    /// Another future is going to be driven.
    pub fn begin<H: Host>(&mut self, reactor: &mut Reactor<H>) {
        reactor.core.root = Root::Woken;
    }

    /// The future that was driven is not polled any more, ready or not.
    pub fn finish<H: Host>(&mut self, reactor: &mut Reactor<H>) {
        reactor.core.root = Root::Absent;
    }

    /// Takes turns until `look`, which is asked before each, has an answer, or there is nothing to do.
    fn poll_turns<H: Host, R>(
        &mut self,
        reactor: &mut Reactor<H>,
        context: &mut Context<'_>,
        mut look: impl FnMut(&mut Self, &mut Reactor<H>) -> Option<R>,
    ) -> Poll<io::Result<R>> {
        let _entered = Entered::new(reactor.core.id);
        reactor.core.inbox.unpark();
        for _ in 0..TURNS_MAX {
            if let Some(result) = look(self, reactor) {
                return Poll::Ready(Ok(result));
            }
            reactor.core.bench.tick();
            let worked = reactor.work();
            let served = self.serve(reactor, context)?;
            if worked || served || reactor.has_work() {
                continue;
            }
            if self.outside.poll_timer(reactor.core.timers.next(), context).is_ready() {
                continue;
            }
            if reactor.core.inbox.park_for(Some(context.waker())) {
                if cfg!(debug_assertions) {
                    reactor.core.check_at_rest();
                }
                return Poll::Pending;
            }
        }
        // There is more, and others wait as well.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Serves the sockets, if the runtime has heard from the selector or some are to be served again; `true` if there were any.
    fn serve<H: Host>(&mut self, reactor: &mut Reactor<H>, context: &mut Context<'_>) -> io::Result<bool> {
        let told = self.outside.poll_sockets(context, || {
            reactor.look_outside(Some(Duration::ZERO))?;
            Ok(reactor.events.iter().count() < EVENTS_MAX)
        })?;
        if told.is_ready() {
            return Ok(true);
        }
        let some_again = reactor.core.has_greedy();
        if some_again {
            reactor.look_outside(Some(Duration::ZERO))?;
        }
        Ok(some_again)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("is_stopping", &self.is_stopping).finish_non_exhaustive()
    }
}
