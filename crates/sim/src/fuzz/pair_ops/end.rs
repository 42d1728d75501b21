use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_http2::{Config, Connection, ErrorCode, Event, Field, OpenError, Role, StreamKey};

use super::super::content;
use super::talk::{Over, Section, Talk, Talks};
use crate::referee::Referee;

/// One end of the pair, its user, and its side of the link.
pub(super) struct End {
    engine: Connection,
    pool: Pool,
    out: Output,
    now: Instant,
    referee: Referee,
    unread: Vec<u8>,
    talks: Talks,
    /// The most content that a stream carries in one direction.
    content_bytes_max: usize,
    /// How much content all streams together may still carry.
    content_left: usize,
    pings: u64,
    pongs: u64,
    /// The engine has said to wait for a stream.
    slot_wanted: bool,
    draining: bool,
    /// A deadline has passed.
    pub(super) failed: bool,
}

impl End {
    pub(super) fn new(role: Role, config: Config, content_bytes_max: usize) -> Self {
        Self {
            referee: Referee::new(role, &config),
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            now: Instant::from_nanos(1 << 40),
            unread: Vec::new(),
            talks: Talks::new(),
            content_bytes_max,
            content_left: content::BYTES_MAX,
            pings: 0,
            pongs: 0,
            slot_wanted: false,
            draining: false,
            failed: false,
        }
    }

    pub(super) const fn talks(&self) -> &Talks {
        &self.talks
    }

    /// Opens a stream, if this is a client and the engine lets it.
    pub(super) fn open(&mut self, metadata: usize, end: bool, head: bool) {
        let method: &[u8] = if head { b"HEAD" } else { b"POST" };
        let start: [(&[u8], &[u8]); 3] = [(b":method", method), (b":scheme", b"http"), (b":path", b"/")];
        let section = section(&start, metadata);
        match self.act(|engine, env| engine.open(env, fields(&section), end)) {
            Ok(key) => {
                let id = self.engine.stream_id(key).expect("a stream that has just begun");
                self.engine.set_user(key, id.into());
                let mut talk = Talk::new(key);
                talk.sections_sent.push_back(section);
                talk.ended = end;
                assert!(self.talks.insert(id, talk).is_none(), "a stream id twice");
            }
            Err(OpenError::LimitReached) => self.slot_wanted = true,
            Err(OpenError::GoingAway) => assert!(self.engine.is_going_away()),
            Err(OpenError::HeadersTooLarge { size, limit }) => assert!(size > limit),
            Err(OpenError::Exhausted) => panic!("nobody opens a billion streams"),
        }
    }

    /// Sends a response, an interim one, or trailers, where the protocol lets a user send one.
    pub(super) fn send_headers(&mut self, stream: usize, metadata: usize, end: bool, interim: bool) {
        let Some(id) = self.pick(stream) else { return };
        let role = self.engine.role();
        let talk = &self.talks[&id];
        let begun = role == Role::Client || talk.sections_sent.iter().any(|section| section[0].1 == b"200");
        let section = match (begun, interim && !end) {
            (true, _) => section(&[(b"checksum", b"31")], metadata),
            (false, true) => section(&[(b":status", b"103")], metadata),
            (false, false) => section(&[(b":status", b"200")], metadata),
        };
        let key = talk.key;
        if self.act(|engine, env| engine.send_headers(env, key, fields(&section), end)).is_ok() {
            let talk = self.talk(id);
            assert!(!talk.ended && (!begun || end), "headers where there can be none");
            talk.sections_sent.push_back(section);
            talk.ended = end;
            talk.writable_owed &= !end;
        }
    }

    /// Sends content in one of four ways.
    pub(super) fn send(&mut self, stream: usize, bytes: usize, end: bool, way: usize) {
        let Some(id) = self.pick(stream) else { return };
        let from_client = self.engine.role() == Role::Client;
        let talk = &self.talks[&id];
        let bytes = bytes.min(self.content_bytes_max - talk.sent).min(self.content_left);
        let content = content::of(id, from_client, talk.sent, bytes);
        let (key, ended) = (talk.key, talk.ended);
        let sent = self.act(|engine, env| match way {
            0 => engine.send_data(env, key, content, end),
            1 => {
                let mut block = env.pool.take(bytes);
                block.extend_from_slice(content);
                engine.send_block(env, key, block, end)
            }
            2 => engine.send_shared(env, key, content.to_vec().into(), end),
            _ => match engine.begin_data(env, key, bytes, end)? {
                true => {
                    env.out.extend_from_slice(content);
                    Ok(())
                }
                false => engine.send_data(env, key, content, end),
            },
        });
        if sent.is_ok() {
            assert!(!ended, "content behind the end");
            let waits = self.engine.may_queue(key) < self.engine.config().send_queue_bytes_max;
            self.content_left -= bytes;
            let talk = self.talk(id);
            talk.sent += bytes;
            talk.ended = end;
            talk.writable_owed = !end && (talk.writable_owed || waits && bytes > 0);
        }
    }

    pub(super) fn release(&mut self, stream: usize, bytes: usize) {
        let Some(id) = self.pick(stream) else { return };
        let talk = self.talk(id);
        let (key, bytes) = (talk.key, bytes.min(talk.held));
        talk.held -= bytes;
        self.act(|engine, env| engine.release(env, key, bytes));
    }

    /// Whether there was anything to release.
    pub(super) fn release_all(&mut self) -> bool {
        let held: Vec<(StreamKey, usize)> =
            self.talks.values_mut().map(|talk| (talk.key, std::mem::take(&mut talk.held))).collect();
        for &(key, bytes) in held.iter().filter(|&&(_, bytes)| bytes > 0) {
            self.act(|engine, env| engine.release(env, key, bytes));
        }
        held.iter().any(|&(_, bytes)| bytes > 0)
    }

    pub(super) fn reset(&mut self, stream: usize, code: ErrorCode) {
        let Some(id) = self.pick(stream) else { return };
        let key = self.talks[&id].key;
        self.act(|engine, env| engine.reset(env, key, code));
        self.on_dropped(id);
    }

    pub(super) fn reset_after_end(&mut self, stream: usize) {
        let Some(id) = self.pick(stream) else { return };
        let talk = self.talk(id);
        talk.discarding = true;
        let key = talk.key;
        self.act(|engine, env| engine.reset_after_end(env, key, ErrorCode::NoError));
        self.on_dropped(id);
    }

    pub(super) fn ping(&mut self) {
        self.pings += 1;
        let payload = self.pings.to_be_bytes();
        self.act(|engine, env| engine.ping(env, payload));
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.act(|engine, env| engine.drain(env));
    }

    pub(super) fn go_away(&mut self) {
        self.draining = true;
        self.act(|engine, env| engine.go_away(env, ErrorCode::NoError, b"enough"));
    }

    pub(super) fn transmit(&mut self) {
        self.act(|engine, env| engine.transmit(env));
    }

    /// Ends what the user can still end; whether there was anything.
    pub(super) fn end_all(&mut self) -> bool {
        let open: Vec<u32> = self
            .talks
            .iter()
            .filter(|(_, talk)| talk.over.is_none() && !talk.ended)
            .map(|(&id, _)| id)
            .collect();
        for &id in &open {
            let nth = self.talks.keys().position(|&known| known == id).expect("it is there");
            self.send_headers(nth, 0, true, false);
            if !self.talks[&id].ended {
                // The peer takes no list as large as that.
                self.reset(nth, ErrorCode::Cancel);
            }
        }
        !open.is_empty()
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        self.now = now;
        if self.failed || self.engine.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if let Err(error) = self.act(|engine, env| engine.on_deadline(env)) {
            assert!(error.text.contains("_ms: "), "{error}");
            self.failed = true;
        }
    }

    /// Takes at most so many bytes of the output, for the peer.
    pub(super) fn take_output(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < bytes && !self.out.is_empty() {
            let first = self.out.first();
            let length = first.len().min(bytes - taken.len());
            taken.extend_from_slice(&first[..length]);
            self.out.advance(length);
        }
        self.referee.on_left(taken.len());
        taken
    }

    /// Bytes have arrived, or the user has done something: the loop contract, until nothing is left to do.
    pub(super) fn receive(&mut self, bytes: &[u8], sent: &Talks) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        loop {
            let before = input.consumed();
            let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
            let event = self.engine.next_event(&mut env, &input);
            self.referee.on_taken(&unread[before..input.consumed()]);
            self.referee.on_written(&self.out);
            match event {
                Ok(Some(event)) => self.on_event(&event, sent),
                Ok(None) => {
                    self.transmit();
                    if !self.engine.has_events() {
                        break;
                    }
                }
                Err(error) => panic!("an error between two engines: {error}"),
            }
        }
        self.unread.extend_from_slice(input.remaining());
    }

    fn on_event(&mut self, event: &Event<'_>, sent: &Talks) {
        match *event {
            Event::Headers { stream, end } => self.on_headers(stream, end, sent),
            Event::Data { stream, bytes, end } => self.on_data(stream, bytes, end, sent),
            Event::Writable { stream } => {
                let id = self.id(stream);
                self.talk(id).writable_owed = false;
            }
            Event::Reset { user, .. } => self.on_over(user, Over::Reset),
            Event::Closed { user, .. } => self.on_over(user, Over::Closed),
            Event::Pong { payload } => {
                self.pongs += 1;
                assert!(u64::from_be_bytes(payload) <= self.pings, "an answer to no ping");
            }
            Event::StreamSlotFree => self.slot_wanted = false,
            Event::GoAway { .. } | Event::Ready => {}
        }
    }

    fn on_headers(&mut self, stream: StreamKey, end: bool, sent: &Talks) {
        let id = self.engine.stream_id(stream).expect("headers of a stream that is there");
        if self.engine.role() == Role::Server && !self.talks.contains_key(&id) {
            self.engine.set_user(stream, id.into());
            self.talks.insert(id, Talk::new(stream));
        }
        let fields: Section =
            self.engine.fields().map(|field| (field.name.to_vec(), field.value.to_vec())).collect();
        let talk = self.talk(id);
        assert!(talk.over.is_none() && !talk.end_received, "headers behind the end");
        talk.end_received = end;
        match sent.get(&id) {
            Some(other) => assert_eq!(other.sections_sent[talk.sections_received], fields, "stream {id}"),
            // The server's engine has answered a list that is too large, and told nobody.
            None => assert_eq!(fields[0].1, b"431"),
        }
        talk.sections_received += 1;
    }

    fn on_data(&mut self, stream: StreamKey, bytes: &[u8], end: bool, sent: &Talks) {
        let (id, from_client) = (self.id(stream), self.engine.role() == Role::Server);
        let config = self.engine.config();
        let window = config.stream_window_bytes.max(65_535).max(config.window_bytes_max) as usize;
        let talk = self.talk(id);
        assert!(talk.over.is_none() && !talk.end_received && talk.sections_received > 0, "stream {id}");
        let expected = content::of(id, from_client, talk.received, bytes.len());
        assert!(bytes == expected, "stream {id} brings something else from {} on", talk.received);
        talk.received += bytes.len();
        talk.held += bytes.len();
        talk.end_received = end;
        assert!(talk.held <= window, "more than a window is held");
        assert!(talk.received <= sent[&id].sent, "more arrived than was sent");
    }

    fn on_over(&mut self, user: u64, over: Over) {
        let talk = self.talks.get_mut(&(user as u32)).expect("the end of a stream that was begun");
        assert_eq!(talk.over, None, "stream {user} ends twice");
        assert!(over != Over::Closed || talk.ended, "stream {user} is closed, and the user has not ended it");
        talk.over = Some(over);
        talk.writable_owed = false;
        let key = talk.key;
        assert_eq!(self.engine.user(key), None, "a key of a stream that has ended");
    }

    /// The user has dropped a stream: its key is gone, unless both ends have ended it and only the event is to come.
    fn on_dropped(&mut self, id: u32) {
        let key = self.talks[&id].key;
        if self.engine.user(key).is_none() {
            let talk = self.talk(id);
            talk.over.get_or_insert(Over::Dropped);
            talk.writable_owed = false;
        }
    }

    /// Everything is delivered and released: nobody may be kept waiting.
    pub(super) fn check_senders(&self) {
        for (id, talk) in &self.talks {
            assert!(!talk.writable_owed, "the sender of stream {id} waits for ever");
        }
    }

    /// Everything is delivered, released and ended.
    pub(super) fn check_at_rest(&mut self, peer: &Self) {
        assert_eq!(
            (self.engine.streams(), self.unread.len(), self.out.len()),
            (0, 0, 0),
            "something is stuck"
        );
        assert_eq!(self.pool.outstanding(), 0, "a block has leaked");
        self.referee.check_at_rest();
        for (id, talk) in &self.talks {
            assert!(talk.over.is_some(), "stream {id} has no end");
            let Some(other) = peer.talks.get(id) else { continue };
            if talk.ended_well() && other.ended_well() {
                assert_eq!((talk.received, talk.end_received), (other.sent, true), "stream {id} is cut");
                assert_eq!(talk.sections_received, other.sections_sent.len(), "stream {id} lacks headers");
            }
        }
        // The answers to more than 16 at a time are not told.
        assert!(self.pings > 16 || self.pongs == self.pings, "{} of {} pings", self.pongs, self.pings);
        assert!(!self.draining || self.engine.is_drained(), "it does not drain");
        if self.engine.role() == Role::Client && !self.engine.is_going_away() {
            assert!(!self.slot_wanted, "a client waits for a stream that it could have");
        }
    }

    pub(super) fn close(&mut self) {
        self.act(|engine, env| engine.close(env));
        assert_eq!(self.pool.outstanding(), 0, "a block has leaked");
    }

    /// The id of a stream that the operand picks.
    fn pick(&self, stream: usize) -> Option<u32> {
        self.talks.keys().nth(stream % self.talks.len().max(1)).copied()
    }

    fn talk(&mut self, id: u32) -> &mut Talk {
        self.talks.get_mut(&id).expect("a stream that is known")
    }

    fn id(&self, stream: StreamKey) -> u32 {
        self.engine.stream_id(stream).expect("a stream that is there")
    }

    /// Calls the engine, before the referee's eyes.
    fn act<R>(&mut self, deed: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
        let result = deed(&mut self.engine, &mut env);
        self.referee.on_written(&self.out);
        result
    }
}

/// A header section: how it begins, and metadata that the operand chooses, some of which repeats and some of which is long.
fn section(start: &[(&[u8], &[u8])], metadata: usize) -> Section {
    let mut section: Section = start.iter().map(|&(name, value)| (name.to_vec(), value.to_vec())).collect();
    for nth in 0..metadata & 0x03 {
        let name = format!("x-{}", (metadata >> 2 & 0x07) + nth);
        let length = if metadata >= 0xf0 { metadata * 40 } else { metadata >> 4 };
        // Not worth a Huffman code, which would take most of the time; hpack_roundtrip looks at those.
        section.push((name.into_bytes(), vec![b'!'; length]));
    }
    section
}

fn fields(section: &Section) -> impl Iterator<Item = Field<'_>> + Clone {
    section.iter().map(|(name, value)| Field::new(name, value))
}
