use fulmar_base::Slab;

use crate::stream::{Links, Stream, StreamKey};

/// The streams that have DATA waiting and window for it, in the order of their turns: round-robin, one frame a turn, so that a
/// small reply never waits for more than one frame of each bulk stream. A list linked through the streams: a stream is in it or
/// not, and leaves from anywhere in constant time.
#[derive(Debug)]
pub(crate) struct SendQueue {
    front: Option<StreamKey>,
    back: Option<StreamKey>,
}

impl SendQueue {
    pub(crate) const fn new() -> Self {
        Self { front: None, back: None }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    pub(crate) const fn front(&self) -> Option<StreamKey> {
        self.front
    }

    /// Appends a stream that is not in the queue.
    pub(crate) fn push_back(&mut self, slab: &mut Slab<Stream>, key: StreamKey) {
        let previous = self.back;
        let Some(stream) = slab.get_mut(key) else { return };
        debug_assert!(!stream.queued, "a stream is in the queue once");
        stream.queued = true;
        stream.links = Links { previous, next: None };
        match previous.and_then(|previous| slab.get_mut(previous)) {
            Some(previous) => previous.links.next = Some(key),
            None => self.front = Some(key),
        }
        self.back = Some(key);
    }

    /// Takes a stream out, if it is in the queue.
    pub(crate) fn remove(&mut self, slab: &mut Slab<Stream>, key: StreamKey) {
        let Some(stream) = slab.get_mut(key).filter(|stream| stream.queued) else { return };
        stream.queued = false;
        let Links { previous, next } = std::mem::take(&mut stream.links);
        match previous.and_then(|previous| slab.get_mut(previous)) {
            Some(previous) => previous.links.next = next,
            None => self.front = next,
        }
        match next.and_then(|next| slab.get_mut(next)) {
            Some(next) => next.links.previous = previous,
            None => self.back = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{ReceiveWindow, SendWindow};

    fn order(queue: &SendQueue, slab: &Slab<Stream>) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut next = queue.front();
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
        keys.iter().for_each(|&key| queue.push_back(&mut slab, key));
        assert_eq!(order(&queue, &slab), [1, 2, 3, 4, 5]);
        for (out, left) in [(2, vec![1, 2, 4, 5]), (0, vec![2, 4, 5]), (4, vec![2, 4])] {
            queue.remove(&mut slab, keys[out]);
            queue.remove(&mut slab, keys[out]);
            assert_eq!(order(&queue, &slab), left);
        }
        queue.push_back(&mut slab, keys[0]);
        assert_eq!(order(&queue, &slab), [2, 4, 1]);
        for key in keys {
            queue.remove(&mut slab, key);
        }
        assert!(queue.is_empty() && queue.back.is_none());
    }
}
