//! Benchmarks of Fulmar: the grid against its peers, the allocation contract, criterion benches.
//!
//! - `cargo run --release -p fulmar-benches --bin grid` measures cells of a grid: a peer, an arrangement of threads, a kind
//!   of call, a payload, a number of callers. `--help` tells the flags.
//! - `cargo run --release -p fulmar-benches --bin allocs` counts allocations a call against their budgets.
//! - `cargo bench -p fulmar-benches` runs the layers alone: HPACK, frames, a pair of engines.

pub mod allocator;
pub mod cell;
pub mod contract;
pub mod echo;
pub mod engines;
pub mod machine;
pub mod meter;
pub mod options;
pub mod pace;
pub mod peers;
pub mod plot;
pub mod proto;
pub mod resident;
pub mod rounds;
pub mod secured;
pub mod table;
#[cfg(feature = "trace")]
pub mod trace;
pub mod watchdog;
