//! What the two ends of a connection have in common: receiving messages, giving credit for them, and sending them.

use std::sync::Arc;
use std::{fmt, mem};

use fulmar_base::{Block, Env, Input, Instant, Pool};
use fulmar_http2::{Connection, Error, ErrorCode, Role, SendError, StreamKey};

use crate::call::{CallKey, Calls, Inbound, Outbound};
use crate::code::Code;
use crate::config::Config;
use crate::encoding::{Choice, Compress, Contexts, EncodingError, Encodings};
use crate::event::{Body, Part};
use crate::framing::{Accepts, FramingError, PREFIX_LEN};
use crate::held::Held;
use crate::status::Status;

/// One end of a connection.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) calls: Calls,
    /// The connection is over, and only the ends of its calls are left to report.
    pub(crate) lost: bool,
    pub(crate) held: Held,
    pub(crate) receive_message_bytes_max: usize,
    send_message_bytes_max: usize,
    pub(crate) encodings: Encodings,
    /// How many messages have begun to arrive.
    messages: u64,
    /// The DATA frame that is being cut into messages; its bytes lie aside in the input.
    open_frame: Option<OpenFrame>,
}

/// A DATA frame whose messages are being handed out, one an event.
#[derive(Clone, Copy)]
struct OpenFrame {
    call: CallKey,
    end: bool,
}

/// What comes out of a DATA frame.
pub(crate) enum Piece<'i> {
    Message {
        call: CallKey,
        body: Body<'i>,
    },
    /// END_STREAM, after the last message.
    End {
        call: CallKey,
    },
    /// The call has to end with this status.
    Fault {
        call: CallKey,
        status: Status,
    },
    /// The call has to end with this status because too much is held, and its peer may take nothing of what waits for it.
    Exhausted {
        call: CallKey,
        status: Status,
    },
}

/// Why a message was not sent.
#[derive(Debug)]
pub(crate) enum MessageError {
    /// The call is over or has sent END_STREAM.
    Gone,
    /// It is too long, and the call has to end.
    TooLong(TooLong),
    /// It did not have the length announced. A part of it may be on its way, so that the stream has to be reset.
    Misencoded(Status),
    /// Nothing of it was sent, and the call has to end.
    Failed(Status),
}

impl End {
    pub(crate) fn new(role: Role, config: &Config) -> Self {
        Self {
            connection: Connection::new(role, config.http2.clone()),
            calls: Calls::default(),
            lost: false,
            held: Held::new(config),
            messages: 0,
            receive_message_bytes_max: config.receive_message_bytes_max,
            send_message_bytes_max: config.send_message_bytes_max,
            encodings: config.encodings.clone(),
            open_frame: None,
        }
    }

    /// Takes over the limits of another configuration.
    pub(crate) fn set_limits(&mut self, config: &Config) {
        self.held = Held::new(config);
        self.receive_message_bytes_max = config.receive_message_bytes_max;
        self.send_message_bytes_max = config.send_message_bytes_max;
        self.encodings = config.encodings.clone();
    }

    /// Takes in a DATA frame that is one plain message, as most are: the call that gets it, and the message. `None`, and nothing done,
    /// if it is anything else.
    #[inline]
    pub(crate) fn on_plain_message<'i>(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        bytes: &'i [u8],
        end: bool,
    ) -> Option<(CallKey, &'i [u8])> {
        let message = plain_message(bytes, self.receive_message_bytes_max)?;
        let user = self.connection.user(stream)?;
        let call = self.calls.receive_whole(env.pool, (stream, user), bytes.len())?;
        if end || self.is_exhausted(env.pool) {
            self.open_frame = Some(OpenFrame { call, end });
        }
        Some((call, message))
    }

    /// Whether there is nothing to report before the next frame.
    #[inline]
    pub(crate) fn awaits_frame(&self) -> bool {
        self.open_frame.is_none() && !self.held.sheds() && !self.calls.has_ended() && !self.lost
    }

    /// Takes in a DATA frame, or the end of a stream without one: [`End::next_piece`] hands out what there is.
    pub(crate) fn on_data<'i>(&mut self, input: &Input<'i>, stream: StreamKey, bytes: &'i [u8], end: bool) {
        if let Some(call) = self.calls.on_stream(&self.connection, stream) {
            input.set_aside(bytes);
            self.open_frame = Some(OpenFrame { call, end });
        }
    }

    /// The next piece of the open DATA frame.
    #[inline]
    pub(crate) fn next_piece<'i>(&mut self, env: &mut Env<'_>, input: &Input<'i>) -> Option<Piece<'i>> {
        if let Some(call) = self.take_end(env, input) {
            return Some(Piece::End { call });
        }
        match self.open_frame {
            Some(frame) => self.cut(env, input, frame),
            None if self.held.sheds() => {
                self.shed(env.pool).map(|(call, status)| Piece::Exhausted { call, status })
            }
            None => None,
        }
    }

    /// The call that gets no more messages, if that is what comes next; it counts as told.
    #[inline]
    pub(crate) fn take_end(&mut self, env: &Env<'_>, input: &Input<'_>) -> Option<CallKey> {
        let OpenFrame { call, end } = self.open_frame?;
        let is_end = end
            && input.is_aside_empty()
            && !self.is_exhausted(env.pool)
            && self.calls.is_between_messages(call);
        if !is_end {
            return None;
        }
        self.open_frame = None;
        Some(call)
    }

    #[inline(never)]
    fn cut<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        OpenFrame { call, end }: OpenFrame,
    ) -> Option<Piece<'i>> {
        if self.unfolds(call)
            && let Some((call, status)) = self.exhausted(env.pool)
        {
            // One frame may hold many messages that unfold to much: the bounds hold before each.
            return Some(Piece::Exhausted { call, status });
        }
        let mut bytes = input.take_aside();
        let Some(slot) = self.calls.get_mut(call).filter(|slot| slot.inbound != Inbound::Ended) else {
            // The user has ended the call since the last piece.
            self.open_frame = None;
            return None;
        };
        let (before, was_midway) = (bytes.len(), slot.deframer.is_midway());
        let accepts =
            Accepts { length_max: self.receive_message_bytes_max, compressed: slot.encoding.is_some() };
        let message = match slot.deframer.next(env.pool, &mut bytes, accepts) {
            Ok(message) => message,
            Err(error) => {
                self.open_frame = None;
                return Some(Piece::Fault { call, status: error.status() });
            }
        };
        let is_midway = slot.deframer.is_midway();
        if is_midway && !was_midway {
            self.messages += 1;
            slot.message = self.messages;
        }
        self.calls.received(env.pool, call, before - bytes.len());
        if let Some(body) = message {
            input.set_aside(bytes);
            return Some(self.hand_over(env.pool, call, body));
        }
        if let Some((call, status)) = self.exhausted(env.pool) {
            // What else is to be said of the frame follows.
            return Some(Piece::Exhausted { call, status });
        }
        self.open_frame = None;
        if !end {
            self.credit(env, call);
            return None;
        }
        if is_midway {
            return Some(Piece::Fault { call, status: FramingError::Truncated.status() });
        }
        Some(Piece::End { call })
    }

    /// A message that has arrived, unfolded if it is compressed.
    fn hand_over<'i>(&mut self, pool: &mut Pool, call: CallKey, body: Body<'i>) -> Piece<'i> {
        let arrived = body.len();
        let body = match self.unfold(pool, call, body) {
            Ok(body) => body,
            Err(status) => return Piece::Fault { call, status },
        };
        if let Some(slot) = self.calls.get_mut(call) {
            slot.credit.handed_over(PREFIX_LEN + arrived, PREFIX_LEN + body.len());
        }
        Piece::Message { call, body }
    }

    fn unfold<'i>(&mut self, pool: &mut Pool, call: CallKey, body: Body<'i>) -> Result<Body<'i>, Status> {
        let slot = self.calls.get(call).filter(|slot| slot.deframer.is_compressed());
        let Some(encoding) = slot.and_then(|slot| self.encodings.receiver(slot.encoding?)) else {
            return Ok(body);
        };
        let (arrived, bytes_max) = (body.len(), self.receive_message_bytes_max);
        let unfolded =
            Contexts::with(pool, encoding, |pool, context| context.unfold(pool, body.as_slice(), bytes_max));
        if let Body::Block(block) = body {
            pool.give(block);
        }
        match unfolded {
            Ok(block) => {
                self.calls.unfolded(pool, call, arrived, block.len());
                Ok(Body::Block(block))
            }
            Err(EncodingError::TooLong) => {
                let text = format!(
                    "received message of {arrived} compressed bytes is longer than the limit of {bytes_max} bytes"
                );
                Err(Status::new(Code::ResourceExhausted, text))
            }
            Err(error) => Err(Status::new(Code::Internal, format!("received message: {error}"))),
        }
    }

    /// Whether messages of this call may be compressed.
    fn unfolds(&self, call: CallKey) -> bool {
        self.calls.get(call).is_some_and(|slot| slot.encoding.is_some())
    }

    /// What the messages of the peer are compressed with.
    #[inline]
    pub(crate) fn encoding(&self, call: CallKey) -> Option<&Arc<str>> {
        self.encodings.name(self.calls.get(call)?.encoding?)
    }

    /// Whether the message handed over last was compressed.
    #[inline]
    pub(crate) fn was_compressed(&self, call: CallKey) -> bool {
        self.calls.get(call).is_some_and(|slot| slot.encoding.is_some() && slot.deframer.is_compressed())
    }

    /// The messages that follow are compressed so.
    pub(crate) fn set_compress(&mut self, call: CallKey, compress: Compress) {
        if let Some(slot) = self.calls.get_mut(call) {
            slot.compress = compress;
        }
    }

    /// Moves what waits to the output.
    pub(crate) fn transmit(&mut self, env: &mut Env<'_>) {
        if !self.lost {
            self.see_to_held(env);
            self.connection.transmit(env);
        }
    }

    /// Whether there is something to report that needs no input.
    pub(crate) fn has_events(&self) -> bool {
        self.open_frame.is_some()
            || self.held.sheds()
            || self.calls.has_ended()
            || (!self.lost && self.connection.has_events())
    }

    /// Whether something is left to do that waits for nothing.
    pub(crate) fn has_work(&self, is_room: bool) -> bool {
        self.has_events() || is_room && !self.lost && self.connection.may_transmit()
    }

    /// When time has to be told again.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let connection = self.connection.next_deadline().filter(|_| !self.lost);
        let held = self.held.next_deadline().filter(|_| !self.lost);
        [connection, held, self.calls.next_deadline()].into_iter().flatten().min()
    }

    /// Tells the connection that time has passed.
    pub(crate) fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        if self.lost {
            return Ok(());
        }
        self.calls.shrink();
        self.look_at_held(env);
        self.connection.on_deadline(env)
    }

    /// The application took a message that had so many bytes without its prefix.
    #[inline]
    pub(crate) fn release(&mut self, env: &mut Env<'_>, call: CallKey, message_bytes: usize) {
        self.calls.taken(env.pool, call, message_bytes.saturating_add(PREFIX_LEN));
        self.credit(env, call);
    }

    /// The application will take a message at the end of the call.
    pub(crate) fn keep(&mut self, env: &mut Env<'_>, call: CallKey, message_bytes: usize) {
        if let Some(slot) = self.calls.get_mut(call) {
            slot.credit.kept(message_bytes.saturating_add(PREFIX_LEN));
        }
        self.credit(env, call);
    }

    /// How many bytes the call may queue.
    pub(crate) fn may_send(&self, call: CallKey) -> usize {
        match self.calls.get(call) {
            Some(slot) if slot.outbound != Outbound::Ended => self.connection.may_queue(slot.stream),
            _ => 0,
        }
    }

    /// Sends a message of `length` bytes that `encode` appends: straight to where output waits if it may leave at once
    /// in one frame, else into a block of its own.
    pub(crate) fn encode(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        length: usize,
        end: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MessageError> {
        let stream = self.sending_stream(call)?;
        let prefix = self.prefix(length)?;
        if let Some(slot) = self.calls.get(call)
            && let Some(choice) = slot.sends
            && choice.tries(slot.compress, length)
        {
            let compress = slot.compress;
            return self.encode_compressed(env, call, (choice, compress), length, end, encode);
        }
        let framed_length = PREFIX_LEN + length;
        let exact = if self.connection.begin_data(env, stream, framed_length, end)? {
            env.out.extend_from_slice(&prefix);
            encode_exactly(env.out.bytes_mut(), length, encode)
        } else {
            let mut block = env.pool.take(framed_length);
            block.extend_from_slice(&prefix);
            let exact = encode_exactly(block.tail_mut(), length, encode);
            self.connection.send_block(env, stream, block, end)?;
            exact
        };
        if end {
            self.end_outbound(call);
        }
        if exact { Ok(()) } else { Err(misencoded(length)) }
    }

    fn encode_compressed(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        (choice, compress): (Choice, Compress),
        length: usize,
        end: bool,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MessageError> {
        let stream = self.sending_stream(call)?;
        let mut contexts = env.pool.take_kept::<Contexts>().unwrap_or_default();
        let mut context = contexts.take_sender(&self.encodings, choice).ok_or(MessageError::Gone)?;
        let mut framed = mem::take(&mut context.framed);
        let sent = match context.frame(choice, compress, length, encode, &mut framed) {
            Ok(_) => self.connection.send_data(env, stream, &framed, end).map_err(MessageError::from),
            Err(error) => Err(MessageError::Failed(error.status())),
        };
        context.framed = framed;
        contexts.give(context);
        env.pool.keep(contexts);
        if end && sent.is_ok() {
            self.end_outbound(call);
        }
        sent
    }

    /// Sends messages that have their prefixes already.
    pub(crate) fn send_framed(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        block: Block,
    ) -> Result<(), MessageError> {
        match self.sending_stream(call) {
            Ok(stream) => Ok(self.connection.send_block(env, stream, block, false)?),
            Err(error) => {
                env.pool.give(block);
                Err(error)
            }
        }
    }

    /// Sends messages that have their prefixes already and stay with the caller.
    pub(crate) fn send_framed_slice(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        messages: &[u8],
        end: bool,
    ) -> Result<(), MessageError> {
        let stream = self.sending_stream(call)?;
        self.connection.send_data(env, stream, messages, end)?;
        if end {
            self.end_outbound(call);
        }
        Ok(())
    }

    /// Sends messages that have their prefixes already and come in pieces: they leave with the next `transmit`, in frames that span
    /// pieces.
    pub(crate) fn send_framed_parts<'p>(
        &mut self,
        env: &mut Env<'_>,
        call: CallKey,
        parts: impl IntoIterator<Item = Part<'p>>,
    ) -> Result<(), MessageError> {
        let stream = self.sending_stream(call)?;
        for part in parts {
            match part {
                Part::Slice(&[]) => {}
                Part::Slice(bytes) => self.connection.queue_data(env, stream, bytes)?,
                Part::Shared(bytes) => self.connection.queue_shared(env, stream, bytes)?,
            }
        }
        Ok(())
    }

    /// Whether a message of `length` bytes would be compressed.
    pub(crate) fn compresses(&self, call: CallKey, length: usize) -> bool {
        let slot = self.calls.get(call);
        slot.is_some_and(|slot| slot.sends.is_some_and(|choice| choice.tries(slot.compress, length)))
    }

    /// Sends END_STREAM on an empty DATA frame behind all messages.
    pub(crate) fn send_end(&mut self, env: &mut Env<'_>, call: CallKey) -> Result<(), MessageError> {
        let stream = self.sending_stream(call)?;
        self.connection.send_data(env, stream, &[], true)?;
        self.end_outbound(call);
        Ok(())
    }

    /// Ends a call with RST_STREAM, whatever its state, and has it reported.
    pub(crate) fn reset(&mut self, env: &mut Env<'_>, call: CallKey, code: ErrorCode) {
        let Some(slot) = self.calls.get(call) else { return };
        if !self.lost {
            self.connection.reset(env, slot.stream, code);
        }
        self.calls.end(call);
    }

    /// Ends a call whose answer is there, and has it reported: a server that waits for more of the request need not (RFC 9113 §8.1).
    pub(crate) fn close(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(slot) = self.calls.get(call) else { return };
        if !self.lost && !self.connection.forget(env, slot.stream) {
            self.connection.reset(env, slot.stream, ErrorCode::NoError);
        }
        self.calls.end(call);
    }

    /// Drops what waits to be sent for a call, so that its end need not wait behind it.
    pub(crate) fn drop_waiting(&mut self, env: &mut Env<'_>, call: CallKey) {
        if let Some(slot) = self.calls.get(call) {
            self.connection.drop_waiting(env, slot.stream);
        }
    }

    /// The prefix of a message of this length.
    #[inline]
    pub(crate) fn prefix(&self, length: usize) -> Result<[u8; PREFIX_LEN], TooLong> {
        let length_max = self.send_message_bytes_max.min(u32::MAX as usize);
        if length > length_max {
            return Err(TooLong { length, length_max });
        }
        let [a, b, c, d] = (length as u32).to_be_bytes();
        Ok([0, a, b, c, d])
    }

    #[inline]
    fn sending_stream(&self, call: CallKey) -> Result<StreamKey, MessageError> {
        match self.calls.get(call) {
            Some(slot) if slot.outbound != Outbound::Ended => Ok(slot.stream),
            _ => Err(MessageError::Gone),
        }
    }

    fn end_outbound(&mut self, call: CallKey) {
        if let Some(slot) = self.calls.get_mut(call) {
            slot.outbound = Outbound::Ended;
        }
    }
}

/// A message is longer than this end sends, both in bytes without the prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLong {
    pub(crate) length: usize,
    pub(crate) length_max: usize,
}

impl TooLong {
    /// The status of a call that ends for this reason.
    pub(crate) fn status(self) -> Status {
        Status::new(Code::ResourceExhausted, self.to_string())
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, length_max } = self;
        write!(f, "message of {length} bytes is longer than the limit of {length_max} bytes for sending")
    }
}

impl From<TooLong> for MessageError {
    fn from(error: TooLong) -> Self {
        Self::TooLong(error)
    }
}

impl From<SendError> for MessageError {
    /// DATA is only ever refused because the stream is gone.
    fn from(_: SendError) -> Self {
        Self::Gone
    }
}

/// What becomes of a call whose message had not the length announced.
#[cold]
pub(crate) fn misencoded(length: usize) -> MessageError {
    let text = format!("a message did not encode to the {length} bytes that were announced for it");
    MessageError::Misencoded(Status::new(Code::Internal, text))
}

/// Has `encode` append `length` bytes to `buffer`; whether it did. The buffer grows by `length` in any case, so that
/// The message that a DATA frame is, if it is one plain message of so many bytes at most.
#[inline]
pub(crate) fn plain_message(bytes: &[u8], bytes_max: usize) -> Option<&[u8]> {
    let (&[0, a, b, c, d], message) = bytes.split_first_chunk::<PREFIX_LEN>()? else { return None };
    let is_whole = message.len() == u32::from_be_bytes([a, b, c, d]) as usize;
    (is_whole && message.len() <= bytes_max).then_some(message)
}

/// the frame around the message stays whole and the connection with it.
#[inline]
pub(crate) fn encode_exactly(buffer: &mut Vec<u8>, length: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
    let end = buffer.len() + length;
    encode(buffer);
    let exact = buffer.len() == end;
    if !exact {
        buffer.resize(end, 0);
    }
    exact
}
