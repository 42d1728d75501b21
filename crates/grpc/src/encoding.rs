//! Compressing messages: the encodings that an end knows, and what it does with them (gRPC `compression.md`).
//!
//! An [`Encoding`] makes compressors and decompressors. `Gzip`, `Deflate` and `Zstd` come with the features of their names;
//! anybody can register others, which go by their own name. [`Encodings`] says which an end accepts and which it sends with, and
//! [`Compression`] what a call asks for.
//!
//! The engine bounds what a message unfolds to while it unfolds: a [`Decompressor`] is lent the memory piece by piece and never gets
//! more than the limit and one byte. It also keeps compressors and decompressors between messages, for a whole thread and not for
//! a connection, and every message begins in a fresh state.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

mod contexts;
#[cfg(feature = "deflate")]
mod deflate;
#[cfg(feature = "gzip")]
mod gzip;
mod set;
#[cfg(test)]
mod tests;
mod unfolded;
#[cfg(any(feature = "gzip", feature = "deflate"))]
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

pub use contexts::{Context, Contexts, FrameError};
#[cfg(feature = "deflate")]
pub use deflate::Deflate;
#[cfg(feature = "gzip")]
pub use gzip::Gzip;
pub use set::{Choice, EncodingId, Encodings, PeerAccepts, RegisterError, UnknownEncoding};
pub use unfolded::Unfolded;
#[cfg(feature = "zstd")]
pub use zstd::Zstd;

/// A way of compressing messages that goes by a name in `grpc-encoding`.
///
/// ```
/// use fulmar_grpc::encoding::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};
///
/// /// Compresses nothing, but shows how.
/// struct Rot13;
///
/// fn turn(byte: u8) -> u8 {
///     match byte {
///         b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
///         b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
///         other => other,
///     }
/// }
///
/// impl Encoding for Rot13 {
///     fn name(&self) -> &str {
///         "rot13"
///     }
///     fn compressor(&self) -> Box<dyn Compressor> {
///         Box::new(Self)
///     }
///     fn decompressor(&self) -> Box<dyn Decompressor> {
///         Box::new(Self)
///     }
/// }
///
/// impl Compressor for Rot13 {
///     fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
///         out.extend(message.iter().map(|&byte| turn(byte)));
///         Ok(())
///     }
/// }
///
/// impl Decompressor for Rot13 {
///     fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
///         for &byte in message {
///             out.extend_from_slice(&[turn(byte)])?;
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Encoding: Send + Sync + 'static {
    /// What the encoding is called on the wire: a token of RFC 9110 §5.6.2 in lower case, and not `identity`. Asked for once, when
    /// the encoding is registered.
    fn name(&self) -> &str;

    /// Makes a compressor. Few are made: they are kept and used again.
    fn compressor(&self) -> Box<dyn Compressor>;

    /// Makes a decompressor. Few are made: they are kept and used again.
    fn decompressor(&self) -> Box<dyn Decompressor>;
}

/// Compresses one message after the other.
pub trait Compressor: Send + 'static {
    /// Appends the whole compressed message to `out`. Nothing of an earlier message may matter, not even of one that failed.
    ///
    /// # Errors
    ///
    /// [`EncodingError::Failed`]; the call ends with `INTERNAL`. What was appended is dropped.
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError>;
}

/// Decompresses one message after the other.
pub trait Decompressor: Send + 'static {
    /// Puts what the whole compressed `message` unfolds to into `out`. Nothing of an earlier message may matter, not even of one
    /// that failed.
    ///
    /// # Errors
    ///
    /// [`EncodingError::TooLong`] is passed on from `out`: the call ends with `RESOURCE_EXHAUSTED`. For
    /// [`Corrupt`](EncodingError::Corrupt) bytes and any other failure it ends with `INTERNAL`. A panic is such a failure.
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError>;

    /// How much memory the decompressor holds on to, in bytes, as far as it knows. One that holds more than 4 MiB is not kept.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Why a message was not compressed or decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodingError {
    /// It unfolds to more than the limit.
    TooLong,
    /// The bytes are not what the encoding makes, for this reason.
    Corrupt(Cow<'static, str>),
    /// The encoding does not work, for this reason.
    Failed(Cow<'static, str>),
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the message unfolds to more than the limit"),
            Self::Corrupt(reason) => write!(f, "the compressed message is corrupt: {reason}"),
            Self::Failed(reason) => write!(f, "the encoding failed: {reason}"),
        }
    }
}

impl std::error::Error for EncodingError {}

/// What a call asks for: whether, and how, the messages that this end sends on it are compressed.
///
/// A server compresses only with what the client says it accepts in `grpc-accept-encoding`, and sends plain messages otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// With the first encoding that this end [sends](Encodings::send) with, where that makes a message smaller.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// With the first encoding that this end sends with, or else the first that it accepts; every message, whether it gets smaller
    /// or not.
    On,
    /// With the encoding of this name; every message, whether it gets smaller or not.
    Encoding(Cow<'static, str>),
}

impl Compression {
    /// With the encoding of this name.
    pub fn encoding(name: impl Into<Cow<'static, str>>) -> Self {
        Self::Encoding(name.into())
    }
}

/// Whether one message is compressed, on a call that has an encoding. On one that has none it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// As the call has it.
    #[default]
    Default,
    /// Yes, whether it gets smaller or not: the flag of the message is 1.
    Yes,
    /// No: the flag of the message is 0.
    No,
}

/// A panic, as the reason of a failure.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
