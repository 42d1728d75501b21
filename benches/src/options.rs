//! The command line of `grid`.

use std::fmt;
use std::time::Duration;

use lexopt::prelude::*;

use crate::cell::{Cell, Client, Kind, Peer, Threads, Transport};

/// What `--help` prints.
pub const USAGE: &str = "\
usage: grid [--peer fulmar,tonic,h2,floor] [--client async,blocking] [--threads runtime,two,one,spin,tokio,callers]
            [--kind unary,streaming] [--concurrency 1,8,64,512] [--payload 1,1024] [--trace off,on]
            [--transport tcp,tls,uds,inprocess] [--cores 1,2] [--rate N] [--seconds 3] [--rounds 3]

Runs every combination of what is listed and prints one line a cell in the format of Go's benchmarks: the median of the
rounds. The rounds of all cells are interleaved.

  --peer         who carries the calls; h2: that crate alone; floor: a raw exchange of
                 as many bytes                                                       [fulmar,tonic,floor]
  --client       callers are futures, or threads that wait                           [async]
  --threads      runtime: each peer's own default; two: one for each end;
                 one: both ends on one thread; spin: two that never sleep;
                 tokio: two, and a tokio runtime drives the callers' end;
                 callers: a thread each, over one channel                            [one]
  --kind         unary calls, or message pairs on streams that stay open             [unary,streaming]
  --concurrency  callers at once                                                     [1,8,64,512]
  --payload      bytes of payload each way                                           [1]
  --trace        on: a tracing subscriber counts a span a call, an event a message   [off]
  --transport    tcp: loopback; tls: TLS 1.3 on it; uds: Unix socket; inprocess      [tcp]
  --cores        allow the whole process this many cores                             [all]
  --rate         calls a second of all callers together, begun when they are due,
                 however late earlier ones are; latencies count from then            [as fast as it goes]
  --seconds      measured seconds a cell, all rounds together                        [3]
  --rounds       how often each cell runs                                            [3]
";

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who carries the calls.
    pub peers: Vec<Peer>,
    /// How callers wait.
    pub clients: Vec<Client>,
    /// Arrangements of threads.
    pub threads: Vec<Threads>,
    /// What callers do.
    pub kinds: Vec<Kind>,
    /// Numbers of callers.
    pub concurrency: Vec<usize>,
    /// Sizes of the payload in bytes.
    pub payloads: Vec<usize>,
    /// What is between the two ends.
    pub transports: Vec<Transport>,
    /// Without and with a subscriber.
    pub traces: Vec<bool>,
    /// Numbers of cores the process may use; all of them if `None`.
    pub cores: Vec<Option<usize>>,
    /// Calls a second of all callers together; as many as they can make if `None`.
    pub rate: Option<u32>,
    /// Measured time of a cell, all rounds together.
    pub time: Duration,
    /// Runs of each cell.
    pub rounds: u32,
    /// `--help` was asked for.
    pub help: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peers: vec![Peer::Fulmar, Peer::Tonic, Peer::Floor],
            clients: vec![Client::Async],
            threads: vec![Threads::One],
            kinds: vec![Kind::Unary, Kind::Streaming],
            concurrency: vec![1, 8, 64, 512],
            payloads: vec![1],
            transports: vec![Transport::Tcp],
            traces: vec![false],
            cores: vec![None],
            rate: None,
            time: Duration::from_secs(3),
            rounds: 3,
            help: false,
        }
    }
}

/// A command line that cannot be followed, and why.
#[derive(Debug)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (see --help)", self.0)
    }
}

impl std::error::Error for UsageError {}

impl Options {
    /// Reads the arguments, without the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(usage)? {
            let Long(flag) = argument else {
                return Err(usage(argument.unexpected()));
            };
            let flag = flag.to_owned();
            if flag == "help" {
                options.help = true;
                return Ok(options);
            }
            let value = parser.value().map_err(usage)?.string().map_err(usage)?;
            options.set(&flag, &value)?;
        }
        Ok(options)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), UsageError> {
        match flag {
            "peer" => self.peers = choices(flag, value, Peer::WORDS, Peer::from_word)?,
            "client" => self.clients = choices(flag, value, Client::WORDS, Client::from_word)?,
            "threads" => self.threads = choices(flag, value, Threads::WORDS, Threads::from_word)?,
            "kind" => self.kinds = choices(flag, value, Kind::WORDS, Kind::from_word)?,
            "concurrency" => self.concurrency = numbers(flag, value, 1, 100_000)?,
            "payload" => self.payloads = numbers(flag, value, 0, 4 * 1024 * 1024 - 16)?,
            "trace" => self.traces = choices(flag, value, &["off", "on"], trace_from_word)?,
            "transport" => self.transports = choices(flag, value, Transport::WORDS, Transport::from_word)?,
            "cores" => self.cores = numbers(flag, value, 1, 4096)?.into_iter().map(Some).collect(),
            "rate" => self.rate = Some(number(flag, value, 1, 10_000_000)?),
            "rounds" => self.rounds = number(flag, value, 1, 1000)?,
            "seconds" => {
                let seconds: f64 =
                    value.parse().map_err(|_| usage(format!("--seconds {value}: not a number")))?;
                if !(0.01..=3600.0).contains(&seconds) {
                    return Err(usage(format!("--seconds {value}: must lie between 0.01 and 3600")));
                }
                self.time = Duration::from_secs_f64(seconds);
            }
            _ => return Err(usage(format!("--{flag}: no such flag"))),
        }
        Ok(())
    }

    /// All combinations, cells to be compared next to each other.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::BASE];
        cells = each(&cells, &self.kinds, |cell, &kind| Cell { kind, ..cell });
        cells = each(&cells, &self.transports, |cell, &transport| Cell { transport, ..cell });
        cells = each(&cells, &self.traces, |cell, &trace| Cell { trace, ..cell });
        cells = each(&cells, &self.cores, |cell, &cores| Cell { cores, ..cell });
        cells = each(&cells, &self.clients, |cell, &client| Cell { client, ..cell });
        cells = each(&cells, &self.threads, |cell, &threads| Cell { threads, ..cell });
        cells = each(&cells, &self.payloads, |cell, &payload_bytes| Cell { payload_bytes, ..cell });
        cells = each(&cells, &self.concurrency, |cell, &callers| Cell { callers, ..cell });
        each(&cells, &self.peers, |cell, &peer| Cell { peer, ..cell })
    }
}

fn trace_from_word(word: &str) -> Option<bool> {
    match word {
        "off" => Some(false),
        "on" => Some(true),
        _ => None,
    }
}

/// Each of the cells with each of the choices.
fn each<T>(cells: &[Cell], choices: &[T], with: impl Fn(Cell, &T) -> Cell + Copy) -> Vec<Cell> {
    cells.iter().flat_map(|cell| choices.iter().map(move |choice| with(*cell, choice))).collect()
}

/// The choices in a list of words behind a flag, such as `tcp,tls`.
///
/// # Errors
/// A word that is none of `words`.
pub fn choices<T>(
    flag: &str,
    value: &str,
    words: &[&str],
    from_word: fn(&str) -> Option<T>,
) -> Result<Vec<T>, UsageError> {
    let choice = |word: &str| {
        from_word(word).ok_or_else(|| usage(format!("--{flag} {word}: must be one of {}", words.join(", "))))
    };
    value.split(',').map(choice).collect()
}

/// The whole numbers in a list behind a flag.
///
/// # Errors
/// What is no number, or not between `min` and `max`.
pub fn numbers(flag: &str, value: &str, min: usize, max: usize) -> Result<Vec<usize>, UsageError> {
    value.split(',').map(|word| number(flag, word, min, max)).collect()
}

/// The whole number behind a flag.
///
/// # Errors
/// As [`numbers`].
pub fn number<T: std::str::FromStr + PartialOrd + fmt::Display>(
    flag: &str,
    word: &str,
    min: T,
    max: T,
) -> Result<T, UsageError> {
    match word.parse() {
        Ok(number) if (&min..=&max).contains(&&number) => Ok(number),
        _ => Err(usage(format!("--{flag} {word}: must be a whole number between {min} and {max}"))),
    }
}

fn usage(error: impl fmt::Display) -> UsageError {
    UsageError(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, UsageError> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn cells_are_every_combination_with_the_peers_side_by_side() {
        let options = parse("--peer tonic,floor --concurrency 1,8 --kind unary").expect("valid");
        let names: Vec<_> = options.cells().iter().map(|cell| (cell.peer, cell.callers)).collect();
        use Peer::{Floor, Tonic};
        assert_eq!(names, [(Tonic, 1), (Floor, 1), (Tonic, 8), (Floor, 8)]);
    }

    #[test]
    fn bad_arguments_are_told_with_flag_and_value() {
        for (line, text) in [
            ("--peer grpc", "--peer grpc: must be one of fulmar, tonic, h2, floor"),
            ("--concurrency 0", "--concurrency 0: must be a whole number between 1 and 100000"),
            ("--transport tcp,quic", "--transport quic: must be one of tcp, tls, uds, inprocess"),
            ("--rate 0", "--rate 0: must be a whole number between 1 and 10000000"),
            ("--seconds soon", "--seconds soon: not a number"),
            ("--seconds 0", "must lie between"),
            ("--colour red", "--colour: no such flag"),
            ("stray", "stray"),
            ("--rounds", "--rounds"),
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}
