//! What a message is: anything that prost can encode, or raw bytes.

use bytes::{Buf, Bytes};
use fulmar_grpc::{Arena, MessageBuf, Status};

/// A message of a call.
///
/// Implemented for every [`prost::Message`] that has a default, and for [`Raw`], which carries the bytes of a message as they
/// are. Users do not implement it themselves.
pub trait Payload: Default {
    /// How many bytes [`encode`](Self::encode) will append.
    fn encoded_len(&self) -> usize;

    /// Appends the encoded message: exactly [`encoded_len`](Self::encoded_len) bytes.
    fn encode(&self, out: &mut Vec<u8>);

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

    fn encode(&self, out: &mut Vec<u8>) {
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

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
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

/// Appends `message` with its prefix, uncompressed.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` when the message is longer than `bytes_max` or than the prefix can say; `INTERNAL` when it did not encode
/// to the length it had announced. Nothing was appended.
pub(crate) fn encode_framed<P: Payload>(
    message: &P,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<usize, Status> {
    let length = message.encoded_len();
    let prefix = check_length(length, bytes_max)?;
    let start = out.len();
    out.reserve(PREFIX_LEN + length);
    out.push(0);
    out.extend_from_slice(&prefix.to_be_bytes());
    message.encode(out);
    let encoded = out.len().saturating_sub(start + PREFIX_LEN);
    if encoded != length {
        // A wrong prefix would make nonsense of everything behind it.
        out.truncate(start);
        return Err(Status::internal(format!(
            "the message encoded to {encoded} bytes, and had announced {length}"
        )));
    }
    Ok(PREFIX_LEN + length)
}

/// What a prefix says of a message of `length` bytes.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` when that is more than `bytes_max` or than the prefix can say.
pub(crate) fn check_length(length: usize, bytes_max: usize) -> Result<u32, Status> {
    u32::try_from(length).ok().filter(|_| length <= bytes_max).ok_or_else(|| {
        Status::resource_exhausted(format!(
            "the message to send has {length} bytes, the limit is {}",
            bytes_max.min(u32::MAX as usize)
        ))
    })
}

/// Decodes one whole message without its prefix.
pub(crate) fn decode<P: Payload>(into: &mut P, body: &[u8], arena: &mut Arena) -> Result<(), Status> {
    into.decode_from(&mut MessageBuf::new(body, arena))
}
