//! How much of everything is in use.

use std::ops::{Add, AddAssign};
use std::sync::mpsc;
use std::time::Duration;

use fulmar_reactor::Mailbox;

use crate::host::Letter;

/// How long somebody on another thread waits for the counts of one reactor.
const REACTOR_WAIT: Duration = Duration::from_secs(10);

/// How much of everything a reactor has in use: everything that is begun for a call or a connection, and ends with it.
///
/// For tests that look for leaks, and for a glance at a service that runs: what is at rest has the counts that it had before the
/// first call, but for connections, which stay. Memory that waits for its next use is in no count; how much of it there can be is in
/// `docs/memory.md`. Counting takes time in proportion to the connections, and disturbs nothing.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let mut reactor = fulmar::LocalReactor::new()?;
/// assert_eq!(reactor.counts(), fulmar::Counts::default(), "nothing is in use yet");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections, those being dialled included. A channel to a server of the same reactor has two ends there.
    pub connections: usize,
    /// Connections that are over and only get their last bytes across.
    pub lingering: usize,
    /// HTTP/2 streams that are not closed, of both kinds of connections.
    pub streams: usize,
    /// Calls whose handlers have not ended, or wait for their request.
    pub handlers: usize,
    /// Calls of clients that run.
    pub client_calls: usize,
    /// Calls of clients that wait for a connection or a stream.
    pub waiting_calls: usize,
    /// Deadlines of calls that have not come.
    pub deadlines: usize,
    /// Cells of calls that servers have handed out: one for each call that streams, until the call is over and the last handle of it,
    /// if the handler has put one elsewhere, is dropped.
    pub cells: usize,
    /// Metadata maps that requests carry.
    pub metadata_maps: usize,
    /// Blocks of memory that hold parts of messages, and messages that nobody has taken.
    pub blocks: usize,
    /// Bytes of messages that have arrived and that nobody has taken.
    pub held_bytes: usize,
    /// Futures given to [`LocalReactor::spawn`](crate::LocalReactor::spawn) that have not ended.
    pub tasks: usize,
    /// Timers of servers that shut down and of channels that connect.
    pub timers: usize,
}

impl Counts {
    /// The counts by name, in the order of the fields.
    ///
    /// ```
    /// let total: usize = fulmar::Counts::default().by_name().iter().map(|(_, count)| count).sum();
    /// assert_eq!(total, 0);
    /// ```
    pub fn by_name(&self) -> [(&'static str, usize); 13] {
        [
            ("connections", self.connections),
            ("lingering", self.lingering),
            ("streams", self.streams),
            ("handlers", self.handlers),
            ("client_calls", self.client_calls),
            ("waiting_calls", self.waiting_calls),
            ("deadlines", self.deadlines),
            ("cells", self.cells),
            ("metadata_maps", self.metadata_maps),
            ("blocks", self.blocks),
            ("held_bytes", self.held_bytes),
            ("tasks", self.tasks),
            ("timers", self.timers),
        ]
    }

    /// Those of the reactors behind these mailboxes, together. None on a reactor's thread, which waiting would stop, and when one of
    /// them does not answer in time. A reactor that has ended has nothing in use.
    pub(crate) fn of(mailboxes: impl IntoIterator<Item = Mailbox<Letter>>) -> Option<Self> {
        if fulmar_reactor::on_reactor_thread() {
            return None;
        }
        let mut counts = Self::default();
        for mailbox in mailboxes {
            let (sender, receiver) = mpsc::sync_channel(1);
            mailbox.send(Letter::Count(sender));
            counts += match receiver.recv_timeout(REACTOR_WAIT) {
                Ok(counts) => counts,
                Err(mpsc::RecvTimeoutError::Disconnected) => Self::default(),
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
            };
        }
        Some(counts)
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            lingering: self.lingering + other.lingering,
            streams: self.streams + other.streams,
            handlers: self.handlers + other.handlers,
            client_calls: self.client_calls + other.client_calls,
            waiting_calls: self.waiting_calls + other.waiting_calls,
            deadlines: self.deadlines + other.deadlines,
            cells: self.cells + other.cells,
            metadata_maps: self.metadata_maps + other.metadata_maps,
            blocks: self.blocks + other.blocks,
            held_bytes: self.held_bytes + other.held_bytes,
            tasks: self.tasks + other.tasks,
            timers: self.timers + other.timers,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// How much of everything the callers of a channel have in use: [`Channel::counts`](crate::Channel::counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelCounts {
    /// Cells of calls: one for each call that is not over or of which a handle is left.
    pub cells: usize,
    /// Metadata maps that responses carry.
    pub metadata_maps: usize,
}
