//! The server: services, the methods they register, the connections that call them, and the threads under it.

mod addresses;
mod admission;
mod builder;
pub(crate) mod endpoint;
mod handle;
mod intercepted;
mod lives;
pub(crate) mod method;
mod order;
mod placed;
mod placement;
mod router;
mod shared;

pub use addresses::ToAddresses;
pub use admission::Admission;
pub(crate) use admission::Door;
pub use builder::{Server, ServerBuilder};
pub use handle::{RunningServer, ServerHandle};
pub use intercepted::Intercepted;
pub(crate) use order::{Order, PlacedCall, Stage};
pub(crate) use placed::PlacedCalls;
pub use placement::Placement;
pub(crate) use placement::Placer;
pub use router::{Router, Service};
pub(crate) use shared::{Arrival, Refused, Seat, ServerShared, ServerSlot, ServerSlots};
