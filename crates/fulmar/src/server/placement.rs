//! Which reactor runs the handler of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulmar_reactor::Mailbox;

use super::{Seat, ServerShared};
use crate::host::Letter;

/// Where the handlers of a server's calls run: [`ServerBuilder::placement`](crate::ServerBuilder::placement).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// On the reactor of the connection that the call came over, as soon as the call is read. Nothing is handed from thread to
    /// thread, which is fastest where handlers take little time. The calls of one connection share one core.
    #[default]
    Connection,
    /// On the reactor of the server that handles the fewest calls at that moment, in turn where several do. The calls of one
    /// connection then use as many cores as the server has reactors; handing a call over, and its answer back, costs two wake-ups of
    /// threads at worst. For few connections with calls that compute.
    Spread,
}

/// Chooses reactors for the calls that arrive at one of them.
pub(crate) struct Placer {
    shared: Arc<ServerShared>,
    here: Mailbox<Letter>,
    seats: Vec<Seat>,
    /// Of the seats, as the server counts it.
    version: usize,
    next: usize,
}

/// Where a call goes.
pub(crate) struct Chosen {
    /// None for the reactor that the call arrived at.
    pub(crate) elsewhere: Option<Mailbox<Letter>>,
    pub(crate) load: Load,
}

/// One call of those that a reactor handles, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Load(Arc<AtomicUsize>);

impl Load {
    fn on(calls: &Arc<AtomicUsize>) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls.clone())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Placer {
    pub(crate) fn new(shared: Arc<ServerShared>, here: Mailbox<Letter>) -> Self {
        Self { shared, here, seats: Vec::new(), version: 0, next: 0 }
    }

    /// The reactor that calls arrive at.
    pub(crate) fn here(&self) -> &Mailbox<Letter> {
        &self.here
    }

    /// The reactor with the fewest calls, and among several the one after that of the last choice. None when the server has ended.
    pub(crate) fn choose(&mut self) -> Option<Chosen> {
        self.shared.update_seats(&mut self.seats, &mut self.version);
        let count = self.seats.len();
        let calls = |index: usize| self.seats[index % count].calls.load(Ordering::Relaxed);
        let index = (self.next..self.next + count).min_by_key(|index| calls(*index))? % count;
        self.next = (index + 1) % count;
        let seat = &self.seats[index];
        let is_here = seat.mailbox.reactor() == self.here.reactor();
        Some(Chosen { elsewhere: (!is_here).then(|| seat.mailbox.clone()), load: Load::on(&seat.calls) })
    }
}
