//! Asking a silent peer whether it is there, and ending connections for their age.
//!
//! Nothing of it costs a frame or a call more than a store and a compare: timers are set for the earliest time at which there could be
//! something to do, and look for themselves when they fire.

use std::time::Duration;

use fulmar_base::{Env, Fault, Instant};

use super::lifecycle::Reason;
use super::{Connection, Role};
use crate::frame;
use crate::pulse::{Keepalive, PingPolicy, SILENT_DEADLINES_MAX, UNBIDDEN_INTERVAL, UNBIDDEN_MAX};
use crate::timers::{NEVER, Timer};
use crate::{Error, ErrorCode, Reach};

/// Payload of the PINGs that ask whether the peer is there; those that measure round trips, and those of the user, have others.
pub(super) const KEEPALIVE_PING: [u8; 8] = *b"alive?\r\n";

impl Connection {
    /// Which part of [`Ages::age_max`](crate::Ages::age_max) this connection may reach, in thousandths; gRFC A9 wants 900 to 1,100 at
    /// random. Before the first call of any method that is lent an [`Env`]. Default 1,000.
    pub const fn set_age_permille(&mut self, permille: u16) {
        self.pulse.age_permille = permille;
    }

    /// Client: a call has passed its deadline. After three in a row without a byte of the server in between the server is asked whether
    /// it is there, also where no [`Keepalive`] is configured; and if it does not answer, the connection ends as if one were. A server
    /// that answers this, and no call, is asked twice, and then no more often than servers of gRPC allow by default, once in five minutes,
    /// unless the keepalive says that it may be.
    pub fn note_deadline_passed(&mut self, env: &mut Env<'_>) {
        let pulse = &mut self.pulse;
        if pulse.silent_since == pulse.last_read {
            pulse.silent_deadlines = pulse.silent_deadlines.saturating_add(1);
        } else {
            (pulse.silent_since, pulse.silent_deadlines) = (pulse.last_read, 1);
        }
        if self.pulse.silent_deadlines >= SILENT_DEADLINES_MAX
            && self.pulse.asked == NEVER
            && self.may_ask_unbidden(env.now)
        {
            self.pulse.unbidden = self.pulse.unbidden.saturating_add(1);
            self.pulse.unbidden_at = env.now;
            self.ask(env);
        }
    }

    /// The connection begins, and with it the times.
    pub(super) fn start_pulse(&mut self, env: &mut Env<'_>) {
        (self.pulse.last_read, self.pulse.idle_since) = (env.now, env.now);
        if let Some(keepalive) = self.config.keepalive {
            if self.role == Role::Server || keepalive.without_calls {
                self.arm_pulse(Timer::Keepalive, env.now + keepalive.time());
            } else {
                self.go_dormant();
            }
        }
        if let Some(idle_max) = self.config.ages.idle_max {
            self.arm_pulse(Timer::Idle, env.now + idle_max);
        }
        if let Some(age_max) = self.config.ages.age_max {
            let age_max = age_max.saturating_mul(u32::from(self.pulse.age_permille)) / 1_000;
            self.timers.set(Timer::Age, env.now.saturating_add(age_max));
        }
    }

    /// A stream is about to be opened, and the pulse wants to be looked at first: what is due is done, and a silent server asked.
    #[cold]
    pub(super) fn look_at_pulse(&mut self, env: &mut Env<'_>) {
        if std::mem::take(&mut self.pulse.dormant)
            && let Some(keepalive) = self.config.keepalive
        {
            self.arm_pulse(Timer::Keepalive, self.pulse.last_read + keepalive.time());
        }
        if self.timers.deadline(Timer::Idle) <= env.now {
            self.on_idle(env);
        }
        if self.timers.deadline(Timer::Keepalive) <= env.now
            && let Err(error) = self.on_keepalive(env, true)
        {
            self.fail(env, error);
        }
        self.note_attention();
    }

    /// Time to look whether the peer is there. `opens`: a stream is about to be opened.
    ///
    /// # Errors
    ///
    /// It is not.
    pub(super) fn on_keepalive(&mut self, env: &mut Env<'_>, opens: bool) -> Result<(), Error> {
        self.timers.stop(Timer::Keepalive);
        let timeout = self.keepalive_timeout();
        if self.pulse.asked != NEVER {
            if self.pulse.last_read >= self.pulse.asked {
                self.pulse.asked = NEVER;
            } else if env.now >= self.pulse.asked.saturating_add(timeout) {
                return Err(dead(env.now.saturating_duration_since(self.pulse.last_read), timeout));
            } else {
                self.arm_pulse(Timer::Keepalive, self.pulse.asked.saturating_add(timeout));
                return Ok(());
            }
        }
        let Some(keepalive) = self.config.keepalive else { return Ok(()) };
        let due = self.pulse.last_read + keepalive.time();
        if due > env.now {
            self.arm_pulse(Timer::Keepalive, due);
        } else if self.role == Role::Client && !keepalive.without_calls && self.streams.len() == 0 && !opens {
            self.go_dormant();
        } else {
            self.ask(env);
        }
        Ok(())
    }

    /// Time to look whether the connection has been without streams for too long.
    pub(super) fn on_idle(&mut self, env: &mut Env<'_>) {
        self.timers.stop(Timer::Idle);
        let Some(idle_max) = self.config.ages.idle_max.filter(|_| self.streams.len() == 0) else {
            // The end of the last stream sets the timer again.
            return self.note_attention();
        };
        let due = self.pulse.idle_since + idle_max;
        if due > env.now {
            self.arm_pulse(Timer::Idle, due);
        } else {
            self.depart(env, Reason::Idle);
        }
    }

    /// The last stream has ended.
    #[inline]
    pub(super) fn note_idle(&mut self, now: Instant) {
        self.pulse.idle_since = now;
        if let Some(idle_max) = self.config.ages.idle_max
            && !self.timers.runs(Timer::Idle)
        {
            self.arm_pulse(Timer::Idle, now + idle_max);
        }
    }

    /// The connection has reached its age, or the grace behind it is over.
    ///
    /// # Errors
    ///
    /// The grace is over, and streams are open.
    pub(super) fn on_age(&mut self, env: &mut Env<'_>) -> Result<(), Error> {
        if self.pulse.aged {
            return Err(Error {
                fault: Fault::Local,
                reach: Reach::Connection,
                code: ErrorCode::NoError,
                text: "max_age: the grace for streams is over".into(),
            });
        }
        self.pulse.aged = true;
        self.depart(env, Reason::Age);
        if let Some(grace) = self.config.ages.age_grace {
            self.timers.set(Timer::Age, env.now.saturating_add(grace));
        }
        Ok(())
    }

    /// Server: a PING of the client's own accord. `useful`: this end has sent HEADERS or DATA since the one before.
    ///
    /// # Errors
    ///
    /// It is one too many.
    pub(super) fn police_ping(&mut self, now: Instant, useful: bool) -> Result<(), Error> {
        let Some(policy) = self.config.ping_policy.filter(|_| self.role == Role::Server) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.pulse.last_ping, now);
        if useful {
            self.pulse.strikes = 0;
            return Ok(());
        }
        let interval_min = match policy.without_calls || self.streams.len() > 0 {
            true => policy.interval_min,
            false => policy.interval_min.max(PingPolicy::WITHOUT_CALLS),
        };
        if before != NEVER && now < before.saturating_add(interval_min) {
            self.pulse.strikes = self.pulse.strikes.saturating_add(1);
        }
        if self.pulse.strikes > policy.strikes_max { Err(Error::calm(TOO_MANY_PINGS)) } else { Ok(()) }
    }

    /// Whether this payload is that of a PING which asks whether the peer is there, and which was sent.
    pub(super) fn has_asked(&self, payload: [u8; 8]) -> bool {
        payload == KEEPALIVE_PING && self.pulse.asked != NEVER
    }

    fn may_ask_unbidden(&self, now: Instant) -> bool {
        let allowed = self.config.keepalive.map_or(Duration::MAX, |keepalive| keepalive.time());
        let interval = UNBIDDEN_INTERVAL.min(allowed);
        self.pulse.unbidden < UNBIDDEN_MAX || now >= self.pulse.unbidden_at.saturating_add(interval)
    }

    fn ask(&mut self, env: &mut Env<'_>) {
        self.start(env);
        frame::ping(KEEPALIVE_PING, false, env.out.bytes_mut());
        self.pulse.asked = env.now;
        // The answer may be there long before the time is over, and the next silence count from it.
        let time = self.config.keepalive.map_or(Duration::MAX, |keepalive| keepalive.time());
        self.arm_pulse(Timer::Keepalive, env.now.saturating_add(self.keepalive_timeout().min(time)));
    }

    fn keepalive_timeout(&self) -> Duration {
        self.config.keepalive.map_or(Keepalive::TIMEOUT_DEFAULT, |keepalive| keepalive.timeout)
    }

    fn go_dormant(&mut self) {
        self.pulse.dormant = true;
        self.note_attention();
    }

    fn arm_pulse(&mut self, timer: Timer, at: Instant) {
        self.timers.set(timer, at);
        self.note_attention();
    }

    fn note_attention(&mut self) {
        self.pulse.attention = match self.pulse.dormant {
            true => Instant::ZERO,
            false => self.timers.deadline(Timer::Keepalive).min(self.timers.deadline(Timer::Idle)),
        };
    }
}

/// What clients look for to know that they have to send PINGs less often (gRFC A8).
const TOO_MANY_PINGS: &str = "too_many_pings";

#[cold]
fn dead(silent: Duration, timeout: Duration) -> Error {
    let text = format!(
        "keepalive: the peer has been silent for {silent:.1?}, and has not answered a PING within {timeout:?}"
    );
    Error { fault: Fault::Peer, reach: Reach::Transport, code: ErrorCode::NoError, text: text.into() }
}
