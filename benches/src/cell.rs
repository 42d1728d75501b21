//! A cell of the grid: who calls whom, how, and from which threads.

use std::fmt;

/// Who carries the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// This project, both ends.
    Fulmar,
    /// tonic, both ends.
    Tonic,
    /// The h2 crate alone, both ends: the frames of gRPC, and nothing that knows what they mean.
    H2,
    /// A raw exchange of as many bytes over the same kind of socket, without any protocol.
    Floor,
}

/// How the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Callers are futures that share one connection.
    Async,
    /// Each caller is a thread that waits for its own connection.
    Blocking,
}

/// Which threads the two ends run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// What each peer does when it is not told otherwise.
    Runtime,
    /// The server on one thread, the callers and their end of the connection on another.
    Two,
    /// Both ends and the callers on one thread.
    One,
    /// As `Two`, and neither thread sleeps while it waits.
    Spin,
    /// The server on one thread; each caller on one of its own, which waits for its asynchronous call over the channel of all of them.
    Callers,
    /// As `Two`, and the callers' thread is that of a tokio runtime, which drives their end of the connection.
    Tokio,
}

/// What is between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One loopback connection.
    Tcp,
    /// The same, encrypted.
    Tls,
    /// A Unix socket.
    Uds,
    /// Memory.
    InProcess,
}

/// What a caller does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A unary call.
    Unary,
    /// A message on a stream of its own that stays open, and the answer to it.
    Streaming,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Who carries the calls.
    pub peer: Peer,
    /// How the caller waits.
    pub client: Client,
    /// Which threads the two ends run on.
    pub threads: Threads,
    /// What a caller does.
    pub kind: Kind,
    /// Bytes of payload in the request and in the reply.
    pub payload_bytes: usize,
    /// What is between the two ends.
    pub transport: Transport,
    /// Whether a `tracing` subscriber counts spans and events of calls.
    pub trace: bool,
    /// Cores that the process may use; all there are if `None`.
    pub cores: Option<usize>,
    /// Callers at once.
    pub callers: usize,
}

impl Cell {
    /// A caller of Fulmar's that makes unary calls of one byte over TCP, both ends on one thread: what other cells differ from.
    pub const BASE: Self = Self {
        peer: Peer::Fulmar,
        client: Client::Async,
        threads: Threads::One,
        kind: Kind::Unary,
        payload_bytes: 1,
        transport: Transport::Tcp,
        trace: false,
        cores: None,
        callers: 1,
    };

    /// Whether the peers' cells of this kind belong side by side: all is equal but the peer.
    pub fn is_comparable(&self, other: &Self) -> bool {
        Self { peer: other.peer, ..*self } == *other
    }
}

impl fmt::Display for Cell {
    /// The name of the cell as Go's benchmarks write it: `BenchmarkClientUnary/peer=fulmar/…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Unary => "Unary",
            Kind::Streaming => "Streaming",
        };
        let Self { peer, client, threads, payload_bytes, transport, trace, callers, .. } = self;
        write!(f, "BenchmarkClient{kind}/peer={peer}/client={client}/threads={threads}")?;
        write!(f, "/payload={payload_bytes}/transport={transport}")?;
        if *trace {
            write!(f, "/trace=on")?;
        }
        if let Some(cores) = self.cores {
            write!(f, "/cores={cores}")?;
        }
        write!(f, "/c={callers}")
    }
}

/// Gives a choice its words: what the command line reads is what the table shows.
#[macro_export]
macro_rules! words {
    ($choice:ident { $($variant:ident = $word:literal),+ }) => {
        impl $choice {
            /// The words of all choices, as the command line takes them.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The choice of this word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl ::std::fmt::Display for $choice {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }
    };
}

words!(Peer { Fulmar = "fulmar", Tonic = "tonic", H2 = "h2", Floor = "floor" });
words!(Client { Async = "async", Blocking = "blocking" });
words!(Threads { Runtime = "runtime", Two = "two", One = "one", Spin = "spin", Tokio = "tokio", Callers = "callers" });
words!(Transport { Tcp = "tcp", Tls = "tls", Uds = "uds", InProcess = "inprocess" });
words!(Kind { Unary = "unary", Streaming = "streaming" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_named_as_benchstat_reads_it() {
        let cell = Cell { callers: 8, ..Cell::BASE };
        let name = "BenchmarkClientUnary/peer=fulmar/client=async/threads=one/payload=1/transport=tcp";
        assert_eq!(cell.to_string(), format!("{name}/c=8"));
        assert_eq!(Cell { cores: Some(2), ..cell }.to_string(), format!("{name}/cores=2/c=8"));
        assert_eq!(Cell { trace: true, ..cell }.to_string(), format!("{name}/trace=on/c=8"));
    }

    #[test]
    fn every_word_is_read_and_shown_alike() {
        for word in Peer::WORDS {
            assert_eq!(Peer::from_word(word).map(|peer| peer.to_string()).as_deref(), Some(*word));
        }
        for word in Threads::WORDS {
            let shown = Threads::from_word(word).map(|threads| threads.to_string());
            assert_eq!(shown.as_deref(), Some(*word));
        }
        assert_eq!(Kind::from_word("unaryy"), None);
    }
}
