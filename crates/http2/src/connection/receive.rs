//! Frames of the peer, one at a time; HEADERS and DATA have files of their own.

use fulmar_base::{Env, Input};

use super::{Connection, Handshake, Role};
use crate::closed_streams::EndedBy;
use crate::flow::WINDOW_MAX;
use crate::frame::{self, GoAway, HEAD_BYTES, Head, Kind, PREFACE, Setting, flag, u32_at};
use crate::stream::StreamKey;
use crate::timers::Timer;
use crate::{Error, ErrorCode, Event};

/// What this end knows of a stream id.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Open(StreamKey),
    /// Opened once, or skipped and so closed too (RFC 9113 §5.1.1).
    Closed,
    Idle,
}

impl Connection {
    /// Takes one whole frame from the input, behind the preface if that is still to come. `None`: the input ends before the frame
    /// does.
    #[inline]
    pub(super) fn next_frame<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
    ) -> Result<Option<(Head, &'i [u8])>, Error> {
        if self.handshake == Handshake::Preface && !self.on_preface(input)? {
            return Ok(None);
        }
        let Some(head) = Head::peek(input.remaining()) else { return Ok(self.starve(env, input)) };
        self.check_head(&head)?;
        let Some(frame) = input.take(HEAD_BYTES + head.length) else { return Ok(self.starve(env, input)) };
        self.timers.stop(Timer::Frame);
        self.pulse.last_read = env.now;
        if env.out.len() > self.config.output_bytes_max {
            return Err(Error::calm("output_bytes_max: too much output waits on a peer that does not read"));
        }
        Ok(Some((head, &frame[HEAD_BYTES..])))
    }

    #[inline]
    pub(super) fn on_frame<'i>(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &'i [u8],
    ) -> Result<Option<Event<'i>>, Error> {
        match head.kind {
            Kind::Data => self.on_data(env, head, payload),
            Kind::Headers => self.on_headers(env, head, payload),
            _ => self.on_other_frame(env, head, payload),
        }
    }

    /// What this end knows of a stream id that the peer has named.
    #[inline]
    pub(super) fn find(&mut self, id: u32) -> Found {
        match self.streams.find(id) {
            Some(key) => Found::Open(key),
            None => self.find_no_longer(id),
        }
    }

    #[inline(never)]
    fn find_no_longer(&self, id: u32) -> Found {
        let client_initiated = !id.is_multiple_of(2);
        let used = match self.role {
            Role::Client => id < self.next_id,
            Role::Server => id <= self.last_peer_id,
        };
        // Server-initiated streams do not exist without push.
        if client_initiated && used { Found::Closed } else { Found::Idle }
    }

    /// DATA or HEADERS on a stream that is closed (RFC 9113 §5.1): an error if the peer has ended the stream itself. Else it was
    /// under way when this end did, and is dropped; it counts for nothing, as a peer cannot help what is under way, and windows
    /// bound how much that is.
    pub(super) fn on_late_frame(&mut self, env: &mut Env<'_>, id: u32) -> Result<(), Error> {
        match self.closed_streams.ended_by(id) {
            Some(EndedBy::EndStream) => {
                Err(Error::peer(ErrorCode::StreamClosed, "frame on a stream that the peer has ended"))
            }
            Some(EndedBy::Reset) => self.provoked_reset(env, id, ErrorCode::StreamClosed),
            None => Ok(()),
        }
    }

    /// Counts a frame that has no effect.
    pub(super) fn ignore(&mut self, env: &Env<'_>) -> Result<(), Error> {
        self.budgets.ignored_frames.spend(env.now, self.budgets.refill)
    }

    /// The rest of the frame that has begun, if one has, must arrive in time.
    #[inline(never)]
    fn starve<T>(&mut self, env: &Env<'_>, input: &Input<'_>) -> Option<T> {
        if !input.is_empty() {
            self.pulse.last_read = env.now;
            if !self.timers.runs(Timer::Frame) {
                self.set_timer(env, Timer::Frame, self.config.frame_ms);
            }
        }
        None
    }

    /// Takes the preface; whether it is there.
    #[cold]
    fn on_preface(&mut self, input: &Input<'_>) -> Result<bool, Error> {
        let arrived = input.remaining();
        let compared = arrived.len().min(PREFACE.len());
        if arrived[..compared] != PREFACE[..compared] {
            return Err(Error::protocol("the connection does not begin with the preface of HTTP/2"));
        }
        if compared < PREFACE.len() {
            return Ok(false);
        }
        input.advance(PREFACE.len());
        self.handshake = Handshake::Settings;
        Ok(true)
    }

    /// All that is wrong with a frame and shows before its payload is there.
    #[inline]
    fn check_head(&self, head: &Head) -> Result<(), Error> {
        if self.header_block.is_none()
            && head.is_ordinary(self.config.frame_bytes_max)
            && self.handshake == Handshake::Done
        {
            return Ok(());
        }
        self.check_any_head(head)
    }

    #[inline(never)]
    fn check_any_head(&self, head: &Head) -> Result<(), Error> {
        if self.handshake == Handshake::Settings && (head.kind != Kind::Settings || head.has(flag::ACK)) {
            return Err(Error::protocol("the first frame is not SETTINGS"));
        }
        let expected = self.header_block.as_ref().map(|block| block.stream_id());
        match (expected, head.kind) {
            (Some(id), Kind::Continuation) if id == head.stream_id => {}
            (Some(_), _) => return Err(Error::protocol("frame between the parts of a header block")),
            (None, Kind::Continuation) => {
                return Err(Error::protocol("CONTINUATION without an open header block"));
            }
            (None, _) => {}
        }
        head.check(self.config.frame_bytes_max)
    }

    /// The frames that are not of every call; apart from those that are, which are the faster for it.
    #[inline(never)]
    fn on_other_frame<'i>(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &'i [u8],
    ) -> Result<Option<Event<'i>>, Error> {
        match head.kind {
            Kind::Data | Kind::Headers => Ok(None),
            Kind::Continuation => self.on_continuation(env, head, payload),
            Kind::Priority => self.on_priority(env, head, payload),
            Kind::ResetStream => self.on_reset_stream(env, head, payload),
            Kind::Settings if head.has(flag::ACK) => self.on_settings_ack(env).map(|()| None),
            Kind::Settings => self.on_settings(env, payload).map(|()| None),
            Kind::PushPromise => Err(Error::protocol("PUSH_PROMISE, although push is disabled")),
            Kind::Ping => self.on_ping(env, head, payload),
            Kind::GoAway => self.on_go_away(env, payload).map(Some),
            Kind::WindowUpdate => self.on_window_update(env, head, payload),
            Kind::Unknown(_) => self.ignore(env).map(|()| None),
        }
    }

    /// Priorities are ignored (RFC 9113 §5.3.2) but for what RFC 7540 §5.3.1 calls an error.
    fn on_priority(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let (code, text) = if payload.len() != 5 {
            (ErrorCode::FrameSizeError, "PRIORITY that has not 5 bytes")
        } else if frame::depends_on(payload) == head.stream_id {
            (ErrorCode::ProtocolError, "PRIORITY of a stream that depends on itself")
        } else {
            self.ignore(env)?;
            return Ok(None);
        };
        match self.find(head.stream_id) {
            Found::Open(key) => self.stream_error(env, key, code, text),
            // RST_STREAM is not for streams that are idle.
            Found::Closed | Found::Idle => Err(Error::peer(code, text)),
        }
    }

    fn on_reset_stream(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let key = match self.find(head.stream_id) {
            Found::Open(key) => key,
            Found::Closed => return self.ignore(env).map(|()| None),
            Found::Idle => return Err(Error::protocol("RST_STREAM on an idle stream")),
        };
        let code = ErrorCode::from_u32(u32_at(payload, 0));
        let Some(stream) = self.remove(env, key) else { return Ok(None) };
        if self.role == Role::Server && stream.state.may_send() {
            self.budgets.resets_received.spend(env.now, self.budgets.refill)?;
        }
        self.closed_streams.remember(stream.id, EndedBy::Reset);
        Ok(Some(Event::Reset {
            stream: key,
            user: stream.user,
            code,
            unprocessed: code == ErrorCode::RefusedStream,
            text: "the peer reset the stream".into(),
        }))
    }

    /// Applies all entries, then acknowledges (RFC 9113 §6.5.3). Only the last value of a setting in the frame has an effect on
    /// streams, so that a long frame costs one walk over them.
    fn on_settings(&mut self, env: &mut Env<'_>, payload: &[u8]) -> Result<(), Error> {
        self.budgets.settings.spend(env.now, self.budgets.refill)?;
        if payload.len() / 6 > self.config.settings_entries_max as usize {
            return Err(Error::calm("settings_entries_max: too many entries in one SETTINGS frame"));
        }
        let before = self.peer.clone();
        for entry in frame::entries(payload) {
            self.peer.apply(entry, self.role)?;
            if let Setting::HeaderTableSize(size) = entry {
                self.encoder.set_peer_table_bytes_max(size as usize);
            }
        }
        self.shift_send_windows(i64::from(self.peer.initial_window) - i64::from(before.initial_window))?;
        frame::settings_ack(env.out.bytes_mut());

        let streams_max = *self.peer.streams_max.get_or_insert(u32::MAX);
        let first = self.handshake == Handshake::Settings;
        if first {
            self.handshake = Handshake::Done;
            self.timers.stop(Timer::Preface);
        }
        if first || before.streams_max.is_some_and(|before| before < streams_max) {
            self.events.push_back(Event::Ready);
            self.offer_slot();
        }
        Ok(())
    }

    fn shift_send_windows(&mut self, delta: i64) -> Result<(), Error> {
        if delta == 0 {
            return Ok(());
        }
        for position in 0..self.streams.len() {
            let Some(key) = self.streams.at(position) else { break };
            if let Some(stream) = self.streams.get_mut(key) {
                stream.send_window.shift(delta).map_err(|_| {
                    let text = "SETTINGS_INITIAL_WINDOW_SIZE raises a window above 2^31-1";
                    Error::peer(ErrorCode::FlowControlError, text)
                })?;
            }
            self.streams.update_queue(key);
        }
        Ok(())
    }

    /// From here on our SETTINGS bind the peer. Streams opened before may have been given the larger of the two windows.
    fn on_settings_ack(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        if self.own_settings_acked {
            return self.ignore(env);
        }
        self.timers.stop(Timer::SettingsAck);
        let excess = self.initial_receive_window() - self.config.stream_window_bytes;
        self.own_settings_acked = true;
        self.decoder.set_table_bytes_max(self.config.header_table_bytes_max as usize);
        for position in 0..self.streams.len() {
            let key = self.streams.at(position);
            if let Some(stream) = key.and_then(|key| self.streams.get_mut(key)) {
                stream.receive_window.shrink(excess);
                // What was too little to be credited in the larger window may be due in the smaller one.
                stream.credit(env, 0, 0);
            }
        }
        Ok(())
    }

    fn on_ping(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let Some(&payload) = payload.first_chunk::<8>() else { return Ok(None) };
        if head.has(flag::ACK) {
            return self.on_pong(env, payload);
        }
        let useful = self.budgets.pings.is_full();
        self.budgets.pings.spend(env.now, self.budgets.refill)?;
        self.police_ping(env.now, useful)?;
        frame::ping(payload, true, env.out.bytes_mut());
        Ok(None)
    }

    fn on_go_away<'i>(&mut self, env: &mut Env<'_>, payload: &'i [u8]) -> Result<Event<'i>, Error> {
        let GoAway { last_id, code, debug } = GoAway::parse(payload);
        if self.role == Role::Client {
            if last_id != 0 && last_id.is_multiple_of(2) {
                return Err(Error::protocol("GOAWAY whose last stream is none of ours"));
            }
            if self.departure.of_peer.is_some_and(|earlier| last_id > earlier) {
                return Err(Error::protocol("GOAWAY whose last stream is above that of an earlier one"));
            }
            self.abandon_streams_above(env, last_id);
        }
        if self.departure.of_peer.is_some() {
            self.ignore(env)?;
        }
        self.departure.of_peer = Some(last_id);
        Ok(Event::GoAway { last_id, code, debug })
    }

    /// The peer has not processed these, and will not.
    fn abandon_streams_above(&mut self, env: &mut Env<'_>, last_id: u32) {
        while let Some((id, key)) = self.streams.last()
            && id > last_id
            && let Some(stream) = self.remove(env, key)
        {
            self.events.push_back(Event::Reset {
                stream: key,
                user: stream.user,
                code: ErrorCode::RefusedStream,
                unprocessed: true,
                text: "the peer went away before it processed the stream".into(),
            });
        }
    }

    fn on_window_update(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let increment = u32_at(payload, 0) & WINDOW_MAX;
        if head.stream_id == 0 {
            return self.on_connection_credit(env, increment).map(|()| None);
        }
        let key = match self.find(head.stream_id) {
            Found::Open(key) => key,
            Found::Closed => return self.ignore(env).map(|()| None),
            Found::Idle => return Err(Error::protocol("WINDOW_UPDATE on an idle stream")),
        };
        self.budgets.window_updates.spend(env.now, self.budgets.refill)?;
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        if increment == 0 {
            return self.stream_error(env, key, ErrorCode::ProtocolError, "WINDOW_UPDATE by 0");
        }
        if stream.send_window.credit(increment).is_err() {
            let text = "WINDOW_UPDATE raises the window of a stream above 2^31-1";
            return self.stream_error(env, key, ErrorCode::FlowControlError, text);
        }
        self.streams.update_queue(key);
        Ok(None)
    }

    fn on_connection_credit(&mut self, env: &Env<'_>, increment: u32) -> Result<(), Error> {
        self.budgets.window_updates.spend(env.now, self.budgets.refill)?;
        if increment == 0 {
            return Err(Error::protocol("WINDOW_UPDATE by 0"));
        }
        self.send_window.credit(increment).map_err(|_| {
            let text = "WINDOW_UPDATE raises the window of the connection above 2^31-1";
            Error::peer(ErrorCode::FlowControlError, text)
        })
    }
}
