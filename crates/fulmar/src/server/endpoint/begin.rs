//! How calls begin.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Context;

use fulmar_base::{Env, Input, Instant, TaskId};
use fulmar_grpc::{Body, CallKey, MethodId};

use super::{Call, ServerEndpoint};
use crate::call::{CallFate, CellShape, Side};
use crate::context::{CallContext, CallFacts};
use crate::handling::Handling;
use crate::packing::Packing;
use crate::payload::Incoming;
use crate::peer::Peer;
use crate::server::method::{Answer, Destination, Served, Whole};
use crate::server::placement::Chosen;
use crate::server::router::Router;
use crate::server::{Placer, Stage};
use crate::trace::{CallSpan, Polling};

impl ServerEndpoint {
    pub(super) fn on_begin(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'_>,
        key: CallKey,
        (method, deadline): (MethodId, Option<Instant>),
    ) {
        let index = key.index();
        self.make_place(index);
        if let Some(door) = &self.door {
            door.enter();
        }
        let mut router = self.router.borrow_mut();
        let kind = router.kind(method);
        let (fate, context) =
            meet(&mut self.grpc, &mut router, (&self.peer, env.now), (key, method, deadline));
        let span = CallSpan::of_handler(context.path(), self.peer.remote(), env.now);
        let chosen = router.placer.as_mut().and_then(Placer::choose);
        let mut call = Call {
            key,
            method,
            takes_one: kind.takes_one,
            slot: 0,
            unbegun: None,
            cell: None,
            fate,
            deadline,
            is_ready: false,
            is_placed: chosen.as_ref().is_some_and(|chosen| chosen.elsewhere.is_some()),
            _load: None,
            span,
        };
        if kind.is_unary
            && chosen.is_none()
            && let Some(message) = self.grpc.next_only_message(env, input, key)
        {
            drop(router);
            call.span.link().received(message.len());
            self.serve(env, call, context, Incoming::Lent(message));
            return;
        }
        if call.is_placed || kind.needs_cell {
            let cell = router.take_cell();
            let mut state = cell.lock();
            state.side = Side::Handler;
            state.shape = CellShape::EachMessage;
            state.set_window(self.stream_window_bytes);
            state.door = Some(self.wakers[index].clone());
            state.inbound.give_used(env.pool);
            state.room = self.grpc.may_send(key);
            state.link = call.span.link();
            state.encoding_in = context.encoding().cloned();
            state.packing =
                Packing::new(router.press.as_ref(), self.grpc.peer_accepts(key), self.grpc.choice(key));
            drop(state);
            call.cell = Some(cell);
        }
        match (chosen, &call.cell) {
            (Some(Chosen { elsewhere: Some(mailbox), load }), Some(cell)) => {
                let mut order = router.take_order(method);
                order.context = context;
                order.load = Some(load);
                order.stage = Stage::Waiting(mailbox);
                cell.lock().order = Some(order);
            }
            (None, None) if kind.is_unary && !kind.is_intercepted => call.unbegun = Some(context),
            (chosen, cell) => {
                call.slot = router.method(method).begin(context, cell.clone());
                call._load = chosen.map(|chosen| chosen.load);
            }
        }
        drop(router);
        let polls = kind.is_intercepted && !call.is_placed;
        self.calls[index] = Some(call);
        if !kind.takes_one {
            self.start(env, index);
        } else if polls {
            self.poll(env, index);
        }
    }

    /// The request of a call that has not begun, and there is no more to come.
    pub(super) fn on_request(
        &mut self,
        env: &mut Env<'_>,
        key: CallKey,
        body: Body<'_>,
        was_compressed: bool,
    ) {
        let Some(mut call) = self.calls[key.index()].take() else { return };
        let context = call.unbegun.take().unwrap_or_default();
        if was_compressed {
            context.note_compressed();
        }
        let is_over = self.serve(env, call, context, Incoming::new(&body));
        // On a stream that has ended nothing is credited, and nothing is held for a call that is over.
        if !is_over || matches!(body, Body::Block(_)) {
            self.discard(env, key, body);
        }
    }

    /// A call whose request is here as a whole: it is kept only if its handler waits. Whether it is over.
    fn serve(
        &mut self,
        env: &mut Env<'_>,
        mut call: Call,
        context: CallContext,
        message: Incoming<'_>,
    ) -> bool {
        let (key, index) = (call.key, call.key.index());
        let served = {
            let (_handling, _span) = (Handling::call(call.deadline), call.span.enter());
            let (mut router, polling) = (self.router.borrow_mut(), Polling::begin());
            let to = Destination::Engine { grpc: &mut self.grpc, env, call: key };
            let bytes_max = router.send_message_bytes_max();
            let mut answer = Answer { to, hooks: None, span: &call.span, bytes_max };
            let (method, arena) = router.method_and_arena(call.method);
            let whole = Whole { context, fate: &call.fate, body: message, arena };
            let served = method.serve(whole, &mut Context::from_waker(&self.wakers[index]), &mut answer);
            polling.end(router.path(call.method));
            served
        };
        match served {
            Served::Waits(slot) => {
                call.slot = slot;
                self.calls[index] = Some(call);
                false
            }
            Served::Ended(end) => {
                self.take_leave(call.fate, call.span, end);
                self.grpc.forget(env, key);
                true
            }
        }
    }

    /// Makes room for a call at this index.
    fn make_place(&mut self, index: usize) {
        if self.wakers.is_empty() {
            // As a slab of one call: most connections never have two at a time.
            self.wakers.reserve_exact(index + 1);
            self.calls.reserve_exact(index + 1);
        }
        while self.wakers.len() <= index {
            self.wakers.push(self.handle.waker(TaskId(self.wakers.len() as u64)));
            self.calls.push(None);
        }
    }
}

impl Call {
    /// Begins with its method, if it has not yet.
    pub(super) fn begin(&mut self, router: &RefCell<Router>) {
        if let Some(context) = self.unbegun.take() {
            self.slot = router.borrow_mut().method(self.method).begin(context, None);
        }
    }
}

/// What call it is.
fn meet(
    grpc: &mut fulmar_grpc::Server,
    router: &mut Router,
    (peer, now): (&Peer, Instant),
    (key, method, deadline): (CallKey, MethodId, Option<Instant>),
) -> (Arc<CallFate>, CallContext) {
    let mut fate = router.take_fate();
    let shared = grpc.share_metadata(key);
    let has_own_metadata = shared.is_none() && !grpc.metadata(key).is_empty();
    let facts = CallFacts {
        timeout: deadline.map(|deadline| deadline.saturating_duration_since(now)),
        deadline,
        peer: peer.clone(),
        encoding: grpc.encoding(key).cloned(),
        path: router.path(method).map_or_else(|| grpc.path(method).to_owned().into(), Cow::Borrowed),
        metadata: shared,
    };
    CallFate::set_facts(&mut fate, facts);
    let mut context = CallContext::handled(fate.clone());
    if has_own_metadata {
        let mut metadata = router.shelf.lease();
        grpc.take_metadata(key, metadata.get_mut());
        context.set_metadata(metadata);
    }
    (fate, context)
}
