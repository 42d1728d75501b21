//! The bounds on what was received and not taken: of a connection, and of all connections of a thread.
//!
//! Windows bound what one stream holds, and so a peer with many streams holds many windows. Above the bounds the end gives credit
//! to one call only, the one whose unfinished message began first: that message completes, then the next, so that memory is freed
//! in some order however much is under way. The peer may still use what credit it has, for which there is room for one message
//! more; above that, the call that holds most has to end, if it can be another one than that.
//!
//! The bound of the thread concerns the connections that hold most, those with at least half of what the greediest one has: they
//! are held back, and they end a call. A connection that holds less goes on as if there were no neighbours, until it is one of
//! them. Ends know nothing of each other but what the pool counts, so that one with much to hold looks at it from time to time.

use std::time::Duration;

use fulmar_base::{Env, Instant, Pool};

use crate::call::CallKey;
use crate::code::Code;
use crate::config::Config;
use crate::end::End;
use crate::status::Status;

/// How often an end that holds its peer back looks whether there is room, which may be made by connections it does not hear of: often
/// enough for nobody to notice, and too seldom to cost anything.
const RETRY: Duration = Duration::from_millis(10);

/// How often an end with much to hold looks whether it has to end a call. Its peer and its application may both be silent.
const LOOK: Duration = Duration::from_millis(100);

/// An end looks from the 4,096th part of what the thread may hold on, 256 KiB by default: it takes thousands of connections below
/// that, all silent, to hold too much.
const UNWATCHED_PARTS: usize = 4096;

/// What an end remembers of the bounds.
#[derive(Debug)]
pub(crate) struct Held {
    bytes_max: usize,
    /// The call whose unfinished message is the oldest, and the number of that message; to be checked before it is believed.
    oldest: Option<(CallKey, u64)>,
    /// Whether a call may not have been given credit that is due to it.
    withheld: bool,
    look_at: Option<Instant>,
    /// A look has shown that a call has to end.
    sheds: bool,
}

impl Held {
    pub(crate) const fn new(config: &Config) -> Self {
        Self { bytes_max: config.held_bytes_max, oldest: None, withheld: false, look_at: None, sheds: false }
    }

    /// When [`End::look_at_held`] wants to be called, at the latest.
    pub(crate) const fn next_deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether [`End::shed`] has a call to name.
    pub(crate) const fn sheds(&self) -> bool {
        self.sheds
    }
}

impl Held {
    /// Whether there is nothing to come back to.
    pub(crate) const fn is_quiet(&self) -> bool {
        !self.withheld && self.look_at.is_none() && !self.sheds
    }
}

impl End {
    /// Whether more is held than should be.
    #[inline]
    pub(crate) fn is_pressed(&self, pool: &Pool) -> bool {
        self.is_overdrawn(0) || pool.is_overdrawn_by(self.calls.held(), 0)
    }

    /// Lets the peer send as much more on a call as is due, unless the bounds forbid it.
    #[inline]
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

    /// Gives the credit that was withheld, as far as the bounds allow it by now, and sees to it that there is a next look if one is
    /// needed.
    pub(crate) fn see_to_held(&mut self, env: &mut Env<'_>) {
        if self.held.withheld {
            self.give_withheld(env);
        }
        let watched = self.calls.held().bytes() > env.pool.held_bytes_max() / UNWATCHED_PARTS;
        let interval = if self.held.withheld {
            RETRY
        } else if watched {
            LOOK
        } else {
            self.held.look_at = None;
            return;
        };
        let at = env.now + interval;
        self.held.look_at = Some(self.held.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Time has passed: other connections of the thread may hold more by now, or less.
    pub(crate) fn look_at_held(&mut self, env: &mut Env<'_>) {
        if self.held.look_at.is_some_and(|at| at <= env.now) {
            self.held.look_at = None;
            self.held.sheds = self.is_exhausted(env.pool);
        }
        self.see_to_held(env);
    }

    /// The next call that has to end because a look has shown so.
    pub(crate) fn shed(&mut self, pool: &mut Pool) -> Option<(CallKey, Status)> {
        if !self.held.sheds {
            return None;
        }
        let call = self.exhausted(pool);
        self.held.sheds = call.is_some();
        call
    }

    /// The call that has to end because so much is held that not even what is under way may arrive any more, and its status; for
    /// it, nothing is held any longer.
    pub(crate) fn exhausted(&mut self, pool: &mut Pool) -> Option<(CallKey, Status)> {
        if !self.is_exhausted(pool) {
            return None;
        }
        let oldest = self.oldest_unfinished();
        let holders = self.calls.iter_mut().map(|(key, call)| (key, call.credit.held()));
        let holders = holders.filter(|&(_, held)| held > 0);
        let (key, held) = holders.max_by_key(|&(key, held)| (oldest != Some(key), held))?;
        let (whose, limit) = if self.is_overdrawn(self.receive_message_bytes_max) {
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

    fn give_withheld(&mut self, env: &mut Env<'_>) {
        if self.is_pressed(env.pool) {
            if let Some(oldest) = self.oldest_unfinished() {
                self.credit(env, oldest);
            }
            return;
        }
        self.held.withheld = false;
        for (_, call) in self.calls.iter_mut() {
            let bytes = call.credit.settle();
            if bytes > 0 {
                self.connection.release(env, call.stream, bytes);
            }
        }
    }

    /// Whether more is held than what is under way may come to.
    #[inline]
    pub(crate) fn is_exhausted(&self, pool: &Pool) -> bool {
        let spare = self.receive_message_bytes_max;
        self.is_overdrawn(spare) || pool.is_overdrawn_by(self.calls.held(), spare)
    }

    /// Whether the connection holds so much more than it may.
    #[inline]
    fn is_overdrawn(&self, spare: usize) -> bool {
        self.calls.held().bytes() > self.held.bytes_max.saturating_add(spare)
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
