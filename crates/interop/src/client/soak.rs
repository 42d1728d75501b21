//! Large calls in numbers, from several threads, on one channel or on a new one for each.

use std::thread;
use std::time::Instant;

use futures::executor::block_on;

use super::failure::{Failure, Outcome};
use super::options::{Options, SoakOptions};
use super::tester::{Tester, expect_zeros, zeros};
use crate::proto::grpc::testing::SimpleRequest;

/// All calls on one channel.
pub(super) fn rpc_soak(tester: &Tester, options: &Options) -> Outcome {
    soak(options, Some(tester))
}

/// Each call on a channel of its own.
pub(super) fn channel_soak(options: &Options) -> Outcome {
    soak(options, None)
}

fn soak(options: &Options, tester: Option<&Tester>) -> Outcome {
    let SoakOptions { iterations, threads, failures_max, overall_timeout, .. } = options.soak;
    if threads == 0 || iterations % threads != 0 {
        return Err(Failure::new(format!(
            "--soak_iterations={iterations} must be a multiple of --soak_num_threads={threads}"
        )));
    }
    let begun = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|worker| scope.spawn(move || work(options, tester, worker, begun))).collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    let mut total = Tally::default();
    for tally in results {
        total.add(tally.map_err(|_| Failure::new("a thread of the soak test panicked"))?);
    }
    total.print(options);
    let ran = total.latencies_ms.len() + total.failures;
    if ran != iterations as usize {
        return Err(Failure::new(format!(
            "the soak test took all its {overall_timeout:?} and ran {ran} of {iterations} iterations"
        )));
    }
    if total.failures > failures_max as usize {
        return Err(Failure::new(format!(
            "{} iterations of the soak test failed, {failures_max} may",
            total.failures
        )));
    }
    Ok(())
}

/// What one thread does: its share of the calls, one after the other.
fn work(options: &Options, tester: Option<&Tester>, worker: u32, begun: Instant) -> Tally {
    let soak = &options.soak;
    let mut tally = Tally::default();
    for iteration in 0..soak.iterations / soak.threads {
        let started = Instant::now();
        if started.duration_since(begun) >= soak.overall_timeout {
            break;
        }
        let outcome = block_on(call(options, tester));
        let latency = started.elapsed();
        let verdict = match outcome {
            Ok(()) if latency <= soak.latency_max => {
                tally.latencies_ms.push(latency.as_millis());
                "succeeded".to_owned()
            }
            Ok(()) => {
                tally.failures += 1;
                format!("exceeds max acceptable latency: {}", soak.latency_max.as_millis())
            }
            Err(failure) => {
                tally.failures += 1;
                format!("failed: {failure}")
            }
        };
        eprintln!(
            "worker {worker}: soak iteration: {iteration} elapsed_ms: {} server_uri: {} {verdict}",
            latency.as_millis(),
            options.endpoint()
        );
        thread::sleep(soak.pause_min.saturating_sub(started.elapsed()));
    }
    tally
}

async fn call(options: &Options, tester: Option<&Tester>) -> Outcome {
    let SoakOptions { request_bytes, response_bytes, .. } = options.soak;
    let fresh;
    let tester = match tester {
        Some(tester) => tester,
        None => {
            fresh = Tester::connect(options).await?;
            &fresh
        }
    };
    let request = SimpleRequest {
        response_size: response_bytes,
        payload: Some(zeros(request_bytes)),
        ..SimpleRequest::default()
    };
    let reply = tester.client.unary_call(request).await?.into_inner();
    expect_zeros("UnaryCall", reply.payload.as_ref(), usize::try_from(response_bytes).unwrap_or_default())
}

/// How the calls of a thread, or of all, went.
#[derive(Debug, Default)]
struct Tally {
    latencies_ms: Vec<u128>,
    failures: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.latencies_ms.extend(other.latencies_ms);
        self.failures += other.failures;
    }

    fn print(&mut self, options: &Options) {
        self.latencies_ms.sort_unstable();
        let percentile = |share: usize| {
            let last = self.latencies_ms.len().saturating_sub(1);
            self.latencies_ms.get(last * share / 100).copied().unwrap_or_default()
        };
        eprintln!(
            "(server_uri: {}) soak test successes: {} / {} iterations. total failures: {}. max failures threshold: {}. \
             latencies in milliseconds: p50: {} p90: {} p100: {}",
            options.endpoint(),
            self.latencies_ms.len(),
            options.soak.iterations,
            self.failures,
            options.soak.failures_max,
            percentile(50),
            percentile(90),
            percentile(100)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_that_cannot_be_shared_evenly_are_refused() {
        for threads in [0, 3] {
            let soak = SoakOptions { iterations: 10, threads, ..SoakOptions::default() };
            let failure = channel_soak(&Options { soak, ..Options::default() }).unwrap_err();
            assert!(failure.to_string().contains("must be a multiple"), "{failure}");
        }
    }

    #[test]
    fn no_call_begins_after_the_overall_timeout() {
        let soak = SoakOptions { overall_timeout: Duration::ZERO, ..SoakOptions::default() };
        let failure = channel_soak(&Options { soak, ..Options::default() }).unwrap_err();
        assert!(failure.to_string().contains("ran 0 of 10"), "{failure}");
    }
}
