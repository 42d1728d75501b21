//! Two engines whose users do things at random, on a wire that is cut at random, and bytes that were changed on the way. Each seed
//! is one conversation: a failure names its seed.

use std::collections::HashMap;

use bytes::Bytes;
use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_http2::{Config, Connection, ErrorCode, Event, Role, StreamKey};

use crate::support::{fields, ok, request, trailers};

/// A small generator (xorshift64*): the same seed gives the same conversation.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) as usize) % bound
    }

    /// A number below `bound`, small ones as often as large ones.
    fn skewed(&mut self, bound: usize) -> usize {
        let bits = self.below(bound.ilog2() as usize + 1);
        self.below((1 << (bits + 1)).min(bound))
    }

    fn config(&mut self) -> Config {
        Config {
            stream_window_bytes: 1 + self.skewed(200_000) as u32,
            connection_window_bytes: self.skewed(1 << 20) as u32,
            frame_bytes_max: self.skewed(100_000) as u32,
            header_table_bytes_max: self.skewed(8_192) as u32,
            streams_max: 1 + self.below(20) as u32,
            resets_received_budget: u32::MAX,
            resets_provoked_budget: u32::MAX,
            ..Config::default()
        }
    }
}

/// What one end knows of a stream.
#[derive(Default)]
struct Talk {
    sent: Vec<u8>,
    /// Everything is sent, END_STREAM too.
    ended: bool,
    received: Vec<u8>,
    /// Received and not released.
    held: usize,
    closed: bool,
    reset: bool,
}

struct End {
    /// The longest content sent at once: not so much that windows of a few bytes take the test minutes.
    content_max: usize,
    engine: Connection,
    pool: Pool,
    out: Output,
    unread: Vec<u8>,
    /// By stream id.
    talks: HashMap<u32, Talk>,
    keys: Vec<(u32, StreamKey)>,
}

impl End {
    fn new(role: Role, config: Config, content_max: usize) -> Self {
        Self {
            content_max,
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            unread: Vec::new(),
            talks: HashMap::new(),
            keys: Vec::new(),
        }
    }

    fn id(&self, key: StreamKey) -> u32 {
        self.keys.iter().rev().find(|&&(_, known)| known == key).expect("a key that was seen").0
    }

    fn run(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        loop {
            let mut env = Env { now: Instant::ZERO, pool: &mut self.pool, out: &mut self.out };
            match self.engine.next_event(&mut env, &input).expect("no error between two engines") {
                Some(event) => self.on_event(&event),
                None => {
                    self.engine.transmit(&mut env);
                    if !self.engine.has_events() {
                        break;
                    }
                }
            }
        }
        self.unread.extend_from_slice(input.remaining());
    }

    fn on_event(&mut self, event: &Event<'_>) {
        match *event {
            Event::Headers { stream, .. } if !self.keys.iter().any(|&(_, known)| known == stream) => {
                let id = self.engine.stream_id(stream).expect("a stream that has just begun");
                self.keys.push((id, stream));
                self.talks.insert(id, Talk::default());
                let mut env = Env { now: Instant::ZERO, pool: &mut self.pool, out: &mut self.out };
                // SETTINGS that were changed on the way may forbid any.
                let _ = self.engine.send_headers(&mut env, stream, fields(&ok()), false);
            }
            Event::Data { stream, bytes, .. } => {
                let talk = self.talks.get_mut(&self.id(stream)).expect("a talk for each stream");
                talk.received.extend_from_slice(bytes);
                talk.held += bytes.len();
            }
            Event::Closed { stream, .. } => {
                self.talks.get_mut(&self.id(stream)).expect("a talk").closed = true
            }
            Event::Reset { stream, .. } => self.talks.get_mut(&self.id(stream)).expect("a talk").reset = true,
            _ => {}
        }
    }

    /// The user does one thing.
    fn act(&mut self, random: &mut Random) {
        let mut env = Env { now: Instant::ZERO, pool: &mut self.pool, out: &mut self.out };
        if self.engine.role() == Role::Client && random.below(4) == 0 {
            if let Ok(key) = self.engine.open(&mut env, fields(&request()), false) {
                let id = self.engine.stream_id(key).expect("a stream that has just begun");
                self.keys.push((id, key));
                self.talks.insert(id, Talk::default());
            }
            return;
        }
        if self.keys.is_empty() {
            return;
        }
        let (id, key) = self.keys[random.below(self.keys.len())];
        let talk = self.talks.get_mut(&id).expect("a talk for each stream");
        match random.below(100) {
            0..50 => {
                let end = random.below(8) == 0;
                let content: Vec<u8> =
                    (0..random.skewed(self.content_max)).map(|_| random.next() as u8).collect();
                let sent = match random.below(4) {
                    0 => self.engine.send_shared(&mut env, key, Bytes::from(content.clone()), end),
                    1 => {
                        let mut block = env.pool.take(content.len());
                        block.extend_from_slice(&content);
                        self.engine.send_block(&mut env, key, block, end)
                    }
                    2 => match self.engine.begin_data(&mut env, key, content.len(), end) {
                        Ok(true) => {
                            env.out.extend_from_slice(&content);
                            Ok(())
                        }
                        Ok(false) => self.engine.send_data(&mut env, key, &content, end),
                        Err(error) => Err(error),
                    },
                    _ => self.engine.send_data(&mut env, key, &content, end),
                };
                if sent.is_ok() {
                    talk.sent.extend_from_slice(&content);
                    talk.ended |= end;
                }
            }
            50..60 => {
                talk.ended |= self.engine.send_headers(&mut env, key, fields(&trailers()), true).is_ok()
            }
            60..90 => {
                let taken = random.below(talk.held + 1);
                talk.held -= taken;
                self.engine.release(&mut env, key, taken);
            }
            90..92 => {
                talk.reset = true;
                self.engine.reset(&mut env, key, ErrorCode::Cancel);
            }
            92..94 => {
                // What the peer sends from here on is discarded, so it is not compared.
                talk.reset = true;
                self.engine.reset_after_end(&mut env, key, ErrorCode::NoError);
            }
            _ => self.engine.ping(&mut env, [random.next() as u8; 8]),
        }
    }

    /// The user takes all there is and ends all streams.
    fn finish(&mut self) {
        let mut env = Env { now: Instant::ZERO, pool: &mut self.pool, out: &mut self.out };
        for &(id, key) in &self.keys {
            let talk = self.talks.get_mut(&id).expect("a talk for each stream");
            self.engine.release(&mut env, key, std::mem::take(&mut talk.held));
            if !talk.ended {
                talk.ended = self.engine.send_headers(&mut env, key, fields(&trailers()), true).is_ok();
            }
        }
    }
}

/// Moves at most `piece` bytes of what waits.
fn carry(from: &mut Output, to: &mut Vec<u8>, piece: usize) -> bool {
    let first = from.first();
    let moved = first.len().min(piece);
    to.extend_from_slice(&first[..moved]);
    from.advance(moved);
    moved > 0
}

fn converse(seed: u64) {
    let mut random = Random::new(seed);
    let (client, server) = (random.config(), random.config());
    let narrowest = client.stream_window_bytes.min(server.stream_window_bytes) as usize;
    let content_max = (20 * narrowest).min(50_000);
    let mut client = End::new(Role::Client, client, content_max);
    let mut server = End::new(Role::Server, server, content_max);
    for _ in 0..random.below(300) {
        for end in [&mut client, &mut server] {
            end.act(&mut random);
            end.run();
        }
        carry(&mut client.out, &mut server.unread, random.skewed(100_000));
        carry(&mut server.out, &mut client.unread, random.skewed(100_000));
    }
    loop {
        let mut progress = false;
        for end in [&mut client, &mut server] {
            end.run();
            end.finish();
            end.run();
        }
        progress |= carry(&mut client.out, &mut server.unread, usize::MAX);
        progress |= carry(&mut server.out, &mut client.unread, usize::MAX);
        if !progress {
            break;
        }
    }
    for (from, to) in [(&client, &server), (&server, &client)] {
        assert_eq!((from.engine.streams(), from.unread.len()), (0, 0), "seed {seed}: something is stuck");
        assert_eq!(from.pool.outstanding(), 0, "seed {seed}: a block has leaked");
        for (id, talk) in &from.talks {
            assert!(talk.closed || talk.reset, "seed {seed}: stream {id} has no end");
            let Some(other) = to.talks.get(id) else {
                assert!(talk.reset, "seed {seed}: stream {id} never arrived");
                continue;
            };
            if talk.reset || other.reset {
                assert!(talk.sent.starts_with(&other.received), "seed {seed}: stream {id} differs");
            } else {
                assert!(talk.sent == other.received, "seed {seed}: stream {id} differs or is cut");
            }
        }
    }
}

/// `FULMAR_SEEDS=10000` runs more of them.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("FULMAR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn whatever_two_users_do_all_content_arrives_and_everything_ends() {
    seeds().for_each(converse);
}

#[test]
fn bytes_that_were_changed_on_the_way_end_with_an_error_at_most() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut client = End::new(Role::Client, Config::default(), 50_000);
        let mut server = End::new(Role::Server, Config::default(), 50_000);
        'conversation: for _ in 0..60 {
            client.act(&mut random);
            server.act(&mut random);
            carry(&mut client.out, &mut server.unread, random.skewed(10_000));
            carry(&mut server.out, &mut client.unread, random.skewed(10_000));
            for end in [&mut client, &mut server] {
                if !end.unread.is_empty() && random.below(3) == 0 {
                    let at = random.below(end.unread.len());
                    end.unread[at] ^= 1 << random.below(8);
                }
                let unread = std::mem::take(&mut end.unread);
                let input = Input::new(&unread);
                loop {
                    let mut env = Env { now: Instant::ZERO, pool: &mut end.pool, out: &mut end.out };
                    match end.engine.next_event(&mut env, &input) {
                        Ok(Some(event)) => end.on_event(&event),
                        Ok(None) => break,
                        Err(_) => break 'conversation,
                    }
                }
                let mut env = Env { now: Instant::ZERO, pool: &mut end.pool, out: &mut end.out };
                end.engine.transmit(&mut env);
                end.unread.extend_from_slice(input.remaining());
            }
        }
        for end in [&mut client, &mut server] {
            let mut env = Env { now: Instant::ZERO, pool: &mut end.pool, out: &mut end.out };
            end.engine.close(&mut env);
            assert_eq!((end.pool.outstanding(), end.engine.streams()), (0, 0), "seed {seed}");
        }
    }
}
