//! What waits on one stream: DATA, then perhaps trailers.

use std::collections::VecDeque;

use bytes::Bytes;
use fulmar_base::{Block, Instant, Output, Pool};
use fulmar_hpack::{DecodeLimits, FieldList};

/// Content shorter than this is copied together when it has to wait, whatever it lies in: else a thousand messages of a few bytes
/// would keep a thousand blocks.
const KEPT_MIN: usize = 4096;

/// What a queue keeps for its next stream: room for so many chunks, and for trailers of so many bytes.
const SPARE_CHUNKS_MAX: usize = 16;
const SPARE_TRAILERS_MAX: usize = 1024;

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
    /// When the last byte left, or the first one came.
    pub(crate) moved: Instant,
    pub(crate) end: End,
    /// Read only with [`End::Trailers`].
    pub(crate) trailers: FieldList,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            bytes: 0,
            moved: Instant::ZERO,
            end: End::Open,
            trailers: FieldList::new(),
        }
    }

    /// How many bytes of DATA wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends content: what is lent or short is copied, and what lies in a block that is mostly empty; the rest moves.
    pub(crate) fn push(&mut self, chunk: Chunk<'_>, pool: &mut Pool) {
        match chunk {
            Chunk::Block(block) if block.len() >= KEPT_MIN && block.len() >= block.capacity() / 2 => {
                self.bytes += block.len();
                self.chunks.push_back(Chunk::Block(block));
            }
            Chunk::Shared(bytes) if bytes.len() >= KEPT_MIN => {
                self.bytes += bytes.len();
                self.chunks.push_back(Chunk::Shared(bytes));
            }
            Chunk::Lent(bytes) => self.copy(bytes, pool),
            Chunk::Shared(bytes) => self.copy(&bytes, pool),
            Chunk::Block(block) => {
                self.copy(&block, pool);
                pool.give(block);
            }
        }
    }

    /// Bytes of memory held, used or not; without what users own.
    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks = self.chunks.iter().map(|chunk| match chunk {
            Chunk::Block(block) => block.memory_bytes(),
            Chunk::Lent(_) | Chunk::Shared(_) => 0,
        });
        let chunks = self.chunks.capacity() * size_of::<Chunk<'static>>();
        size_of::<Self>() + chunks + blocks.sum::<usize>() + self.trailers.memory_bytes()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to with so many bytes of DATA that wait, of which the largest piece
    /// has so many, and trailers with so many fields and bytes.
    pub(crate) fn memory_bytes_max(bytes: usize, piece: usize, fields: usize, field_bytes: usize) -> usize {
        // Blocks are at least half full, and two neighbours of which one was copied hold more than one of them has room for; a
        // page comes with each block of four. The first one may have left but for a byte.
        let blocks =
            bytes.saturating_mul(5) / 2 + Pool::block_bytes(piece.max(KEPT_MIN)) + 2 * Pool::block_bytes(0);
        // The shortest neighbours hold more than the smallest block. Memory that grows takes up to twice what it needs.
        let chunks = (bytes / 256 + 2).saturating_mul(2 * size_of::<Chunk<'static>>());
        let trailers = FieldList::memory_bytes_max(
            &DecodeLimits { list_bytes_max: field_bytes, fields_max: fields, string_bytes_max: 0 },
            0,
        );
        [size_of::<Self>(), blocks, chunks, trailers].into_iter().fold(0, usize::saturating_add)
    }

    /// What a queue keeps for its next stream at most, in bytes.
    pub(crate) fn spare_bytes_max() -> usize {
        size_of::<Self>() + SPARE_CHUNKS_MAX * size_of::<Chunk<'static>>() + SPARE_TRAILERS_MAX
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
        if self.chunks.capacity() > SPARE_CHUNKS_MAX {
            self.chunks = VecDeque::new();
        }
        self.bytes = 0;
        self.end = End::Open;
        self.trailers.clear_down_to(SPARE_TRAILERS_MAX);
    }

    /// Copies first into what the last block has to spare, so that many small sends share one. Where many follow each other, blocks
    /// become larger.
    fn copy(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        let waited = self.bytes;
        self.bytes += bytes.len();
        if let Some(Chunk::Block(last)) = self.chunks.back_mut() {
            let tail = last.tail_mut();
            let spare = tail.capacity() - tail.len();
            let (fitting, rest) = bytes.split_at(spare.min(bytes.len()));
            tail.extend_from_slice(fitting);
            bytes = rest;
        }
        if !bytes.is_empty() {
            let mut block = pool.take(bytes.len().max(waited.min(KEPT_MIN)));
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
        let mut large = pool.take(5_000);
        large.extend_from_slice(&[b'-'; 5_000]);
        waiting.push(Chunk::Lent(b"abcd"), &mut pool);
        waiting.push(Chunk::Block(block), &mut pool);
        waiting.push(Chunk::Block(large), &mut pool);
        waiting.push(Chunk::Lent(b"ij"), &mut pool);
        waiting.push(Chunk::Shared(Bytes::from_static(b"klm")), &mut pool);
        waiting.push(Chunk::Shared(Bytes::from_static(&[b'.'; 5_000])), &mut pool);
        assert_eq!(waiting.bytes(), 10_013);
        assert_eq!(pool.outstanding(), 2, "short pieces fill what is there");
        for step in [1, 5, 6, 5_000, 1, 4_999, 1] {
            waiting.write(step, &mut out, &mut pool);
        }
        let sent = [&b"abcdefgh"[..], &[b'-'; 5_000], b"ijklm", &[b'.'; 5_000]].concat();
        assert_eq!(out.first(), sent);
        assert_eq!(waiting.bytes(), 0);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn many_small_sends_share_one_block_however_they_come() {
        let mut pool = Pool::new();
        for kind in 0..3 {
            let mut waiting = Waiting::new();
            for _ in 0..100 {
                let mut block = pool.take(5);
                block.extend_from_slice(b"small");
                let chunk = match kind {
                    0 => Chunk::Lent(b"small"),
                    1 => Chunk::Block(std::mem::take(&mut block)),
                    _ => Chunk::Shared(Bytes::from_static(b"small")),
                };
                waiting.push(chunk, &mut pool);
                if kind != 1 {
                    pool.give(block);
                }
            }
            assert_eq!((pool.outstanding(), waiting.bytes()), (1, 500));
            waiting.clear(&mut pool);
            assert_eq!((pool.outstanding(), waiting.bytes()), (0, 0));
            assert!(waiting.memory_bytes() <= Waiting::spare_bytes_max());
        }
    }

    #[test]
    fn memory_stays_within_the_bound_and_comes_near_it() {
        let mut pool = Pool::new();
        let piece_max = 70_000;
        let mut state = 1_u64;
        let mut share_max = 0.0_f64;
        for sizes in
            [&[1][..], &[5, 300], &[4_096], &[4_096, 1], &[8_193], &[16_384], &[40_000, 7], &[70_000]]
        {
            let mut waiting = Waiting::new();
            for round in 0..200 {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                let size = sizes[round % sizes.len()];
                let mut block = pool.take(if state >> 63 == 0 { size } else { 2 * size });
                block.extend_from_slice(&vec![0; size]);
                waiting.push(Chunk::Block(block), &mut pool);
                let (held, most) =
                    (waiting.memory_bytes(), Waiting::memory_bytes_max(waiting.bytes(), piece_max, 0, 0));
                assert!(held <= most, "{sizes:?}: {} bytes in {held}, more than {most}", waiting.bytes());
                share_max = share_max.max(held as f64 / most as f64);
            }
            waiting.clear(&mut pool);
        }
        assert!(share_max > 0.5, "{share_max}");
    }
}
