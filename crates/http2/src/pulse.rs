//! Signs of life of the peer, and how long a connection lasts: settings, and what a connection remembers for them.

use std::time::Duration;

use fulmar_base::Instant;

use crate::timers::NEVER;

/// How a connection finds out that its peer is gone although no error says so: a machine that lost power, a path that drops
/// everything (gRFC A8).
///
/// When nothing has been read for [`time`](field@Self::time), a PING is sent; when nothing is read within
/// [`timeout`](field@Self::timeout) after it, the connection is over. Any byte counts as a sign of life, so that a busy connection sends
/// no PING.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// How long the peer may be silent before it is asked. More than zero: zero is taken as a millisecond.
    pub time: Duration,
    /// How long it may be silent then.
    pub timeout: Duration,
    /// Client: whether the server is asked while no call is open. A server asks in any case.
    pub without_calls: bool,
}

impl Keepalive {
    /// How long gRPC waits for the answer where nobody says otherwise.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

    /// What servers of gRPC do unless told otherwise: ask after two hours, and wait for 20 s.
    pub const OF_SERVERS: Self =
        Self { time: Duration::from_secs(2 * 3_600), timeout: Self::TIMEOUT_DEFAULT, without_calls: true };

    /// The shortest time: PINGs must not follow each other without any time between.
    const TIME_MIN: Duration = Duration::from_millis(1);

    pub(crate) fn time(&self) -> Duration {
        self.time.max(Self::TIME_MIN)
    }
}

/// How often a client may send PINGs (gRFC A8 "server enforcement").
///
/// A PING that comes too early is a strike. What this end sends in HEADERS or DATA frames takes all strikes back. One strike too many
/// ends the connection with GOAWAY, ENHANCE_YOUR_CALM and the debug data `too_many_pings`, by which clients know that they have to
/// slow down.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PingPolicy {
    /// The shortest time between two PINGs. Default: five minutes.
    pub interval_min: Duration,
    /// Whether that holds while no stream is open, too; else it is two hours then. Default: false.
    pub without_calls: bool,
    /// How many strikes are let pass. Default: 2, so that the third one ends the connection.
    pub strikes_max: u8,
}

impl PingPolicy {
    /// The shortest time between PINGs of a client without streams that is not allowed any.
    pub(crate) const WITHOUT_CALLS: Duration = Duration::from_secs(2 * 3_600);
}

impl Default for PingPolicy {
    /// What servers of gRPC do unless told otherwise: five minutes, no PINGs without calls, two strikes.
    fn default() -> Self {
        Self { interval_min: Duration::from_secs(5 * 60), without_calls: false, strikes_max: 2 }
    }
}

/// How long a connection lasts (gRFC A9). It ends as in [`Connection::drain`](crate::Connection::drain), with a word in the debug
/// data of its GOAWAY that says why.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ages {
    /// The longest time without a stream, from the start or from the end of the last one: `max_idle`. `None`: for ever.
    pub idle_max: Option<Duration>,
    /// The longest time from the start: `max_age`. `None`: for ever. So that connections which began together do not end together,
    /// each has [its own share](crate::Connection::set_age_permille) of it.
    pub age_max: Option<Duration>,
    /// How long streams may go on when that time is over, before they are cut off. `None`: as long as they like.
    pub age_grace: Option<Duration>,
}

impl Ages {
    /// Connections last as long as their peers want.
    pub const NEVER: Self = Self { idle_max: None, age_max: None, age_grace: None };
}

impl Default for Ages {
    fn default() -> Self {
        Self::NEVER
    }
}

/// How many calls in a row may pass their deadline, without a byte of the peer in between, before the peer is asked whether it is there.
pub(crate) const SILENT_DEADLINES_MAX: u8 = 3;

/// How many times in a row, without a stream that the peer has ended in between, it is asked so as soon as there is reason to: servers of
/// gRPC let two PINGs pass that come too early, and end the connection for the next one.
pub(crate) const UNBIDDEN_MAX: u8 = 2;

/// Further times have to be so far apart: what servers of gRPC want by default, and a tenth for what delays PINGs on their way.
pub(crate) const UNBIDDEN_INTERVAL: Duration = Duration::from_secs(330);

/// What a connection remembers of its peer's signs of life.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// When a byte was read last.
    pub(crate) last_read: Instant,
    /// When the PING was sent that may be without an answer; [`NEVER`] if there is none.
    pub(crate) asked: Instant,
    /// When the last stream ended.
    pub(crate) idle_since: Instant,
    /// A stream that is opened from this time on has to look at the pulse first.
    pub(crate) attention: Instant,
    /// Server: when the client's last PING came; [`NEVER`] if none has come.
    pub(crate) last_ping: Instant,
    /// [`last_read`](Self::last_read) when the last deadline passed.
    pub(crate) silent_since: Instant,
    /// When the peer was last asked because of deadlines.
    pub(crate) unbidden_at: Instant,
    /// Which part of the greatest age this connection has.
    pub(crate) age_permille: u16,
    pub(crate) strikes: u8,
    /// How many deadlines have passed since then.
    pub(crate) silent_deadlines: u8,
    /// How many times in a row the peer was asked because of them.
    pub(crate) unbidden: u8,
    /// Client: no stream is open, and the server is not asked until one is.
    pub(crate) dormant: bool,
    /// The greatest age is over.
    pub(crate) aged: bool,
}

impl Pulse {
    pub(crate) const fn new() -> Self {
        Self {
            last_read: Instant::ZERO,
            asked: NEVER,
            idle_since: Instant::ZERO,
            attention: NEVER,
            last_ping: NEVER,
            silent_since: NEVER,
            unbidden_at: Instant::ZERO,
            age_permille: 1_000,
            strikes: 0,
            silent_deadlines: 0,
            unbidden: 0,
            dormant: false,
            aged: false,
        }
    }
}
