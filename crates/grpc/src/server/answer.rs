//! What a server sends.

use fulmar_base::{Block, Env};
use fulmar_http2::{ErrorCode, Field, Known, Plain, SendError, Sent, StreamKey};

use super::Server;
use crate::call::{CallKey, Ending, Inbound, Outbound};
use crate::code::Code;
use crate::encoding::{Choice, Compress, Compression, Encodings, PeerAccepts, UnknownEncoding};
use crate::end::{MessageError, encode_exactly, misencoded};
use crate::event::{Gone, Part};
use crate::framing::PREFIX_LEN;
use crate::headers::{self, Refusal, StatusText};
use crate::metadata::MetadataMap;
use crate::status::Status;

/// What is kept of the message of a status when the trailers are larger than the client accepts, in bytes.
pub(crate) const SHORTENED_MESSAGE_BYTES_MAX: usize = 512;

/// Answering.
impl Server {
    /// Sends the headers of the answer. Not needed for a call without metadata: the first message brings them along.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over or has its headers already, or if the metadata is larger than the client accepts:
    /// the call ends with `RESOURCE_EXHAUSTED` then.
    pub fn send_headers(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        metadata: &MetadataMap,
    ) -> Result<(), Gone> {
        let slot =
            self.end.calls.get_mut(call).filter(|slot| slot.outbound == Outbound::Headers).ok_or(Gone)?;
        let encodings = &self.end.encodings;
        let encoding = slot.sends.and_then(|choice| encodings.name(choice.encoding)).map(|name| &**name);
        let section = (
            Known { template: &mut self.response_head, fields: || headers::response_head(encodings) },
            Plain(headers::encoding_field(encoding).into_iter().chain(headers::metadata_fields(metadata))),
        );
        match self.end.connection.send_headers_with(env, slot.stream, section, false) {
            Ok(()) => {
                slot.outbound = Outbound::Messages;
                Ok(())
            }
            Err(SendError::HeadersTooLarge { size, limit }) => {
                self.fail(env, call, &too_large("metadata", size, limit));
                Err(Gone)
            }
            Err(_) => Err(Gone),
        }
    }

    /// Has the messages of this call compressed so. To be called before the headers are sent; afterwards it can only change which
    /// messages are compressed, since the encoding is told in the headers.
    ///
    /// # Errors
    ///
    /// [`UnknownEncoding`] if this end does not know what is asked for. An encoding that the client does not accept is no error: the
    /// messages are plain then.
    pub fn set_compression(
        &mut self,
        call: CallKey,
        compression: &Compression,
    ) -> Result<(), UnknownEncoding> {
        let Some(slot) = self.end.calls.get(call) else { return Ok(()) };
        let choice = self.end.encodings.choose(compression, slot.peer_accepts)?;
        self.set_choice(call, choice);
        Ok(())
    }

    /// [`set_compression`](Self::set_compression) for those who have [chosen](Encodings::choose) themselves.
    pub fn set_choice(&mut self, call: CallKey, choice: Option<Choice>) {
        let Some(slot) = self.end.calls.get_mut(call) else { return };
        if slot.outbound == Outbound::Headers {
            slot.sends = choice;
        } else if choice.map(|choice| choice.encoding) == slot.sends.map(|sends| sends.encoding) {
            slot.sends = choice;
            slot.compress = Compress::Default;
        } else {
            slot.compress = Compress::No;
        }
    }

    /// What the messages to the client are compressed with.
    pub fn choice(&self, call: CallKey) -> Option<Choice> {
        self.end.calls.get(call)?.sends
    }

    /// Which of the encodings of this end the client accepts.
    pub fn peer_accepts(&self, call: CallKey) -> PeerAccepts {
        self.end.calls.get(call).map_or_else(PeerAccepts::default, |slot| slot.peer_accepts)
    }

    /// Has the messages that follow compressed or not, on a call that has an encoding.
    pub fn set_compress(&mut self, call: CallKey, compress: Compress) {
        self.end.set_compress(call, compress);
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over. A message longer than `send_message_bytes_max` ends it with `RESOURCE_EXHAUSTED`.
    pub fn send_message(&mut self, env: &mut Env<'_>, call: CallKey, message: &[u8]) -> Result<(), Gone> {
        self.encode_message(env, call, message.len(), |buffer| buffer.extend_from_slice(message))
    }

    /// Sends a message of `length` bytes, which `encode` appends: if it may leave at once, straight to `env.out`.
    ///
    /// # Errors
    ///
    /// Those of [`send_message`](Self::send_message). A message that has not the length announced resets the call.
    pub fn encode_message(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        length: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Gone> {
        self.admit(env, call, length)?;
        self.open_answer(env, call)?;
        let sent = self.end.encode(env, call, length, false, encode);
        self.settle(env, call, sent)
    }

    /// Sends whole messages that have their prefixes already.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over; the block is back in the pool.
    pub fn send_framed(&mut self, env: &mut Env<'_>, call: CallKey, messages: Block) -> Result<(), Gone> {
        if self.open_answer(env, call).is_err() {
            env.pool.give(messages);
            return Err(Gone);
        }
        let sent = self.end.send_framed(env, call, messages);
        self.settle(env, call, sent)
    }

    /// [`send_framed`](Self::send_framed) of bytes that stay with the caller: what cannot leave at once is copied.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over.
    pub fn send_framed_slice(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        messages: &[u8],
    ) -> Result<(), Gone> {
        self.open_answer(env, call)?;
        let sent = self.end.send_framed_slice(env, call, messages, false);
        self.settle(env, call, sent)
    }

    /// Sends whole messages that have their prefixes already and come in pieces, of which large shared ones are not copied. They
    /// leave with the next [`transmit`](Self::transmit).
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over.
    pub fn send_framed_parts<'p>(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        parts: impl IntoIterator<Item = Part<'p>>,
    ) -> Result<(), Gone> {
        self.open_answer(env, call)?;
        let sent = self.end.send_framed_parts(env, call, parts);
        self.settle(env, call, sent)
    }

    /// Whether a message of `length` bytes would be compressed.
    pub fn compresses(&self, call: CallKey, length: usize) -> bool {
        self.end.compresses(call, length)
    }

    /// Answers with one large message and `OK`, as [`reply`](Self::reply): `parts` are the message with its prefix, which says that it
    /// has `length` bytes and is not compressed.
    ///
    /// # Errors
    ///
    /// Those of [`reply`](Self::reply).
    pub fn reply_framed_parts<'p>(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        metadata: &MetadataMap,
        length: usize,
        parts: impl IntoIterator<Item = Part<'p>>,
        trailers: &MetadataMap,
    ) -> Result<(), Gone> {
        self.admit(env, call, length)?;
        if self.end.calls.get(call).ok_or(Gone)?.outbound == Outbound::Headers {
            self.send_headers(env, call, metadata)?;
        }
        self.send_framed_parts(env, call, parts)?;
        self.finish(env, call, &Status::default(), trailers)
    }

    /// Answers with one message and `OK`: headers, message and trailers in one go. If the headers have been sent,
    /// `metadata` is left out.
    ///
    /// # Errors
    ///
    /// Those of [`send_headers`](Self::send_headers) and [`encode_message`](Self::encode_message).
    pub fn reply(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        metadata: &MetadataMap,
        length: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        trailers: &MetadataMap,
    ) -> Result<(), Gone> {
        let prefix = match self.end.prefix(length) {
            Ok(prefix) => prefix,
            Err(error) => return self.settle(env, call, Err(error.into())),
        };
        let slot = self.end.calls.get_mut(call).ok_or(Gone)?;
        let is_first = slot.outbound == Outbound::Headers;
        let is_plain = is_first && slot.sends.is_none() && metadata.is_empty() && trailers.is_empty();
        let mut encode = Some(encode);
        let encode_framed = |buffer: &mut Vec<u8>| {
            buffer.extend_from_slice(&prefix);
            encode.take().is_some_and(|encode| encode_exactly(buffer, length, encode))
        };
        match if is_plain { self.reply_at_once(env, call, length, encode_framed) } else { Sent::Nothing } {
            Sent::All => return Ok(()),
            Sent::WithoutTrailers => return self.settle(env, call, Err(misencoded(length))),
            Sent::Nothing => {}
        }
        let Some(encode) = encode else { return Err(Gone) };
        if is_first {
            self.send_headers(env, call, metadata)?;
        }
        self.encode_message(env, call, length, encode)?;
        self.finish(env, call, &Status::default(), trailers)
    }

    /// Sends the answer to a call of which nothing was sent: one plain message without metadata, and `OK`.
    #[inline]
    fn reply_at_once(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        length: usize,
        encode_framed: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Sent {
        let Some(slot) = self.end.calls.get_mut(call) else { return Sent::Nothing };
        let (stream, connection) = (slot.stream, &mut self.end.connection);
        let encodings = &self.end.encodings;
        let fields = || headers::response_head(encodings);
        let head = Known { template: &mut self.response_head, fields };
        let ok = Known { template: &mut self.ok, fields: headers::ok };
        let sent = connection.send_response(env, stream, head, PREFIX_LEN + length, encode_framed, ok);
        match sent {
            Sent::Nothing => {}
            Sent::WithoutTrailers => slot.outbound = Outbound::Messages,
            Sent::All => {
                let half_closed = slot.inbound == Inbound::Ended;
                slot.outbound = Outbound::Ended;
                slot.inbound = Inbound::Ended;
                self.end.calls.let_go(env.pool, call);
                if !half_closed {
                    // The client need not send the rest (RFC 9113 §8.1).
                    self.end.connection.reset_after_end(env, stream, ErrorCode::NoError);
                }
            }
        }
        sent
    }

    /// Ends the answer with a status and trailers: those of the status and the ones given. Where nothing was sent
    /// before, one header block is the whole answer. The call is reported as finished when its last byte was handed
    /// over; what the client still sends is thrown away, and it is asked to stop.
    ///
    /// Trailers larger than the client accepts are left out: a call that would have been `OK` is
    /// `RESOURCE_EXHAUSTED` then, another keeps its code and the beginning of its message.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over.
    pub fn finish(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        status: &Status,
        trailers: &MetadataMap,
    ) -> Result<(), Gone> {
        let slot =
            self.end.calls.get_mut(call).filter(|slot| slot.outbound != Outbound::Ended).ok_or(Gone)?;
        let stream = slot.stream;
        let whole_answer = slot.outbound == Outbound::Headers;
        let half_closed = slot.inbound == Inbound::Ended;
        slot.outbound = Outbound::Ended;
        slot.inbound = Inbound::Ended;
        self.end.calls.let_go(env.pool, call);
        if self.send_status(env, stream, status, trailers, whole_answer).is_err() {
            self.end.calls.end(call);
            return Err(Gone);
        }
        if !half_closed {
            // The client need not send the rest (RFC 9113 §8.1).
            self.end.connection.reset_after_end(env, stream, ErrorCode::NoError);
        }
        Ok(())
    }

    /// Ends a call for a reason of the engine's, and reports it at once: its last bytes may take their time.
    pub(super) fn fail(&mut self, env: &mut Env<'_>, call: CallKey, status: &Status) {
        let _ = self.finish(env, call, status, MetadataMap::EMPTY);
        self.ends_early(call, Ending::Failed);
        self.end.calls.end(call);
    }

    /// Answers a request that begins no call.
    pub(super) fn refuse(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        half_closed: bool,
        refusal: &Refusal,
    ) {
        let connection = &mut self.end.connection;
        let sent = match refusal {
            Refusal::NotGrpc => connection.send_headers(env, stream, headers::NOT_GRPC, true).is_ok(),
            Refusal::NotPost => connection.send_headers(env, stream, headers::NOT_POST, true).is_ok(),
            Refusal::Status(status) => {
                self.send_status(env, stream, status, MetadataMap::EMPTY, true).is_ok()
            }
        };
        if sent && !half_closed {
            self.end.connection.reset_after_end(env, stream, ErrorCode::NoError);
        }
    }

    /// Sends a status: as trailers, or with all that makes a whole answer of it.
    fn send_status(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        status: &Status,
        trailers: &MetadataMap,
        whole_answer: bool,
    ) -> Result<(), Gone> {
        let (connection, text) = (&mut self.end.connection, &mut self.status_text);
        let encodings = &self.end.encodings;
        let mut code = status.code();
        if status.is_ok() && !whole_answer && status.is_plain() && trailers.is_empty() {
            let section = Known { template: &mut self.ok, fields: headers::ok };
            match connection.send_headers_with(env, stream, section, true) {
                Ok(()) => return Ok(()),
                Err(SendError::HeadersTooLarge { .. }) => {}
                Err(_) => return Err(Gone),
            }
        }
        text.encode(status);
        let metadata = headers::metadata_fields(status.metadata()).chain(headers::metadata_fields(trailers));
        let fields = status_fields(code, text, encodings, whole_answer, metadata);
        match connection.send_headers(env, stream, fields, true) {
            Ok(()) => return Ok(()),
            Err(SendError::HeadersTooLarge { size, limit }) if code == Code::Ok => {
                code = Code::ResourceExhausted;
                text.encode(&too_large("trailers", size, limit));
            }
            Err(SendError::HeadersTooLarge { .. }) => {
                text.encode_beginning(status, SHORTENED_MESSAGE_BYTES_MAX);
            }
            Err(_) => return Err(Gone),
        }
        let fields = status_fields(code, text, encodings, whole_answer, std::iter::empty());
        connection.send_headers(env, stream, fields, true).map_err(|_| {
            // A client that accepts no status at all.
            connection.reset(env, stream, ErrorCode::InternalError);
            Gone
        })
    }

    /// Sends headers without metadata in front of the first message.
    fn open_answer(&mut self, env: &mut Env<'_>, call: CallKey) -> Result<(), Gone> {
        match self.end.calls.get(call).map(|slot| slot.outbound) {
            Some(Outbound::Headers) => self.send_headers(env, call, MetadataMap::EMPTY),
            Some(Outbound::Messages) => Ok(()),
            Some(Outbound::Ended) | None => Err(Gone),
        }
    }

    /// Ends the call, while nothing of the message was sent, if it is too long to be sent.
    fn admit(&mut self, env: &mut Env<'_>, call: CallKey, length: usize) -> Result<(), Gone> {
        match self.end.prefix(length) {
            Ok(_) => Ok(()),
            Err(error) => self.settle(env, call, Err(error.into())),
        }
    }

    /// Draws the consequences of a message that was not sent.
    fn settle(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        sent: Result<(), MessageError>,
    ) -> Result<(), Gone> {
        match sent {
            Ok(()) => return Ok(()),
            Err(MessageError::Gone) => {}
            Err(MessageError::TooLong(error)) => self.fail(env, call, &error.status()),
            Err(MessageError::Failed(status)) => self.fail(env, call, &status),
            Err(MessageError::Misencoded(_)) => {
                self.ends_early(call, Ending::Failed);
                self.end.reset(env, call, ErrorCode::InternalError);
            }
        }
        Err(Gone)
    }
}

/// The fields of a status, as trailers or as a whole answer.
pub(crate) fn status_fields<'f>(
    code: Code,
    text: &'f StatusText,
    encodings: &'f Encodings,
    whole_answer: bool,
    metadata: impl Iterator<Item = Field<'f>> + Clone,
) -> impl Iterator<Item = Field<'f>> + Clone {
    let head = whole_answer.then(|| headers::trailers_only_head(code, encodings)).into_iter().flatten();
    head.chain(text.fields(code)).chain(metadata)
}

pub(crate) fn too_large(what: &str, size: usize, limit: usize) -> Status {
    let text =
        format!("{what} of the answer of {size} bytes exceed the {limit} bytes that the client accepts");
    Status::new(Code::ResourceExhausted, text)
}
