//! How much memory of this process is resident, and how many files it may open.

use std::io;

/// Resident bytes that are the process's own, not a file's.
///
/// # Errors
/// The system does not tell: only Linux does.
pub fn bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    parse(&status).ok_or_else(|| io::Error::other("/proc/self/status has no line RssAnon"))
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets this process open `files` files, if it may not yet.
///
/// # Errors
/// The hard limit is lower; the text says how to raise it.
#[cfg(unix)]
pub fn allow_files(files: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        let text = format!(
            "{files} open files are needed and {} allowed: raise the hard limit (`ulimit -Hn`), or ask for fewer",
            limit.maximum.unwrap_or(0)
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit })?)
}

/// There is no such limit here.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn allow_files(_: u64) -> io::Result<()> {
    Ok(())
}

/// How many files a process may open that asks for as many as it can; `u64::MAX` where there is no limit.
pub fn files_max() -> u64 {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    return u64::MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_bytes_are_read_from_the_line_that_has_them() {
        let status = "Name:\tx\nVmRSS:\t   9000 kB\nRssAnon:\t    1234 kB\nRssFile:\t 7000 kB\n";
        assert_eq!(parse(status), Some(1234 * 1024));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_written_becomes_resident() {
        let before = bytes().expect("Linux tells");
        let block = vec![1_u8; 32 * 1024 * 1024];
        let after = bytes().expect("Linux tells");
        assert!(after >= before + 24 * 1024 * 1024, "{before} before, {after} after");
        drop(block);
    }

    #[test]
    #[cfg(unix)]
    fn more_files_than_the_hard_limit_are_refused_with_the_way_out() {
        let most = files_max();
        if most == u64::MAX {
            return;
        }
        let error = allow_files(most + 1).expect_err("the hard limit is hard");
        assert!(error.to_string().contains("ulimit"), "{error}");
    }
}
