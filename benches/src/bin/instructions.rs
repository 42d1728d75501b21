//! Instruction counts: what a call, a message and a header block cost in user space, under callgrind, against the baseline in
//! `instructions.txt`. Counts do not depend on how busy the machine is, so that CI can hold them.
//!
//! `cargo run --release -p fulmar-benches --bin instructions [-- --write]`
//!
//! Exit code 1 when a count is more than 3 % above a baseline that was counted with the same rustc; with another one it is only
//! reported, since code is generated otherwise. Exit code 2 when nothing could be counted. `--write` makes the counts the baseline.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// How far above its baseline a count may be, in percent.
const TOLERANCE_PERCENT: f64 = 3.0;

/// What is counted: `name` is what it is called in the baseline.
struct Line {
    name: &'static str,
    /// Of the program `work`.
    scenario: &'static str,
    /// The functions that are counted, with what they call, as callgrind names them; all if there are none.
    inside: &'static [&'static str],
}

/// The functions of `fulmar_benches::engines::Pair` that only one end runs in.
const CLIENT_END: &[&str] = &["*Pair::start_call", "*Pair::send_message", "*Pair::take_replies"];
const SERVER_END: &[&str] = &["*Pair::serve"];

const LINES: [Line; 8] = [
    line("hpack: encode request, response and trailers", "hpack-encode", &[]),
    line("hpack: decode request, response and trailers", "hpack-decode", &[]),
    line("engines: unary call, client end", "engines-unary", CLIENT_END),
    line("engines: unary call, server end", "engines-unary", SERVER_END),
    line("engines: streamed message pair, client end", "engines-streaming", CLIENT_END),
    line("engines: streamed message pair, server end", "engines-streaming", SERVER_END),
    line("unary call, both ends, over loopback TCP", "unary", &[]),
    line("streamed message pair, both ends, over loopback TCP", "streaming", &[]),
];

const fn line(name: &'static str, scenario: &'static str, inside: &'static [&'static str]) -> Line {
    Line { name, scenario, inside }
}

/// Each scenario runs twice, for so many calls of each caller: the difference is without what a process costs.
const CALLS: [u64; 2] = [100, 300];
const CALLERS: u64 = 64;

/// Counts, and what compiled the code that was counted.
struct Counts {
    rustc: String,
    of: BTreeMap<String, f64>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether no count is too high.
fn run() -> Fallible<bool> {
    let writes = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--write") => true,
        Some(other) => return Err(format!("no flag {other}: --write").into()),
    };
    if cfg!(debug_assertions) {
        return Err("counts are of optimised code: cargo run --release".into());
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err("valgrind is missing; install it: apt-get install valgrind".into());
    }
    let work = build_work()?;
    let mut counts = Counts { rustc: rustc_version()?, of: BTreeMap::new() };
    for line in &LINES {
        counts.of.insert(line.name.into(), count(&work, line)?);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    if writes {
        fs::write(&path, counts.to_text())?;
        println!("{} written", path.display());
        return Ok(true);
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(compare(&Counts::parse(&text)?, &counts))
}

/// Builds the program that is counted, and says where it is: beside this one.
fn build_work() -> Fallible<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--quiet", "--release", "-p", "fulmar-benches", "--bin", "work"];
    let status = Command::new(cargo).args(build).current_dir(env!("CARGO_MANIFEST_DIR")).status()?;
    if !status.success() {
        return Err("cargo could not build the program `work`".into());
    }
    Ok(std::env::current_exe()?.with_file_name("work"))
}

fn rustc_version() -> Fallible<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Instructions for one call of one caller.
fn count(work: &Path, line: &Line) -> Fallible<f64> {
    let [few, many] = CALLS;
    let difference = total(work, line, many)?.saturating_sub(total(work, line, few)?);
    if difference == 0 {
        return Err(format!("{}: nothing was counted; were its functions inlined?", line.name).into());
    }
    Ok(difference as f64 / ((many - few) * CALLERS) as f64)
}

/// Instructions of a whole run.
fn total(work: &Path, line: &Line, calls: u64) -> Fallible<u64> {
    let out = std::env::temp_dir().join(format!("fulmar-instructions-{}", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.args(line.inside.iter().map(|function| format!("--toggle-collect={function}")));
    valgrind.arg(work).arg(line.scenario);
    valgrind.args(["--calls", &calls.to_string(), "--callers", &CALLERS.to_string()]);
    let output = valgrind.output()?;
    let counted = fs::read_to_string(&out).unwrap_or_default();
    // What is left behind harms nobody.
    let _ = fs::remove_file(&out);
    if !output.status.success() {
        return Err(format!("{}: {}", line.name, String::from_utf8_lossy(&output.stderr)).into());
    }
    let total = counted.lines().find_map(|text| text.strip_prefix("totals: ")?.trim().parse().ok());
    total.ok_or_else(|| format!("{}: callgrind told no totals", line.name).into())
}

/// Prints both, and says whether no count is too high.
fn compare(baseline: &Counts, counts: &Counts) -> bool {
    let is_held = baseline.rustc == counts.rustc;
    if !is_held {
        println!("The baseline is of {}, this is {}: only reported.", baseline.rustc, counts.rustc);
    }
    println!("{:<54} {:>9} {:>9} {:>8}", "instructions", "baseline", "counted", "%");
    let mut is_well = true;
    for Line { name, .. } in &LINES {
        let count = counts.of.get(*name).copied().unwrap_or_default();
        let Some(&before) = baseline.of.get(*name) else {
            println!("{name:<54} {:>9} {count:>9.0} {:>8}  not in the baseline: --write", "", "");
            is_well &= !is_held;
            continue;
        };
        let percent = (count / before - 1.0) * 100.0;
        let verdict = if percent > TOLERANCE_PERCENT {
            is_well &= !is_held;
            "  TOO MANY"
        } else if percent < -TOLERANCE_PERCENT {
            "  better: --write keeps it so"
        } else {
            ""
        };
        println!("{name:<54} {before:>9.0} {count:>9.0} {percent:>+8.1}{verdict}");
    }
    is_well
}

impl Counts {
    fn to_text(&self) -> String {
        let mut text = format!(
            "# Instructions in user space, of one call of 64 callers, counted by callgrind. Written by:\n\
             # cargo run --release -p fulmar-benches --bin instructions -- --write\n\
             {}\n",
            self.rustc
        );
        for Line { name, .. } in &LINES {
            let count = self.of.get(*name).copied().unwrap_or_default();
            text.push_str(&format!("{count:.0}\t{name}\n"));
        }
        text
    }

    fn parse(text: &str) -> Fallible<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let rustc = lines.next().ok_or("the baseline is empty")?.to_owned();
        let entry = |line: &str| {
            let (count, name) = line.split_once('\t')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        let of = lines.map(|line| entry(line).ok_or_else(|| format!("no line of a baseline: {line}")));
        Ok(Self { rustc, of: of.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rustc: &str, factor: f64) -> Counts {
        let of = LINES.iter().map(|line| (line.name.to_owned(), 1000.0 * factor)).collect();
        Counts { rustc: rustc.into(), of }
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let read = Counts::parse(&counts("rustc 1", 1.0).to_text()).expect("a baseline");
        assert_eq!((read.rustc.as_str(), &read.of), ("rustc 1", &counts("", 1.0).of));
        assert!(Counts::parse("rustc 1\nhalf a line").is_err() && Counts::parse("# nothing").is_err());
    }

    #[test]
    fn more_than_three_percent_above_fails_with_the_same_rustc_only() {
        let baseline = counts("rustc 1", 1.0);
        assert!(compare(&baseline, &counts("rustc 1", 1.029)));
        assert!(!compare(&baseline, &counts("rustc 1", 1.031)));
        assert!(compare(&baseline, &counts("rustc 2", 1.031)));
        assert!(compare(&baseline, &counts("rustc 1", 0.5)));
    }

    #[test]
    fn a_count_that_the_baseline_lacks_fails() {
        let mut baseline = counts("rustc 1", 1.0);
        baseline.of.remove(LINES[0].name);
        assert!(!compare(&baseline, &counts("rustc 1", 1.0)));
    }
}
