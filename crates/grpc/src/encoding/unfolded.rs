//! What a compressed message unfolds to, bounded while it does.

use std::fmt;

use fulmar_base::{Block, Pool};

use super::EncodingError;

/// The smallest piece of memory that is lent to a decompressor, unless the limit is nearer.
const ROOM_BYTES_MIN: usize = 512;

/// The largest piece of memory that is lent at once: it is zeroed before, and should be in the processor's cache still when it is
/// written.
const ROOM_BYTES_MAX: usize = 64 * 1024;

/// From here on memory is taken sixteen times as long as what there is, up to the limit: what unfolds to so much seldom stops there,
/// each step holds two pieces at a time, and pages that are never written to cost nothing.
const LEAP_BYTES_MIN: usize = 256 * 1024;

/// Where a [`Decompressor`](super::Decompressor) puts what a message unfolds to: pooled memory that grows with it, up to the limit.
pub struct Unfolded<'p> {
    pool: &'p mut Pool,
    block: Block,
    /// How much of the block counts; behind it lies what was lent and not filled.
    len: usize,
    bytes_max: usize,
}

impl<'p> Unfolded<'p> {
    /// Room for at most `bytes_max` bytes in memory of `pool`.
    pub fn new(pool: &'p mut Pool, bytes_max: usize) -> Self {
        Self { pool, block: Block::default(), len: 0, bytes_max }
    }

    /// Lends memory to write to; at least one byte, so that a decompressor can find the end of a message that reaches the limit.
    /// [`fill`](Self::fill) says how much of it was written; the rest is lent again. What is in it means nothing.
    ///
    /// # Errors
    ///
    /// [`EncodingError::TooLong`] once the message is longer than the limit.
    pub fn room(&mut self) -> Result<&mut [u8], EncodingError> {
        let left = self.bytes_max.saturating_add(1).saturating_sub(self.len);
        if left == 0 {
            return Err(EncodingError::TooLong);
        }
        // As much again as there is: the block doubles while it grows.
        let bytes = self.len.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX).min(left);
        Ok(self.lend(bytes))
    }

    /// So many bytes of the room lent last were written.
    pub fn fill(&mut self, bytes: usize) {
        self.len = self.len.saturating_add(bytes).min(self.block.len());
    }

    /// Appends a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// [`EncodingError::TooLong`] if the message would be longer than the limit; nothing is appended.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), EncodingError> {
        if bytes.len() > self.bytes_max.saturating_sub(self.len) {
            return Err(EncodingError::TooLong);
        }
        self.take_back();
        self.make_room(bytes.len());
        self.block.extend_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// How many bytes the message has so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The message, if it kept to the limit.
    ///
    /// # Errors
    ///
    /// [`EncodingError::TooLong`].
    pub(super) fn finish(&mut self) -> Result<Block, EncodingError> {
        self.take_back();
        if self.len > self.bytes_max {
            return Err(EncodingError::TooLong);
        }
        if self.len >= LEAP_BYTES_MIN && self.block.capacity() / 4 > self.len {
            // It may be held for long.
            let mut fitting = self.pool.take(self.len);
            fitting.extend_from_slice(&self.block);
            self.pool.give(std::mem::replace(&mut self.block, fitting));
        }
        Ok(std::mem::take(&mut self.block))
    }

    /// What was lent and not filled is lent again as it is: a message of many small pieces, or empty ones, must not have the same memory
    /// zeroed for each of them.
    fn lend(&mut self, bytes: usize) -> &mut [u8] {
        let surplus = self.block.len().saturating_sub(self.len);
        if surplus < bytes {
            self.make_room(bytes - surplus);
            let end = self.block.tail_mut().len() + bytes - surplus;
            self.block.tail_mut().resize(end, 0);
        }
        let tail = self.block.tail_mut();
        let start = tail.len() - surplus.max(bytes);
        &mut tail[start..start + bytes]
    }

    /// Cuts off what was lent and not filled.
    fn take_back(&mut self) {
        let surplus = self.block.len().saturating_sub(self.len);
        let end = self.block.tail_mut().len() - surplus;
        self.block.tail_mut().truncate(end);
    }

    fn make_room(&mut self, bytes: usize) {
        if self.block.capacity() - self.block.len() < bytes {
            // A multiple of what there will be, so that a long message is copied a few times at most.
            let needed = self.block.len().saturating_add(bytes);
            let factor = if needed > LEAP_BYTES_MIN { 16 } else { 2 };
            let target = needed.saturating_mul(factor).min(self.bytes_max.saturating_add(1)).max(needed);
            let more = target - self.block.len();
            self.pool.reserve(&mut self.block, more);
        }
    }
}

impl Drop for Unfolded<'_> {
    /// A message that failed gives its memory back.
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.block));
    }
}

impl fmt::Debug for Unfolded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfolded").field("len", &self.len).field("bytes_max", &self.bytes_max).finish()
    }
}
