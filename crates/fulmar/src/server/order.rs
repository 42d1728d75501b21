//! A call on its way to the reactor that runs its handler, and its answer on the way back.

use std::sync::Arc;

use fulmar_grpc::{MetadataMap, MethodId, Status};
use fulmar_reactor::Mailbox;

use super::placement::Load;
use crate::call::CallCell;
use crate::context::CallContext;
use crate::host::Letter;
use crate::trace::CallSpan;

/// What a reactor has to know to run a handler for another one. It travels in the cell of the call, there and, with the answer, back,
/// and is then used for other calls of the connection's reactor.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) context: CallContext,
    pub(crate) method: MethodId,
    pub(crate) span: CallSpan,
    /// None once it has come back.
    pub(crate) load: Option<Load>,
    pub(crate) stage: Stage,
    pub(crate) answer: Answered,
}

/// How far an order is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Waits at the connection for the call's request, for this reactor.
    Waiting(Mailbox<Letter>),
    /// Sent, or being worked on.
    #[default]
    Sent,
    /// The reactor has ended before it took the order.
    Refused,
    /// The answer is there.
    Answered,
}

/// How a handler ended.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    pub(crate) trailers: MetadataMap,
}

impl Order {
    pub(crate) fn new(method: MethodId) -> Self {
        Self {
            context: CallContext::default(),
            method,
            span: CallSpan::default(),
            load: None,
            stage: Stage::Sent,
            answer: Answered::default(),
        }
    }

    /// Makes it ready for another call.
    pub(crate) fn reset(&mut self) {
        self.context = CallContext::default();
        self.span = CallSpan::default();
        self.load = None;
        self.stage = Stage::Sent;
        self.answer.status = Status::default();
        self.answer.trailers.clear();
    }
}

/// A call whose order is in its cell, in a mailbox. One that is dropped there says so to its connection, which finds another reactor.
#[derive(Debug)]
pub(crate) struct PlacedCall {
    cell: Option<Arc<CallCell>>,
}

impl PlacedCall {
    pub(crate) fn new(cell: Arc<CallCell>) -> Self {
        Self { cell: Some(cell) }
    }

    /// The call and its order. None when the call has ended meanwhile.
    pub(crate) fn accept(mut self) -> Option<(Arc<CallCell>, Box<Order>)> {
        let cell = self.cell.take()?;
        let order = cell.lock().order.take()?;
        let has_ended = order.context.fate().is_some_and(|fate| fate.end().is_some());
        (!has_ended).then_some((cell, order))
    }
}

impl Drop for PlacedCall {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.refuse_order();
        }
    }
}
