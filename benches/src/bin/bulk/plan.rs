//! The command line of `bulk`.

use std::ffi::OsString;
use std::time::Duration;

use fulmar_benches::options::{choices, number, numbers};
use fulmar_benches::words;
use lexopt::prelude::*;

use crate::Ran;

/// What to measure, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) what: What,
    pub(crate) peers: Vec<Peer>,
    pub(crate) threads: Vec<Threads>,
    pub(crate) payloads: Vec<usize>,
    pub(crate) streams: usize,
    pub(crate) calls: usize,
    pub(crate) cores: Option<usize>,
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Stream,
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Fulmar,
    Encoded,
    Tonic,
    Floor,
}

/// Both ends on one thread, or each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    Two,
}

words!(What { Stream = "stream", Beside = "beside" });
words!(Peer { Fulmar = "fulmar", Encoded = "encoded", Tonic = "tonic", Floor = "floor" });
words!(Threads { One = "one", Two = "two" });

/// As large as a message may be that is tried.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Plan {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Ran<Self> {
        let mut plan = Self {
            what: What::Stream,
            peers: Vec::new(),
            threads: vec![Threads::One, Threads::Two],
            payloads: vec![16 * 1024, 1024 * 1024],
            streams: 8,
            calls: 1_000,
            cores: None,
            time: Duration::from_secs(1),
            rounds: 3,
        };
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Value(what) => {
                    let word = what.string()?;
                    plan.what = What::from_word(&word)
                        .ok_or_else(|| format!("{word}: must be one of {}", What::WORDS.join(", ")))?;
                }
                Long(flag) => {
                    let flag = flag.to_owned();
                    let value = parser.value()?.string()?;
                    plan.set(&flag, &value)?;
                }
                Short(_) => return Err(argument.unexpected().into()),
            }
        }
        plan.choose_peers()?;
        Ok(plan)
    }

    fn set(&mut self, flag: &str, value: &str) -> Ran<()> {
        match flag {
            "peer" => self.peers = choices(flag, value, Peer::WORDS, Peer::from_word)?,
            "threads" => self.threads = choices(flag, value, Threads::WORDS, Threads::from_word)?,
            "payload" => self.payloads = numbers(flag, value, 1, PAYLOAD_BYTES_MAX)?,
            "streams" => self.streams = number(flag, value, 1, 10_000)?,
            "calls" => self.calls = number(flag, value, 1, 100_000_000)?,
            "cores" => self.cores = Some(number(flag, value, 1, 4096)?),
            "rounds" => self.rounds = number(flag, value, 1, 1000)?,
            "seconds" => self.time = Duration::try_from_secs_f64(value.parse()?)?,
            _ => return Err(format!("--{flag}: no such flag").into()),
        }
        Ok(())
    }

    /// All that measure this, where none is named; and nobody who does not.
    fn choose_peers(&mut self) -> Ran<()> {
        let what = self.what;
        let (all, more): (&[Peer], &[Peer]) = match what {
            What::Stream => (&[Peer::Fulmar, Peer::Tonic, Peer::Floor], &[Peer::Encoded]),
            What::Beside => (&[Peer::Fulmar, Peer::Tonic], &[]),
        };
        if self.peers.is_empty() {
            self.peers = all.to_vec();
        }
        match self.peers.iter().find(|peer| !all.contains(peer) && !more.contains(peer)) {
            Some(peer) => Err(format!("--peer {peer}: it has no figures of {what}").into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_peer_that_is_unknown_or_does_not_do_it_is_refused() {
        for (line, why) in [
            ("beside --peer tonik", "--peer tonik: must be one of fulmar, encoded, tonic, floor"),
            ("stream --peer tonik", "--peer tonik: must be one of fulmar, encoded, tonic, floor"),
            ("--peer encoded beside", "--peer encoded: it has no figures of beside"),
            ("beside --peer fulmar,floor", "--peer floor: it has no figures of beside"),
            ("--threads three", "--threads three: must be one of one, two"),
            ("besides", "besides: must be one of stream, beside"),
            ("--rounds 0", "--rounds 0: must be a whole number between 1 and 1000"),
            ("--round 3", "--round: no such flag"),
        ] {
            let refused = plan(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    #[test]
    fn without_a_word_all_are_measured_who_do_it() {
        let beside = plan("beside").expect("it is one");
        assert_eq!(beside.peers, [Peer::Fulmar, Peer::Tonic]);
        let stream = plan("").expect("it is one");
        assert_eq!((stream.what, stream.peers.len(), stream.threads.len()), (What::Stream, 3, 2));
        let encoded = plan("--peer encoded --threads two --payload 5,6").expect("it is one");
        assert_eq!((encoded.peers, encoded.threads), (vec![Peer::Encoded], vec![Threads::Two]));
        assert_eq!(encoded.payloads, [5, 6]);
    }
}
