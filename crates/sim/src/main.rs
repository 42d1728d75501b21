//! Runs simulated worlds, one a seed, and prints what happened in each as a hash.
//!
//! `fulmar-sim [--seeds N] [--seed S] [--log]`: N worlds (default 100) from seed S (default 0) on; `--log` prints each event of
//! them. Exit code 1, with the seed, when something did not hold, and 2 when the arguments cannot be understood.
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
            true
        }
        Ok(Err(broken)) => {
            println!("{broken}");
            false
        }
        Err(_) => {
            println!("seed {seed} is broken: an engine panicked");
            false
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seeds: 100, seed: 0, log: false };
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
            "--seeds" => options.seeds = number()?,
            "--seed" => options.seed = number()?,
            "--log" => options.log = true,
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    Ok(options)
}
