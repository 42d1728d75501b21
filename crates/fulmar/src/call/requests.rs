//! A client's side of the messages that it sends.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use fulmar_grpc::{Compress, MetadataMap, Status};

use super::cell::Guess;
use super::{CallCell, HeldCell, Streaming};
use crate::Response;
use crate::client::reply;
use crate::encoded::Encoded;
use crate::payload::Payload;

/// Where a client writes the requests of a streaming call.
///
/// [`finish`](Self::finish) half-closes: the server then knows that no request follows. Dropping it without, while the call is
/// still open, cancels the call, so that an upload that was cut short never looks like a whole one.
pub struct Requests<T> {
    cell: HeldCell,
    message_bytes_max: usize,
    finished: bool,
    message: PhantomData<fn(&T)>,
}

impl<T: Payload> Requests<T> {
    /// Sends one message by reference. Waits while the server is slow: while the stream's queue (64 KiB) is full because the
    /// server's window, the connection's window or the socket is.
    ///
    /// # Errors
    /// The status that ended the call; `RESOURCE_EXHAUSTED` for a message over the channel's send limit.
    pub async fn send(&mut self, message: &T) -> Result<(), Status> {
        self.send_with(message, Compress::Default).await
    }

    /// Sends one message, compressed or not, on a call that has an encoding (see
    /// [`Request::set_compression`](crate::Request::set_compression)). Otherwise as [`send`](Self::send).
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

    /// Sends one message if that takes no waiting; false, and nothing sent, while the server is slow.
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

impl<T> Requests<T> {
    pub(crate) fn new(cell: Arc<CallCell>, message_bytes_max: usize) -> Self {
        Self { cell: cell.into(), message_bytes_max, finished: false, message: PhantomData }
    }

    /// Half-closes: no request follows. Never waits.
    pub fn finish(mut self) {
        self.finish_mut();
    }

    pub(crate) fn finish_mut(&mut self) {
        self.finished = true;
        self.cell.end_outbound();
    }
}

impl<T> Drop for Requests<T> {
    fn drop(&mut self) {
        if !self.finished {
            self.cell.abandon();
        }
    }
}

impl<T> std::fmt::Debug for Requests<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("finished", &self.finished).finish_non_exhaustive()
    }
}

/// A client-streaming call: requests go up, one reply comes down.
///
/// ```
/// # async fn sum(mut numbers: fulmar::Upload<fulmar::Raw, fulmar::Raw>) -> Result<(), fulmar::Status> {
/// numbers.send(&fulmar::Raw::from(vec![8, 1])).await?;
/// numbers.send(&fulmar::Raw::from(vec![8, 2])).await?;
/// let sum = numbers.finish().await?;
/// # drop(sum);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Upload<Req, Resp> {
    requests: Requests<Req>,
    channel: crate::Channel,
    reply: PhantomData<fn() -> Resp>,
}

impl<Req: Payload, Resp: Payload> Upload<Req, Resp> {
    pub(crate) fn new(requests: Requests<Req>, channel: crate::Channel) -> Self {
        Self { requests, channel, reply: PhantomData }
    }

    /// Sends one request, as [`Requests::send`].
    ///
    /// # Errors
    /// The status that ended the call, which may be before all requests were sent. When the server has answered with OK and wants
    /// no more, it is `CANCELLED`, and [`finish`](Self::finish) has the reply.
    pub async fn send(&mut self, message: &Req) -> Result<(), Status> {
        self.requests.send(message).await
    }

    /// Sends one request if that takes no waiting, as [`Requests::try_send`].
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, message: &Req) -> Result<bool, Status> {
        self.requests.try_send(message)
    }

    /// Sends one request that was encoded before, as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_encoded(&mut self, message: &Encoded<Req>) -> Result<(), Status> {
        self.requests.send_encoded(message).await
    }

    /// Waits for the metadata that the server sends ahead of its reply, which it may do while requests are still sent.
    ///
    /// # Errors
    /// The status of a call that failed before there was any.
    pub async fn metadata(&mut self) -> Result<MetadataMap, Status> {
        poll_fn(|cx| self.requests.cell.poll_metadata(cx)).await?;
        self.requests.cell.take_metadata(|metadata| metadata.clone())
    }

    /// Sends one request, compressed or not, as [`Requests::send_with`].
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with(&mut self, message: &Req, compress: Compress) -> Result<(), Status> {
        self.requests.send_with(message, compress).await
    }

    /// Half-closes and waits for the reply.
    ///
    /// # Errors
    /// The status of a call that failed; `UNIMPLEMENTED` when the server did not answer with exactly one message.
    pub async fn finish(mut self) -> Result<Response<Resp>, Status> {
        if self.requests.cell.lock().status.is_none() {
            self.requests.finish_mut();
        }
        self.requests.finished = true;
        let waiting = CancelOnDrop { cell: &self.requests.cell };
        let mut guess = Guess::Pending;
        poll_fn(|cx| waiting.cell.poll_end(cx, guess.next())).await;
        std::mem::forget(waiting);
        let response = reply::take_single(&mut self.requests.cell, self.channel.shelf());
        if let Some(cell) = self.requests.cell.take() {
            self.channel.give_cell(cell);
        }
        response
    }
}

/// Cancels a call whose future is dropped while it waits for the end.
struct CancelOnDrop<'c> {
    cell: &'c CallCell,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.cell.abandon();
    }
}

/// A call that streams both ways. Its two halves may go to different tasks or threads.
///
/// ```
/// # async fn chat(call: fulmar::Duplex<fulmar::Raw, fulmar::Raw>) -> Result<(), fulmar::Status> {
/// let fulmar::Duplex { mut requests, mut replies } = call;
/// requests.send(&fulmar::Raw::from(vec![8, 1])).await?;
/// requests.finish();
/// while let Some(reply) = replies.message().await? {
///     println!("{} bytes", reply.as_ref().len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Duplex<Req, Resp> {
    /// Where requests are written.
    pub requests: Requests<Req>,
    /// Where replies are read.
    pub replies: Streaming<Resp>,
}
