//! The memory of an end, as a sum that can be printed: what it holds, and the most that it can come to.

use std::fmt;

use fulmar_base::Pool;
use fulmar_http2::{Sends, Template};

use crate::call::Calls;
use crate::client::Templates;
use crate::config::Config;
use crate::end::End;
use crate::framing::{PLACE_BYTES, PREFIX_LEN};
use crate::headers::{Answer, Request};
use crate::metadata::MetadataMap;
use crate::readings::Readings;

/// Bytes of memory by what they are for, used or not: capacities, not contents. What the HTTP/2 connection below holds is a part of
/// it.
///
/// [`Server::memory`](crate::Server::memory) and [`Client::memory`](crate::Client::memory) say what an end holds, and
/// [`Config::memory_max`] the most that each part can come to. Printed, it is a line for each part and the sum.
///
/// ```
/// use fulmar_grpc::Config;
/// use fulmar_http2::Sends;
///
/// println!("{}", Config::default().memory_max(&Sends::default()));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Memory {
    /// The HTTP/2 connection.
    pub http2: fulmar_http2::Memory,
    /// The calls, and their deadlines.
    pub calls: usize,
    /// Metadata that was received, status texts, and maps that wait for the next calls.
    pub metadata: usize,
    /// What was made of header sections that repeat, received and sent.
    pub readings: usize,
    /// Messages that were received and not taken: unfinished ones in their blocks, and the bytes of those handed over. (What lies in
    /// the blocks of those is with the application.)
    pub messages: usize,
}

impl Memory {
    /// The parts with their names, in the order in which they are printed.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let own = [
            ("calls", self.calls),
            ("metadata", self.metadata),
            ("readings", self.readings),
            ("messages", self.messages),
        ];
        self.http2.parts().into_iter().chain(own)
    }

    /// The sum of all parts; it saturates.
    pub fn total(&self) -> usize {
        self.parts().fold(0, |sum, (_, bytes)| usize::saturating_add(sum, bytes))
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

impl Config {
    /// The most memory that an end of a connection with this configuration comes to, whatever its peer does.
    ///
    /// Metadata and messages that the application sends have no limit here unless
    /// [`send_message_bytes_max`](Self::send_message_bytes_max) is one: `sends` says what they are at most.
    pub fn memory_max(&self, sends: &Sends) -> Memory {
        let data_bytes_max = sends.data_bytes_max.min(self.send_message_bytes_max.saturating_add(PREFIX_LEN));
        let streams = self.http2.streams_max as usize;
        Memory {
            http2: self.http2.memory_max(&Sends { data_bytes_max, ..*sends }),
            calls: Calls::slots_memory_max(streams),
            metadata: self.metadata_max(streams),
            readings: readings_max(),
            messages: self.messages_max(streams),
        }
    }

    /// Headers and trailers of each call, with a status text that may be as large again.
    fn metadata_max(&self, streams: usize) -> usize {
        let list = self.http2.header_list_bytes_max as usize;
        let map = MetadataMap::memory_bytes_max(list).saturating_add(size_of::<MetadataMap>());
        let of_call = map.saturating_mul(2).saturating_add(list);
        streams.saturating_mul(of_call).saturating_add(Calls::spare_memory_max(streams))
    }

    /// What may be held in all and has room to arrive, or what windows and messages allow, whichever is less; unfinished messages lie
    /// in blocks up to five times as large: a block has room for twice what has arrived, in a power of two, and a page to place it;
    /// memory of large messages has room for four times what has arrived.
    /// Compressed messages unfold to more than windows say, and one does before the bound is looked at again.
    fn messages_max(&self, streams: usize) -> usize {
        let window = self.http2.stream_window_bytes.max(self.http2.window_bytes_max) as usize;
        let message = self.receive_message_bytes_max;
        let by_windows = streams.saturating_mul(window.saturating_add(message));
        let in_all =
            self.held_bytes_max.saturating_add(message).saturating_add(self.http2.frame_bytes_max as usize);
        let in_all = if self.encodings.accepts_any() {
            in_all.saturating_add(message)
        } else {
            in_all.min(by_windows)
        };
        let smallest_blocks = streams.saturating_mul(Pool::block_bytes(0).max(PLACE_BYTES));
        in_all.saturating_mul(5).saturating_add(smallest_blocks)
    }
}

/// What a client or a server keeps of what repeats, whichever is more.
fn readings_max() -> usize {
    let client = Templates::memory_bytes_max() + Readings::<Answer>::memory_bytes_max();
    client.max(2 * Template::MEMORY_BYTES_MAX + Readings::<Request>::memory_bytes_max())
}

impl End {
    /// How much memory the end holds, but for the readings. Takes time in proportion to the calls.
    pub(crate) fn memory(&self) -> Memory {
        let http2 = self.connection.memory();
        Memory {
            http2,
            calls: self.calls.slots_memory(),
            metadata: self.calls.metadata_memory(),
            readings: 0,
            messages: self.calls.messages_memory(),
        }
    }
}
