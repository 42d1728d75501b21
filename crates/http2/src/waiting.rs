//! What waits on one stream: DATA, then perhaps trailers.

use std::collections::VecDeque;

use bytes::Bytes;
use fulmar_base::{Block, Output, Pool};
use fulmar_hpack::FieldList;

/// What follows the DATA that waits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Perhaps more.
    Open,
    /// END_STREAM, on the last DATA frame.
    Stream,
    /// Trailers. They are encoded when they leave, so that the order of compression is that of the wire.
    Trailers,
}

/// A piece of content on its way out.
#[derive(Debug)]
pub(crate) enum Chunk<'b> {
    /// Of a caller that keeps it: copied into blocks where it has to wait.
    Lent(&'b [u8]),
    Block(Block),
    Shared(Bytes),
}

impl Chunk<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Lent(bytes) => bytes.len(),
            Self::Block(block) => block.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// Moves the first `n` bytes, at most all, to the output.
    pub(crate) fn write(&mut self, n: usize, out: &mut Output) {
        match self {
            Self::Lent(bytes) => {
                let (front, rest) = bytes.split_at(n);
                out.extend_from_slice(front);
                *bytes = rest;
            }
            Self::Block(block) => {
                out.extend_from_slice(&block[..n]);
                block.consume(n);
            }
            Self::Shared(bytes) => out.push_shared(bytes.split_to(n)),
        }
    }

    /// Drops the chunk; a block goes back to its pool.
    pub(crate) fn give_back(self, pool: &mut Pool) {
        if let Self::Block(block) = self {
            pool.give(block);
        }
    }
}

/// The queue of a stream that has more to send than may leave. Recycled by the connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    chunks: VecDeque<Chunk<'static>>,
    bytes: usize,
    pub(crate) end: End,
    /// Read only with [`End::Trailers`].
    pub(crate) trailers: FieldList,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self { chunks: VecDeque::new(), bytes: 0, end: End::Open, trailers: FieldList::new() }
    }

    /// How many bytes of DATA wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends content: what is lent is copied, the rest moves.
    pub(crate) fn push(&mut self, chunk: Chunk<'_>, pool: &mut Pool) {
        self.bytes += chunk.len();
        match chunk {
            Chunk::Lent(bytes) => self.copy(bytes, pool),
            Chunk::Block(block) => self.chunks.push_back(Chunk::Block(block)),
            Chunk::Shared(bytes) => self.chunks.push_back(Chunk::Shared(bytes)),
        }
    }

    /// Moves the first `n` bytes, at most all, to the output.
    pub(crate) fn write(&mut self, n: usize, out: &mut Output, pool: &mut Pool) {
        self.bytes -= n;
        let mut left = n;
        while left > 0
            && let Some(front) = self.chunks.front_mut()
        {
            let step = front.len().min(left);
            front.write(step, out);
            left -= step;
            if front.len() == 0
                && let Some(empty) = self.chunks.pop_front()
            {
                empty.give_back(pool);
            }
        }
    }

    /// Empties the queue for its next stream.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.chunks.drain(..).for_each(|chunk| chunk.give_back(pool));
        self.bytes = 0;
        self.end = End::Open;
        self.trailers.clear();
    }

    /// Copies first into what the last block has to spare, so that many small sends share one.
    fn copy(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        if let Some(Chunk::Block(last)) = self.chunks.back_mut() {
            let tail = last.tail_mut();
            let spare = tail.capacity() - tail.len();
            let (fitting, rest) = bytes.split_at(spare.min(bytes.len()));
            tail.extend_from_slice(fitting);
            bytes = rest;
        }
        if !bytes.is_empty() {
            let mut block = pool.take(bytes.len());
            block.extend_from_slice(bytes);
            self.chunks.push_back(Chunk::Block(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_leaves_in_order_whatever_it_lies_in() {
        let mut pool = Pool::new();
        let mut out = Output::new();
        let mut waiting = Waiting::new();
        let mut block = pool.take(4);
        block.extend_from_slice(b"efgh");
        waiting.push(Chunk::Lent(b"abcd"), &mut pool);
        waiting.push(Chunk::Block(block), &mut pool);
        waiting.push(Chunk::Lent(b"ij"), &mut pool);
        waiting.push(Chunk::Shared(Bytes::from_static(b"klm")), &mut pool);
        assert_eq!(waiting.bytes(), 13);
        assert_eq!(pool.outstanding(), 2);
        for step in [1, 5, 6, 1] {
            waiting.write(step, &mut out, &mut pool);
        }
        assert_eq!(out.first(), b"abcdefghijklm");
        assert_eq!(waiting.bytes(), 0);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn many_small_sends_share_one_block() {
        let mut pool = Pool::new();
        let mut waiting = Waiting::new();
        for _ in 0..100 {
            waiting.push(Chunk::Lent(b"small"), &mut pool);
        }
        assert_eq!(pool.outstanding(), 1);
        waiting.clear(&mut pool);
        assert_eq!((pool.outstanding(), waiting.bytes()), (0, 0));
    }
}
