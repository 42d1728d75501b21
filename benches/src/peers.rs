//! The peers of the grid. Each runs both ends in this process, over one connection.

pub mod floor;
mod fulmar;
mod h2;
mod on_tokio;
mod tonic;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::cell::{Cell, Client, Peer, Threads, Transport};
use crate::meter::{Measurement, Meter, Phases};

/// Why a cell has no figures.
#[derive(Debug)]
pub enum RunError {
    /// The peer has no such client or no such arrangement of threads.
    NotOffered(&'static str),
    /// Something went wrong.
    Failed(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered(why) => write!(f, "not offered by this peer: {why}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
        }
    }
}

// Not an `Error` itself: that is what lets `?` take every error there is.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for RunError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// One run of a cell, at so many calls a second of all callers together, or as many as they can make.
///
/// # Errors
/// The peer does not offer the cell, or something went wrong.
pub fn measure(cell: &Cell, phases: Phases, rate: Option<u32>) -> Result<Measurement, RunError> {
    let meter = Arc::new(Meter::new(phases, cell.callers, rate));
    if rate.is_some() && cell.peer == Peer::Floor {
        return Err(RunError::NotOffered("the callers of the floor begin together, not at a rate"));
    }
    observe(cell)?;
    // A thread of its own: nothing that a peer leaves in thread-locals reaches the next cell.
    let run = || run(cell, &meter);
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|_| Err("panicked".into())))?;
    meter.measurement().ok_or_else(|| "the callers stopped before the run was over".into())
}

/// A path for a Unix socket that no other run has.
fn socket_path() -> String {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("fulmar-bench-{}-{}.sock", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name).display().to_string()
}

/// Has calls told of, or not, as the cell says.
fn observe(cell: &Cell) -> Result<(), RunError> {
    if cell.trace && cell.peer != Peer::Fulmar {
        return Err(RunError::NotOffered("it has no span a call and no event a message"));
    }
    #[cfg(feature = "trace")]
    crate::trace::set(cell.trace);
    if cell.trace && !cfg!(feature = "trace") {
        return Err(RunError::NotOffered("these benchmarks were built without the feature `trace`"));
    }
    Ok(())
}

/// Sets up both ends, lets the callers call while the meter runs, and takes everything down again.
fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    if cell.client == Client::Blocking && cell.threads == Threads::One {
        return Err(RunError::NotOffered("a thread that waits cannot serve itself"));
    }
    match cell.transport {
        Transport::Uds if cfg!(not(unix)) => {
            return Err(RunError::NotOffered("this system has no Unix sockets"));
        }
        Transport::Tcp | Transport::Tls | Transport::Uds | Transport::InProcess => {}
    }
    match cell.peer {
        Peer::Fulmar => fulmar::run(cell, meter),
        Peer::Tonic => on_tokio::run::<tonic::Tonic>(cell, meter),
        Peer::H2 => on_tokio::run::<h2::H2>(cell, meter),
        Peer::Floor => floor::run(cell, meter),
    }
}
