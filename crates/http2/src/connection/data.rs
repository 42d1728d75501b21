//! DATA of the peer, and the credit for it (RFC 9113 §6.1, §6.9).

use fulmar_base::Env;

use super::Connection;
use super::receive::Found;
use crate::flow::WINDOW_INITIAL;
use crate::frame::{self, Head, flag};
use crate::stream::{Section, Stream, StreamKey};
use crate::{Error, ErrorCode, Event};

impl Connection {
    /// The application has taken so many bytes of the [`Event::Data`] of a stream: the peer may send as many more. More than was
    /// received and not yet released counts as that; nothing if the stream has gone. WINDOW_UPDATE is written once a quarter of
    /// the window is released.
    #[inline]
    pub fn release(&mut self, env: &mut Env<'_>, stream: StreamKey, bytes: usize) {
        let key = stream;
        let Some(stream) = self.streams.get_mut(key) else { return };
        let taken = u32::try_from(bytes).unwrap_or(u32::MAX).min(stream.held_bytes);
        stream.held_bytes -= taken;
        let size = stream.receive_window.size();
        if let Some(increment) = stream.credit(env, taken, self.tuner.stream_bytes()) {
            self.tuner.on_stream_credit(key, (size, increment), &mut stream.pace, env.now);
        }
    }

    /// DATA counts against the connection whatever becomes of it, and is credited there at once: what bounds memory is the window
    /// of each stream, so that a stream which nobody reads stops no other.
    #[inline]
    pub(super) fn on_data<'i>(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &'i [u8],
    ) -> Result<Option<Event<'i>>, Error> {
        let end = head.has(flag::END_STREAM);
        let found = self.find(head.stream_id);
        let forced = !end && self.uses_up_a_window(found, head.length);
        self.receive_window.receive(head.length).map_err(|_| {
            Error::peer(ErrorCode::FlowControlError, "DATA beyond the window of the connection")
        })?;
        self.receive_window.release(head.length as u32);
        if let Some(increment) = self.receive_window.take_update() {
            frame::window_update(0, increment, env.out.bytes_mut());
            self.tuner.on_connection_credit(self.receive_window.size(), increment, env.now);
        }
        let content = frame::strip_padding(&head, payload)?;
        if !end {
            self.budgets.on_data_received(env.now, content.len(), forced)?;
        }
        match found {
            Found::Open(key) => self.on_stream_data(env, key, &head, content),
            Found::Closed => self.on_late_frame(env, head.stream_id).map(|()| None),
            Found::Idle => Err(Error::protocol("DATA on an idle stream")),
        }
    }

    #[inline]
    fn on_stream_data<'i>(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        head: &Head,
        content: &'i [u8],
    ) -> Result<Option<Event<'i>>, Error> {
        let end = head.has(flag::END_STREAM);
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        let error = if !stream.state.may_receive() {
            Some((ErrorCode::StreamClosed, "DATA behind END_STREAM"))
        } else if stream.incoming == Section::Headers {
            Some((ErrorCode::ProtocolError, "DATA before the header section"))
        } else if stream.receive_window.receive(head.length).is_err() {
            Some((ErrorCode::FlowControlError, "DATA beyond the window of its stream"))
        } else if !stream.count_content(content.len(), end) {
            Some((ErrorCode::ProtocolError, "content of another length than content-length says"))
        } else {
            None
        };
        if let Some((code, text)) = error {
            return self.stream_error(env, key, code, text);
        }
        let discarding = stream.discarding.is_some();
        if end {
            stream.end_remote(key, &mut self.ended);
        }
        if !discarding {
            // What goes to the application waits for its release; padding, which does not, is credited.
            stream.held_bytes += content.len() as u32;
            if head.length > content.len() {
                stream.credit(env, (head.length - content.len()) as u32, 0);
            }
            let windows = (stream.receive_window.size(), self.receive_window.size());
            if let Some(probe) = self.tuner.on_data(key, head.length, windows, env.now) {
                frame::ping(probe, false, env.out.bytes_mut());
            }
        }
        let silent = discarding || content.is_empty() && !end;
        Ok((!silent).then_some(Event::Data { stream: key, bytes: content, end }))
    }

    /// Whether the peer could not have sent a longer frame.
    fn uses_up_a_window(&self, found: Found, length: usize) -> bool {
        let stream = if let Found::Open(key) = found { self.streams.get(key) } else { None };
        self.receive_window.is_used_up_by(length)
            || stream.is_some_and(|stream| stream.receive_window.is_used_up_by(length))
    }

    /// The window that a stream is opened with. Until the peer has acknowledged our SETTINGS it may go by the protocol's own
    /// value as well as by ours (RFC 9113 §6.9.2): the larger one binds it.
    pub(super) fn initial_receive_window(&self) -> u32 {
        let own = self.config.stream_window_bytes;
        if self.own_settings_acked { own } else { own.max(WINDOW_INITIAL) }
    }
}

impl Stream {
    /// Takes note that bytes of the stream's window are taken, and writes the WINDOW_UPDATE if one is due and of use. Returns how
    /// many of them it gives back. The window grows with it to `grown_bytes` if the application keeps pace: if it holds half a
    /// window at most.
    #[inline]
    pub(super) fn credit(&mut self, env: &mut Env<'_>, bytes: u32, grown_bytes: u32) -> Option<u32> {
        let window = &mut self.receive_window;
        window.release(bytes);
        if !self.state.may_receive() || self.discarding.is_some() {
            return None;
        }
        let increment = window.take_update()?;
        let keeps_pace = self.held_bytes <= window.size() / 2;
        let growth = if keeps_pace { window.grow(grown_bytes) } else { None };
        frame::window_update(self.id, increment + growth.unwrap_or(0), env.out.bytes_mut());
        Some(increment)
    }
}
