//! The server end of a connection: begins calls, polls their handlers, and writes what they answer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use fulmar_base::{Closed, Endpoint, Env, Input, Instant, TaskId};
use fulmar_grpc::{Body, CallKey, Config, Ending, Event, MetadataMap, MethodId, Routes, Status};
use fulmar_reactor::ConnectionHandle;

use super::Door;
use super::method::{Answer, Destination};
use super::placement::Load;
use super::router::Router;
use crate::call::{CallCell, CallEnd, CallFate};
use crate::context::CallContext;
use crate::counts::Counts;
use crate::handling::Handling;
use crate::payload::Incoming;
use crate::peer::Peer;
use crate::random;
use crate::trace::{CallSpan, Link, Polling};

mod begin;
mod placed;
mod resting;

pub(crate) use resting::ServerKin;

/// A server's end of one connection.
pub(crate) struct ServerEndpoint {
    grpc: fulmar_grpc::Server,
    router: Rc<RefCell<Router>>,
    /// By [`CallKey::index`].
    calls: Vec<Option<Call>>,
    /// The waker of each index's handler, made when the index is first used. Of both there are as many as there ever were calls at
    /// one time, which the limit on concurrent streams bounds.
    wakers: Vec<Waker>,
    /// Calls whose handlers something has happened for while input was read, in that order.
    ready: VecDeque<usize>,
    stream_window_bytes: u32,
    handle: ConnectionHandle,
    peer: Peer,
    server: u64,
    door: Option<Arc<Door>>,
    draining: bool,
    /// Why the connection is over, once it is.
    closed: Option<Closed>,
}

struct Call {
    key: CallKey,
    method: MethodId,
    /// It takes one message, and starts when that is there.
    takes_one: bool,
    slot: u32,
    /// Of a call that its method does not know yet, so that it has no slot either: its request is awaited.
    unbegun: Option<CallContext>,
    cell: Option<Arc<CallCell>>,
    fate: Arc<CallFate>,
    deadline: Option<Instant>,
    /// It is in `ready`.
    is_ready: bool,
    /// Its handler runs on another reactor, and `slot` means nothing.
    is_placed: bool,
    /// Of a server that spreads its calls.
    _load: Option<Load>,
    span: CallSpan,
}

/// What a server's connection can be told.
pub(crate) enum Command {
    /// Take no more calls, and close when the last one has ended.
    Drain,
}

impl ServerEndpoint {
    /// `server` is the number under which the reactor knows the server; `peer` knows nothing in-process.
    pub(crate) fn new(
        config: Config,
        routes: Arc<Routes>,
        router: Rc<RefCell<Router>>,
        handle: ConnectionHandle,
        peer: Peer,
        server: u64,
    ) -> Self {
        let stream_window_bytes = config.http2.stream_window_bytes;
        let mut grpc = fulmar_grpc::Server::new(config, routes);
        grpc.set_age_permille(age_permille());
        Self {
            stream_window_bytes,
            grpc,
            router,
            calls: Vec::new(),
            wakers: Vec::new(),
            ready: VecDeque::new(),
            handle,
            peer,
            server,
            door: None,
            draining: false,
            closed: None,
        }
    }

    /// The same end, of a server that asks before it lets requests in.
    pub(crate) fn behind(mut self, door: Option<Arc<Door>>) -> Self {
        if let Some(door) = &door {
            let (door, peer) = (door.clone(), self.peer.clone());
            self.grpc.set_admit(Box::new(move |request| door.ask(request, &peer)));
        }
        self.door = door;
        self
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            streams: self.grpc.streams(),
            handlers: self.calls.iter().flatten().count(),
            deadlines: self.grpc.deadlines(),
            ..Counts::default()
        }
    }

    #[cfg(test)]
    pub(crate) fn calls(&self) -> usize {
        self.calls.iter().flatten().count()
    }

    fn drain(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        while let Some(event) = self.grpc.next_event(env, input)? {
            match event {
                Event::Begin { call, method, deadline } => {
                    self.on_begin(env, input, call, (method, deadline));
                }
                Event::Message { call, body } => self.on_message(env, input, call, body),
                Event::HalfClosed { call } => self.on_half_closed(env, call),
                Event::Finished { call } => self.on_finished(env, call),
                Event::Writable { call } => self.on_writable(call),
                // Only a client's end hears these.
                Event::Headers { .. } | Event::Capacity | Event::GoingAway | Event::Ready => {}
            }
        }
        self.poll_ready(env);
        Ok(())
    }

    fn on_message(&mut self, env: &mut Env<'_>, input: &Input<'_>, key: CallKey, body: Body<'_>) {
        let Some(Some(call)) = self.calls.get_mut(key.index()) else {
            return self.discard(env, key, body);
        };
        let was_compressed = self.grpc.was_compressed(key);
        call.span.link().received(body.len());
        if call.takes_one && call.is_placed {
            return self.on_only_message(env, key, body, was_compressed);
        }
        if call.unbegun.is_some() && self.grpc.take_half_closed(env, input, key) {
            return self.on_request(env, key, body, was_compressed);
        }
        if call.takes_one {
            call.begin(&self.router);
            let mut router = self.router.borrow_mut();
            let (method, arena) = router.method_and_arena(call.method);
            let taken = method.on_message(call.slot, Incoming::new(&body), was_compressed, arena);
            drop(router);
            self.discard(env, key, body);
            if let Err(status) = taken {
                self.fail(env, key.index(), &status);
            }
            return;
        }
        let Some(cell) = &call.cell else { return };
        let mut state = cell.lock();
        if state.inbound_discarded {
            drop(state);
            return self.discard(env, key, body);
        }
        // The span of a placed call is where its handler is.
        let link = if call.is_placed { state.link.clone() } else { Link::default() };
        let length = body.len();
        state.inbound.push(body, was_compressed, env.pool);
        let waker = state.receive_waker.take();
        drop(state);
        link.received(length);
        self.wake(key.index(), waker);
    }

    fn on_half_closed(&mut self, env: &mut Env<'_>, key: CallKey) {
        let Some(Some(call)) = self.calls.get(key.index()) else { return };
        if call.takes_one {
            return self.start(env, key.index());
        }
        let Some(cell) = &call.cell else { return };
        let mut state = cell.lock();
        state.inbound_ended = true;
        let waker = state.receive_waker.take();
        drop(state);
        self.wake(key.index(), waker);
    }

    /// The call was ended from outside, or is over after the handler's end.
    fn on_finished(&mut self, env: &mut Env<'_>, key: CallKey) {
        if self.calls.get(key.index()).is_some_and(|call| call.as_ref().is_some_and(|call| call.key == key)) {
            let end = CallEnd::new(self.grpc.ending(), self.closed.as_ref());
            self.end(env, key.index(), end);
        }
    }

    fn on_writable(&mut self, key: CallKey) {
        let Some(Some(call)) = self.calls.get(key.index()) else { return };
        let Some(cell) = &call.cell else { return };
        let mut state = cell.lock();
        state.room = self.grpc.may_send(key);
        let waker = if state.room > 0 { state.send_waker.take() } else { None };
        drop(state);
        self.wake(key.index(), waker);
    }

    /// Wakes what waits on a call's cell. The call's own handler is polled once the input has been read.
    fn wake(&mut self, index: usize, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        if !waker.will_wake(&self.wakers[index]) {
            return crate::wake(waker);
        }
        if let Some(call) = &mut self.calls[index]
            && !call.is_ready
        {
            call.is_ready = true;
            self.ready.push_back(index);
        }
    }

    fn poll_ready(&mut self, env: &mut Env<'_>) {
        while let Some(index) = self.ready.pop_front() {
            if let Some(call) = &mut self.calls[index] {
                call.is_ready = false;
                self.poll(env, index);
            }
        }
    }

    /// Calls the handler and polls it for the first time.
    fn start(&mut self, env: &mut Env<'_>, index: usize) {
        let Some(call) = &mut self.calls[index] else { return };
        if call.is_placed {
            return self.send_order(index);
        }
        call.begin(&self.router);
        let started = {
            let (_handling, _span) = (Handling::call(call.deadline), call.span.enter());
            self.router.borrow_mut().method(call.method).start(call.slot)
        };
        match started {
            Ok(()) => self.poll(env, index),
            Err(status) => self.fail(env, index, &status),
        }
    }

    /// Polls the handler until it waits for something that is not there.
    fn poll(&mut self, env: &mut Env<'_>, index: usize) {
        loop {
            let Some(call) = &self.calls[index] else { return };
            if call.is_placed {
                return self.look_at_placed(env, index);
            }
            if call.unbegun.is_some() {
                return;
            }
            if let Some(cell) = &call.cell {
                // What the handler sends meanwhile is seen below: no need to knock.
                cell.lock().knocked = true;
            }
            let mut cx = Context::from_waker(&self.wakers[index]);
            let span = &call.span;
            let to = Destination::Engine { grpc: &mut self.grpc, env, call: call.key };
            let polled = {
                let (_handling, _span) = (Handling::call(call.deadline), span.enter());
                let (mut router, polling) = (self.router.borrow_mut(), Polling::begin());
                let mut answer = Answer { to, hooks: None, span, bytes_max: router.send_message_bytes_max() };
                let polled = router.method(call.method).poll(call.slot, &mut cx, &mut answer);
                polling.end(router.path(call.method));
                polled
            };
            if polled.is_ready() {
                return self.end_answered(env, index, CallEnd::Finished);
            }
            let Some(cell) = &call.cell else { return };
            let waker = flush(cell, &mut self.grpc, env, call.key);
            match waker {
                None => return,
                Some(waker) if waker.will_wake(&self.wakers[index]) => {}
                Some(waker) => return crate::wake(waker),
            }
        }
    }

    /// Ends a call with a status of the library's own.
    fn fail(&mut self, env: &mut Env<'_>, index: usize, status: &Status) {
        if let Some(call) = &self.calls[index] {
            let mut router = self.router.borrow_mut();
            let hooks = if call.is_placed { None } else { router.method(call.method).hooks(call.slot) };
            let (span, bytes_max) = (&call.span, router.send_message_bytes_max());
            drop(router);
            let to = Destination::Engine { grpc: &mut self.grpc, env, call: call.key };
            Answer { to, hooks, span, bytes_max }.finish(status, MetadataMap::EMPTY);
            self.end_answered(env, index, CallEnd::Failed);
        }
    }

    /// Ends a call whose answer was given. The engine need not tell of its end, since nobody listens any more.
    fn end_answered(&mut self, env: &mut Env<'_>, index: usize, end: CallEnd) {
        let Some(call) = &self.calls[index] else { return };
        let key = call.key;
        self.end(env, index, end);
        self.grpc.forget(env, key);
    }

    /// Drops the handler. Handles that the user has put elsewhere see how the call ended.
    fn end(&mut self, env: &mut Env<'_>, index: usize, end: CallEnd) {
        let Some(mut call) = self.calls[index].take() else { return };
        let is_unbegun = call.unbegun.take().is_some();
        let mut router = self.router.borrow_mut();
        // What runs when the handler is dropped may ask already.
        call.fate.set_end(end);
        if !call.is_placed && !is_unbegun {
            let _span = call.span.enter();
            router.method(call.method).end(call.slot);
        }
        let wakers = call.cell.map(|cell| {
            let mut state = cell.lock();
            let wakers = state.end(end.status());
            state.inbound.discard();
            state.inbound.give_used(env.pool);
            let order = state.order.take();
            drop(state);
            if let Some(order) = order {
                router.give_order(order);
            }
            router.give_cell(cell);
            wakers
        });
        drop(router);
        self.take_leave(call.fate, call.span, end);
        for waker in wakers.into_iter().flatten().flatten() {
            if !waker.will_wake(&self.wakers[index]) {
                crate::wake(waker);
            }
        }
    }

    /// The call is over, and its handler has been dropped: tells whoever is to hear of it.
    fn take_leave(&mut self, fate: Arc<CallFate>, span: CallSpan, end: CallEnd) {
        if let Some(door) = &self.door {
            door.leave();
        }
        let watched = self.router.borrow_mut().give_fate(fate);
        span.end(end.code());
        if let Some(fate) = watched {
            fate.wake();
        }
    }

    /// Credits a message that nobody waits for, and gives its block back.
    fn discard(&mut self, env: &mut Env<'_>, key: CallKey, body: Body<'_>) {
        let length = body.len();
        if let Body::Block(block) = body {
            env.pool.give(block);
        }
        self.grpc.release(env, key, length);
    }
}

/// Hands what a handler left in its cell to the engine. Returns the waker of a sender that has room again.
pub(super) fn flush(
    cell: &CallCell,
    grpc: &mut fulmar_grpc::Server,
    env: &mut Env<'_>,
    call: CallKey,
) -> Option<Waker> {
    let mut state = cell.lock();
    state.knocked = false;
    if state.metadata_out_due || !state.outbound.is_empty() {
        if !state.metadata_sent {
            state.metadata_sent = true;
            grpc.set_choice(call, state.packing.choice());
            let _ = grpc.send_headers(env, call, &state.metadata_out);
        }
        state.metadata_out_due = false;
    }
    // An error means that the call is over, which its Finished event tells.
    if state.outbound.has_parts() {
        state = cell.with_outbound(state, |outbound| {
            let _ = grpc.send_framed_parts(env, call, outbound.parts());
        });
    } else if !state.outbound.is_empty() {
        let _ = grpc.send_framed_slice(env, call, state.outbound.as_slice());
        state.outbound.clear();
    }
    if let Some(bytes) = state.take_releases() {
        grpc.release(env, call, bytes);
    }
    state.inbound.give_used(env.pool);
    state.room = grpc.may_send(call);
    if state.room > 0 { state.send_waker.take() } else { None }
}

/// Connections that begin together do not end together: up to a tenth more or less (gRFC A9).
fn age_permille() -> u16 {
    u16::try_from(random::between(900, 1_100)).unwrap_or(1_000)
}

impl Endpoint for ServerEndpoint {
    type Command = Command;

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let input = Input::new(bytes);
        self.drain(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        loop {
            self.grpc.transmit(env);
            if !self.grpc.has_events() {
                break;
            }
            self.drain(env, &Input::new(&[]))?;
        }
        if self.grpc.is_drained() {
            let why =
                if self.draining { "the server is shutting down" } else { "the connection was old, or idle" };
            return Err(Closed::local(why));
        }
        Ok(())
    }

    fn has_work(&self, is_room: bool) -> bool {
        !self.ready.is_empty() || self.grpc.has_work(is_room)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.grpc.next_deadline()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.grpc.on_deadline(env)?;
        self.drain(env, &Input::new(&[]))
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: Command) -> Result<(), Closed> {
        match command {
            Command::Drain => {
                self.draining = true;
                self.grpc.shutdown(env);
            }
        }
        Ok(())
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        let index = task.0 as usize;
        if index < self.calls.len() {
            self.poll(env, index);
        }
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.closed = Some(closed.clone());
        self.grpc.closed(env, closed);
        // The engine has no input any more: what it reports are the ends of its calls.
        let _ = self.drain(env, &Input::new(&[]));
        for index in 0..self.calls.len() {
            self.end(env, index, CallEnd::new(Ending::ConnectionLost, Some(closed)));
        }
    }
}
