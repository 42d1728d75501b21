/// How many streams are remembered after they closed: enough for the frames of a peer that goes on without noticing what it
/// sent itself. A power of two.
const REMEMBERED: usize = 32;

/// How the peer ended a stream that is closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EndedBy {
    /// With END_STREAM: DATA or HEADERS behind it are a connection error (RFC 9113 §5.1).
    EndStream,
    /// With RST_STREAM: they are a stream error.
    Reset,
}

/// The streams that the peer itself ended last. Frames on closed streams that are not here are ignored: they may have been under
/// way when this end reset the stream, however long ago that is. So the memory is fixed, and forgetting makes nobody's mistake
/// of another's.
#[derive(Debug)]
pub(crate) struct ClosedStreams {
    ring: [(u32, EndedBy); REMEMBERED],
    next: usize,
}

impl ClosedStreams {
    pub(crate) const fn new() -> Self {
        Self { ring: [(0, EndedBy::EndStream); REMEMBERED], next: 0 }
    }

    pub(crate) fn remember(&mut self, id: u32, ended_by: EndedBy) {
        self.ring[self.next % REMEMBERED] = (id, ended_by);
        self.next = (self.next + 1) % REMEMBERED;
    }

    pub(crate) fn ended_by(&self, id: u32) -> Option<EndedBy> {
        self.ring.iter().find(|&&(remembered, _)| remembered == id).map(|&(_, ended_by)| ended_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_streams_are_remembered_and_older_ones_forgotten() {
        let mut closed = ClosedStreams::new();
        assert_eq!(closed.ended_by(1), None);
        closed.remember(1, EndedBy::Reset);
        closed.remember(3, EndedBy::EndStream);
        assert_eq!(closed.ended_by(1), Some(EndedBy::Reset));
        assert_eq!(closed.ended_by(3), Some(EndedBy::EndStream));
        (0..REMEMBERED as u32).for_each(|n| closed.remember(2 * n + 5, EndedBy::EndStream));
        assert_eq!(closed.ended_by(3), None);
        assert_eq!(closed.ended_by(5), Some(EndedBy::EndStream));
    }
}
