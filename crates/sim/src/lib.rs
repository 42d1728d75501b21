//! Deterministic worlds for Fulmar's engines: virtual time, links with faults, checks.
//!
//! [`World`] is a server of gRPC and its clients with everything that may befall them, drawn from one seed. The same seed is the
//! same world, to the last byte and nanosecond: [`Report::hash`] says so.
//!
//! [`Driver`], [`Link`] and [`Weather`] serve other worlds as well: they drive any
//! [`Transport`](fulmar_base::Transport) by the loop contract.
//!
//! ```
//! let report = fulmar_sim::World::new(7).run()?;
//! assert_eq!(fulmar_sim::World::new(7).run()?, report);
//! # Ok::<(), fulmar_sim::Broken>(())
//! ```
#![forbid(unsafe_code)]

mod callee;
mod caller;
mod connection;
mod driver;
mod fate;
pub mod fuzz;
mod ledger;
mod link;
mod plan;
mod random;
mod referee;
mod tap;
mod trace;
mod wire;
mod world;

pub use driver::Driver;
pub use link::{Ending, Link, Weather};
pub use random::Random;
pub use trace::Trace;
pub use world::{Broken, Report, World};
