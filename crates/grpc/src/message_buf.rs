//! A message as prost reads it, whose `bytes` fields cost no allocation.

use bytes::{Buf, Bytes, BytesMut};

/// A whole message to decode from: a [`Buf`] over borrowed bytes.
///
/// prost asks a `Buf` for each field of type `bytes` with [`Buf::copy_to_bytes`], and the default copies the field into
/// memory of its own. This one copies it into memory of an [`Arena`], which is used again once the message is dropped.
#[derive(Debug)]
pub struct MessageBuf<'m> {
    bytes: &'m [u8],
    /// The memory that all of `bytes` lies in, if parts of it may be kept.
    shared: Option<&'m Bytes>,
    arena: &'m mut Arena,
}

impl<'m> MessageBuf<'m> {
    /// Reads `message`, and carves its `bytes` fields out of `arena`.
    #[inline]
    pub fn new(message: &'m [u8], arena: &'m mut Arena) -> Self {
        arena.rewind();
        Self { bytes: message, shared: None, arena }
    }

    /// Reads `message`. A `bytes` field that is at least half of it, and [`Arena::LARGE_BYTES`] long, becomes a part of it and is not
    /// copied: whoever keeps such a field keeps the memory of the whole message, at most eight times as much and a page, as a message may
    /// lie in memory of four times its length. Others are carved out of `arena`.
    pub fn shared(message: &'m Bytes, arena: &'m mut Arena) -> Self {
        arena.rewind();
        Self { bytes: message, shared: Some(message), arena }
    }
}

impl Buf for MessageBuf<'_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.bytes
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.bytes = &self.bytes[count..];
    }

    #[inline]
    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let (field, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        match self.shared {
            Some(shared) if len >= Arena::LARGE_BYTES && len >= shared.len() / 2 => shared.slice_ref(field),
            _ => self.arena.carve(field),
        }
    }
}

/// Memory that `Bytes` are carved out of, and that is used again when they are dropped.
///
/// Small fields share chunks of [`CHUNK_BYTES`](Self::CHUNK_BYTES). A chunk is used again from its start as soon as
/// nothing that was carved out of it lives; until then the next chunk serves. An arena has at most
/// [`CHUNKS_MAX`](Self::CHUNKS_MAX) chunks: while all of them are held by fields somebody keeps, further fields get
/// memory of their own. So **a field that is kept for long keeps a chunk from being used, and all such fields of an
/// arena together at most 512 KiB**, however many messages pass. Who keeps many fields for long copies them
/// (`Bytes::copy_from_slice`) and gets the chunks back to work.
///
/// Fields of [`LARGE_BYTES`](Self::LARGE_BYTES) and more get a piece of memory each, of the next power of two; up to
/// [`LARGE_RETAINED_BYTES_MAX`](Self::LARGE_RETAINED_BYTES_MAX) of those are remembered and used again when free, but
/// none for a field of less than a quarter of its size.
///
/// An arena has no memory until something is carved out of it. It serves one thread; what was carved may go anywhere.
#[derive(Debug, Default)]
pub struct Arena {
    /// None before the first of them: most calls have messages without such fields, and an arena at either end.
    memory: Option<Box<Chunks>>,
}

/// Memory for fields.
#[derive(Debug, Default)]
struct Chunks {
    /// The chunk in use is the last one. Of each only the rest is here: what was carved has been split off.
    chunks: Vec<BytesMut>,
    /// None before the first of them: most arenas never carve any.
    large: Option<Box<LargePieces>>,
}

/// Memory for large fields.
#[derive(Debug, Default)]
struct LargePieces {
    pieces: Vec<Large>,
    retained_bytes: usize,
}

/// The memory of a large field: the empty rest behind it, by which the memory can be had back.
#[derive(Debug)]
struct Large {
    rest: BytesMut,
    capacity: usize,
}

impl Arena {
    /// Bytes of a chunk: 64 KiB, so that a few messages' fields stay in a processor's second-level cache.
    pub const CHUNK_BYTES: usize = 64 * 1024;

    /// Chunks of an arena: 8.
    pub const CHUNKS_MAX: usize = 8;

    /// From this size on, 16 KiB, a field gets memory of its own.
    pub const LARGE_BYTES: usize = 16 * 1024;

    /// Bytes of memory for large fields that are remembered for use again: 8 MiB.
    pub const LARGE_RETAINED_BYTES_MAX: usize = 8 * 1024 * 1024;

    /// Pieces of memory for large fields that are remembered; each is looked at when a large field comes.
    const LARGE_PIECES_MAX: usize = 16;

    /// So much of a chunk is used before it is started over, if that is possible: it stays in a processor's first-level cache, and
    /// small messages need not look each time.
    const WARM_BYTES: usize = 4 * 1024;

    /// An arena without memory.
    pub const fn new() -> Self {
        Self { memory: None }
    }

    /// Whether nothing was carved out of it yet.
    pub const fn is_new(&self) -> bool {
        self.memory.is_none()
    }

    /// A copy of `bytes` in memory of this arena.
    pub fn carve(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        self.memory.get_or_insert_default().carve(bytes)
    }

    /// Gives all memory back that no field is held in any more, and forgets the rest: it is freed with its fields.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Bytes of memory this arena holds on to.
    pub fn retained_bytes(&self) -> usize {
        let Some(memory) = &self.memory else { return 0 };
        let large = memory.large.as_ref().map_or(0, |large| large.retained_bytes);
        memory.chunks.len() * Self::CHUNK_BYTES + large
    }

    /// Starts the chunk in use over, if nothing carved out of it lives: the same, warm, memory for each few messages.
    #[inline]
    fn rewind(&mut self) {
        if let Some(memory) = &mut self.memory
            && let Some(chunk) = memory.chunks.last_mut()
            && chunk.capacity() <= Self::CHUNK_BYTES - Self::WARM_BYTES
        {
            // Without room for all of it, the chunk stays as it is.
            let _ = chunk.try_reclaim(Self::CHUNK_BYTES);
        }
    }
}

impl Chunks {
    #[inline]
    fn carve(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() >= Arena::LARGE_BYTES {
            return self.carve_large(bytes);
        }
        match self.chunk_with_room(bytes.len()) {
            Some(chunk) => {
                chunk.extend_from_slice(bytes);
                chunk.split().freeze()
            }
            None => Bytes::copy_from_slice(bytes),
        }
    }

    /// The chunk in use if it has room for so many bytes, or else another that has become free, or a new one.
    fn chunk_with_room(&mut self, bytes: usize) -> Option<&mut BytesMut> {
        let has_room = self.chunks.last_mut().is_some_and(|chunk| chunk.try_reclaim(bytes));
        if !has_room {
            match self.chunks.iter_mut().position(|chunk| chunk.try_reclaim(Arena::CHUNK_BYTES)) {
                Some(free) => {
                    let last = self.chunks.len() - 1;
                    self.chunks.swap(free, last);
                }
                None if self.chunks.len() < Arena::CHUNKS_MAX => {
                    self.chunks.push(BytesMut::with_capacity(Arena::CHUNK_BYTES));
                }
                None => return None,
            }
        }
        self.chunks.last_mut()
    }

    #[inline(never)]
    fn carve_large(&mut self, bytes: &[u8]) -> Bytes {
        self.large.get_or_insert_default().carve(bytes)
    }
}

impl LargePieces {
    fn carve(&mut self, bytes: &[u8]) -> Bytes {
        let len = bytes.len();
        let free =
            self.pieces.iter_mut().position(|large| large.capacity / 4 <= len && large.rest.try_reclaim(len));
        let large = match free {
            Some(index) => &mut self.pieces[index],
            None => {
                let capacity = len.checked_next_power_of_two().unwrap_or(len);
                if capacity > Arena::LARGE_RETAINED_BYTES_MAX {
                    return Bytes::copy_from_slice(bytes);
                }
                self.remember(capacity)
            }
        };
        large.rest.extend_from_slice(bytes);
        large.rest.split().freeze()
    }

    /// A new piece of memory, for which the oldest are forgotten if there are too many.
    fn remember(&mut self, capacity: usize) -> &mut Large {
        while self.pieces.len() >= Arena::LARGE_PIECES_MAX
            || self.retained_bytes + capacity > Arena::LARGE_RETAINED_BYTES_MAX
        {
            self.retained_bytes -= self.pieces.remove(0).capacity;
        }
        self.retained_bytes += capacity;
        self.pieces.push_mut(Large { rest: BytesMut::with_capacity(capacity), capacity })
    }
}

#[cfg(test)]
mod tests;
