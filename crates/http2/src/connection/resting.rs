//! Connections that rest. What only they know is little; the rest of a [`Connection`], with all its memory, serves others meanwhile.

use std::fmt;

use fulmar_base::Instant;
use fulmar_hpack::{Decoder, Encoder};

use super::{Connection, Handshake};
use crate::Config;
use crate::closed_streams::ClosedStreams;
use crate::flow::{ReceiveWindow, SendWindow};
use crate::limits::Budgets;
use crate::pulse::Pulse;
use crate::settings::{self, PeerSettings};
use crate::timers::{NEVER, Timer, Timers};
use crate::tuning::{Learnt, Tuner};
use crate::validate::Validator;

/// What only one connection knows, while nothing happens on it: the compression tables of both ends, what the peer allows, the
/// windows, which streams there were. See [`Connection::rest`].
pub struct Resting {
    peer: PeerSettings,
    /// The compression tables, that of the decoder first.
    tables: Vec<u8>,
    next_id: u32,
    last_peer_id: u32,
    last_processed_id: u32,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    learnt: Learnt,
    pulse: Pulse,
    /// The peer has sent PING since this end's last HEADERS or DATA: the next one may be a strike.
    pinged: bool,
    /// Of [`WAKING`].
    deadlines: [Instant; WAKING.len()],
}

/// The timers that may run while a connection rests, and that it wakes for.
const WAKING: [Timer; 3] = [Timer::Keepalive, Timer::Idle, Timer::Age];

/// Those and the one that has memory given back may run when it comes to rest.
const RUNNING: [Timer; 4] = [Timer::Shrink, WAKING[0], WAKING[1], WAKING[2]];

/// Packed tables that became smaller by no more than this keep their memory.
const SLACK_BYTES_MAX: usize = 64;

impl fmt::Debug for Resting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resting")
            .field("send_window", &self.send_window)
            .field("receive_window", &self.receive_window)
            .finish_non_exhaustive()
    }
}

impl Resting {
    /// When the connection has to [`resume`](Connection::resume) at the latest: it asks whether the peer is there, or has been idle
    /// for too long, or is too old.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.into_iter().min().filter(|&at| at != NEVER)
    }

    /// Bytes of memory held besides its own: those of the compression tables.
    pub fn memory_bytes(&self) -> usize {
        self.tables.capacity()
    }
}

impl Connection {
    /// Whether nothing is under way: no stream is open, nothing is awaited from the peer, and neither end has taken leave. What the peer
    /// has spent of its budgets must have come back, which takes no longer than
    /// [`Config::budget_refill_ms`].
    pub fn may_rest(&self, now: Instant) -> bool {
        self.started
            && self.handshake == Handshake::Done
            && self.own_settings_acked
            && self.streams.len() == 0
            && !self.has_events()
            && !self.slot_wanted
            && self.streams_beside == 0
            && self.header_block.is_none()
            && self.pings.are_answered()
            && !self.tuner.is_probing()
            && !self.is_going_away()
            && self.timers.runs_none_but(&RUNNING)
            && self.budgets.are_full(now)
    }

    /// Takes out what only this connection knows, if it [may rest](Self::may_rest). What stays behind keeps its memory, and is good
    /// for nothing but [`resume`](Self::resume), of this connection or of another one of the same role.
    ///
    /// Forgotten is what can be: header sections that the peer repeats, and which streams have closed lately, so that frames which
    /// come too late for them are ignored. The compression tables are packed, into memory that they had when they were packed before, if
    /// they have not changed much since. All other memory is taken along or stays behind.
    pub fn rest(&mut self, now: Instant) -> Option<Resting> {
        if !self.may_rest(now) {
            return None;
        }
        // By name, so that a field which is added has its place here, too.
        let Self {
            role: _,
            config,
            validator: _,
            handshake: _,
            started: _,
            failed: _,
            peer,
            own_settings_acked: _,
            decoder,
            encoder,
            packed,
            fields,
            known,
            known_section,
            header_block: _,
            too_large_answer: _,
            streams: _,
            closed_streams,
            next_id,
            last_peer_id,
            last_processed_id,
            slot_wanted: _,
            streams_beside: _,
            send_window,
            receive_window,
            backlog,
            tuner,
            departure: _,
            pings: _,
            timers,
            pulse,
            budgets,
            events: _,
            ended: _,
            spare: _,
        } = self;
        let resting = Resting {
            peer: peer.clone(),
            tables: packed_tables(decoder, encoder, std::mem::take(packed)),
            next_id: *next_id,
            last_peer_id: *last_peer_id,
            last_processed_id: *last_processed_id,
            send_window: *send_window,
            receive_window: *receive_window,
            learnt: tuner.learnt(),
            pulse: std::mem::replace(pulse, Pulse::new()),
            pinged: !budgets.pings.is_full(),
            deadlines: WAKING.map(|timer| timers.deadline(timer)),
        };
        fields.clear();
        known.forget();
        *known_section = None;
        *closed_streams = ClosedStreams::new();
        backlog.clear();
        *timers = Timers::default();
        *budgets = Budgets::new(config);
        Some(resting)
    }

    /// Makes this the connection that rested. To be called on what [`rest`](Self::rest) has left, or on a new connection.
    pub fn resume(&mut self, resting: Resting) {
        let Resting {
            peer,
            tables,
            next_id,
            last_peer_id,
            last_processed_id,
            send_window,
            receive_window,
            learnt,
            pulse,
            pinged,
            deadlines,
        } = resting;
        (self.started, self.own_settings_acked, self.handshake) = (true, true, Handshake::Done);
        self.peer = peer;
        let mut packed = &tables[..];
        self.decoder.unpack(&mut packed);
        self.encoder.unpack(&mut packed);
        self.packed = tables;
        (self.next_id, self.last_peer_id, self.last_processed_id) =
            (next_id, last_peer_id, last_processed_id);
        (self.send_window, self.receive_window) = (send_window, receive_window);
        if pinged {
            self.budgets.pings.note_spent(pulse.last_read);
        }
        self.pulse = pulse;
        for (timer, deadline) in WAKING.into_iter().zip(deadlines) {
            self.timers.set(timer, deadline);
        }
        self.tuner = Tuner::with(&learnt, self.config.window_bytes_max);
    }

    /// Gives what [`rest`](Self::rest) has left another configuration: that of the connection which is to [`resume`](Self::resume).
    pub fn reconfigure(&mut self, config: Config) {
        self.config = settings::within_bounds(config);
        self.validator =
            Validator { surrounding_whitespace_allowed: self.config.surrounding_whitespace_allowed };
        self.budgets = Budgets::new(&self.config);
    }

    /// Bytes of memory held that serve nothing while the connection rests.
    pub fn spare_memory(&self) -> usize {
        self.streams.memory_bytes()
            + self.events_memory()
            + self.fields.memory_bytes()
            + self.known.memory_bytes()
            + self.decoder.memory_bytes()
            + self.encoder.memory_bytes()
    }
}

/// Both tables in as few bytes as may be, in `memory` where that is of the right size.
fn packed_tables(decoder: &Decoder, encoder: &Encoder, mut memory: Vec<u8>) -> Vec<u8> {
    let bytes = decoder.packed_bytes() + encoder.packed_bytes();
    memory.clear();
    if memory.capacity() < bytes || memory.capacity() > bytes + SLACK_BYTES_MAX {
        memory = Vec::with_capacity(bytes);
    }
    decoder.pack(&mut memory);
    encoder.pack(&mut memory);
    memory
}
