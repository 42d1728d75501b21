//! The calls that a reactor handles for connections of other reactors.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use fulmar_base::Instant;
use fulmar_grpc::{MetadataMap, Status};
use fulmar_reactor::Mailbox;

use super::method::{Answer, Destination};
use super::order::{Order, PlacedCall, Stage};
use super::router::Router;
use crate::call::{CallCell, CallEnd, CallFate, Inbound};
use crate::handling::Handling;
use crate::host::Letter;
use crate::trace::Polling;

/// The placed calls of one server on one reactor.
pub(crate) struct PlacedCalls {
    server: u64,
    mailbox: Mailbox<Letter>,
    router: Rc<RefCell<Router>>,
    calls: Vec<Option<Call>>,
    /// One for each index, made when the index is first used.
    wakers: Vec<(Arc<Messenger>, Waker)>,
    free: Vec<usize>,
    /// Lent to the call whose one message is read.
    queue: Inbound,
}

struct Call {
    cell: Arc<CallCell>,
    order: Box<Order>,
    fate: Arc<CallFate>,
    /// The place of the call's waker in its fate.
    watcher: Option<u64>,
    deadline: Option<Instant>,
    slot: u32,
}

/// Wakes a placed call: by a letter to its reactor, one for all wake-ups until it is read.
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
            self.mailbox.send(Letter::PlacedWoken { server: self.server, index: self.index });
        }
    }
}

impl PlacedCalls {
    pub(crate) fn new(server: u64, mailbox: Mailbox<Letter>, router: Rc<RefCell<Router>>) -> Self {
        Self {
            server,
            mailbox,
            router,
            calls: Vec::new(),
            wakers: Vec::new(),
            free: Vec::new(),
            queue: Inbound::default(),
        }
    }

    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.calls.len()
    }

    /// Takes a call over, and polls its handler for the first time.
    pub(crate) fn accept(&mut self, placed: PlacedCall) {
        let Some((cell, mut order)) = placed.accept() else { return };
        let context = std::mem::take(&mut order.context);
        let (fate, deadline) = (context.fate().cloned().unwrap_or_default(), context.deadline());
        let index = self.free.pop().unwrap_or_else(|| self.add_place());
        let mut router = self.router.borrow_mut();
        let kind = router.kind(order.method);
        let slot = router.method(order.method).begin(context, kind.needs_cell.then(|| cell.clone()));
        drop(router);
        self.calls[index] = Some(Call { cell, order, fate, watcher: None, deadline, slot });
        let started = if kind.takes_one { self.take_message(index) } else { Ok(()) };
        match started.and_then(|()| self.start(index)) {
            Ok(()) => self.poll(index),
            Err(status) => self.fail(index, &status),
        }
    }

    /// The waker of a call has fired.
    pub(crate) fn on_wake(&mut self, index: usize) {
        let Some((messenger, _)) = self.wakers.get(index) else { return };
        messenger.is_sent.store(false, Ordering::Release);
        self.poll(index);
    }

    /// The reactor ends: so do the calls, as far as their connections do not end them.
    pub(crate) fn close(&mut self) {
        for index in 0..self.calls.len() {
            self.fail(index, &Status::unavailable("the reactor that handled the call has ended"));
        }
    }

    fn add_place(&mut self) -> usize {
        let index = self.calls.len();
        self.calls.push(None);
        let messenger = Arc::new(Messenger {
            mailbox: self.mailbox.clone(),
            server: self.server,
            index,
            is_sent: AtomicBool::new(false),
        });
        self.wakers.push((messenger.clone(), Waker::from(messenger)));
        self.free.reserve(self.calls.len());
        index
    }

    /// Hands the one message of a call to its method.
    fn take_message(&mut self, index: usize) -> Result<(), Status> {
        let Some(call) = &self.calls[index] else { return Ok(()) };
        std::mem::swap(&mut call.cell.lock().inbound, &mut self.queue);
        let mut router = self.router.borrow_mut();
        let (method, arena) = router.method_and_arena(call.order.method);
        let was_compressed = self.queue.next_was_compressed();
        let _span = call.order.span.enter();
        let taken = self.queue.take(|body, _| method.on_message(call.slot, body, was_compressed, arena));
        // Its block is given back by the connection.
        std::mem::swap(&mut call.cell.lock().inbound, &mut self.queue);
        taken.map_or(Ok(()), |(taken, _)| taken)
    }

    /// Calls the handler, which makes its future.
    fn start(&mut self, index: usize) -> Result<(), Status> {
        let Some(call) = &self.calls[index] else { return Ok(()) };
        let (_handling, _span) = (Handling::call(call.deadline), call.order.span.enter());
        self.router.borrow_mut().method(call.order.method).start(call.slot)
    }

    /// Polls the handler, unless the call has ended.
    fn poll(&mut self, index: usize) {
        let Some(Some(call)) = self.calls.get_mut(index) else { return };
        let waker = &self.wakers[index].1;
        let ended = match call.watcher {
            // It has left its waker there: it hears of the end.
            Some(_) => call.fate.end(),
            None => call.fate.end().or_else(|| call.fate.watch(&mut call.watcher, waker)),
        };
        if let Some(end) = ended {
            return self.give_up(index, end);
        }
        let Order { span, answer, method, .. } = &mut *call.order;
        let mut router = self.router.borrow_mut();
        let bytes_max = router.send_message_bytes_max();
        let to = Destination::Cell { cell: &call.cell, answered: answer };
        let is_over = {
            let (_handling, _span) = (Handling::call(call.deadline), span.enter());
            let mut answer = Answer { to, hooks: None, span, bytes_max };
            let polling = Polling::begin();
            let polled = router.method(*method).poll(call.slot, &mut Context::from_waker(waker), &mut answer);
            polling.end(router.path(*method));
            polled.is_ready()
        };
        drop(router);
        if is_over {
            self.finish(index);
        }
    }

    /// Ends a call with a status of the library's own.
    fn fail(&mut self, index: usize, status: &Status) {
        let Some(call) = &mut self.calls[index] else { return };
        let Order { span, answer, method, .. } = &mut *call.order;
        let mut router = self.router.borrow_mut();
        let (hooks, bytes_max) = (router.method(*method).hooks(call.slot), router.send_message_bytes_max());
        drop(router);
        let to = Destination::Cell { cell: &call.cell, answered: answer };
        Answer { to, hooks, span, bytes_max }.finish(status, MetadataMap::EMPTY);
        self.finish(index);
    }

    /// The handler has ended, and its answer is written: it goes back. Everything else of the call is let go of before, so that the
    /// connection can use it again.
    fn finish(&mut self, index: usize) {
        let Some(call) = self.take(index, CallEnd::Finished) else { return };
        let Call { cell, mut order, fate, .. } = call;
        drop(fate);
        order.stage = Stage::Answered;
        cell.return_order(order);
    }

    /// The call was ended by its connection, which wants nothing back.
    fn give_up(&mut self, index: usize, end: CallEnd) {
        drop(self.take(index, end));
    }

    /// Drops the handler, and ends its span.
    fn take(&mut self, index: usize, end: CallEnd) -> Option<Call> {
        let mut call = self.calls.get_mut(index)?.take()?;
        // What runs when the handler is dropped may ask already.
        call.fate.set_end(end);
        if let Some(watcher) = call.watcher.take() {
            call.fate.forget(watcher);
        }
        {
            let _span = call.order.span.enter();
            self.router.borrow_mut().method(call.order.method).end(call.slot);
        }
        std::mem::take(&mut call.order.span).end(end.code());
        call.order.load = None;
        self.free.push(index);
        Some(call)
    }
}

impl Drop for PlacedCalls {
    fn drop(&mut self) {
        self.close();
    }
}
