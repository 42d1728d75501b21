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

/// The cores that this process may use, of which some can be chosen.
#[derive(Debug)]
pub struct Cores {
    #[cfg(target_os = "linux")]
    allowed: rustix::thread::CpuSet,
}

#[cfg(target_os = "linux")]
impl Cores {
    /// Those that the calling thread may use.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn allowed() -> io::Result<Self> {
        Ok(Self { allowed: rustix::thread::sched_getaffinity(None)? })
    }

    /// Lets this thread, and those that it starts from here on, use the first `count` of them; all if `None`.
    ///
    /// # Errors
    /// There are not as many.
    pub fn use_first(&self, count: Option<usize>) -> io::Result<()> {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let available = self.allowed.count() as usize;
        let count = count.unwrap_or(available);
        if available < count {
            let text = format!("--cores {count}: this process may use only {available}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut chosen = CpuSet::new();
        let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| self.allowed.is_set(*cpu));
        allowed.take(count).for_each(|cpu| chosen.set(cpu));
        Ok(sched_setaffinity(None, &chosen)?)
    }
}

#[cfg(not(target_os = "linux"))]
impl Cores {
    /// Not asked on this operating system.
    ///
    /// # Errors
    /// None.
    pub fn allowed() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Not offered by this operating system, unless it is all of them.
    ///
    /// # Errors
    /// It is a number of cores.
    pub fn use_first(&self, count: Option<usize>) -> io::Result<()> {
        match count {
            None => Ok(()),
            Some(cores) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, format!("--cores {cores}: only on Linux")))
            }
        }
    }
}
