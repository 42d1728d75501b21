//! A message that is encoded once and sent many times.

use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes};
use fulmar_grpc::{Arena, MessageBuf, Status};

use crate::payload::{Incoming, Payload, decode};

/// An encoded message of type `T`, for messages that are sent again and again: to many clients, or in many calls.
///
/// Clones share the bytes, and from 16 KiB on they leave without being copied. It is a [`Payload`] of its own, so that calls by
/// name take it in place of the message, and [`Replies::send_encoded`](crate::Replies::send_encoded) and its like on the client
/// take it beside messages of type `T`.
///
/// ```
/// use fulmar::{Encoded, Raw};
///
/// let message = Encoded::new(&Raw::from(b"news".to_vec()));
/// let again = message.clone();
/// assert_eq!(again.as_bytes(), b"news");
/// assert_eq!(again.decode()?, Raw::from(b"news".to_vec()));
/// # Ok::<(), fulmar::Status>(())
/// ```
pub struct Encoded<T> {
    bytes: Bytes,
    message: PhantomData<fn() -> T>,
}

impl<T: Payload> Encoded<T> {
    /// Encodes a message.
    pub fn new(message: &T) -> Self {
        let mut bytes = Vec::with_capacity(message.encoded_len());
        message.encode(&mut bytes);
        Self::from_bytes(bytes)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// `INTERNAL` with the decoder's reason when the bytes, which may have been received, are not such a message.
    pub fn decode(&self) -> Result<T, Status> {
        let mut message = T::default();
        decode(&mut message, Incoming::Shared(&self.bytes), &mut Arena::default())?;
        Ok(message)
    }
}

impl<T> Encoded<T> {
    /// Takes bytes that are an encoded message already.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), message: PhantomData }
    }

    /// The encoded message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded message, to keep.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl<T> Payload for Encoded<T> {
    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&self.bytes);
    }

    fn whole(&self) -> Option<&Bytes> {
        Some(&self.bytes)
    }

    fn decode_from(&mut self, body: &mut MessageBuf<'_>) -> Result<(), Status> {
        let length = body.remaining();
        self.bytes = body.copy_to_bytes(length);
        Ok(())
    }
}

impl<T> Clone for Encoded<T> {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes.clone())
    }
}

impl<T> Default for Encoded<T> {
    /// No bytes: the default message of a schema.
    fn default() -> Self {
        Self::from_bytes(Bytes::new())
    }
}

impl<T> std::fmt::Debug for Encoded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoded").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
