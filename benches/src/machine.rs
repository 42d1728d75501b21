//! The machine that is measured.

use std::fmt::Write as _;
use std::{fs, io, thread};

/// Lines of `key: value` that `benchstat` reads, about the machine and the versions.
pub fn describe() -> String {
    let mut text =
        format!("goos: {}\ngoarch: {}\npkg: fulmar-benches\n", std::env::consts::OS, std::env::consts::ARCH);
    if let Some(model) = processor() {
        writeln!(text, "cpu: {model}").expect("writing to a string does not fail");
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    writeln!(text, "cores: {cores}").expect("writing to a string does not fail");
    text
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, model)| model.to_owned())
}

/// Lets this thread, and those that it starts from here on, use the first `cores` of the cores it may use.
#[cfg(target_os = "linux")]
pub fn use_cores(cores: usize) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(cores).for_each(|cpu| chosen.set(cpu));
    if (chosen.count() as usize) < cores {
        let text = format!("--cores {cores}: this process may use only {}", allowed.count());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(sched_setaffinity(None, &chosen)?)
}

/// Not offered by this operating system.
#[cfg(not(target_os = "linux"))]
pub fn use_cores(cores: usize) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("--cores {cores}: only on Linux")))
}
