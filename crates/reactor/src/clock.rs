use std::sync::OnceLock;

use fulmar_base::Instant;

/// The time, in nanoseconds since the first call in this process, from the monotonic clock of the system.
///
/// All reactors, all [`Lone`](crate::Lone) connections and all threads read the same clock, so that a deadline taken on one thread
/// means the same on every other. Costs some 20 ns.
pub fn clock() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    // 584 years of uptime fit into 64 bits of nanoseconds.
    Instant::from_nanos(start.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_read_one_clock_that_never_goes_back() {
        let before = clock();
        let elsewhere = std::thread::spawn(clock).join().expect("the thread reads a clock");
        let after = clock();
        assert!(before <= elsewhere && elsewhere <= after);
    }
}
