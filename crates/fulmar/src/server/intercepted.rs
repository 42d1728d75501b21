//! A service, and a method of it, with interceptors around.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use fulmar_grpc::{Arena, MetadataMap, Status};

use super::method::{Answer, FutureBox, FutureBoxes, Method, SECOND_MESSAGE};
use super::router::{Router, Service};
use crate::call::{CallCell, Side};
use crate::context::CallContext;
use crate::intercept::{CallHead, CallHooks, Chain, Interceptor, Passed, Passing};
use crate::payload::Incoming;

/// A service with an interceptor around all its methods.
///
/// ```
/// # use fulmar::{Interceptor, Service};
/// # fn serve(service: impl Service, outer: impl Interceptor, inner: impl Interceptor) -> fulmar::ServerBuilder {
/// use fulmar::{Intercepted, Server};
///
/// Server::builder().add_service(Intercepted::new(service, outer).intercept(inner))
/// # }
/// ```
///
/// The servers that `fulmar-build` generates have a method `intercept` that makes one.
#[derive(Clone, Debug)]
pub struct Intercepted<S> {
    service: S,
    chain: Chain,
}

impl<S: Service> Intercepted<S> {
    /// Puts an interceptor around `service`.
    pub fn new(service: S, interceptor: impl Interceptor) -> Self {
        Self { service, chain: Chain::default().with(interceptor) }
    }

    /// Adds another interceptor, inside of those that are there.
    #[must_use]
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.chain = self.chain.with(interceptor);
        self
    }
}

impl<S: Service> Service for Intercepted<S> {
    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn register(&self, router: &mut Router) {
        router.inside(&self.chain, |router| self.service.register(router));
    }
}

/// Puts `chain` around a method.
pub(super) fn intercepted(method: Box<dyn Method>, chain: Chain) -> Box<dyn Method> {
    Box::new(InterceptedMethod {
        inner: method,
        chain,
        ask: Passing::run,
        slots: Vec::new(),
        free: Vec::new(),
        boxes: FutureBoxes::new(),
    })
}

/// A method whose calls begin once interceptors have let them pass. `ask` is [`Passing::run`], so that its future has a name.
struct InterceptedMethod<F, Fut> {
    inner: Box<dyn Method>,
    chain: Chain,
    ask: F,
    slots: Vec<Slot<Fut>>,
    free: Vec<u32>,
    boxes: FutureBoxes<Fut>,
}

struct Slot<Fut> {
    /// While interceptors are asked.
    asked: Option<FutureBox<Fut>>,
    /// What the method gets once they have let the call pass, and the message that has arrived meanwhile.
    waiting: Waiting,
    /// The method has been started, or is to be as soon as the call has passed.
    is_started: bool,
    passed: Option<Begun>,
}

#[derive(Default)]
struct Waiting {
    context: CallContext,
    cell: Option<Arc<CallCell>>,
    message: Option<Vec<u8>>,
}

/// A call that has passed.
struct Begun {
    /// Its slot of the method.
    slot: u32,
    hooks: Arc<CallHooks>,
}

impl<F, Fut> Method for InterceptedMethod<F, Fut>
where
    F: Fn(Passing) -> Fut,
    Fut: Future<Output = Result<Passed, Status>>,
{
    fn needs_cell(&self) -> bool {
        self.inner.needs_cell()
    }

    fn takes_one(&self) -> bool {
        self.inner.takes_one()
    }

    fn is_intercepted(&self) -> bool {
        true
    }

    fn begin(&mut self, mut context: CallContext, cell: Option<Arc<CallCell>>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                asked: None,
                waiting: Waiting::default(),
                is_started: false,
                passed: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let passing = Passing::new(Side::Handler, &self.chain, CallHead::handled(&mut context));
        slot.asked.get_or_insert_with(|| self.boxes.take()).set(Some((self.ask)(passing)));
        slot.waiting = Waiting { context, cell, message: None };
        slot.is_started = false;
        index
    }

    fn on_message(
        &mut self,
        slot: u32,
        body: Incoming<'_>,
        was_compressed: bool,
        arena: &mut Arena,
    ) -> Result<(), Status> {
        let slot = &mut self.slots[slot as usize];
        if let Some(begun) = &slot.passed {
            begun.hooks.receive(&body)?;
            return self.inner.on_message(begun.slot, body, was_compressed, arena);
        }
        if slot.waiting.message.is_some() {
            return Err(Status::unimplemented(SECOND_MESSAGE));
        }
        slot.waiting.message = Some(body.to_vec());
        if was_compressed {
            slot.waiting.context.note_compressed();
        }
        Ok(())
    }

    fn start(&mut self, slot: u32) -> Result<(), Status> {
        let slot = &mut self.slots[slot as usize];
        slot.is_started = true;
        match &slot.passed {
            Some(begun) => self.inner.start(begun.slot),
            None => Ok(()),
        }
    }

    fn poll(&mut self, slot: u32, cx: &mut Context<'_>, answer: &mut Answer<'_, '_>) -> Poll<()> {
        let entry = &mut self.slots[slot as usize];
        if let Some(asked) = entry.asked.as_mut().and_then(|asked| asked.as_mut().as_pin_mut()) {
            let Poll::Ready(passed) = asked.poll(cx) else { return Poll::Pending };
            if let Some(asked) = entry.asked.take() {
                self.boxes.give(asked);
            }
            match passed {
                Ok(passed) => {
                    if let Err(status) = self.pass(slot, passed) {
                        answer.hooks = self.hooks(slot);
                        answer.finish(&status, MetadataMap::EMPTY);
                        return Poll::Ready(());
                    }
                }
                Err(status) => {
                    // Those that are to hear of it have heard.
                    answer.finish(&status, MetadataMap::EMPTY);
                    return Poll::Ready(());
                }
            }
        }
        let Some(begun) = &self.slots[slot as usize].passed else { return Poll::Pending };
        answer.hooks = Some(begun.hooks.clone());
        self.inner.poll(begun.slot, cx, answer)
    }

    fn hooks(&self, slot: u32) -> Option<Arc<CallHooks>> {
        self.slots[slot as usize].passed.as_ref().map(|begun| begun.hooks.clone())
    }

    fn end(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if let Some(asked) = entry.asked.take() {
            self.boxes.give(asked);
        }
        entry.waiting = Waiting::default();
        if let Some(begun) = entry.passed.take() {
            self.inner.end(begun.slot);
            begun.hooks.cut_off();
        }
        self.free.push(slot);
    }
}

impl<F, Fut> InterceptedMethod<F, Fut> {
    /// Begins a call of the method itself.
    ///
    /// # Errors
    /// Its message is refused by an interceptor, or cannot be decoded; its handler panics.
    fn pass(&mut self, slot: u32, passed: Passed) -> Result<(), Status> {
        let slot = &mut self.slots[slot as usize];
        let Waiting { mut context, cell, message } = std::mem::take(&mut slot.waiting);
        context.set_metadata(passed.metadata);
        *context.extensions_mut() = passed.extensions;
        if let Some(cell) = &cell {
            cell.lock().hooks = Some(passed.hooks.clone());
        }
        let was_compressed = context.was_compressed();
        let inner = self.inner.begin(context, cell);
        slot.passed = Some(Begun { slot: inner, hooks: passed.hooks.clone() });
        if let Some(message) = message {
            passed.hooks.receive(&message)?;
            self.inner.on_message(inner, Incoming::Lent(&message), was_compressed, &mut Arena::default())?;
        }
        if slot.is_started { self.inner.start(inner) } else { Ok(()) }
    }
}
