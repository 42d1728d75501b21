//! The calls that a server handles on one reactor without a connection.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use fulmar_base::{Instant, Pool};
use fulmar_grpc::{MetadataMap, MethodId, Routes, Status, direct};
use fulmar_reactor::{ConnectionKey, Mailbox, TimerKey};

use super::answer::DirectAnswer;
use crate::call::{CallCell, CallEnd, CallFate, CellShape, Outbound};
use crate::client::endpoint::{Command, hung_up};
use crate::client::{ChannelConfig, ChannelSpec, IN_PROCESS, PendingCall};
use crate::context::{CallContext, CallFacts};
use crate::counts::Counts;
use crate::handling::Handling;
use crate::host::{Core, Letter, RoofCommand};
use crate::metadata_lease::MetadataLease;
use crate::payload::{Incoming, PREFIX_LEN};
use crate::server::method::{Answer, Destination, Served, Whole};
use crate::server::{Router, ServerShared};
use crate::trace::{CallSpan, Polling};

/// The calls of one server on one reactor that came without a connection.
pub(crate) struct DirectCalls {
    server: Arc<ServerShared>,
    mailbox: Mailbox<Letter>,
    routes: Arc<Routes>,
    router: Rc<RefCell<Router>>,
    /// Those that wait for something. A call that is answered at once is never here.
    waiting: Vec<Option<WaitingCall>>,
    /// One for each index, made when the index is first used.
    wakers: Vec<(Arc<Messenger>, Waker)>,
    free: Vec<usize>,
    /// What the handler that is being polled has answered.
    answer: DirectAnswer,
    /// The method that was called last.
    last: Option<MethodId>,
    /// The settings of the channel that called last, and what all its requests say.
    caller: Option<(ChannelConfig, Arc<MetadataMap>)>,
}

/// A call whose caller is in the same process.
struct DirectCall {
    /// The caller's.
    cell: Arc<CallCell>,
    method: MethodId,
    slot: u32,
    fate: Arc<CallFate>,
    deadline: Option<Instant>,
    span: CallSpan,
}

/// A call that waits for something.
struct WaitingCall {
    call: DirectCall,
    config: ChannelConfig,
    /// The connection of its channel, which counts it.
    link: Option<ConnectionKey>,
    timer: Option<TimerKey>,
}

/// What is left of a call that is over: its caller's cell, and its fate if somebody watches it.
type Left = (Arc<CallCell>, Option<Arc<CallFate>>);

/// What a caller has left in its cell.
struct Request {
    method: MethodId,
    outbound: Outbound,
    deadline: Option<Instant>,
    /// None if it is what all requests of the channel say.
    metadata: Option<MetadataLease>,
}

/// Wakes a call: by a letter to its reactor, one for all wake-ups until it is read.
struct Messenger {
    mailbox: Mailbox<Letter>,
    server: u64,
    index: usize,
    is_sent: AtomicBool,
}

impl Wake for Messenger {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_sent.swap(true, Ordering::AcqRel) {
            self.mailbox.send(Letter::DirectWoken { server: self.server, index: self.index });
        }
    }
}

/// What the host does with them.
impl DirectCalls {
    pub(crate) fn new(
        server: &Arc<ServerShared>,
        mailbox: Mailbox<Letter>,
        routes: Arc<Routes>,
        router: Rc<RefCell<Router>>,
    ) -> Self {
        Self {
            server: server.clone(),
            mailbox,
            routes,
            router,
            waiting: Vec::new(),
            wakers: Vec::new(),
            free: Vec::new(),
            answer: DirectAnswer::default(),
            last: None,
            caller: None,
        }
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.waiting.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        let calls = self.waiting.iter().flatten();
        let deadlines = calls.clone().filter(|waiting| waiting.call.deadline.is_some()).count();
        let calls = calls.count();
        // Both ends have a clock for a call over a connection, and so there are two deadlines.
        Counts { handlers: calls, client_calls: calls, deadlines: 2 * deadlines, ..Counts::default() }
    }

    /// Handles a call. Gives it back, untouched, when it has to take the pipe: it does not have exactly one small message, or its method
    /// takes or answers with a stream, or is none; it was cancelled, or its time is over; its message or metadata may be over a limit.
    pub(crate) fn begin(
        &mut self,
        core: &mut Core,
        (spec, link): (&ChannelSpec, ConnectionKey),
        pending: PendingCall,
    ) -> Option<PendingCall> {
        let Some(request) = self.take_request(core.now(), spec, &pending) else { return Some(pending) };
        let index = self.free.pop().unwrap_or_else(|| self.add_place());
        let (mut call, context, mut outbound) = self.open(core.now(), spec, request, pending.take());
        let served = self.serve(core.pool(), index, &call, context, &outbound, &spec.config);
        outbound.clear();
        match served {
            Served::Waits(slot) => {
                call.slot = slot;
                self.keep(core, index, call, (spec, link), outbound);
            }
            Served::Ended(end) => {
                let left = self.take_leave(index, call, end);
                self.give(core.pool(), left, Some(outbound));
            }
        }
        None
    }

    /// The waker of a call has fired: its handler may go on, or its caller has given it up.
    pub(crate) fn on_wake(&mut self, core: &mut Core, index: usize) {
        let Some((messenger, _)) = self.wakers.get(index) else { return };
        messenger.is_sent.store(false, Ordering::Release);
        let Some(waiting) = self.waiting[index].take() else { return };
        if waiting.call.cell.lock().cancelled {
            return self.give_up(core, index, waiting, CallEnd::ClientCancelled, None);
        }
        if !self.poll(core.pool(), index, &waiting.call, &waiting.config) {
            self.waiting[index] = Some(waiting);
            return;
        }
        let WaitingCall { call, link, timer, .. } = waiting;
        forget(core, link, timer);
        let left = self.end(index, call, CallEnd::Finished);
        self.give(core.pool(), left, None);
    }

    /// The deadline of a call has come.
    pub(crate) fn on_deadline(&mut self, core: &mut Core, index: usize) {
        let Some(Some(mut waiting)) = self.waiting.get_mut(index).map(Option::take) else { return };
        waiting.timer = None;
        self.give_up(core, index, waiting, CallEnd::DeadlineExceeded, Some(direct::deadline_exceeded()));
    }

    /// The grace of a shutdown is over: the calls end as if a connection under them had.
    pub(crate) fn cut_off(&mut self, core: &mut Core) {
        for index in 0..self.waiting.len() {
            if let Some(waiting) = self.waiting[index].take() {
                let status = hung_up(IN_PROCESS);
                self.give_up(core, index, waiting, CallEnd::ServerShutdown, Some(status));
            }
        }
    }
}

/// The way of a call.
impl DirectCalls {
    /// Takes what a caller has left in its cell, if the call can be handled without a connection.
    fn take_request(&mut self, now: Instant, spec: &ChannelSpec, pending: &PendingCall) -> Option<Request> {
        if !pending.is_plain() {
            return None;
        }
        let mut state = pending.cell().lock();
        let is_late = state.deadline.is_some_and(|deadline| deadline <= now);
        if state.shape != CellShape::OneReply || !state.outbound_ended || state.cancelled || is_late {
            return None;
        }
        let config = &self.server.config;
        if state.outbound.has_parts()
            || !is_one_message(state.outbound.as_slice(), config.receive_message_bytes_max)
        {
            return None;
        }
        let router = self.router.borrow();
        let method = match self.last {
            // To compare a path costs less than to look for it.
            Some(last) if router.path(last) == Some(&*state.path) => last,
            _ => self.routes.get(state.path.as_bytes())?,
        };
        self.last = Some(method);
        let kind = router.kind(method);
        if !kind.takes_one || kind.needs_cell {
            return None;
        }
        let metadata = if state.metadata_out.is_empty() {
            None
        } else {
            let texts = state.path.len() + spec.authority().len() + spec.config.grpc.user_agent.len();
            if !direct::surely_fits(&state.metadata_out, texts, &config.http2) {
                return None;
            }
            let mut metadata = router.shelf.lease();
            let (user_agent, authority) = (&spec.config.grpc.user_agent, spec.authority());
            direct::received_request(user_agent, authority, &state.metadata_out, metadata.get_mut()).ok()?;
            Some(metadata)
        };
        let outbound = std::mem::take(&mut state.outbound);
        Some(Request { method, outbound, deadline: state.deadline, metadata })
    }

    /// Makes a call of a request, as the server's end of a connection does.
    fn open(
        &mut self,
        now: Instant,
        spec: &ChannelSpec,
        request: Request,
        cell: Arc<CallCell>,
    ) -> (DirectCall, CallContext, Outbound) {
        let Request { method, outbound, deadline, metadata } = request;
        let shared = if metadata.is_none() { Some(self.metadata_of_all(spec)) } else { None };
        let mut router = self.router.borrow_mut();
        let mut fate = router.take_fate();
        let facts = CallFacts {
            timeout: deadline.map(|deadline| deadline.saturating_duration_since(now)),
            deadline,
            path: Cow::Borrowed(router.path(method).unwrap_or_default()),
            metadata: shared,
            ..CallFacts::default()
        };
        CallFate::set_facts(&mut fate, facts);
        let mut context = CallContext::handled(fate.clone());
        if let Some(metadata) = metadata {
            context.set_metadata(metadata);
        }
        let span = CallSpan::of_handler(context.path(), None::<&str>, now);
        (DirectCall { cell, method, slot: 0, fate, deadline, span }, context, outbound)
    }

    /// The metadata of requests whose users have said nothing.
    fn metadata_of_all(&mut self, spec: &ChannelSpec) -> Arc<MetadataMap> {
        if let Some((config, metadata)) = &self.caller
            && config.is(&spec.config)
        {
            return metadata.clone();
        }
        let mut metadata = MetadataMap::new();
        let user_agent = &spec.config.grpc.user_agent;
        // Neither is binary, which is what can go wrong.
        let _ = direct::received_request(user_agent, spec.authority(), MetadataMap::EMPTY, &mut metadata);
        let metadata = Arc::new(metadata);
        self.caller = Some((spec.config.clone(), metadata.clone()));
        metadata
    }

    /// Has the method handle a call, as far as it goes without waiting.
    fn serve(
        &mut self,
        pool: &mut Pool,
        index: usize,
        call: &DirectCall,
        context: CallContext,
        outbound: &Outbound,
        config: &ChannelConfig,
    ) -> Served {
        let message = outbound.as_slice().get(PREFIX_LEN..).unwrap_or_default();
        call.span.link().received(message.len());
        let (_handling, _span) = (Handling::call(call.deadline), call.span.enter());
        let (mut router, polling) = (self.router.borrow_mut(), Polling::begin());
        let bytes_max = router.send_message_bytes_max();
        let configs = (&self.server.config, &config.grpc);
        let to = Destination::Direct { answer: &mut self.answer, configs, pool };
        let mut answer = Answer { to, hooks: None, span: &call.span, bytes_max };
        let (method, arena) = router.method_and_arena(call.method);
        let whole = Whole { context, fate: &call.fate, body: Incoming::Lent(message), arena };
        let served = method.serve(whole, &mut Context::from_waker(&self.wakers[index].1), &mut answer);
        polling.end(router.path(call.method));
        served
    }

    /// Whether the handler has answered.
    fn poll(&mut self, pool: &mut Pool, index: usize, call: &DirectCall, config: &ChannelConfig) -> bool {
        let mut cx = Context::from_waker(&self.wakers[index].1);
        let (_handling, _span) = (Handling::call(call.deadline), call.span.enter());
        let (mut router, polling) = (self.router.borrow_mut(), Polling::begin());
        let bytes_max = router.send_message_bytes_max();
        let configs = (&self.server.config, &config.grpc);
        let to = Destination::Direct { answer: &mut self.answer, configs, pool };
        let mut answer = Answer { to, hooks: None, span: &call.span, bytes_max };
        let polled = router.method(call.method).poll(call.slot, &mut cx, &mut answer);
        polling.end(router.path(call.method));
        polled.is_ready()
    }

    /// Looks after a call whose handler waits.
    #[inline(never)]
    fn keep(
        &mut self,
        core: &mut Core,
        index: usize,
        call: DirectCall,
        (spec, link): (&ChannelSpec, ConnectionKey),
        outbound: Outbound,
    ) {
        let mut state = call.cell.lock();
        state.outbound = outbound;
        state.door = Some(self.wakers[index].1.clone());
        state.knocked = false;
        let is_cancelled = state.cancelled;
        drop(state);
        let mut waiting = WaitingCall { call, config: spec.config.clone(), link: None, timer: None };
        if is_cancelled {
            return self.give_up(core, index, waiting, CallEnd::ClientCancelled, None);
        }
        let server = self.server.id;
        let due = || Letter::DirectDue { server, index };
        waiting.timer = waiting.call.deadline.map(|at| core.set_timer(at, due()));
        if core.command(link, RoofCommand::Client(Command::DirectBegun)).is_ok() {
            waiting.link = Some(link);
        }
        self.waiting[index] = Some(waiting);
    }

    /// Gives the caller of a call that has left its answer, with the memory of its request.
    fn give(&mut self, pool: &mut Pool, (cell, watched): Left, request: Option<Outbound>) {
        self.answer.give(pool, cell, request);
        if let Some(fate) = watched {
            fate.wake();
        }
    }

    /// The call ends without an answer of its handler's.
    #[inline(never)]
    fn give_up(
        &mut self,
        core: &mut Core,
        index: usize,
        waiting: WaitingCall,
        end: CallEnd,
        status: Option<Status>,
    ) {
        let WaitingCall { call, link, timer, .. } = waiting;
        forget(core, link, timer);
        let (cell, watched) = self.end(index, call, end);
        if let Some(status) = status {
            let ended = cell.lock().end(status);
            drop(cell);
            ended.tell();
        }
        if let Some(fate) = watched {
            fate.wake();
        }
    }

    /// Drops the handler. Handles that the user has put elsewhere see how the call ended.
    fn end(&mut self, index: usize, call: DirectCall, end: CallEnd) -> Left {
        // What runs when the handler is dropped may ask already.
        call.fate.set_end(end);
        {
            let _span = call.span.enter();
            self.router.borrow_mut().method(call.method).end(call.slot);
        }
        self.take_leave(index, call, end)
    }

    /// Lets go of everything of a call but of its caller, who may use it again as soon as it hears.
    fn take_leave(&mut self, index: usize, call: DirectCall, end: CallEnd) -> Left {
        let DirectCall { cell, fate, span, .. } = call;
        let watched = self.router.borrow_mut().give_fate(fate);
        span.end(end.code());
        self.free.push(index);
        (cell, watched)
    }

    fn add_place(&mut self) -> usize {
        let index = self.waiting.len();
        self.waiting.push(None);
        let messenger = Arc::new(Messenger {
            mailbox: self.mailbox.clone(),
            server: self.server.id,
            index,
            is_sent: AtomicBool::new(false),
        });
        self.wakers.push((messenger.clone(), Waker::from(messenger)));
        self.free.reserve(self.waiting.len());
        index
    }
}

impl Drop for DirectCalls {
    fn drop(&mut self) {
        // The reactor is gone, and with it what timers and connections knew of these calls.
        for WaitingCall { call, .. } in std::mem::take(&mut self.waiting).into_iter().flatten() {
            call.fate.set_end(CallEnd::ServerShutdown);
            self.router.borrow_mut().method(call.method).end(call.slot);
            call.fate.wake();
            let ended = call.cell.lock().end(Status::unavailable("the reactor of this channel has ended"));
            drop(call.cell);
            ended.tell();
        }
    }
}

/// Whether this is one plain message, with its prefix, of at most `bytes_max`.
fn is_one_message(framed: &[u8], bytes_max: usize) -> bool {
    match framed.split_first_chunk::<PREFIX_LEN>() {
        Some((&[0, a, b, c, d], message)) => {
            message.len() == u32::from_be_bytes([a, b, c, d]) as usize && message.len() <= bytes_max
        }
        _ => false,
    }
}

/// A call does not wait any more.
fn forget(core: &mut Core, link: Option<ConnectionKey>, timer: Option<TimerKey>) {
    if let Some(timer) = timer {
        drop(core.cancel_timer(timer));
    }
    if let Some(link) = link {
        let _ = core.command(link, RoofCommand::Client(Command::DirectEnded));
    }
}
