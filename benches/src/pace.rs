//! An open loop: calls begin when they are due, however long earlier ones take, so that a stall is seen by all calls that it
//! makes late and not only by the one that was under way ("coordinated omission").

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Says when calls are due. Callers of one run share it.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    interval_ns: f64,
    /// How many calls were given out. A future holds it while it waits for the next one to be due: one waits awake at a time, and
    /// the others asleep.
    baton: futures::lock::Mutex<u64>,
    /// The same for threads.
    thread_baton: Mutex<u64>,
}

/// Threads wait awake when less is left: the system wakes them with a delay of about as much.
const AWAKE: Duration = Duration::from_micros(150);

impl Pace {
    /// So many calls a second, the first one due now.
    pub fn new(rate: u32) -> Self {
        Self {
            started: Instant::now(),
            interval_ns: 1e9 / f64::from(rate.max(1)),
            baton: futures::lock::Mutex::new(0),
            thread_baton: Mutex::new(0),
        }
    }

    /// Waits until the next call is due, and tells when that was, which is past when all callers were busy. It comes back at once
    /// when nothing is `running` any more.
    ///
    /// Waiting is looking at the clock again and again, with turns for what else runs on the thread in between: a timer of a
    /// runtime would be late by up to a millisecond.
    pub async fn next(&self, running: impl Fn() -> bool) -> Instant {
        let mut given = self.baton.lock().await;
        let due = self.due(*given);
        *given += 1;
        while Instant::now() < due && running() {
            yield_once().await;
        }
        due
    }

    /// As [`next`](Self::next), for a thread that may wait.
    pub fn next_blocking(&self, running: impl Fn() -> bool) -> Instant {
        let mut given = self.thread_baton.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.due(*given);
        *given += 1;
        while running() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if left > AWAKE {
                thread::sleep((left - AWAKE).min(Duration::from_millis(10)));
            } else {
                std::hint::spin_loop();
            }
        }
        due
    }

    fn due(&self, call: u64) -> Instant {
        self.started + Duration::from_nanos((call as f64 * self.interval_ns) as u64)
    }
}

/// Lets everything else on this thread have a turn, and the sockets too.
async fn yield_once() {
    if tokio::runtime::Handle::try_current().is_ok() {
        // A waker called at once would keep tokio away from its sockets for many turns.
        return tokio::task::yield_now().await;
    }
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn calls_are_due_at_equal_intervals_from_the_start_whoever_asks() {
        let pace = Pace::new(2_000);
        let dues: Vec<_> = (0..4).map(|_| block_on(pace.next(|| true)) - pace.started).collect();
        let expected = [0, 500, 1000, 1500].map(Duration::from_micros);
        assert_eq!(dues, expected);
        assert!(pace.started.elapsed() >= expected[3]);
    }

    #[test]
    fn late_calls_are_due_when_they_should_have_begun() {
        let pace = Pace::new(1_000);
        thread::sleep(Duration::from_millis(10));
        let began = Instant::now();
        let dues: Vec<_> = (0..3).map(|_| pace.next_blocking(|| true) - pace.started).collect();
        assert_eq!(dues, [0, 1, 2].map(Duration::from_millis));
        assert!(began >= pace.started + dues[2], "all of them were late already");
    }

    #[test]
    fn nobody_waits_when_the_run_is_over() {
        let pace = Pace::new(1);
        block_on(pace.next(|| false));
        let due = block_on(pace.next(|| false));
        assert!(due > Instant::now(), "the second call is due in a second");
        pace.next_blocking(|| false);
        assert!(pace.next_blocking(|| false) > Instant::now());
    }
}
