//! The ground of Fulmar: time, buffers, pools, keys, and the seams between its engines and the world.
//!
//! Both wings of the house stand on this crate and on nothing else of each other. The engines turn bytes into calls; the world
//! turns an operating system into bytes. What they say to each other is said here:
//!
//! - [`Endpoint`] is what an engine offers, [`Transport`] is what the world drives, and [`Env`] is what the world lends for the
//!   length of one call: the time, memory, and a place to write.
//! - [`Instant`] is a given time; nothing in this crate reads a clock.
//! - [`Output`], [`Buffer`], [`Block`] and [`Pool`] hold bytes and are recycled; a [`Line`] is a queue that is mostly empty.
//! - [`Slab`] and [`DeadlineHeap`] hold things behind generational keys: a stale key is an answer, never a panic.
#![forbid(unsafe_code)]

mod buffer;
mod deadlines;
mod endpoint;
mod held;
mod input;
mod instant;
mod line;
mod output;
mod pool;
mod shared;
mod slab;
#[cfg(test)]
mod testing;

pub use buffer::Buffer;
pub use deadlines::{DeadlineHeap, DeadlineKey};
pub use endpoint::{Closed, Endpoint, Env, Fault, Plain, TaskId, Transport};
pub use held::Holding;
pub use input::Input;
pub use instant::Instant;
pub use line::Line;
pub use output::Output;
pub use pool::{Block, Pool};
pub use shared::{SharedBlock, SharedMemory};
pub use slab::{Key, Slab};
