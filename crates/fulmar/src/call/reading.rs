//! What the reader of a stream has, behind one pointer.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use fulmar_grpc::MetadataMap;

use super::{CallCell, HeldCell, Inbound};
use crate::client::Channel;

/// How many boxes wait on one thread for the next streams, and how much memory each may hold: enough for those of a busy connection.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 16 * 1024;

/// The reading side of a stream of messages.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) cell: HeldCell,
    pub(super) queue: Inbound,
    pub(super) trailers: MetadataMap,
    pub(super) ended: bool,
    /// Client: keeps the channel, and so its reactor, alive.
    pub(super) channel: Option<Channel>,
}

impl Reading {
    /// Makes it good for another stream. Whoever held the call has left it.
    fn reset(&mut self) {
        self.cell = HeldCell::default();
        self.queue.reset();
        self.trailers.clear();
        self.ended = false;
        self.channel = None;
    }
}

thread_local! {
    /// Streams come and go on the thread of their reactor, or of their caller.
    #[expect(clippy::vec_box, reason = "it is the boxes that are used again")]
    static SPARE: RefCell<Vec<Box<Reading>>> = const { RefCell::new(Vec::new()) };
}

/// A [`Reading`] in a box, which serves another stream of the thread once this one is dropped.
pub(super) struct HeldReading(Option<Box<Reading>>);

impl HeldReading {
    pub(super) fn new(cell: Arc<CallCell>, channel: Option<Channel>) -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let mut reading = spare.unwrap_or_default();
        (reading.cell, reading.channel) = (cell.into(), channel);
        Self(Some(reading))
    }
}

impl Drop for HeldReading {
    fn drop(&mut self) {
        let Some(mut reading) = self.0.take() else { return };
        // Before the list is borrowed: a channel that ends here may run the user's code.
        reading.reset();
        if reading.queue.memory_bytes() + reading.trailers.memory_bytes() > SPARE_BYTES_MAX {
            return;
        }
        // A thread that is ending keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(reading);
            }
        });
    }
}

impl Deref for HeldReading {
    type Target = Reading;

    #[inline]
    fn deref(&self) -> &Reading {
        self.0.as_ref().expect("it is taken only while it is dropped")
    }
}

impl DerefMut for HeldReading {
    #[inline]
    fn deref_mut(&mut self) -> &mut Reading {
        self.0.as_mut().expect("it is taken only while it is dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(reading: &HeldReading) -> *const Reading {
        &**reading
    }

    #[test]
    fn the_box_of_a_stream_serves_the_next_one_of_the_thread_and_knows_nothing_any_more() {
        let cell = Arc::new(CallCell::default());
        let mut reading = HeldReading::new(cell.clone(), None);
        reading.ended = true;
        reading.trailers.insert("x-key", "value").unwrap();
        let first = address(&reading);
        drop(reading);
        assert_eq!(Arc::strong_count(&cell), 1, "the box holds no cell");
        let reading = HeldReading::new(cell, None);
        assert_eq!(address(&reading), first);
        assert!(!reading.ended && reading.trailers.is_empty() && reading.queue.is_empty());
    }

    #[test]
    fn what_waits_on_a_thread_is_bounded() {
        let new = || HeldReading::new(Arc::default(), None);
        drop((0..2 * SPARE_MAX).map(|_| new()).collect::<Vec<_>>());
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
        let mut large = new();
        let values = "v".repeat(SPARE_BYTES_MAX);
        large.trailers.insert("x-key", &values).unwrap();
        drop(large);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX - 1);
    }
}
