//! How long a channel's connections last, and how it finds out that a server is gone.

use std::time::Duration;

use fulmar_http2::Keepalive;

use super::{Backoff, ChannelBuilder};

/// A time below this is taken as this (gRFC A8): servers take clients that ask more often for a nuisance, if not for an attack.
const KEEPALIVE_TIME_MIN: Duration = Duration::from_secs(10);

/// How long a channel without calls keeps its connection, as in grpc-go and grpc-java.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Settings of a channel that have to do with time.
#[derive(Clone, Debug)]
pub(crate) struct Lives {
    keepalive: Option<Keepalive>,
    keepalive_time_min: Duration,
    pub(crate) idle_timeout: Duration,
}

impl Default for Lives {
    fn default() -> Self {
        Self { keepalive: None, keepalive_time_min: KEEPALIVE_TIME_MIN, idle_timeout: IDLE_TIMEOUT }
    }
}

impl Lives {
    pub(super) fn keepalive(&self) -> Option<Keepalive> {
        let floor = |keepalive: Keepalive| Keepalive {
            time: keepalive.time.max(self.keepalive_time_min),
            ..keepalive
        };
        self.keepalive.map(floor)
    }

    pub(super) fn write_to(&self, http2: &mut fulmar_http2::Config) {
        http2.keepalive = self.keepalive();
        http2.ages.idle_max = Some(self.idle_timeout);
    }
}

/// How long connections last. These settings hold whatever [`http2`](ChannelBuilder::http2) says.
impl ChannelBuilder {
    /// How the channel finds out that its server is gone although no error says so (gRFC A8): when nothing has come for a while, it
    /// asks with a PING; when no answer comes in time, the connection is over, its calls fail with `UNAVAILABLE`, and the next call
    /// gets another connection. By default it does not ask. On Linux the timeout also bounds how long what was sent may stay
    /// unacknowledged (`TCP_USER_TIMEOUT`, gRFC A18).
    ///
    /// A time of less than 10 s is taken as 10 s. Servers may want far fewer PINGs than that: those of gRPC by default none without
    /// calls and one in five minutes with them. A server that has had enough says so, and the channel's next connection asks half
    /// as often.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::{Channel, Keepalive};
    ///
    /// let keepalive = Keepalive {
    ///     time: Duration::from_secs(300),
    ///     timeout: Duration::from_secs(20),
    ///     without_calls: false,
    /// };
    /// let builder = Channel::builder("http://127.0.0.1:50051").keepalive(keepalive);
    /// ```
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.config.lives.keepalive = keepalive.into();
        self
    }

    /// Lifts the least time of [`keepalive`](Self::keepalive), 10 s, to another one. For tests, and for servers of one's own that
    /// permit it: others end the connection.
    pub fn keepalive_time_min(mut self, time: Duration) -> Self {
        self.config.lives.keepalive_time_min = time;
        self
    }

    /// How long the channel keeps a connection without calls; the next call makes another one. 30 minutes by default.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.config.lives.idle_timeout = time;
        self
    }

    /// How long the channel waits between attempts to connect that fail.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::{Backoff, Channel};
    ///
    /// let backoff = Backoff { max: Duration::from_secs(10), ..Backoff::default() };
    /// let builder = Channel::builder("http://127.0.0.1:50051").backoff(backoff);
    /// ```
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Whether calls wait for a connection where none can be had, up to their deadline, instead of failing at once with
    /// `UNAVAILABLE` and what went wrong last. False by default; a request may [say otherwise](crate::Request::set_wait_for_ready).
    pub fn wait_for_ready(mut self, waits: bool) -> Self {
        self.config.waits_for_ready = waits;
        self
    }
}
