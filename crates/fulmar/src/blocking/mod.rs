//! Clients whose calling thread does the I/O itself: no runtime, no other thread, no hand-over.

mod channel;
mod streaming;

pub use channel::Channel;
pub use streaming::{Duplex, Streaming, Upload};
