//! What a server saw, for tests that ask whether the other end got to know.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Lines that handlers write and tests wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    lines: Arc<Mutex<Vec<String>>>,
}

/// Writes `METHOD dropped` if it is dropped before [`finish`](Guard::finish): the handler's future did not run to its end.
#[derive(Debug)]
pub(crate) struct Guard {
    journal: Journal,
    method: &'static str,
    finished: bool,
}

/// How long a line may take to appear.
const LIMIT: Duration = Duration::from_secs(20);

/// Between two looks, so that the other threads get to run.
const PAUSE: Duration = Duration::from_millis(1);

impl Journal {
    /// Writes `METHOD began` and watches how the handler ends.
    pub(crate) fn begin(&self, method: &'static str) -> Guard {
        self.write(format!("{method} began"));
        Guard { journal: self.clone(), method, finished: false }
    }

    /// Waits until a handler has written this line, under any executor: what else it has to do is done meanwhile.
    pub(crate) async fn seen(&self, line: &str) {
        let limit = Instant::now() + LIMIT;
        poll_fn(|cx| {
            if self.has(line, limit) {
                return Poll::Ready(());
            }
            thread::sleep(PAUSE);
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Waits until a handler has written this line, and stops the thread meanwhile.
    pub(crate) fn wait_for(&self, line: &str) {
        let limit = Instant::now() + LIMIT;
        while !self.has(line, limit) {
            thread::sleep(PAUSE);
        }
    }

    fn has(&self, line: &str, limit: Instant) -> bool {
        let lines = self.lines();
        let has = lines.iter().any(|one| one == line);
        assert!(has || Instant::now() < limit, "the server has not written {line:?}, only {lines:?}");
        has
    }

    fn write(&self, line: String) {
        self.lines().push(line);
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    /// The handler ran to its end.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.finished {
            self.journal.write(format!("{} dropped", self.method));
        }
    }
}
