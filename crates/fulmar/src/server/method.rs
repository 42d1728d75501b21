//! A method of a service: the slots of its calls, and how each of the four kinds runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fulmar_base::{Env, Output, Pool};
use fulmar_grpc::{Arena, CallKey, Code, Compression, Config, MetadataMap, Part, Status};

use super::endpoint::flush;
use super::order::Answered;
use crate::call::{CallCell, CallEnd, CallFate};
use crate::context::CallContext;
use crate::direct::DirectAnswer;
use crate::intercept::CallHooks;
use crate::packing::unknown;
use crate::panics::{caught, contained};
use crate::payload::{Incoming, PREFIX_LEN, Payload, check_encoded, check_length, decode};
use crate::response::Response;
use crate::trace::CallSpan;

/// What a client hears that sends two messages where one is taken.
pub(super) const SECOND_MESSAGE: &str = "the method takes one request message, and a second one arrived";

/// Whose panics are caught here.
pub(crate) const HANDLER: &str = "the handler";

/// What a connection can do with a method, whatever its message types.
pub(crate) trait Method {
    /// Whether calls need a cell: all but those with one message each way.
    fn needs_cell(&self) -> bool;

    /// Whether the call takes exactly one message, and starts when the client has half-closed.
    fn takes_one(&self) -> bool;

    /// Whether there is something to poll as soon as a call has begun, whatever it takes.
    fn is_intercepted(&self) -> bool {
        false
    }

    /// Makes room for a call. Returns its slot.
    fn begin(&mut self, context: CallContext, cell: Option<Arc<CallCell>>) -> u32;

    /// The one message of a call that takes one.
    fn on_message(
        &mut self,
        slot: u32,
        body: Incoming<'_>,
        was_compressed: bool,
        arena: &mut Arena,
    ) -> Result<(), Status>;

    /// Calls the user's handler, which makes the future; it is polled by `poll`.
    fn start(&mut self, slot: u32) -> Result<(), Status>;

    /// Polls the handler; a finished one has written its answer through `answer`.
    fn poll(&mut self, slot: u32, cx: &mut Context<'_>, answer: &mut Answer<'_, '_>) -> Poll<()>;

    /// The interceptors of a call, if there are any and they have let it pass.
    fn hooks(&self, slot: u32) -> Option<Arc<CallHooks>> {
        let _ = slot;
        None
    }

    /// Drops what the slot holds, the handler's future included.
    fn end(&mut self, slot: u32);

    /// All of that in one go, for a call with one message each way whose request is at hand as a whole.
    fn serve(&mut self, call: Whole<'_>, cx: &mut Context<'_>, answer: &mut Answer<'_, '_>) -> Served {
        let Whole { context, fate, body, arena } = call;
        let slot = self.begin(context, None);
        let refused = self.is_intercepted() && self.poll(slot, cx, answer).is_ready();
        let end = if refused {
            CallEnd::Finished
        } else {
            match self.on_message(slot, body, false, arena).and_then(|()| self.start(slot)) {
                Ok(()) if self.poll(slot, cx, answer).is_pending() => return Served::Waits(slot),
                Ok(()) => CallEnd::Finished,
                Err(status) => {
                    answer.hooks = self.hooks(slot);
                    answer.finish(&status, MetadataMap::EMPTY);
                    CallEnd::Failed
                }
            }
        };
        // What runs when the handler is dropped may ask already.
        fate.set_end(end);
        self.end(slot);
        Served::Ended(end)
    }
}

/// A call whose only message has arrived.
pub(crate) struct Whole<'a> {
    pub(crate) context: CallContext,
    /// That of the context.
    pub(crate) fate: &'a CallFate,
    pub(crate) body: Incoming<'a>,
    pub(crate) arena: &'a mut Arena,
}

/// What has become of a call that was served in one go.
pub(crate) enum Served {
    /// It was answered, and its fate is set.
    Ended(CallEnd),
    /// Its handler waits, in this slot.
    Waits(u32),
}

/// Where a finished handler writes, and what the call has besides.
pub(crate) struct Answer<'a, 'e> {
    pub(crate) to: Destination<'a, 'e>,
    /// None for a call without interceptors.
    pub(crate) hooks: Option<Arc<CallHooks>>,
    pub(crate) span: &'a CallSpan,
    /// The server's send limit.
    pub(crate) bytes_max: usize,
}

/// Where an answer goes.
pub(crate) enum Destination<'a, 'e> {
    /// To the engine, on the reactor of the connection.
    Engine { grpc: &'a mut fulmar_grpc::Server, env: &'a mut Env<'e>, call: CallKey },
    /// To the connection, which is on another reactor, by way of the call's cell.
    Cell { cell: &'a CallCell, answered: &'a mut Answered },
    /// To a caller in the same process, without a connection. `configs` are the server's and the client's.
    Direct { answer: &'a mut DirectAnswer, configs: (&'a Config, &'a Config), pool: &'a mut Pool },
}

impl Answer<'_, '_> {
    /// Ends the call with a status. A call that is gone needs none.
    pub(crate) fn finish(&mut self, status: &Status, trailers: &MetadataMap) {
        match &self.hooks {
            None => {
                self.conclude(status, trailers);
            }
            Some(hooks) => {
                let (mut status, mut trailers) = (status.clone(), trailers.clone());
                hooks.finish(&mut status, &mut trailers);
                self.conclude(&status, &trailers);
            }
        }
    }

    fn conclude(&mut self, status: &Status, trailers: &MetadataMap) {
        self.span.set_code(status.code());
        match &mut self.to {
            Destination::Engine { grpc, env, call } => {
                let _ = grpc.finish(env, *call, status, trailers);
            }
            Destination::Cell { answered, .. } => {
                answered.status = status.clone();
                answered.trailers.extend_from(trailers);
            }
            Destination::Direct { answer, configs, .. } => answer.finish(status, trailers, *configs),
        }
    }

    /// Hands what the handler left in its cell to the engine. Returns the waker of a sender that has room again. Where the handler
    /// is not on the connection's reactor, that one looks after the cell itself.
    pub(super) fn flush(&mut self, cell: &CallCell) -> Option<Waker> {
        match &mut self.to {
            Destination::Engine { grpc, env, call } => flush(cell, grpc, env, *call),
            Destination::Cell { .. } | Destination::Direct { .. } => None,
        }
    }

    /// Ends the call with a response.
    fn reply<Resp: Payload>(&mut self, response: &Response<Resp>) {
        let (grpc, env, call) = match &mut self.to {
            Destination::Engine { grpc, env, call } => (grpc, env, *call),
            Destination::Cell { cell, .. } => {
                return match cell.encode_reply(response, self.bytes_max) {
                    Ok(()) => self.conclude(&Status::default(), response.trailers()),
                    Err(status) => self.conclude(&status, MetadataMap::EMPTY),
                };
            }
            Destination::Direct { answer, configs, pool } => {
                return match answer.reply(response, self.span, *configs, pool) {
                    Ok(code) => self.span.set_code(code),
                    Err(status) => self.finish(&status, MetadataMap::EMPTY),
                };
            }
        };
        // A call begins with the default.
        if !matches!(response.compression(), Compression::Default)
            && let Err(error) = grpc.set_compression(call, response.compression())
        {
            return self.finish(&unknown(error), MetadataMap::EMPTY);
        }
        let message = response.get_ref();
        let length = message.encoded_len();
        if length >= Output::SHARED_MIN && !grpc.compresses(call, length) {
            return match large_parts(message, length, self.bytes_max, env.pool) {
                Ok((head, body)) => {
                    self.span.link().sent(length);
                    let parts = [Part::Slice(head.as_ref().map_or(&[], |head| head)), Part::Shared(body)];
                    let (metadata, trailers) = (response.metadata(), response.trailers());
                    let replied = grpc.reply_framed_parts(env, call, metadata, length, parts, trailers);
                    // What may be refused of it is metadata that is larger than the client accepts.
                    self.span.set_code(if replied.is_ok() { Code::Ok } else { Code::ResourceExhausted });
                }
                Err(status) => self.finish(&status, MetadataMap::EMPTY),
            };
        }
        let mut is_admitted = false;
        let encode = |out: &mut Vec<u8>| {
            is_admitted = true;
            let end = out.len() + length;
            if caught(HANDLER, || message.encode(out)).is_err() {
                // The frame's head is out. A byte too many makes the engine cut the frame to its length, so that the
                // connection stays whole, and reset the stream.
                out.resize(end + 1, 0);
            }
        };
        let (metadata, trailers) = (response.metadata(), response.trailers());
        self.span.link().sent(length);
        let replied = grpc.reply(env, call, metadata, length, encode, trailers);
        self.span.set_code(match replied {
            Ok(()) => Code::Ok,
            // It did not encode to its length, or could not be compressed.
            Err(_) if is_admitted => Code::Internal,
            // It is over the send limit, or its metadata is larger than the client accepts.
            Err(_) => Code::ResourceExhausted,
        });
    }

    /// The same, once interceptors have seen the response.
    fn reply_through<Resp: Payload>(&mut self, hooks: &CallHooks, mut response: Response<Resp>) {
        let shown = hooks
            .show_metadata(response.metadata_mut())
            .and_then(|()| hooks.send(response.get_ref(), |shown| Ok(shown.clone())));
        match shown.and_then(|message| hooks.respond(Ok(response.map(|_| message)))) {
            Ok(response) => self.reply(&response),
            Err(status) => self.finish(&status, MetadataMap::EMPTY),
        }
    }
}

/// A large message, which is not copied once it is encoded: its prefix, where that is apart, and what follows. One that is over the
/// limit is not encoded.
pub(crate) fn large_parts<Resp: Payload>(
    message: &Resp,
    length: usize,
    bytes_max: usize,
    pool: &mut Pool,
) -> Result<(Option<[u8; PREFIX_LEN]>, Bytes), Status> {
    let [a, b, c, d] = check_length(length, bytes_max)?.to_be_bytes();
    let prefix = [0, a, b, c, d];
    if let Some(whole) = message.whole() {
        return Ok((Some(prefix), whole.clone()));
    }
    let mut memory = pool.take_shared(PREFIX_LEN + length);
    memory.extend_from_slice(&prefix);
    let encoded = caught(HANDLER, || message.encode(&mut *memory));
    match encoded.and_then(|()| check_encoded(memory.len() - PREFIX_LEN, length)) {
        Ok(()) => Ok((None, pool.freeze_shared(memory))),
        Err(status) => {
            pool.give_shared(memory);
            Err(status)
        }
    }
}

/// What a handler's future gives.
pub(crate) trait Outcome {
    /// Ends the call with it.
    fn write(self, cell: Option<&CallCell>, answer: &mut Answer<'_, '_>);
}

impl<Resp: Payload> Outcome for Result<Response<Resp>, Status> {
    fn write(self, _cell: Option<&CallCell>, answer: &mut Answer<'_, '_>) {
        match self {
            Ok(response) => match answer.hooks.clone() {
                None => answer.reply(&response),
                Some(hooks) => answer.reply_through(&hooks, response),
            },
            Err(status) => answer.finish(&status, MetadataMap::EMPTY),
        }
    }
}

impl Outcome for Result<(), Status> {
    fn write(self, cell: Option<&CallCell>, answer: &mut Answer<'_, '_>) {
        let mut status = self.err().unwrap_or_default();
        let Some(cell) = cell else { return answer.finish(&status, MetadataMap::EMPTY) };
        if status.is_ok()
            && let Some(hooks) = &answer.hooks
            && let Err(refusal) = cell.show_metadata(hooks)
        {
            status = refusal;
        }
        if status.is_ok() {
            // Metadata that was set but not sent leaves even if no message did; a failure without any message is one
            // block of trailers (wire rule 26).
            let mut state = cell.lock();
            state.metadata_out_due |= !state.metadata_out.is_empty();
        }
        let sender = answer.flush(cell);
        let trailers = std::mem::take(&mut cell.lock().trailers_out);
        answer.finish(&status, &trailers);
        cell.lock().trailers_out = trailers;
        drop(sender);
    }
}

/// A method: `make` is the user's handler with its arguments prepared.
pub(crate) struct TypedMethod<Req, F, Fut> {
    pub(crate) takes_one: bool,
    pub(crate) needs_cell: bool,
    make: F,
    slots: Vec<Slot<Req, Fut>>,
    free: Vec<u32>,
    boxes: FutureBoxes<Fut>,
}

/// What a handler is made from.
pub(crate) struct Parts<Req> {
    /// Default where the call takes a stream.
    pub(crate) message: Req,
    pub(crate) context: CallContext,
    pub(crate) cell: Option<Arc<CallCell>>,
}

struct Slot<Req, Fut> {
    message: Option<Req>,
    context: Option<CallContext>,
    cell: Option<Arc<CallCell>>,
    future: Option<FutureBox<Fut>>,
}

/// The place of a call's future. It is empty while it waits for a call.
pub(super) type FutureBox<Fut> = Pin<Box<Option<Fut>>>;

/// How many boxes of a method wait for other calls: more than a connection has streams by default.
const FREE_BOXES_MAX: usize = 2_048;

/// The boxes that calls of a method have left for other ones.
pub(super) struct FutureBoxes<Fut>(Vec<FutureBox<Fut>>);

impl<Fut> FutureBoxes<Fut> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn take(&mut self) -> FutureBox<Fut> {
        self.0.pop().unwrap_or_else(|| Box::pin(None))
    }

    /// Drops the future in a box, and keeps the box for another call unless there are many.
    pub(super) fn give(&mut self, mut future: FutureBox<Fut>) {
        // Dropping is the user's code; a panic in it ends nothing else, since the call is over, and leaves the box empty too.
        contained(|| future.set(None));
        if self.0.len() < FREE_BOXES_MAX {
            self.0.push(future);
        }
    }
}

impl<Req, F, Fut> TypedMethod<Req, F, Fut> {
    pub(crate) fn new(takes_one: bool, needs_cell: bool, make: F) -> Self {
        Self { takes_one, needs_cell, make, slots: Vec::new(), free: Vec::new(), boxes: FutureBoxes::new() }
    }

    fn vacant(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { message: None, context: None, cell: None, future: None });
            (self.slots.len() - 1) as u32
        })
    }
}

impl<Req, F, Fut> Method for TypedMethod<Req, F, Fut>
where
    Req: Payload,
    F: Fn(Parts<Req>) -> Fut,
    Fut: Future,
    Fut::Output: Outcome,
{
    fn needs_cell(&self) -> bool {
        self.needs_cell
    }

    fn takes_one(&self) -> bool {
        self.takes_one
    }

    fn begin(&mut self, context: CallContext, cell: Option<Arc<CallCell>>) -> u32 {
        let slot = self.vacant();
        let entry = &mut self.slots[slot as usize];
        entry.context = Some(context);
        entry.cell = cell;
        slot
    }

    fn on_message(
        &mut self,
        slot: u32,
        body: Incoming<'_>,
        was_compressed: bool,
        arena: &mut Arena,
    ) -> Result<(), Status> {
        let slot = &mut self.slots[slot as usize];
        if slot.message.is_some() {
            return Err(Status::unimplemented(SECOND_MESSAGE));
        }
        let message = caught(HANDLER, || {
            let mut message = Req::default();
            decode(&mut message, body, arena).map(|()| message)
        })??;
        slot.message = Some(message);
        if was_compressed && let Some(context) = &slot.context {
            context.note_compressed();
        }
        Ok(())
    }

    fn start(&mut self, slot: u32) -> Result<(), Status> {
        let slot = &mut self.slots[slot as usize];
        let message = match slot.message.take() {
            Some(message) => message,
            None if self.takes_one => {
                return Err(Status::unimplemented("the method takes one request message, and none arrived"));
            }
            None => caught(HANDLER, Req::default)?,
        };
        let context = slot.context.take().unwrap_or_default();
        let parts = Parts { message, context, cell: slot.cell.clone() };
        let future = slot.future.get_or_insert_with(|| self.boxes.take());
        // Made where it stays: futures are large.
        caught(HANDLER, || future.set(Some((self.make)(parts))))
    }

    fn poll(&mut self, slot: u32, cx: &mut Context<'_>, answer: &mut Answer<'_, '_>) -> Poll<()> {
        let slot = &mut self.slots[slot as usize];
        let future = slot.future.as_mut().and_then(|future| future.as_mut().as_pin_mut());
        let Some(future) = future else { return Poll::Pending };
        // Writing encodes and drops the reply, which is the user's code too.
        let cell = slot.cell.as_deref();
        match caught(HANDLER, || future.poll(cx).map(|outcome| outcome.write(cell, answer))) {
            Ok(polled) => polled,
            Err(status) => {
                // What the handler sent before it panicked was sent.
                if let Some(cell) = cell {
                    drop(answer.flush(cell));
                }
                answer.finish(&status, MetadataMap::EMPTY);
                Poll::Ready(())
            }
        }
    }

    fn end(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if let Some(message) = entry.message.take() {
            // Of a call whose handler was not started. Dropping is the user's code too.
            contained(|| drop(message));
        }
        if let Some(future) = entry.future.take() {
            self.boxes.give(future);
        }
        entry.context = None;
        entry.cell = None;
        self.free.push(slot);
    }

    /// A call whose handler is ready at once never has a slot.
    fn serve(&mut self, call: Whole<'_>, cx: &mut Context<'_>, answer: &mut Answer<'_, '_>) -> Served {
        let Whole { context, fate, body, arena } = call;
        let mut future = self.boxes.take();
        let mut is_begun = false;
        // All of it is the user's code: encoding and dropping the reply, too.
        let polled = caught(HANDLER, || {
            let mut message = Req::default();
            decode(&mut message, body, arena)?;
            // Made where it stays: futures are large.
            future.set(Some((self.make)(Parts { message, context, cell: None })));
            is_begun = true;
            let Some(made) = future.as_mut().as_pin_mut() else { return Ok(Poll::Pending) };
            Ok(made.poll(cx).map(|outcome| outcome.write(None, answer)))
        });
        let end = match polled.and_then(|polled| polled) {
            Ok(Poll::Pending) => {
                let slot = self.vacant();
                self.slots[slot as usize].future = Some(future);
                return Served::Waits(slot);
            }
            Ok(Poll::Ready(())) => CallEnd::Finished,
            Err(status) => {
                answer.finish(&status, MetadataMap::EMPTY);
                if is_begun { CallEnd::Finished } else { CallEnd::Failed }
            }
        };
        // What runs when the handler is dropped may ask already.
        fate.set_end(end);
        self.boxes.give(future);
        Served::Ended(end)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;
    use crate::payload::Raw;

    #[test]
    fn calls_share_the_boxes_of_their_futures_and_only_so_many_wait() {
        type Done = Ready<Result<Response<Raw>, Status>>;
        let make = |_: Parts<Raw>| -> Done { ready(Ok(Response::default())) };
        let mut method = TypedMethod::new(false, false, make);
        let many = FREE_BOXES_MAX + 100;
        let slots: Vec<u32> = (0..many).map(|_| method.begin(CallContext::default(), None)).collect();
        slots.iter().for_each(|&slot| method.start(slot).unwrap());
        slots.iter().for_each(|&slot| method.end(slot));
        assert_eq!(method.boxes.0.len(), FREE_BOXES_MAX, "those of all calls but a hundred");

        // A call after that, in whatever slot, finds one.
        let last = |method: &TypedMethod<_, _, Done>| method.boxes.0.last().map(|kept| &raw const **kept);
        for _ in 0..3 {
            let kept = last(&method);
            let slot = method.begin(CallContext::default(), None);
            method.start(slot).unwrap();
            assert_eq!(method.boxes.0.len(), FREE_BOXES_MAX - 1);
            method.end(slot);
            assert_eq!((method.boxes.0.len(), last(&method)), (FREE_BOXES_MAX, kept), "and gives it back");
        }
    }

    #[test]
    fn a_call_that_is_served_in_one_go_has_a_slot_only_if_its_handler_waits() {
        type Answered = Result<Response<Raw>, Status>;
        type Handler = Pin<Box<dyn Future<Output = Answered>>>;
        let make = |parts: Parts<Raw>| -> Handler {
            match &parts.message.0[..] {
                b"at once" => Box::pin(ready(Ok(Response::new(parts.message)))),
                b"later" => Box::pin(std::future::pending()),
                _ => std::panic::resume_unwind(Box::new("had enough")),
            }
        };
        let mut method = TypedMethod::new(true, false, make);
        let mut serve = |body: &[u8]| {
            let (cell, mut answered) = (CallCell::default(), super::Answered::default());
            let fate = Arc::<CallFate>::default();
            let to = Destination::Cell { cell: &cell, answered: &mut answered };
            let mut answer = Answer { to, hooks: None, span: &CallSpan::default(), bytes_max: 100 };
            let context = CallContext::handled(fate.clone());
            let arena = &mut Arena::default();
            let whole = Whole { context, fate: &fate, body: Incoming::Lent(body), arena };
            let served = method.serve(whole, &mut Context::from_waker(Waker::noop()), &mut answer);
            let slots = (method.slots.len(), method.free.len());
            if let Served::Waits(slot) = served {
                method.end(slot);
            }
            (served, slots, fate.end(), answered.status.code())
        };
        let (served, slots, end, code) = serve(b"at once");
        assert!(matches!(served, Served::Ended(CallEnd::Finished)));
        assert_eq!((slots, end, code), ((0, 0), Some(CallEnd::Finished), Code::Ok));
        for _ in 0..2 {
            let (served, slots, end, _) = serve(b"later");
            assert!(matches!(served, Served::Waits(0)));
            assert_eq!((slots, end), ((1, 0), None));
        }
        let (served, slots, end, code) = serve(b"never");
        assert!(matches!(served, Served::Ended(CallEnd::Failed)));
        assert_eq!((slots, end, code), ((1, 1), Some(CallEnd::Failed), Code::Unknown));
        assert_eq!(method.boxes.0.len(), 1, "one box has served them all");
    }

    #[test]
    fn a_box_serves_another_call_when_its_future_panics_as_it_is_dropped() {
        struct Touchy;
        impl Drop for Touchy {
            fn drop(&mut self) {
                panic!("it will not go");
            }
        }

        let mut boxes = FutureBoxes::new();
        let mut one = boxes.take();
        one.set(Some(Touchy));
        boxes.give(one);
        assert_eq!(boxes.0.len(), 1);
        assert!(boxes.take().is_none());
    }
}
