//! A handler's side of the messages that it sends.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use fulmar_grpc::{Compress, Compression, MetadataMap, Status};

use super::CallCell;
use crate::encoded::Encoded;
use crate::payload::Payload;

/// Where a handler writes its replies.
///
/// The handler's return ends the call. Replies may be moved to another thread or task; there, sending works the same.
pub struct Replies<T> {
    cell: Arc<CallCell>,
    message_bytes_max: usize,
    message: PhantomData<fn(&T)>,
}

impl<T: Payload> Replies<T> {
    /// Sends one message by reference. Waits while the client is slow: that is, while the stream's queue (64 KiB) is full
    /// because the client's window, the connection's window or the socket is.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED` when the call is over for the client; `RESOURCE_EXHAUSTED` for a message over the
    /// server's send limit.
    pub async fn send(&mut self, message: &T) -> Result<(), Status> {
        self.send_with(message, Compress::Default).await
    }

    /// Sends one message, compressed or not, on a call that has an encoding (see [`set_compression`](Self::set_compression)).
    /// Otherwise as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with(&mut self, message: &T, compress: Compress) -> Result<(), Status> {
        poll_fn(|cx| self.cell.poll_send(cx, message, compress, self.message_bytes_max)).await
    }

    /// Sends a message that was encoded before, as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_encoded(&mut self, message: &Encoded<T>) -> Result<(), Status> {
        poll_fn(|cx| self.cell.poll_send(cx, message, Compress::Default, self.message_bytes_max)).await
    }

    /// Sends one message if that takes no waiting; false, and nothing sent, while the client is slow.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, message: &T) -> Result<bool, Status> {
        self.try_send_with(message, Compress::Default)
    }

    /// Sends one message, compressed or not, if that takes no waiting, as [`try_send`](Self::try_send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send_with(&mut self, message: &T, compress: Compress) -> Result<bool, Status> {
        self.cell.try_send(message, compress, self.message_bytes_max)
    }

    /// Ready when there is room for a message, for those who poll by hand; [`try_send`](Self::try_send) then sends one.
    ///
    /// # Errors
    /// The status that ended the call.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.cell.poll_room(cx)
    }
}

impl<T> Replies<T> {
    pub(crate) fn new(cell: Arc<CallCell>, message_bytes_max: usize) -> Self {
        Self { cell, message_bytes_max, message: PhantomData }
    }

    /// Changes the metadata that goes ahead of the first message. It has no effect once that was sent, or
    /// [`send_metadata`](Self::send_metadata) was called.
    ///
    /// ```
    /// # fn set<T>(replies: &mut fulmar::Replies<T>) {
    /// replies.metadata(|metadata| metadata.insert("x-served-by", "fulmar")).unwrap();
    /// # }
    /// ```
    pub fn metadata<R>(&mut self, change: impl FnOnce(&mut MetadataMap) -> R) -> R {
        if self.cell.lock().has_sent_metadata() {
            return change(&mut MetadataMap::new());
        }
        self.cell.with_map(|state| &mut state.metadata_out, change)
    }

    /// Has the messages of this call compressed so; by default they are as the server is set. Once the first message or the metadata
    /// was sent, it can only change which messages are compressed. Messages are plain where the client does not accept what is asked
    /// for.
    ///
    /// # Errors
    /// `INTERNAL` for an encoding that the server has not registered.
    pub fn set_compression(&mut self, compression: &Compression) -> Result<(), Status> {
        let mut state = self.cell.lock();
        let is_told = state.has_sent_metadata();
        state.packing.set(compression, is_told)
    }

    /// Sends the metadata now, ahead of any message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_metadata(&mut self) -> Result<(), Status> {
        poll_fn(|cx| self.cell.poll_room(cx)).await?;
        self.cell.send_metadata()
    }

    /// Changes the metadata that follows the last message.
    pub fn trailers<R>(&mut self, change: impl FnOnce(&mut MetadataMap) -> R) -> R {
        self.cell.with_map(|state| &mut state.trailers_out, change)
    }
}

impl<T> std::fmt::Debug for Replies<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}
