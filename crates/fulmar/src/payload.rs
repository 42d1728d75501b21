//! What a message is: anything that prost can encode, or raw bytes.

use std::ops::Deref;

use bytes::{Buf, BufMut, Bytes};
use fulmar_grpc::{Arena, Body, MessageBuf, Status};

/// A message of a call.
///
/// Implemented for every [`prost::Message`] that has a default, and for [`Raw`], which carries the bytes of a message as they
/// are. Users do not implement it themselves.
pub trait Payload: Default {
    /// How many bytes [`encode`](Self::encode) will append.
    fn encoded_len(&self) -> usize;

    /// Appends the encoded message: exactly [`encoded_len`](Self::encoded_len) bytes.
    fn encode(&self, out: &mut impl BufMut);

    /// The encoded message, where it is at hand as such: if it is large, it leaves without being copied.
    fn whole(&self) -> Option<&Bytes> {
        None
    }

    /// Replaces this message by the one in `body`; memory that the message already owns is reused where prost can.
    ///
    /// # Errors
    /// `INTERNAL` with the decoder's reason when the bytes are not such a message.
    fn decode_from(&mut self, body: &mut MessageBuf<'_>) -> Result<(), Status>;
}

impl<M: prost::Message + Default> Payload for M {
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }

    fn encode(&self, out: &mut impl BufMut) {
        self.encode_raw(out);
    }

    fn decode_from(&mut self, body: &mut MessageBuf<'_>) -> Result<(), Status> {
        self.clear();
        self.merge(body)
            .map_err(|error| Status::internal(format!("the message could not be decoded: {error}")))
    }
}

/// A message as bytes, neither encoded nor decoded: for proxies and for calls without generated code.
///
/// From 16 KiB on it is not copied on its way between user and socket, in either direction.
///
/// ```
/// use fulmar::Raw;
/// let message = Raw::from(vec![0x0a, 0x03, b'a', b'b', b'c']);
/// assert_eq!(message.as_ref().len(), 5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Bytes);

impl Payload for Raw {
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    fn whole(&self) -> Option<&Bytes> {
        Some(&self.0)
    }

    fn decode_from(&mut self, body: &mut MessageBuf<'_>) -> Result<(), Status> {
        let length = body.remaining();
        self.0 = body.copy_to_bytes(length);
        Ok(())
    }
}

impl AsRef<[u8]> for Raw {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Raw {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::from(bytes))
    }
}

impl From<Bytes> for Raw {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// Length of what stands before each message: a flag byte and four bytes of length (PROTOCOL-HTTP2 "Length-Prefixed-Message").
pub(crate) const PREFIX_LEN: usize = 5;

/// Appends `message`, which has `length` bytes, with its prefix, uncompressed.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` when the message is longer than `bytes_max` or than the prefix can say; `INTERNAL` when it did not encode
/// to the length it had announced. Nothing was appended.
pub(crate) fn encode_framed<P: Payload>(
    message: &P,
    length: usize,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<usize, Status> {
    let prefix = check_length(length, bytes_max)?;
    let start = out.len();
    out.reserve(PREFIX_LEN + length);
    let [a, b, c, d] = prefix.to_be_bytes();
    out.extend_from_slice(&[0, a, b, c, d]);
    message.encode(out);
    let encoded = out.len().saturating_sub(start + PREFIX_LEN);
    // A wrong prefix would make nonsense of everything behind it.
    check_encoded(encoded, length).inspect_err(|_| out.truncate(start))?;
    Ok(PREFIX_LEN + length)
}

/// Whether a message has the length that it had announced.
///
/// # Errors
/// `INTERNAL` if it has not.
#[inline]
pub(crate) fn check_encoded(encoded: usize, length: usize) -> Result<(), Status> {
    if encoded == length { Ok(()) } else { Err(misencoded(encoded, length)) }
}

#[cold]
fn misencoded(encoded: usize, length: usize) -> Status {
    Status::internal(format!("the message encoded to {encoded} bytes, and had announced {length}"))
}

/// What a prefix says of a message of `length` bytes.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` when that is more than `bytes_max` or than the prefix can say.
#[inline]
pub(crate) fn check_length(length: usize, bytes_max: usize) -> Result<u32, Status> {
    match u32::try_from(length) {
        Ok(prefix) if length <= bytes_max => Ok(prefix),
        _ => Err(too_long(length, bytes_max)),
    }
}

#[cold]
fn too_long(length: usize, bytes_max: usize) -> Status {
    Status::resource_exhausted(format!(
        "the message to send has {length} bytes, the limit is {}",
        bytes_max.min(u32::MAX as usize)
    ))
}

/// One whole message that has arrived, without its prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming<'b> {
    Lent(&'b [u8]),
    /// In memory of its own, of which whoever decodes it may keep parts.
    Shared(&'b Bytes),
}

impl<'b> Incoming<'b> {
    pub(crate) fn new(body: &'b Body<'_>) -> Self {
        match body {
            Body::Shared(bytes) => Self::Shared(bytes),
            body => Self::Lent(body.as_slice()),
        }
    }
}

impl Deref for Incoming<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Decodes a message.
pub(crate) fn decode<P: Payload>(into: &mut P, body: Incoming<'_>, arena: &mut Arena) -> Result<(), Status> {
    into.decode_from(&mut match body {
        Incoming::Lent(bytes) => MessageBuf::new(bytes, arena),
        Incoming::Shared(bytes) => MessageBuf::shared(bytes, arena),
    })
}
