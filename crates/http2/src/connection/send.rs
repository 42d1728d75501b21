//! What the user sends. Control frames and headers are written at once, so that the order of compression is that of the wire; only
//! DATA waits, and trailers behind the DATA of their own stream.

use bytes::Bytes;
use fulmar_base::{Block, Env};
use fulmar_hpack::Field;

use super::{Connection, Role};
use crate::frame::{self, HEAD_BYTES, Head, Kind, flag};
use crate::section::{Plain, Section as HeaderSection};
use crate::stream::{Section, State, Stream, StreamKey};
use crate::waiting::{Chunk, End, Waiting};
use crate::{OpenError, SendError};

/// What came of [`Connection::send_response`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The whole response, and with it the end of the stream.
    All,
    /// Header section and content.
    WithoutTrailers,
    /// It may not leave at once, or it must not be sent: sending it in parts tells.
    Nothing,
}

impl Connection {
    /// Client: opens a stream with a request (RFC 9113 §8.3.1). `end`: nothing follows the header section. The fields must be
    /// well-formed; only their size is checked. While more than [`Config::output_bytes_max`](crate::Config::output_bytes_max)
    /// waits on a server that does not read, no stream is opened, as if as many were open as may be.
    ///
    /// # Errors
    ///
    /// Nothing was written and no stream id is used up: see [`OpenError`].
    pub fn open<'f, I>(&mut self, env: &mut Env<'_>, fields: I, end: bool) -> Result<StreamKey, OpenError>
    where
        I: IntoIterator<Item = Field<'f>> + Clone,
    {
        let head_request =
            fields.clone().into_iter().any(|field| field.name == b":method" && field.value == b"HEAD");
        let key = self.open_with(env, Plain(fields), end)?;
        if head_request && let Some(stream) = self.streams.get_mut(key) {
            stream.head_request = true;
        }
        Ok(key)
    }

    /// Client: [`open`](Self::open) with a header section in parts, which is not that of a HEAD request.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        &mut self,
        env: &mut Env<'_>,
        mut section: impl HeaderSection,
        end: bool,
    ) -> Result<StreamKey, OpenError> {
        if env.now >= self.pulse.attention {
            self.look_at_pulse(env);
        }
        if self.role == Role::Server || self.is_going_away() {
            return Err(OpenError::GoingAway);
        }
        if self.next_id > self.config.stream_id_max {
            return Err(OpenError::Exhausted);
        }
        if !self.has_slot() || env.out.len() > self.config.output_bytes_max {
            self.slot_wanted = true;
            return Err(OpenError::LimitReached);
        }
        let limit = self.peer.header_list_bytes_max as usize;
        let size = section.list_bytes();
        if size > limit {
            return Err(OpenError::HeadersTooLarge { size, limit });
        }
        self.start(env);
        let mut stream = self.new_stream(env, self.next_id);
        self.next_id += 2;
        self.budgets.on_stream();
        stream.outgoing = Section::Content;
        if end {
            stream.state = State::HalfClosedLocal;
        }
        self.write_headers(env, stream.id, section, end);
        Ok(self.streams.insert(stream))
    }

    /// Sends a header section: a response, an interim one (status 1xx), or trailers, which need `end`. The fields must be
    /// well-formed; only their size is checked. Trailers wait behind the DATA of their stream that waits. An interim response, which
    /// nobody has to send, is left out while more than [`Config::output_bytes_max`](crate::Config::output_bytes_max) waits.
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn send_headers<'f, I>(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        fields: I,
        end: bool,
    ) -> Result<(), SendError>
    where
        I: IntoIterator<Item = Field<'f>> + Clone,
    {
        let is_interim = !end && is_interim(fields.clone());
        self.send_section(env, stream, Plain(fields), end, is_interim)
    }

    /// [`send_headers`](Self::send_headers) with a header section in parts, which is not an interim response.
    ///
    /// # Errors
    ///
    /// As [`send_headers`](Self::send_headers).
    pub fn send_headers_with(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        section: impl HeaderSection,
        end: bool,
    ) -> Result<(), SendError> {
        self.send_section(env, stream, section, end, false)
    }

    fn send_section(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        mut section: impl HeaderSection,
        end: bool,
        is_interim: bool,
    ) -> Result<(), SendError> {
        let limit = self.peer.header_list_bytes_max as usize;
        let output_bytes_max = self.config.output_bytes_max;
        let stream = self.sending(key)?;
        if stream.outgoing == Section::Content && !end {
            return Err(SendError::Misplaced);
        }
        let size = section.list_bytes();
        if size > limit {
            return Err(SendError::HeadersTooLarge { size, limit });
        }
        if !is_interim {
            stream.outgoing = Section::Content;
        } else if env.out.len() > output_bytes_max {
            return Ok(());
        }
        if let Some(waiting) = &mut stream.waiting {
            waiting.end = End::Trailers;
            section.copy_to(&mut waiting.trailers);
            return Ok(());
        }
        let id = stream.id;
        self.write_headers(env, id, section, end);
        if end {
            self.end_local(env, key);
        }
        Ok(())
    }

    /// Sends DATA. What may leave goes into the output; the rest is copied and waits. `end`: nothing follows.
    ///
    /// Never refuses for windows: stop when [`may_queue`](Self::may_queue) is 0 and wait for
    /// [`Event::Writable`](crate::Event::Writable).
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn send_data(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        bytes: &[u8],
        end: bool,
    ) -> Result<(), SendError> {
        if self.begin_data(env, stream, bytes.len(), end)? {
            env.out.extend_from_slice(bytes);
        } else {
            self.send_in_parts(env, stream, Chunk::Lent(bytes), end);
        }
        Ok(())
    }

    /// Like [`send_data`](Self::send_data); what has to wait stays in the block instead of being copied. The block goes back to
    /// the pool when it is sent, or at once on an error.
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn send_block(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        block: Block,
        end: bool,
    ) -> Result<(), SendError> {
        self.send(env, stream, Chunk::Block(block), end)
    }

    /// Like [`send_data`](Self::send_data), without a copy for what leaves in frames of
    /// [`Output::SHARED_MIN`](fulmar_base::Output::SHARED_MIN) and more.
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn send_shared(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        bytes: Bytes,
        end: bool,
    ) -> Result<(), SendError> {
        self.send(env, stream, Chunk::Shared(bytes), end)
    }

    /// Like [`send_data`](Self::send_data), but nothing leaves before the next [`transmit`](Self::transmit): so content that comes in
    /// pieces, some of a caller that keeps them and some shared, fills frames as if it were in one.
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn queue_data(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        self.queue(env, stream, Chunk::Lent(bytes))
    }

    /// [`queue_data`](Self::queue_data) of bytes that are not copied if they are many.
    ///
    /// # Errors
    ///
    /// Nothing was sent: see [`SendError`].
    pub fn queue_shared(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        bytes: Bytes,
    ) -> Result<(), SendError> {
        self.queue(env, stream, Chunk::Shared(bytes))
    }

    /// The fast path for content that the caller encodes itself: if `len` bytes may leave now in one frame, writes the head of
    /// that frame and returns true; then the caller must append exactly `len` bytes to
    /// [`Output::bytes_mut`](fulmar_base::Output::bytes_mut) before anything else is written. On false nothing has happened.
    ///
    /// # Errors
    ///
    /// As [`send_data`](Self::send_data).
    #[inline]
    pub fn begin_data(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        len: usize,
        end: bool,
    ) -> Result<bool, SendError> {
        let key = stream;
        let length_max = self.direct_length_max(env, len);
        let stream = self.sending(key)?;
        if stream.outgoing == Section::Headers {
            return Err(SendError::Misplaced);
        }
        let may_leave = len == 0 || len <= length_max.min(stream.send_window.available());
        if !may_leave || stream.waiting.is_some() {
            return Ok(false);
        }
        if len > 0 || end {
            let flags = if end { flag::END_STREAM } else { 0 };
            let head = Head { length: len, kind: Kind::Data, flags, stream_id: stream.id };
            env.out.extend_from_slice(&head.to_bytes());
            stream.send_window.consume(len);
            self.send_window.consume(len);
            self.budgets.on_data_sent(len, true);
            self.streams.note_passed(len);
        }
        if end {
            self.end_local(env, key);
        }
        Ok(true)
    }

    /// Server: sends a whole response in one go, if all of it may leave now: the header section, content of `len` bytes in one frame,
    /// which `write` appends, and trailers. Nothing is done if it may not, or if a section is larger than the peer takes: then the
    /// parts have to be sent one by one.
    ///
    /// `write` must append exactly `len` bytes, and says whether they are what they should be; if they are not, there are no trailers,
    /// and the stream goes on.
    #[inline]
    pub fn send_response(
        &mut self,
        env: &mut Env<'_>,
        stream: StreamKey,
        mut head: impl HeaderSection,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
        mut trailers: impl HeaderSection,
    ) -> Sent {
        let key = stream;
        let length_max = self.direct_length_max(env, len);
        let list_bytes_max = self.peer.header_list_bytes_max as usize;
        let Ok(stream) = self.sending(key) else { return Sent::Nothing };
        if stream.outgoing != Section::Headers
            || stream.waiting.is_some()
            || len > length_max.min(stream.send_window.available())
            || head.list_bytes() > list_bytes_max
            || trailers.list_bytes() > list_bytes_max
        {
            return Sent::Nothing;
        }
        let id = stream.id;
        stream.outgoing = Section::Content;
        stream.send_window.consume(len);
        self.send_window.consume(len);
        self.budgets.on_data_sent(len, true);
        self.streams.note_passed(len);
        self.write_headers(env, id, head, false);
        let data = Head { length: len, kind: Kind::Data, flags: 0, stream_id: id };
        env.out.extend_from_slice(&data.to_bytes());
        if !write(env.out.bytes_mut()) {
            return Sent::WithoutTrailers;
        }
        self.write_headers(env, id, trailers, true);
        self.end_local(env, key);
        Sent::All
    }

    /// Drops the DATA that waits on a stream, so that what ends the stream need not wait behind it. Nothing if the end of the stream
    /// waits already.
    pub fn drop_waiting(&mut self, env: &mut Env<'_>, stream: StreamKey) {
        let Some(open) = self.streams.get_mut(stream).filter(|stream| stream.takes_more()) else { return };
        let Some(waiting) = open.waiting.take() else { return };
        self.take_from_backlog(waiting.bytes());
        self.recycle(env, waiting);
        self.streams.update_queue(stream);
        self.announce_room(stream, End::Open);
    }

    /// How many bytes of DATA would leave at once: the least of both windows and the room in the output; 0 while anything waits
    /// on the stream, or other streams wait for their turn.
    pub fn credit(&self, env: &Env<'_>, stream: StreamKey) -> usize {
        if self.sending_ref(stream).is_none() {
            return 0;
        }
        self.direct_allowance(env, stream).min(env.out.room())
    }

    /// How many more bytes should wait on the stream: [`Config::send_queue_bytes_max`](crate::Config::send_queue_bytes_max) less
    /// what waits. 0 also if nothing more may be sent.
    pub fn may_queue(&self, stream: StreamKey) -> usize {
        let waiting = self.sending_ref(stream).map(Stream::waiting_bytes);
        waiting.map_or(0, |waiting| self.config.send_queue_bytes_max.saturating_sub(waiting))
    }

    /// Whether a stream may be opened, as far as the limit on concurrent streams goes. Client.
    pub fn has_slot(&self) -> bool {
        self.streams.len() + (self.streams_beside as usize) < self.streams_allowed()
    }

    /// How many calls that have no stream of this connection count as one all the same, since they were made in its place: 0 at first.
    /// Client.
    pub fn set_streams_beside(&mut self, count: u32) {
        self.streams_beside = count;
        self.offer_slot();
    }

    /// How many streams may be open at once. Client.
    pub(super) fn streams_allowed(&self) -> usize {
        self.peer.streams_max.unwrap_or(self.config.streams_assumed).min(self.config.streams_max) as usize
    }

    /// Encodes a header section into the output.
    #[inline]
    pub(super) fn write_headers(
        &mut self,
        env: &mut Env<'_>,
        id: u32,
        section: impl HeaderSection,
        end: bool,
    ) {
        let frame_bytes_max = self.max_frame();
        let out = env.out.bytes_mut();
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin_block(out);
        section.encode(&mut self.encoder, out);
        frame::finish_header_block(id, end, frame_bytes_max, start, out);
        self.budgets.pings.fill();
    }

    /// Writes the head of a DATA frame whose payload follows at once, and takes it from the windows. `whole`: it is all that there
    /// is to send. With `end`, the caller ends the stream behind the payload.
    pub(super) fn begin_frame(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        length: usize,
        whole: bool,
        end: bool,
    ) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let flags = if end { flag::END_STREAM } else { 0 };
        let head = Head { length, kind: Kind::Data, flags, stream_id: stream.id };
        env.out.extend_from_slice(&head.to_bytes());
        stream.send_window.consume(length);
        self.send_window.consume(length);
        self.budgets.on_data_sent(length, whole);
    }

    fn send(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        mut chunk: Chunk<'_>,
        end: bool,
    ) -> Result<(), SendError> {
        match self.begin_data(env, key, chunk.len(), end) {
            Ok(false) => {}
            Ok(true) => {
                chunk.write(chunk.len(), env.out);
                chunk.give_back(env.pool);
                return Ok(());
            }
            Err(error) => {
                chunk.give_back(env.pool);
                return Err(error);
            }
        }
        self.send_in_parts(env, key, chunk, end);
        Ok(())
    }

    fn queue(&mut self, env: &mut Env<'_>, key: StreamKey, chunk: Chunk<'_>) -> Result<(), SendError> {
        if self.sending(key)?.outgoing == Section::Headers {
            return Err(SendError::Misplaced);
        }
        self.wait(env, key, chunk, false);
        Ok(())
    }

    /// Sends content that does not leave at once in one frame.
    fn send_in_parts(&mut self, env: &mut Env<'_>, key: StreamKey, mut chunk: Chunk<'_>, end: bool) {
        while chunk.len() > 0 || end && !self.has_waiting(key) {
            let length = self.frame_allowance(env, key).min(chunk.len());
            if length == 0 && chunk.len() > 0 {
                break;
            }
            let last = length == chunk.len();
            self.begin_frame(env, key, length, last, end && last);
            chunk.write(length, env.out);
            if last {
                chunk.give_back(env.pool);
                if end {
                    self.end_local(env, key);
                }
                return;
            }
        }
        self.wait(env, key, chunk, end);
    }

    /// Lets content wait for its turn.
    fn wait(&mut self, env: &mut Env<'_>, key: StreamKey, chunk: Chunk<'_>, end: bool) {
        let Some(stream) = self.streams.get_mut(key) else { return chunk.give_back(env.pool) };
        let bytes = chunk.len();
        if bytes > 0 {
            let spare = &mut self.spare;
            let waiting = stream.waiting.get_or_insert_with(|| {
                let mut waiting = spare.pop().unwrap_or_else(|| Box::new(Waiting::new()));
                waiting.moved = env.now;
                waiting
            });
            waiting.push(chunk, env.pool);
            stream.writable_owed = true;
        } else {
            chunk.give_back(env.pool);
        }
        if end && let Some(waiting) = &mut stream.waiting {
            waiting.end = End::Stream;
        }
        self.add_to_backlog(env, bytes);
        self.watch_credit(env);
        self.streams.update_queue(key);
    }

    /// How long the frame of DATA with so many bytes may be that leaves at once on a stream on which nothing waits, but for the
    /// window of the stream.
    #[inline]
    fn direct_length_max(&self, env: &Env<'_>, len: usize) -> usize {
        let is_free = self.streams.lets_pass(len) && env.out.room() > 0;
        if is_free { self.send_window.available().min(self.max_frame()) } else { 0 }
    }

    /// The stream, if the user may still send on it.
    #[inline]
    fn sending(&mut self, key: StreamKey) -> Result<&mut Stream, SendError> {
        if self.failed.is_some() {
            return Err(SendError::Gone);
        }
        self.streams.get_mut(key).filter(|stream| stream.takes_more()).ok_or(SendError::Gone)
    }

    fn sending_ref(&self, key: StreamKey) -> Option<&Stream> {
        self.streams.get(key).filter(|stream| stream.takes_more() && self.failed.is_none())
    }

    fn has_waiting(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_some_and(|stream| stream.waiting.is_some())
    }

    /// How many bytes may leave on the stream without waiting for a turn: none while anything waits for one.
    fn direct_allowance(&self, env: &Env<'_>, key: StreamKey) -> usize {
        if !self.streams.queue_is_empty() || self.has_waiting(key) { 0 } else { self.allowance(env, key) }
    }

    /// The same for one frame.
    fn frame_allowance(&self, env: &Env<'_>, key: StreamKey) -> usize {
        self.direct_allowance(env, key).min(self.max_frame())
    }
}

/// Whether a header section is that of an interim response (RFC 9110 §15.2).
fn is_interim<'f>(fields: impl IntoIterator<Item = Field<'f>>) -> bool {
    let first = fields.into_iter().next();
    first.is_some_and(|field| field.name == b":status" && field.value.len() == 3 && field.value[0] == b'1')
}
