//! What a cell does for a call whose handler runs on another reactor than its connection's.

use std::sync::Arc;

use fulmar_grpc::{Compress, Status};

use super::{CallCell, CellState, knock};
use crate::payload::Payload;
use crate::response::Response;
use crate::server::{Order, Stage};

impl CallCell {
    /// Encodes the only message of an answer, and takes what goes ahead of it. The connection is not told: the order follows.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for a message over `bytes_max`; `INTERNAL` for an encoding that the server does not know.
    pub(crate) fn encode_reply<P: Payload>(
        &self,
        response: &Response<P>,
        bytes_max: usize,
    ) -> Result<(), Status> {
        let mut state = self.lock();
        state.packing.set(response.compression(), false)?;
        let (mut state, encoded) = self.encode(state, response.get_ref(), Compress::Default, bytes_max);
        encoded?;
        state.metadata_out.extend_from(response.metadata());
        Ok(())
    }

    /// Gives an order back to the connection, which is told when nobody holds the cell here any more, so that it can be used again at
    /// once.
    pub(crate) fn return_order(self: Arc<Self>, order: Box<Order>) {
        let mut state = self.lock();
        state.order = Some(order);
        let door = state.knock();
        drop(state);
        drop(self);
        if let Some(door) = door {
            crate::wake(door);
        }
    }

    /// Tells the connection that the reactor has not taken the order that is here.
    pub(crate) fn refuse_order(&self) {
        let mut state = self.lock();
        if let Some(order) = &mut state.order {
            order.stage = Stage::Refused;
            knock(state);
        }
    }
}

impl CellState {
    /// The order, if it has come back to the connection.
    pub(crate) fn take_returned_order(&mut self) -> Option<Box<Order>> {
        self.order.take_if(|order| matches!(order.stage, Stage::Answered | Stage::Refused))
    }
}
