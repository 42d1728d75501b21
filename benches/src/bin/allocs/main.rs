//! The allocation contract: how often the allocator is called for a call in steady state, by all threads and both ends. Exit
//! code 1 when a line is over its budget.
//!
//! `cargo run --release -p fulmar-benches --bin allocs [-- --calls 100000] [--warm-up 1000] [--only TEXT] [--show N]`
//!
//! `--only` takes the lines whose names contain a text, `--show` prints where the first allocations of each come from.

mod calls;
mod ends;
mod servers;
mod streams;
mod tls;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use fulmar_benches::allocator::{self, Allocations, CountingAllocator};
use fulmar_benches::watchdog;
use lexopt::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Done = Result<(), Box<dyn Error>>;
type Counted = Result<Count, Box<dyn Error>>;

/// A promise: `what` calls the allocator at most `budget` times a call (or message pair).
struct Line {
    what: &'static str,
    budget: u64,
    /// How many allocations of the whole line are no allocation per call.
    strays_max: u64,
    count: fn(&Plan) -> Counted,
}

const LINES: &[&[Line]] = &[
    calls::ENGINES,
    calls::LINES,
    calls::PAYLOADS,
    calls::COMPRESSED,
    streams::LINES,
    ends::LINES,
    tls::LINES,
];

/// How many allocations of a whole line are no allocation per call: when the system holds a thread up, more than ever before piles
/// up for it, and a buffer grows, once. One in ten thousand calls is over this.
const STRAYS_MAX: u64 = 9;

/// The same where it takes long until each buffer was as large as it will ever be. Where nobody waits for an answer, or all wait for a
/// deadline, how much piles up is up to the system, and grows with the windows. Where a message takes several reads, what is left over
/// of a frame takes a block of whatever size. One in a thousand is over this.
const FLOOD_STRAYS_MAX: u64 = 99;

const fn line(what: &'static str, budget: u64, count: fn(&Plan) -> Counted) -> Line {
    Line { what, budget, strays_max: STRAYS_MAX, count }
}

/// A line whose buffers take long to settle.
const fn flood(what: &'static str, budget: u64, count: fn(&Plan) -> Counted) -> Line {
    Line { strays_max: FLOOD_STRAYS_MAX, ..line(what, budget, count) }
}

/// What was counted, and over how many calls.
struct Count {
    allocations: Allocations,
    calls: u64,
}

/// How many calls are made, and how many before the counting begins.
#[derive(Clone)]
struct Plan {
    calls: u64,
    warm_up: u64,
    /// Only lines whose names contain this.
    only: String,
    /// How many allocations of each line to show.
    shown: u64,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("allocs: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints all lines. `false` if one is over its budget.
fn run() -> Result<bool, Box<dyn Error>> {
    let plan = Plan::parse()?;
    // One for all lines: a thread that starts or ends beside a line would be counted with it.
    let _watchdog = watchdog::start("allocs".to_owned(), Duration::from_secs(900));
    println!("{} calls a line after {} of warm-up, allocations of all threads\n", plan.calls, plan.warm_up);
    println!("{:<56} {:>10} {:>12} {:>12} {:>12}", "", "budget", "allocations", "a call", "bytes a call");
    let mut kept = true;
    for Line { what, budget, strays_max, count } in LINES.iter().copied().flatten() {
        if !what.contains(&plan.only) {
            continue;
        }
        allocator::show(plan.shown);
        let Count { allocations, calls } = count(&plan)?;
        let over = allocations.calls > budget * calls + strays_max;
        kept &= !over;
        let each = |total: u64| total as f64 / calls as f64;
        let mark = if over { "  OVER BUDGET" } else { "" };
        println!(
            "{what:<56} {budget:>10} {:>12} {:>12.3} {:>12.1}{mark}",
            allocations.calls,
            each(allocations.calls),
            each(allocations.bytes)
        );
    }
    Ok(kept)
}

impl Plan {
    fn parse() -> Result<Self, lexopt::Error> {
        let mut plan = Self { calls: 100_000, warm_up: 1_000, only: String::new(), shown: 0 };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("calls") => plan.calls = parser.value()?.parse()?,
                Long("warm-up") => plan.warm_up = parser.value()?.parse()?,
                Long("only") => plan.only = parser.value()?.string()?,
                Long("show") => plan.shown = parser.value()?.parse()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(plan)
    }

    /// The same with at most so many calls, for those that take longer than others.
    fn at_most(&self, calls: u64) -> Self {
        Self { calls: self.calls.min(calls), ..self.clone() }
    }

    /// Calls for as long as the plan says, and counts what the allocator is asked for after the warm-up.
    fn count(&self, mut call: impl FnMut() -> Done) -> Counted {
        for _ in 0..self.warm_up {
            call()?;
        }
        allocator::start();
        let called = (0..self.calls).try_for_each(|_| call());
        let allocations = allocator::stop();
        called.map(|()| Count { allocations, calls: self.calls })
    }

    /// As [`count`](Self::count), for calls that are awaited.
    async fn count_async(&self, mut call: impl AsyncFnMut() -> Done) -> Counted {
        for _ in 0..self.warm_up {
            call().await?;
        }
        allocator::start();
        let mut called = Ok(());
        for _ in 0..self.calls {
            called = call().await;
            if called.is_err() {
                break;
            }
        }
        let allocations = allocator::stop();
        called.map(|()| Count { allocations, calls: self.calls })
    }
}
