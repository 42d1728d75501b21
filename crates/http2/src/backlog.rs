//! How much DATA of all streams waits, and whether enough of it leaves.

/// One byte of so many that wait has to leave within [`Config::stall_ms`](crate::Config::stall_ms): whoever reads at all reads
/// faster, and a trickle of credit does not hold a pile of responses for long.
const SHARE_TO_LEAVE: usize = 64;

/// The DATA that waits on all streams of a connection.
#[derive(Default, Debug)]
pub(crate) struct Backlog {
    bytes: usize,
    /// How much has left since the last [`mark`](Self::mark), or was dropped.
    left_since: usize,
    /// How much has to leave until the next one.
    to_leave: usize,
}

impl Backlog {
    /// How many bytes wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// More waits.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Bytes have left, or nobody wants them any longer.
    pub(crate) fn subtract(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "more has left than waited");
        self.bytes = self.bytes.saturating_sub(bytes);
        self.left_since = self.left_since.saturating_add(bytes);
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
