//! gRPC calls over HTTP/2 as a state machine without I/O: framing, metadata, status, deadlines, routes.

#![forbid(unsafe_code)]

pub mod base64;
mod code;
mod message_buf;
pub mod metadata;
pub mod percent;
mod routes;
mod status;
#[cfg(test)]
mod testing;
pub mod timeout;

pub use code::Code;
pub use message_buf::{Arena, MessageBuf};
pub use metadata::{MetadataError, MetadataMap};
pub use routes::{MethodId, RouteError, Routes};
pub use status::Status;
