//! A call on its way to a connection.

use std::collections::VecDeque;
use std::sync::Arc;

use fulmar_grpc::Status;
use fulmar_reactor::{ConnectionKey, Mailbox};

use crate::call::CallCell;
use crate::host::Letter;

/// A call that no connection has yet. Whatever happens to it, its caller hears: one that is dropped ends `UNAVAILABLE`.
#[derive(Debug)]
pub(crate) struct PendingCall {
    cell: Option<Arc<CallCell>>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Call,
    /// No call at all: its end tells that the connection is ready.
    Probe,
    /// A call that its interceptors hold: all that can happen to it here is that its deadline passes.
    Held,
}

impl PendingCall {
    pub(crate) fn call(cell: Arc<CallCell>) -> Self {
        Self { cell: Some(cell), kind: Kind::Call }
    }

    pub(crate) fn held(cell: Arc<CallCell>) -> Self {
        Self { cell: Some(cell), kind: Kind::Held }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.kind == Kind::Held
    }

    /// Whether it is a call, of which nothing has begun.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind == Kind::Call
    }

    pub(crate) fn probe(cell: Arc<CallCell>) -> Self {
        Self { cell: Some(cell), kind: Kind::Probe }
    }

    pub(crate) fn is_probe(&self) -> bool {
        self.kind == Kind::Probe
    }

    /// Whether the call fails where no connection can be had, instead of waiting for one.
    pub(crate) fn fails_fast(&self) -> bool {
        self.kind == Kind::Call && !self.cell().lock().waits_for_ready
    }

    pub(crate) fn cell(&self) -> &Arc<CallCell> {
        self.cell.as_ref().expect("only `take` and `end` empty it, and both consume it")
    }

    /// The cell, for who now looks after the call.
    #[inline]
    pub(crate) fn take(mut self) -> Arc<CallCell> {
        self.cell.take().expect("only `take` and `end` empty it, and both consume it")
    }

    /// Ends the call without it ever having been sent.
    pub(crate) fn end(mut self, status: Status) {
        self.end_once(status);
    }

    #[cold]
    fn end_once(&mut self, status: Status) {
        let Some(cell) = self.cell.take() else { return };
        let ended = cell.lock().end(status);
        drop(cell);
        ended.tell();
    }
}

impl Drop for PendingCall {
    #[inline]
    fn drop(&mut self) {
        if self.cell.is_some() {
            self.end_once(Status::unavailable("the reactor of this channel has ended"));
        }
    }
}

/// Where a connection puts calls that it could not have processed, so that another connection can.
pub(crate) enum Return {
    /// To the reactor's host, which has or makes another connection.
    ByLetter(Mailbox<Letter>),
    /// Kept for the caller that drives the connection itself.
    Kept(VecDeque<PendingCall>),
}

impl Return {
    pub(crate) fn give_back(&mut self, channel: u64, pending: PendingCall) {
        match self {
            Self::ByLetter(mailbox) => mailbox.send(Letter::Restart { channel, pending }),
            Self::Kept(calls) => calls.push_back(pending),
        }
    }

    /// Tells the host that the server has sent its SETTINGS.
    pub(crate) fn tell_ready(&self, channel: u64, connection: Option<ConnectionKey>) {
        if let (Self::ByLetter(mailbox), Some(connection)) = (self, connection) {
            mailbox.send(Letter::Ready { channel, connection });
        }
    }

    /// Tells the host that the connection takes no more calls. `carried`: it had some.
    pub(crate) fn tell_retiring(&self, channel: u64, connection: Option<ConnectionKey>, carried: bool) {
        if let (Self::ByLetter(mailbox), Some(connection)) = (self, connection) {
            mailbox.send(Letter::Retiring { channel, connection, carried });
        }
    }
}
