//! How a connection and its streams begin and end.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use fulmar_base::{Env, Fault, Line};
use smallvec::SmallVec;

use super::{Connection, Role};
use crate::closed_streams::EndedBy;
use crate::frame::{self, PREFACE, STREAM_ID_MAX};
use crate::settings;
use crate::stream::{State, Stream, StreamKey};
use crate::streams::Removed;
use crate::timers::{Timer, Timers};
use crate::waiting::Waiting;
use crate::{Error, ErrorCode, Event, Reach};

/// Payload of the PING behind the first GOAWAY of a graceful shutdown: its answer proves that the peer has read both.
const DRAIN_PING: [u8; 8] = *b"draining";

/// The most debug data in a GOAWAY, in bytes: a sentence or two.
const DEBUG_BYTES_MAX: usize = 1024;

/// The most waiting queues kept for streams to come.
const SPARE_MAX: usize = 16;

/// How long a connection has had no stream when it gives memory back: long enough that a burst of calls finds what the one before it
/// used.
const SHRINK_MS: u32 = 10_000;

/// What an idle connection keeps: the memory of a few streams and fields, so that one which is used by few at a time never gives
/// any back and never takes any.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// Who has said that the connection goes away (RFC 9113 §6.8).
#[derive(Default, Debug)]
pub(super) struct Departure {
    own: OwnDeparture,
    /// Why, if this end began it.
    reason: Reason,
    /// The last stream id of the peer's GOAWAY.
    pub(super) of_peer: Option<u32>,
}

/// Why an end goes away of its own accord.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Reason {
    /// Its user says so.
    #[default]
    Asked,
    /// It has had no stream for too long.
    Idle,
    /// It is too old.
    Age,
}

impl Reason {
    /// The debug data of its GOAWAY (gRFC A9).
    const fn debug(self) -> &'static [u8] {
        match self {
            Self::Asked => b"",
            Self::Idle => b"max_idle",
            Self::Age => b"max_age",
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
enum OwnDeparture {
    #[default]
    None,
    /// Our first GOAWAY of two has left, with the highest id there is; streams are still taken.
    Announced,
    /// Streams above this id are ignored.
    Settled { last_id: u32 },
}

impl Departure {
    /// Whether streams with this id come too late.
    pub(super) const fn ignores(&self, id: u32) -> bool {
        matches!(self.own, OwnDeparture::Settled { last_id } if id > last_id)
    }
}

/// The pings that the upper layer has sent and that are not answered, oldest first.
#[derive(Default, Debug)]
pub(super) struct Pings {
    unanswered: SmallVec<[[u8; 8]; 2]>,
}

impl Pings {
    /// The most pings whose answers are told from ones never asked for.
    const UNANSWERED_MAX: usize = 16;

    fn sent(&mut self, payload: [u8; 8]) {
        if self.unanswered.len() == Self::UNANSWERED_MAX {
            self.unanswered.remove(0);
        }
        self.unanswered.push(payload);
    }

    pub(super) fn are_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Bytes of memory held besides the connection's own.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.unanswered.spilled() { self.unanswered.capacity() * size_of::<[u8; 8]>() } else { 0 }
    }

    fn answered(&mut self, payload: [u8; 8]) -> bool {
        let position = self.unanswered.iter().position(|&sent| sent == payload);
        position.map(|position| self.unanswered.remove(position)).is_some()
    }
}

impl Connection {
    /// What pings under way hold at most besides the connection itself, in bytes.
    pub(crate) const PINGS_BYTES_MAX: usize = Pings::UNANSWERED_MAX * size_of::<[u8; 8]>();

    /// Ends a stream before its time with RST_STREAM (RFC 9113 §5.4.2): what waits on it is dropped, its key is gone, and no event
    /// follows. Nothing if the stream has gone, or both ends have ended it.
    pub fn reset(&mut self, env: &mut Env<'_>, stream: StreamKey, code: ErrorCode) {
        let Some(ending) = self.streams.get(stream).filter(|stream| !stream.is_ended()) else { return };
        frame::reset_stream(ending.id, code, env.out.bytes_mut());
        self.remove(env, stream);
    }

    /// Forgets a stream that both ends have ended, instead of waiting for its [`Event::Closed`]. False, and nothing done, if there is
    /// no such stream, or it goes on.
    pub fn forget(&mut self, env: &mut Env<'_>, stream: StreamKey) -> bool {
        if !self.streams.get(stream).is_some_and(Stream::is_ended) {
            return false;
        }
        self.ended.take_back(&stream);
        self.remove(env, stream);
        self.note_ended_by_both();
        true
    }

    /// A stream has ended as it should: both ends have sent something on it.
    #[inline]
    pub(super) fn note_ended_by_both(&mut self) {
        self.budgets.resets_received.earn(1);
        self.pulse.unbidden = 0;
    }

    /// Server: ends a stream with RST_STREAM behind the END_STREAM that was sent or waits, unless the client ends it as well by then:
    /// whoever has sent the whole response wants no more of the request, with [`ErrorCode::NoError`] (RFC 9113 §8.1). Meanwhile
    /// what the client sends is discarded without an event and without credit; [`Event::Closed`] follows in any case.
    ///
    /// The same as [`reset`](Self::reset) on a stream whose sending side is not ended, and for a client: if both ends waited for
    /// credit while they give none, neither would ever get any.
    pub fn reset_after_end(&mut self, env: &mut Env<'_>, stream: StreamKey, code: ErrorCode) {
        let Some(ending) = self.streams.get_mut(stream).filter(|stream| !stream.is_ended()) else { return };
        if ending.takes_more() || self.role == Role::Client {
            return self.reset(env, stream, code);
        }
        ending.discarding = Some(code);
        if !ending.end_waits() {
            self.reset_discarding(env, stream);
        }
    }

    /// Sends GOAWAY (RFC 9113 §6.8): open streams go on, later ones of the peer are ignored, [`open`](Self::open) fails. The last
    /// stream id is that of the last stream that was delivered. `debug` is cut at 1 KiB.
    pub fn go_away(&mut self, env: &mut Env<'_>, code: ErrorCode, debug: &[u8]) {
        self.start(env);
        // No stream above an earlier last id is processed, so that this one is not higher.
        let last_id = self.last_processed_id;
        self.departure.own = OwnDeparture::Settled { last_id };
        self.timers.stop(Timer::Drain);
        frame::go_away(last_id, code, &debug[..debug.len().min(DEBUG_BYTES_MAX)], env.out.bytes_mut());
    }

    /// Begins to shut down gracefully (RFC 9113 §6.8). A server announces GOAWAY with the highest stream id there is, still takes
    /// streams until its PING is answered or [`Config::drain_ms`](crate::Config::drain_ms) is over, then settles the last stream
    /// id; so that no request which was under way is lost. A client has nothing to wait for. Nothing if the connection is going
    /// away already.
    pub fn drain(&mut self, env: &mut Env<'_>) {
        self.depart(env, Reason::Asked);
    }

    /// [`drain`](Self::drain), for a reason that the peer is told.
    pub(super) fn depart(&mut self, env: &mut Env<'_>, reason: Reason) {
        if self.departure.own != OwnDeparture::None {
            return;
        }
        self.departure.reason = reason;
        if self.role == Role::Client {
            return self.go_away(env, ErrorCode::NoError, reason.debug());
        }
        self.start(env);
        self.departure.own = OwnDeparture::Announced;
        frame::go_away(STREAM_ID_MAX, ErrorCode::NoError, reason.debug(), env.out.bytes_mut());
        frame::ping(DRAIN_PING, false, env.out.bytes_mut());
        let wait_ms = match self.streams.len() {
            0 => self.config.drain_ms.min(self.config.drain_idle_ms),
            _ => self.config.drain_ms,
        };
        self.set_timer(env, Timer::Drain, wait_ms);
    }

    /// Whether this end has sent its last GOAWAY and no stream is left: time to close.
    pub fn is_drained(&self) -> bool {
        matches!(self.departure.own, OwnDeparture::Settled { .. }) && self.streams.len() == 0
    }

    /// Whether either end has sent GOAWAY, or the connection has failed.
    pub fn is_going_away(&self) -> bool {
        self.departure.own != OwnDeparture::None || self.departure.of_peer.is_some() || self.failed.is_some()
    }

    /// Sends a PING (RFC 9113 §6.7); its answer is [`Event::Pong`]. The answers to the last 16 unanswered ones are told from
    /// acknowledgements never asked for, which are ignored.
    pub fn ping(&mut self, env: &mut Env<'_>, payload: [u8; 8]) {
        self.start(env);
        self.pings.sent(payload);
        frame::ping(payload, false, env.out.bytes_mut());
    }

    /// The time of [`next_deadline`](Self::next_deadline) has come. May be called early or late.
    ///
    /// # Errors
    ///
    /// The peer has let a deadline pass; as in [`next_event`](Self::next_event).
    pub fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        while let Some(timer) = self.timers.take_expired(env.now) {
            let error = match timer {
                Timer::Preface => Error::peer(
                    ErrorCode::SettingsTimeout,
                    "preface_ms: the peer's preface and SETTINGS have not arrived in time",
                ),
                Timer::SettingsAck => Error::peer(
                    ErrorCode::SettingsTimeout,
                    "settings_ack_ms: the peer has not acknowledged SETTINGS in time",
                ),
                Timer::Frame => Error::calm("frame_ms: a frame has not arrived whole in time"),
                Timer::HeaderBlock => Error::calm("header_block_ms: a header block has not ended in time"),
                Timer::Stall if self.backlog.stalls() => {
                    Error::calm("stall_ms: too much waits for a client that gives no credit")
                }
                Timer::Stall => {
                    self.watch_backlog(env);
                    continue;
                }
                Timer::Credit => match self.end_streams_without_credit(env) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Timer::Drain => {
                    self.go_away(env, ErrorCode::NoError, self.departure.reason.debug());
                    continue;
                }
                Timer::Keepalive => match self.on_keepalive(env, false) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Timer::Idle => {
                    self.on_idle(env);
                    continue;
                }
                Timer::Age => match self.on_age(env) {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Timer::Shrink => {
                    self.shrink();
                    continue;
                }
            };
            self.fail(env, error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// The transport has gone: gives every block back to the pool and forgets all streams, without further events.
    pub fn close(&mut self, env: &mut Env<'_>) {
        while let Some((_, key)) = self.streams.last() {
            self.remove(env, key);
        }
        if let Some(block) = self.header_block.take() {
            env.pool.give(block.bytes);
        }
        self.events.clear();
        self.ended.clear();
        self.backlog.clear();
        self.timers = Timers::default();
        self.failed.get_or_insert_with(|| Error {
            fault: Fault::Local,
            reach: Reach::Connection,
            code: ErrorCode::NoError,
            text: "the transport has gone".into(),
        });
    }

    /// Writes our preface and SETTINGS (RFC 9113 §3.4), once.
    #[inline]
    pub(super) fn start(&mut self, env: &mut Env<'_>) {
        if !self.started {
            self.write_preface(env);
        }
    }

    #[cold]
    fn write_preface(&mut self, env: &mut Env<'_>) {
        self.started = true;
        let out = env.out.bytes_mut();
        if self.role == Role::Client {
            out.extend_from_slice(PREFACE);
        }
        frame::settings(settings::own(self.role, &self.config), out);
        if let Some(increment) = self.receive_window.grow(self.config.connection_window_bytes) {
            frame::window_update(0, increment, out);
        }
        self.set_timer(env, Timer::Preface, self.config.preface_ms);
        self.set_timer(env, Timer::SettingsAck, self.config.settings_ack_ms);
        self.start_pulse(env);
    }

    /// Ends the connection for an error (RFC 9113 §5.4.1).
    #[cold]
    pub(super) fn fail(&mut self, env: &mut Env<'_>, error: Error) {
        if self.failed.is_none() {
            self.go_away(env, error.code, error.text.as_bytes());
            self.timers = Timers::default();
            self.failed = Some(error);
        }
    }

    /// Ends an open stream for what the peer sent (RFC 9113 §5.4.2).
    #[cold]
    pub(super) fn stream_error(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        code: ErrorCode,
        text: impl Into<Cow<'static, str>>,
    ) -> Result<Option<Event<'static>>, Error> {
        let Some(stream) = self.remove(env, key) else { return Ok(None) };
        self.provoked_reset(env, stream.id, code)?;
        let text = text.into();
        Ok(Some(Event::Reset { stream: key, user: stream.user, code, unprocessed: false, text }))
    }

    /// Sends RST_STREAM for what the peer sent. Each counts, whether or not there was a stream (CVE-2025-8671).
    pub(super) fn provoked_reset(
        &mut self,
        env: &mut Env<'_>,
        id: u32,
        code: ErrorCode,
    ) -> Result<(), Error> {
        self.budgets.resets_provoked.spend(env.now, self.budgets.refill)?;
        frame::reset_stream(id, code, env.out.bytes_mut());
        Ok(())
    }

    /// A PING of ours was answered, or somebody says so.
    pub(super) fn on_pong(
        &mut self,
        env: &mut Env<'_>,
        payload: [u8; 8],
    ) -> Result<Option<Event<'static>>, Error> {
        if self.pings.answered(payload) {
            return Ok(Some(Event::Pong { payload }));
        }
        if let Some(window_bytes) = self.tuner.on_answer(payload, env.now) {
            if let Some(increment) = self.receive_window.grow(window_bytes) {
                frame::window_update(0, increment, env.out.bytes_mut());
            }
            return Ok(None);
        }
        if self.departure.own == OwnDeparture::Announced && payload == DRAIN_PING {
            self.go_away(env, ErrorCode::NoError, self.departure.reason.debug());
            return Ok(None);
        }
        if self.has_asked(payload) {
            return Ok(None);
        }
        self.ignore(env).map(|()| None)
    }

    /// Our END_STREAM has been written.
    #[inline]
    pub(super) fn end_local(&mut self, env: &mut Env<'_>, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.state.end_local();
        if stream.state == State::Closed {
            self.ended.push_back(key);
        } else if stream.discarding.is_some() {
            self.reset_discarding(env, key);
        }
    }

    /// Resets a stream of which the application wants no more, if it does. It stays until its event is delivered.
    fn reset_discarding(&mut self, env: &mut Env<'_>, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if let Some(code) = stream.discarding {
            stream.reset_sent = true;
            frame::reset_stream(stream.id, code, env.out.bytes_mut());
            self.ended.push_back(key);
        }
    }

    /// Forgets a stream.
    #[inline]
    pub(super) fn remove(&mut self, env: &mut Env<'_>, key: StreamKey) -> Option<Removed> {
        let (stream, waiting) = self.streams.remove(key)?;
        if let Some(waiting) = waiting {
            self.take_from_backlog(waiting.bytes());
            self.recycle(env, waiting);
        }
        if !stream.state.may_receive() {
            self.closed_streams.remember(stream.id, EndedBy::EndStream);
        }
        self.offer_slot();
        if self.streams.len() == 0 {
            self.note_idle(env.now);
            if !self.timers.runs(Timer::Shrink) && self.spare_memory() > KEPT_BYTES_MAX {
                self.set_timer(env, Timer::Shrink, SHRINK_MS);
            }
        }
        Some(stream)
    }

    /// Gives memory back, unless streams have been opened meanwhile.
    fn shrink(&mut self) {
        if self.streams.len() == 0 && !self.has_events() {
            self.streams.shrink();
            (self.events, self.ended) = (VecDeque::new(), Line::new());
            self.spare = Vec::new();
            self.backlog.shrink();
            self.fields.clear_down_to(0);
            self.known.clear();
            self.known_section = None;
        }
    }

    /// What the queues kept for streams to come hold at most, in bytes.
    pub(crate) fn spare_bytes_max() -> usize {
        SPARE_MAX * (Waiting::spare_bytes_max() + size_of::<Box<Waiting>>())
    }

    /// Keeps an empty waiting queue for the next stream that needs one.
    pub(super) fn recycle(&mut self, env: &mut Env<'_>, mut waiting: Box<Waiting>) {
        waiting.clear(env.pool);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(waiting);
        }
    }

    /// Tells a caller that was told to wait that a stream may be opened.
    pub(super) fn offer_slot(&mut self) {
        if self.slot_wanted && self.has_slot() {
            self.slot_wanted = false;
            self.events.push_back(Event::StreamSlotFree);
        }
    }

    pub(super) fn set_timer(&mut self, env: &Env<'_>, timer: Timer, after_ms: u32) {
        self.timers.set(timer, env.now + Duration::from_millis(u64::from(after_ms)));
    }
}
