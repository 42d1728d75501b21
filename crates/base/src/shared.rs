//! Memory that leaves as [`Bytes`] and comes back when the last of them is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::{Buf, Bytes, BytesMut};

use crate::pool::PAGE;

/// Recycled memory for large messages.
///
/// It is lent as a [`SharedBlock`] to be filled, and [frozen](Self::freeze) into [`Bytes`] that go anywhere, to an application or into an
/// [`Output`](crate::Output), and may be cloned and cut. When the last of them is dropped, wherever that is, the memory can be lent
/// again: nobody has to bring it back, and no lock is needed.
///
/// Memory starts half a page past the start of a page, for the reason that [`Block`](crate::Block) gives.
pub struct SharedMemory {
    /// The one that was frozen last is at the back.
    pieces: VecDeque<Piece>,
    retained_bytes: usize,
    retained_bytes_max: usize,
    /// Of the memory that is being filled: what was there before anything was written.
    lent_bytes: usize,
}

/// Memory that is being filled, to be [frozen](SharedMemory::freeze) or [given back](SharedMemory::give) where it was taken.
#[derive(Debug)]
pub struct SharedBlock {
    memory: BytesMut,
    /// How many bytes of it were lent in advance.
    lent_bytes: usize,
}

impl Deref for SharedBlock {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.memory
    }
}

impl DerefMut for SharedBlock {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.memory
    }
}

/// Memory of which some or all may be in use: the empty rest behind what was frozen, by which the whole can be had back.
struct Piece {
    rest: BytesMut,
    capacity: usize,
}

impl SharedMemory {
    /// How many pieces are remembered: as many as messages of 16 KiB lie in the windows of four connections. What is free is mostly at
    /// the front; where nothing is, each piece is looked at, which takes as long as a message of this size.
    const PIECES_MAX: usize = 256;

    /// No memory yet; at most so many bytes are remembered for use again, counted from when they are frozen.
    pub const fn with_retained_max(retained_bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), retained_bytes: 0, retained_bytes_max, lent_bytes: 0 }
    }

    /// Empty memory for `capacity_min` bytes.
    pub fn take(&mut self, capacity_min: usize) -> SharedBlock {
        self.find(capacity_min).unwrap_or_else(|| {
            let mut memory = BytesMut::with_capacity(capacity_min.saturating_add(PAGE));
            place(&mut memory, capacity_min);
            SharedBlock { memory, lent_bytes: 0 }
        })
    }

    /// Memory that was used before and is free: at least so much, and at most four times that. All that is lent this way and not yet
    /// frozen or given back comes to what may be remembered at most, so that who asks for much and fills little parks no more.
    pub fn find(&mut self, capacity_min: usize) -> Option<SharedBlock> {
        let lendable = self.retained_bytes_max.saturating_sub(self.lent_bytes);
        let index = self.pieces.iter_mut().position(|piece| {
            let fits = (capacity_min..=capacity_min.saturating_mul(4)).contains(&piece.capacity);
            fits && piece.capacity <= lendable && piece.rest.try_reclaim(piece.capacity)
        })?;
        let Piece { rest: mut memory, capacity } = self.pieces.remove(index)?;
        self.retained_bytes -= capacity;
        self.lent_bytes += capacity;
        place(&mut memory, capacity_min);
        Some(SharedBlock { memory, lent_bytes: capacity })
    }

    /// What was written into `block`, whose memory is remembered for when that is dropped.
    pub fn freeze(&mut self, block: SharedBlock) -> Bytes {
        let mut memory = self.take_back(block);
        let capacity = memory.capacity();
        let bytes = memory.split().freeze();
        self.remember(memory, capacity);
        bytes
    }

    /// Takes memory back that was not frozen.
    pub fn give(&mut self, block: SharedBlock) {
        let mut memory = self.take_back(block);
        memory.clear();
        let capacity = memory.capacity();
        self.remember(memory, capacity);
    }

    fn take_back(&mut self, block: SharedBlock) -> BytesMut {
        self.lent_bytes = self.lent_bytes.saturating_sub(block.lent_bytes);
        block.memory
    }

    /// How many bytes are remembered, in use or not.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Forgets all memory: it is freed with what was frozen of it.
    pub fn clear(&mut self) {
        self.pieces = VecDeque::new();
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
            self.retained_bytes -= self.pieces.pop_front().map_or(0, |oldest| oldest.capacity);
        }
        self.retained_bytes += capacity;
        self.pieces.push_back(Piece { rest, capacity });
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
    fn what_is_lent_in_advance_is_bounded_until_it_comes_back() {
        let mut memory = SharedMemory::with_retained_max(4 * MIB);
        let mut lent = Vec::new();
        for _ in 0..20 {
            drop(frozen(&mut memory, MIB));
            lent.extend(memory.find(MIB));
        }
        assert_eq!(lent.len(), 3, "each has a page more than a mebibyte");
        assert!(memory.take(MIB).lent_bytes == 0, "there is memory for who fills it");
        memory.give(lent.pop().expect("there are some"));
        assert!(memory.find(MIB).is_some());
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
        let kept: Vec<_> = (0..300).map(|_| frozen(&mut memory, 20_000)).collect();
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
