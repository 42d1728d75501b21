//! A response: a message, or a stream of them, with the metadata before and after it.

use std::cell::RefCell;
use std::mem::take;
use std::sync::Arc;

use fulmar_grpc::{Compression, MetadataMap};

use crate::metadata_lease::MetadataLease;
use crate::rare::{Rare, Seldom, Spare};

/// What a handler returns and a client receives.
///
/// ```
/// use fulmar::Response;
///
/// let mut response = Response::new("message");
/// response.metadata_mut().insert("x-served-by", "fulmar").unwrap();
/// response.trailers_mut().insert("x-cost", "7").unwrap();
/// assert_eq!(*response.get_ref(), "message");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Response<T> {
    message: T,
    extras: Rare<Extras>,
}

/// What few responses have besides the message.
#[derive(Clone, Debug, Default)]
struct Extras {
    metadata: MetadataLease,
    trailers: MetadataLease,
    compression: Compression,
    encoding: Option<Arc<str>>,
    was_compressed: bool,
}

static NOTHING: Extras = Extras {
    metadata: MetadataLease::NONE,
    trailers: MetadataLease::NONE,
    compression: Compression::Default,
    encoding: None,
    was_compressed: false,
};

thread_local! {
    #[expect(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<Extras>>> = const { RefCell::new(Vec::new()) };
}

impl Seldom for Extras {
    fn nothing() -> &'static Self {
        &NOTHING
    }

    fn spare() -> &'static Spare<Self> {
        &SPARE
    }
}

impl<T> Response<T> {
    /// A response without metadata.
    pub fn new(message: T) -> Self {
        Self { message, extras: Rare::NONE }
    }

    pub(crate) fn with_leases(message: T, metadata: MetadataLease, trailers: MetadataLease) -> Self {
        let mut response = Self::new(message);
        if !(metadata.is_none() && trailers.is_none()) {
            let extras = response.extras.get_mut();
            (extras.metadata, extras.trailers) = (metadata, trailers);
        }
        response
    }

    /// The same response, of a server that compresses its messages with `encoding` and compressed this one or not.
    pub(crate) fn received(mut self, encoding: Option<Arc<str>>, was_compressed: bool) -> Self {
        if encoding.is_some() || was_compressed {
            let extras = self.extras.get_mut();
            (extras.encoding, extras.was_compressed) = (encoding, was_compressed);
        }
        self
    }

    pub(crate) fn compression(&self) -> &Compression {
        &self.extras.get().compression
    }

    /// Metadata that goes ahead of the message.
    pub fn metadata(&self) -> &MetadataMap {
        self.extras.get().metadata.get()
    }

    /// Metadata that goes ahead of the message, to add to.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        self.extras.get_mut().metadata.get_mut()
    }

    /// Metadata that follows the message. For a response whose message is a stream it is empty: the stream has its own
    /// [`trailers`](crate::Streaming::trailers) once it has ended.
    pub fn trailers(&self) -> &MetadataMap {
        self.extras.get().trailers.get()
    }

    /// Metadata that follows the message, to add to.
    pub fn trailers_mut(&mut self) -> &mut MetadataMap {
        self.extras.get_mut().trailers.get_mut()
    }

    /// Whether, and how, the messages that this side sends on the call are compressed; by default as the server is set. It stays
    /// plain where the client does not accept what is asked for. An encoding that the server has not registered fails the call with
    /// `INTERNAL`.
    ///
    /// ```
    /// use fulmar::{Compression, Response};
    ///
    /// let mut response = Response::new("message");
    /// response.set_compression(Compression::encoding("gzip"));
    /// ```
    pub fn set_compression(&mut self, compression: Compression) {
        self.extras.get_mut().compression = compression;
    }

    /// Client: what the server compresses its messages with, as far as it does (`grpc-encoding`); None for plain messages.
    pub fn encoding(&self) -> Option<&str> {
        self.extras.get().encoding.as_deref()
    }

    /// Client: whether the message was compressed on its way: its flag was 1. For a response whose message is a stream see
    /// [`Streaming::last_was_compressed`](crate::Streaming::last_was_compressed).
    pub fn was_compressed(&self) -> bool {
        self.extras.get().was_compressed
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }

    /// The message, to read.
    pub fn get_ref(&self) -> &T {
        &self.message
    }

    /// The message, to change.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.message
    }

    /// A response of the metadata before the message, the message, and the metadata behind it.
    pub fn from_parts(metadata: MetadataMap, message: T, trailers: MetadataMap) -> Self {
        Self::with_leases(message, metadata.into(), trailers.into())
    }

    /// The metadata before the message, the message, and the metadata behind it.
    ///
    /// ```
    /// let mut response = fulmar::Response::new("message");
    /// response.trailers_mut().insert("x-cost", "7").unwrap();
    /// let (metadata, message, trailers) = response.into_parts();
    /// assert!(metadata.is_empty());
    /// assert_eq!((message, trailers.get("x-cost")), ("message", Some("7")));
    /// ```
    pub fn into_parts(mut self) -> (MetadataMap, T, MetadataMap) {
        let Some(extras) = self.extras.written_mut() else {
            return (MetadataMap::new(), self.message, MetadataMap::new());
        };
        let (metadata, trailers) = (take(&mut extras.metadata), take(&mut extras.trailers));
        (metadata.into_map(), self.message, trailers.into_map())
    }

    /// The same response with another message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Response<U> {
        Response { message: change(self.message), extras: self.extras }
    }
}

impl<T> From<T> for Response<T> {
    fn from(message: T) -> Self {
        Self::new(message)
    }
}
