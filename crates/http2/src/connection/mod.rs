use std::collections::VecDeque;
use std::fmt;

use fulmar_base::{Env, Input, Instant, Line};
use fulmar_hpack::{Decoder, Encoder, Field, FieldList, Fields, TABLE_BYTES_INITIAL};

use crate::backlog::Backlog;
use crate::closed_streams::ClosedStreams;
use crate::flow::{ReceiveWindow, SendWindow, WINDOW_INITIAL};
use crate::known::{KnownSection, KnownSections};
use crate::limits::Budgets;
use crate::pulse::Pulse;
use crate::settings::{self, PeerSettings};
use crate::stream::StreamKey;
use crate::streams::{Removed, Streams};
use crate::timers::Timers;
use crate::tuning::Tuner;
use crate::validate::Validator;
use crate::waiting::Waiting;
use crate::{Config, Error, Event, Memory};

mod data;
mod headers;
mod lifecycle;
mod pulse;
mod receive;
mod resting;
mod send;
#[cfg(test)]
mod tests;
mod transmit;
mod usual;

use headers::{HeaderBlock, TooLargeAnswer};
use lifecycle::{Departure, Pings};
pub use resting::Resting;
pub use send::Sent;

/// Which end of a connection (RFC 9113 §2.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Opens the connection, and the streams on it.
    Client,
    /// Answers.
    Server,
}

/// How much of the peer's connection preface (RFC 9113 §3.4) has arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Handshake {
    /// Server: the fixed 24 bytes are still to come.
    Preface,
    /// The first SETTINGS are still to come.
    Settings,
    Done,
}

/// One end of an HTTP/2 connection: bytes in, [events](Event) out; verbs in, bytes out. See the [crate](crate) for the loop that
/// drives it.
///
/// It knows no socket and no clock: what it needs of the world is lent to it in an [`Env`]. All state is bounded by its
/// [`Config`]. Blocks that it has taken from the pool go back when streams end, and all of them in [`close`](Self::close).
pub struct Connection {
    role: Role,
    config: Config,
    validator: Validator,
    handshake: Handshake,
    /// Whether our own preface is written.
    started: bool,
    /// The connection error that has ended the connection; it is sticky.
    failed: Option<Error>,
    peer: PeerSettings,
    /// Whether the peer has acknowledged our SETTINGS, so that our limits bind it.
    own_settings_acked: bool,

    decoder: Decoder,
    encoder: Encoder,
    /// Memory for both tables when the connection comes to rest.
    packed: Vec<u8>,
    /// The fields of the last header block that was decoded.
    fields: FieldList,
    known: KnownSections,
    /// The last header section, if it is a known one; else it is in `fields`.
    known_section: Option<KnownSection>,
    /// The header block whose CONTINUATION frames are still to come.
    header_block: Option<HeaderBlock>,
    /// Server: the answer to a request whose header list is too large.
    too_large_answer: TooLargeAnswer,

    streams: Streams,
    closed_streams: ClosedStreams,
    /// Client: the id of the next stream.
    next_id: u32,
    /// Server: the highest stream id that the peer has used.
    last_peer_id: u32,
    /// Server: the highest stream id of which anything was processed.
    last_processed_id: u32,
    /// Whether `open` has told the caller to wait for a stream to end.
    slot_wanted: bool,
    /// Client: what counts as open streams of this connection besides them.
    streams_beside: u32,

    /// What this end may send on the connection.
    send_window: SendWindow,
    /// What the peer may send on the connection.
    receive_window: ReceiveWindow,
    backlog: Backlog,
    tuner: Tuner,

    departure: Departure,
    pings: Pings,
    timers: Timers,
    pulse: Pulse,
    budgets: Budgets,
    /// Events that came of something else than the frame in hand.
    events: VecDeque<Event<'static>>,
    /// Streams that both ends have ended, or that were reset behind their end, and whose [`Event::Closed`] is to be delivered, behind
    /// all other events of theirs.
    ended: Line<StreamKey>,
    /// Waiting queues of streams that have ended, for those to come.
    #[allow(
        clippy::vec_box,
        reason = "streams take the box itself: they stay small, and no box is made in steady state"
    )]
    spare: Vec<Box<Waiting>>,
}

impl Connection {
    /// An end that has said nothing yet: its preface and SETTINGS (RFC 9113 §3.4) are written, and its timers started, by the
    /// first call of any method that is lent an [`Env`]; call [`transmit`](Self::transmit) as soon as the transport stands.
    pub fn new(role: Role, config: Config) -> Self {
        let config = settings::within_bounds(config);
        Self {
            role,
            validator: Validator { surrounding_whitespace_allowed: config.surrounding_whitespace_allowed },
            handshake: match role {
                Role::Client => Handshake::Settings,
                Role::Server => Handshake::Preface,
            },
            started: false,
            failed: None,
            peer: PeerSettings::new(),
            own_settings_acked: false,
            decoder: Decoder::new(TABLE_BYTES_INITIAL),
            encoder: Encoder::new(config.header_table_bytes_max as usize),
            packed: Vec::new(),
            fields: FieldList::new(),
            known: KnownSections::default(),
            known_section: None,
            header_block: None,
            too_large_answer: TooLargeAnswer::PLAIN,
            streams: Streams::new(),
            closed_streams: ClosedStreams::new(),
            next_id: 1,
            last_peer_id: 0,
            last_processed_id: 0,
            slot_wanted: false,
            streams_beside: 0,
            send_window: SendWindow::new(WINDOW_INITIAL),
            receive_window: ReceiveWindow::new(WINDOW_INITIAL),
            backlog: Backlog::default(),
            tuner: Tuner::new(config.stream_window_bytes, config.window_bytes_max),
            departure: Departure::default(),
            pings: Pings::default(),
            timers: Timers::default(),
            pulse: Pulse::new(),
            budgets: Budgets::new(&config),
            events: VecDeque::new(),
            ended: Line::new(),
            spare: Vec::new(),
            config,
        }
    }

    /// The next thing that happened. Takes frames from `input` until one of them means something to the caller.
    ///
    /// `None`: nothing is left but at most the beginning of a frame; present it again in front of the next bytes. Events that do
    /// not come of the input are delivered first, so the method is also to be called, with whatever input there is, after
    /// [`transmit`](Self::transmit) and [`on_deadline`](Self::on_deadline).
    ///
    /// # Errors
    ///
    /// A connection error (RFC 9113 §5.4.1). GOAWAY is in the output; flush it and close. Each further call gives the same error.
    // Inlined, so that an event of the usual kinds is never written to memory, and its reader need not ask of what kind it is.
    #[inline(always)]
    pub fn next_event<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
    ) -> Result<Option<Event<'i>>, Error> {
        if !self.has_events()
            && let Some(event) = self.next_usual(env, input)
        {
            return Ok(Some(event));
        }
        self.next_of_any_kind(env, input)
    }

    #[inline(never)]
    fn next_of_any_kind<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
    ) -> Result<Option<Event<'i>>, Error> {
        self.start(env);
        loop {
            if self.has_events()
                && let Some(event) = self.next_queued(env)
            {
                return Ok(Some(event));
            }
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let (head, payload) = match self.next_frame(env, input) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.fail(env, error);
                    continue;
                }
            };
            match self.on_frame(env, head, payload) {
                Ok(None) => {}
                Err(error) => self.fail(env, error),
                happened => return happened,
            }
        }
    }

    /// Whether [`next_event`](Self::next_event) has something to say without further input.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.ended.is_empty()
    }

    /// The fields of the last [`Event::Headers`], until the next call of [`next_event`](Self::next_event). They are well-formed
    /// (RFC 9113 §8): pseudo-header fields first, names in lower case, no connection-specific fields.
    pub fn fields(&self) -> Fields<'_> {
        let known = self.known_section.and_then(|section| self.known.fields(section));
        known.unwrap_or(&self.fields).iter()
    }

    /// Which section the fields are, if they are among those that the peer sends again and again: what was made of them need not be
    /// made again.
    #[inline]
    pub fn known_section(&self) -> Option<KnownSection> {
        self.known_section
    }

    /// Which end this is.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The configuration, brought within the bounds of the protocol.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// How many streams are open, half-closed ones included.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The id of a stream on the wire.
    pub fn stream_id(&self, stream: StreamKey) -> Option<u32> {
        self.streams.get(stream).map(|stream| stream.id)
    }

    /// The largest frame payload that this end sends, in bytes: what the peer takes, at most
    /// [`Config::frame_bytes_sent_max`].
    #[inline]
    pub fn max_frame(&self) -> usize {
        self.peer.frame_bytes_max.min(self.config.frame_bytes_sent_max) as usize
    }

    /// Stores a number with a stream, for the upper layer to find its own state by. Nothing if the stream has gone.
    #[inline]
    pub fn set_user(&mut self, stream: StreamKey, user: u64) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.user = user;
        }
    }

    /// The number that was stored with a stream; 0 if none was.
    #[inline]
    pub fn user(&self, stream: StreamKey) -> Option<u64> {
        self.streams.get(stream).map(|stream| stream.user)
    }

    /// Server: what a request is answered whose header list is over [`Config::header_list_bytes_max`] or
    /// [`Config::header_fields_max`]; the upper layer sees nothing of it. By default, and for clients that do not take a list as
    /// large as this answer, status 431 without more. Behind the fields stands one named `reason`, with a text of printable ASCII that
    /// has the size and the limit. The fields must be well-formed.
    pub const fn answer_too_large_with(&mut self, fields: &'static [Field<'static>], reason: &'static [u8]) {
        self.too_large_answer = TooLargeAnswer { fields, reason: Some(reason) };
    }

    /// When [`on_deadline`](Self::on_deadline) is to be called, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// How much memory the connection holds, by what it is for. [`Memory::output`] and [`Memory::unread`] are with the caller, and
    /// 0. Takes time in proportion to the open streams.
    pub fn memory(&self) -> Memory {
        let spare = self.spare.iter().map(|waiting| waiting.memory_bytes()).sum::<usize>();
        Memory {
            connection: size_of::<Self>() + self.pings.memory_bytes(),
            compression: self.decoder.memory_bytes() + self.encoder.memory_bytes() + self.packed.capacity(),
            sections: self.known.memory_bytes(),
            fields: self.fields.memory_bytes(),
            header_block: self.header_block.as_ref().map_or(0, |block| block.bytes.memory_bytes()),
            streams: self.streams.memory_bytes(),
            waiting: self.streams.waiting_memory_bytes()
                + spare
                + self.spare.capacity() * size_of::<Box<Waiting>>(),
            events: self.events_memory(),
            output: 0,
            unread: 0,
        }
    }

    /// The next queued event that is still true. A stream that both ends have ended stays until it is delivered, so that its key
    /// serves for the events before.
    fn next_queued(&mut self, env: &mut Env<'_>) -> Option<Event<'static>> {
        while let Some(event) = self.events.pop_front() {
            match event {
                Event::Writable { stream } if self.streams.get(stream).is_none() => {}
                event => return Some(event),
            }
        }
        while let Some(stream) = self.ended.pop_front() {
            if let Some(Removed { user, .. }) = self.remove(env, stream) {
                self.note_ended_by_both();
                return Some(Event::Closed { stream, user });
            }
        }
        None
    }

    /// Bytes of memory held by the queues of events.
    fn events_memory(&self) -> usize {
        self.events.capacity() * size_of::<Event<'static>>()
            + self.ended.memory_bytes()
            + self.backlog.memory_bytes()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("role", &self.role)
            .field("handshake", &self.handshake)
            .field("failed", &self.failed)
            .field("streams", &self.streams.len())
            .field("send_window", &self.send_window)
            .field("receive_window", &self.receive_window)
            .field("departure", &self.departure)
            .field("timers", &self.timers)
            .finish_non_exhaustive()
    }
}
