//! Large messages: how many bytes a second one server stream carries, beside a raw exchange and tonic in the same run; and how long
//! small calls take beside bulk streams on their connection. R81 is `bulk stream --payload 16777216`: a large message is allocated
//! once where it is received, and not at all from then on.
//!
//! Peer `encoded` is Fulmar with messages that the server has encoded before, as [`fulmar::Encoded`], so that it copies nothing.
//!
//! `cargo run --release -p fulmar-benches --bin bulk -- [stream|beside] [--peer fulmar,tonic,floor] [--threads one,two]
//! [--payload 16384,1048576] [--streams 8] [--calls 1000] [--cores N] [--seconds 1] [--rounds 3]`

mod floor;
mod ours;
mod plan;
mod theirs;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fulmar_benches::allocator::{self, CountingAllocator};
use fulmar_benches::machine::{self, Cores};
use fulmar_benches::meter::process_cpu_ns;
use fulmar_benches::table;

use crate::plan::{Peer, Plan, Threads, What};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What a peer comes back with.
type Ran<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One peer in one arrangement.
#[derive(Clone, Copy, Debug)]
struct Setting {
    peer: Peer,
    threads: Threads,
    body_bytes: usize,
    time: Duration,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bulk: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Ran<()> {
    let plan = Plan::parse(env::args_os().skip(1))?;
    print!("{}", machine::describe());
    Cores::allowed()?.use_first(plan.cores)?;
    match plan.what {
        What::Stream => streams(&plan),
        What::Beside => beside(&plan),
    }
}

/// Runs on a thread of its own, so that nothing that a peer leaves behind reaches the next one.
fn apart<T: Send>(run: impl FnOnce() -> Ran<T> + Send) -> Ran<T> {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|_| Err("panicked".into())))
}

/// How much one stream from a server to a client carries.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    /// Megabytes a second.
    rate: f64,
    /// Megabytes a second of processor time, of both ends: what the rate is on one core that nobody else uses.
    cpu_rate: f64,
    /// Bytes allocated, by both ends, for each byte carried.
    allocated: f64,
}

/// Bytes a second of one stream from a server to a client, for each peer.
fn streams(plan: &Plan) -> Ran<()> {
    for &threads in &plan.threads {
        for &body_bytes in &plan.payloads {
            let mut rates = vec![Vec::new(); plan.peers.len()];
            for _ in 0..plan.rounds {
                for (&peer, rates) in plan.peers.iter().zip(&mut rates) {
                    let setting = Setting { peer, threads, body_bytes, time: plan.time };
                    rates.push(apart(|| download(setting))?);
                }
            }
            let medians: Vec<Carried> = rates.iter().map(|rates| Carried::median(rates)).collect();
            let ours = plan.peers.iter().position(|peer| *peer == Peer::Fulmar).map(|index| medians[index]);
            for (peer, Carried { rate, cpu_rate, allocated }) in plan.peers.iter().zip(&medians) {
                print!("BenchmarkDownload/peer={peer}/threads={threads}/payload={body_bytes}");
                print!("  {rate:>9.1} MB/s {cpu_rate:>9.1} MB/cpu-s {allocated:>6.3} B-allocated/B");
                match ours {
                    Some(ours) if *peer != Peer::Fulmar => println!(
                        "  fulmar: {:.1} % of the rate, {:.1} % a cpu-s",
                        100.0 * ours.rate / rate,
                        100.0 * ours.cpu_rate / cpu_rate
                    ),
                    _ => println!(),
                }
            }
        }
    }
    Ok(())
}

fn download(setting: Setting) -> Ran<Carried> {
    match setting.peer {
        Peer::Fulmar | Peer::Encoded => ours::download(setting),
        Peer::Tonic => theirs::download(setting),
        Peer::Floor => floor::download(setting),
    }
}

fn small_calls(setting: Setting, streams: usize, calls: usize) -> Ran<Latencies> {
    match setting.peer {
        Peer::Fulmar => ours::small_calls(setting, streams, calls),
        Peer::Tonic => theirs::small_calls(setting, streams, calls),
        Peer::Encoded | Peer::Floor => Err(format!("{} makes no small calls", setting.peer).into()),
    }
}

/// Latencies of small calls, one at a time, alone on their connection and beside bulk streams.
fn beside(plan: &Plan) -> Ran<()> {
    for &threads in &plan.threads {
        for &body_bytes in &plan.payloads {
            for &peer in &plan.peers {
                let setting = Setting { peer, threads, body_bytes, time: plan.time };
                let mut rounds = Vec::new();
                for _ in 0..plan.rounds {
                    let of = |streams| apart(|| small_calls(setting, streams, plan.calls));
                    rounds.push((of(0)?, of(plan.streams)?));
                }
                let middle = table::median(rounds, |(_, busy)| busy.p99.as_secs_f64());
                let (idle, busy) = middle.ok_or("nothing was measured")?;
                println!(
                    "BenchmarkBeside/peer={peer}/threads={threads}/payload={body_bytes}  idle {idle}, beside {} streams {busy}: p99 {:.1} x",
                    plan.streams,
                    busy.p99.as_secs_f64() / idle.p99.as_secs_f64()
                );
            }
        }
    }
    Ok(())
}

/// Percentiles of the small calls, and what the bulk streams carried meanwhile.
struct Latencies {
    p50: Duration,
    p99: Duration,
    megabytes_a_second: f64,
}

impl Latencies {
    fn new(mut samples: Vec<Duration>, bulk_bytes: u64, took: Duration) -> Self {
        samples.sort();
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize];
        Self { p50: at(0.5), p99: at(0.99), megabytes_a_second: bulk_bytes as f64 / 1e6 / took.as_secs_f64() }
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p99, megabytes_a_second } = self;
        write!(f, "p50 {p50:.1?} p99 {p99:.1?} ({megabytes_a_second:.0} MB/s)")
    }
}

impl Carried {
    /// The middle of each figure.
    fn median(rounds: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            table::median(rounds.iter().map(figure).collect(), |value| *value).unwrap_or_default()
        };
        Self {
            rate: middle(|round| round.rate),
            cpu_rate: middle(|round| round.cpu_rate),
            allocated: middle(|round| round.allocated),
        }
    }
}

/// Counts what arrives once the warm-up of a fifth of the time is over.
struct Rate {
    warm_until: Instant,
    until: Instant,
    /// When the warm-up was over, and the processor time used by then.
    began: Option<(Instant, u64)>,
    bytes: u64,
}

impl Rate {
    fn new(time: Duration) -> Self {
        let warm_until = Instant::now() + time / 5;
        Self { warm_until, until: warm_until + time, began: None, bytes: 0 }
    }

    /// So many bytes have arrived. False when the run is over.
    fn add(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        match self.began {
            None if now >= self.warm_until => {
                self.began = Some((now, process_cpu_ns()));
                allocator::start();
            }
            None => {}
            Some(_) => self.bytes += bytes as u64,
        }
        now < self.until
    }

    fn carried(&self) -> Carried {
        let Some((began, cpu_ns)) = self.began else { return Carried::default() };
        let cpu_ns = process_cpu_ns().saturating_sub(cpu_ns).max(1);
        let allocated = allocator::stop().bytes as f64 / self.bytes.max(1) as f64;
        let megabytes = self.bytes as f64 / 1e6;
        Carried {
            allocated,
            rate: megabytes / began.elapsed().as_secs_f64(),
            cpu_rate: megabytes * 1e9 / cpu_ns as f64,
        }
    }
}
