//! Runs simulated worlds, one a seed, and prints what happened in each as a hash.
//!
//! `fulmar-sim [--seeds N] [--seed S] [--log]`: N worlds (default 100, or the one of S) from seed S (default 0) on; `--log` prints
//! each event of them. When something did not hold, the last events of that world are printed, and the exit code is 1; it is 2 when
//! the arguments cannot be understood.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use fulmar_sim::World;

struct Options {
    seeds: u64,
    seed: u64,
    log: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}\nusage: fulmar-sim [--seeds N] [--seed S] [--log]");
            return ExitCode::from(2);
        }
    };
    let seeds = options.seed..options.seed.saturating_add(options.seeds);
    let broken = seeds.filter(|&seed| !holds(seed, options.log)).count();
    if broken == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{broken} of {} worlds are broken", options.seeds);
    ExitCode::FAILURE
}

/// How many lines of a broken world are printed, unless all are.
const LINES_MAX: usize = 100;

/// Runs one world and prints its line. An engine that panics breaks its world, too.
fn holds(seed: u64, log: bool) -> bool {
    let mut world = World::new(seed);
    if log {
        world.keep_log();
    }
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    world.log().iter().for_each(|line| println!("{line}"));
    match result {
        Ok(Ok(report)) => {
            println!(
                "seed {seed:>6}  trace {:016x}  events {:>7}  calls {:>3}  connections {}  time {:.3?}",
                report.hash, report.events, report.calls, report.connections, report.time
            );
            return true;
        }
        Ok(Err(broken)) => println!("{broken}"),
        Err(_) => println!("seed {seed} is broken: an engine or its referee panicked, see above"),
    }
    if !log {
        tell(seed);
    }
    false
}

/// Lets a broken world happen again, which is the same, and prints how it ended.
fn tell(seed: u64) {
    let mut world = World::new(seed);
    world.keep_log();
    let _ = catch_unwind(AssertUnwindSafe(|| world.run()));
    let lines = world.log();
    println!("its last events, of {} (all: --seed {seed} --log):", lines.len());
    lines[lines.len().saturating_sub(LINES_MAX)..].iter().for_each(|line| println!("{line}"));
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seeds: 100, seed: 0, log: false };
    let mut seeds = None;
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut number = || {
            let text =
                value.clone().or_else(|| arguments.next()).ok_or_else(|| format!("{name} wants a number"))?;
            text.parse().map_err(|_| format!("{name} wants a number, not {text}"))
        };
        match name.as_str() {
            "--seeds" => seeds = Some(number()?),
            "--seed" => (options.seed, options.seeds) = (number()?, 1),
            "--log" => options.log = true,
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    options.seeds = seeds.unwrap_or(options.seeds);
    Ok(options)
}
