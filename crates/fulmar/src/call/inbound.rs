//! Messages that have arrived and that nobody has taken yet.

use std::collections::VecDeque;

use bytes::Bytes;
use fulmar_base::{Block, Pool};
use fulmar_grpc::{Arena, Body};

use crate::payload::{Incoming, PREFIX_LEN};

/// Messages up to this size are copied behind one another, so that a burst of small ones crosses to its reader in one swap;
/// larger ones that were assembled move with their memory.
const COPIED_MAX: usize = 4 * 1024;

/// How much memory a queue keeps from call to call, and an emptied one for its next messages if it needed less.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// For how many blocks an emptied queue keeps places.
const KEPT_BLOCKS_MAX: usize = 64;

/// Stands in front of each small message: its length in four bytes, one less than the prefix that it had on the wire. So a queue of
/// however small messages takes no more memory than their windows allow.
pub(crate) const HEAD_LEN: usize = size_of::<u32>();

/// In place of a length: the next message has memory of its own.
const IN_A_BLOCK: u32 = u32::MAX >> 1;

/// Beside a length: the message was compressed on its way.
const WAS_COMPRESSED: u32 = 1 << 31;

/// A queue of whole messages, in the order of their arrival.
///
/// The connection fills one in the call's cell; the reader swaps it against its own emptied one and decodes without a lock. What a
/// reader needs for that, it has with its queue.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Small messages with their heads, one behind the other, and heads of large ones; those before `read` have been taken.
    bytes: Vec<u8>,
    read: usize,
    /// None until a large message comes.
    large: Option<Box<LargeMessages>>,
    /// What `bytes` fields are decoded into. One that is in use stays with the reader.
    arena: Arena,
    /// Bytes of messages taken, prefixes included, that the cell has not heard of …
    pub(super) taken_bytes: usize,
    /// … and how many of them the connection is told of at once.
    pub(super) release_bytes: usize,
    /// The messages are shown to interceptors.
    pub(super) is_shown: bool,
    /// Whether the message taken last was compressed.
    last_was_compressed: bool,
    /// How often in a row the queue was emptied of less than a quarter of what it has memory for.
    spacious: u8,
}

/// Messages that have memory of their own.
#[derive(Debug, Default)]
struct LargeMessages {
    blocks: VecDeque<Large>,
    /// Blocks whose messages were taken: the connection gives them back to its pool.
    used: Vec<Block>,
}

/// A message with memory of its own.
#[derive(Debug)]
enum Large {
    Block(Block),
    Shared(Bytes),
}

impl LargeMessages {
    fn memory_bytes(&self) -> usize {
        let waiting: usize = self.blocks.iter().map(Large::memory_bytes).sum();
        let used: usize = self.used.iter().map(Block::capacity).sum();
        let places = self.blocks.capacity() * size_of::<Large>() + self.used.capacity() * size_of::<Block>();
        size_of::<Self>() + waiting + used + places
    }
}

impl Large {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Block(block) => block.capacity(),
            Self::Shared(bytes) => bytes.len(),
        }
    }
}

impl Inbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }

    /// Appends a message, which `was_compressed` on its way or not; a block that is not kept goes back to `pool`.
    pub(crate) fn push(&mut self, body: Body<'_>, was_compressed: bool, pool: &mut Pool) {
        let mark = if was_compressed { WAS_COMPRESSED } else { 0 };
        match body {
            Body::Block(mut block) if block.len() > COPIED_MAX => {
                // The reader may keep it for as long as it likes, and may be on another thread.
                pool.hand_out(&mut block);
                self.bytes.extend_from_slice(&(IN_A_BLOCK | mark).to_ne_bytes());
                self.large.get_or_insert_default().blocks.push_back(Large::Block(block));
            }
            Body::Shared(bytes) => {
                self.bytes.extend_from_slice(&(IN_A_BLOCK | mark).to_ne_bytes());
                self.large.get_or_insert_default().blocks.push_back(Large::Shared(bytes));
            }
            Body::Block(block) => {
                self.push_copied(&block, mark);
                pool.give(block);
            }
            Body::Lent(bytes) => self.push_copied(bytes, mark),
        }
    }

    fn push_copied(&mut self, bytes: &[u8], mark: u32) {
        // It came in one frame, whose length has 24 bits.
        debug_assert!(bytes.len() < IN_A_BLOCK as usize);
        self.bytes.reserve(HEAD_LEN + bytes.len());
        self.bytes.extend_from_slice(&(bytes.len() as u32 | mark).to_ne_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a small message that stands in `bytes` behind [`HEAD_LEN`] bytes that mean nothing; `bytes` is emptied, and may get other
    /// memory.
    pub(crate) fn push_behind_head(&mut self, bytes: &mut Vec<u8>) {
        let Some((head, message)) = bytes.split_first_chunk_mut::<HEAD_LEN>() else { return };
        debug_assert!(message.len() < IN_A_BLOCK as usize);
        *head = (message.len() as u32).to_ne_bytes();
        if self.is_empty() {
            self.read = 0;
            std::mem::swap(&mut self.bytes, bytes);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        bytes.clear();
    }

    /// Takes the oldest message and shows it to `read`, which is user code: should it panic, the message counts as taken.
    /// Returns what `read` made of it and the message's length in bytes.
    pub(crate) fn take<R>(&mut self, read: impl FnOnce(Incoming<'_>, &mut Arena) -> R) -> Option<(R, usize)> {
        let head = u32::from_ne_bytes(*self.bytes.get(self.read..)?.first_chunk::<HEAD_LEN>()?);
        let length = head & !WAS_COMPRESSED;
        self.last_was_compressed = head & WAS_COMPRESSED != 0;
        self.read += HEAD_LEN;
        let taken = if length == IN_A_BLOCK {
            let large = self.large.as_mut()?;
            match large.blocks.pop_front()? {
                Large::Shared(bytes) => (read(Incoming::Shared(&bytes), &mut self.arena), bytes.len()),
                Large::Block(block) => {
                    large.used.push(block);
                    let block = large.used.last().map_or(&[][..], |block| block);
                    (read(Incoming::Lent(block), &mut self.arena), block.len())
                }
            }
        } else {
            let start = self.read;
            self.read += length as usize;
            let message = Incoming::Lent(&self.bytes[start..self.read]);
            (read(message, &mut self.arena), length as usize)
        };
        if self.is_empty() {
            self.reset_bytes();
        }
        Some(taken)
    }

    /// Whether the oldest message was compressed.
    pub(crate) fn next_was_compressed(&self) -> bool {
        let head = self.bytes.get(self.read..).and_then(<[u8]>::first_chunk::<HEAD_LEN>);
        head.is_some_and(|head| u32::from_ne_bytes(*head) & WAS_COMPRESSED != 0)
    }

    /// Whether the messages are shown to interceptors.
    pub(crate) const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Whether the message taken last was compressed.
    pub(crate) const fn last_was_compressed(&self) -> bool {
        self.last_was_compressed
    }

    /// Forgets every message; their blocks wait to be given back. Returns their bytes, prefixes included.
    pub(crate) fn discard(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(((), length)) = self.take(|_, _| ()) {
            bytes += PREFIX_LEN + length;
        }
        bytes
    }

    /// Hands what there is to the emptied queue of a reader, against the memory that this one is done with.
    pub(super) fn hand_over(&mut self, queue: &mut Self) {
        std::mem::swap(&mut self.bytes, &mut queue.bytes);
        std::mem::swap(&mut self.read, &mut queue.read);
        std::mem::swap(&mut self.spacious, &mut queue.spacious);
        if self.large.is_some() || queue.large.is_some() {
            self.hand_large_over(queue);
        }
        if queue.arena.is_new() {
            std::mem::swap(&mut self.arena, &mut queue.arena);
        }
    }

    #[cold]
    fn hand_large_over(&mut self, queue: &mut Self) {
        if self.large.as_ref().is_some_and(|large| !large.blocks.is_empty()) {
            std::mem::swap(&mut self.large, &mut queue.large);
            // Blocks that either was done with stay on the connection's side.
            if let Some(large) = &mut queue.large
                && !large.used.is_empty()
            {
                self.large.get_or_insert_default().used.append(&mut large.used);
            }
        } else {
            self.adopt_used_blocks(queue);
        }
    }

    fn adopt_used_blocks(&mut self, queue: &mut Self) {
        if let Some(large) = &mut queue.large
            && !large.used.is_empty()
        {
            self.large.get_or_insert_default().used.append(&mut large.used);
        }
    }

    /// Takes over what a reader that leaves is done with.
    pub(crate) fn adopt_used(&mut self, queue: &mut Self) {
        self.adopt_used_blocks(queue);
        if !queue.arena.is_new() {
            self.arena = std::mem::take(&mut queue.arena);
        }
    }

    /// Gives the blocks of taken messages back.
    pub(crate) fn give_used(&mut self, pool: &mut Pool) {
        let Some(large) = &mut self.large else { return };
        while let Some(block) = large.used.pop() {
            pool.give(block);
        }
    }

    /// Forgets every message, and keeps no more memory than its next call is likely to need.
    pub(crate) fn reset(&mut self) {
        if !self.is_empty() {
            self.discard();
        }
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
        }
        self.last_was_compressed = false;
        self.is_shown = false;
        (self.taken_bytes, self.release_bytes) = (0, 0);
        if let Some(large) = &mut self.large {
            large.blocks.shrink_to(KEPT_BLOCKS_MAX);
            large.used.shrink_to(KEPT_BLOCKS_MAX);
        }
    }

    /// How much memory the queue holds on to, blocks that wait to be given back included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |large| large.memory_bytes());
        self.bytes.capacity() + large + self.arena.retained_bytes()
    }

    /// Keeps the memory of large bursts while they come now and then.
    fn reset_bytes(&mut self) {
        let is_spacious = self.bytes.capacity() / 4 > self.bytes.len();
        self.spacious = if is_spacious { self.spacious.saturating_add(1) } else { 0 };
        if self.spacious == u8::MAX {
            self.bytes.shrink_to(KEPT_BYTES_MAX);
            self.spacious = 0;
        }
        self.bytes.clear();
        self.read = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(inbound: &Inbound) -> usize {
        inbound.large.as_ref().map_or(0, |large| large.used.len())
    }

    fn copied(message: Incoming<'_>, _: &mut Arena) -> Vec<u8> {
        message.to_vec()
    }

    fn length(message: Incoming<'_>, _: &mut Arena) -> usize {
        message.len()
    }

    #[test]
    fn messages_come_out_in_order_and_an_empty_one_is_a_message() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        let mut large = pool.take(COPIED_MAX + 1);
        large.extend_from_slice(&[7; COPIED_MAX + 1]);
        inbound.push(Body::Lent(b"first"), false, &mut pool);
        inbound.push(Body::Lent(b""), true, &mut pool);
        inbound.push(Body::Block(large), true, &mut pool);
        inbound.push(Body::Lent(b"last"), false, &mut pool);

        assert_eq!(inbound.take(copied), Some((b"first".to_vec(), 5)));
        assert!(!inbound.last_was_compressed());
        assert_eq!(inbound.take(copied), Some((Vec::new(), 0)));
        assert!(inbound.last_was_compressed());
        assert_eq!(inbound.take(length), Some((COPIED_MAX + 1, COPIED_MAX + 1)));
        assert!(inbound.last_was_compressed());
        assert_eq!(inbound.take(copied), Some((b"last".to_vec(), 4)));
        assert_eq!(inbound.take(length), None);
        assert_eq!((pool.outstanding(), used(&inbound)), (0, 1), "the large block waits to be given back");
        inbound.give_used(&mut pool);
        assert_eq!((pool.outstanding(), used(&inbound)), (0, 0));
    }

    #[test]
    fn many_tiny_messages_take_no_more_memory_than_they_had_on_the_wire() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        let count = 100_000;
        for index in 0..count {
            inbound.push(Body::Lent(&[7; 3][..index % 4]), false, &mut pool);
        }
        let on_the_wire: usize = (0..count).map(|index| PREFIX_LEN + index % 4).sum();
        assert!(
            inbound.memory_bytes() <= 2 * on_the_wire,
            "{}: a Vec grows by doubling",
            inbound.memory_bytes()
        );
        for index in 0..count {
            assert_eq!(inbound.take(length), Some((index % 4, index % 4)));
        }
        assert!(inbound.take(length).is_none() && inbound.is_empty());
        for _ in 0..255 {
            assert!(inbound.memory_bytes() > KEPT_BYTES_MAX, "the next burst may be as large");
            inbound.push(Body::Lent(b"small"), false, &mut pool);
            assert_eq!(inbound.take(length), Some((5, 5)));
        }
        assert!(inbound.memory_bytes() <= KEPT_BYTES_MAX, "what is not needed any longer is freed");
    }

    #[test]
    fn messages_that_were_encoded_behind_room_for_their_heads_are_messages_like_others() {
        let mut inbound = Inbound::default();
        let mut bytes = b"    first".to_vec();
        inbound.push_behind_head(&mut bytes);
        assert!(bytes.is_empty());
        bytes.extend_from_slice(b"    ");
        inbound.push_behind_head(&mut bytes);
        inbound.push(Body::Lent(b"last"), true, &mut Pool::new());
        assert_eq!(inbound.take(copied), Some((b"first".to_vec(), 5)));
        assert!(!inbound.last_was_compressed());
        assert_eq!(inbound.take(copied), Some((Vec::new(), 0)));
        assert_eq!(inbound.take(copied), Some((b"last".to_vec(), 4)));
        assert_eq!(inbound.take(length), None);
    }

    #[test]
    fn a_small_block_is_given_back_at_once() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        let mut small = pool.take(16);
        small.extend_from_slice(b"small");
        inbound.push(Body::Block(small), false, &mut pool);
        assert_eq!(pool.outstanding(), 0);
        assert_eq!(inbound.take(copied), Some((b"small".to_vec(), 5)));
    }

    #[test]
    fn the_places_of_blocks_that_are_kept_from_call_to_call_are_bounded() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        for _ in 0..4 * KEPT_BLOCKS_MAX {
            let mut large = pool.take(COPIED_MAX + 1);
            large.extend_from_slice(&[7; COPIED_MAX + 1]);
            inbound.push(Body::Block(large), false, &mut pool);
        }
        inbound.push(Body::Lent(&[7; COPIED_MAX]), false, &mut pool);
        while inbound.take(length).is_some() {}
        inbound.bytes.reserve(2 * KEPT_BYTES_MAX);
        inbound.give_used(&mut pool);
        inbound.reset();
        let large = inbound.large.as_ref().unwrap();
        assert!(large.blocks.capacity() <= KEPT_BLOCKS_MAX && large.used.capacity() <= KEPT_BLOCKS_MAX);
        assert!(inbound.bytes.capacity() <= KEPT_BYTES_MAX);
    }
}
