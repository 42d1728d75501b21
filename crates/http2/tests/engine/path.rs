//! Two engines at the ends of a path with a delay and a rate, in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_http2::{Config, Connection, Event, Role};

use crate::support::PREFACE;

/// What the frames of an end have been, by type.
#[derive(Default, Debug)]
pub(crate) struct Sent {
    pub(crate) data: usize,
    pub(crate) pings: usize,
    pub(crate) pongs: usize,
    pub(crate) window_updates: usize,
}

/// One end, and what it has put on its way.
pub(crate) struct End {
    pub(crate) engine: Connection,
    pub(crate) pool: Pool,
    pub(crate) out: Output,
    pub(crate) sent: Sent,
    unread: Vec<u8>,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    /// When the last byte has been put on the line, as far as the rate says.
    busy_until: Instant,
    preface_bytes: usize,
}

impl End {
    fn new(role: Role, config: Config) -> Self {
        Self {
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            sent: Sent::default(),
            unread: Vec::new(),
            under_way: VecDeque::new(),
            busy_until: Instant::ZERO,
            preface_bytes: if role == Role::Client { PREFACE.len() } else { 0 },
        }
    }

    /// Counts frames; whole ones, as each write is.
    fn count(&mut self, mut bytes: &[u8]) {
        bytes = &bytes[std::mem::take(&mut self.preface_bytes)..];
        while let [a, b, c, kind, flags, ..] = *bytes {
            match (kind, flags & 1) {
                (0, _) => self.sent.data += 1,
                (6, 0) => self.sent.pings += 1,
                (6, _) => self.sent.pongs += 1,
                (8, _) => self.sent.window_updates += 1,
                _ => {}
            }
            bytes = &bytes[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
        }
    }
}

/// What an application does with the events of its end.
pub(crate) type Application<'a> = &'a mut dyn FnMut(&mut Connection, &mut Env<'_>, &Event<'_>);

pub(crate) struct Path {
    pub(crate) now: Instant,
    pub(crate) client: End,
    pub(crate) server: End,
    one_way: Duration,
    bytes_a_second: u64,
}

impl Path {
    pub(crate) fn new(round_trip: Duration, bytes_a_second: u64, client: Config, server: Config) -> Self {
        Self {
            now: Instant::from_nanos(1),
            client: End::new(Role::Client, client),
            server: End::new(Role::Server, server),
            one_way: round_trip / 2,
            bytes_a_second,
        }
    }

    pub(crate) fn on_client<R>(&mut self, act: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        let mut env = Env { now: self.now, pool: &mut self.client.pool, out: &mut self.client.out };
        act(&mut self.client.engine, &mut env)
    }

    /// Lets time pass until nothing is under way, or until `until`; then it is that.
    pub(crate) fn run(&mut self, until: Instant, client: Application<'_>, server: Application<'_>) {
        loop {
            self.settle(true, client);
            self.settle(false, server);
            let arrivals = [&self.client, &self.server].map(|end| end.under_way.front().map(|&(at, _)| at));
            match arrivals.into_iter().flatten().min() {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// Gives an end what has arrived, and puts on its way what it has to say.
    fn settle(&mut self, is_client: bool, application: Application<'_>) {
        let Self { now, one_way, bytes_a_second, .. } = *self;
        let (end, other) = match is_client {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        while other.under_way.front().is_some_and(|&(at, _)| at <= now) {
            let (_, bytes) = other.under_way.pop_front().expect("there is a first");
            end.unread.extend(bytes);
        }
        let unread = std::mem::take(&mut end.unread);
        let input = Input::new(&unread);
        loop {
            let mut env = Env { now, pool: &mut end.pool, out: &mut end.out };
            if end.engine.next_deadline().is_some_and(|at| at <= now) {
                end.engine.on_deadline(&mut env).expect("no error between two engines");
            }
            while let Some(event) =
                end.engine.next_event(&mut env, &input).expect("no error between two engines")
            {
                application(&mut end.engine, &mut env, &event);
            }
            end.engine.transmit(&mut env);
            let mut bytes = Vec::new();
            end.out.move_to(&mut bytes);
            if bytes.is_empty() && !end.engine.has_events() {
                break;
            }
            end.count(&bytes);
            // In packets, so that a slow path does not deliver all of them when the last one arrives.
            let packet = if bytes_a_second == u64::MAX { usize::MAX } else { 1_460 };
            for piece in bytes.chunks(packet) {
                let nanos = piece.len() as u128 * 1_000_000_000 / u128::from(bytes_a_second);
                end.busy_until = end.busy_until.max(now) + Duration::from_nanos(nanos as u64);
                end.under_way.push_back((end.busy_until + one_way, piece.to_vec()));
            }
        }
        end.unread.extend_from_slice(input.remaining());
    }
}
