//! The benchmark grid: one line a cell in Go's benchmark format, so that `benchstat` compares two runs. See `--help`.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fulmar_benches::allocator::CountingAllocator;
use fulmar_benches::cell::Cell;
use fulmar_benches::meter::{Measurement, Phases};
use fulmar_benches::options::{Options, USAGE};
use fulmar_benches::peers::{self, RunError};
use fulmar_benches::{machine, table, watchdog};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("grid: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all rounds and prints the table. `false` if a cell failed.
fn run() -> Result<bool, Box<dyn Error>> {
    let options = Options::parse(env::args().skip(1))?;
    if options.help {
        print!("{USAGE}");
        return Ok(true);
    }
    if let Some(cores) = options.cores {
        machine::use_cores(cores)?;
    }
    print!("{}", machine::describe());
    let cells = options.cells();
    let mut results: Vec<(Cell, Vec<Measurement>)> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
    let mut sound = true;
    // Rounds outside, cells inside: what disturbs the machine for a while disturbs one round of many cells, and the median
    // of a cell's rounds does not see it.
    for round in 0..options.rounds {
        for (cell, measurements) in &mut results {
            match measure(cell, options.time / options.rounds) {
                Ok(measurement) => measurements.push(measurement),
                Err(why) if round == 0 => {
                    sound &= matches!(why, RunError::NotOffered(_));
                    println!("# {cell}: {why}");
                }
                Err(RunError::NotOffered(_)) => {}
                Err(why) => {
                    sound = false;
                    println!("# {cell}: round {}: {why}", round + 1);
                }
            }
        }
    }
    let medians = table::medians(results);
    for (cell, measurement) in &medians {
        println!("{}", table::line(cell, measurement));
    }
    print!("{}", table::ratios(&medians));
    Ok(sound)
}

fn measure(cell: &Cell, time: Duration) -> Result<Measurement, RunError> {
    let counted = (time / 8).min(Duration::from_millis(200));
    let phases = Phases { warm_up: time / 4, timed: time, counted };
    let limit = 10 * (phases.warm_up + phases.timed + phases.counted) + Duration::from_secs(30);
    let _watchdog = watchdog::start(cell.to_string(), limit);
    peers::measure(cell, phases)
}
