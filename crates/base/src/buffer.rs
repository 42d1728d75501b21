use std::fmt;

/// A growing queue of bytes: push at the tail, consume at the head.
///
/// Emptied by [`consume`](Self::consume) or [`clear`](Self::clear), it gives memory above [`RETAINED_MAX`](Self::RETAINED_MAX) back
/// to the allocator, so that a quiet connection holds next to none.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// How many bytes at the front of `bytes` have been consumed.
    head: usize,
}

impl Buffer {
    /// How much memory an empty buffer keeps for its next bytes: 4 KiB, one page.
    pub const RETAINED_MAX: usize = 4096;

    /// An empty buffer, without memory.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), head: 0 }
    }

    /// The bytes in the queue.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.head..).unwrap_or_default()
    }

    /// The bytes in the queue, to be changed in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.head..).unwrap_or_default()
    }

    /// How many bytes are in the queue.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.head)
    }

    /// Whether no byte is in the queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops `n` bytes from the head, at most all.
    pub fn consume(&mut self, n: usize) {
        if n >= self.len() {
            self.clear();
        } else {
            self.head += n;
        }
    }

    /// Copies bytes to the tail.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// The tail, to append to and for nothing else: what lies in the vector already belongs to the buffer.
    pub fn tail_mut(&mut self) -> &mut Vec<u8> {
        self.make_room(0);
        &mut self.bytes
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.head = 0;
        self.bytes.clear();
        if self.bytes.capacity() > Self::RETAINED_MAX {
            self.bytes = Vec::new();
        }
    }

    /// How many bytes of memory the buffer holds.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Moves the queue to the front of its memory, if it would grow otherwise or if more was consumed than is left. Either way each
    /// byte is moved at most once for each byte consumed before it.
    fn make_room(&mut self, additional: usize) {
        let left = self.len();
        let full = self.bytes.capacity() - self.bytes.len() < additional;
        if self.head > 0 && self.head >= left && (full || self.head >= Self::RETAINED_MAX) {
            self.bytes.copy_within(self.head.., 0);
            self.bytes.truncate(left);
            self.head = 0;
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn agrees_with_a_plain_vector() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut buffer, mut model) = (Buffer::new(), Vec::new());
            for _ in 0..2000 {
                let n = random.below(600);
                match random.below(5) {
                    0 => {
                        let bytes = random.bytes(n);
                        buffer.extend_from_slice(&bytes);
                        model.extend_from_slice(&bytes);
                    }
                    1 => {
                        buffer.tail_mut().push(n as u8);
                        model.push(n as u8);
                    }
                    2 => {
                        buffer.as_mut_slice().iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                        model.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                    }
                    _ => {
                        buffer.consume(n);
                        model.drain(..n.min(model.len()));
                    }
                }
                assert_eq!(buffer.as_slice(), model, "seed {seed}");
                assert_eq!((buffer.len(), buffer.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }

    #[test]
    fn an_emptied_buffer_gives_big_memory_back_and_keeps_small() {
        let mut buffer = Buffer::new();
        assert_eq!(buffer.capacity(), 0);
        buffer.extend_from_slice(&[1; 100]);
        let small = buffer.capacity();
        buffer.consume(100);
        assert_eq!(buffer.capacity(), small);
        buffer.extend_from_slice(&[1; 100_000]);
        buffer.consume(usize::MAX);
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow_without_end() {
        let mut buffer = Buffer::new();
        buffer.extend_from_slice(&[0; 1000]);
        for _ in 0..10_000 {
            buffer.extend_from_slice(&[0; 1000]);
            buffer.consume(1000);
        }
        assert!(buffer.capacity() <= 16 * 1024, "{} bytes held for 1000", buffer.capacity());
    }
}
