//! The call cell: the only thing that a call's user and its connection share.
//!
//! The rules that every function here keeps, each with a test below:
//!
//! 1. No user code (encode, decode, drop of a message) runs under the lock.
//! 2. No stored waker is replaced, dropped or called under the lock, and `will_wake` is asked before one is replaced.
//! 3. A cell is used for another call only when nobody else holds it (`Arc::get_mut`), so a leaked handle never reads the next
//!    call's bytes.
//! 4. Poison is ignored: the state is consistent at every point where user code could panic, because of rule 1.
//! 5. The other side is told after every change that it may be waiting for, so nobody parks while there is work.

mod intercepted;
mod parts;
mod placed;
mod recycled;
mod stage;

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use fulmar_base::Instant;
use fulmar_grpc::{Code, Compress, Compression, MetadataMap, Status};

pub(crate) use self::parts::{Arrived, CellShape, Ended, Guess, QueuePlace, Side};
use super::outbound::Mark;
use super::shelf::Counted;
use super::{Inbound, Outbound};
use crate::intercept::CallHooks;
use crate::lock;
use crate::packing::Packing;
use crate::payload::{PREFIX_LEN, Payload};
use crate::server::Order;
use crate::trace::{CallSpan, Link};

/// Taken bytes of a stream's messages are reported to a connection that has nothing else to do for the call once they reach a
/// quarter of the stream's window, so that the peer never runs dry, and this many at the latest.
const RELEASE_BYTES_MAX: usize = 16 * 1024;

/// Fewer taken bytes are not worth mentioning to a connection that is there anyway, unless the window is small: to credit each of many
/// small messages costs as much as to receive one. They count as held meanwhile.
pub(crate) const RELEASE_BYTES_MIN: usize = 1024;

/// Shared by a call's user and its connection; recycled.
#[derive(Debug, Default)]
pub(crate) struct CallCell {
    state: Mutex<CellState>,
    /// Tells the shelf that made it of its end.
    _counted: Option<Counted>,
}

/// What is in a cell. The connection's side works on it directly; the user's side goes through [`CallCell`]'s methods.
#[derive(Debug, Default)]
pub(crate) struct CellState {
    pub(crate) side: Side,
    pub(crate) shape: CellShape,
    /// Wakes the connection's slot of this call. None while the caller itself drives the connection.
    pub(crate) door: Option<Waker>,
    /// The door was used, and the connection has not looked since.
    pub(crate) knocked: bool,

    /// Whole messages with their prefixes, on their way to the connection.
    pub(crate) outbound: Outbound,
    pub(crate) outbound_ended: bool,
    /// How messages are compressed that go into `outbound`, and what the call asked for.
    pub(crate) packing: Packing,
    pub(crate) compression: Compression,
    /// How many more bytes may be put in `outbound` before the sender must wait. One message may overshoot it.
    pub(crate) room: usize,
    pub(crate) send_waker: Option<Waker>,
    pub(crate) metadata_out: MetadataMap,
    /// Handler: the metadata is to leave ahead of the first message.
    pub(crate) metadata_out_due: bool,
    /// Handler: the metadata has left.
    pub(crate) metadata_sent: bool,
    pub(crate) trailers_out: MetadataMap,

    pub(crate) inbound: Inbound,
    pub(crate) inbound_ended: bool,
    /// The reader is gone: what still arrives is dropped.
    pub(crate) inbound_discarded: bool,
    /// Bytes of messages, prefixes included, that the reader took and that the connection has not credited yet.
    pub(crate) taken_bytes: usize,
    /// How many taken bytes are worth telling the connection about.
    release_bytes: usize,
    /// What the messages that arrive are compressed with, as far as they are.
    pub(crate) encoding_in: Option<Arc<str>>,
    /// Caller: how many messages have arrived.
    pub(crate) messages_in: usize,
    pub(crate) metadata_in: MetadataMap,
    pub(crate) metadata_arrived: bool,
    /// Caller: somebody waits for the metadata, whatever the shape.
    pub(crate) metadata_wanted: bool,
    pub(crate) trailers_in: MetadataMap,
    /// How the call ended. Once it is there, nothing more comes from the connection.
    pub(crate) status: Option<Status>,
    pub(crate) receive_waker: Option<Waker>,

    /// The caller gave up.
    pub(crate) cancelled: bool,
    /// The connection has half-closed the call.
    pub(crate) half_closed: bool,
    /// `outbound` still holds all that the caller sent, should the call have to be repeated on another connection.
    pub(crate) repeatable: bool,
    /// Where no connection can be had the call waits for one, and does not fail.
    pub(crate) waits_for_ready: bool,
    /// The call's index on its connection while it runs there.
    pub(crate) slot: Option<usize>,
    /// Caller: where the call waits for a connection, or for a stream on one.
    pub(crate) queue_place: Option<QueuePlace>,

    /// None for a call without interceptors.
    pub(crate) hooks: Option<Arc<CallHooks>>,

    /// Handler: the call as the reactor needs it that runs the handler, if that is another one than the connection's.
    pub(crate) order: Option<Box<Order>>,

    /// Caller: the span of the call while it goes on.
    pub(crate) span: CallSpan,
    /// Of the same span, or of the handler's.
    pub(crate) link: Link,

    pub(crate) path: String,
    pub(crate) deadline: Option<Instant>,
    /// How often the call was handed to a connection that then could not have processed it.
    pub(crate) attempts: u32,
}

impl CallCell {
    /// A cell that its shelf counts.
    pub(crate) fn counted(counted: Counted) -> Self {
        Self { state: Mutex::default(), _counted: Some(counted) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, CellState> {
        lock(&self.state)
    }

    /// The state of a cell that nobody else holds: user code may run over it, as there is nothing to lock.
    pub(crate) fn alone(cell: &mut Arc<Self>) -> Option<&mut CellState> {
        let only = Arc::get_mut(cell)?;
        Some(only.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Encodes `message` behind what already waits and tells the connection.
    ///
    /// # Errors
    /// The status that ended the call, or `RESOURCE_EXHAUSTED` for a message over `bytes_max`.
    pub(crate) fn send<P: Payload>(
        &self,
        message: &P,
        compress: Compress,
        bytes_max: usize,
    ) -> Result<(), Status> {
        let state = self.lock();
        self.send_locked(state, message, compress, bytes_max)
    }

    /// Waits for room, then [sends](Self::send) `message`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn poll_send<P: Payload>(
        &self,
        cx: &Context<'_>,
        message: &P,
        compress: Compress,
        bytes_max: usize,
    ) -> Poll<Result<(), Status>> {
        if self.send_staged(message, bytes_max) {
            return Poll::Ready(Ok(()));
        }
        let state = self.lock();
        if state.has_room() {
            return Poll::Ready(self.send_locked(state, message, compress, bytes_max));
        }
        drop(state);
        self.poll_room(cx).map(|room| room.and_then(|()| self.send(message, compress, bytes_max)))
    }

    fn send_locked<P: Payload>(
        &self,
        state: MutexGuard<'_, CellState>,
        message: &P,
        compress: Compress,
        bytes_max: usize,
    ) -> Result<(), Status> {
        let (mut state, encoded) = self.encode(state, message, compress, bytes_max);
        let length = encoded?;
        state.room = state.room.saturating_sub(length);
        knock(state);
        Ok(())
    }

    /// Encodes the only message of a call that has not begun, and leaves `waker` to be called at its end. False if whoever waits for
    /// that has to leave it by himself, because somebody else holds the cell too.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for a message over `bytes_max`.
    pub(crate) fn encode_whole<P: Payload>(
        cell: &mut Arc<Self>,
        message: &P,
        bytes_max: usize,
        waker: Option<&Waker>,
    ) -> Result<bool, Status> {
        if let Some(state) = Self::alone(cell)
            && state.hooks.is_none()
        {
            let encoded = state.packing.frame(message, Compress::Default, bytes_max, &mut state.outbound);
            state.outbound_ended = true;
            state.link.clone().sent(encoded?.saturating_sub(PREFIX_LEN));
            state.receive_waker = waker.cloned();
            return Ok(waker.is_some());
        }
        let (mut state, encoded) = cell.encode(cell.lock(), message, Compress::Default, bytes_max);
        state.outbound_ended = true;
        drop(state);
        encoded.map(|_| false)
    }

    /// Encodes `message` into the outbound buffer, outside of the lock.
    fn encode<'c, P: Payload>(
        &'c self,
        mut state: MutexGuard<'c, CellState>,
        message: &P,
        compress: Compress,
        bytes_max: usize,
    ) -> (MutexGuard<'c, CellState>, Result<usize, Status>) {
        let bytes = std::mem::take(&mut state.outbound);
        let link = state.link.clone();
        let rare = state.rare_sending();
        drop(state);
        stage::avoid(rare.is_some());
        let mut lent = LentOutbound { cell: self, whole: bytes.mark(), bytes, is_back: false };
        let encoded = match rare {
            None => lent.bytes.encode(message, bytes_max),
            Some((packing, None)) => packing.frame(message, compress, bytes_max, &mut lent.bytes),
            Some((packing, Some(hooks))) => self.open_response(&hooks).and_then(|()| {
                hooks.send(message, |shown| packing.frame(shown, compress, bytes_max, &mut lent.bytes))
            }),
        };
        if let Ok(length) = &encoded {
            link.sent(length.saturating_sub(PREFIX_LEN));
        }
        (lent.give_back(), encoded)
    }

    /// Lends what waits to be sent to `send`, and drops it, without the lock: `Bytes` of a user run the user's code when they are
    /// dropped.
    pub(crate) fn with_outbound<'c>(
        &'c self,
        mut state: MutexGuard<'c, CellState>,
        send: impl FnOnce(&Outbound),
    ) -> MutexGuard<'c, CellState> {
        let mut outbound = std::mem::take(&mut state.outbound);
        drop(state);
        send(&outbound);
        outbound.clear();
        let mut state = self.lock();
        if state.outbound.is_empty() {
            // Nothing was sent from another thread meanwhile: this one's memory is used again.
            std::mem::swap(&mut state.outbound, &mut outbound);
        }
        state
    }

    /// Sends `message` if there is room for it; false, and nothing sent, if there is none.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn try_send<P: Payload>(
        &self,
        message: &P,
        compress: Compress,
        bytes_max: usize,
    ) -> Result<bool, Status> {
        if self.send_staged(message, bytes_max) {
            return Ok(true);
        }
        let room = self.lock().check_room();
        match room {
            Poll::Ready(room) => room.and_then(|()| self.send(message, compress, bytes_max)).map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Ready when there is room to send.
    ///
    /// # Errors
    /// The status that ended the call.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<Result<(), Status>> {
        self.poll(cx, Guess::Ready, |state| &mut state.send_waker, CellState::check_room)
    }

    /// Says that no message follows, and tells the connection.
    pub(crate) fn end_outbound(&self) {
        let mut state = self.lock();
        if !state.outbound_ended {
            state.outbound_ended = true;
            knock(state);
        }
    }

    /// Swaps what has arrived into `queue`, which must be empty.
    pub(crate) fn poll_inbound(&self, cx: &Context<'_>, guess: Guess, queue: &mut Inbound) -> Poll<Arrived> {
        self.poll(cx, guess, |state| &mut state.receive_waker, |state| state.check_inbound(queue))
    }

    /// Ready when the peer's metadata has arrived, or the call has ended.
    ///
    /// # Errors
    /// The status of a call that failed before there was metadata.
    pub(crate) fn poll_metadata(&self, cx: &Context<'_>) -> Poll<Result<(), Status>> {
        self.poll(cx, Guess::Ready, |state| &mut state.receive_waker, CellState::check_metadata)
    }

    /// Ready when the call is over; the status stays in the cell.
    pub(crate) fn poll_end(&self, cx: &Context<'_>, guess: Guess) -> Poll<()> {
        self.poll(cx, guess, |state| &mut state.receive_waker, CellState::check_end)
    }

    /// Ready when the call is over.
    pub(crate) fn poll_status(&self, cx: &Context<'_>) -> Poll<Status> {
        self.poll(cx, Guess::Ready, |state| &mut state.receive_waker, CellState::check_status)
    }

    /// Asks `check`, and leaves the waker of `cx` in `place` when it has to wait.
    ///
    /// A waker is cloned and dropped without the lock, since both may run an executor's code: before, where `guess` is that it will
    /// be needed; else between two times of asking, which sees what happened meanwhile.
    fn poll<R>(
        &self,
        cx: &Context<'_>,
        guess: Guess,
        place: impl Fn(&mut CellState) -> &mut Option<Waker>,
        mut check: impl FnMut(&mut CellState) -> Poll<R>,
    ) -> Poll<R> {
        let mut waker = (guess == Guess::Pending).then(|| cx.waker().clone());
        loop {
            let mut state = self.lock();
            let checked = check(&mut state);
            let place = place(&mut state);
            if checked.is_ready() || place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                return checked;
            }
            if waker.is_some() {
                std::mem::swap(place, &mut waker);
                return checked;
            }
            drop(state);
            waker = Some(cx.waker().clone());
        }
    }

    /// Sends the metadata of a handler ahead of its first message.
    ///
    /// # Errors
    /// Interceptors refuse it.
    pub(crate) fn send_metadata(&self) -> Result<(), Status> {
        let hooks = self.lock().hooks.clone();
        if let Some(hooks) = hooks {
            self.show_metadata(&hooks)?;
        }
        let mut state = self.lock();
        state.metadata_out_due = true;
        knock(state);
        Ok(())
    }

    /// The reader took a message of `bytes` out of `queue`. The connection is told when the peer may be running dry; else the cell
    /// hears of it when the reader comes back to it.
    #[inline]
    pub(crate) fn taken(&self, queue: &mut Inbound, bytes: usize) {
        queue.taken_bytes += PREFIX_LEN + bytes;
        if queue.taken_bytes >= queue.release_bytes {
            let mut state = self.lock();
            state.taken_bytes += std::mem::take(&mut queue.taken_bytes);
            knock(state);
        }
    }

    /// The user gives the call up: a caller cancels it, which is its end for the other half of the call too; a handler drops what
    /// still arrives.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        if state.status.is_some() {
            let is_unread = state.shape.is_read_at_end();
            drop(state);
            if is_unread {
                self.leave_unread();
            }
            return;
        }
        let hooks = if state.side == Side::Caller { state.hooks.take() } else { None };
        let (mut ended, place) = (None, state.queue_place.take());
        match state.side {
            Side::Caller => {
                state.cancelled = true;
                ended = Some(state.end(Status::cancelled("the call was given up by its caller")));
            }
            Side::Handler => state.inbound_discarded = true,
        }
        knock(state);
        if let Some(place) = place {
            place.give_up();
        }
        if let Some(ended) = ended {
            ended.tell();
        }
        if let Some(hooks) = hooks {
            hooks.cut_off();
        }
    }

    /// The reader leaves, and does not want what it has not read: `queue` and what still arrives.
    pub(crate) fn abandon_reading(&self, queue: &mut Inbound) {
        let bytes = queue.discard() + std::mem::take(&mut queue.taken_bytes);
        let mut state = self.lock();
        state.taken_bytes += bytes;
        state.inbound.adopt_used(queue);
        drop(state);
        self.abandon();
        self.leave_unread();
    }

    /// The reader has read to the end and leaves: what its queue is done with goes back.
    pub(crate) fn finish_reading(&self, queue: &mut Inbound) {
        self.lock().inbound.adopt_used(queue);
    }
}

impl CellState {
    /// Whether a message may be sent without waiting.
    pub(crate) fn check_room(&mut self) -> Poll<Result<(), Status>> {
        if self.outbound_ended {
            return Poll::Ready(Err(Status::internal("sending was already finished on this call")));
        }
        match &self.status {
            Some(status) if status.code() == Code::Ok => Poll::Ready(Err(Status::cancelled(
                "the peer ended the call before it had taken all messages",
            ))),
            Some(status) => Poll::Ready(Err(status.clone())),
            None if self.room > 0 => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// Whether a message may be sent without waiting, and without anything to tell the sender.
    fn has_room(&self) -> bool {
        self.room > 0 && self.status.is_none() && !self.outbound_ended
    }

    /// What else messages go through, if they do not leave as they are.
    fn rare_sending(&self) -> Option<(Packing, Option<Arc<CallHooks>>)> {
        (!self.is_plain()).then(|| (self.packing.clone(), self.hooks.clone()))
    }

    /// Whether messages leave as they are.
    const fn is_plain(&self) -> bool {
        self.packing.is_plain() && self.hooks.is_none()
    }

    /// Whom to wake, without the lock, for there is something to do for the call: once until the connection has looked.
    #[inline]
    fn knock(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.knocked, true) { None } else { self.door.clone() }
    }

    /// What a reader gets without waiting. `queue`, emptied by its reader, changes places with the messages, so that its memory
    /// and the blocks it is done with return to the connection.
    #[inline]
    pub(crate) fn check_inbound(&mut self, queue: &mut Inbound) -> Poll<Arrived> {
        self.taken_bytes += std::mem::take(&mut queue.taken_bytes);
        // So that what neither has told the connection never comes to more.
        queue.release_bytes = self.release_bytes.saturating_sub(self.taken_bytes);
        if !self.inbound.is_empty() {
            self.inbound.hand_over(queue);
            queue.is_shown = self.hooks.is_some();
            return Poll::Ready(Arrived::Messages);
        }
        match &self.status {
            Some(status) if status.code() == Code::Ok => Poll::Ready(Arrived::End),
            Some(_) => Poll::Ready(Arrived::Failed),
            None if self.inbound_ended => Poll::Ready(Arrived::End),
            None => Poll::Pending,
        }
    }

    /// Handler: whether the metadata that goes ahead of the first message is on its way.
    pub(crate) fn has_sent_metadata(&self) -> bool {
        self.metadata_sent || self.metadata_out_due || !self.outbound.is_empty()
    }

    pub(crate) fn check_metadata(&mut self) -> Poll<Result<(), Status>> {
        match &self.status {
            Some(status) if !self.metadata_arrived && status.code() != Code::Ok => {
                Poll::Ready(Err(status.clone()))
            }
            None if !self.metadata_arrived => {
                self.metadata_wanted = true;
                Poll::Pending
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn check_end(&mut self) -> Poll<()> {
        if self.status.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn check_status(&mut self) -> Poll<Status> {
        match &self.status {
            Some(status) => Poll::Ready(status.clone()),
            None => Poll::Pending,
        }
    }

    /// The connection is one whose peer may send so many bytes ahead on a stream.
    pub(crate) fn set_window(&mut self, stream_window_bytes: u32) {
        self.release_bytes = (stream_window_bytes as usize / 4).min(RELEASE_BYTES_MAX);
    }

    /// What the connection has to credit for messages that the reader took or does not want, as the engine counts it: without the
    /// prefix that it adds itself.
    pub(crate) fn take_releases(&mut self) -> Option<usize> {
        if self.inbound_discarded {
            self.taken_bytes += self.inbound.discard();
        } else if self.taken_bytes < self.release_bytes.min(RELEASE_BYTES_MIN) {
            return None;
        }
        std::mem::take(&mut self.taken_bytes).checked_sub(PREFIX_LEN)
    }

    /// Ends the call for its user; a call that has ended keeps its first status. Returns the wakers to call once the lock is gone.
    #[must_use]
    pub(crate) fn end(&mut self, status: Status) -> Ended {
        self.inbound_ended = true;
        let status = self.status.get_or_insert(status);
        Ended {
            code: status.code(),
            span: std::mem::take(&mut self.span),
            wakers: [self.receive_waker.take(), self.send_waker.take()],
        }
    }
}

/// The outbound buffer of a cell in the hands of user code, which may panic: then the messages before are back as they were.
struct LentOutbound<'c> {
    cell: &'c CallCell,
    bytes: Outbound,
    /// How much of it is messages before.
    whole: Mark,
    /// It is back in the cell.
    is_back: bool,
}

impl<'c> LentOutbound<'c> {
    /// Puts the buffer back with everything in it.
    fn give_back(mut self) -> MutexGuard<'c, CellState> {
        let mut state = self.cell.lock();
        state.outbound = std::mem::take(&mut self.bytes);
        self.is_back = true;
        state
    }
}

impl Drop for LentOutbound<'_> {
    fn drop(&mut self) {
        if !self.is_back {
            self.bytes.truncate(self.whole);
            self.cell.lock().outbound = std::mem::take(&mut self.bytes);
        }
    }
}

/// Tells the connection that there is something to do for the call, once until it has looked. Gives up the lock first.
fn knock(mut state: MutexGuard<'_, CellState>) {
    let door = state.knock();
    drop(state);
    if let Some(door) = door {
        crate::wake(door);
    }
}

#[cfg(test)]
mod tests;
