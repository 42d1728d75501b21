//! A limit in time for each test.

use std::panic;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long a test may take before it counts as hanging: far more than any needs, on a machine with other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the body of a test on a thread of its own; panics when it does, or when it has not ended within the limit.
pub(crate) fn within_limit(body: impl FnOnce() + Send + 'static) {
    let name = thread::current().name().unwrap_or("test").to_owned();
    let (sender, ended) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let _sender = sender; // dropped at the end, whichever way it comes
            body();
        })
        .expect("a thread for the test");
    match ended.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => panic!("{name} has not ended within {LIMIT:?}"),
        Err(RecvTimeoutError::Disconnected) | Ok(()) => {
            if let Err(panicked) = thread.join() {
                panic::resume_unwind(panicked);
            }
        }
    }
}
