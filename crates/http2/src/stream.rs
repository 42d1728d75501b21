use fulmar_base::{Instant, Key, Line};

use crate::ErrorCode;
use crate::flow::{ReceiveWindow, SendWindow};
use crate::tuning::Pace;
use crate::waiting::{End, Waiting};

/// Names a stream of a [`Connection`](crate::Connection). Streams come and go, and a key of one that has gone is told so, never
/// mistaken for another.
pub type StreamKey = Key<Stream>;

/// One request and its response (RFC 9113 §5). Opaque: it is reached through [`Connection`](crate::Connection) with a
/// [`StreamKey`].
#[derive(Debug)]
pub struct Stream {
    pub(crate) id: u32,
    pub(crate) state: State,
    /// What the peer's next HEADERS would be.
    pub(crate) incoming: Section,
    /// What our next headers would be.
    pub(crate) outgoing: Section,
    /// What the upper layer keeps here.
    pub(crate) user: u64,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// How fast the peer uses the receive window.
    pub(crate) pace: Pace,
    /// Bytes handed to the application and not released by it.
    pub(crate) held_bytes: u32,
    /// How much content is still to come, if content-length has said it or there can be none.
    pub(crate) content_left: Option<u64>,
    /// DATA that may not leave yet, and what follows it. Never empty.
    pub(crate) waiting: Option<Box<Waiting>>,
    pub(crate) links: Links,
    /// Where in the send queue the stream is.
    pub(crate) lane: Lane,
    /// Whether more waited on the stream than a small message has, and some of it still does.
    pub(crate) is_bulk: bool,
    /// Whether the last send left something waiting, so that an [`Event::Writable`](crate::Event::Writable) is owed.
    pub(crate) writable_owed: bool,
    /// Whether it waits to be told so: see [`Backlog::tell_later`](crate::backlog::Backlog::tell_later).
    pub(crate) is_untold: bool,
    /// Set when the application wants nothing more from the peer: RST_STREAM with this code follows our END_STREAM.
    pub(crate) discarding: Option<ErrorCode>,
    /// Whether that RST_STREAM is written.
    pub(crate) reset_sent: bool,
    /// Client: whether the request was HEAD, whose response has no content.
    pub(crate) head_request: bool,
}

/// Neighbours in the send queue.
#[derive(Default, Debug)]
pub(crate) struct Links {
    pub(crate) previous: Option<StreamKey>,
    pub(crate) next: Option<StreamKey>,
}

/// The two lanes of the send queue: small messages go ahead of bulk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// The stream does not wait for its turn to send.
    None,
    Small,
    Bulk,
}

/// Which part of a message (RFC 9113 §8.1) is expected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    /// The header section, perhaps after interim ones.
    Headers,
    /// Content, or the trailer section.
    Content,
}

/// The states of a stream (RFC 9113 §5.1). Idle streams are not kept; reserved ones do not exist without push.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Open,
    HalfClosedLocal,
    HalfClosedRemote,
    Closed,
}

impl State {
    /// This end sent END_STREAM.
    pub(crate) fn end_local(&mut self) {
        *self = match self {
            Self::Open | Self::HalfClosedLocal => Self::HalfClosedLocal,
            Self::HalfClosedRemote | Self::Closed => Self::Closed,
        };
    }

    /// The peer sent END_STREAM.
    pub(crate) fn end_remote(&mut self) {
        *self = match self {
            Self::Open | Self::HalfClosedRemote => Self::HalfClosedRemote,
            Self::HalfClosedLocal | Self::Closed => Self::Closed,
        };
    }

    pub(crate) const fn may_send(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedRemote)
    }

    pub(crate) const fn may_receive(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedLocal)
    }
}

impl Stream {
    /// The peer's END_STREAM has been read. A stream that both ends have ended joins those whose end is to be told.
    #[inline]
    pub(crate) fn end_remote(&mut self, key: StreamKey, ended: &mut Line<StreamKey>) {
        self.state.end_remote();
        if self.state == State::Closed {
            ended.push_back(key);
        }
    }

    pub(crate) fn new(id: u32, send_window: SendWindow, receive_window: ReceiveWindow) -> Self {
        Self {
            id,
            state: State::Open,
            incoming: Section::Headers,
            outgoing: Section::Headers,
            user: 0,
            send_window,
            receive_window,
            pace: Pace::new(Instant::ZERO),
            held_bytes: 0,
            content_left: None,
            waiting: None,
            links: Links::default(),
            lane: Lane::None,
            is_bulk: false,
            writable_owed: false,
            is_untold: false,
            discarding: None,
            reset_sent: false,
            head_request: false,
        }
    }

    /// Whether the user may still send: END_STREAM has neither left nor is it waiting.
    pub(crate) fn takes_more(&self) -> bool {
        self.state.may_send() && !self.end_waits()
    }

    /// Whether content of the peer is in its place, is as much as content-length has said, and is not thrown away.
    #[inline]
    pub(crate) fn takes_content(&self, bytes: usize, end: bool) -> bool {
        let bytes = bytes as u64;
        self.state.may_receive()
            && self.incoming == Section::Content
            && self.content_left.is_none_or(|left| if end { bytes == left } else { bytes <= left })
            && self.discarding.is_none()
    }

    /// Whether a response or trailers need no more than to be well-formed.
    #[inline]
    pub(crate) fn takes_sections(&self) -> bool {
        self.state.may_receive()
            && !self.head_request
            && self.content_left.is_none()
            && self.discarding.is_none()
    }

    /// Whether nothing more happens on the stream but the delivery of its last events.
    pub(crate) fn is_ended(&self) -> bool {
        self.state == State::Closed || self.reset_sent
    }

    /// Whether END_STREAM waits behind DATA.
    pub(crate) fn end_waits(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.end != End::Open)
    }

    /// How many bytes of DATA wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.bytes())
    }

    /// Whether the stream belongs into the send queue: DATA waits, and the stream's own window lets some of it go.
    pub(crate) fn is_ready(&self) -> bool {
        self.waiting.is_some() && self.send_window.available() > 0
    }

    /// Counts content of the peer against its content-length (RFC 9113 §8.1.1). False: the message is malformed.
    #[inline]
    pub(crate) fn count_content(&mut self, bytes: usize, end: bool) -> bool {
        let Some(left) = self.content_left else { return true };
        let Some(left) = left.checked_sub(bytes as u64) else { return false };
        self.content_left = Some(left);
        !end || left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_closed_when_both_ends_have_ended_it_in_either_order() {
        let mut state = State::Open;
        state.end_local();
        assert_eq!(state, State::HalfClosedLocal);
        assert!(!state.may_send() && state.may_receive());
        state.end_local();
        assert_eq!(state, State::HalfClosedLocal);
        state.end_remote();
        assert_eq!(state, State::Closed);

        let mut state = State::Open;
        state.end_remote();
        assert_eq!(state, State::HalfClosedRemote);
        assert!(state.may_send() && !state.may_receive());
        state.end_remote();
        assert_eq!(state, State::HalfClosedRemote);
        state.end_local();
        assert_eq!(state, State::Closed);
        assert!(!state.may_send() && !state.may_receive());
    }

    #[test]
    fn content_must_be_as_long_as_announced() {
        let mut stream = Stream::new(1, SendWindow::new(0), ReceiveWindow::new(0));
        assert!(stream.count_content(100, true));
        stream.content_left = Some(5);
        assert!(stream.count_content(3, false));
        assert!(!stream.count_content(1, true));
        assert!(stream.count_content(1, true));
        assert!(!stream.count_content(1, false));
    }

    #[test]
    fn a_stream_stays_small() {
        assert!(size_of::<Stream>() <= 128, "{}", size_of::<Stream>());
    }
}
