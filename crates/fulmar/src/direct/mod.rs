//! Calls that need no connection, because the server is in the same process.
//!
//! An in-process channel is joined to its server by a pipe in memory, with an engine of HTTP/2 at each end. Most calls need nothing of
//! that: their message can be given to the method as it is, and the reply to the caller. What takes which way is decided call by call,
//! by [`InProcess::lends_itself`] and [`DirectCalls::begin`]; in doubt a call takes the pipe, where everything is as over a socket.

mod answer;
mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_base::Instant;
use fulmar_reactor::Mailbox;

pub(crate) use self::answer::DirectAnswer;
pub(crate) use self::calls::DirectCalls;
use crate::client::ChannelSpec;
use crate::host::Letter;
use crate::server::{Door, Placement, ServerShared};

/// Of the shortest time that an end keeps a connection without calls, the share after which a call takes the pipe, so that both ends
/// see that it is in use.
const IDLE_SHARE: u32 = 4;

/// Where the server of an in-process channel is.
pub(crate) struct InProcess {
    pub(crate) server: Arc<ServerShared>,
    /// Whether nothing about the server is in the way of direct calls.
    is_plain: bool,
    /// From when on a call is sent over the pipe for the only reason that none has been for long; in nanoseconds of the clock.
    pipes_at: AtomicU64,
    /// A reactor that serves the server, as [`ServerShared::is_served_by`] keeps it.
    served_by: AtomicU64,
}

impl InProcess {
    pub(crate) fn new(server: Arc<ServerShared>) -> Arc<Self> {
        // Who is asked about each request counts the calls of its connection; and handlers may run on another reactor.
        let asks = server.door.as_deref().is_some_and(Door::is_for_requests);
        let is_plain = server.placement == Placement::Connection && !asks;
        Arc::new(Self { server, is_plain, pipes_at: AtomicU64::new(0), served_by: AtomicU64::new(0) })
    }

    /// Whether the reactor of `mailbox` serves the server.
    pub(crate) fn is_served_by(&self, mailbox: &Mailbox<Letter>) -> bool {
        self.server.is_served_by(mailbox, &self.served_by)
    }

    /// Whether a call of the channel, which has this specification, may go to the server directly at this time. Now and then one may
    /// not, so that the pipe does not seem idle.
    pub(crate) fn lends_itself(&self, spec: &ChannelSpec, now: Instant) -> bool {
        if !self.is_plain || spec.press.is_some() {
            return false;
        }
        let pipes_at = self.pipes_at.load(Ordering::Relaxed);
        if now < Instant::from_nanos(pipes_at) {
            return true;
        }
        let own = spec.config.lives.idle_timeout;
        let idle = self.server.config.http2.ages.idle_max.map_or(own, |theirs| theirs.min(own));
        let next = now.saturating_add(idle / IDLE_SHARE);
        self.pipes_at.store(next.as_nanos(), Ordering::Relaxed);
        // The first one that is asked about is the second of its connection.
        pipes_at == 0
    }
}
