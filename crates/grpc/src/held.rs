//! The bounds on what was received and not taken: of a connection, and of all connections of a thread.
//!
//! Windows bound what one stream holds, and so a peer with many streams holds many windows. Above the bounds the end gives credit
//! to one call only, the one whose unfinished message began first: that message completes, then the next, so that memory is freed
//! in some order however much is under way. The peer may still use what credit it has, for which there is room for one message
//! more; above that, the call that holds most has to end, if it can be another one than that.

use std::time::Duration;

use fulmar_base::{Env, Instant, Pool};

use crate::call::CallKey;
use crate::code::Code;
use crate::config::Config;
use crate::end::End;
use crate::status::Status;

/// How often an end looks whether other connections of its thread, which it does not hear of, have made room: often enough for
/// nobody to notice, and too seldom to cost anything.
const RETRY: Duration = Duration::from_millis(10);

/// What an end remembers of the bounds.
#[derive(Debug)]
pub(crate) struct Held {
    bytes_max: usize,
    /// The call whose unfinished message is the oldest, and the number of that message; to be checked before it is believed.
    oldest: Option<(CallKey, u64)>,
    /// Whether a call may not have been given credit that is due to it.
    withheld: bool,
    retry_at: Option<Instant>,
}

impl Held {
    pub(crate) const fn new(config: &Config) -> Self {
        Self { bytes_max: config.held_bytes_max, oldest: None, withheld: false, retry_at: None }
    }

    /// When [`End::give_withheld`] wants to be called, at the latest.
    pub(crate) const fn next_deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl End {
    /// Whether more is held than should be.
    pub(crate) fn is_pressed(&self, pool: &Pool) -> bool {
        self.calls.held_bytes() > self.held.bytes_max || pool.held_bytes() > pool.held_bytes_max()
    }

    /// Lets the peer send as much more on a call as is due, unless the bounds forbid it.
    pub(crate) fn credit(&mut self, env: &mut Env<'_>, call: CallKey) {
        if self.lost {
            return;
        }
        if self.is_pressed(env.pool) && self.oldest_unfinished() != Some(call) {
            self.held.withheld = true;
            return;
        }
        let Some(slot) = self.calls.get_mut(call) else { return };
        let bytes = slot.credit.settle();
        if bytes > 0 {
            self.connection.release(env, slot.stream, bytes);
        }
    }

    /// Gives the credit that was withheld, as far as the bounds allow it by now.
    pub(crate) fn give_withheld(&mut self, env: &mut Env<'_>) {
        if !self.held.withheld {
            return;
        }
        if self.is_pressed(env.pool) {
            if let Some(oldest) = self.oldest_unfinished() {
                self.credit(env, oldest);
            }
            self.held.retry_at = Some(env.now + RETRY);
            return;
        }
        self.held.withheld = false;
        self.held.retry_at = None;
        for (_, call) in self.calls.iter_mut() {
            let bytes = call.credit.settle();
            if bytes > 0 {
                self.connection.release(env, call.stream, bytes);
            }
        }
    }

    /// The call that has to end because so much is held that not even what is under way may arrive any more, and its status; for
    /// it, nothing is held any longer.
    pub(crate) fn exhausted(&mut self, pool: &mut Pool) -> Option<(CallKey, Status)> {
        let spare = self.receive_message_bytes_max;
        let of_connection = self.calls.held_bytes() > self.held.bytes_max.saturating_add(spare);
        let of_thread = pool.held_bytes() > pool.held_bytes_max().saturating_add(spare);
        if !of_connection && !of_thread {
            return None;
        }
        let oldest = self.oldest_unfinished();
        let holders = self.calls.iter_mut().map(|(key, call)| (key, call.credit.held()));
        let holders = holders.filter(|&(_, held)| held > 0);
        let (key, held) = holders.max_by_key(|&(key, held)| (oldest != Some(key), held))?;
        let (whose, limit) = if of_connection {
            ("the connection", self.held.bytes_max)
        } else {
            ("all connections", pool.held_bytes_max())
        };
        self.calls.let_go(pool, key);
        let text = format!(
            "held_bytes_max: messages of {whose} that were received and not taken exceed {limit} bytes, and this call had {held} of them"
        );
        Some((key, Status::new(Code::ResourceExhausted, text)))
    }

    /// The call whose unfinished message began first.
    fn oldest_unfinished(&mut self) -> Option<CallKey> {
        if let Some((key, message)) = self.held.oldest
            && let Some(call) = self.calls.get(key)
            && call.unfinished_message() == Some(message)
        {
            return Some(key);
        }
        let unfinished =
            self.calls.iter_mut().filter_map(|(key, call)| Some((key, call.unfinished_message()?)));
        self.held.oldest = unfinished.min_by_key(|&(_, message)| message);
        self.held.oldest.map(|(key, _)| key)
    }
}
