//! The client: channels, the calls made over them, and the connections under them.

mod background;
pub(crate) mod calls;
mod channel;
mod connections;
pub(crate) mod endpoint;
pub(crate) mod handed;
mod intercepted;
mod lives;
mod pending;
pub(crate) mod reply;
pub(crate) mod resolve;
pub(crate) mod target;
mod waiting;

pub use background::ClientReactor;
pub use channel::{Channel, ChannelBuilder};
pub(crate) use channel::{ChannelConfig, ChannelSpec, Place};
pub(crate) use connections::{Connections, share_of};
pub(crate) use intercepted::pass_blocking;
pub(crate) use pending::{PendingCall, Return};
pub use resolve::Resolve;
pub(crate) use waiting::{GivenUp, WaitingCalls};
