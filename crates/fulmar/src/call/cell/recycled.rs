//! Making a cell ready for another call.

use std::sync::Arc;

use fulmar_grpc::{Compression, MetadataMap};

use super::{CallCell, CellState};
use crate::packing::Packing;
use crate::trace::{CallSpan, Link};

/// How much memory a recycled cell keeps in each of its buffers, whatever they were used for last.
const KEPT_BYTES_MAX: usize = 64 * 1024;

impl CallCell {
    /// Makes a cell that only the caller holds ready for another call, and returns the memory that it keeps in bytes. None, and
    /// nothing done, when somebody else holds it too.
    pub(crate) fn recycle(cell: &mut Arc<Self>) -> Option<usize> {
        Some(Self::alone(cell)?.recycle())
    }
}

impl CellState {
    /// Makes it ready for another call, and returns the memory that it keeps in bytes.
    pub(crate) fn recycle(&mut self) -> usize {
        self.reset();
        self.memory_bytes()
    }

    fn memory_bytes(&self) -> usize {
        let maps = [&self.metadata_out, &self.trailers_out, &self.metadata_in, &self.trailers_in];
        size_of::<CallCell>()
            + self.outbound.memory_bytes()
            + self.inbound.memory_bytes()
            + maps.into_iter().map(MetadataMap::memory_bytes).sum::<usize>()
            + self.path.capacity()
    }

    fn reset(&mut self) {
        self.door = None;
        self.knocked = false;
        self.outbound.reset(KEPT_BYTES_MAX);
        self.outbound_ended = false;
        self.packing = Packing::default();
        self.compression = Compression::Default;
        self.encoding_in = None;
        self.room = 0;
        self.send_waker = None;
        self.metadata_out.clear();
        self.metadata_out_due = false;
        self.metadata_sent = false;
        self.trailers_out.clear();
        self.inbound.reset();
        self.inbound_ended = false;
        self.inbound_discarded = false;
        self.taken_bytes = 0;
        self.release_bytes = 0;
        self.metadata_in.clear();
        self.metadata_arrived = false;
        self.metadata_wanted = false;
        self.trailers_in.clear();
        self.status = None;
        self.receive_waker = None;
        self.cancelled = false;
        self.half_closed = false;
        self.repeatable = false;
        self.waits_for_ready = false;
        self.slot = None;
        self.queue_place = None;
        self.messages_in = 0;
        self.hooks = None;
        self.order = None;
        self.span = CallSpan::default();
        self.link = Link::default();
        self.path.clear();
        self.deadline = None;
        self.attempts = 0;
    }
}
