//! The server's end of a connection.

use std::borrow::Cow;
use std::sync::Arc;

use fulmar_base::{Closed, Env, Input, Instant};
use fulmar_http2::{Error, ErrorCode, Event as StreamEvent, Role, Template};

use crate::admission::{Admission, Admit};
use crate::call::{CallKey, Ending, Inbound, Outbound};
use crate::config::Config;
use crate::end::{End, plain_message};
use crate::event::{Body, Event};
use crate::headers::{self, Refusal, Request, StatusText};
use crate::memory::Memory;
use crate::metadata::MetadataMap;
use crate::readings::Readings;
use crate::routes::{MethodId, Routes};

mod answer;
mod receive;

pub(crate) use answer::{SHORTENED_MESSAGE_BYTES_MAX, status_fields, too_large};

/// The server's end of one connection: calls in, answers out.
///
/// # The loop contract
///
/// Poke one thing (bytes received, a deadline, a verb such as [`reply`](Self::reply)); drain
/// [`next_event`](Self::next_event) until it says `None`, always with the same [`Input`]; run what became ready, which
/// may poke again; call [`transmit`](Self::transmit), and drain once more; write what is in `env.out`; arm a timer for
/// [`next_deadline`](Self::next_deadline). Never wait while an event or output is left.
///
/// # The life of a call
///
/// [`Event::Begin`], then any number of [`Event::Message`], [`Event::HalfClosed`] when the client has sent its last one,
/// and once [`Event::Finished`]. The user answers meanwhile or afterwards with [`reply`](Self::reply), or with
/// [`send_headers`](Self::send_headers), messages and [`finish`](Self::finish). `Finished` comes when the last byte of
/// the answer was handed over, or when the call was ended from outside: by the client, by its deadline
/// (RST_STREAM(CANCEL), as `PROTOCOL-HTTP2.md` asks), by a fault in what the client sent, which the engine answers, or
/// by the end of the connection. Whatever runs for the call is to be stopped then.
pub struct Server {
    pub(crate) end: End,
    pub(crate) routes: Arc<Routes>,
    /// The message format that requests may name.
    pub(crate) content_subtype: Cow<'static, str>,
    pub(crate) status_text: StatusText,
    /// Of the call reported as finished last.
    pub(crate) ending: Ending,
    pub(crate) admit: Option<Admit>,
    pub(crate) response_head: Template,
    /// The trailers of an answer that ended well, without more.
    pub(crate) ok: Template,
    /// What the headers of requests say.
    pub(crate) readings: Readings<Request>,
}

impl Server {
    /// The server's end of a new connection.
    pub fn new(config: Config, routes: Arc<Routes>) -> Self {
        let mut end = End::new(Role::Server, &config);
        end.connection.answer_too_large_with(headers::TOO_LARGE, headers::MESSAGE);
        Self {
            end,
            routes,
            content_subtype: config.content_subtype,
            status_text: StatusText::default(),
            ending: Ending::Answered,
            admit: None,
            response_head: Template::new(),
            ok: Template::new(),
            readings: Readings::new(),
        }
    }

    /// Asks `admit` about each request from here on, before there is a call for it.
    pub fn set_admit(&mut self, admit: Admit) {
        self.admit = Some(admit);
    }

    /// Which part of [`Ages::age_max`](fulmar_http2::Ages::age_max) this connection may reach, in thousandths: 900 to 1,100 at random,
    /// so that connections which began together do not end together. To be said before anything else. Default 1,000.
    pub const fn set_age_permille(&mut self, permille: u16) {
        self.end.connection.set_age_permille(permille);
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
        loop {
            if let Some(piece) = self.end.next_piece(env, input) {
                if let Some(event) = self.on_piece(env, piece) {
                    return Ok(Some(event));
                }
            } else if let Some(call) = self.end.calls.next_ended() {
                self.ending = self.end.calls.get(call).map_or(Ending::Answered, |slot| slot.ending);
                self.end.calls.remove(env.pool, call);
                return Ok(Some(Event::Finished { call }));
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

    /// The only message of a call, if it is what comes next: in one piece, plain, and with the end of what the client sends. It counts as
    /// taken, and the client as half-closed: neither [`Event::Message`] nor [`Event::HalfClosed`] follows. To be asked right after
    /// [`Event::Begin`], with the same [`Input`]. `None`: events tell what comes.
    #[inline]
    pub fn next_only_message<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        call: CallKey,
    ) -> Option<&'i [u8]> {
        if !self.end.awaits_frame() {
            return None;
        }
        let slot = self.end.calls.get_mut(call)?;
        if slot.inbound != Inbound::Messages || slot.encoding.is_some() || slot.deframer.is_midway() {
            return None;
        }
        let stream = slot.stream;
        let bytes = self.end.connection.next_last_data(env, input, stream)?;
        let message = plain_message(bytes, self.end.receive_message_bytes_max);
        match message {
            Some(_) => slot.inbound = Inbound::Ended,
            None => self.end.on_data(input, stream, bytes, true),
        }
        message
    }

    /// Whether the client has sent all that it had with the message that was handed over last. If so, that counts as told, and no
    /// [`Event::HalfClosed`] follows; else events tell. To be asked before the next event, with the same [`Input`].
    #[inline]
    pub fn take_half_closed(&mut self, env: &Env<'_>, input: &Input<'_>, call: CallKey) -> bool {
        if self.end.take_end(env, input) != Some(call) {
            return false;
        }
        self.end.calls.get_mut(call).map(|slot| slot.inbound = Inbound::Ended).is_some()
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

    /// Time has passed: ends the calls whose deadline has come, with RST_STREAM(CANCEL) and [`Event::Finished`].
    ///
    /// # Errors
    ///
    /// Those of [`next_event`](Self::next_event).
    pub fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        while let Some(call) = self.end.calls.pop_expired(env.now) {
            self.ends_early(call, Ending::DeadlineExceeded);
            self.end.reset(env, call, ErrorCode::Cancel);
        }
        self.end.on_deadline(env)
    }

    /// The connection is lost or given up: all its calls are over, and [`next_event`](Self::next_event) says so of each.
    pub fn closed(&mut self, env: &mut Env<'_>, _closed: &Closed) {
        self.end.lost = true;
        self.end.connection.close(env);
        self.end.calls.end_all(|call| {
            if call.outbound != Outbound::Ended {
                call.ending = Ending::ConnectionLost;
            }
        });
    }

    /// Takes no new calls, tells the client so, and lets those it has go on.
    pub fn shutdown(&mut self, env: &mut Env<'_>) {
        if !self.end.lost {
            self.end.connection.drain(env);
        }
    }

    /// Whether the last call is over after [`shutdown`](Self::shutdown), or after the connection has reached one of its
    /// [`Ages`](fulmar_http2::Ages), so that it may be closed.
    pub fn is_drained(&self) -> bool {
        self.end.calls.len() == 0 && (self.end.lost || self.end.connection.is_drained())
    }

    /// The number of calls begun and not reported as finished.
    pub fn calls(&self) -> usize {
        self.end.calls.len()
    }

    /// How the call ended that [`Event::Finished`] reported last.
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// Forgets a call whose answer has left, if the client has sent all that it had too, instead of waiting for its
    /// [`Event::Finished`]. False, and nothing done, if there is something to wait for: the event will come.
    pub fn forget(&mut self, env: &mut Env<'_>, call: CallKey) -> bool {
        let Some(slot) = self.end.calls.get(call) else { return true };
        if slot.outbound != Outbound::Ended || self.end.lost || !self.end.connection.forget(env, slot.stream)
        {
            return false;
        }
        self.end.calls.remove(env.pool, call);
        true
    }

    fn ends_early(&mut self, call: CallKey, ending: Ending) {
        if let Some(slot) = self.end.calls.get_mut(call) {
            slot.ending = ending;
        }
    }

    /// The number of calls that have a deadline which has not come.
    pub fn deadlines(&self) -> usize {
        self.end.calls.deadlines()
    }

    /// The number of HTTP/2 streams that are not closed: those of calls, and of calls that are over and whose last bytes wait.
    pub fn streams(&self) -> usize {
        self.end.connection.streams()
    }

    /// When the client gives the call up; `None` also for a call that is over.
    pub fn deadline(&self, call: CallKey) -> Option<Instant> {
        self.end.calls.get(call)?.deadline
    }

    /// The path of a method, while [`Event::Begin`] is the last event: also for a call to a path that [`Routes`] does not know.
    pub fn path(&self, method: MethodId) -> &str {
        match self.routes.path(method) {
            // Visible ASCII, or it would have led to no method; asked later, it may be another section's.
            "" => {
                let path = self.end.connection.fields().find(|field| field.name == b":path");
                path.and_then(|field| str::from_utf8(field.value).ok()).unwrap_or_default()
            }
            path => path,
        }
    }

    /// The metadata of the request; empty after [`take_metadata`](Self::take_metadata) and for a call that is over.
    #[inline]
    pub fn metadata(&self, call: CallKey) -> &MetadataMap {
        let slot = self.end.calls.get(call);
        let map = slot.and_then(|slot| slot.shared_metadata.as_deref().or(slot.metadata.as_deref()));
        map.unwrap_or(MetadataMap::EMPTY)
    }

    /// Swaps the metadata of the request into `into`, whose memory serves a later call.
    pub fn take_metadata(&mut self, call: CallKey, into: &mut MetadataMap) {
        into.clear();
        let Some(slot) = self.end.calls.get_mut(call) else { return };
        match slot.shared_metadata.take() {
            Some(shared) => into.copy_from(&shared),
            None => {
                let map = slot.metadata.take();
                self.end.calls.hand_map(map, into);
            }
        }
    }

    /// Takes the metadata of the request without a copy, where that is possible: where the client sends the same again and again.
    /// Otherwise it is to be [taken](Self::take_metadata).
    #[inline]
    pub fn share_metadata(&mut self, call: CallKey) -> Option<Arc<MetadataMap>> {
        self.end.calls.get_mut(call)?.shared_metadata.take()
    }

    /// The application took a message of `message_bytes` ([`Body::len`](crate::Body::len)): the client may send as much
    /// again. To be called once for each message handed over; bytes that are never released stop the stream once they
    /// fill its window, and keep a call at a window and a message of memory.
    pub fn release(&mut self, env: &mut Env<'_>, call: CallKey, message_bytes: usize) {
        self.end.release(env, call, message_bytes);
    }

    /// What the messages of the peer are compressed with, as far as they are; `None` for plain messages.
    #[inline]
    pub fn encoding(&self, call: CallKey) -> Option<&Arc<str>> {
        self.end.encoding(call)
    }

    /// Whether the message that was handed over last was compressed: its flag was 1. To be asked before the next event.
    #[inline]
    pub fn was_compressed(&self, call: CallKey) -> bool {
        self.end.was_compressed(call)
    }

    /// How much memory this end holds, by what it is for. Takes time in proportion to the calls.
    pub fn memory(&self) -> Memory {
        let mut memory = self.end.memory();
        memory.readings =
            self.readings.memory_bytes() + self.response_head.memory_bytes() + self.ok.memory_bytes();
        memory
    }

    /// How many bytes the call may queue. Sending goes through at any time; who sends on at 0, instead of waiting for
    /// [`Event::Writable`], queues without a bound. 0 for a call that is over.
    pub fn may_send(&self, call: CallKey) -> usize {
        self.end.may_send(call)
    }

    /// Whether a request may become a call.
    fn ask(&mut self, request: &headers::Request, metadata: &MetadataMap) -> Result<(), Refusal> {
        let Some(mut admit) = self.admit.take() else { return Ok(()) };
        let (path, calls) = (self.path(request.method), self.calls());
        let admitted = admit(&Admission { path, metadata, timeout: request.timeout, calls });
        self.admit = Some(admit);
        admitted.map_err(Refusal::Status)
    }
}
