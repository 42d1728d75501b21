//! Streaming calls of a blocking channel. Each borrows its channel until it ends.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use fulmar_grpc::{Compress, MetadataMap, Status};

use super::Channel;
use crate::call::cell::CellState;
use crate::call::{CallCell, HeldCell};
use crate::encoded::Encoded;
use crate::local::refuse_on_reactor;
use crate::metadata_lease::MetadataShelf;
use crate::payload::Payload;
use crate::response::Response;

/// Replies, read one by one, with [`message`](Self::message) or as an iterator. Dropping it before its end cancels the call.
pub struct Streaming<'c, T> {
    channel: &'c mut Channel,
    replies: crate::Streaming<T>,
}

impl<'c, T: Payload> Streaming<'c, T> {
    pub(super) fn new(channel: &'c mut Channel, cell: Arc<CallCell>) -> Self {
        Self { channel, replies: crate::Streaming::new(cell, None) }
    }

    /// Waits for the next message. `None` is the end of a call that succeeded.
    ///
    /// # Errors
    /// The status that ended the call; a message that cannot be decoded gives `INTERNAL` and cancels the call.
    pub fn message(&mut self) -> Result<Option<T>, Status> {
        let mut message = T::default();
        Ok(self.message_into(&mut message)?.then_some(message))
    }

    /// Waits for the next message and decodes it into `message`, whose memory is reused. False is the end.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub fn message_into(&mut self, message: &mut T) -> Result<bool, Status> {
        if !self.replies.has_queued() {
            if self.replies.has_ended() {
                return Ok(false);
            }
            refuse_on_reactor("reading from a blocking stream")?;
            let cell = self.replies.cell().clone();
            let queue = self.replies.queue_mut();
            let arrived = self.channel.wait(&cell, |state| state.check_inbound(queue));
            if !self.replies.filled(arrived)? {
                return Ok(false);
            }
        }
        self.replies.decode_next(message)
    }

    pub(super) fn wait<R>(&mut self, check: impl FnMut(&mut CellState) -> Poll<R>) -> R {
        let cell = self.replies.cell().clone();
        self.channel.wait(&cell, check)
    }
}

impl<T> Streaming<'_, T> {
    /// The metadata that followed the last message; empty before the end.
    pub fn trailers(&self) -> &MetadataMap {
        self.replies.trailers()
    }

    /// Whether the message read last was compressed on its way: its flag was 1. False before the first one.
    pub fn last_was_compressed(&self) -> bool {
        self.replies.last_was_compressed()
    }

    /// What the messages are compressed with, as far as they are; None for plain messages, and before the server's metadata has
    /// arrived.
    pub fn encoding(&self) -> Option<Arc<str>> {
        self.replies.encoding()
    }

    pub(super) fn shelf(&self) -> &Arc<MetadataShelf> {
        self.channel.shelf()
    }
}

impl<T: Payload> Iterator for Streaming<'_, T> {
    type Item = Result<T, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        self.message().transpose()
    }
}

impl<T> Drop for Streaming<'_, T> {
    fn drop(&mut self) {
        if let Some(cell) = self.replies.take_cell() {
            if !self.replies.has_ended() {
                self.channel.flush(&cell);
            }
            self.channel.give_cell(cell);
        }
    }
}

impl<T> std::fmt::Debug for Streaming<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.replies.fmt(f)
    }
}

/// A client-streaming call: requests go up, one reply comes down. Dropping it without [`finish`](Self::finish) cancels the call.
pub struct Upload<'c, Req, Resp> {
    channel: &'c mut Channel,
    cell: HeldCell,
    types: PhantomData<fn(&Req) -> Resp>,
}

impl<'c, Req: Payload, Resp: Payload> Upload<'c, Req, Resp> {
    pub(super) fn new(channel: &'c mut Channel, cell: Arc<CallCell>) -> Self {
        Self { channel, cell: cell.into(), types: PhantomData }
    }

    /// Sends one request by reference. Waits while the server is slow.
    ///
    /// # Errors
    /// The status that ended the call; `RESOURCE_EXHAUSTED` for a message over the channel's send limit. When the server has
    /// answered with OK and wants no more, it is `CANCELLED`, and [`finish`](Self::finish) has the reply.
    pub fn send(&mut self, message: &Req) -> Result<(), Status> {
        self.send_with(message, Compress::Default)
    }

    /// Sends one request, compressed or not, on a call that has an encoding. Otherwise as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_with(&mut self, message: &Req, compress: Compress) -> Result<(), Status> {
        send(self.channel, &self.cell, message, compress)
    }

    /// Sends one request that was encoded before, as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_encoded(&mut self, message: &Encoded<Req>) -> Result<(), Status> {
        send(self.channel, &self.cell, message, Compress::Default)
    }

    /// Waits for the metadata that the server sends ahead of its reply, which it may do while requests are still sent.
    ///
    /// # Errors
    /// The status of a call that failed before there was any.
    pub fn metadata(&mut self) -> Result<MetadataMap, Status> {
        refuse_on_reactor("waiting for the metadata of a blocking call")?;
        self.channel.wait(&self.cell, CellState::check_metadata)?;
        self.cell.take_metadata(|metadata| metadata.clone())
    }

    /// Half-closes and waits for the reply.
    ///
    /// # Errors
    /// The status of a call that failed; `UNIMPLEMENTED` when the server did not answer with exactly one message.
    pub fn finish(mut self) -> Result<Response<Resp>, Status> {
        refuse_on_reactor("finishing a blocking call")?;
        self.cell.end_outbound();
        self.channel.wait(&self.cell, CellState::check_end);
        crate::client::reply::take_single(&mut self.cell, self.channel.shelf())
    }
}

impl<Req, Resp> Drop for Upload<'_, Req, Resp> {
    fn drop(&mut self) {
        // A call that has ended stays as it is.
        if let Some(cell) = self.cell.take() {
            cell.abandon();
            self.channel.flush(&cell);
            self.channel.give_cell(cell);
        }
    }
}

impl<Req, Resp> std::fmt::Debug for Upload<'_, Req, Resp> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").finish_non_exhaustive()
    }
}

/// A call that streams both ways, by one thread: it writes when it wants to and reads when it wants to. While it writes more than
/// the server takes, replies that arrive are put aside, as far as their stream's window goes.
pub struct Duplex<'c, Req, Resp> {
    replies: Streaming<'c, Resp>,
    types: PhantomData<fn(&Req)>,
}

impl<'c, Req: Payload, Resp: Payload> Duplex<'c, Req, Resp> {
    pub(super) fn new(channel: &'c mut Channel, cell: Arc<CallCell>) -> Self {
        Self { replies: Streaming::new(channel, cell), types: PhantomData }
    }

    /// Sends one request by reference. Waits while the server is slow.
    ///
    /// # Errors
    /// The status that ended the call; `RESOURCE_EXHAUSTED` for a message over the channel's send limit.
    pub fn send(&mut self, message: &Req) -> Result<(), Status> {
        self.send_with(message, Compress::Default)
    }

    /// Sends one request, compressed or not, on a call that has an encoding. Otherwise as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_with(&mut self, message: &Req, compress: Compress) -> Result<(), Status> {
        let cell = self.replies.replies.cell().clone();
        send(self.replies.channel, &cell, message, compress)
    }

    /// Sends one request that was encoded before, as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_encoded(&mut self, message: &Encoded<Req>) -> Result<(), Status> {
        let cell = self.replies.replies.cell().clone();
        send(self.replies.channel, &cell, message, Compress::Default)
    }

    /// Half-closes: no request follows.
    pub fn finish_sending(&mut self) {
        let cell = self.replies.replies.cell().clone();
        cell.end_outbound();
        self.replies.channel.flush(&cell);
    }

    /// Waits for the next reply, as [`Streaming::message`].
    ///
    /// # Errors
    /// As [`Streaming::message`].
    pub fn message(&mut self) -> Result<Option<Resp>, Status> {
        self.replies.message()
    }

    /// Waits for the next reply and decodes it into `message`, as [`Streaming::message_into`].
    ///
    /// # Errors
    /// As [`Streaming::message`].
    pub fn message_into(&mut self, message: &mut Resp) -> Result<bool, Status> {
        self.replies.message_into(message)
    }

    /// Waits for the metadata that the server sends ahead of its messages.
    ///
    /// # Errors
    /// The status of a call that failed before there was any.
    pub fn metadata(&mut self) -> Result<MetadataMap, Status> {
        refuse_on_reactor("waiting for the metadata of a blocking call")?;
        self.replies.wait(CellState::check_metadata)?;
        self.replies.replies.cell().take_metadata(|metadata| metadata.clone())
    }

    /// The metadata that followed the last reply; empty before the end.
    pub fn trailers(&self) -> &MetadataMap {
        self.replies.trailers()
    }

    /// Whether the reply read last was compressed on its way, as [`Streaming::last_was_compressed`].
    pub fn last_was_compressed(&self) -> bool {
        self.replies.last_was_compressed()
    }

    /// What the replies are compressed with, as [`Streaming::encoding`].
    pub fn encoding(&self) -> Option<Arc<str>> {
        self.replies.encoding()
    }
}

impl<Req, Resp> std::fmt::Debug for Duplex<'_, Req, Resp> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.replies.fmt(f)
    }
}

fn send<Req: Payload>(
    channel: &mut Channel,
    cell: &Arc<CallCell>,
    message: &Req,
    compress: Compress,
) -> Result<(), Status> {
    refuse_on_reactor("sending on a blocking stream")?;
    channel.wait(cell, CellState::check_room)?;
    cell.send(message, compress, channel.send_message_bytes_max())?;
    channel.flush(cell);
    Ok(())
}
