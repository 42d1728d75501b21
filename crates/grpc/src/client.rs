//! The client's end of a connection.

use std::sync::Arc;

use fulmar_base::{Closed, Env, Input, Instant};
use fulmar_http2::{Error, ErrorCode, Event as StreamEvent, Role};

use crate::call::{CallKey, Inbound};
use crate::code::Code;
use crate::config::Config;
use crate::end::End;
use crate::event::{Body, Event};
use crate::headers::Answer;
use crate::memory::Memory;
use crate::metadata::MetadataMap;
use crate::readings::Readings;
use crate::status::Status;

mod receive;
mod request;
mod templates;

pub use request::{Start, StartError};
pub(crate) use templates::Templates;

/// Who a client speaks to, as its requests say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// `http` or `https` (RFC 9113 §8.3.1).
    pub scheme: String,
    /// The host, and the port if it is not that of the scheme. Requests have no `:authority` if it is empty.
    pub authority: String,
}

/// The client's end of one connection: calls out, answers in.
///
/// # The loop contract
///
/// That of [`Server`](crate::Server): poke one thing; drain [`next_event`](Self::next_event) until it says `None`,
/// always with the same [`Input`]; run what became ready; call [`transmit`](Self::transmit) and drain once more; write
/// what is in `env.out`; arm a timer for [`next_deadline`](Self::next_deadline).
///
/// # The life of a call
///
/// [`start`](Self::start), messages, [`half_close`](Self::half_close); [`Event::Headers`] unless the answer is trailers
/// only, any number of [`Event::Message`], and once [`Event::Finished`] with the status, whatever ended the call, unless
/// that was [`cancel`](Self::cancel).
pub struct Client {
    pub(crate) end: End,
    pub(crate) identity: ClientIdentity,
    pub(crate) user_agent: String,
    pub(crate) content_type: String,
    pub(crate) quoted_body_bytes_max: usize,
    /// The value of `grpc-timeout`, in memory that is used again.
    pub(crate) timeout: Vec<u8>,
    pub(crate) templates: Templates,
    /// What the headers and trailers of answers say.
    pub(crate) readings: Readings<Answer>,
    /// The call reported as finished last, which answers until the next event.
    pub(crate) finished: Option<CallKey>,
    pub(crate) ready: bool,
    pub(crate) going_away: Option<GoingAway>,
}

/// What a server said when it announced that it takes no more calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingAway {
    /// Its reason: [`ErrorCode::NoError`] for an orderly end.
    pub code: ErrorCode,
    /// The debug data of its GOAWAY as text, cut at 256 bytes.
    pub text: String,
}

impl Client {
    /// The client's end of a new connection.
    pub fn new(config: Config, identity: ClientIdentity) -> Self {
        let end = End::new(Role::Client, &config);
        Self {
            end,
            identity,
            user_agent: config.user_agent.into_owned(),
            content_type: content_type(&config.content_subtype),
            quoted_body_bytes_max: config.quoted_body_bytes_max,
            timeout: Vec::new(),
            templates: Templates::default(),
            readings: Readings::new(),
            finished: None,
            ready: false,
            going_away: None,
        }
    }

    /// What happened next, or `None` when `input` holds no whole frame any more and nothing else has happened.
    ///
    /// # Errors
    ///
    /// The connection is over: a GOAWAY that says why is in `env.out`. Call [`closed`](Self::closed).
    pub fn next_event<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
    ) -> Result<Option<Event<'i>>, Error> {
        if let Some(call) = self.finished.take() {
            self.end.calls.remove(env.pool, call);
        }
        loop {
            if let Some(piece) = self.end.next_piece(env, input) {
                if let Some(event) = self.on_piece(env, piece) {
                    return Ok(Some(event));
                }
            } else if let Some(event) = self.next_finished() {
                return Ok(Some(event));
            } else if self.end.lost {
                return Ok(None);
            } else {
                let Some(event) = self.end.connection.next_event(env, input)? else { return Ok(None) };
                if let StreamEvent::Data { stream, bytes, end } = event
                    && let Some((call, message)) = self.end.on_plain_message(env, stream, bytes, end)
                {
                    return Ok(Some(Event::Message { call, body: Body::Lent(message) }));
                }
                if let Some(event) = self.on_stream_event(env, input, event) {
                    return Ok(Some(event));
                }
            }
        }
    }

    /// The end of the call that has ended first of those which are to be told of.
    fn next_finished<'i>(&mut self) -> Option<Event<'i>> {
        let call = self.end.calls.next_ended()?;
        self.finished = Some(call);
        Some(Event::Finished { call })
    }

    /// Moves what waits to `env.out`, as far as windows and room allow, and with it what the HTTP/2 engine collects:
    /// call it after each round of events and verbs, then drain [`next_event`](Self::next_event) again.
    pub fn transmit(&mut self, env: &mut Env<'_>) {
        self.end.transmit(env);
    }

    /// Whether [`next_event`](Self::next_event) has something to say that needs no more input.
    pub fn has_events(&self) -> bool {
        self.end.has_events()
    }

    /// Whether something is left to do that waits for nothing: an event, or, if there `is_room` for output, something to
    /// [`transmit`](Self::transmit). Who drives this end may assert that there is nothing before it waits.
    pub fn has_work(&self, is_room: bool) -> bool {
        self.end.has_work(is_room)
    }

    /// When [`on_deadline`](Self::on_deadline) wants to be called, at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.end.next_deadline()
    }

    /// Time has passed: ends the calls whose deadline has come, with RST_STREAM(CANCEL) and `DEADLINE_EXCEEDED`.
    ///
    /// # Errors
    ///
    /// Those of [`next_event`](Self::next_event).
    pub fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        while let Some(call) = self.end.calls.pop_expired(env.now) {
            self.end.connection.note_deadline_passed(env);
            self.abort(env, call, deadline_exceeded(), ErrorCode::Cancel);
        }
        self.end.on_deadline(env)
    }

    /// The connection is lost or given up: all its calls are over with `UNAVAILABLE` and the text of `closed`, and
    /// [`next_event`](Self::next_event) says so of each.
    pub fn closed(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.end.lost = true;
        self.end.connection.close(env);
        self.end.calls.end_all(|call| {
            if call.inbound != Inbound::Ended {
                call.status =
                    Some(Status::new(Code::Unavailable, format!("connection lost: {}", closed.text)));
            }
        });
    }

    /// The number of calls started and not over, with those that wait to be reported.
    pub fn calls(&self) -> usize {
        self.end.calls.len()
    }

    /// The number of calls that have a deadline which has not come.
    pub fn deadlines(&self) -> usize {
        self.end.calls.deadlines()
    }

    /// The number of HTTP/2 streams that are not closed.
    pub fn streams(&self) -> usize {
        self.end.connection.streams()
    }

    /// Whether a call more may be started, as far as the server's limit on calls at a time goes.
    pub fn has_slot(&self) -> bool {
        self.end.connection.has_slot()
    }

    /// How many calls that are not on this connection count as if they were, since they were made in its place: 0 at first.
    pub fn set_calls_beside(&mut self, count: u32) {
        self.end.connection.set_streams_beside(count);
    }

    /// Whether the settings of the server have arrived.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether this end has gone away, because it was [idle](fulmar_http2::Ages::idle_max) for too long, and the last call is over, so
    /// that the connection may be closed.
    pub fn is_drained(&self) -> bool {
        self.end.connection.is_drained() && self.end.calls.len() == 0
    }

    /// What the server said last in a GOAWAY.
    pub fn going_away(&self) -> Option<&GoingAway> {
        self.going_away.as_ref()
    }

    /// Swaps the initial metadata of the answer into `into`, whose memory serves a later call. Empty before
    /// [`Event::Headers`], for an answer that is trailers only, and for a call that is over.
    pub fn take_metadata(&mut self, call: CallKey, into: &mut MetadataMap) {
        into.clear();
        let map = self.end.calls.get_mut(call).and_then(|slot| slot.metadata.take());
        self.end.calls.hand_map(map, into);
    }

    /// The status of a call reported as finished, once; its trailers are swapped into `trailers`, whose memory serves a
    /// later call. For any other call: `UNKNOWN`, and no trailers.
    pub fn take_status(&mut self, call: CallKey, trailers: &mut MetadataMap) -> Status {
        trailers.clear();
        let slot = self.end.calls.get_mut(call).filter(|slot| slot.inbound == Inbound::Ended);
        let Some((slot, status)) = slot.and_then(|slot| slot.status.take().map(|status| (slot, status)))
        else {
            return Status::new(
                Code::Unknown,
                "the status of the call was taken before, or there is none yet",
            );
        };
        let map = slot.trailers.take();
        self.end.calls.hand_map(map, trailers);
        status
    }

    /// Whether a call reported as finished never reached the service, by the word of the server, so that it is safe to
    /// start it again on another connection: it was refused, or begun after the last one a GOAWAY names.
    pub fn unprocessed(&self, call: CallKey) -> bool {
        self.end.calls.get(call).is_some_and(|slot| slot.unprocessed)
    }

    /// When the call is given up; `None` also for a call that is over.
    pub fn deadline(&self, call: CallKey) -> Option<Instant> {
        self.end.calls.get(call)?.deadline
    }

    /// The application took a message of `message_bytes` ([`Body::len`](crate::Body::len)): the server may send as much
    /// again. To be called once for each message handed over; bytes that are never released stop the stream once they
    /// fill its window, and keep a call at a window and a message of memory.
    pub fn release(&mut self, env: &mut Env<'_>, call: CallKey, message_bytes: usize) {
        self.end.release(env, call, message_bytes);
    }

    /// Instead of [`release`](Self::release), for a message that the application takes when the call is over: the server may send as
    /// much again, but the bytes count as [held](crate::Config::held_bytes_max) until then.
    pub fn keep(&mut self, env: &mut Env<'_>, call: CallKey, message_bytes: usize) {
        self.end.keep(env, call, message_bytes);
    }

    /// What the messages of the peer are compressed with, as far as they are; `None` for plain messages.
    pub fn encoding(&self, call: CallKey) -> Option<&Arc<str>> {
        self.end.encoding(call)
    }

    /// Whether the message that was handed over last was compressed: its flag was 1. To be asked before the next event.
    pub fn was_compressed(&self, call: CallKey) -> bool {
        self.end.was_compressed(call)
    }

    /// How much memory this end holds, by what it is for. Takes time in proportion to the calls.
    pub fn memory(&self) -> Memory {
        let mut memory = self.end.memory();
        memory.readings = self.templates.memory_bytes() + self.readings.memory_bytes();
        memory
    }

    /// How many bytes the call may queue. Sending goes through at any time; who sends on at 0, instead of waiting for
    /// [`Event::Writable`], queues without a bound. 0 for a call that is over.
    pub fn may_send(&self, call: CallKey) -> usize {
        self.end.may_send(call)
    }
}

/// The content-type of messages in this format.
fn content_type(subtype: &str) -> String {
    let mut content_type = String::new();
    write_content_type(subtype, &mut content_type);
    content_type
}

pub(crate) fn write_content_type(subtype: &str, into: &mut String) {
    into.push_str("application/grpc");
    // Short for what every peer understands, and most send.
    if subtype != "proto" {
        into.push('+');
        into.push_str(subtype);
    }
}

pub(crate) fn deadline_exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "deadline passed before the answer was complete")
}
