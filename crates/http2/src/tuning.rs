//! Bandwidth-delay tuning: how large windows have to be to keep a path full, found out by probes.
//!
//! A sender that is bound by a window sends one window in each round trip. So a probe, a PING, measures a round trip, and counts
//! what arrives meanwhile: two thirds of a window and more mean that the window may be what binds the sender, and it is doubled,
//! unless that did not bring more bytes a second the last time.
//!
//! A window that is larger than what the path holds makes a queue in front of it, in which small calls wait too: no more than 1 MiB
//! where round trips are short.
//!
//! A probe costs little, but is not for free: at most one is under way, and none is sent while windows are far from full, which is
//! when half of one lasts longer than a round trip. After two probes in a row that changed nothing the tuner rests, and when
//! all windows are as large as they may become it is done.

use std::time::Duration;

use fulmar_base::Instant;

use crate::stream::StreamKey;

/// A round trip before one was measured: beyond any path that a window of 64 KiB could keep busy.
const ROUND_TRIP_ASSUMED: Duration = Duration::from_secs(1);

/// The longest rest between probes that change nothing: no longer, so that a transfer that begins waits for none.
const REST_MAX: Duration = Duration::from_secs(1);

/// How many probes in a row may change nothing before the tuner rests. The first one begins in the middle of a burst and so
/// sees only a part of it; the next one begins with the first byte of a burst.
const FRUITLESS_MAX: u32 = 2;

/// However short the path, windows may grow to so much: ends take their time too.
const USEFUL_BYTES_MIN: u32 = 1024 * 1024;

/// No connection carries more bytes in a nanosecond, so that no window need have more for each nanosecond of a round trip.
const BYTES_A_NANOSECOND_MAX: u64 = 2;

/// The first half of the payload of a probe, by which it is told from other pings; the second half is its number.
const PAYLOAD: [u8; 4] = *b"bdp:";

/// Finds the sizes that the windows of a connection should have.
#[derive(Debug)]
pub(crate) struct Tuner {
    /// The largest size, in bytes.
    bytes_max: u32,
    /// The size to which the windows of streams grow whose application takes what arrives.
    stream_bytes: u32,
    state: State,
    /// How many probes were sent.
    number: u32,
    fruitless: u32,
    rest: Duration,
    rests_until: Instant,
    round_trip: Option<Duration>,
    /// The shortest one, in which the least waited in queues. Four seconds, the most that there is a number for, are as good as none:
    /// no window is too large for them.
    shortest_ns: u32,
    connection_pace: Pace,
    /// The rates for which the windows were last enlarged.
    stream_rate: Rate,
    connection_rate: Rate,
}

#[derive(Debug)]
enum State {
    Idle,
    /// A window is near full: a probe begins with the next DATA on this stream, or on any.
    Wanted {
        stream: Option<StreamKey>,
        until: Instant,
    },
    Probing(Probe),
}

#[derive(Debug)]
struct Probe {
    began: Instant,
    stream: StreamKey,
    /// The windows when the probe began, and what has arrived in them since.
    stream_window: u32,
    stream_bytes: u64,
    connection_window: u32,
    connection_bytes: u64,
}

/// What a tuner has found out about a path.
#[derive(Debug)]
pub(crate) struct Learnt {
    stream_bytes: u32,
    number: u32,
    round_trip: Option<Duration>,
    shortest_ns: u32,
    stream_rate: Rate,
    connection_rate: Rate,
}

/// How fast a window is used.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pace {
    /// So many bytes were credited since then.
    since: Instant,
    bytes: u32,
}

impl Pace {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// How long the last half of a window of `size` bytes has taken, if it is full with this increment.
    fn credit(&mut self, size: u32, increment: u32, now: Instant) -> Option<Duration> {
        self.bytes = self.bytes.saturating_add(increment);
        if self.bytes < size / 2 {
            return None;
        }
        let before = std::mem::replace(self, Self::new(now));
        Some(now.saturating_duration_since(before.since))
    }
}

/// Bytes a second.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Rate(u64);

impl Rate {
    fn new(bytes: u64, during: Duration) -> Self {
        let rate = u128::from(bytes) * 1_000_000_000 / during.as_nanos().max(1);
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Whether this is more than another by an eighth: less may be chance.
    fn exceeds(self, other: Self) -> bool {
        self.0 > other.0.saturating_add(other.0 / 8)
    }
}

impl Tuner {
    /// `stream_bytes` and `connection_bytes` are the sizes to begin with. Nothing is tuned if neither is below `bytes_max`.
    pub(crate) fn new(stream_bytes: u32, bytes_max: u32) -> Self {
        Self {
            bytes_max,
            stream_bytes,
            state: State::Idle,
            number: 0,
            fruitless: 0,
            rest: Duration::ZERO,
            rests_until: Instant::ZERO,
            round_trip: None,
            shortest_ns: u32::MAX,
            connection_pace: Pace::new(Instant::ZERO),
            stream_rate: Rate::default(),
            connection_rate: Rate::default(),
        }
    }

    /// Whether an answer is awaited.
    pub(crate) const fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing(_))
    }

    /// What there is to know about the path.
    pub(crate) const fn learnt(&self) -> Learnt {
        // By name, so that a field which is added has its place here, too.
        let &Self {
            bytes_max: _,
            stream_bytes,
            state: _,
            number,
            fruitless: _,
            rest: _,
            rests_until: _,
            round_trip,
            shortest_ns,
            connection_pace: _,
            stream_rate,
            connection_rate,
        } = self;
        Learnt { stream_bytes, number, round_trip, shortest_ns, stream_rate, connection_rate }
    }

    /// A tuner that knows this about its path, and waits for nothing.
    pub(crate) fn with(learnt: &Learnt, bytes_max: u32) -> Self {
        Self {
            number: learnt.number,
            round_trip: learnt.round_trip,
            shortest_ns: learnt.shortest_ns,
            stream_rate: learnt.stream_rate,
            connection_rate: learnt.connection_rate,
            ..Self::new(learnt.stream_bytes, bytes_max)
        }
    }

    /// The size to which the window of a stream is to grow, if its application takes what arrives.
    pub(crate) const fn stream_bytes(&self) -> u32 {
        self.stream_bytes
    }

    /// The window of a stream, `size` bytes, was credited; `pace` is that of the stream.
    pub(crate) fn on_stream_credit(
        &mut self,
        stream: StreamKey,
        (size, increment): (u32, u32),
        pace: &mut Pace,
        now: Instant,
    ) {
        let half = pace.credit(size, increment, now);
        let at_its_size = size >= self.stream_bytes && size < self.useful_bytes_max();
        if at_its_size && self.is_near_full(half) {
            self.want(Some(stream), now);
        }
    }

    /// The window of the connection, `size` bytes, was credited.
    pub(crate) fn on_connection_credit(&mut self, size: u32, increment: u32, now: Instant) {
        let half = self.connection_pace.credit(size, increment, now);
        if size < self.useful_bytes_max() && self.is_near_full(half) {
            self.want(None, now);
        }
    }

    /// Whether DATA that arrives means nothing to it.
    #[inline]
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// DATA has arrived. Gives the payload of the PING that is to be sent, if a probe begins with it.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        stream: StreamKey,
        bytes: usize,
        windows: (u32, u32),
        now: Instant,
    ) -> Option<[u8; 8]> {
        if self.is_idle() { None } else { self.look_at(stream, bytes, windows, now) }
    }

    #[inline(never)]
    fn look_at(
        &mut self,
        stream: StreamKey,
        bytes: usize,
        (stream_window, connection_window): (u32, u32),
        now: Instant,
    ) -> Option<[u8; 8]> {
        match &mut self.state {
            State::Idle => return None,
            State::Wanted { until, .. } if *until < now => {
                self.state = State::Idle;
                return None;
            }
            State::Wanted { stream: wanted, .. } if wanted.is_none_or(|wanted| wanted == stream) => {}
            State::Wanted { .. } => return None,
            State::Probing(probe) => {
                probe.connection_bytes += bytes as u64;
                if probe.stream == stream {
                    probe.stream_bytes += bytes as u64;
                }
                return None;
            }
        }
        self.state = State::Probing(Probe {
            began: now,
            stream,
            stream_window,
            stream_bytes: bytes as u64,
            connection_window,
            connection_bytes: bytes as u64,
        });
        self.number = self.number.wrapping_add(1);
        Some(self.payload())
    }

    /// A PING was answered. If it is the probe: the size to which the connection's window is to grow; it may have it already.
    pub(crate) fn on_answer(&mut self, payload: [u8; 8], now: Instant) -> Option<u32> {
        if payload != self.payload() {
            return None;
        }
        let State::Probing(probe) = std::mem::replace(&mut self.state, State::Idle) else { return None };
        let round_trip = now.saturating_duration_since(probe.began);
        self.round_trip = Some(round_trip);
        let round_trip_ns = u32::try_from(round_trip.as_nanos()).unwrap_or(u32::MAX);
        self.shortest_ns = self.shortest_ns.min(round_trip_ns);

        let rate = Rate::new(probe.stream_bytes, round_trip);
        let stream_window = self.enlarged(probe.stream_window, probe.stream_bytes);
        let stream_window = stream_window.filter(|_| rate.exceeds(self.stream_rate));
        if let Some(size) = stream_window {
            self.stream_bytes = self.stream_bytes.max(size);
            self.stream_rate = rate;
        }
        let rate = Rate::new(probe.connection_bytes, round_trip);
        let connection_window = self.enlarged(probe.connection_window, probe.connection_bytes);
        let connection_window = connection_window.filter(|_| rate.exceeds(self.connection_rate));
        if connection_window.is_some() {
            self.connection_rate = rate;
        }

        if stream_window.is_some() || connection_window.is_some() {
            self.fruitless = 0;
            self.rest = Duration::ZERO;
        } else {
            self.fruitless += 1;
        }
        if self.fruitless < FRUITLESS_MAX {
            self.state = State::Wanted { stream: Some(probe.stream), until: now + round_trip };
        } else {
            self.fruitless = 0;
            self.rest = self.rest.saturating_mul(2).max(round_trip).min(REST_MAX);
            self.rests_until = now + self.rest;
        }
        Some(connection_window.unwrap_or(probe.connection_window))
    }

    /// Twice the size of a window, if so many bytes in a round trip speak for it and it may grow.
    fn enlarged(&self, size: u32, bytes: u64) -> Option<u32> {
        let (is_binding, most) = (3 * bytes >= 2 * u64::from(size), self.useful_bytes_max());
        (is_binding && size < most).then(|| size.saturating_mul(2).min(most))
    }

    /// The largest window that the path could fill.
    fn useful_bytes_max(&self) -> u32 {
        let bytes = u64::from(self.shortest_ns).saturating_mul(BYTES_A_NANOSECOND_MAX);
        self.bytes_max.min(u32::try_from(bytes).unwrap_or(u32::MAX).max(USEFUL_BYTES_MIN))
    }

    /// Whether half a window has lasted for a round trip at most.
    fn is_near_full(&self, half: Option<Duration>) -> bool {
        half.is_some_and(|half| half <= self.round_trip.unwrap_or(ROUND_TRIP_ASSUMED))
    }

    fn want(&mut self, stream: Option<StreamKey>, now: Instant) {
        if !matches!(self.state, State::Probing(_)) && now >= self.rests_until {
            let until = now + self.round_trip.unwrap_or(ROUND_TRIP_ASSUMED);
            self.state = State::Wanted { stream, until };
        }
    }

    fn payload(&self) -> [u8; 8] {
        let [a, b, c, d] = PAYLOAD;
        let [e, f, g, h] = self.number.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }
}
