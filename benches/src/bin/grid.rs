//! The benchmark grid: one line a cell in Go's benchmark format, so that `benchstat` compares two runs. See `--help`.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use fulmar_benches::allocator::CountingAllocator;
use fulmar_benches::machine::{self, Cores};
use fulmar_benches::options::{Options, USAGE};
use fulmar_benches::peers::RunError;
use fulmar_benches::rounds::Rounds;
use fulmar_benches::table;

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
    let mut sound = true;
    let rounds = Rounds { count: options.rounds, time: options.time, rate: options.rate };
    let results = rounds.run::<Box<dyn Error>>(&options.cells(), |round, cell, why| {
        let is_offered = !matches!(why, RunError::NotOffered(_));
        sound &= !is_offered;
        match round {
            0 => println!("# {cell}: {why}"),
            _ if is_offered => println!("# {cell}: round {}: {why}", round + 1),
            _ => {}
        }
        Ok(())
    })?;
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
