//! Every figure that the project has a goal for, in one run, as tables in Markdown: goal, reached, and what the peers need here.
//!
//! `cargo build --release -p fulmar-benches --bins && cargo run --release -p fulmar-benches --bin goals -- [--only WORD] [--seconds 0.9]
//! [--rounds 3] [--cpu]`
//!
//! Times are medians of rounds in which the peers take turns, and are compared within the run. On one core the time of a call is the
//! processor time of a call, as long as nobody else uses the core: `--cpu` takes that one, for machines that are shared. Counts come from the other programs of
//! this crate, from `strace` and `valgrind`; what is not installed is said, and left out. It ends with 0 whatever was reached: what must
//! not get worse is held by `allocs` and `instructions`.

mod cells;
mod h2load;
mod inprocess;
mod programs;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fulmar_benches::allocator::CountingAllocator;
use fulmar_benches::{machine, table};
use lexopt::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Groups of figures whose names contain this.
    only: String,
    /// Measured time of a cell, all rounds together.
    time: Duration,
    rounds: u32,
    /// Take processor time for time, on one core.
    by_cpu: bool,
    /// Be the server of `h2load`.
    serves: bool,
}

/// One figure.
pub(crate) struct Row {
    what: String,
    goal: String,
    reached: String,
    is_reached: bool,
    /// What else is worth knowing: the peers' figures.
    beside: String,
}

fn main() -> ExitCode {
    let ran = Plan::parse()
        .map_err(Into::into)
        .and_then(|plan| if plan.serves { h2load::serve() } else { run(&plan) });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("goals: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(plan: &Plan) -> Fallible<()> {
    if cfg!(debug_assertions) {
        return Err("figures are of optimised code: cargo run --release".into());
    }
    print!("{}", machine::describe());
    type Group = (&'static str, fn(&Plan) -> Fallible<Vec<Row>>);
    const GROUPS: [Group; 9] = [
        ("one core, time a call (µs)", cells::one_core),
        ("two threads, time a call (µs)", cells::two_threads),
        ("in-process, time a call (µs)", inprocess::times),
        ("under h2load", h2load::cpu),
        ("one server stream", programs::bulk),
        ("allocations", programs::allocations),
        ("system calls", programs::system_calls),
        ("instructions in user space", programs::instructions),
        ("footprint", programs::footprint),
    ];
    let (mut reached, mut all) = (0, 0);
    for (name, measure) in GROUPS.into_iter().filter(|(name, _)| name.contains(&plan.only)) {
        println!("\n| {name} | goal | reached | | others in this run |\n|---|---:|---:|---|---|");
        match measure(plan) {
            Ok(rows) => {
                all += rows.len();
                reached += rows.iter().filter(|row| row.is_reached).count();
                for Row { what, goal, reached, is_reached, beside } in rows {
                    let mark = if is_reached { "yes" } else { "**no**" };
                    println!("| {what} | {goal} | {reached} | {mark} | {beside} |");
                }
            }
            Err(why) => println!("| not measured: {why} | | | | |"),
        }
    }
    println!("\n{reached} of {all} reached.");
    Ok(())
}

impl Plan {
    fn parse() -> Result<Self, lexopt::Error> {
        let mut plan = Self {
            only: String::new(),
            time: Duration::from_millis(900),
            rounds: 3,
            by_cpu: false,
            serves: false,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("only") => plan.only = parser.value()?.string()?,
                Long("seconds") => {
                    let seconds: f64 = parser.value()?.parse()?;
                    plan.time = Duration::from_secs_f64(seconds.clamp(0.05, 600.0));
                }
                Long("rounds") => plan.rounds = parser.value()?.parse::<u32>()?.max(1),
                Long("cpu") => plan.by_cpu = true,
                Long("serve") => plan.serves = true,
                other => return Err(other.unexpected()),
            }
        }
        Ok(plan)
    }
}

impl Row {
    /// A figure that should be at most `goal`.
    pub(crate) fn at_most(what: impl Into<String>, goal: f64, reached: f64, beside: String) -> Self {
        let (goal_text, reached_text) = (figure(goal), figure(reached));
        Self {
            what: what.into(),
            goal: format!("≤ {goal_text}"),
            reached: reached_text,
            is_reached: reached <= goal,
            beside,
        }
    }

    /// A figure that should be at least `goal`.
    pub(crate) fn at_least(what: impl Into<String>, goal: f64, reached: f64, beside: String) -> Self {
        let row = Self::at_most(what, goal, reached, beside);
        Self { goal: row.goal.replace('≤', "≥"), is_reached: reached >= goal, ..row }
    }
}

/// A number with as many digits as say something.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// The middle one.
pub(crate) fn median(values: Vec<f64>) -> Fallible<f64> {
    table::median(values, |value| *value).ok_or_else(|| "nothing was measured".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_goals_point_the_right_way() {
        let figures = [12_345.6, 17.46, 1.456, 0.0834, 0.0].map(figure);
        assert_eq!(figures, ["12346", "17.5", "1.46", "0.083", "0"]);
        let row = Row::at_most("time", 1.0, 1.1, String::new());
        assert!(!row.is_reached && row.goal == "≤ 1.00");
        let row = Row::at_least("rate", 90.0, 95.0, String::new());
        assert!(row.is_reached && row.goal == "≥ 90.0");
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).expect("three"), 2.0);
        assert!(median(vec![]).is_err());
    }
}
