use std::collections::VecDeque;

use fulmar_base::{Instant, Pool};

use crate::clock;
use crate::config::ReactorConfig;
use crate::keys::ConnectionKey;
use crate::pace::Crowd;

/// One read takes at most so many bytes: as much as a socket commonly holds, so that one system call empties it.
const SCRATCH_BYTES: usize = 256 * 1024;

/// Each read is offered at least so much room behind an unread tail; the scratch buffer grows when it has less.
const READ_BYTES_MIN: usize = 64 * 1024;

/// What one thread has on its desk and lends to whichever connection it works on.
pub(crate) struct Bench {
    /// The time at the start of the piece of work at hand.
    pub(crate) now: Instant,
    pub(crate) pool: Pool,
    /// Where bytes are read to. No connection keeps anything here from one piece of work to the next.
    pub(crate) scratch: Vec<u8>,
    /// Pipe ends for which there is something to read.
    pub(crate) piped: VecDeque<ConnectionKey>,
    pub(crate) crowd: Crowd,
    /// How often the sockets were looked at.
    pub(crate) looks: u32,
    pub(crate) config: ReactorConfig,
}

impl Bench {
    pub(crate) fn new(config: ReactorConfig) -> Self {
        let mut pool = Pool::new();
        pool.set_held_bytes_max(config.held_bytes_max);
        Self {
            now: clock(),
            pool,
            scratch: vec![0; SCRATCH_BYTES],
            piped: VecDeque::new(),
            crowd: Crowd::new(),
            looks: 0,
            config,
        }
    }

    pub(crate) fn tick(&mut self) {
        self.now = clock();
    }

    /// Makes room in the scratch buffer for a read behind `tail_len` bytes.
    pub(crate) fn reserve(&mut self, tail_len: usize) {
        if self.scratch.len() < tail_len + READ_BYTES_MIN {
            self.scratch.resize((2 * tail_len).next_power_of_two(), 0);
        }
    }
}
