use std::borrow::Cow;

use crate::{ErrorCode, StreamKey};

/// What happened on a connection, from [`Connection::next_event`](crate::Connection::next_event).
///
/// Events borrow the input and not the connection, so one may act on the connection while holding one. `user` is what
/// [`Connection::set_user`](crate::Connection::set_user) stored, or 0: the two events after which the key is gone carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'i> {
    /// A request (which makes the stream), a response, an interim response (1xx) or trailers; its fields are
    /// [`Connection::fields`](crate::Connection::fields) until the next call of `next_event`.
    Headers {
        /// The stream.
        stream: StreamKey,
        /// Whether the peer sends nothing more on the stream.
        end: bool,
    },
    /// DATA, without its padding. Its bytes must be [released](crate::Connection::release) once the application has taken
    /// them, else the peer runs out of stream window.
    Data {
        /// The stream.
        stream: StreamKey,
        /// The payload; empty only with `end`.
        bytes: &'i [u8],
        /// Whether the peer sends nothing more on the stream.
        end: bool,
    },
    /// The waiting queue of the stream has room again: at least half of
    /// [`Config::send_queue_bytes_max`](crate::Config::send_queue_bytes_max). Comes after a send that left something waiting.
    Writable {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream ended before its time; its key is gone. Not for streams that the user has reset.
    Reset {
        /// The stream; its key is gone.
        stream: StreamKey,
        /// What the user stored with the stream.
        user: u64,
        /// The peer's code, or the one that this end has sent.
        code: ErrorCode,
        /// Whether the peer has certainly not processed the request, so that it is safe to try again: it was refused
        /// (REFUSED_STREAM), or lies above the last stream id of a GOAWAY.
        unprocessed: bool,
        /// What happened, for people.
        text: Cow<'static, str>,
    },
    /// The peer takes no new streams. Open ones up to `last_id` go on; those above it end with [`Event::Reset`].
    GoAway {
        /// The highest stream id that the peer may have processed.
        last_id: u32,
        /// Why.
        code: ErrorCode,
        /// What the peer says about it; opaque.
        debug: &'i [u8],
    },
    /// The answer to a [`Connection::ping`](crate::Connection::ping).
    Pong {
        /// The payload of the ping.
        payload: [u8; 8],
    },
    /// The peer's first SETTINGS have arrived; again each time when a later one allows more concurrent streams.
    Ready,
    /// Both directions of the stream ended normally; its key is gone.
    Closed {
        /// The stream; its key is gone.
        stream: StreamKey,
        /// What the user stored with the stream.
        user: u64,
    },
    /// [`Connection::open`](crate::Connection::open), which gave
    /// [`OpenError::LimitReached`](crate::OpenError::LimitReached), may be tried again.
    StreamSlotFree,
}
