use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::mailbox::{Post, Target, TaskWaker};

/// The futures that run on the reactor's thread. They need not be `Send`.
///
/// A task costs the box of its future; slots, and the waker of each, are made once and used again. A wake-up meant for an earlier
/// task of a slot makes a later one look once for nothing, which every future must bear.
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    vacant: Vec<usize>,
    ready: VecDeque<usize>,
    post: Arc<dyn Post>,
}

struct Slot {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Waker,
}

impl Tasks {
    pub(crate) fn new(post: Arc<dyn Post>) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), ready: VecDeque::new(), post }
    }

    /// Takes a task in; it is polled first by the next [`run`](Self::run).
    pub(crate) fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        let index = self.vacant.pop().unwrap_or_else(|| self.new_slot());
        if let Some(slot) = self.slots.get_mut(index) {
            slot.future = Some(Box::pin(future));
            self.ready.push_back(index);
        }
    }

    /// The waker of a slot has fired.
    pub(crate) fn wake(&mut self, index: usize) {
        self.ready.push_back(index);
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Polls every task that is ready at the start of the call, once.
    pub(crate) fn run(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { return };
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let Some(future) = &mut slot.future else { continue };
            if future.as_mut().poll(&mut Context::from_waker(&slot.waker)).is_ready() {
                slot.future = None;
                self.vacant.push(index);
            }
        }
    }

    fn new_slot(&mut self) -> usize {
        let index = self.slots.len();
        let waker = TaskWaker::waker(Target::Local(index), Arc::clone(&self.post));
        self.slots.push(Slot { future: None, waker });
        index
    }
}
