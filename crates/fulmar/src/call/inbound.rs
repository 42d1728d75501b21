//! Messages that have arrived and that nobody has taken yet.

use std::collections::VecDeque;

use fulmar_base::{Block, Pool};
use fulmar_grpc::Body;

use crate::payload::PREFIX_LEN;

/// Messages up to this size are copied behind one another, so that a burst of small ones crosses to its reader in one swap;
/// larger ones that were assembled in a block move with their block.
const COPIED_MAX: usize = 4 * 1024;

/// How much memory an emptied queue keeps for its next messages.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// For how many messages an emptied queue keeps its places.
const KEPT_MESSAGES_MAX: usize = 1024;

/// A queue of whole messages, in the order of their arrival.
///
/// The connection fills one in the call's cell; the reader swaps it against its own emptied one and decodes without a lock.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// The small messages, one behind the other; those before `read` have been taken.
    bytes: Vec<u8>,
    read: usize,
    messages: VecDeque<Message>,
    /// Blocks whose messages were taken: the connection gives them back to its pool.
    used: Vec<Block>,
}

#[derive(Debug)]
enum Message {
    Copied { length: usize },
    Block(Block),
}

impl Inbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends a message; a block that is not kept goes back to `pool`.
    pub(crate) fn push(&mut self, body: Body<'_>, pool: &mut Pool) {
        match body {
            Body::Block(block) if block.len() > COPIED_MAX => self.messages.push_back(Message::Block(block)),
            Body::Block(block) => {
                self.push_copied(&block);
                pool.give(block);
            }
            Body::Lent(bytes) => self.push_copied(bytes),
        }
    }

    fn push_copied(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.messages.push_back(Message::Copied { length: bytes.len() });
    }

    /// Takes the oldest message and shows it to `read`, which is user code: should it panic, the message counts as taken.
    /// Returns what `read` made of it and the message's length in bytes.
    pub(crate) fn take<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<(R, usize)> {
        let taken = match self.messages.pop_front()? {
            Message::Copied { length } => {
                let start = self.read;
                self.read += length;
                (read(&self.bytes[start..self.read]), length)
            }
            Message::Block(block) => {
                self.used.push(block);
                let block = self.used.last().map_or(&[][..], |block| block);
                (read(block), block.len())
            }
        };
        if self.messages.is_empty() {
            self.reset_bytes();
        }
        Some(taken)
    }

    /// Forgets every message; their blocks wait to be given back. Returns their bytes, prefixes included.
    pub(crate) fn discard(&mut self) -> usize {
        let mut bytes = 0;
        for message in self.messages.drain(..) {
            bytes += PREFIX_LEN;
            match message {
                Message::Copied { length } => bytes += length,
                Message::Block(block) => {
                    bytes += block.len();
                    self.used.push(block);
                }
            }
        }
        self.reset_bytes();
        bytes
    }

    /// Takes over the blocks that `other` is done with.
    pub(crate) fn adopt_used(&mut self, other: &mut Self) {
        self.used.append(&mut other.used);
    }

    /// Gives the blocks of taken messages back.
    pub(crate) fn give_used(&mut self, pool: &mut Pool) {
        for block in self.used.drain(..) {
            pool.give(block);
        }
    }

    /// Forgets every message, and keeps no more memory than its next call is likely to need.
    pub(crate) fn reset(&mut self) {
        self.discard();
        self.messages.shrink_to(KEPT_MESSAGES_MAX);
        self.used.shrink_to(KEPT_MESSAGES_MAX);
    }

    /// How much memory the queue holds on to, blocks that wait to be given back included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let blocks: usize = self.used.iter().map(Block::capacity).sum();
        self.bytes.capacity()
            + self.messages.capacity() * size_of::<Message>()
            + self.used.capacity() * size_of::<Block>()
            + blocks
    }

    fn reset_bytes(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.read = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_and_an_empty_one_is_a_message() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        let mut large = pool.take(COPIED_MAX + 1);
        large.extend_from_slice(&[7; COPIED_MAX + 1]);
        inbound.push(Body::Lent(b"first"), &mut pool);
        inbound.push(Body::Lent(b""), &mut pool);
        inbound.push(Body::Block(large), &mut pool);
        inbound.push(Body::Lent(b"last"), &mut pool);

        assert_eq!(inbound.take(<[u8]>::to_vec), Some((b"first".to_vec(), 5)));
        assert_eq!(inbound.take(<[u8]>::to_vec), Some((Vec::new(), 0)));
        assert_eq!(inbound.take(<[u8]>::len), Some((COPIED_MAX + 1, COPIED_MAX + 1)));
        assert_eq!(inbound.take(<[u8]>::to_vec), Some((b"last".to_vec(), 4)));
        assert_eq!(inbound.take(<[u8]>::len), None);
        assert_eq!(pool.outstanding(), 1, "the large block waits to be given back");
        inbound.give_used(&mut pool);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn a_small_block_is_given_back_at_once() {
        let mut pool = Pool::new();
        let mut inbound = Inbound::default();
        let mut small = pool.take(16);
        small.extend_from_slice(b"small");
        inbound.push(Body::Block(small), &mut pool);
        assert_eq!(pool.outstanding(), 0);
        assert_eq!(inbound.take(<[u8]>::to_vec), Some((b"small".to_vec(), 5)));
    }
}
