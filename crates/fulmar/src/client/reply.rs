//! Turning what a cell holds at the end of a call into its one reply.

use std::sync::Arc;

use fulmar_grpc::{Code, Status};

use crate::call::{CallCell, Inbound};
use crate::intercept::CallHooks;
use crate::metadata_lease::MetadataShelf;
use crate::payload::{Payload, decode};
use crate::response::Response;

/// The reply of a call that has ended and that must have exactly one (wire rule 22).
///
/// `queue`, empty, is lent by the caller; afterwards it is back in the cell.
///
/// # Errors
/// The status of a call that failed; `UNIMPLEMENTED` for none or more than one reply; `INTERNAL` for one that cannot be decoded.
pub(crate) fn take_single<Resp: Payload>(
    cell: &CallCell,
    shelf: &Arc<MetadataShelf>,
    queue: &mut Inbound,
) -> Result<Response<Resp>, Status> {
    let hooks = cell.lock().hooks.take();
    let response = read_single(cell, shelf, queue, hooks.as_deref());
    match hooks {
        None => response,
        Some(hooks) => hooks.respond(response),
    }
}

fn read_single<Resp: Payload>(
    cell: &CallCell,
    shelf: &Arc<MetadataShelf>,
    queue: &mut Inbound,
    hooks: Option<&CallHooks>,
) -> Result<Response<Resp>, Status> {
    let mut state = cell.lock();
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
    std::mem::swap(&mut state.inbound, queue);
    let mut arena = std::mem::take(&mut state.arena);
    let mut metadata = shelf.lease_from(&mut state.metadata_in);
    let trailers = shelf.lease_from(&mut state.trailers_in);
    let encoding = state.encoding_in.take();
    drop(state);

    let mut message = Resp::default();
    let decoded = queue.take(|body| {
        if let Some(hooks) = hooks {
            hooks.show_metadata(metadata.get_mut())?;
            hooks.receive(body)?;
        }
        decode(&mut message, body, &mut arena)
    });
    let was_compressed = queue.last_was_compressed();
    let mut state = cell.lock();
    std::mem::swap(&mut state.inbound, queue);
    state.arena = arena;
    drop(state);
    match decoded {
        Some((Ok(()), _)) => {
            Ok(Response::with_leases(message, metadata, trailers).received(encoding, was_compressed))
        }
        Some((Err(status), _)) => Err(status),
        None => Err(Status::internal("the reply is gone")),
    }
}
