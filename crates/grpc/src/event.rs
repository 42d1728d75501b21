//! What the ends of a connection report.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use fulmar_base::{Block, Instant};

use crate::call::CallKey;
use crate::routes::MethodId;

/// Something that happened on a connection, in the order in which it happened.
///
/// An event borrows the bytes just received, never the connection: one may act on the connection while holding it.
#[derive(Debug)]
pub enum Event<'i> {
    /// Server: a call has arrived. Its metadata is there: `take_metadata`.
    Begin {
        /// The new call.
        call: CallKey,
        /// The method called.
        method: MethodId,
        /// When the caller gives up, by the clock of this end; the call is ended then.
        deadline: Option<Instant>,
    },
    /// Client: the initial metadata of the answer has arrived: `take_metadata`. Not for an answer without messages
    /// that consists of trailers only.
    Headers {
        /// The call answered.
        call: CallKey,
    },
    /// A message, whole. Its bytes count as untaken until `release` is called for it; see there.
    Message {
        /// The call it belongs to.
        call: CallKey,
        /// The message without its prefix.
        body: Body<'i>,
    },
    /// Server: the client has sent all its messages.
    HalfClosed {
        /// The call that gets no more messages.
        call: CallKey,
    },
    /// The call is over, said exactly once.
    ///
    /// Client: the status is there, `take_status`; the key answers until the next call of `next_event`. A call that
    /// was cancelled through [`Client::cancel`](crate::Client::cancel) is not reported.
    ///
    /// Server: the call was ended from outside (by a cancellation, the deadline, a fault of the client, the end of the
    /// connection), or the last byte of its answer was handed over after `finish`. The key is stale.
    Finished {
        /// The call that is over.
        call: CallKey,
    },
    /// `may_send` was too small to go on with, and is more again.
    Writable {
        /// The call that may send more.
        call: CallKey,
    },
    /// Client: a `start` that was answered with [`StartError::Busy`](crate::StartError::Busy) may be tried again.
    Capacity,
    /// Client: the server takes no new calls on this connection. Those it has taken go on; the others end with
    /// `UNAVAILABLE` and `unprocessed`.
    GoingAway,
    /// Client: the settings of the server have arrived, so it speaks HTTP/2.
    Ready,
}

/// The call is over: it has been reported as finished or will be, or this end has ended it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call is over")
    }
}

impl Error for Gone {}

/// A piece of messages that have their prefixes already, on its way out.
#[derive(Clone, Debug)]
pub enum Part<'p> {
    /// It stays with the caller: what cannot leave at once is copied.
    Slice(&'p [u8]),
    /// It leaves without being copied if it is large.
    Shared(Bytes),
}

/// A whole message without its 5-byte prefix.
#[derive(Debug)]
pub enum Body<'i> {
    /// It lay in one DATA frame: the bytes where the world received them.
    Lent(&'i [u8]),
    /// It was put together in a block, which goes back to the pool when it has been read.
    Block(Block),
    /// It is large, and was put together in memory that whoever reads it may keep all of, or parts of. The pool uses it again when
    /// all of them are dropped.
    Shared(Bytes),
}

impl Body<'_> {
    /// The bytes of the message.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Block(block) => block,
            Self::Shared(bytes) => bytes,
        }
    }

    /// The length of the message in bytes; what `release` asks for.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether the message has no bytes: a message all the same, unlike none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AsRef<[u8]> for Body<'_> {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}
