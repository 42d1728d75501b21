//! The benchmark grid: one line a cell in Go's benchmark format, so that `benchstat` compares two runs. See `--help`.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fulmar_benches::allocator::CountingAllocator;
use fulmar_benches::cell::Cell;
use fulmar_benches::machine::{self, Cores};
use fulmar_benches::meter::{Measurement, Phases};
use fulmar_benches::options::{Options, USAGE};
use fulmar_benches::peers::{self, RunError};
use fulmar_benches::{table, watchdog};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A rate counts as kept if the time a call is at most so many times what it should be.
const RATE_KEPT: f64 = 1.05;

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
    let cores = Cores::allowed()?;
    for count in &options.cores {
        cores.use_first(*count)?;
    }
    cores.use_first(None)?;
    print!("{}", machine::describe());
    let cells = options.cells();
    let mut results: Vec<(Cell, Vec<Measurement>)> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
    let mut sound = true;
    // Rounds outside, cells inside: what disturbs the machine for a while disturbs one round of many cells, and the median
    // of a cell's rounds does not see it.
    for round in 0..options.rounds {
        for (cell, measurements) in &mut results {
            cores.use_first(cell.cores)?;
            match measure(cell, options.time / options.rounds, options.rate) {
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
        if let Some(rate) = options.rate
            && measurement.ns > RATE_KEPT * 1e9 / f64::from(rate)
        {
            println!("# {cell}: the rate of {rate} calls a second was not kept");
        }
    }
    print!("{}", table::ratios(&medians));
    Ok(sound)
}

fn measure(cell: &Cell, time: Duration, rate: Option<u32>) -> Result<Measurement, RunError> {
    let counted = (time / 8).min(Duration::from_millis(200));
    let phases = Phases { warm_up: time / 4, timed: time, counted };
    let limit = 10 * (phases.warm_up + phases.timed + phases.counted) + Duration::from_secs(30);
    let _watchdog = watchdog::start(cell.to_string(), limit);
    peers::measure(cell, phases, rate)
}
