//! The scheduler's half that writes: DATA which waited leaves in turns of one frame.

use std::time::Duration;

use fulmar_base::{Env, Instant};

use super::{Connection, Role};
use crate::frame;
use crate::section::Plain;
use crate::stream::{Stream, StreamKey};
use crate::timers::Timer;
use crate::waiting::End;
use crate::{Error, ErrorCode, Event};

impl Connection {
    /// Writes what waits and may leave: one frame of each stream in turn, small messages first, until the windows or the output's
    /// room are used up.
    /// May queue events: call [`next_event`](Self::next_event) again while [`has_events`](Self::has_events).
    ///
    /// To be called after anything else was, before the caller waits; and again when output has left.
    pub fn transmit(&mut self, env: &mut Env<'_>) {
        self.start(env);
        if self.failed.is_some() {
            return;
        }
        while let Some(key) = self.streams.next_to_send() {
            let allowance = self.allowance(env, key);
            if allowance == 0 {
                break;
            }
            let sent = self.send_waiting(env, key, allowance.min(self.max_frame()));
            self.streams.end_turn(key, sent);
        }
        self.tell_next();
        if env.out.len() <= self.config.output_bytes_max {
            self.offer_slot();
        }
    }

    /// Whether [`transmit`](Self::transmit) would write something if there were room in the output, or tell a sender that it may go on.
    pub fn may_transmit(&self) -> bool {
        let may_send = self.send_window.available() > 0 && self.streams.next_to_send().is_some();
        self.failed.is_none() && (may_send || self.backlog.may_tell(self.streams.queue_is_empty()))
    }

    /// May this stream send now, and how many bytes of DATA: the least of both windows, while there is room in the output. A frame
    /// may overshoot the room.
    pub(super) fn allowance(&self, env: &Env<'_>, key: StreamKey) -> usize {
        let stream_window = self.streams.get(key).map_or(0, |stream| stream.send_window.available());
        if env.out.room() == 0 { 0 } else { stream_window.min(self.send_window.available()) }
    }

    /// Writes one frame of what waits on a stream, and what follows if that was the last. Returns how many bytes have left.
    fn send_waiting(&mut self, env: &mut Env<'_>, key: StreamKey, length_max: usize) -> usize {
        // Taken out meanwhile, so that the connection is free to write.
        let Some(mut waiting) = self.streams.get_mut(key).and_then(|stream| stream.waiting.take()) else {
            return 0;
        };
        let length = length_max.min(waiting.bytes());
        let last = length == waiting.bytes();
        self.begin_frame(env, key, length, last, last && waiting.end == End::Stream);
        waiting.write(length, env.out, env.pool);
        waiting.moved = env.now;
        self.take_from_backlog(length);
        let end = waiting.end;
        if last {
            if end == End::Trailers
                && let Some(id) = self.stream_id(key)
            {
                self.write_headers(env, id, Plain(waiting.trailers.iter()), true);
            }
            if end != End::Open {
                self.end_local(env, key);
            }
            self.recycle(env, waiting);
        } else if let Some(stream) = self.streams.get_mut(key) {
            stream.waiting = Some(waiting);
        }
        self.announce_room(key, end);
        length
    }

    /// More waits. A server does not let a client pile up more than a certain amount without taking any of it.
    pub(super) fn add_to_backlog(&mut self, env: &Env<'_>, bytes: usize) {
        self.backlog.add(bytes);
        let too_much = self.role == Role::Server && self.backlog.bytes() > self.config.stalled_bytes_max;
        if too_much && !self.timers.runs(Timer::Stall) {
            self.watch_backlog(env);
        }
    }

    /// Some of what waited has left, or was dropped.
    pub(super) fn take_from_backlog(&mut self, bytes: usize) {
        self.backlog.subtract(bytes);
        if self.backlog.bytes() <= self.config.stalled_bytes_max {
            self.timers.stop(Timer::Stall);
        }
        if self.backlog.bytes() == 0 {
            self.timers.stop(Timer::Credit);
        }
    }

    /// Looks whether enough has left when some time has passed.
    pub(super) fn watch_backlog(&mut self, env: &Env<'_>) {
        self.backlog.mark();
        self.set_timer(env, Timer::Stall, self.config.stall_ms);
    }

    /// Looks after some time whether what has begun to wait still does.
    pub(super) fn watch_credit(&mut self, env: &Env<'_>) {
        let limit_ms = self.config.credit_wait_ms;
        if self.role == Role::Server && limit_ms > 0 && !self.timers.runs(Timer::Credit) {
            self.set_timer(env, Timer::Credit, limit_ms);
        }
    }

    /// Resets the streams that the client has not let send for too long, and looks again when the next one may be due.
    pub(super) fn end_streams_without_credit(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        let limit = Duration::from_millis(u64::from(self.config.credit_wait_ms));
        let mut next: Option<Instant> = None;
        let mut position = 0;
        while let Some(key) = self.streams.at(position) {
            position += 1;
            let Some(stream) = self.streams.get(key) else { continue };
            let Some(waiting) = &stream.waiting else { continue };
            let due = waiting.moved + limit;
            if due > env.now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if stream.send_window.available() == 0 {
                self.end_stream_without_credit(env, key);
                position -= 1;
            } else if self.send_window.available() == 0 {
                return Err(Error::calm("credit_wait_ms: the client gives the connection no credit"));
            } else {
                // It waits for its turn, or for the socket: not for credit.
                next = Some(env.now);
            }
        }
        if let Some(next) = next {
            self.timers.set(Timer::Credit, next.max(env.now + limit / 8));
        }
        Ok(())
    }

    fn end_stream_without_credit(&mut self, env: &mut Env<'_>, key: StreamKey) {
        let Some(stream) = self.remove(env, key) else { return };
        let code = ErrorCode::EnhanceYourCalm;
        frame::reset_stream(stream.id, code, env.out.bytes_mut());
        self.events.push_back(Event::Reset {
            stream: key,
            user: stream.user,
            code,
            unprocessed: false,
            text: "credit_wait_ms: the client gives the stream no credit".into(),
        });
    }

    /// Tells a sender that had to wait that it need not any longer; one of bulk when it is its turn.
    pub(super) fn announce_room(&mut self, key: StreamKey, end: End) {
        let room = self.has_room_for_more(key);
        let Some(stream) = self.streams.get_mut(key) else { return };
        if !room || !stream.writable_owed || end != End::Open {
            return;
        }
        if !stream.is_bulk {
            stream.writable_owed = false;
            self.events.push_back(Event::Writable { stream: key });
        } else if !std::mem::replace(&mut stream.is_untold, true) {
            self.backlog.tell_later(key);
        }
    }

    /// Tells one sender of bulk that it has room, if it is time: the next one is told when this one has had the opportunity to bring some.
    fn tell_next(&mut self) {
        while let Some(key) = self.backlog.next_to_tell(self.streams.queue_is_empty()) {
            let room = self.has_room_for_more(key);
            let Some(stream) = self.streams.get_mut(key) else { continue };
            stream.is_untold = false;
            if room && stream.writable_owed && !stream.end_waits() {
                stream.writable_owed = false;
                return self.events.push_back(Event::Writable { stream: key });
            }
        }
    }

    /// Whether a sender that was told to wait may go on.
    fn has_room_for_more(&self, key: StreamKey) -> bool {
        let waiting = self.streams.get(key).map_or(0, Stream::waiting_bytes);
        waiting <= self.config.send_queue_bytes_max / 2
    }
}
