use fulmar_base::Slab;

use crate::stream::{Lane, Links, Stream, StreamKey};

/// DATA of so many bytes at most is small: a reply such as most calls have, many of which leave in the time of one bulk frame.
pub(crate) const SMALL_BYTES_MAX: usize = 4 * 1024;

/// While bulk waits, so many bytes of small DATA leave between two of its frames: about as much as a frame has, so that a flood of
/// small messages gets half of the connection and not all of it.
const SMALL_AHEAD_BYTES_MAX: usize = 16 * 1024;

/// The streams that have DATA waiting and window for it, in the order of their turns: round-robin, one frame a turn. Streams with
/// little to send go ahead of those with much, so that a small reply waits for no bulk stream, and yet for at most one frame of one
/// of them for each [`SMALL_AHEAD_BYTES_MAX`] of other small ones. Lists linked through the streams: a stream is in one or not, and
/// leaves from anywhere in constant time.
#[derive(Debug)]
pub(crate) struct SendQueue {
    small: Ends,
    bulk: Ends,
    /// How many bytes of small DATA have left since the last frame of bulk.
    ahead_bytes: usize,
}

/// The ends of a list.
#[derive(Default, Debug)]
struct Ends {
    front: Option<StreamKey>,
    back: Option<StreamKey>,
}

impl SendQueue {
    pub(crate) const fn new() -> Self {
        const NONE: Ends = Ends { front: None, back: None };
        Self { small: NONE, bulk: NONE, ahead_bytes: 0 }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.small.front.is_none() && self.bulk.front.is_none()
    }

    /// The stream whose turn it is.
    pub(crate) const fn front(&self) -> Option<StreamKey> {
        let small_first = self.ahead_bytes < SMALL_AHEAD_BYTES_MAX;
        match (self.small.front, self.bulk.front) {
            (Some(small), Some(_)) if small_first => Some(small),
            (small, None) => small,
            (_, bulk) => bulk,
        }
    }

    /// Whether DATA of so many bytes may leave ahead of all that waits here: it is small, and nothing waits that is.
    pub(crate) const fn lets_pass(&self, bytes: usize) -> bool {
        self.small.front.is_none() && bytes <= SMALL_BYTES_MAX && self.ahead_bytes < SMALL_AHEAD_BYTES_MAX
    }

    /// So many bytes have left on a stream of this lane, or of none, while others waited.
    pub(crate) const fn note_sent(&mut self, lane: Lane, bytes: usize) {
        match lane {
            Lane::Bulk => self.ahead_bytes = 0,
            Lane::Small | Lane::None => self.ahead_bytes = self.ahead_bytes.saturating_add(bytes),
        }
    }

    /// Appends a stream that is not in the queue to one of its lanes.
    pub(crate) fn push_back(&mut self, slab: &mut Slab<Stream>, key: StreamKey, lane: Lane) {
        let Some(ends) = self.ends(lane) else { return };
        let previous = ends.back;
        let Some(stream) = slab.get_mut(key) else { return };
        debug_assert!(stream.lane == Lane::None, "a stream is in the queue once");
        stream.lane = lane;
        stream.links = Links { previous, next: None };
        match previous.and_then(|previous| slab.get_mut(previous)) {
            Some(previous) => previous.links.next = Some(key),
            None => ends.front = Some(key),
        }
        ends.back = Some(key);
    }

    /// Takes a stream out, if it is in the queue.
    pub(crate) fn remove(&mut self, slab: &mut Slab<Stream>, key: StreamKey) {
        let Some(stream) = slab.get_mut(key) else { return };
        let Some(ends) = self.ends(std::mem::replace(&mut stream.lane, Lane::None)) else { return };
        let Links { previous, next } = std::mem::take(&mut stream.links);
        match previous.and_then(|previous| slab.get_mut(previous)) {
            Some(previous) => previous.links.next = next,
            None => ends.front = next,
        }
        match next.and_then(|next| slab.get_mut(next)) {
            Some(next) => next.links.previous = previous,
            None => ends.back = previous,
        }
        if self.bulk.front.is_none() {
            self.ahead_bytes = 0;
        }
    }

    const fn ends(&mut self, lane: Lane) -> Option<&mut Ends> {
        match lane {
            Lane::None => None,
            Lane::Small => Some(&mut self.small),
            Lane::Bulk => Some(&mut self.bulk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{ReceiveWindow, SendWindow};

    fn order(queue: &SendQueue, slab: &Slab<Stream>) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut next = queue.bulk.front;
        while let Some(stream) = next.and_then(|key| slab.get(key)) {
            ids.push(stream.id);
            next = stream.links.next;
        }
        ids
    }

    #[test]
    fn streams_leave_from_anywhere_and_keep_their_order() {
        let mut slab = Slab::new();
        let mut queue = SendQueue::new();
        let keys: Vec<_> = (1..=5)
            .map(|id| slab.insert(Stream::new(id, SendWindow::new(0), ReceiveWindow::new(0))))
            .collect();
        keys.iter().for_each(|&key| queue.push_back(&mut slab, key, Lane::Bulk));
        assert_eq!(order(&queue, &slab), [1, 2, 3, 4, 5]);
        for (out, left) in [(2, vec![1, 2, 4, 5]), (0, vec![2, 4, 5]), (4, vec![2, 4])] {
            queue.remove(&mut slab, keys[out]);
            queue.remove(&mut slab, keys[out]);
            assert_eq!(order(&queue, &slab), left);
        }
        queue.push_back(&mut slab, keys[0], Lane::Bulk);
        assert_eq!(order(&queue, &slab), [2, 4, 1]);
        for key in keys {
            queue.remove(&mut slab, key);
        }
        assert!(queue.is_empty() && queue.bulk.back.is_none());
    }

    #[test]
    fn small_ones_go_first_and_bulk_gets_a_frame_between_them() {
        let mut slab = Slab::new();
        let mut queue = SendQueue::new();
        let mut stream = |id| slab.insert(Stream::new(id, SendWindow::new(0), ReceiveWindow::new(0)));
        let (bulk, small) = (stream(1), stream(3));
        queue.push_back(&mut slab, bulk, Lane::Bulk);
        assert!(queue.lets_pass(SMALL_BYTES_MAX) && !queue.lets_pass(SMALL_BYTES_MAX + 1));
        queue.push_back(&mut slab, small, Lane::Small);
        assert!(!queue.lets_pass(1), "another small one waits");
        assert_eq!(queue.front(), Some(small));
        queue.note_sent(Lane::Small, SMALL_AHEAD_BYTES_MAX - 1);
        assert_eq!(queue.front(), Some(small));
        queue.note_sent(Lane::Small, 1);
        assert_eq!(queue.front(), Some(bulk), "they had their share");
        queue.remove(&mut slab, small);
        assert!(!queue.lets_pass(1));
        queue.note_sent(Lane::Bulk, 16_384);
        assert!(queue.lets_pass(1));
    }
}
