//! Length-prefixed messages: the 5 bytes in front of each message, and how messages are cut out of DATA.
//!
//! DATA boundaries mean nothing: a prefix or a message may be split anywhere, and a frame may hold many messages.

use std::mem;

use fulmar_base::{Block, Output, Pool, SharedBlock};

use crate::code::Code;
use crate::event::Body;
use crate::status::Status;

/// One byte that says whether the message is compressed, four that say how long it is, big endian.
pub(crate) const PREFIX_LEN: usize = 5;

/// Writes the prefix of a message of `length` bytes, or says that four bytes cannot hold the length.
pub(crate) fn prefix(length: usize, is_compressed: bool) -> Option<[u8; PREFIX_LEN]> {
    let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
    Some([u8::from(is_compressed), a, b, c, d])
}

/// What it takes to begin a large message, however little of it has arrived: a page to place its memory in.
pub(crate) const PLACE_BYTES: usize = 4096;

/// What a deframer accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepts {
    /// The longest message, in bytes.
    pub(crate) length_max: usize,
    /// Whether messages may be compressed. They are as long here as they were sent, and may be a little longer than what they unfold
    /// to: what cannot be made smaller gets larger by what is put around it.
    pub(crate) compressed: bool,
}

impl Accepts {
    /// The longest message with this flag. Encodings add some bytes, and some for each block of some KiB that they do not compress.
    const fn length_max(self, is_compressed: bool) -> usize {
        if !is_compressed {
            return self.length_max;
        }
        self.length_max.saturating_add(self.length_max / 256).saturating_add(1024)
    }
}

/// Cuts the DATA of one direction of one call into messages.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    /// The prefix of the message in progress as far as it has arrived.
    prefix: [u8; PREFIX_LEN],
    prefix_len: u8,
    /// The beginning of that message, unless all of it lies in one frame; or of a body that holds no messages.
    unfinished: Unfinished,
}

/// The beginning of a message.
#[derive(Debug)]
enum Unfinished {
    Block(Block),
    /// Of a message of [`Output::SHARED_MIN`] and more, which may be handed on without being copied.
    Large(SharedBlock),
}

impl Deframer {
    /// Takes one message off the front of `bytes`. With `None`, all of `bytes` was taken and the message goes on.
    ///
    /// The length announced is compared with what is accepted before any memory is taken, and the block grows with the
    /// bytes received: what a peer announces costs nothing.
    pub(crate) fn next<'i>(
        &mut self,
        pool: &mut Pool,
        bytes: &mut &'i [u8],
        accepts: Accepts,
    ) -> Result<Option<Body<'i>>, FramingError> {
        if !self.take_prefix(bytes, accepts)? {
            return Ok(None);
        }
        let length = self.length();
        let held = self.unfinished.len();
        if held == 0
            && let Some((message, rest)) = bytes.split_at_checked(length)
        {
            *bytes = rest;
            self.prefix_len = 0;
            return Ok(Some(Body::Lent(message)));
        }
        let missing = length.saturating_sub(held);
        let (part, rest) = bytes.split_at(missing.min(bytes.len()));
        *bytes = rest;
        if !part.is_empty() {
            self.unfinished.extend(pool, part, length);
        }
        if part.len() < missing {
            return Ok(None);
        }
        self.prefix_len = 0;
        Ok(Some(mem::take(&mut self.unfinished).finish(pool)))
    }

    /// Whether the message taken last, or the one in progress, is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.prefix[0] == 1
    }

    /// Whether a message has begun and not ended.
    pub(crate) fn is_midway(&self) -> bool {
        self.prefix_len > 0
    }

    /// Bytes of memory held by the message in progress.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.unfinished {
            Unfinished::Block(block) => block.memory_bytes(),
            // What the pool lent beyond that, it had anyway, and lends no more of than it may keep.
            Unfinished::Large(memory) => memory.capacity().min(memory.len().saturating_mul(4) + PLACE_BYTES),
        }
    }

    /// Gives up the message in progress and gives its memory back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.prefix_len = 0;
        match mem::take(&mut self.unfinished) {
            Unfinished::Block(block) if block.memory_bytes() > 0 => pool.give(block),
            Unfinished::Block(_) => {}
            Unfinished::Large(memory) => pool.give_shared(memory),
        }
    }

    /// Keeps the beginning of a body that holds no messages, up to `bytes_max`; whether there is room for more.
    pub(crate) fn quote(&mut self, pool: &mut Pool, bytes: &[u8], bytes_max: usize) -> bool {
        let Unfinished::Block(block) = &mut self.unfinished else { return false };
        let part = &bytes[..bytes.len().min(bytes_max.saturating_sub(block.len()))];
        if !part.is_empty() {
            pool.reserve(block, part.len());
            block.extend_from_slice(part);
        }
        block.len() < bytes_max
    }

    /// What [`Deframer::quote`] kept.
    pub(crate) fn quoted(&self) -> &[u8] {
        match &self.unfinished {
            Unfinished::Block(block) => block,
            Unfinished::Large(_) => &[],
        }
    }

    /// Completes the prefix from `bytes` and checks it; whether it is complete.
    fn take_prefix(&mut self, bytes: &mut &[u8], accepts: Accepts) -> Result<bool, FramingError> {
        let have = usize::from(self.prefix_len);
        if have == PREFIX_LEN {
            return Ok(true);
        }
        let (part, rest) = bytes.split_at(bytes.len().min(PREFIX_LEN - have));
        self.prefix[have..have + part.len()].copy_from_slice(part);
        self.prefix_len += part.len() as u8;
        *bytes = rest;
        if usize::from(self.prefix_len) < PREFIX_LEN {
            return Ok(false);
        }
        match self.prefix[0] {
            0 => {}
            1 if accepts.compressed => {}
            1 => return Err(FramingError::Compressed),
            flag => return Err(FramingError::Flag(flag)),
        }
        let length = self.length();
        let length_max = accepts.length_max(self.is_compressed());
        if length > length_max {
            return Err(FramingError::TooLong { length, length_max });
        }
        Ok(true)
    }

    /// The length that a complete prefix announces.
    fn length(&self) -> usize {
        let [_, a, b, c, d] = self.prefix;
        u32::from_be_bytes([a, b, c, d]) as usize
    }
}

impl Unfinished {
    fn len(&self) -> usize {
        match self {
            Self::Block(block) => block.len(),
            Self::Large(memory) => memory.len(),
        }
    }

    /// Appends a part of a message that has `length` bytes in all.
    fn extend(&mut self, pool: &mut Pool, part: &[u8], length: usize) {
        if length >= Output::SHARED_MIN && self.len() == 0 {
            *self = Self::Large(begin_large(pool, part.len(), length));
        }
        match self {
            Self::Block(block) => {
                // Twice what will have arrived, so that a message is copied a few times at most, but no more than it needs.
                let needed = block.len().saturating_add(part.len());
                if needed > block.capacity() {
                    let target = needed.saturating_mul(2).min(length);
                    pool.reserve(block, target.saturating_sub(block.len()));
                }
                block.extend_from_slice(part);
            }
            Self::Large(memory) => {
                let needed = memory.len().saturating_add(part.len());
                if needed > memory.capacity() {
                    // It may move, and has to be placed again when it is used again.
                    let room = room_for(needed, length).saturating_add(PLACE_BYTES);
                    let additional = room.saturating_sub(memory.len());
                    memory.reserve(additional);
                }
                memory.extend_from_slice(part);
            }
        }
    }

    fn finish(self, pool: &mut Pool) -> Body<'static> {
        match self {
            Self::Block(block) => Body::Block(block),
            Self::Large(memory) => Body::Shared(pool.freeze_shared(memory)),
        }
    }
}

impl Default for Unfinished {
    fn default() -> Self {
        Self::Block(Block::default())
    }
}

/// Memory for the first part of a large message: for all of it where the pool has that already, as it costs nothing; else for what
/// has arrived, as what a peer announces has to cost nothing.
fn begin_large(pool: &mut Pool, part: usize, length: usize) -> SharedBlock {
    pool.find_shared(length).unwrap_or_else(|| pool.take_shared(room_for(part, length)))
}

/// Twice to four times what will have arrived, in halves of what is announced, so that it comes to that in the end and not to more.
/// Such memory grows in place where it can, and is copied a few times at most where it cannot.
fn room_for(needed: usize, length: usize) -> usize {
    let enough = needed.saturating_mul(2);
    let mut room = length;
    while room.div_ceil(2) >= enough {
        room = room.div_ceil(2);
    }
    room
}

/// Why DATA is not a sequence of messages this end accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramingError {
    /// The first byte of a prefix is neither 0 nor 1.
    Flag(u8),
    /// A message is marked as compressed though no encoding was agreed.
    Compressed,
    /// A message is longer than this end accepts.
    TooLong { length: usize, length_max: usize },
    /// The stream ended inside a message.
    Truncated,
}

impl FramingError {
    /// The status of a call that ends for this reason.
    pub(crate) fn status(self) -> Status {
        match self {
            Self::Flag(flag) => Status::new(
                Code::Internal,
                format!(
                    "message prefix begins with {flag:#04x}, which is neither 0 (plain) nor 1 (compressed)"
                ),
            ),
            Self::Compressed => Status::new(
                Code::Internal,
                "message is marked as compressed, but grpc-encoding names no encoding",
            ),
            Self::TooLong { length, length_max } => Status::new(
                Code::ResourceExhausted,
                format!("received message of {length} bytes is longer than the limit of {length_max} bytes"),
            ),
            Self::Truncated => Status::new(Code::Internal, "stream ended inside a message"),
        }
    }
}

#[cfg(test)]
mod tests;
