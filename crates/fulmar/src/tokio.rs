//! Reactors that a tokio runtime drives.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use fulmar_reactor::{Driver, Mailbox, Reactor, ReactorConfig};

use crate::host::{Letter, RoofHost, RoofReactor, Running};

/// The future of a [`ClientReactor`](crate::ClientReactor) that a tokio runtime drives:
/// [`ClientReactor::on_tokio`](crate::ClientReactor::on_tokio) makes it and says how to run it.
///
/// It is ready when the last handle of its reactor is dropped, and an error when the operating system's event queue fails or the
/// runtime shuts down. Dropping it ends all calls of the reactor with `UNAVAILABLE`.
#[must_use = "nothing moves on the reactor unless this future is polled"]
pub struct TokioDriver {
    // Waits for what the reactor owns: goes first.
    driver: Driver,
    reactor: RoofReactor,
}

impl TokioDriver {
    pub(crate) fn new() -> io::Result<Self> {
        let reactor = Reactor::new(ReactorConfig::default(), |core| RoofHost::new(core))?;
        Ok(Self { driver: Driver::new(&reactor)?, reactor })
    }

    pub(crate) fn mailbox(&self) -> Mailbox<Letter> {
        self.reactor.mailbox()
    }
}

impl Future for TokioDriver {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { driver, reactor } = self.get_mut();
        let _running = Running::enter(reactor.mailbox());
        driver.poll_run(reactor, context)
    }
}

impl fmt::Debug for TokioDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioDriver").field("reactor", &self.reactor).finish_non_exhaustive()
    }
}

/// Runs a future and everything on the reactor, inside of a task of tokio's, until the future is ready.
pub(crate) async fn run_until<F: Future>(reactor: &mut RoofReactor, future: F) -> io::Result<F::Output> {
    let mut driven = Driven::begin(reactor)?;
    let mut future = pin!(future);
    poll_fn(|context| driven.poll(future.as_mut(), context)).await
}

/// A reactor while it is driven on behalf of a future.
struct Driven<'r> {
    driver: Driver,
    reactor: &'r mut RoofReactor,
}

impl<'r> Driven<'r> {
    fn begin(reactor: &'r mut RoofReactor) -> io::Result<Self> {
        let mut driver = Driver::new(reactor)?;
        driver.begin(reactor);
        Ok(Self { driver, reactor })
    }

    fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<F::Output>> {
        let _running = Running::enter(self.reactor.mailbox());
        self.driver.poll_until(self.reactor, future, context)
    }
}

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        self.driver.finish(self.reactor);
    }
}
