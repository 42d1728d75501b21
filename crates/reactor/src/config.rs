use std::time::Duration;

use fulmar_base::Pool;

/// The limits and habits of a [`Reactor`](crate::Reactor).
#[derive(Clone, Debug)]
pub struct ReactorConfig {
    /// How long the reactor looks for work without sleeping before it sleeps. Costs a whole processor core while it lasts, and
    /// saves the time it takes to wake a thread. Default: 0, it sleeps at once.
    pub busy_poll: Duration,
    /// How many connections there may be at once. Those accepted above are closed at once. Default: 1,000,000.
    pub connections_max: usize,
    /// How many bytes a transport may leave unread, in bytes: the longest frame of its protocol. A connection that leaves more is
    /// closed. Default: 1 MiB.
    pub unread_bytes_max: usize,
    /// How many bytes all connections together may hold that were received and not taken yet, in bytes. Above it, the peers of
    /// those that hold most get no credit for more, but each the one message that is unfinished longest, and their new streams
    /// are refused. Default: 1 GiB.
    pub held_bytes_max: usize,
    /// How many bytes may wait for a peer that does not read, in bytes. Engines stop to write DATA at
    /// [`Output::SOFT_LIMIT`](fulmar_base::Output::SOFT_LIMIT), so that only answers to a peer that sends and never reads come
    /// here; its connection is closed. Default: 8 MiB.
    pub output_bytes_max: usize,
    /// How long a peer may take nothing at all of what waits to be written to its socket; then its connection is closed, as that of
    /// one that is dead or holds memory on purpose. (A peer that reads, but whose application does not, is stopped by its protocol,
    /// not by its socket.) Default: 60 s.
    pub write_stall: Duration,
    /// How long a closed connection lingers while nothing moves: first for the peer to take what is still to be written, then for
    /// it to close its side, so that no reset overtakes the last bytes. Default: 1 s. While bytes move it may last ten times that.
    pub linger: Duration,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        Self {
            busy_poll: Duration::ZERO,
            connections_max: 1_000_000,
            unread_bytes_max: 1024 * 1024,
            held_bytes_max: Pool::HELD_MAX_DEFAULT,
            output_bytes_max: 8 * 1024 * 1024,
            write_stall: Duration::from_secs(60),
            linger: Duration::from_secs(1),
        }
    }
}
