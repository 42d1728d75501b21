//! The peers of the grid. Each runs both ends in this process, over one loopback TCP connection.

mod floor;
mod fulmar;
mod tonic;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::thread;

use crate::cell::{Cell, Client, Peer, Threads};
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

/// One run of a cell.
///
/// # Errors
/// The peer does not offer the cell, or something went wrong.
pub fn measure(cell: &Cell, phases: Phases) -> Result<Measurement, RunError> {
    let meter = Arc::new(Meter::new(phases, cell.callers));
    // A thread of its own: nothing that a peer leaves in thread-locals reaches the next cell.
    let run = || run(cell, &meter);
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|_| Err("panicked".into())))?;
    meter.measurement().ok_or_else(|| "the callers stopped before the run was over".into())
}

/// Sets up both ends, lets the callers call while the meter runs, and takes everything down again.
fn run(cell: &Cell, meter: &Arc<Meter>) -> Result<(), RunError> {
    if cell.client == Client::Blocking && cell.threads == Threads::One {
        return Err(RunError::NotOffered("a thread that waits cannot serve itself"));
    }
    match cell.peer {
        Peer::Fulmar => fulmar::run(cell, meter),
        Peer::Tonic => tonic::run(cell, meter),
        Peer::Floor => floor::run(cell, meter),
    }
}
