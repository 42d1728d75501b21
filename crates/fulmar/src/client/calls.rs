//! Calls over a channel, by the name of their method.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fulmar_grpc::encoding::PeerAccepts;
use fulmar_grpc::{Compression, Status};
use fulmar_reactor::clock;

use super::{Channel, ChannelSpec, PendingCall, reply};
use crate::call::cell::{CellState, Guess};
use crate::call::{CallCell, CellShape, Duplex, Requests, Side, Streaming, Upload};
use crate::context::CallContext;
use crate::metadata_lease::MetadataLease;
use crate::packing::Packing;
use crate::payload::Payload;
use crate::request::IntoRequest;
use crate::response::Response;
use crate::trace::CallSpan;

impl Channel {
    /// Calls a method that takes one message and answers with one. `path` is `/package.Service/Method`.
    ///
    /// The request is encoded, and the reply decoded, on the thread that polls. Dropping the future cancels the call.
    ///
    /// # Errors
    /// The server's status; `DEADLINE_EXCEEDED` when the request's timeout has passed; `UNAVAILABLE` when there is no
    /// connection, with the endpoint and what happened; `UNIMPLEMENTED` when the server did not answer with exactly one message.
    pub async fn unary<Req: Payload, Resp: Payload>(
        &self,
        path: &str,
        request: impl IntoRequest<Req>,
    ) -> Result<Response<Resp>, Status> {
        let (message, mut context) = request.into_request().into_message_and_context();
        let extensions = context.take_extensions();
        let cell = self.prepare(path, context, CellShape::OneReply)?;
        if !self.chain().is_empty() {
            self.pass(path, extensions, &cell).await?;
        }
        let mut running = Running { cell: Some(cell), channel: self };
        let mut message = Some(message);
        poll_fn(|cx| match message.take() {
            Some(message) => running.begin(cx, &message),
            None => running.poll_reply(cx),
        })
        .await
    }

    /// Calls a method that takes one message and answers with a stream of them. Waits for the server's metadata.
    ///
    /// # Errors
    /// As [`unary`](Self::unary), for calls that fail before there is any metadata; later failures come from the stream.
    pub async fn server_streaming<Req: Payload, Resp: Payload>(
        &self,
        path: &str,
        request: impl IntoRequest<Req>,
    ) -> Result<Response<Streaming<Resp>>, Status> {
        let (message, mut context) = request.into_request().into_message_and_context();
        let extensions = context.take_extensions();
        let mut cell = self.prepare(path, context, CellShape::EachMessage)?;
        if !self.chain().is_empty() {
            self.pass(path, extensions, &cell).await?;
        }
        self.send_whole(&mut cell, &message, None)?;
        let replies = Streaming::new(cell, Some(self.clone()));
        if let Err(status) = poll_fn(|cx| replies.cell().poll_metadata(cx)).await {
            return Err(replies.cell().fail(status));
        }
        let metadata = replies.cell().take_metadata(|metadata| self.shelf().lease_from(metadata))?;
        let encoding = replies.encoding();
        Ok(Response::with_leases(replies, metadata, MetadataLease::default()).received(encoding, false))
    }

    /// Calls a method that takes a stream of messages and answers with one. The request carries metadata and deadline only.
    /// Waits for nothing: what goes wrong is told by the call's [`send`](Upload::send) and [`finish`](Upload::finish).
    ///
    /// # Errors
    /// `UNAVAILABLE` when no reactor could be started for the call; `DEADLINE_EXCEEDED` when it has no time at all.
    pub async fn client_streaming<Req: Payload, Resp: Payload>(
        &self,
        path: &str,
        request: impl IntoRequest<()>,
    ) -> Result<Upload<Req, Resp>, Status> {
        let ((), mut context) = request.into_request().into_message_and_context();
        let extensions = context.take_extensions();
        let cell = self.prepare(path, context, CellShape::WholeCall)?;
        if !self.chain().is_empty() {
            self.pass(path, extensions, &cell).await?;
        }
        self.submit(PendingCall::call(cell.clone())).map_err(|status| cell.fail(status))?;
        let requests = Requests::new(cell, self.config().grpc.send_message_bytes_max);
        Ok(Upload::new(requests, self.clone()))
    }

    /// Calls a method that streams both ways. The request carries metadata and deadline only. Waits for nothing: what goes
    /// wrong is told by the call's two halves.
    ///
    /// # Errors
    /// `UNAVAILABLE` when no reactor could be started for the call; `DEADLINE_EXCEEDED` when it has no time at all.
    pub async fn bidi<Req: Payload, Resp: Payload>(
        &self,
        path: &str,
        request: impl IntoRequest<()>,
    ) -> Result<Duplex<Req, Resp>, Status> {
        let ((), mut context) = request.into_request().into_message_and_context();
        let extensions = context.take_extensions();
        let cell = self.prepare(path, context, CellShape::EachMessage)?;
        if !self.chain().is_empty() {
            self.pass(path, extensions, &cell).await?;
        }
        self.submit(PendingCall::call(cell.clone())).map_err(|status| cell.fail(status))?;
        let requests = Requests::new(cell.clone(), self.config().grpc.send_message_bytes_max);
        Ok(Duplex { requests, replies: Streaming::new(cell, Some(self.clone())) })
    }

    /// Encodes the only message of a call and sends both on their way. Returns whether `waker` will be called at the end.
    fn send_whole<Req: Payload>(
        &self,
        cell: &mut Arc<CallCell>,
        message: &Req,
        waker: Option<&Waker>,
    ) -> Result<bool, Status> {
        CallCell::encode_whole(cell, message, self.config().grpc.send_message_bytes_max, waker)
            .and_then(|is_heard| self.submit(PendingCall::call(cell.clone())).map(|()| is_heard))
            .map_err(|status| cell.fail(status))
    }

    fn prepare(
        &self,
        path: &str,
        mut context: CallContext,
        shape: CellShape,
    ) -> Result<Arc<CallCell>, Status> {
        let mut cell = self.take_cell();
        match prepare(&mut cell, path, &mut context, shape, self.spec()) {
            Ok(()) => Ok(cell),
            Err(status) => {
                self.give_cell(cell);
                Err(status)
            }
        }
    }
}

/// Writes into a fresh cell what the connection needs to begin the call.
///
/// # Errors
/// `DEADLINE_EXCEEDED` for a call that has no time at all: nothing is sent for it, and no connection is made. `INTERNAL` for one that
/// asks for an encoding that the channel does not know.
pub(crate) fn prepare(
    cell: &mut Arc<CallCell>,
    path: &str,
    context: &mut CallContext,
    shape: CellShape,
    spec: &ChannelSpec,
) -> Result<(), Status> {
    let span = CallSpan::of_caller(path, spec.authority());
    let state = CallCell::alone(cell).expect("a shelf gives cells that nobody else holds");
    let written = write(state, path, context, shape, spec);
    match &written {
        Ok(()) => {
            state.link = span.link();
            state.span = span;
        }
        Err(status) => span.end(status.code()),
    }
    written
}

fn write(
    state: &mut CellState,
    path: &str,
    context: &mut CallContext,
    shape: CellShape,
    spec: &ChannelSpec,
) -> Result<(), Status> {
    state.side = Side::Caller;
    state.shape = shape;
    state.path.push_str(path);
    if !context.metadata().is_empty() {
        std::mem::swap(&mut state.metadata_out, context.metadata_mut());
    }
    let compression = context.compression();
    // A recycled cell packs nothing.
    if spec.press.is_some() || *compression != Compression::Default {
        state.packing = Packing::new(spec.press.as_ref(), PeerAccepts::ANYTHING, None);
        state.packing.set(compression, false)?;
        state.compression = compression.clone();
    }
    state.waits_for_ready = context.waits_for_ready().unwrap_or(spec.config.waits_for_ready);
    state.deadline = context.deadline_from_now(spec.config.timeout);
    if state.deadline.is_some_and(|deadline| deadline <= clock()) {
        return Err(Status::deadline_exceeded("the deadline had passed before the call was made"));
    }
    Ok(())
}

/// A call whose future is being polled; cancels it when the future is dropped before the end.
struct Running<'c> {
    cell: Option<Arc<CallCell>>,
    channel: &'c Channel,
}

impl Running<'_> {
    /// Sends the call, with its message, on its way.
    fn begin<Req: Payload, Resp: Payload>(
        &mut self,
        cx: &Context<'_>,
        message: &Req,
    ) -> Poll<Result<Response<Resp>, Status>> {
        let Some(cell) = &mut self.cell else { return Poll::Ready(Err(polled_after_end())) };
        match self.channel.send_whole(cell, message, Some(cx.waker())) {
            Ok(true) => Poll::Pending,
            Ok(false) => self.poll_reply(cx),
            Err(status) => {
                self.cell = None;
                Poll::Ready(Err(status))
            }
        }
    }

    fn poll_reply<Resp: Payload>(&mut self, cx: &Context<'_>) -> Poll<Result<Response<Resp>, Status>> {
        let Some(cell) = &mut self.cell else { return Poll::Ready(Err(polled_after_end())) };
        // Most often the connection has let go of the cell: then there is nothing to lock.
        if let Some(state) = CallCell::alone(cell)
            && state.status.is_some()
        {
            let response = reply::take_alone(state, self.channel.shelf());
            let bytes = state.recycle();
            if let Some(cell) = self.cell.take() {
                self.channel.keep_cell(cell, Some(bytes));
            }
            return Poll::Ready(response);
        }
        ready!(cell.poll_end(cx, Guess::Ready));
        let response = reply::take_single(cell, self.channel.shelf());
        if let Some(cell) = self.cell.take() {
            self.channel.give_cell(cell);
        }
        Poll::Ready(response)
    }
}

fn polled_after_end() -> Status {
    Status::internal("the call was polled after its end")
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.abandon();
            // Used again once its connection has let go of it, too.
            self.channel.give_cell(cell);
        }
    }
}
