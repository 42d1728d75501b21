//! The client: channels, the calls made over them, and the connections under them.

mod attempt;
mod background;
pub(crate) mod backoff;
pub(crate) mod calls;
mod channel;
mod channel_state;
mod connections;
mod connectivity;
pub(crate) mod dialer;

pub(crate) mod endpoint;
pub(crate) mod handed;
mod intercepted;
mod lives;
mod pending;
pub(crate) mod reply;
pub(crate) mod resolve;
pub(crate) mod target;
mod waiting;

pub(crate) use attempt::{interleaved, share_of};
pub use background::ClientReactor;
pub use backoff::Backoff;
pub use channel::{Channel, ChannelBuilder};
pub(crate) use channel::{ChannelConfig, ChannelSpec, IN_PROCESS, Place};
pub(crate) use channel_state::too_late;
pub(crate) use connections::Connections;
pub use connectivity::{ConnectivityState, ConnectivityWatch};
pub(crate) use intercepted::pass_blocking;
pub(crate) use pending::{PendingCall, Return};
pub use resolve::Resolve;
pub(crate) use waiting::{GivenUp, WaitingCalls};
