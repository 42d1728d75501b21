//! HEADERS and CONTINUATION of the peer (RFC 9113 §6.2, §6.10, §8).

use std::borrow::Cow;
use std::time::Duration;

use fulmar_base::{Block, Env, Fault};
use fulmar_hpack::{Field, Overflow};

use super::receive::Found;
use super::{Connection, Role};
use crate::closed_streams::EndedBy;
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::{self, Head, HeadersPayload, flag};
use crate::known::{Kind, KnownSection};
use crate::section::{Plain, list_bytes};
use crate::stream::{Section, Stream, StreamKey};
use crate::timers::Timer;
use crate::tuning::Pace;
use crate::validate::{Malformed, Request, Status};
use crate::{Error, ErrorCode, Event, Reach};

/// The answer to a request whose header list is too large.
#[derive(Copy, Clone, Debug)]
pub(super) struct TooLargeAnswer {
    pub(super) fields: &'static [Field<'static>],
    /// The name of a field that says how large it was.
    pub(super) reason: Option<&'static [u8]>,
}

impl TooLargeAnswer {
    /// RFC 6585 §5.
    pub(super) const PLAIN: Self = Self { fields: &[Field::new(b":status", b"431")], reason: None };
}

/// What a HEADERS frame says besides its fields.
#[derive(Copy, Clone, Debug)]
struct Opening {
    stream_id: u32,
    end_stream: bool,
    /// Whether its priority makes the stream depend on itself.
    self_dependent: bool,
}

/// A header block that has begun and not ended.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    opening: Opening,
    continuations: u32,
    pub(super) bytes: Block,
}

impl HeaderBlock {
    /// The stream whose CONTINUATION frames are expected.
    pub(super) const fn stream_id(&self) -> u32 {
        self.opening.stream_id
    }
}

/// What a further header section on a stream is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Further {
    Interim,
    Response { content_length: Option<u64> },
    Trailers,
}

impl Connection {
    pub(super) fn on_headers(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let HeadersPayload { fragment, self_dependent } = HeadersPayload::parse(&head, payload)?;
        let found = self.find(head.stream_id);
        if found == Found::Idle && (self.role == Role::Client || head.stream_id.is_multiple_of(2)) {
            return Err(Error::protocol("HEADERS on a stream that the peer may not open"));
        }
        let opening =
            Opening { stream_id: head.stream_id, end_stream: head.has(flag::END_STREAM), self_dependent };
        if head.has(flag::END_HEADERS) {
            return self.on_header_block(env, opening, found, fragment);
        }
        self.begin_header_block(env, opening, fragment)
    }

    #[inline(never)]
    fn begin_header_block(
        &mut self,
        env: &mut Env<'_>,
        opening: Opening,
        fragment: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        self.check_header_block(fragment.len(), 0)?;
        let mut bytes = env.pool.take(fragment.len());
        bytes.extend_from_slice(fragment);
        self.header_block = Some(HeaderBlock { opening, continuations: 0, bytes });
        let patience = Duration::from_millis(u64::from(self.config.header_block_ms));
        self.timers.set(Timer::HeaderBlock, env.now + patience);
        Ok(None)
    }

    pub(super) fn on_continuation(
        &mut self,
        env: &mut Env<'_>,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let Some(block) = &mut self.header_block else { return Ok(None) };
        block.continuations += 1;
        let (bytes, continuations) = (block.bytes.len() + payload.len(), block.continuations);
        self.check_header_block(bytes, continuations)?;
        let Some(block) = &mut self.header_block else { return Ok(None) };
        env.pool.reserve(&mut block.bytes, payload.len());
        block.bytes.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(HeaderBlock { opening, bytes, .. }) = self.header_block.take() else { return Ok(None) };
        self.timers.stop(Timer::HeaderBlock);
        let found = self.find(opening.stream_id);
        let result = self.on_header_block(env, opening, found, &bytes);
        env.pool.give(bytes);
        result
    }

    /// The limits of a block that is not there yet; crossing one ends the connection, as the rest would have to be decoded to keep
    /// the compression table in step (CVE-2024-27316).
    fn check_header_block(&self, bytes: usize, continuations: u32) -> Result<(), Error> {
        if bytes > self.config.header_block_bytes_max as usize {
            return Err(Error::calm("header_block_bytes_max: the header block is too large"));
        }
        if continuations > self.config.continuations_max {
            return Err(Error::calm("continuations_max: too many CONTINUATION frames"));
        }
        Ok(())
    }

    /// A whole header block. It is decoded whatever becomes of it, so that the compression table stays in step; one that is known
    /// would not change the table.
    fn on_header_block(
        &mut self,
        env: &mut Env<'_>,
        opening: Opening,
        found: Found,
        block: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let kind = self.expected_kind(found, opening);
        self.known_section = None;
        if let Some(kind) = kind
            && let Some(version) = self.decoder.version()
            && let Some(known) = self.known.find(block, version, kind)
        {
            self.known_section = Some(known);
            return match found {
                Found::Open(key) => self.on_further_headers(env, key, opening),
                Found::Closed | Found::Idle => self.on_request(env, opening),
            };
        }
        self.on_new_block(env, opening, (found, kind), block)
    }

    /// A header block that has to be decoded and checked.
    #[inline(never)]
    fn on_new_block(
        &mut self,
        env: &mut Env<'_>,
        opening: Opening,
        (found, kind): (Found, Option<Kind>),
        block: &[u8],
    ) -> Result<Option<Event<'static>>, Error> {
        let version = self.decoder.version();
        let limits = self.config.decode_limits();
        self.decoder.decode(block, &limits, &mut self.fields).map_err(|error| Error {
            fault: Fault::Peer,
            reach: Reach::Connection,
            code: ErrorCode::CompressionError,
            text: Cow::Owned(error.to_string()),
        })?;
        let event = match found {
            Found::Open(key) => self.on_further_headers(env, key, opening)?,
            Found::Closed => self.on_late_headers(env, opening.stream_id).map(|()| None)?,
            Found::Idle => self.on_request(env, opening)?,
        };
        if let (&Some(Event::Headers { stream, .. }), Some(kind)) = (&event, kind)
            && let Some(version) = version.filter(|_| self.decoder.version() == version)
            && self.known.comes_again(block, version, &self.fields)
            && self.is_ordinary(kind)
        {
            let content_length = self.streams.get(stream).and_then(|stream| stream.content_left);
            let content_length = content_length.filter(|_| kind == Kind::Request);
            self.known.keep(block, version, (kind, content_length), &self.fields);
        }
        Ok(event)
    }

    /// What a header section that arrives in this place has to be to be kept; `None` for what is not worth it.
    fn expected_kind(&self, found: Found, opening: Opening) -> Option<Kind> {
        match found {
            Found::Idle => Some(Kind::Request),
            Found::Closed => None,
            Found::Open(key) => match (self.streams.get(key)?.incoming, opening.end_stream) {
                (Section::Headers, false) => Some(Kind::Response),
                (Section::Content, true) => Some(Kind::Trailers),
                // An answer of one header section is mostly an error.
                (Section::Headers, true) | (Section::Content, false) => None,
            },
        }
    }

    /// Whether a section that was found well-formed says no more than its kind does.
    fn is_ordinary(&self, kind: Kind) -> bool {
        match kind {
            Kind::Request | Kind::Trailers => true,
            Kind::Response => self
                .validator
                .response(self.fields.iter())
                .is_ok_and(|response| (response.status, response.content_length) == (Status::Final, None)),
        }
    }

    /// Server: a header section that opens a stream.
    fn on_request(&mut self, env: &mut Env<'_>, opening: Opening) -> Result<Option<Event<'static>>, Error> {
        let id = opening.stream_id;
        self.last_peer_id = id;
        if self.departure.ignores(id) {
            return self.ignore(env).map(|()| None);
        }
        if self.is_full() {
            return self.turn_away(env, opening, ErrorCode::RefusedStream);
        }
        self.last_processed_id = id;
        if self.known_section.is_none() && self.fields.overflow().is_some() {
            return self.answer_too_large(env, opening);
        }
        let request = match self.known_section {
            Some(known) => Ok(Request { content_length: self.known.content_length(known) }),
            None => self.validator.request(self.fields.iter()),
        };
        let mut stream = self.new_stream(env, id);
        let well_formed = request.is_ok_and(|request| {
            stream.content_left = request.content_length;
            stream.count_content(0, opening.end_stream)
        });
        if !well_formed || opening.self_dependent {
            return self.turn_away(env, opening, ErrorCode::ProtocolError);
        }
        Ok(Some(self.open_remotely(stream, opening.end_stream)))
    }

    /// Server: a request that is known to be well-formed, on a stream that the client may open. One that ends here announces no content.
    #[inline]
    pub(super) fn on_known_request(
        &mut self,
        env: &Env<'_>,
        id: u32,
        end: bool,
        section: KnownSection,
    ) -> Event<'static> {
        self.known_section = Some(section);
        self.last_peer_id = id;
        self.last_processed_id = id;
        let mut stream = self.new_stream(env, id);
        stream.content_left = self.known.content_length(section);
        self.open_remotely(stream, end)
    }

    /// Whether no stream may be opened, for their number or for how much waits on them.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.streams.len() >= self.config.streams_max as usize
            || self.backlog.bytes() > self.config.queued_bytes_max
    }

    /// A stream that begins.
    #[inline]
    pub(super) fn new_stream(&self, env: &Env<'_>, id: u32) -> Stream {
        let mut stream = Stream::new(
            id,
            SendWindow::new(self.peer.initial_window),
            ReceiveWindow::new(self.initial_receive_window()),
        );
        stream.pace = Pace::new(env.now);
        stream
    }

    #[inline(always)]
    fn open_remotely(&mut self, mut stream: Stream, end: bool) -> Event<'static> {
        self.budgets.on_stream();
        stream.incoming = Section::Content;
        if end {
            stream.state.end_remote();
        }
        Event::Headers { stream: self.streams.insert(stream), end }
    }

    /// Resets a stream that the application has not seen.
    #[cold]
    fn turn_away(
        &mut self,
        env: &mut Env<'_>,
        opening: Opening,
        code: ErrorCode,
    ) -> Result<Option<Event<'static>>, Error> {
        self.provoked_reset(env, opening.stream_id, code)?;
        self.remember_unseen(opening);
        Ok(None)
    }

    /// Answers a request whose header list is over a limit, and wants no more of it.
    #[cold]
    fn answer_too_large(
        &mut self,
        env: &mut Env<'_>,
        opening: Opening,
    ) -> Result<Option<Event<'static>>, Error> {
        self.budgets.resets_provoked.spend(env.now, self.budgets.refill)?;
        let text = self.excess();
        let fields_of = |answer: TooLargeAnswer| {
            let reason = answer.reason.map(|name| Field::new(name, text.as_bytes()).without_indexing());
            answer.fields.iter().copied().chain(reason)
        };
        let fits = list_bytes(fields_of(self.too_large_answer)) <= self.peer.header_list_bytes_max as usize;
        let answer = if fits { self.too_large_answer } else { TooLargeAnswer::PLAIN };
        self.write_headers(env, opening.stream_id, Plain(fields_of(answer)), true);
        if !opening.end_stream {
            frame::reset_stream(opening.stream_id, ErrorCode::NoError, env.out.bytes_mut());
        }
        self.remember_unseen(opening);
        Ok(None)
    }

    /// By how much the header list in hand is over which limit of the configuration.
    fn excess(&self) -> String {
        match self.fields.overflow() {
            Some(Overflow::Fields) => {
                format!(
                    "a header list of more than {} fields: header_fields_max",
                    self.config.header_fields_max
                )
            }
            Some(overflow) => format!(
                "a header list of {}{} bytes, at most {} are taken: header_list_bytes_max",
                if overflow == Overflow::String { "more than " } else { "" },
                self.fields.whole_size(),
                self.config.header_list_bytes_max
            ),
            None => String::new(),
        }
    }

    fn remember_unseen(&mut self, opening: Opening) {
        if opening.end_stream {
            self.closed_streams.remember(opening.stream_id, EndedBy::EndStream);
        }
    }

    /// A response, an interim one, or trailers.
    #[inline(never)]
    fn on_further_headers(
        &mut self,
        env: &mut Env<'_>,
        key: StreamKey,
        opening: Opening,
    ) -> Result<Option<Event<'static>>, Error> {
        let end = opening.end_stream;
        let Some(stream) = self.streams.get(key) else { return Ok(None) };
        let checked = if !stream.state.may_receive() {
            Err((ErrorCode::StreamClosed, "HEADERS behind END_STREAM"))
        } else if opening.self_dependent {
            Err((ErrorCode::ProtocolError, "stream that depends on itself"))
        } else if self.known_section.is_none() && self.fields.overflow().is_some() {
            let text = self.excess();
            return self.stream_error(env, key, ErrorCode::EnhanceYourCalm, text);
        } else {
            self.check_further(stream, end).map_err(|text| (ErrorCode::ProtocolError, text))
        };
        let further = match checked {
            Ok(further) => further,
            Err((code, text)) => return self.stream_error(env, key, code, text),
        };
        if further == Further::Interim {
            self.ignore(env)?;
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(None) };
        if let Further::Response { content_length } = further {
            stream.incoming = Section::Content;
            stream.content_left = content_length;
        }
        if !stream.count_content(0, end) {
            let text = "content shorter than content-length says";
            return self.stream_error(env, key, ErrorCode::ProtocolError, text);
        }
        let discarding = stream.discarding.is_some();
        if end {
            stream.end_remote(key, &mut self.ended);
        }
        Ok((!discarding).then_some(Event::Headers { stream: key, end }))
    }

    fn check_further(&self, stream: &Stream, end: bool) -> Result<Further, Malformed> {
        if stream.incoming == Section::Content {
            if !end {
                return Err("second header section that does not end the stream");
            }
            if self.known_section.is_some() {
                return Ok(Further::Trailers);
            }
            return self.validator.trailers(self.fields.iter()).map(|()| Further::Trailers);
        }
        if self.known_section.is_some() {
            let content_length = stream.head_request.then_some(0);
            return Ok(Further::Response { content_length });
        }
        let response = self.validator.response(self.fields.iter())?;
        match response.status {
            Status::Interim if end => Err("interim response that ends the stream"),
            Status::Interim => Ok(Further::Interim),
            Status::WithoutContent => Ok(Further::Response { content_length: Some(0) }),
            Status::Final if stream.head_request => Ok(Further::Response { content_length: Some(0) }),
            Status::Final => Ok(Further::Response { content_length: response.content_length }),
        }
    }

    /// A header section on a closed stream: trailers that were under way are ignored, a request is none (RFC 9113 §5.1.1).
    fn on_late_headers(&mut self, env: &mut Env<'_>, id: u32) -> Result<(), Error> {
        let request = self.fields.get(0).is_some_and(|field| field.name.first() == Some(&b':'));
        if self.role == Role::Server && request && self.closed_streams.ended_by(id).is_none() {
            return Err(Error::protocol("HEADERS that open a stream below an earlier one"));
        }
        // Decoding one costs more than dropping one.
        self.ignore(env)?;
        self.on_late_frame(env, id)
    }
}
