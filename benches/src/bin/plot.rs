//! Draws what `grid` has printed: `grid … | plot DIR`, or `plot DIR TABLE…` for tables in files. `--cpu` for processor time.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use fulmar_benches::plot;

const USAGE: &str = "\
usage: plot [--cpu] DIR [TABLE…]

Draws the tables of `grid`, from files or from standard input, as SVG into DIR: for each arrangement the time of a call against the
number of callers, the same in times the floor, and latencies. --cpu takes processor time for time: the same on one core that nobody
else uses, and the only steady one where others do.
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).peekable();
    let by_cpu = arguments.next_if(|argument| argument == "--cpu").is_some();
    let Some(folder) = arguments.next().filter(|folder| !folder.starts_with('-')) else {
        print!("{USAGE}");
        return Ok(());
    };
    let text = match arguments.peek() {
        None => io::read_to_string(io::stdin())?,
        Some(_) => arguments.map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?.join("\n"),
    };
    let points = plot::read(&text, by_cpu);
    if points.is_empty() {
        return Err("there is no line of a table to draw".into());
    }
    for path in plot::draw(&points, &PathBuf::from(folder))? {
        println!("{}", path.display());
    }
    Ok(())
}
