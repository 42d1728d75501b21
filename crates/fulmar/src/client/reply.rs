//! Turning what a cell holds at the end of a call into its one reply.

use std::sync::Arc;

use fulmar_grpc::{Code, Status};

use crate::call::cell::CellState;
use crate::call::{CallCell, Inbound};
use crate::intercept::CallHooks;
use crate::metadata_lease::{MetadataLease, MetadataShelf};
use crate::payload::{Payload, decode};
use crate::response::Response;

/// The reply of a call that has ended and that must have exactly one (wire rule 22).
///
/// # Errors
/// The status of a call that failed; `UNIMPLEMENTED` for none or more than one reply; `INTERNAL` for one that cannot be decoded.
pub(crate) fn take_single<Resp: Payload>(
    cell: &mut Arc<CallCell>,
    shelf: &Arc<MetadataShelf>,
) -> Result<Response<Resp>, Status> {
    // Most often the connection has let go of the cell: then there is nothing to lock.
    if let Some(state) = CallCell::alone(cell) {
        return take_alone(state, shelf);
    }
    let mut state = cell.lock();
    let hooks = state.hooks.take();
    let around = Around::take(&mut state, shelf);
    let mut queue = std::mem::take(&mut state.inbound);
    drop(state);
    let read = around.and_then(|around| around.read(&mut queue, hooks.as_deref()));
    cell.lock().inbound = queue;
    shown(hooks, read)
}

/// As [`take_single`], of a cell that nobody else holds.
pub(crate) fn take_alone<Resp: Payload>(
    state: &mut CellState,
    shelf: &Arc<MetadataShelf>,
) -> Result<Response<Resp>, Status> {
    let hooks = state.hooks.take();
    let around = Around::take(state, shelf);
    let read = around.and_then(|around| around.read(&mut state.inbound, hooks.as_deref()));
    shown(hooks, read)
}

/// What came with a reply.
struct Around {
    metadata: MetadataLease,
    trailers: MetadataLease,
    encoding: Option<Arc<str>>,
}

impl Around {
    #[inline]
    fn take(state: &mut CellState, shelf: &Arc<MetadataShelf>) -> Result<Self, Status> {
        let status = state.status.take().unwrap_or_else(|| Status::internal("the call has not ended"));
        if status.code() != Code::Ok {
            return Err(status);
        }
        if state.messages_in != 1 {
            return Err(Status::unimplemented(format!(
                "the server answered with {} messages to a method that has one reply",
                state.messages_in
            )));
        }
        Ok(Self {
            metadata: shelf.lease_from(&mut state.metadata_in),
            trailers: shelf.lease_from(&mut state.trailers_in),
            encoding: state.encoding_in.take(),
        })
    }

    #[inline]
    fn read<Resp: Payload>(
        mut self,
        queue: &mut Inbound,
        hooks: Option<&CallHooks>,
    ) -> Result<Response<Resp>, Status> {
        let mut message = Resp::default();
        let decoded = queue.take(|body, arena| {
            if let Some(hooks) = hooks {
                hooks.show_metadata(self.metadata.get_mut())?;
                hooks.receive(&body)?;
            }
            decode(&mut message, body, arena)
        });
        match decoded {
            Some((Ok(()), _)) => Ok(self.respond(message, queue.last_was_compressed())),
            Some((Err(status), _)) => Err(status),
            None => Err(Status::internal("the reply is gone")),
        }
    }

    #[inline]
    fn respond<Resp>(self, message: Resp, was_compressed: bool) -> Response<Resp> {
        if self.metadata.is_none() && self.trailers.is_none() && self.encoding.is_none() && !was_compressed {
            return Response::new(message);
        }
        Response::with_leases(message, self.metadata, self.trailers).received(self.encoding, was_compressed)
    }
}

/// The response, once interceptors have seen it.
fn shown<Resp>(
    hooks: Option<Arc<CallHooks>>,
    response: Result<Response<Resp>, Status>,
) -> Result<Response<Resp>, Status> {
    match hooks {
        None => response,
        Some(hooks) => hooks.respond(response),
    }
}
