//! Calls whose handlers run on another reactor than this connection's.

use fulmar_base::Env;
use fulmar_grpc::{Body, CallKey, Status};

use super::{Call, ServerEndpoint, flush};
use crate::call::CallEnd;
use crate::host::Letter;
use crate::server::method::SECOND_MESSAGE;
use crate::server::{Order, PlacedCall, Stage};

impl ServerEndpoint {
    /// The request of a call that takes one, and whose handler runs on another reactor, which decodes it.
    pub(super) fn on_only_message(
        &mut self,
        env: &mut Env<'_>,
        key: CallKey,
        body: Body<'_>,
        was_compressed: bool,
    ) {
        let index = key.index();
        let Some(Some(Call { cell: Some(cell), .. })) = self.calls.get(index) else { return };
        let length = body.len();
        let mut state = cell.lock();
        if state.inbound.is_empty() {
            state.inbound.push(body, was_compressed, env.pool);
            drop(state);
            self.grpc.release(env, key, length);
        } else {
            drop(state);
            self.discard(env, key, body);
            self.fail(env, index, &Status::unimplemented(SECOND_MESSAGE));
        }
    }

    /// Sends a call to the reactor that runs its handler.
    pub(super) fn send_order(&mut self, index: usize) {
        let Some(Call { cell: Some(cell), span, .. }) = &mut self.calls[index] else { return };
        let mut state = cell.lock();
        let Some(order) = &mut state.order else { return };
        let Stage::Waiting(mailbox) = std::mem::take(&mut order.stage) else { return };
        order.span = std::mem::take(span);
        drop(state);
        // One whose reactor has ended comes back at once, as refused.
        mailbox.send(Letter::Place { server: self.server, call: PlacedCall::new(cell.clone()) });
    }

    /// Sends what a handler on another reactor has written, and its answer when that is there.
    pub(super) fn look_at_placed(&mut self, env: &mut Env<'_>, index: usize) {
        let Some(Call { key, cell: Some(cell), .. }) = &self.calls[index] else { return };
        let key = *key;
        // Before the messages are: they were all written before it came back.
        let order = cell.lock().take_returned_order();
        let waker = flush(cell, &mut self.grpc, env, key);
        let Some(mut order) = order else { return waker.map_or((), crate::wake) };
        if let Stage::Refused = order.stage {
            return self.place_here(index, order);
        }
        let answered = std::mem::take(&mut order.answer);
        let _ = self.grpc.finish(env, key, &answered.status, &answered.trailers);
        order.answer = answered;
        self.router.borrow_mut().give_order(order);
        self.end(env, index, CallEnd::Finished);
        drop(waker);
    }

    /// Has the reactor of the connection handle a call that another one has not taken before it ended.
    fn place_here(&mut self, index: usize, mut order: Box<Order>) {
        let Some(Call { cell: Some(cell), .. }) = &self.calls[index] else { return };
        order.stage = Stage::Sent;
        order.load = None;
        let here = self.router.borrow().placer.as_ref().map(|placer| placer.here().clone());
        let Some(here) = here else { return };
        cell.lock().order = Some(order);
        here.send(Letter::Place { server: self.server, call: PlacedCall::new(cell.clone()) });
    }
}
