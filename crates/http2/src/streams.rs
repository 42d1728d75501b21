use std::collections::VecDeque;

use fulmar_base::Slab;

use crate::scheduler::{SMALL_BYTES_MAX, SendQueue};
use crate::stream::{Lane, State, Stream, StreamKey};
use crate::waiting::Waiting;

/// The open streams of a connection, by key and by id, and the queue of those that wait to send.
///
/// Only one end opens streams, as push is refused, and ids rise in the order of opening (RFC 9113 §5.1.1): so the ring of ids is
/// sorted by itself. Finding one takes a binary search, opening one an append, closing one a move of at most half the ring, and
/// nothing depends on which ids a peer chooses.
#[derive(Debug)]
pub(crate) struct Streams {
    slab: Slab<Stream>,
    by_id: VecDeque<(u32, StreamKey)>,
    queue: SendQueue,
    /// The stream that was found or opened last, or one that has gone: frames of one stream come one behind the other.
    recent: (u32, StreamKey),
    /// The id at the front of `by_id`, if there is one.
    first_id: u32,
}

/// What is left of a stream that was removed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Removed {
    pub(crate) id: u32,
    pub(crate) state: State,
    pub(crate) user: u64,
}

impl Streams {
    pub(crate) const fn new() -> Self {
        Self {
            slab: Slab::new(),
            by_id: VecDeque::new(),
            queue: SendQueue::new(),
            recent: (0, StreamKey::from_u64(0)),
            first_id: 0,
        }
    }

    /// Adds a stream whose id is above all others.
    #[inline]
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamKey {
        let id = stream.id;
        debug_assert!(self.by_id.back().is_none_or(|&(last, _)| last < id), "ids rise");
        let key = self.slab.insert(stream);
        if self.by_id.is_empty() {
            self.first_id = id;
        }
        self.by_id.push_back((id, key));
        self.recent = (id, key);
        key
    }

    /// Removes a stream, and gives what waits on it.
    #[inline]
    pub(crate) fn remove(&mut self, key: StreamKey) -> Option<(Removed, Option<Box<Waiting>>)> {
        if self.slab.get(key)?.lane != Lane::None {
            self.queue.remove(&mut self.slab, key);
        }
        let removed = self.slab.remove_with(key, |stream| {
            (Removed { id: stream.id, state: stream.state, user: stream.user }, stream.waiting.take())
        })?;
        let id = removed.0.id;
        match self.by_id.front() {
            Some(&(first, _)) if first == id => {
                self.by_id.pop_front();
                self.first_id = self.by_id.front().map_or(0, |&(id, _)| id);
            }
            _ => {
                if let Some(position) = self.position(id) {
                    self.by_id.remove(position);
                }
            }
        }
        if self.recent.0 == id {
            self.recent = (0, StreamKey::from_u64(0));
        }
        Some(removed)
    }

    #[inline]
    pub(crate) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slab.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slab.get_mut(key)
    }

    #[inline]
    pub(crate) fn find(&mut self, id: u32) -> Option<StreamKey> {
        let (recent, key) = self.recent;
        // No stream has the id 0, and no key is 0 as a number.
        if recent == id && id != 0 { Some(key) } else { self.search(id) }
    }

    /// The open stream with this id.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, id: u32) -> Option<(StreamKey, &mut Stream)> {
        let key = self.find(id)?;
        Some((key, self.slab.get_mut(key)?))
    }

    /// Streams end about in the order in which they began, so one mostly lies as far behind the first as if none between them had
    /// ended.
    #[inline(always)]
    fn search(&mut self, id: u32) -> Option<StreamKey> {
        let key = match self.by_id.get(self.likely_position(id)) {
            Some(&(there, key)) if there == id => key,
            _ => self.position(id).and_then(|position| self.at(position))?,
        };
        self.recent = (id, key);
        Some(key)
    }

    #[inline]
    fn likely_position(&self, id: u32) -> usize {
        (id.wrapping_sub(self.first_id) / 2) as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Gives memory back if no stream is open.
    pub(crate) fn shrink(&mut self) {
        if self.slab.is_empty() {
            self.slab.shrink();
            self.by_id = VecDeque::new();
        }
    }

    /// Bytes of memory held, used or not, without what waits on the streams.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes() + self.by_id.capacity() * size_of::<(u32, StreamKey)>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to with so many streams.
    pub(crate) fn memory_bytes_max(streams: usize) -> usize {
        // A ring that grows takes up to twice what it needs, and room for four from the first one on.
        let by_id = streams.saturating_mul(2).max(4).saturating_mul(size_of::<(u32, StreamKey)>());
        Slab::<Stream>::memory_bytes_max(streams).saturating_add(by_id)
    }

    /// Bytes of memory held by what waits on the streams.
    pub(crate) fn waiting_memory_bytes(&self) -> usize {
        self.slab
            .iter()
            .filter_map(|(_, stream)| stream.waiting.as_ref())
            .map(|waiting| waiting.memory_bytes())
            .sum()
    }

    /// The open stream with the highest id.
    pub(crate) fn last(&self) -> Option<(u32, StreamKey)> {
        self.by_id.back().copied()
    }

    /// The key at a position in the order of ids, for walks that change streams on the way.
    pub(crate) fn at(&self, position: usize) -> Option<StreamKey> {
        self.by_id.get(position).map(|&(_, key)| key)
    }

    /// Whether no stream waits for its turn to send.
    pub(crate) fn queue_is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so many bytes may leave ahead of the streams that wait for their turn to send.
    #[inline]
    pub(crate) fn lets_pass(&self, bytes: usize) -> bool {
        self.queue.is_empty() || self.queue.lets_pass(bytes)
    }

    /// So many bytes have left that did not wait.
    #[inline]
    pub(crate) fn note_passed(&mut self, bytes: usize) {
        if !self.queue.is_empty() {
            self.queue.note_sent(Lane::None, bytes);
        }
    }

    /// Puts a stream at the end of its lane of the send queue or takes it out, so that it is there exactly if it is ready to send.
    pub(crate) fn update_queue(&mut self, key: StreamKey) {
        let Some(stream) = self.slab.get_mut(key) else { return };
        // What is left of bulk is bulk: the last of it does not overtake that of others.
        let waiting_bytes = stream.waiting_bytes();
        stream.is_bulk = stream.waiting.is_some() && (stream.is_bulk || waiting_bytes > SMALL_BYTES_MAX);
        let lane = match (stream.is_ready(), stream.is_bulk) {
            (false, _) => Lane::None,
            (true, false) => Lane::Small,
            (true, true) => Lane::Bulk,
        };
        if stream.lane != lane {
            self.queue.remove(&mut self.slab, key);
            self.queue.push_back(&mut self.slab, key, lane);
        }
    }

    /// The stream whose turn it is to send.
    pub(crate) fn next_to_send(&self) -> Option<StreamKey> {
        self.queue.front()
    }

    /// Ends the turn of the stream at the front of the send queue, in which so many bytes left: it goes to the end, or leaves if it
    /// is no longer ready.
    pub(crate) fn end_turn(&mut self, key: StreamKey, bytes: usize) {
        if let Some(stream) = self.slab.get(key) {
            self.queue.note_sent(stream.lane, bytes);
        }
        self.queue.remove(&mut self.slab, key);
        self.update_queue(key);
    }

    /// Where in the ring an id is.
    #[inline(never)]
    fn position(&self, id: u32) -> Option<usize> {
        let likely = self.likely_position(id);
        if self.by_id.get(likely).is_some_and(|&(there, _)| there == id) {
            return Some(likely);
        }
        self.by_id.binary_search_by_key(&id, |&(id, _)| id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{ReceiveWindow, SendWindow};

    fn stream(id: u32) -> Stream {
        Stream::new(id, SendWindow::new(0), ReceiveWindow::new(0))
    }

    #[test]
    fn streams_are_found_by_id_while_others_come_and_go() {
        let mut streams = Streams::new();
        let keys: Vec<_> = (0..100).map(|n| streams.insert(stream(2 * n + 1))).collect();
        for key in keys.iter().skip(1).step_by(2) {
            assert!(streams.remove(*key).is_some());
        }
        assert_eq!(streams.len(), 50);
        for (n, key) in keys.iter().enumerate() {
            let found = streams.find(2 * n as u32 + 1);
            assert_eq!(found, n.is_multiple_of(2).then_some(*key));
            assert_eq!(streams.find(2 * n as u32), None);
        }
        assert_eq!(streams.last(), Some((197, keys[98])));
        assert!(streams.remove(keys[1]).is_none());
    }

    #[test]
    fn one_old_stream_and_a_million_new_ones_take_the_room_of_two() {
        let mut streams = Streams::new();
        let old = streams.insert(stream(1));
        for n in 1..1_000_000 {
            let key = streams.insert(stream(2 * n + 1));
            streams.remove(key);
        }
        assert_eq!(streams.find(1), Some(old));
        assert!(streams.by_id.capacity() <= 8, "{}", streams.by_id.capacity());
        assert!(streams.slab.capacity() <= 8, "{}", streams.slab.capacity());
    }
}
