use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_grpc::Code;
use fulmar_http2::{Config, Connection, ErrorCode, Event, Field, Role, StreamKey};

use super::super::content;
use super::talk::{Answer, Talk, Talks, frame};
use super::{Shape, runs};

/// Values of `content-type`, and whether they are gRPC of a format that is spoken here.
const CONTENT_TYPES: [(Option<&[u8]>, bool); 8] = [
    (Some(b"application/grpc"), true),
    (Some(b"application/grpc"), true),
    (Some(b"application/grpc"), true),
    (Some(b"application/grpc+proto"), true),
    (Some(b"Application/GRPC; charset=utf-8"), true),
    (Some(b"text/html"), false),
    (None, false),
    (Some(b"application/grpc+json"), false),
];

/// Paths, and which method each is.
const PATHS: [(&[u8], Option<u32>); 3] =
    [(b"/sea.Birds/Glide", Some(0)), (b"/sea.Birds/Dive", Some(1)), (b"/sea.Birds/Talk", None)];

/// Values of `grpc-timeout`, and whether a call may begin with them.
const TIMEOUTS: [(Option<&[u8]>, bool); 5] = [
    (None, true),
    (Some(b"200m"), true),
    (Some(b"99999999H"), true),
    (Some(b"0n"), false),
    (Some(b"-1S"), false),
];

/// A name and a value.
type NameValue = (&'static [u8], &'static [u8]);

/// Further fields of a request, and whether a call may have them.
const EXTRAS: [(Option<NameValue>, bool); 4] = [
    (None, true),
    (Some((b"x-data-bin", b"AAEC")), true),
    (Some((b"x-data-bin", b"A")), false),
    (Some((b"grpc-encoding", b"gzip")), false),
];

/// HTTP statuses of answers.
const STATUSES: [&[u8]; 8] = [b"200", b"200", b"200", b"200", b"103", b"404", b"503", b"200"];

/// Values of `grpc-status` in trailers, and what they come to.
const GRPC_STATUSES: [(Option<&[u8]>, Code); 8] = [
    (Some(b"0"), Code::Ok),
    (Some(b"5"), Code::NotFound),
    (Some(b"99"), Code::Unknown),
    (Some(b"x"), Code::Unknown),
    (None, Code::Unknown),
    (Some(b"13"), Code::Internal),
    (Some(b"0"), Code::Internal),
    (Some(b"16"), Code::Unauthenticated),
];

/// The other end of the connection: HTTP/2 alone, so that it can say anything that HTTP/2 lets pass.
pub(super) struct Peer {
    engine: Connection,
    pool: Pool,
    out: Output,
    unread: Vec<u8>,
    /// Not released: stream and bytes.
    held: Vec<(StreamKey, usize)>,
    shape: Shape,
    pub(super) went_away: bool,
    /// How much may still be written, so that no input takes for ever.
    content_left: usize,
}

impl Peer {
    pub(super) fn new(shape: Shape) -> Self {
        let role = if shape.is_server() { Role::Client } else { Role::Server };
        // Enough for the headers of an answer, which also tell the encodings.
        let header_list_bytes_max = match (shape.short_lists(), shape.unfolds()) {
            (false, _) => 16_384,
            (true, false) => 150,
            (true, true) => 220,
        };
        let config = Config { header_list_bytes_max, ..patient() };
        Self {
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            unread: Vec::new(),
            held: Vec::new(),
            shape,
            went_away: false,
            content_left: 40_000,
        }
    }

    pub(super) fn is_client(&self) -> bool {
        self.engine.role() == Role::Client
    }

    /// Client: sends a request, which need not be a call.
    pub(super) fn ask(&mut self, talks: &mut Talks, head: usize, more: usize) {
        let (content_type, good_content_type) = CONTENT_TYPES[head & 0x07];
        let (path, method) = PATHS[(head >> 3 & 0x03) % PATHS.len()];
        let (timeout, good_timeout) = TIMEOUTS[(head >> 5) % TIMEOUTS.len()];
        let (extra, good_extra) = EXTRAS[more >> 2 & 0x03];
        let get = more & 0x10 != 0;
        let id = talks.last_key_value().map_or(1, |(last, _)| last + 2);
        let name = id.to_string();
        let mut fields = vec![
            Field::new(b":method", if get { b"GET" } else { b"POST" }),
            Field::new(b":scheme", b"http"),
            Field::new(b":path", path),
            Field::new(b"x-id", name.as_bytes()),
        ];
        fields.extend(content_type.map(|value| Field::new(b"content-type", value)));
        fields.extend(timeout.map(|value| Field::new(b"grpc-timeout", value)));
        fields.extend(extra.map(|(name, value)| Field::new(name, value)));
        let encoding = (more & 0x80 != 0 && more & 0x0c != 0x0c).then_some(runs::NAME.as_bytes());
        fields.extend(encoding.map(|name| Field::new(b"grpc-encoding", name)));
        fields.extend((more & 0x20 != 0).then_some(Field::sensitive(b"authorization", b"none")));
        let end = more & 0x40 != 0;
        let opened = self.act(|engine, env| engine.open(env, fields.iter().copied(), end));
        let Ok(stream) = opened else { return };
        assert_eq!(self.engine.stream_id(stream), Some(id));
        self.engine.set_user(stream, id.into());
        let good_encoding = encoding.is_none() || self.shape.unfolds();
        let is_call =
            good_content_type && good_timeout && good_extra && good_encoding && !get && method.is_some();
        talks.insert(
            id,
            Talk {
                stream: Some(stream),
                is_call,
                method: method.unwrap_or_default(),
                packed: encoding.is_some(),
                peer_ended: end,
                ..Talk::default()
            },
        );
    }

    /// Server: sends the header section of an answer, an interim one, or one that is all of the answer.
    pub(super) fn answer(&mut self, talks: &mut Talks, call: usize, head: usize, code: usize) {
        let Some(talk) = pick(talks, call).filter(|talk| !talk.peer_ended) else { return };
        let Some(stream) = talk.stream else { return };
        let status = STATUSES[head & 0x07];
        let content_type =
            [CONTENT_TYPES[0], CONTENT_TYPES[0], CONTENT_TYPES[5], CONTENT_TYPES[6]][head >> 3 & 0x03].0;
        let mut fields = vec![Field::new(b":status", status)];
        fields.extend(content_type.map(|value| Field::new(b"content-type", value)));
        // Not known to who does not unfold.
        let packed = head & 0x20 != 0;
        fields.extend(packed.then_some(Field::new(b"grpc-encoding", runs::NAME.as_bytes())));
        fields.extend((head & 0x40 != 0).then_some(Field::new(b"x-data-bin", b"!")));
        let only = head & 0x80 != 0;
        let (trailers, verdict) = trailers(code);
        fields.extend(only.then_some(trailers).into_iter().flatten());
        let good = status == b"200" && head & 0x50 == 0 && (!packed || self.shape.unfolds());
        let interim = status == b"103" && !only;
        if self.act(|engine, env| engine.send_headers(env, stream, fields.iter().copied(), only)).is_err() {
            return;
        }
        talk.peer_ended = only;
        let told = GRPC_STATUSES[code & 0x07].0.is_some();
        if only && talk.answer == Answer::None && status != b"103" && (good || told) {
            // A status counts whatever HTTP says, but OK with metadata that is not what its name says.
            let faulty = head & 0x40 != 0 && verdict == Some(Code::Ok);
            talk.verdict = if faulty { Some(Code::Internal) } else { verdict };
        }
        if !interim && talk.answer == Answer::None {
            talk.answer = if good { Answer::Good } else { Answer::Bad };
            talk.packed = packed;
        }
    }

    /// Writes a message behind what a stream has not sent yet.
    pub(super) fn queue_message(&mut self, talks: &mut Talks, call: usize, bytes: usize) {
        let Some(talk) = pick(talks, call) else { return };
        let bytes = bytes.min(self.content_left);
        self.content_left -= bytes;
        let offset = self.content_left % 1_000;
        talk.queued.extend(frame(content::of(call as u32, self.is_client(), offset, bytes)));
    }

    /// Writes a compressed message there: of chance, of many bytes that are all the same, cut short, or with a run of nothing.
    pub(super) fn queue_packed(&mut self, talks: &mut Talks, call: usize, bytes: usize, how: usize) {
        let Some(talk) = pick(talks, call) else { return };
        let bytes = bytes.min(self.content_left);
        let mut packed = if how & 0x04 == 0 {
            let offset = self.content_left % 1_000;
            runs::pack(content::of(call as u32, self.is_client(), offset, bytes / 2))
        } else {
            runs::pack(&vec![how as u8; bytes * 64])
        };
        match how & 0x03 {
            2 => drop(packed.pop()),
            3 => packed.extend([0, 7]),
            _ => {}
        }
        self.content_left -= packed.len().min(self.content_left);
        let mut framed = frame(&packed);
        framed[0] = 1;
        talk.queued.extend(framed);
    }

    /// Writes any bytes there.
    pub(super) fn queue(&mut self, talks: &mut Talks, call: usize, bytes: &[u8]) {
        if let Some(talk) = pick(talks, call) {
            talk.queued.extend_from_slice(bytes);
        }
    }

    /// Sends so many bytes of what was written; with `end`, and if that is all, END_STREAM.
    pub(super) fn flush(&mut self, talks: &mut Talks, call: usize, bytes: usize, end: bool) {
        let Some(talk) = pick(talks, call).filter(|talk| !talk.peer_ended) else { return };
        let Some(stream) = talk.stream else { return };
        let bytes = bytes.min(talk.queued.len());
        let end = end && bytes == talk.queued.len();
        let sent = self.act(|engine, env| engine.send_data(env, stream, &talk.queued[..bytes], end));
        if sent.is_ok() {
            talk.sent.extend(talk.queued.drain(..bytes));
            talk.peer_ended = end;
        }
    }

    /// Ends a stream with trailers.
    pub(super) fn end(&mut self, talks: &mut Talks, call: usize, code: usize) {
        let is_client = self.is_client();
        let Some(talk) = pick(talks, call).filter(|talk| !talk.peer_ended) else { return };
        let Some(stream) = talk.stream else { return };
        let (fields, verdict) = trailers(code);
        let answered = talk.answer != Answer::None;
        let opening = (!is_client && !answered).then_some([Field::new(b":status", b"204")]);
        let fields = opening.into_iter().flatten().chain(fields.iter().copied());
        if self.act(|engine, env| engine.send_headers(env, stream, fields, true)).is_ok() {
            talk.peer_ended = true;
            let told = GRPC_STATUSES[code & 0x07].0.is_some();
            if talk.answer == Answer::Good || !answered && told {
                talk.verdict = verdict;
            }
        }
    }

    pub(super) fn reset(&mut self, talks: &mut Talks, call: usize, refuse: bool) {
        let Some(talk) = pick(talks, call) else { return };
        let Some(stream) = talk.stream else { return };
        let code = if refuse { ErrorCode::RefusedStream } else { ErrorCode::Cancel };
        self.act(|engine, env| engine.reset(env, stream, code));
        talk.peer_reset = true;
        talk.peer_over = true;
        talk.peer_ended = true;
    }

    pub(super) fn ping(&mut self) {
        self.act(|engine, env| engine.ping(env, *b"fulmar!!"));
    }

    pub(super) fn go_away(&mut self) {
        self.went_away = true;
        self.act(|engine, env| engine.go_away(env, ErrorCode::NoError, b"moulting"));
    }

    /// Ends what is still open, a server's answers in good order.
    pub(super) fn end_all(&mut self, talks: &mut Talks) {
        for call in 0..talks.len() {
            if !self.is_client() {
                self.answer(talks, call, 0, 0);
            }
            self.end(talks, call, 0);
        }
    }

    /// How much of what was sent on a stream waits.
    pub(super) fn waiting_bytes(&self, talk: &Talk) -> usize {
        let waiting_max = self.engine.config().send_queue_bytes_max;
        let stream = talk.stream.filter(|_| !talk.peer_ended);
        stream.map_or(0, |stream| waiting_max - self.engine.may_queue(stream))
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Takes at most so many bytes of the output.
    pub(super) fn take_output(&mut self, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        self.act(|engine, env| engine.transmit(env));
        self.out.move_to(&mut all);
        let rest = all.split_off(bytes.min(all.len()));
        self.out.extend_from_slice(&rest);
        all
    }

    pub(super) fn receive(&mut self, bytes: &[u8], talks: &mut Talks) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        loop {
            match self.act(|engine, env| engine.next_event(env, &input)).expect("the end under test errs") {
                Some(event) => self.on_event(&event, talks),
                None => {
                    self.act(|engine, env| engine.transmit(env));
                    if !self.engine.has_events() {
                        break;
                    }
                }
            }
        }
        self.unread.extend_from_slice(input.remaining());
    }

    /// Whether there was anything to release.
    pub(super) fn release_all(&mut self, talks: &mut Talks) -> bool {
        let held = std::mem::take(&mut self.held);
        for &(stream, bytes) in &held {
            self.act(|engine, env| engine.release(env, stream, bytes));
        }
        self.receive(&[], talks);
        !held.is_empty()
    }

    fn on_event(&mut self, event: &Event<'_>, talks: &mut Talks) {
        match *event {
            Event::Headers { stream, end } if self.is_client() => self.on_answer(stream, end, talks),
            Event::Headers { stream, .. } => self.on_request(stream, talks),
            Event::Data { stream, bytes, end } => {
                let talk = self.talk(stream, talks);
                talk.hear(bytes);
                assert!(!end || !self.is_client(), "an answer without trailers");
                self.held.push((stream, bytes.len()));
                if !self.shape.slow_peer() {
                    let held = std::mem::take(&mut self.held);
                    held.iter().for_each(|&(stream, bytes)| {
                        self.act(|engine, env| engine.release(env, stream, bytes));
                    });
                }
            }
            Event::Reset { user, .. } | Event::Closed { user, .. } => {
                if let Some(talk) = talks.get_mut(&(user as u32)) {
                    talk.peer_over = true;
                    talk.peer_ended = true;
                }
            }
            _ => {}
        }
    }

    /// Server: what a client under test asks.
    fn on_request(&mut self, stream: StreamKey, talks: &mut Talks) {
        let id = self.engine.stream_id(stream).expect("a stream that has just begun");
        let field =
            |name: &[u8]| self.engine.fields().find(|field| field.name == name).map(|field| field.value);
        assert_eq!(field(b":method"), Some(&b"POST"[..]));
        assert_eq!(field(b"te"), Some(&b"trailers"[..]));
        assert_eq!(field(b"content-type"), Some(&b"application/grpc"[..]));
        assert_eq!(field(b"x-id"), Some(id.to_string().as_bytes()));
        self.engine.set_user(stream, id.into());
        talks.get_mut(&id).expect("a call that was started").stream = Some(stream);
    }

    /// Client: what a server under test answers.
    fn on_answer(&mut self, stream: StreamKey, end: bool, talks: &mut Talks) {
        let field =
            |name: &[u8]| self.engine.fields().find(|field| field.name == name).map(|field| field.value);
        let (http_status, status) = (field(b":status"), field(b"grpc-status"));
        let content_type = field(b"content-type");
        let code = status.map(Code::from_wire);
        let short_lists = self.shape.short_lists();
        let talk = self.talk(stream, talks);
        if !talk.is_call {
            assert!(code != Some(Code::Ok), "a request that is no call succeeds");
            return;
        }
        assert!(http_status.is_none_or(|status| status == b"200"), "a call is answered with {http_status:?}");
        assert!(http_status.is_none() || content_type == Some(b"application/grpc"));
        assert_eq!(end, code.is_some(), "a status, and more to come, or none at the end");
        if !end {
            return;
        }
        talk.check_all_heard();
        match talk.status {
            Some(_) if short_lists => {}
            Some(status) => assert_eq!(code, Some(status), "another status than the user gave"),
            None => assert_ne!(code, Some(Code::Ok), "a status that the user did not give"),
        }
    }

    fn talk<'t>(&self, stream: StreamKey, talks: &'t mut Talks) -> &'t mut Talk {
        let id = self.engine.stream_id(stream).expect("a stream that is there");
        talks.get_mut(&id).expect("a stream that was begun")
    }

    pub(super) fn close(&mut self) {
        self.act(|engine, env| engine.close(env));
    }

    fn act<R>(&mut self, deed: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        deed(&mut self.engine, &mut Env::new(Instant::ZERO, &mut self.pool, &mut self.out))
    }
}

/// Limits that this peer, which means no harm to HTTP/2, does not cross.
pub(super) fn patient() -> Config {
    const NO_BUDGET: u32 = 1 << 30;
    Config {
        resets_received_budget: NO_BUDGET,
        resets_provoked_budget: NO_BUDGET,
        pings_budget: NO_BUDGET,
        empty_data_budget: NO_BUDGET,
        tiny_data_budget: NO_BUDGET,
        window_updates_budget: NO_BUDGET,
        ignored_frames_budget: NO_BUDGET,
        credit_wait_ms: 0,
        ..Config::default()
    }
}

/// Trailers, and what they come to.
fn trailers(code: usize) -> (Vec<Field<'static>>, Option<Code>) {
    let (status, verdict) = GRPC_STATUSES[code & 0x07];
    let mut fields = Vec::new();
    fields.extend(status.map(|status| Field::new(b"grpc-status", status)));
    fields.extend((code & 0x08 != 0).then_some(Field::new(b"grpc-message", b"%e2%98%ba %zz%")));
    fields.extend((code & 0x10 != 0).then_some(Field::new(b"grpc-status-details-bin", b"CAU")));
    // Metadata that is not what its name says makes OK an error, and no error another one.
    fields.extend((code & 0x07 == 6).then_some(Field::new(b"x-data-bin", b"?")));
    (fields, Some(verdict))
}

fn pick(talks: &mut Talks, call: usize) -> Option<&mut Talk> {
    let count = talks.len().max(1);
    talks.values_mut().nth(call % count)
}
