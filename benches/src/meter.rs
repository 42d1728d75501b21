//! What one run of one cell costs: time, CPU time, latency percentiles and allocations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::allocator;
use crate::pace::Pace;

/// How long a run takes: all callers call all the time, from the first phase to the last.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// Not measured: connections settle, pools fill, branch predictors learn.
    pub warm_up: Duration,
    /// Time, CPU time and latency are measured; allocations are not, because counting them takes time.
    pub timed: Duration,
    /// Allocations are counted.
    pub counted: Duration,
}

/// Shared by all callers of a run. Each goes on calling while [`running`](Self::running), and puts [`next`](Self::next) (or
/// [`next_blocking`](Self::next_blocking)) and [`end`](Self::end) around each call.
#[derive(Debug)]
pub struct Meter {
    calls: AtomicU64,
    phase: AtomicU8,
    stride: u64,
    pace: Option<Pace>,
    phases: Phases,
    state: Mutex<State>,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Calls (or message pairs) that were timed.
    pub iterations: u64,
    /// Wall-clock nanoseconds a call: the time of the run by its calls, not the latency of one.
    pub ns: f64,
    /// Nanoseconds of CPU time a call, user and system, of all threads of the process; both ends are in it.
    pub cpu_ns: f64,
    /// Bytes allocated a call, both ends.
    pub bytes: f64,
    /// Allocations a call, both ends.
    pub allocations: f64,
    /// Latency of a call in nanoseconds that half of the calls did not exceed.
    pub p50_ns: u64,
    /// Latency of a call in nanoseconds that 99 of 100 calls did not exceed.
    pub p99_ns: u64,
    /// Latency of a call in nanoseconds that 999 of 1,000 calls did not exceed.
    pub p999_ns: u64,
}

const WARM_UP: u8 = 0;
const TIMED: u8 = 1;
const COUNTED: u8 = 2;
const DONE: u8 = 3;

/// Where many callers make short calls, one call in so many is looked at with the clock. A prime, so that no batch of a
/// round number of callers has the same caller looked at each time.
const STRIDE_OF_MANY: u64 = 17;

#[derive(Debug)]
struct State {
    started: Moment,
    timed: Option<(Moment, Moment)>,
    allocations: Option<(allocator::Allocations, u64)>,
    latency: Histogram<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    cpu_ns: u64,
    calls: u64,
}

impl Meter {
    /// Begins the warm-up of a run with so many callers, which together make `rate` calls a second; as many as they can if `None`.
    pub fn new(phases: Phases, callers: usize, rate: Option<u32>) -> Self {
        Self {
            pace: rate.map(Pace::new),
            calls: AtomicU64::new(0),
            phase: AtomicU8::new(WARM_UP),
            stride: if callers < 8 { 1 } else { STRIDE_OF_MANY },
            phases,
            state: Mutex::new(State {
                started: Moment::now(0),
                timed: None,
                allocations: None,
                latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                    .expect("the bounds and the precision are valid constants"),
            }),
        }
    }

    /// Whether callers go on calling.
    pub fn running(&self) -> bool {
        self.phase.load(Relaxed) != DONE
    }

    /// Before a call: waits until it is due, if there is a rate. The answer belongs into [`end`](Self::end).
    pub async fn next(&self) -> Option<Instant> {
        match &self.pace {
            None => self.begin(),
            Some(pace) => Some(pace.next(|| self.running()).await),
        }
    }

    /// As [`next`](Self::next), on a thread that may wait.
    pub fn next_blocking(&self) -> Option<Instant> {
        match &self.pace {
            None => self.begin(),
            Some(pace) => Some(pace.next_blocking(|| self.running())),
        }
    }

    /// Before a call that is not late, whatever the rate.
    pub fn begin(&self) -> Option<Instant> {
        self.calls.load(Relaxed).is_multiple_of(self.stride).then(Instant::now)
    }

    /// After a call.
    pub fn end(&self, began: Option<Instant>) {
        self.end_batch(began, 1);
    }

    /// After so many calls that were made as one, each taking as long as all of them.
    pub fn end_batch(&self, began: Option<Instant>, calls: u64) {
        let calls = self.calls.fetch_add(calls, Relaxed) + calls;
        if let Some(began) = began {
            self.look(began, calls);
        }
    }

    /// Records a latency and moves on to the next phase when this one has lasted long enough.
    fn look(&self, began: Instant, calls: u64) {
        let now = Instant::now();
        let mut state = self.state.lock().expect("no holder of this lock panics");
        let phase = self.phase.load(Relaxed);
        if phase == TIMED && began >= state.started.at {
            let latency_ns = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
            state.latency.saturating_record(latency_ns);
        }
        let lasted = now - state.started.at;
        match phase {
            WARM_UP if lasted >= self.phases.warm_up => {
                state.started = Moment::now(calls);
                self.phase.store(TIMED, Relaxed);
            }
            TIMED if lasted >= self.phases.timed => {
                let ended = Moment::now(calls);
                state.timed = Some((state.started, ended));
                state.started = ended;
                self.phase.store(COUNTED, Relaxed);
                allocator::start();
            }
            COUNTED if lasted >= self.phases.counted => {
                state.allocations = Some((allocator::stop(), calls - state.started.calls));
                self.phase.store(DONE, Relaxed);
            }
            _ => {}
        }
    }

    /// After the last caller stopped: the figures, or `None` if the callers stopped before the run was over.
    pub fn measurement(&self) -> Option<Measurement> {
        let state = self.state.lock().expect("no holder of this lock panics");
        let (started, ended) = state.timed?;
        let (allocations, counted) = state.allocations?;
        let iterations = (ended.calls - started.calls).max(1);
        let counted = counted.max(1) as f64;
        Some(Measurement {
            iterations,
            ns: (ended.at - started.at).as_nanos() as f64 / iterations as f64,
            cpu_ns: ended.cpu_ns.saturating_sub(started.cpu_ns) as f64 / iterations as f64,
            bytes: allocations.bytes as f64 / counted,
            allocations: allocations.calls as f64 / counted,
            p50_ns: state.latency.value_at_quantile(0.50),
            p99_ns: state.latency.value_at_quantile(0.99),
            p999_ns: state.latency.value_at_quantile(0.999),
        })
    }
}

impl Moment {
    fn now(calls: u64) -> Self {
        Self { at: Instant::now(), cpu_ns: process_cpu_ns(), calls }
    }
}

/// CPU time of all threads of this process, in nanoseconds.
#[cfg(unix)]
pub fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Not known where there is no POSIX clock for it: cells then show 0.
#[cfg(not(unix))]
pub fn process_cpu_ns() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Phases = Phases {
        warm_up: Duration::from_millis(2),
        timed: Duration::from_millis(20),
        counted: Duration::from_millis(2),
    };

    #[test]
    fn a_run_passes_all_phases_and_then_stops_its_callers() {
        let meter = Meter::new(SHORT, 1, None);
        let mut calls = 0_u64;
        while meter.running() {
            let began = meter.begin();
            std::thread::yield_now();
            meter.end(began);
            calls += 1;
        }
        let measurement = meter.measurement().expect("all phases passed");
        assert!(measurement.iterations > 0 && measurement.iterations < calls);
        let timed = measurement.ns * measurement.iterations as f64;
        assert!(timed >= SHORT.timed.as_nanos() as f64, "timed {timed} ns");
        assert!(measurement.p50_ns <= measurement.p99_ns);
    }

    #[test]
    fn a_run_that_ended_early_has_no_figures() {
        let meter = Meter::new(SHORT, 1, None);
        meter.end(meter.begin());
        assert!(meter.measurement().is_none());
    }

    /// Half of the calls took so long, of a run at a rate in which one call takes most of the time.
    fn p50_ns_of_a_run_with_a_stall() -> u64 {
        let meter = Meter::new(SHORT, 1, Some(1000));
        let mut stalled = false;
        while meter.running() {
            let due = meter.next_blocking();
            if meter.phase.load(Relaxed) == TIMED && !std::mem::replace(&mut stalled, true) {
                std::thread::sleep(Duration::from_millis(15));
            }
            meter.end(due);
        }
        meter.measurement().expect("all phases passed").p50_ns
    }

    #[test]
    fn with_a_rate_a_stall_is_seen_by_all_calls_that_it_makes_late() {
        // On a busy machine a run may be longer than it should be, and most of its calls punctual; not every time.
        let late = (0..10).map(|_| p50_ns_of_a_run_with_a_stall()).any(|p50_ns| p50_ns > 2_000_000);
        assert!(late, "one call of 20 took long, but half of them were late");
    }

    #[test]
    fn a_batch_counts_all_its_calls() {
        let meter = Meter::new(SHORT, 64, None);
        while meter.running() {
            meter.end_batch(Some(Instant::now()), 64);
        }
        let iterations = meter.measurement().expect("all phases passed").iterations;
        assert!(iterations > 0 && iterations.is_multiple_of(64), "{iterations} iterations");
    }
}
