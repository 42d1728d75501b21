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
mod theirs;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fulmar_benches::allocator::{self, CountingAllocator};
use fulmar_benches::machine::{self, Cores};
use fulmar_benches::meter::process_cpu_ns;
use lexopt::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What a peer comes back with.
type Ran<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What to measure.
struct Plan {
    what: String,
    peers: Vec<String>,
    threads: Vec<String>,
    payloads: Vec<usize>,
    streams: usize,
    calls: usize,
    cores: Option<usize>,
    time: Duration,
    rounds: usize,
}

/// One peer in one arrangement.
#[derive(Clone, Copy, Debug)]
struct Setting<'p> {
    peer: &'p str,
    /// Both ends on one thread, or each on its own.
    two_threads: bool,
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
    let plan = Plan::parse()?;
    print!("{}", machine::describe());
    Cores::allowed()?.use_first(plan.cores)?;
    match plan.what.as_str() {
        "stream" => streams(&plan),
        "beside" => beside(&plan),
        other => Err(format!("{other}: must be stream or beside").into()),
    }
}

impl Plan {
    fn parse() -> Result<Self, lexopt::Error> {
        let words = |value: std::ffi::OsString| -> Result<Vec<String>, lexopt::Error> {
            Ok(value.string()?.split(',').map(str::to_owned).collect())
        };
        let mut plan = Self {
            what: "stream".into(),
            peers: ["fulmar", "tonic", "floor"].map(str::to_owned).into(),
            threads: ["one", "two"].map(str::to_owned).into(),
            payloads: vec![16 * 1024, 1024 * 1024],
            streams: 8,
            calls: 1_000,
            cores: None,
            time: Duration::from_secs(1),
            rounds: 3,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Value(what) => plan.what = what.string()?,
                Long("peer") => plan.peers = words(parser.value()?)?,
                Long("threads") => plan.threads = words(parser.value()?)?,
                Long("payload") => {
                    let numbers = words(parser.value()?)?.into_iter().map(|word| word.parse());
                    plan.payloads = numbers
                        .collect::<Result<_, _>>()
                        .map_err(|error: std::num::ParseIntError| error.to_string())?;
                }
                Long("streams") => plan.streams = parser.value()?.parse()?,
                Long("calls") => plan.calls = parser.value()?.parse()?,
                Long("cores") => plan.cores = Some(parser.value()?.parse()?),
                Long("seconds") => plan.time = Duration::from_secs_f64(parser.value()?.parse()?),
                Long("rounds") => plan.rounds = parser.value()?.parse()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(plan)
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
    for threads in &plan.threads {
        for &body_bytes in &plan.payloads {
            let mut rates = vec![Vec::new(); plan.peers.len()];
            for _ in 0..plan.rounds {
                for (peer, rates) in plan.peers.iter().zip(&mut rates) {
                    let setting =
                        Setting { peer, two_threads: threads == "two", body_bytes, time: plan.time };
                    rates.push(apart(|| download(setting))?);
                }
            }
            let medians: Vec<Carried> = rates.iter().map(|rates| median(rates)).collect();
            let ours = plan.peers.iter().position(|peer| peer == "fulmar").map(|index| medians[index]);
            for (peer, Carried { rate, cpu_rate, allocated }) in plan.peers.iter().zip(&medians) {
                print!("BenchmarkDownload/peer={peer}/threads={threads}/payload={body_bytes}");
                print!("  {rate:>9.1} MB/s {cpu_rate:>9.1} MB/cpu-s {allocated:>6.3} B-allocated/B");
                match ours {
                    Some(ours) if peer != "fulmar" => println!(
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

fn download(setting: Setting<'_>) -> Ran<Carried> {
    match setting.peer {
        "fulmar" | "encoded" => ours::download(setting),
        "tonic" => theirs::download(setting),
        "floor" => floor::download(setting),
        other => Err(format!("--peer {other}: must be one of fulmar, encoded, tonic, floor").into()),
    }
}

/// Latencies of small calls, one at a time, alone on their connection and beside bulk streams.
fn beside(plan: &Plan) -> Ran<()> {
    for threads in &plan.threads {
        for &body_bytes in &plan.payloads {
            for peer in plan.peers.iter().filter(|peer| *peer != "floor") {
                let setting = Setting { peer, two_threads: threads == "two", body_bytes, time: plan.time };
                let mut rounds = Vec::new();
                for _ in 0..plan.rounds {
                    let of = |streams| {
                        apart(|| match peer.as_str() {
                            "fulmar" => ours::small_calls(setting, streams, plan.calls),
                            _ => theirs::small_calls(setting, streams, plan.calls),
                        })
                    };
                    rounds.push((of(0)?, of(plan.streams)?));
                }
                rounds.sort_by_key(|round| round.1.p99);
                let (idle, busy) = &rounds[rounds.len() / 2];
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

fn median(rounds: &[Carried]) -> Carried {
    let middle = |figure: fn(&Carried) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Carried {
        rate: middle(|round| round.rate),
        cpu_rate: middle(|round| round.cpu_rate),
        allocated: middle(|round| round.allocated),
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
