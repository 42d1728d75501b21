//! What a client sends.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use fulmar_base::{Block, Env, Instant};
use fulmar_http2::{ErrorCode, Known, OpenError, Plain};

use super::Client;
use crate::call::{CallKey, Inbound, NewCall, Outbound};
use crate::encoding::{Compress, Compression, PeerAccepts, UnknownEncoding};
use crate::end::{MessageError, TooLong};
use crate::event::{Gone, Part};
use crate::headers::{self, RequestHead};
use crate::metadata::MetadataMap;
use crate::timeout;

/// What a call begins with.
#[derive(Clone, Copy, Debug)]
pub struct Start<'s> {
    /// The method: `/package.Service/Method`.
    pub path: &'s str,
    /// The metadata of the request.
    pub metadata: &'s MetadataMap,
    /// How long the server may take, as `grpc-timeout` tells it; rounded up to what that can express.
    pub timeout: Option<Duration>,
    /// When this end gives up.
    pub deadline: Option<Instant>,
    /// Whether, and how, the messages of the request are compressed.
    pub compression: &'s Compression,
}

/// Why a call was not started. Nothing of it has left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The server allows no more calls at a time; [`Event::Capacity`](crate::Event::Capacity) says when to try again.
    Busy,
    /// The server takes no new calls on this connection, or the connection is lost.
    GoingAway,
    /// The connection has used up its stream identifiers (RFC 9113 §5.1.1).
    Exhausted,
    /// The metadata is larger than the server accepts.
    HeadersTooLarge {
        /// The size of the header list, counted as RFC 9113 §6.5.2 counts it.
        size: usize,
        /// What the server accepts.
        limit: usize,
    },
    /// The first message is longer than this end sends.
    MessageTooLong {
        /// Its length in bytes, without the prefix.
        length: usize,
        /// What this end sends.
        length_max: usize,
    },
    /// The path does not begin with `/`, or has characters besides printable ASCII or a space.
    InvalidPath,
    /// The call asks for an encoding that this end does not know.
    UnknownEncoding(UnknownEncoding),
}

/// Calling.
impl Client {
    /// Starts a call; with `first` its first message goes along, and with `half_close` it is the last one. Headers,
    /// message and END_STREAM leave in one go if the windows allow.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the call does not exist then.
    pub fn start(
        &mut self,
        env: &mut Env<'_>,
        start: Start<'_>,
        first: Option<&[u8]>,
        half_close: bool,
    ) -> Result<CallKey, StartError> {
        if let Some(message) = first {
            return self.start_encoded(env, start, message.len(), half_close, |buffer| {
                buffer.extend_from_slice(message);
            });
        }
        let call = self.open(env, start)?;
        if half_close {
            self.half_close(env, call);
        }
        Ok(call)
    }

    /// Starts a call with a first message of `length` bytes, which `encode` appends: if it may leave at once, straight
    /// to `env.out`. With `half_close` it is the last one.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the call does not exist then. A message that has not the length announced is reported as the end
    /// of the call.
    pub fn start_encoded(
        &mut self,
        env: &mut Env<'_>,
        start: Start<'_>,
        length: usize,
        half_close: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<CallKey, StartError> {
        if let Err(TooLong { length, length_max }) = self.end.prefix(length) {
            return Err(StartError::MessageTooLong { length, length_max });
        }
        let call = self.open(env, start)?;
        let sent = self.end.encode(env, call, length, half_close, encode);
        // The end of the call is an event, should it have come to that.
        let _ = self.settle(env, call, sent);
        Ok(call)
    }

    /// Starts a call with messages that have their prefixes already, compressed or not as `start` says. With `half_close` they are
    /// all there are.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the call does not exist then.
    pub fn start_framed(
        &mut self,
        env: &mut Env<'_>,
        start: Start<'_>,
        messages: &[u8],
        half_close: bool,
    ) -> Result<CallKey, StartError> {
        let call = self.open(env, start)?;
        let sent = self.end.send_framed_slice(env, call, messages, half_close);
        // The end of the call is an event, should it have come to that.
        let _ = self.settle(env, call, sent);
        Ok(call)
    }

    /// Has the messages that follow compressed or not, on a call that has an encoding.
    pub fn set_compress(&mut self, call: CallKey, compress: Compress) {
        self.end.set_compress(call, compress);
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over or half-closed. A message longer than `send_message_bytes_max` ends the call with
    /// `RESOURCE_EXHAUSTED`.
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
        let sent = self.end.encode(env, call, length, false, encode);
        self.settle(env, call, sent)
    }

    /// Sends whole messages that have their prefixes already.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over or half-closed; the block is back in the pool.
    pub fn send_framed(&mut self, env: &mut Env<'_>, call: CallKey, messages: Block) -> Result<(), Gone> {
        let sent = self.end.send_framed(env, call, messages);
        self.settle(env, call, sent)
    }

    /// [`send_framed`](Self::send_framed) of bytes that stay with the caller: what cannot leave at once is copied.
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over or half-closed.
    pub fn send_framed_slice(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        messages: &[u8],
    ) -> Result<(), Gone> {
        let sent = self.end.send_framed_slice(env, call, messages, false);
        self.settle(env, call, sent)
    }

    /// Sends whole messages that have their prefixes already and come in pieces, of which large shared ones are not copied. They
    /// leave with the next [`transmit`](Self::transmit).
    ///
    /// # Errors
    ///
    /// [`Gone`] if the call is over or half-closed.
    pub fn send_framed_parts<'p>(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        parts: impl IntoIterator<Item = Part<'p>>,
    ) -> Result<(), Gone> {
        let sent = self.end.send_framed_parts(env, call, parts);
        self.settle(env, call, sent)
    }

    /// Says that the last message was sent: an empty DATA frame with END_STREAM behind all messages. Nothing if the call
    /// is over or half-closed.
    pub fn half_close(&mut self, env: &mut Env<'_>, call: CallKey) {
        // Only a call that is over, or said so before, refuses this; and of its end there is an event.
        let _ = self.end.send_end(env, call);
    }

    /// Gives a call up: RST_STREAM(CANCEL), unless it is over already. It is not reported as finished any more, and its
    /// key is stale at once.
    pub fn cancel(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(slot) = self.end.calls.get(call) else { return };
        if !self.end.lost && slot.inbound != Inbound::Ended {
            self.end.connection.reset(env, slot.stream, ErrorCode::Cancel);
        }
        self.end.calls.remove(env.pool, call);
    }

    /// Opens the stream of a call with the header block of the request.
    fn open(&mut self, env: &mut Env<'_>, start: Start<'_>) -> Result<CallKey, StartError> {
        if self.end.lost {
            return Err(StartError::GoingAway);
        }
        let method = match self.templates.find(start.path) {
            None if !is_path(start.path) => return Err(StartError::InvalidPath),
            None => self.templates.add(start.path),
            method => method,
        };
        let encodings = &self.end.encodings;
        let choice = encodings.choose(start.compression, PeerAccepts::ANYTHING);
        let sends = choice.map_err(StartError::UnknownEncoding)?;
        let encoding = sends.and_then(|sends| encodings.name(sends.encoding)).map(|name| &**name);
        self.timeout.clear();
        if let Some(timeout) = start.timeout {
            timeout::encode(timeout, &mut self.timeout);
        }
        let head = RequestHead {
            scheme: &self.identity.scheme,
            authority: &self.identity.authority,
            path: start.path,
            user_agent: &self.user_agent,
            content_type: &self.content_type,
            accept_encoding: encodings.accept_value(),
        };
        let is_bare = self.timeout.is_empty() && encoding.is_none() && start.metadata.is_empty();
        let opened = if is_bare && let Some(template) = self.templates.whole(method) {
            let fields = || headers::request_head(head).chain(headers::request_rest(head));
            self.end.connection.open_with(env, Known { template, fields }, false)
        } else {
            let (head_template, rest_template) = self.templates.of(method);
            let beginning = (
                Known { template: head_template, fields: || headers::request_head(head) },
                Plain(headers::request_timeout(&self.timeout).chain(headers::encoding_field(encoding))),
            );
            let rest = (
                Known { template: rest_template, fields: || headers::request_rest(head) },
                Plain(headers::metadata_fields(start.metadata)),
            );
            self.end.connection.open_with(env, (beginning, rest), false)
        };
        let stream = opened?;
        let new = NewCall {
            stream,
            inbound: Inbound::Headers,
            outbound: Outbound::Messages,
            deadline: start.deadline,
            metadata: None,
            shared_metadata: None,
            encoding: None,
            sends,
            peer_accepts: PeerAccepts::ANYTHING,
        };
        Ok(self.end.calls.insert(&mut self.end.connection, new))
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
            Err(MessageError::TooLong(error)) => self.abort(env, call, error.status(), ErrorCode::Cancel),
            Err(MessageError::Misencoded(status) | MessageError::Failed(status)) => {
                self.abort(env, call, status, ErrorCode::Cancel)
            }
        }
        Err(Gone)
    }
}

/// Whether HTTP/2 lets this be a `:path` that gRPC could mean.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::LimitReached => Self::Busy,
            OpenError::GoingAway => Self::GoingAway,
            OpenError::Exhausted => Self::Exhausted,
            OpenError::HeadersTooLarge { size, limit } => Self::HeadersTooLarge { size, limit },
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the server allows no more calls at a time on this connection"),
            Self::GoingAway => f.write_str("the server takes no new calls on this connection"),
            Self::Exhausted => f.write_str("the connection has used up its stream identifiers"),
            Self::HeadersTooLarge { size, limit } => {
                write!(
                    f,
                    "metadata of the request of {size} bytes exceeds the {limit} bytes that the server accepts"
                )
            }
            &Self::MessageTooLong { length, length_max } => write!(f, "{}", TooLong { length, length_max }),
            Self::UnknownEncoding(error) => error.fmt(f),
            Self::InvalidPath => f.write_str("a method path is `/package.Service/Method` in printable ASCII"),
        }
    }
}

impl Error for StartError {}
