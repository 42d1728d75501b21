//! The frames that nearly all of a connection's traffic consists of, taken the shortest way: whole DATA frames of open streams,
//! and header sections that are known.
//!
//! Nothing is decided here that is not decided elsewhere too. A frame is taken here only if all the checks of
//! [`next_frame`](Connection::next_frame), [`on_data`](Connection::on_data) and [`on_headers`](Connection::on_headers) pass, and
//! nothing but counting follows from it: no update of a window, no budget spent, no probe. Any other frame stays in the input, for them.

use fulmar_base::{Env, Input};

use super::{Connection, Handshake, Role};
use crate::Event;
use crate::frame::{HEAD_BYTES, Head, Kind, flag};
use crate::known;
use crate::limits::Budgets;
use crate::stream::{Section, StreamKey};
use crate::timers::Timer;

impl Connection {
    /// The event of the next frame, if that is a usual one.
    #[inline(always)]
    pub(super) fn next_usual<'i>(&mut self, env: &mut Env<'_>, input: &Input<'i>) -> Option<Event<'i>> {
        let (head, payload) = self.peek_usual(env, input)?;
        let event = match head.kind {
            Kind::Data => self.on_usual_data(head, payload)?,
            Kind::Headers => self.on_usual_headers(env, head, payload)?,
            _ => return None,
        };
        self.take_usual(env, input, head);
        Some(event)
    }

    /// The content of the next frame, if that is usual DATA which ends this stream: what [`next_event`](Self::next_event) would tell
    /// as [`Event::Data`], and does not tell then. Else nothing is done.
    #[inline]
    pub fn next_last_data<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        stream: StreamKey,
    ) -> Option<&'i [u8]> {
        if self.has_events() {
            return None;
        }
        let (head, content) = self.peek_usual(env, input)?;
        if head.kind != Kind::Data
            || !head.has(flag::END_STREAM)
            || self.streams.get(stream)?.id != head.stream_id
        {
            return None;
        }
        self.on_usual_data(head, content)?;
        self.take_usual(env, input, head);
        Some(content)
    }

    /// The next frame, which stays in the input, if it is there as a whole and what has been before asks for nothing more than it does.
    #[inline(always)]
    fn peek_usual<'i>(&self, env: &Env<'_>, input: &Input<'i>) -> Option<(Head, &'i [u8])> {
        let is_settled = self.started
            && self.handshake == Handshake::Done
            && self.header_block.is_none()
            && self.failed.is_none()
            && env.out.len() <= self.config.output_bytes_max;
        if !is_settled {
            return None;
        }
        let remaining = input.remaining();
        let head = Head::peek(remaining)?;
        if head.length > self.config.frame_bytes_max as usize {
            return None;
        }
        Some((head, remaining.get(HEAD_BYTES..HEAD_BYTES + head.length)?))
    }

    #[inline(always)]
    fn take_usual(&mut self, env: &Env<'_>, input: &Input<'_>, head: Head) {
        input.advance(HEAD_BYTES + head.length);
        self.timers.stop(Timer::Frame);
        self.pulse.last_read = env.now;
    }

    #[inline(always)]
    fn on_usual_data<'i>(&mut self, head: Head, content: &'i [u8]) -> Option<Event<'i>> {
        let end = head.has(flag::END_STREAM);
        let is_counted = !end && Budgets::counts_data(content.len());
        if is_counted || head.has(flag::PADDED) || !self.tuner.is_idle() {
            return None;
        }
        let bytes = head.length as u32;
        if !self.receive_window.passes(bytes) {
            return None;
        }
        let (key, stream) = self.streams.find_mut(head.stream_id)?;
        if !stream.takes_content(content.len(), end) || !stream.receive_window.has_room_for(bytes) {
            return None;
        }
        self.receive_window.pass(bytes);
        stream.receive_window.take(bytes);
        stream.count_content(content.len(), end);
        stream.held_bytes += bytes;
        if end {
            stream.end_remote(key, &mut self.ended);
        }
        Some(Event::Data { stream: key, bytes: content, end })
    }

    #[inline(always)]
    fn on_usual_headers(&mut self, env: &mut Env<'_>, head: Head, block: &[u8]) -> Option<Event<'static>> {
        if head.flags & (flag::PADDED | flag::PRIORITY | flag::END_HEADERS) != flag::END_HEADERS {
            return None;
        }
        let (id, end) = (head.stream_id, head.has(flag::END_STREAM));
        if self.role == Role::Server && id > self.last_peer_id {
            return self.on_usual_request(env, id, end, block);
        }
        let version = self.decoder.version()?;
        let (key, stream) = self.streams.find_mut(id)?;
        if !stream.takes_sections() {
            return None;
        }
        let kind = match (stream.incoming, end) {
            (Section::Headers, false) => known::Kind::Response,
            (Section::Content, true) => known::Kind::Trailers,
            (Section::Headers, true) | (Section::Content, false) => return None,
        };
        self.known_section = Some(self.known.find(block, version, kind)?);
        stream.incoming = Section::Content;
        if end {
            stream.end_remote(key, &mut self.ended);
        }
        Some(Event::Headers { stream: key, end })
    }

    #[inline(always)]
    fn on_usual_request(
        &mut self,
        env: &mut Env<'_>,
        id: u32,
        end: bool,
        block: &[u8],
    ) -> Option<Event<'static>> {
        if id.is_multiple_of(2) || self.departure.ignores(id) || self.is_full() {
            return None;
        }
        let known = self.known.find(block, self.decoder.version()?, known::Kind::Request)?;
        if end && self.known.content_length(known).is_some_and(|length| length > 0) {
            return None;
        }
        Some(self.on_known_request(env, id, end, known))
    }
}
