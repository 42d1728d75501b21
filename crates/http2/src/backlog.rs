//! How much DATA of all streams waits, whether enough of it leaves, and who is told to bring more.

use std::collections::VecDeque;

use fulmar_base::Output;

use crate::stream::StreamKey;

/// One byte of so many that wait has to leave within [`Config::stall_ms`](crate::Config::stall_ms): whoever reads at all reads
/// faster, and a trickle of credit does not hold a pile of responses for long.
const SHARE_TO_LEAVE: usize = 64;

/// Senders of bulk are told to bring more when less than so much has been brought and not left: enough for one burst. All of them at a
/// time would have their messages made at a time, and a small one would wait for that.
const BROUGHT_BYTES_MIN: usize = Output::SOFT_LIMIT;

/// No more counts as brought, so that one large message delays the others, which may have to wait to be told, by two bursts and not
/// by all of it.
const BROUGHT_BYTES_MAX: usize = 3 * Output::SOFT_LIMIT;

/// The DATA that waits on all streams of a connection.
#[derive(Default, Debug)]
pub(crate) struct Backlog {
    bytes: usize,
    /// How much has left since the last [`mark`](Self::mark), or was dropped.
    left_since: usize,
    /// How much has to leave until the next one.
    to_leave: usize,
    /// How much was brought for which nothing has left yet, on any stream: those that the peer does not let send do not count for ever.
    brought: usize,
    /// Streams that have room for more bulk, in the order in which they are told.
    untold: VecDeque<StreamKey>,
}

impl Backlog {
    /// How many bytes wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// More waits.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.brought = self.brought.saturating_add(bytes).min(BROUGHT_BYTES_MAX);
    }

    /// Bytes have left, or nobody wants them any longer.
    pub(crate) fn subtract(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "more has left than waited");
        self.bytes = self.bytes.saturating_sub(bytes);
        self.left_since = self.left_since.saturating_add(bytes);
        self.brought = self.brought.saturating_sub(bytes);
    }

    /// A sender of bulk has room for more, and is to be told when it is its turn.
    pub(crate) fn tell_later(&mut self, stream: StreamKey) {
        self.untold.push_back(stream);
    }

    /// Whether somebody is to be told that there is room. `idle`: there is nothing else to send.
    pub(crate) fn may_tell(&self, idle: bool) -> bool {
        !self.untold.is_empty() && (idle || self.brought < BROUGHT_BYTES_MIN)
    }

    /// The next one that is to be told, if it is time.
    pub(crate) fn next_to_tell(&mut self, idle: bool) -> Option<StreamKey> {
        if self.may_tell(idle) { self.untold.pop_front() } else { None }
    }

    /// Forgets everything, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        let mut untold = std::mem::take(&mut self.untold);
        untold.clear();
        *self = Self { untold, ..Self::default() };
    }

    /// Gives memory back.
    pub(crate) fn shrink(&mut self) {
        self.untold.shrink_to_fit();
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.untold.capacity() * size_of::<StreamKey>()
    }

    /// From here on it counts whether enough leaves.
    pub(crate) fn mark(&mut self) {
        self.left_since = 0;
        self.to_leave = (self.bytes / SHARE_TO_LEAVE).max(1);
    }

    /// Whether too little has left since the last mark.
    pub(crate) const fn stalls(&self) -> bool {
        self.left_since < self.to_leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_stalls_until_a_sixty_fourth_of_what_waited_has_left() {
        let mut backlog = Backlog::default();
        backlog.add(640);
        backlog.mark();
        backlog.subtract(9);
        // What comes on top does not make it harder.
        backlog.add(6_400);
        assert!(backlog.stalls());
        backlog.subtract(1);
        assert!(!backlog.stalls());
        assert_eq!(backlog.bytes(), 7_030);
        backlog.mark();
        assert!(backlog.stalls());
    }
}
