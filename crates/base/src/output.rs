use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// What goes out on a connection, in order: bytes in one growing `Vec`, and user-owned [`Bytes`] between them.
///
/// Engines encode straight into [`bytes_mut`](Self::bytes_mut); large bodies that a user owns already are pushed by reference and
/// leave in a vectored write without being copied. The world takes [`slices`](Self::slices), writes them, and says with
/// [`advance`](Self::advance) how far it came.
///
/// ```
/// use fulmar_base::Output;
///
/// let mut out = Output::new();
/// out.extend_from_slice(b"head");
/// out.push_shared(bytes::Bytes::from(vec![7; Output::SHARED_MIN]));
/// out.bytes_mut().push(b'!');
///
/// let mut slices = [std::io::IoSlice::new(&[]); 8];
/// assert_eq!(out.slices(&mut slices), 3);
/// out.advance(4);
/// assert_eq!(out.len(), Output::SHARED_MIN + 1);
/// ```
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// How many bytes at the front of `bytes` have left.
    head: usize,
    shared: VecDeque<Shared>,
    /// Sum of the lengths in `shared`.
    shared_len: usize,
    /// How many bytes were ever dropped from the front of `bytes`: turns the positions in `shared` into indices.
    dropped: u64,
}

/// Bytes of a user that leave before the byte at `position`, counted from the first byte ever appended.
struct Shared {
    position: u64,
    bytes: Bytes,
}

impl Output {
    /// From 16 KiB on, bytes of a user are kept by reference: one more slice in a vectored write costs less than the copy.
    pub const SHARED_MIN: usize = 16 * 1024;

    /// Engines stop to write DATA when so many bytes wait: 128 KiB. What waits here stands before a small message that comes next, and one
    /// write of so much costs hardly more a byte than a larger one.
    pub const SOFT_LIMIT: usize = 128 * 1024;

    /// How much memory an empty output keeps for its next bytes: 1 MiB.
    pub const RETAINED_MAX: usize = 1024 * 1024;

    /// An empty output, without memory.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), head: 0, shared: VecDeque::new(), shared_len: 0, dropped: 0 }
    }

    /// How many bytes wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.head) + self.shared_len
    }

    /// Whether no byte waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of DATA may still be written: [`SOFT_LIMIT`](Self::SOFT_LIMIT) less what waits. Control frames and headers
    /// ignore it.
    #[inline]
    pub fn room(&self) -> usize {
        Self::SOFT_LIMIT.saturating_sub(self.len())
    }

    /// The tail, to append to and for nothing else: what lies in the vector already waits to leave.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Copies bytes to the tail.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts bytes of a user at the tail: by reference from [`SHARED_MIN`](Self::SHARED_MIN) on, copied below it.
    pub fn push_shared(&mut self, bytes: Bytes) {
        if bytes.len() < Self::SHARED_MIN {
            return self.extend_from_slice(&bytes);
        }
        self.shared_len += bytes.len();
        let position = self.dropped + self.bytes.len() as u64;
        self.shared.push_back(Shared { position, bytes });
    }

    /// Fills `into` with what leaves first, for a vectored write, and returns how many slices it filled.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, slice) in into.iter_mut().zip(self.iter()) {
            *slot = IoSlice::new(slice);
            filled += 1;
        }
        filled
    }

    /// The first bytes that lie together; empty only if nothing waits.
    pub fn first(&self) -> &[u8] {
        self.iter().next().unwrap_or_default()
    }

    /// All that waits, if it lies together and none of it is a user's.
    #[inline]
    pub fn only(&self) -> Option<&[u8]> {
        if self.shared.is_empty() { self.bytes.get(self.head..) } else { None }
    }

    /// Drops the first `written` bytes, at most all: they have left. Moves no memory but now and then, when more bytes have left
    /// than wait.
    pub fn advance(&mut self, written: usize) {
        if written >= self.len() {
            return self.clear();
        }
        let mut left = written;
        while left > 0 {
            let gap = self.before_shared();
            if gap > 0 {
                let step = gap.min(left);
                self.head += step;
                left -= step;
            } else if let Some(front) = self.shared.front_mut() {
                let step = front.bytes.len().min(left);
                front.bytes.advance(step);
                self.shared_len -= step;
                left -= step;
                if front.bytes.is_empty() {
                    self.shared.pop_front();
                }
            } else {
                break;
            }
        }
        self.compact();
    }

    /// Drops all bytes. Memory up to [`RETAINED_MAX`](Self::RETAINED_MAX) is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > Self::RETAINED_MAX {
            self.bytes = Vec::new();
        }
        self.head = 0;
        self.shared.clear();
        self.shared_len = 0;
        self.dropped = 0;
    }

    /// Appends all bytes to `sink`, in one piece, and leaves the output empty.
    pub fn move_to(&mut self, sink: &mut Vec<u8>) {
        sink.reserve(self.len());
        for slice in self.iter() {
            sink.extend_from_slice(slice);
        }
        self.clear();
    }

    /// How many bytes of memory the output holds, besides what users own.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// What waits, in order, in as few slices as there are; none of them is empty.
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.head;
        let own_and_shared = self.shared.iter().flat_map(move |shared| {
            let end = self.index_of(shared.position);
            let own = self.bytes.get(at..end).unwrap_or_default();
            at = end;
            [own, &shared.bytes]
        });
        let last = self.shared.back().map_or(self.head, |shared| self.index_of(shared.position));
        let tail = self.bytes.get(last..).unwrap_or_default();
        own_and_shared.chain([tail]).filter(|slice| !slice.is_empty())
    }

    /// How many own bytes leave before the first shared ones.
    fn before_shared(&self) -> usize {
        let end = self.shared.front().map_or(self.bytes.len(), |shared| self.index_of(shared.position));
        end.saturating_sub(self.head)
    }

    fn index_of(&self, position: u64) -> usize {
        (position - self.dropped) as usize
    }

    /// Keeps a stream that never lets the output run empty from growing it without end. Each byte is moved at most once for each
    /// byte that left before it.
    fn compact(&mut self) {
        let left = self.bytes.len() - self.head;
        if self.head >= Self::SOFT_LIMIT && self.head >= left {
            self.bytes.copy_within(self.head.., 0);
            self.bytes.truncate(left);
            self.dropped += self.head as u64;
            self.head = 0;
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("len", &self.len())
            .field("shared", &self.shared.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn shared(random: &mut Random) -> Bytes {
        let len = Output::SHARED_MIN - 50 + random.below(100);
        Bytes::from(random.bytes(len))
    }

    fn flat(out: &Output, slots: usize) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); slots];
        let filled = out.slices(&mut slices);
        slices[..filled].iter().fold(Vec::new(), |sum, slice| [&sum[..], slice].concat())
    }

    #[test]
    fn agrees_with_a_plain_vector() {
        for seed in 0..6 {
            let mut random = Random::new(seed);
            let (mut out, mut model) = (Output::new(), Vec::new());
            for _ in 0..150 {
                match random.below(5) {
                    0 => {
                        let n = random.below(40_000);
                        let bytes = random.bytes(n);
                        out.extend_from_slice(&bytes);
                        model.extend_from_slice(&bytes);
                    }
                    1 => {
                        let bytes = shared(&mut random);
                        model.extend_from_slice(&bytes);
                        out.push_shared(bytes);
                    }
                    2 => {
                        out.bytes_mut().push(9);
                        model.push(9);
                    }
                    _ => {
                        let n = random.below(50_000);
                        out.advance(n);
                        model.drain(..n.min(model.len()));
                    }
                }
                assert_eq!((out.len(), out.is_empty()), (model.len(), model.is_empty()), "seed {seed}");
                assert_eq!(flat(&out, 1024), model, "seed {seed}");
                assert!(model.starts_with(&flat(&out, 2)), "seed {seed}");
                assert!(out.only().is_none_or(|only| only == model));
                assert!(model.starts_with(out.first()) && out.first().is_empty() == model.is_empty());
                assert_eq!(out.room(), (128 * 1024usize).saturating_sub(model.len()));
            }
            let mut sink = b"before".to_vec();
            out.move_to(&mut sink);
            assert_eq!(&sink[6..], model);
            assert!(out.is_empty());
        }
    }

    #[test]
    fn large_bytes_of_a_user_are_not_copied() {
        let large = Bytes::from(vec![1; Output::SHARED_MIN]);
        let mut out = Output::new();
        out.push_shared(large.clone());
        assert_eq!(out.first().as_ptr(), large.as_ptr());
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn small_bytes_of_a_user_are_copied() {
        let mut out = Output::new();
        out.extend_from_slice(b"a");
        out.push_shared(Bytes::from(vec![b'b'; Output::SHARED_MIN - 1]));
        out.push_shared(Bytes::new());
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(out.slices(&mut slices), 1);
        assert_eq!(out.len(), Output::SHARED_MIN);
        assert_eq!(out.only().map(<[u8]>::len), Some(Output::SHARED_MIN));
    }

    #[test]
    fn memory_is_kept_when_emptied_up_to_one_mebibyte() {
        let mut out = Output::new();
        out.extend_from_slice(&vec![0; 500_000]);
        let held = out.capacity();
        out.advance(500_000);
        assert_eq!((out.capacity(), out.len()), (held, 0));
        out.extend_from_slice(&vec![0; Output::RETAINED_MAX + 1]);
        out.advance(Output::RETAINED_MAX + 1);
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn an_output_that_is_never_empty_does_not_grow_without_end() {
        let mut out = Output::new();
        out.extend_from_slice(&[0; 1000]);
        for round in 0..2_000 {
            out.extend_from_slice(&[0; 1000]);
            if round % 100 == 0 {
                out.push_shared(Bytes::from(vec![0; Output::SHARED_MIN]));
                out.advance(Output::SHARED_MIN);
            }
            out.advance(1000);
            assert_eq!(out.len(), 1000);
        }
        assert!(out.capacity() <= 2 * Output::RETAINED_MAX, "{} bytes held for 1000", out.capacity());
    }

    #[test]
    fn advancing_too_far_empties() {
        let mut out = Output::new();
        out.extend_from_slice(b"abc");
        out.advance(usize::MAX);
        assert!(out.is_empty());
        out.advance(1);
        assert_eq!(out.first(), b"");
    }
}
