//! Deterministic worlds for Fulmar's engines: virtual time, links with faults, checks.
#![forbid(unsafe_code)]

mod driver;
pub mod fuzz;
mod link;
mod random;
mod trace;

pub use driver::Driver;
pub use link::{Link, Weather};
pub use random::Random;
pub use trace::Trace;
