//! Memory that leaves as [`Bytes`] and comes back when the last of them is dropped.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

use crate::pool::PAGE;

/// Recycled memory for large messages.
///
/// It is lent as a [`BytesMut`] to be filled, and [frozen](Self::freeze) into [`Bytes`] that go anywhere, to an application or into an
/// [`Output`](crate::Output), and may be cloned and cut. When the last of them is dropped, wherever that is, the memory can be lent
/// again: nobody has to bring it back, and no lock is needed.
///
/// Memory starts half a page past the start of a page, for the reason that [`Block`](crate::Block) gives.
pub struct SharedMemory {
    pieces: Vec<Piece>,
    retained_bytes: usize,
    retained_bytes_max: usize,
}

/// Memory of which some or all may be in use: the empty rest behind what was frozen, by which the whole can be had back.
struct Piece {
    rest: BytesMut,
    capacity: usize,
}

impl SharedMemory {
    /// Each piece is looked at when memory is wanted, so there are no more than 32.
    const PIECES_MAX: usize = 32;

    /// No memory yet; at most so many bytes are remembered for use again, counted from when they are frozen.
    pub const fn with_retained_max(retained_bytes_max: usize) -> Self {
        Self { pieces: Vec::new(), retained_bytes: 0, retained_bytes_max }
    }

    /// Empty memory for `capacity_min` bytes.
    pub fn take(&mut self, capacity_min: usize) -> BytesMut {
        self.find(capacity_min).unwrap_or_else(|| {
            let mut memory = BytesMut::with_capacity(capacity_min.saturating_add(PAGE));
            place(&mut memory, capacity_min);
            memory
        })
    }

    /// Memory that was used before and is free: at least so much, and at most four times that.
    pub fn find(&mut self, capacity_min: usize) -> Option<BytesMut> {
        let index = self.pieces.iter_mut().position(|piece| {
            let fits = (capacity_min..=capacity_min.saturating_mul(4)).contains(&piece.capacity);
            fits && piece.rest.try_reclaim(piece.capacity)
        })?;
        let Piece { rest: mut memory, capacity } = self.pieces.remove(index);
        self.retained_bytes -= capacity;
        place(&mut memory, capacity_min);
        Some(memory)
    }

    /// What was written into `memory`, which is remembered for when that is dropped.
    pub fn freeze(&mut self, mut memory: BytesMut) -> Bytes {
        let capacity = memory.capacity();
        let bytes = memory.split().freeze();
        self.remember(memory, capacity);
        bytes
    }

    /// Takes memory back that was not frozen.
    pub fn give(&mut self, mut memory: BytesMut) {
        memory.clear();
        let capacity = memory.capacity();
        self.remember(memory, capacity);
    }

    /// How many bytes are remembered, in use or not.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Forgets all memory: it is freed with what was frozen of it.
    pub fn clear(&mut self) {
        self.pieces = Vec::new();
        self.retained_bytes = 0;
    }

    /// The oldest pieces make room for a new one.
    fn remember(&mut self, rest: BytesMut, capacity: usize) {
        if capacity == 0 || capacity > self.retained_bytes_max {
            return;
        }
        while self.pieces.len() >= Self::PIECES_MAX
            || self.retained_bytes + capacity > self.retained_bytes_max
        {
            self.retained_bytes -= self.pieces.remove(0).capacity;
        }
        self.retained_bytes += capacity;
        self.pieces.push(Piece { rest, capacity });
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("pieces", &self.pieces.len())
            .field("retained_bytes", &self.retained_bytes)
            .finish_non_exhaustive()
    }
}

/// Has empty memory start half a page past the start of a page, if that leaves room for so many bytes. (Memory that grew while it was
/// filled may have moved.)
fn place(memory: &mut BytesMut, capacity_min: usize) {
    let padding = (PAGE / 2).wrapping_sub(memory.as_ptr().addr()) % PAGE;
    if memory.capacity().saturating_sub(padding) >= capacity_min {
        memory.resize(padding, 0);
        memory.advance(padding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn frozen(memory: &mut SharedMemory, bytes: usize) -> Bytes {
        let mut taken = memory.take(bytes);
        taken.resize(bytes, 7);
        memory.freeze(taken)
    }

    #[test]
    fn memory_is_used_again_when_all_that_was_frozen_of_it_is_dropped() {
        let mut memory = SharedMemory::with_retained_max(8 * MIB);
        let first = frozen(&mut memory, MIB);
        let (place, part) = (first.as_ptr(), first.slice(MIB - 10..));
        assert_eq!(place.addr() % PAGE, PAGE / 2);
        drop(first);
        let second = frozen(&mut memory, MIB);
        assert_ne!(second.as_ptr(), place, "a part of it is still there");
        assert_eq!(&part[..], [7; 10]);
        drop(part);
        let third = frozen(&mut memory, MIB);
        assert_eq!(third.as_ptr(), place);
        assert_eq!(frozen(&mut memory, 1).len(), 1);
    }

    #[test]
    fn memory_that_was_not_needed_is_used_again() {
        let mut memory = SharedMemory::with_retained_max(MIB);
        let mut taken = memory.take(100_000);
        let place = taken.as_ptr();
        taken.extend_from_slice(b"a part of a message");
        memory.give(taken);
        let taken = memory.find(100_000).expect("it is free");
        assert_eq!((taken.as_ptr(), taken.len()), (place, 0));
        assert!(memory.find(100_000).is_none() && memory.retained_bytes() == 0);
    }

    #[test]
    fn neither_too_small_nor_much_larger_memory_serves() {
        let mut memory = SharedMemory::with_retained_max(8 * MIB);
        drop(frozen(&mut memory, MIB));
        assert!(memory.find(2 * MIB).is_none());
        assert!(memory.find(MIB / 8).is_none());
        assert!(memory.find(MIB / 2).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded_in_bytes_and_in_number() {
        let mut memory = SharedMemory::with_retained_max(4 * MIB);
        let kept: Vec<_> = (0..10).map(|_| frozen(&mut memory, MIB)).collect();
        assert!((3 * MIB..=4 * MIB).contains(&memory.retained_bytes()), "{memory:?}");
        drop(kept);
        assert!(memory.find(MIB).is_some());
        drop(frozen(&mut memory, 5 * MIB));
        assert!(memory.find(5 * MIB).is_none(), "more than may be remembered");

        let mut memory = SharedMemory::with_retained_max(64 * MIB);
        let kept: Vec<_> = (0..100).map(|_| frozen(&mut memory, 20_000)).collect();
        assert_eq!(memory.pieces.len(), SharedMemory::PIECES_MAX);
        memory.clear();
        assert_eq!(memory.retained_bytes(), 0);
        assert!(kept.iter().all(|bytes| bytes[..] == [7; 20_000]));
    }

    #[test]
    fn in_steady_state_memory_stays_where_it_is() {
        let mut memory = SharedMemory::with_retained_max(4 * MIB);
        let mut places = std::collections::BTreeSet::new();
        for size in [16 * 1024, 20_000, 60_000].iter().cycle().take(3_000) {
            let bytes = frozen(&mut memory, *size);
            assert_eq!(bytes.as_ptr().addr() % PAGE, PAGE / 2);
            places.insert(bytes.as_ptr().addr());
        }
        assert!(places.len() <= 3, "{places:?}");
    }
}
