//! Rounds in which cells take turns.

use std::io;
use std::time::Duration;

use crate::cell::Cell;
use crate::machine::Cores;
use crate::meter::{Measurement, Phases};
use crate::peers::{self, RunError};
use crate::watchdog;

/// How often and how long cells are measured.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Runs of each cell.
    pub count: u32,
    /// Measured time of a cell, all rounds together.
    pub time: Duration,
    /// Calls a second of all callers together; as many as they can make if `None`.
    pub rate: Option<u32>,
}

impl Rounds {
    /// Measures each cell once a round: rounds outside, cells inside, so that what disturbs the machine for a while disturbs one round of
    /// many cells, and the median of a cell's rounds does not see it. What has no figures is told to `failed`, with its round from 0 on,
    /// which may end all.
    ///
    /// # Errors
    /// What `failed` answers; or there are not as many cores as a cell wants.
    pub fn run<E: From<io::Error>>(
        self,
        cells: &[Cell],
        mut failed: impl FnMut(u32, &Cell, RunError) -> Result<(), E>,
    ) -> Result<Vec<(Cell, Vec<Measurement>)>, E> {
        let cores = Cores::allowed()?;
        let mut results: Vec<_> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
        for round in 0..self.count {
            for (cell, measurements) in &mut results {
                cores.use_first(cell.cores)?;
                let measured = self.measure(cell);
                cores.use_first(None)?;
                match measured {
                    Ok(measurement) => measurements.push(measurement),
                    Err(why) => failed(round, cell, why)?,
                }
            }
        }
        Ok(results)
    }

    fn measure(self, cell: &Cell) -> Result<Measurement, RunError> {
        let time = self.time / self.count;
        let counted = (time / 8).min(Duration::from_millis(200));
        let phases = Phases { warm_up: time / 4, timed: time, counted };
        let limit = 10 * (phases.warm_up + phases.timed + phases.counted) + Duration::from_secs(30);
        let _watchdog = watchdog::start(cell.to_string(), limit);
        peers::measure(cell, phases, self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Client, Peer};

    #[test]
    fn cells_take_turns_and_those_without_figures_are_told_with_their_round() {
        let rounds = Rounds { count: 2, time: Duration::from_millis(20), rate: None };
        let offered = Cell { peer: Peer::Floor, ..Cell::BASE };
        // A thread that waits cannot serve itself.
        let missing = Cell { client: Client::Blocking, ..offered };
        let mut told = Vec::new();
        let results = rounds.run::<io::Error>(&[offered, missing], |round, cell, why| {
            assert!(matches!(why, RunError::NotOffered(_)), "{why}");
            told.push((round, *cell));
            Ok(())
        });
        let counts: Vec<_> = results.expect("it runs").iter().map(|(_, rounds)| rounds.len()).collect();
        assert_eq!((counts, told), (vec![2, 0], vec![(0, missing), (1, missing)]));
        let ended = rounds.run(&[missing], |_, _, _| Err(io::Error::other("enough")));
        assert_eq!(ended.expect_err("it was told to end").to_string(), "enough");
    }
}
