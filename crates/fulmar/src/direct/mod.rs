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

pub(crate) use self::answer::DirectAnswer;
pub(crate) use self::calls::DirectCalls;
use crate::client::ChannelSpec;
use crate::server::{Door, Placement, ServerShared};

/// Of the shortest time that an end keeps a connection without calls, the share after which a call takes the pipe, so that both ends
/// see that it is in use.
const IDLE_SHARE: u32 = 4;

/// Where the server of an in-process channel is.
pub(crate) struct InProcess {
    pub(crate) server: Arc<ServerShared>,
    /// When a call was last sent over the pipe for the only reason that none had been for long; in nanoseconds of the clock.
    piped_at: AtomicU64,
}

impl InProcess {
    pub(crate) fn new(server: Arc<ServerShared>) -> Arc<Self> {
        Arc::new(Self { server, piped_at: AtomicU64::new(0) })
    }

    /// Whether calls of the channel, which has this specification, may go to the server directly at this time.
    ///
    /// They may not where somebody at the door is asked about each request, who counts the calls of its connection; where handlers run
    /// on another reactor; and, now and then, for a call, so that the pipe does not seem idle.
    pub(crate) fn lends_itself(&self, spec: &ChannelSpec, now: Instant) -> bool {
        let server = &*self.server;
        let is_plain = spec.press.is_none()
            && server.placement == Placement::Connection
            && !server.door.as_deref().is_some_and(Door::is_for_requests);
        if !is_plain {
            return false;
        }
        let own = spec.config.lives.idle_timeout;
        let idle = server.config.http2.ages.idle_max.map_or(own, |theirs| theirs.min(own));
        let piped_at = Instant::from_nanos(self.piped_at.load(Ordering::Relaxed));
        let is_fresh = now.saturating_duration_since(piped_at) < idle / IDLE_SHARE;
        if !is_fresh {
            self.piped_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        is_fresh
    }
}
