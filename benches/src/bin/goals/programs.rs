//! Figures of the other programs of this crate, some of them under a tool that counts.

use std::env;
use std::ffi::OsStr;
use std::process::Command;

use fulmar_benches::resident;

use crate::{Fallible, Plan, Row, median};

/// Callers of the counts.
const CALLERS: u32 = 64;

/// Runs a program that is beside this one, or a tool, and returns what it prints.
fn output(program: &str, arguments: &[impl AsRef<OsStr>]) -> Fallible<String> {
    let beside = env::current_exe()?.with_file_name(program);
    let program_path = if beside.exists() { beside } else { program.into() };
    let output = Command::new(&program_path).args(arguments).output().map_err(|error| {
        format!(
            "{program}: {error} (cargo build --release -p fulmar-benches --bins; apt-get install {program})"
        )
    })?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(text) } else { Err(format!("{program}: {text}").into()) }
}

/// The path of the program `work`.
fn work() -> Fallible<String> {
    Ok(env::current_exe()?.with_file_name("work").to_string_lossy().into_owned())
}

pub(crate) fn bulk(plan: &Plan) -> Fallible<Vec<Row>> {
    let arguments =
        ["stream", "--threads", "two", "--payload", "16384,1048576", "--rounds", &plan.rounds.to_string()];
    let text = output("bulk", &arguments)?;
    let mut rows = Vec::new();
    for (payload, name, percent) in [(16_384, "16 KiB", 90.0), (1_048_576, "1 MiB", 85.0)] {
        let rate = |peer: &str| -> Fallible<f64> {
            let start = format!("BenchmarkDownload/peer={peer}/threads=two/payload={payload} ");
            let line =
                text.lines().find(|line| line.starts_with(&start)).ok_or("bulk says something else")?;
            let word = line.split_whitespace().nth(1).ok_or("bulk says no rate")?;
            Ok(word.parse()?)
        };
        let (ours, tonic, floor) = (rate("fulmar")?, rate("tonic")?, rate("floor")?);
        let beside = format!("floor {floor:.0} MB/s, tonic {tonic:.0} MB/s");
        let row = Row::at_least(format!("{name} messages (MB/s)"), percent / 100.0 * floor, ours, beside);
        rows.push(Row { goal: format!("{} = {percent} % of floor", row.goal), ..row });
    }
    Ok(rows)
}

pub(crate) fn allocations(_: &Plan) -> Fallible<Vec<Row>> {
    let row = |what: &str, line: &str| -> Fallible<Row> {
        let text = output("allocs", &["--calls", "20000", "--only", line])?;
        let counted = text.lines().find(|text| text.starts_with(line)).ok_or("allocs says something else")?;
        // Behind the budget and the count stand those of one call.
        let words: Vec<_> = counted[line.len()..].split_whitespace().collect();
        let a_call: f64 = words.get(2).ok_or("allocs says no count")?.parse()?;
        // A buffer that grows once in a run is none of a call's.
        Ok(Row::at_most(what, 0.0, if a_call < 0.001 { 0.0 } else { a_call }, String::new()))
    };
    Ok(vec![
        row("a unary call, both ends", "unary call, one thread")?,
        row("a streamed message pair, both ends", "streamed message pair, one thread")?,
    ])
}

pub(crate) fn system_calls(_: &Plan) -> Fallible<Vec<Row>> {
    Ok(vec![
        Row::at_most(
            "a unary call, 1 caller, both ends",
            6.0,
            system_calls_of(1, [2_000, 4_000])?,
            String::new(),
        ),
        Row::at_most(
            "a unary call, 64 callers, both ends",
            0.15,
            system_calls_of(64, [200, 400])?,
            String::new(),
        ),
    ])
}

/// By the difference of two runs, which is without what a process costs.
fn system_calls_of(callers: u32, calls: [u32; 2]) -> Fallible<f64> {
    let work = work()?;
    let count = |calls: u32| -> Fallible<f64> {
        let (calls, callers) = (calls.to_string(), callers.to_string());
        let arguments = ["-f", "-c", &work, "unary", "--calls", &calls, "--callers", &callers];
        let text = output("strace", &arguments)?;
        let total = text.lines().rev().find(|line| line.trim_end().ends_with("total"));
        let words: Vec<_> = total.ok_or("strace says no total")?.split_whitespace().collect();
        // Percent, seconds, microseconds a call, calls, and errors if there are any.
        Ok(words.get(3).ok_or("strace says no count")?.parse()?)
    };
    Ok((count(calls[1])? - count(calls[0])?) / f64::from(callers * (calls[1] - calls[0])))
}

pub(crate) fn instructions(_: &Plan) -> Fallible<Vec<Row>> {
    let row = |what: &str, scenario: &str, goal: f64| -> Fallible<Row> {
        let (few, many) = (instructions_of(scenario, 100)?, instructions_of(scenario, 300)?);
        Ok(Row::at_most(what, goal, (many - few) / f64::from(200 * CALLERS), String::new()))
    };
    Ok(vec![
        row("a unary call, 64 callers, both ends", "unary", 6_000.0)?,
        row("a streamed pair, 64 callers, both ends", "streaming", 2_500.0)?,
    ])
}

fn instructions_of(scenario: &str, calls: u32) -> Fallible<f64> {
    let (work, calls, callers) = (work()?, calls.to_string(), CALLERS.to_string());
    let tool = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let what = [&*work, scenario, "--calls", &calls, "--callers", &callers];
    let text = output("valgrind", &[&tool[..], &what[..]].concat())?;
    let counted =
        text.lines().find_map(|line| line.split_once("Collected : ")).ok_or("valgrind says no count")?;
    Ok(counted.1.trim().parse()?)
}

/// Over so many connections a process's fixed costs are spread: the goals are those of ten thousand.
const CONNECTIONS: u64 = 10_000;

/// Files that a process has open besides its connections.
const OTHER_FILES: u64 = 64;

pub(crate) fn footprint(plan: &Plan) -> Fallible<Vec<Row>> {
    let allowed = resident::files_max().saturating_sub(OTHER_FILES);
    let count = CONNECTIONS.min(allowed).to_string();
    let mut connections = [Vec::new(), Vec::new()];
    let mut streams = [Vec::new(), Vec::new()];
    for _ in 0..plan.rounds {
        let text = output("footprint", &["--connections", &count, "--streams", "10000"])?;
        for line in text.lines() {
            let words: Vec<_> = line.split('|').map(|word| word.trim().replace(',', "")).collect();
            let ends = match words.get(1).map(String::as_str) {
                Some("connection") => &mut connections,
                Some("stream") => &mut streams,
                _ => continue,
            };
            for (end, column) in ends.iter_mut().zip([2, 4]) {
                end.push(words.get(column).ok_or("footprint says something else")?.parse()?);
            }
        }
    }
    let [server_connection, client_connection] = connections;
    let [server_stream, client_stream] = streams;
    let row = |what: &str, goal: f64, values: Vec<f64>, beside: String| -> Fallible<Row> {
        Ok(Row::at_most(what, goal, median(values)?, beside))
    };
    let of = || format!("of {count}");
    Ok(vec![
        row("idle connection, server end (bytes)", 2_048.0, server_connection, of())?,
        row("idle connection, client end (bytes)", 2_048.0, client_connection, of())?,
        row("idle open stream, server end (bytes)", 600.0, server_stream, String::new())?,
        row("idle open stream, client end (bytes)", 400.0, client_stream, String::new())?,
    ])
}
