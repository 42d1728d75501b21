//! Reading a stream of messages.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fulmar_grpc::{MetadataMap, Status};

use super::cell::{Arrived, Guess};
use super::reading::HeldReading;
use super::{CallCell, Inbound, Side};
use crate::client::Channel;
use crate::payload::{Payload, decode};

/// Messages of a call, read one by one: a handler's requests or a client's replies.
///
/// It may be used from any thread and under any executor. Messages wait here and with the peer: what is not read is not sent
/// further than one stream window (64 KiB by default) and one message.
///
/// Dropping a client's stream before its end cancels the call; a handler that drops its stream ignores what still arrives.
pub struct Streaming<T> {
    /// Behind a pointer: handlers' futures keep a stream in several places.
    reading: HeldReading,
    message: PhantomData<fn() -> T>,
}

impl<T: Payload> Streaming<T> {
    /// Waits for the next message. `None` is the end: a client then knows that the call succeeded, a handler that the client
    /// has half-closed.
    ///
    /// # Errors
    /// The status that ended the call; a message that cannot be decoded gives `INTERNAL` and cancels the call.
    ///
    /// ```
    /// # async fn read(mut numbers: fulmar::Streaming<fulmar::Raw>) -> Result<(), fulmar::Status> {
    /// while let Some(number) = numbers.message().await? {
    ///     println!("{} bytes", number.as_ref().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn message(&mut self) -> Result<Option<T>, Status> {
        let mut message = T::default();
        Ok(self.message_into(&mut message).await?.then_some(message))
    }

    /// Waits for the next message and decodes it into `message`, whose memory is reused: a stream read in this way costs no
    /// allocation for strings, bytes and repeated scalars. False is the end, and leaves `message` as it is.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub async fn message_into(&mut self, message: &mut T) -> Result<bool, Status> {
        if self.reading.queue.is_empty() && !self.fill().await? {
            return Ok(false);
        }
        self.decode_next(message)
    }

    /// The next message for those who poll by hand, such as an adapter to another crate's `Stream`:
    /// `futures::stream::poll_fn(move |cx| messages.poll_message(cx).map(Result::transpose))`.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<T>, Status>> {
        pin!(self.message()).poll(cx)
    }

    /// Fills the queue. False is the end.
    async fn fill(&mut self) -> Result<bool, Status> {
        if self.reading.ended {
            return Ok(false);
        }
        let mut guess = Guess::Pending;
        let reading = &mut *self.reading;
        let arrived = poll_fn(|cx| reading.cell.poll_inbound(cx, guess.next(), &mut reading.queue)).await;
        self.filled(arrived)
    }

    /// Takes what the cell answered. False is the end.
    #[inline]
    pub(crate) fn filled(&mut self, arrived: Arrived) -> Result<bool, Status> {
        if arrived == Arrived::Messages { Ok(true) } else { self.end().map(|()| false) }
    }

    /// There are no more messages.
    fn end(&mut self) -> Result<(), Status> {
        let reading = &mut *self.reading;
        reading.ended = true;
        let mut state = reading.cell.lock();
        // A handler's call goes on when its client has half-closed.
        let ended = state.status.as_ref().filter(|status| !status.is_ok()).cloned().map_or(Ok(()), Err);
        std::mem::swap(&mut reading.trailers, &mut state.trailers_in);
        let hooks = if state.side == Side::Caller { state.hooks.take() } else { None };
        drop(state);
        match hooks {
            None => ended,
            Some(hooks) => {
                let mut status = ended.err().unwrap_or_default();
                hooks.finish(&mut status, &mut reading.trailers);
                if status.is_ok() { Ok(()) } else { Err(status) }
            }
        }
    }

    /// Decodes the oldest message of the queue. False when there is none.
    pub(crate) fn decode_next(&mut self, message: &mut T) -> Result<bool, Status> {
        let reading = &mut *self.reading;
        let cell = &reading.cell;
        let hooks = if reading.queue.is_shown() { cell.lock().hooks.clone() } else { None };
        let taken = reading.queue.take(|body, arena| {
            if let Some(hooks) = &hooks {
                cell.show_message(hooks, &body)?;
            }
            decode(message, body, arena)
        });
        let Some((decoded, length)) = taken else { return Ok(false) };
        reading.cell.taken(&mut reading.queue, length);
        if let Err(mut status) = decoded {
            reading.ended = true;
            if hooks.is_some_and(|hooks| hooks.side() == Side::Caller) {
                status = reading.cell.fail(status);
            }
            reading.cell.abandon_reading(&mut reading.queue);
            return Err(status);
        }
        Ok(true)
    }
}

impl<T> Streaming<T> {
    pub(crate) fn new(cell: Arc<CallCell>, channel: Option<Channel>) -> Self {
        Self { reading: HeldReading::new(cell, channel), message: PhantomData }
    }

    pub(crate) fn cell(&self) -> &Arc<CallCell> {
        &self.reading.cell
    }

    /// Leaves the call, as dropping does, and gives its cell away.
    pub(crate) fn take_cell(&mut self) -> Option<Arc<CallCell>> {
        let reading = &mut *self.reading;
        let cell = reading.cell.take()?;
        if reading.ended {
            cell.finish_reading(&mut reading.queue);
        } else {
            cell.abandon_reading(&mut reading.queue);
        }
        Some(cell)
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Inbound {
        &mut self.reading.queue
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.reading.queue.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.reading.ended
    }

    /// Whether the message read last was compressed on its way: its flag was 1. False before the first one.
    pub fn last_was_compressed(&self) -> bool {
        self.reading.queue.last_was_compressed()
    }

    /// What the messages are compressed with, as far as they are: the `grpc-encoding` of the other side. None for plain messages; for
    /// a client also before the server's metadata has arrived.
    pub fn encoding(&self) -> Option<Arc<str>> {
        self.reading.cell.lock().encoding_in.clone()
    }

    /// Client: waits for the metadata that the server sends ahead of its messages.
    ///
    /// # Errors
    /// The status of a call that failed before there was any.
    pub async fn metadata(&mut self) -> Result<MetadataMap, Status> {
        poll_fn(|cx| self.reading.cell.poll_metadata(cx)).await?;
        let metadata = self.reading.cell.take_metadata(|metadata| metadata.clone());
        if metadata.is_err() {
            let reading = &mut *self.reading;
            reading.ended = true;
            reading.cell.abandon_reading(&mut reading.queue);
        }
        metadata
    }

    /// Client: the metadata that followed the last message. Empty before the end, which is when
    /// [`message`](Self::message) has given `None` or an error.
    pub fn trailers(&self) -> &MetadataMap {
        &self.reading.trailers
    }
}

impl<T> Drop for Streaming<T> {
    fn drop(&mut self) {
        if let (Some(cell), Some(channel)) = (self.take_cell(), &self.reading.channel) {
            channel.give_cell(cell);
        }
    }
}

impl<T> std::fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streaming").field("ended", &self.reading.ended).finish_non_exhaustive()
    }
}
