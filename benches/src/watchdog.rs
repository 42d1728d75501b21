//! Ends the program when something takes far longer than it should, and says what.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watchdog(#[expect(dead_code, reason = "dropping it is the message")] Sender<()>);

/// Ends the program with exit code 3 if the answer still lives after `limit`.
pub fn start(what: String, limit: Duration) -> Watchdog {
    let (watched, watching) = mpsc::channel();
    thread::spawn(move || {
        if watching.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{what}: no end after {limit:?}, giving up");
            std::process::exit(3);
        }
    });
    Watchdog(watched)
}
