//! The scheduler's half that writes: DATA which waited leaves in turns of one frame.

use fulmar_base::Env;

use super::{Connection, Role};
use crate::Event;
use crate::stream::StreamKey;
use crate::timers::Timer;
use crate::waiting::End;

impl Connection {
    /// Writes what waits and may leave: one frame of each stream in turn, until the windows or the output's room are used up.
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
            self.send_waiting(env, key, allowance.min(self.max_frame()));
            self.streams.end_turn(key);
        }
    }

    /// May this stream send now, and how many bytes of DATA: the least of both windows, while there is room in the output. A frame
    /// may overshoot the room.
    pub(super) fn allowance(&self, env: &Env<'_>, key: StreamKey) -> usize {
        let stream_window = self.streams.get(key).map_or(0, |stream| stream.send_window.available());
        if env.out.room() == 0 { 0 } else { stream_window.min(self.send_window.available()) }
    }

    /// Writes one frame of what waits on a stream, and what follows if that was the last.
    fn send_waiting(&mut self, env: &mut Env<'_>, key: StreamKey, length_max: usize) {
        // Taken out meanwhile, so that the connection is free to write.
        let Some(mut waiting) = self.streams.get_mut(key).and_then(|stream| stream.waiting.take()) else {
            return;
        };
        let length = length_max.min(waiting.bytes());
        let last = length == waiting.bytes();
        self.begin_frame(env, key, length, last, last && waiting.end == End::Stream);
        waiting.write(length, env.out, env.pool);
        self.take_from_backlog(length);
        let end = waiting.end;
        if last {
            if end == End::Trailers
                && let Some(id) = self.stream_id(key)
            {
                self.write_headers(env, id, waiting.trailers.iter(), true);
            }
            if end != End::Open {
                self.end_local(env, key);
            }
            self.recycle(env, waiting);
        } else if let Some(stream) = self.streams.get_mut(key) {
            stream.waiting = Some(waiting);
        }
        self.announce_room(key, end);
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
    }

    /// Looks whether enough has left when some time has passed.
    pub(super) fn watch_backlog(&mut self, env: &Env<'_>) {
        self.backlog.mark();
        self.set_timer(env, Timer::Stall, self.config.stall_ms);
    }

    /// Tells a sender that had to wait that it need not any longer.
    fn announce_room(&mut self, key: StreamKey, end: End) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let room = stream.waiting_bytes() <= self.config.send_queue_bytes_max / 2;
        if room && stream.writable_owed && end == End::Open {
            stream.writable_owed = false;
            self.events.push_back(Event::Writable { stream: key });
        }
    }
}
