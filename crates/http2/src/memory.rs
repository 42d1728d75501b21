//! The memory of a connection, as a sum that can be printed: what it holds, and the most that it can come to.

use std::fmt;

use fulmar_base::{Output, Pool};
use fulmar_hpack::{Decoder, Encoder, FieldList, TABLE_BYTES_INITIAL};

use crate::frame::HEAD_BYTES;
use crate::known::KnownSections;
use crate::settings::within_bounds;
use crate::streams::Streams;
use crate::waiting::Waiting;
use crate::{Config, Connection, Event};

/// Bytes of memory by what they are for, used or not: capacities, not contents.
///
/// [`Connection::memory`] says what a connection holds, and [`Config::memory_max`] the most that each part can come to. Printed, it is
/// a line for each part and the sum.
///
/// ```
/// use fulmar_http2::{Config, Connection, Role, Sends};
///
/// let config = Config { streams_max: 100, ..Config::default() };
/// let most = config.memory_max(&Sends::default());
/// assert!(Connection::new(Role::Server, config).memory().total() <= most.total());
/// assert!(most.to_string().lines().last().unwrap().starts_with("sum"));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Memory {
    /// The connection itself: settings, windows, timers, budgets, pings under way, and the streams remembered after they closed.
    pub connection: usize,
    /// The compression tables of both directions, and memory for what they are at rest.
    pub compression: usize,
    /// Header sections that the peer sends again and again.
    pub sections: usize,
    /// The fields of the last header section.
    pub fields: usize,
    /// The header block whose CONTINUATION frames are still to come.
    pub header_block: usize,
    /// The open streams, and the ring of their ids.
    pub streams: usize,
    /// DATA that waits for credit or for its turn, and trailers behind it.
    pub waiting: usize,
    /// Events that are to be fetched.
    pub events: usize,
    /// Output that waits for the transport. Held by who drives the connection.
    pub output: usize,
    /// The beginning of a frame. Held by who drives the connection.
    pub unread: usize,
}

impl Memory {
    /// The parts with their names, in the order in which they are printed.
    pub const fn parts(&self) -> [(&'static str, usize); 10] {
        [
            ("connection", self.connection),
            ("compression", self.compression),
            ("sections", self.sections),
            ("fields", self.fields),
            ("header_block", self.header_block),
            ("streams", self.streams),
            ("waiting", self.waiting),
            ("events", self.events),
            ("output", self.output),
            ("unread", self.unread),
        ]
    }

    /// The sum of all parts; it saturates.
    pub fn total(&self) -> usize {
        self.parts().iter().fold(0, |sum, (_, bytes)| usize::saturating_add(sum, *bytes))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in self.parts() {
            writeln!(f, "{name:<14} {bytes:>13}")?;
        }
        write!(f, "{:<14} {:>13}", "sum", self.total())
    }
}

/// What the user of a connection sends at most. It is not for the engine to limit that, so its memory depends on it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sends {
    /// The longest piece of DATA handed over at a time, in bytes: by so much may a stream exceed
    /// [`Config::send_queue_bytes_max`], if the user stops when [`Connection::may_queue`] is 0. Default 64 KiB.
    pub data_bytes_max: usize,
    /// The most fields in a header section. Default 32.
    pub fields_max: usize,
    /// The largest header list: names, values and 32 bytes a field. Default 4 KiB.
    pub field_bytes_max: usize,
}

impl Default for Sends {
    fn default() -> Self {
        Self { data_bytes_max: 64 * 1024, fields_max: 32, field_bytes_max: 4 * 1024 }
    }
}

impl Config {
    /// The most memory that a connection with this configuration comes to, whatever its peer does.
    ///
    /// Not in it: [`Bytes`](bytes::Bytes) that users own and lend, and what the upper layer keeps of what it was given.
    pub fn memory_max(&self, sends: &Sends) -> Memory {
        let config = within_bounds(self.clone());
        let streams = config.streams_max as usize;
        let frame_bytes_max = config.frame_bytes_max as usize;
        let table_bytes_max = (config.header_table_bytes_max as usize).max(TABLE_BYTES_INITIAL);
        Memory {
            connection: size_of::<Connection>() + Connection::PINGS_BYTES_MAX,
            compression: Decoder::memory_bytes_max(table_bytes_max)
                + Encoder::memory_bytes_max(table_bytes_max)
                // What both take at rest is kept for the next one.
                + Decoder::packed_bytes_max(table_bytes_max)
                + Encoder::packed_bytes_max(table_bytes_max),
            sections: KnownSections::memory_bytes_max(),
            fields: FieldList::memory_bytes_max(&config.decode_limits(), table_bytes_max),
            header_block: Pool::block_bytes(config.header_block_bytes_max as usize),
            streams: Streams::memory_bytes_max(streams),
            waiting: config.waiting_bytes_max(streams, sends),
            // Writable, and an end, of each stream; Ready and StreamSlotFree. A ring takes up to twice what it needs.
            events: (2 * (2 * streams + 2)).saturating_mul(size_of::<Event<'static>>()),
            output: config.output_memory_max(streams, sends),
            // Twice: the caller's memory grows, too.
            unread: 2 * (HEAD_BYTES + frame_bytes_max),
        }
    }

    fn waiting_bytes_max(&self, streams: usize, sends: &Sends) -> usize {
        let bytes = self.send_queue_bytes_max.saturating_add(sends.data_bytes_max);
        let on_one =
            Waiting::memory_bytes_max(bytes, sends.data_bytes_max, sends.fields_max, sends.field_bytes_max);
        streams.saturating_mul(on_one).saturating_add(Connection::spare_bytes_max())
    }

    /// The limit is looked at before each frame of the peer. Behind it a DATA frame may lie, and the headers and trailers that the
    /// user sends on each stream.
    fn output_memory_max(&self, streams: usize, sends: &Sends) -> usize {
        let sections = streams.saturating_mul(2).saturating_mul(sends.field_bytes_max + HEAD_BYTES);
        let frame = HEAD_BYTES + self.frame_bytes_sent_max as usize;
        let waits =
            self.output_bytes_max.max(Output::SOFT_LIMIT).saturating_add(frame).saturating_add(sections);
        // As much again may have left before the rest is moved to the front, and memory that grows takes up to twice what it needs.
        waits.saturating_mul(4)
    }
}
