//! What a user holds of a call: the cell shared with the call's connection, and the handles over it.

pub(crate) mod cell;
mod fate;
mod held;
mod inbound;
mod outbound;
mod reading;
mod replies;
mod requests;
mod shelf;
mod streaming;

pub(crate) use cell::{CallCell, CellShape, QueuePlace, Side};
pub(crate) use fate::CallFate;
pub use fate::{CallEnd, Cancellation};
pub(crate) use held::HeldCell;
pub(crate) use inbound::{HEAD_LEN, Inbound};
pub(crate) use outbound::Outbound;
pub use replies::Replies;
pub use requests::{Duplex, Requests, Upload};
pub(crate) use shelf::{CellShelf, ChannelCells};
pub use streaming::Streaming;
