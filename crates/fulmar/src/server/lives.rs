//! How long a server's connections last, and how it finds out that a client is gone.

use std::time::Duration;

use fulmar_http2::{Ages, Keepalive, PingPolicy};

use super::ServerBuilder;

/// Settings of a server's connections that have to do with time.
#[derive(Clone, Debug)]
pub(super) struct Lives {
    pub(super) keepalive: Option<Keepalive>,
    ping_policy: Option<PingPolicy>,
    ages: Ages,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            keepalive: Some(Keepalive::OF_SERVERS),
            ping_policy: Some(PingPolicy::default()),
            ages: Ages::NEVER,
        }
    }
}

impl Lives {
    pub(super) fn write_to(&self, http2: &mut fulmar_http2::Config) {
        http2.keepalive = self.keepalive;
        http2.ping_policy = self.ping_policy;
        http2.ages = self.ages;
    }
}

/// How long connections last. These settings hold whatever [`http2`](ServerBuilder::http2) says.
impl ServerBuilder {
    /// How the server finds out that a client is gone although no error says so: it asks with a PING when nothing has come for a while,
    /// with calls and without, and ends the connection, and the calls on it, when no answer comes. By default after two hours
    /// and 20 s, as other servers of gRPC do; `None` never asks. On Linux the timeout also bounds how long what was
    /// sent may stay unacknowledged (`TCP_USER_TIMEOUT`, gRFC A18).
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::{Keepalive, Server};
    ///
    /// let keepalive = Keepalive { time: Duration::from_secs(60), ..Keepalive::OF_SERVERS };
    /// let builder = Server::builder().keepalive(keepalive);
    /// ```
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.lives.keepalive = keepalive.into();
        self
    }

    /// How often clients may send PINGs. By default once in five minutes, and not while they have no call; the third PING too
    /// many ends the connection with GOAWAY `too_many_pings` (gRFC A8). `None` lets clients ping as they like, up to a flood.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fulmar::{PingPolicy, Server};
    ///
    /// // Clients may ask every ten seconds, with calls or without.
    /// let policy =
    ///     PingPolicy { interval_min: Duration::from_secs(10), without_calls: true, ..PingPolicy::default() };
    /// let builder = Server::builder().ping_policy(policy);
    /// ```
    pub fn ping_policy(mut self, policy: impl Into<Option<PingPolicy>>) -> Self {
        self.lives.ping_policy = policy.into();
        self
    }

    /// How long a connection may be without a call, from its start or from the end of the last one. Then the client is told to go
    /// (GOAWAY `max_idle`, gRFC A9), and the connection ends. By default for ever.
    pub fn max_idle(mut self, time: Duration) -> Self {
        self.lives.ages.idle_max = Some(time);
        self
    }

    /// How old a connection may become, give or take a tenth, which is another one for each connection, so that they do not all end
    /// together. Then the client is told to go (GOAWAY `max_age`, gRFC A9) and makes a new connection, perhaps to another
    /// server; calls that run may end. By default for ever.
    pub fn max_age(mut self, time: Duration) -> Self {
        self.lives.ages.age_max = Some(time);
        self
    }

    /// How long calls may go on when their connection has reached [`max_age`](Self::max_age); then they are cut off. By default as
    /// long as they like.
    pub fn max_age_grace(mut self, time: Duration) -> Self {
        self.lives.ages.age_grace = Some(time);
        self
    }
}
