//! Ends the program when something takes far longer than it should, and says what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    thread: Thread,
    ended: Arc<AtomicBool>,
}

/// Ends the program with exit code 3 if the answer still lives after `limit`. From its return on, the watching allocates
/// nothing, so that it may go on while allocations are counted.
pub fn start(what: String, limit: Duration) -> Watchdog {
    let (watching, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (its_watching, its_ended) = (Arc::clone(&watching), Arc::clone(&ended));
    let thread = thread::spawn(move || {
        its_watching.store(true, SeqCst);
        let began = Instant::now();
        while !its_ended.load(SeqCst) {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                eprintln!("{what}: no end after {limit:?}, giving up");
                std::process::exit(3);
            }
            thread::park_timeout(left);
        }
    });
    while !watching.load(SeqCst) {
        thread::yield_now();
    }
    Watchdog { thread: thread.thread().clone(), ended }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        self.thread.unpark();
    }
}
