//! What a client does with what it receives.

use std::borrow::Cow;

use fulmar_base::{Env, Input};
use fulmar_http2::{Connection, ErrorCode, Event as StreamEvent, StreamKey};

use super::{Client, GoingAway, deadline_exceeded};
use crate::call::{Call, CallKey, Inbound, Outbound};
use crate::code::Code;
use crate::encoding::Encodings;
use crate::end::Piece;
use crate::event::Event;
use crate::headers::{self, Answer, Usual};
use crate::metadata::MetadataMap;
use crate::readings::Readings;
use crate::status::Status;

/// How much of the debug data of a GOAWAY is kept, in bytes.
const GOING_AWAY_TEXT_BYTES_MAX: usize = 256;

impl Client {
    pub(super) fn on_stream_event<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        event: StreamEvent<'i>,
    ) -> Option<Event<'i>> {
        match event {
            StreamEvent::Headers { stream, end } => {
                let call = self.call_on(stream)?;
                self.on_headers(env, call, end)
            }
            StreamEvent::Data { stream, bytes, end } => {
                self.on_data(env, input, stream, bytes, end);
                None
            }
            StreamEvent::Reset { stream, user, code, unprocessed, text } => {
                let call = self.end.calls.with_user(stream, user)?;
                self.on_reset(env, call, code, unprocessed, &text);
                None
            }
            StreamEvent::Closed { stream, user } => {
                let call = self.end.calls.with_user(stream, user)?;
                self.finish_without_status(env, call);
                None
            }
            StreamEvent::Writable { stream } => {
                let call = self.call_on(stream)?;
                let slot = self.end.calls.get(call)?;
                (slot.outbound != Outbound::Ended).then_some(Event::Writable { call })
            }
            StreamEvent::GoAway { code, debug, .. } => {
                let text = &debug[..debug.len().min(GOING_AWAY_TEXT_BYTES_MAX)];
                let text = String::from_utf8_lossy(text).into_owned();
                let first = self.going_away.replace(GoingAway { code, text }).is_none();
                first.then_some(Event::GoingAway)
            }
            StreamEvent::Ready if !self.ready => {
                self.ready = true;
                Some(Event::Ready)
            }
            StreamEvent::Ready | StreamEvent::StreamSlotFree => Some(Event::Capacity),
            StreamEvent::Pong { .. } => None,
        }
    }

    pub(super) fn on_piece<'i>(&mut self, env: &mut Env<'_>, piece: Piece<'i>) -> Option<Event<'i>> {
        match piece {
            Piece::Message { call, body } => return Some(Event::Message { call, body }),
            Piece::End { call } => self.finish_without_status(env, call),
            Piece::Fault { call, status } | Piece::Exhausted { call, status } => {
                self.abort(env, call, status, ErrorCode::Cancel)
            }
        }
        None
    }

    /// Ends a call for a reason of this end's: the server is told to stop.
    pub(super) fn abort(&mut self, env: &mut Env<'_>, call: CallKey, status: Status, code: ErrorCode) {
        let Some(slot) = self.end.calls.get_mut(call).filter(|slot| slot.inbound != Inbound::Ended) else {
            return;
        };
        slot.status = Some(status);
        self.end.reset(env, call, code);
    }

    fn on_headers<'i>(&mut self, env: &mut Env<'_>, call: CallKey, end: bool) -> Option<Event<'i>> {
        let slot = self.end.calls.get_mut(call).filter(|slot| slot.inbound != Inbound::Ended)?;
        let known = self.end.connection.known_section();
        match known.and_then(|section| self.readings.peek(section)?.usual()) {
            Some(Usual::Headers { encoding }) if !end && slot.inbound == Inbound::Headers => {
                slot.inbound = Inbound::Messages;
                slot.encoding = encoding;
                Some(Event::Headers { call })
            }
            Some(Usual::Ok) if end && slot.inbound == Inbound::Messages && !slot.deframer.is_midway() => {
                self.finish(env, call, Status::default());
                // Told at once, unless others have ended before it.
                self.next_finished()
            }
            _ => self.on_unusual_headers(env, call, end),
        }
    }

    #[inline(never)]
    fn on_unusual_headers<'i>(&mut self, env: &mut Env<'_>, call: CallKey, end: bool) -> Option<Event<'i>> {
        let slot = self.end.calls.get_mut(call)?;
        if !end && slot.inbound != Inbound::Headers {
            let text = "header block without END_STREAM behind the headers of the answer";
            self.abort(env, call, Status::new(Code::Internal, text), ErrorCode::ProtocolError);
            return None;
        }
        let map = if end { slot.trailers.take() } else { slot.metadata.take() };
        let mut map = map.unwrap_or_else(|| self.end.calls.take_map());
        let section = (&self.end.connection, &self.end.encodings);
        let answer = read_answer(section, &mut self.readings, &mut map);
        let slot = self.end.calls.get_mut(call)?;
        if end {
            slot.trailers = Some(map);
            self.on_trailers(env, call, answer);
            None
        } else {
            slot.metadata = Some(map);
            self.on_answer(env, call, answer)
        }
    }

    /// A header block that opens an answer, or is an interim response. A status in it does not count.
    fn on_answer<'i>(&mut self, env: &mut Env<'_>, call: CallKey, answer: Answer) -> Option<Event<'i>> {
        let slot = self.end.calls.get_mut(call)?;
        if let 100..200 = answer.http_status {
            if let Some(metadata) = &mut slot.metadata {
                metadata.clear();
            }
            return None;
        }
        if answer.http_status != 200 || !answer.is_grpc {
            slot.inbound = Inbound::Foreign;
            slot.status = Some(headers::foreign_status(&answer));
            return None;
        }
        let unknown_encoding = answer.unknown_encoding.map(|encoding| {
            let text = format!("answer has grpc-encoding {encoding}, which was not offered");
            Status::new(Code::Internal, text)
        });
        if let Some(status) = unknown_encoding.or(answer.fault) {
            self.abort(env, call, status, ErrorCode::Cancel);
            return None;
        }
        slot.inbound = Inbound::Messages;
        slot.encoding = answer.encoding;
        Some(Event::Headers { call })
    }

    /// The header block that ends an answer, and may be all of it.
    fn on_trailers(&mut self, env: &mut Env<'_>, call: CallKey, mut answer: Answer) {
        let Some(slot) = self.end.calls.get_mut(call) else { return };
        let is_first = slot.inbound == Inbound::Headers;
        let status = match answer.status.take() {
            _ if is_first && (100..200).contains(&answer.http_status) => {
                Status::new(Code::Internal, "answer ended with an interim response")
            }
            // An error always counts, whatever HTTP says.
            Some(status) if !status.is_ok() => status,
            // But OK is not the end of what was no answer: nobody has read it.
            Some(_) if slot.inbound == Inbound::Foreign => foreign_status(slot),
            Some(_) if slot.deframer.is_midway() => {
                Status::new(Code::Internal, "answer ended with OK inside a message")
            }
            Some(status) => answer.fault.unwrap_or(status),
            None if is_first => headers::foreign_status(&answer),
            None if slot.inbound == Inbound::Foreign => foreign_status(slot),
            None => Status::new(Code::Unknown, "trailers of the answer have no grpc-status"),
        };
        self.finish(env, call, status);
    }

    fn on_data<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        stream: StreamKey,
        bytes: &'i [u8],
        end: bool,
    ) {
        let Some(call) = self.call_on(stream) else { return };
        match self.end.calls.get(call).map(|slot| slot.inbound) {
            Some(Inbound::Headers | Inbound::Foreign) => self.on_stray_data(env, call, bytes, end),
            _ => self.end.on_data(input, stream, bytes, end),
        }
    }

    /// DATA that holds no messages of an answer.
    #[cold]
    fn on_stray_data(&mut self, env: &mut Env<'_>, call: CallKey, bytes: &[u8], end: bool) {
        match self.end.calls.get_mut(call) {
            Some(slot) if slot.inbound == Inbound::Headers => {
                let status = Status::new(Code::Internal, "DATA in front of the headers of the answer");
                self.abort(env, call, status, ErrorCode::ProtocolError);
            }
            Some(slot) => {
                let stream = slot.stream;
                let has_room = slot.deframer.quote(env.pool, bytes, self.quoted_body_bytes_max);
                self.end.connection.release(env, stream, bytes.len());
                if end || !has_room {
                    self.finish_without_status(env, call);
                }
            }
            None => {}
        }
    }

    #[cold]
    fn on_reset(&mut self, env: &mut Env<'_>, call: CallKey, code: ErrorCode, unprocessed: bool, text: &str) {
        let Some(slot) = self.end.calls.get_mut(call) else { return };
        slot.unprocessed = unprocessed;
        let status = if unprocessed {
            Status::new(Code::Unavailable, format!("the server did not take the call: {text} ({code})"))
        } else if slot.inbound == Inbound::Foreign {
            foreign_status(slot)
        } else {
            let is_late = slot.deadline.is_some_and(|deadline| deadline <= env.now);
            let code_of_call = Code::from_http2_error(code.as_u32());
            // A cancellation that comes after the deadline is told with that.
            let has_text = !(is_late && code_of_call == Code::Cancelled);
            let text = if has_text { format!("{text} ({code})").into() } else { Cow::Borrowed("") };
            Status::new(code_of_call, text)
        };
        self.finish(env, call, status);
    }

    /// The answer has ended, and not with trailers.
    fn finish_without_status(&mut self, env: &mut Env<'_>, call: CallKey) {
        let Some(slot) = self.end.calls.get_mut(call) else { return };
        let status = match slot.inbound {
            Inbound::Foreign => foreign_status(slot),
            _ => Status::new(Code::Unknown, "answer ended without trailers"),
        };
        self.finish(env, call, status);
    }

    /// The call is over with this status. What is still to be sent is dropped.
    fn finish(&mut self, env: &mut Env<'_>, call: CallKey, status: Status) {
        let Some(slot) = self.end.calls.get_mut(call).filter(|slot| slot.inbound != Inbound::Ended) else {
            return;
        };
        // A server whose clock for the call ran out first cancels it.
        let too_late = status.code() == Code::Cancelled && slot.deadline.is_some_and(|at| at <= env.now);
        slot.status = Some(if too_late { deadline_exceeded() } else { status });
        if too_late && let Some(trailers) = &mut slot.trailers {
            trailers.clear();
        }
        self.end.close(env, call);
    }

    fn call_on(&self, stream: StreamKey) -> Option<CallKey> {
        self.end.calls.on_stream(&self.end.connection, stream)
    }
}

/// What the header section in hand says; its metadata is added to `metadata`.
fn read_answer(
    (connection, encodings): (&Connection, &Encodings),
    readings: &mut Readings<Answer>,
    metadata: &mut MetadataMap,
) -> Answer {
    // Metadata of interim responses was thrown away, so that there is none to add to.
    let known = connection.known_section().filter(|_| metadata.is_empty());
    if let Some(answer) = known.and_then(|section| readings.get(section, metadata)) {
        return answer.clone();
    }
    let answer = headers::read_answer(connection.fields(), encodings, metadata);
    if let Some(section) = known {
        readings.keep(section, answer.clone(), metadata);
    }
    answer
}

/// What a non-gRPC answer means, with the beginning of its body.
fn foreign_status(slot: &mut Call) -> Status {
    let status = slot.status.take().unwrap_or_default();
    let quoted = slot.deframer.quoted();
    if quoted.is_empty() {
        return status;
    }
    let quoted = String::from_utf8_lossy(quoted);
    Status::new(status.code(), format!("{}, and says {quoted:?}", status.message()))
}
