//! Messages on their way to the connection.

use std::collections::VecDeque;
use std::fmt;

use bytes::{BufMut, Bytes};
use fulmar_base::{Output, SharedMemory};
use fulmar_grpc::{Part, Status};

use crate::payload::{PREFIX_LEN, Payload, check_encoded, check_length, encode_framed};

/// How much memory for large messages a call keeps for the next ones.
const LARGE_RETAINED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Whole messages with their prefixes.
///
/// Small ones lie one behind the other. Those of [`Output::SHARED_MIN`] and more lie in memory of their own, which is not copied on
/// its way to the socket: what the user has as `Bytes` already, or what a message was encoded into.
#[derive(Default)]
pub(crate) struct Outbound {
    bytes: Vec<u8>,
    /// None in a cell that never had a large message.
    large: Option<Box<Large>>,
}

struct Large {
    /// Each stands before the byte at this index of the small ones.
    parts: VecDeque<(usize, Bytes)>,
    memory: SharedMemory,
    /// Whether anything large was sent in this call.
    is_used: bool,
}

/// How far an outbound is filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    bytes: usize,
    parts: usize,
}

impl Outbound {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.has_parts()
    }

    /// Whether there are large messages among what waits.
    pub(crate) fn has_parts(&self) -> bool {
        self.large.as_ref().is_some_and(|large| !large.parts.is_empty())
    }

    /// What waits, if none of it is large.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// What waits, in order; some parts may be empty.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let parts = self.large.iter().flat_map(|large| &large.parts);
        let mut at = 0;
        let front = parts.flat_map(move |(end, bytes)| {
            let own = self.bytes.get(at..*end).unwrap_or_default();
            at = *end;
            [Part::Slice(own), Part::Shared(bytes.clone())]
        });
        let last = self.large.as_ref().and_then(|large| large.parts.back()).map_or(0, |(end, _)| *end);
        let tail = self.bytes.get(last..).unwrap_or_default();
        front.chain([Part::Slice(tail)])
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), parts: self.large.as_ref().map_or(0, |large| large.parts.len()) }
    }

    /// Drops what was appended since.
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        if let Some(large) = &mut self.large {
            large.parts.truncate(mark.parts);
        }
    }

    /// Drops all messages and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.truncate(Mark::default());
    }

    /// The small ones, to append to.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a small message that has its prefix.
    #[inline]
    pub(crate) fn append_framed(&mut self, framed: &[u8]) {
        self.bytes.extend_from_slice(framed);
    }

    /// Appends `message` with its prefix, uncompressed. Returns how many bytes that are.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` when the message is longer than `bytes_max` or than the prefix can say; `INTERNAL` when it did not encode
    /// to the length it had announced. Nothing was appended.
    pub(crate) fn encode<P: Payload>(&mut self, message: &P, bytes_max: usize) -> Result<usize, Status> {
        let length = message.encoded_len();
        if length < Output::SHARED_MIN {
            return encode_framed(message, length, bytes_max, &mut self.bytes);
        }
        let prefix = check_length(length, bytes_max)?.to_be_bytes();
        let large = self.large.get_or_insert_with(|| {
            let memory = SharedMemory::with_retained_max(LARGE_RETAINED_BYTES_MAX);
            Box::new(Large { parts: VecDeque::new(), memory, is_used: false })
        });
        large.is_used = true;
        let bytes = match message.whole() {
            Some(whole) => {
                self.bytes.push(0);
                self.bytes.extend_from_slice(&prefix);
                whole.clone()
            }
            None => frame_large(message, length, prefix, &mut large.memory)?,
        };
        large.parts.push_back((self.bytes.len(), bytes));
        Ok(PREFIX_LEN + length)
    }

    /// Bytes of memory held, but for what users own.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.large.as_ref().map_or(0, |large| large.memory.retained_bytes())
    }

    /// Makes it ready for another call: empty, and with no more memory than that is likely to need. A call that had a use for much is
    /// likely to be followed by others like it.
    pub(crate) fn reset(&mut self, kept_bytes_max: usize) {
        if self.bytes.capacity() / 4 > self.bytes.len() {
            self.bytes.shrink_to(kept_bytes_max);
        }
        self.clear();
        if let Some(large) = &mut self.large
            && !std::mem::take(&mut large.is_used)
        {
            self.large = None;
        }
    }
}

/// A large message with its prefix, encoded into memory of its own.
fn frame_large<P: Payload>(
    message: &P,
    length: usize,
    prefix: [u8; 4],
    memory: &mut SharedMemory,
) -> Result<Bytes, Status> {
    let mut framed = memory.take(PREFIX_LEN + length);
    framed.put_u8(0);
    framed.put_slice(&prefix);
    message.encode(&mut *framed);
    match check_encoded(framed.len().saturating_sub(PREFIX_LEN), length) {
        Ok(()) => Ok(memory.freeze(framed)),
        Err(status) => {
            memory.give(framed);
            Err(status)
        }
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.large.as_ref().map_or(0, |large| large.parts.len());
        f.debug_struct("Outbound").field("bytes", &self.bytes.len()).field("parts", &parts).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Raw;

    fn flat(outbound: &Outbound) -> Vec<u8> {
        let mut all = Vec::new();
        for part in outbound.parts() {
            match part {
                Part::Slice(bytes) => all.extend_from_slice(bytes),
                Part::Shared(bytes) => all.extend_from_slice(&bytes),
            }
        }
        all
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
    }

    #[test]
    fn large_messages_of_the_user_are_not_copied_and_stay_in_order() {
        let large = Bytes::from(vec![7; Output::SHARED_MIN]);
        let mut outbound = Outbound::default();
        outbound.encode(&Raw::from(b"first".to_vec()), usize::MAX).unwrap();
        assert!(!outbound.has_parts());
        let mark = outbound.mark();
        outbound.encode(&Raw::from(large.clone()), usize::MAX).unwrap();
        outbound.encode(&Raw::from(b"last".to_vec()), usize::MAX).unwrap();
        assert_eq!(flat(&outbound), [framed(b"first"), framed(&large), framed(b"last")].concat());
        let lent = outbound
            .parts()
            .any(|part| matches!(part, Part::Shared(bytes) if bytes.as_ptr() == large.as_ptr()));
        assert!(lent, "it is the user's own memory");
        outbound.truncate(mark);
        assert_eq!(flat(&outbound), framed(b"first"));
        assert!(large.is_unique());
    }

    #[test]
    fn large_messages_that_are_encoded_use_their_memory_again() {
        let message = vec![7_u8; 100_000];
        let mut outbound = Outbound::default();
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..10 {
            outbound.encode(&message, usize::MAX).unwrap();
            for part in outbound.parts() {
                if let Part::Shared(bytes) = part {
                    places.insert(bytes.as_ptr().addr());
                }
            }
            outbound.clear();
        }
        assert_eq!(places.len(), 1);
        outbound.reset(0);
        assert!(outbound.memory_bytes() >= 100_000);
        outbound.reset(0);
        assert_eq!(outbound.memory_bytes(), 0, "a call had no use for it");
    }

    #[test]
    fn a_large_message_over_the_limit_leaves_nothing_behind() {
        let mut outbound = Outbound::default();
        assert!(outbound.encode(&Raw::from(vec![7; 20_000]), 19_999).is_err());
        assert!(outbound.is_empty() && !outbound.has_parts());
    }

    #[test]
    fn the_memory_of_large_messages_that_is_kept_is_bounded() {
        let message = vec![7_u8; 1024 * 1024];
        let mut outbound = Outbound::default();
        for _ in 0..2 * LARGE_RETAINED_BYTES_MAX / message.len() {
            outbound.encode(&message, usize::MAX).unwrap();
        }
        outbound.clear();
        let large = outbound.large.as_ref().map_or(0, |large| large.memory.retained_bytes());
        assert!((1..=LARGE_RETAINED_BYTES_MAX).contains(&large), "{large} bytes");
    }
}
