use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Buffer, Closed, Env, Instant, Output, Pool, Transport};

use crate::link::Ending;
use crate::tap::Tap;
use crate::{Link, Trace, wire};

/// The memory of a node, which its connections share. All on one thread, one at a time.
pub(crate) type SharedPool = Rc<RefCell<Pool>>;

/// Drives one end of a connection by the loop contract of [`fulmar_base::Endpoint`], as a reactor does, in virtual time.
pub struct Driver<T> {
    name: String,
    transport: T,
    pool: SharedPool,
    out: Output,
    unread: Buffer,
    /// How far the clock of this end is ahead of the world's.
    ahead: Duration,
    /// Nothing is read before.
    deaf_until: Instant,
    /// Blocks taken from the pool and not given back.
    blocks: isize,
    tap: Option<Tap>,
    started: bool,
    /// Whether output has left since the end transmitted last: there may be room for more.
    has_written: bool,
    closed: Option<Closed>,
    told: bool,
}

impl<T: Transport> Driver<T> {
    /// A new end of a connection, with a pool of its own. `name` is what the trace calls it.
    pub fn new(name: impl Into<String>, transport: T) -> Self {
        Self::of_node(name, transport, SharedPool::default(), Duration::ZERO, None)
    }

    /// A new end on a node with this pool, whose clock is so far ahead, watched by `tap`.
    pub(crate) fn of_node(
        name: impl Into<String>,
        transport: T,
        pool: SharedPool,
        ahead: Duration,
        tap: Option<Tap>,
    ) -> Self {
        Self {
            name: name.into(),
            transport,
            pool,
            out: Output::new(),
            unread: Buffer::new(),
            ahead,
            deaf_until: Instant::ZERO,
            blocks: 0,
            tap,
            started: false,
            has_written: false,
            closed: None,
            told: false,
        }
    }

    /// What the trace calls the end.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The end that is driven.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The end that is driven, to be looked into.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Why the end closed its connection, if it did.
    pub fn closed(&self) -> Option<&Closed> {
        self.closed.as_ref()
    }

    /// Why the end has given up by itself, until it is told that its connection is gone.
    pub fn failure(&self) -> Option<Closed> {
        self.closed.clone().filter(|_| !self.told)
    }

    /// Whether the end was told that its connection is gone: nothing more happens here.
    pub fn is_over(&self) -> bool {
        self.told
    }

    /// Whether the end has something to do that waits for nothing. Then its driver must not wait.
    pub fn has_work(&self) -> bool {
        self.closed.is_none() && self.transport.has_work(self.out.room() > 0)
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Bytes of memory that wait on the world: what is to be written, and what was read and is no whole frame yet.
    pub fn memory_bytes(&self) -> (usize, usize) {
        (self.out.capacity(), self.unread.len())
    }

    /// Blocks the end holds.
    pub fn blocks(&self) -> isize {
        self.blocks
    }

    /// When the end wants to be called again, whatever arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let local = self.transport.next_deadline()?;
        Some(Instant::ZERO + local.saturating_duration_since(Instant::ZERO + self.ahead))
    }

    /// When the end reads what arrives next, be it the end.
    pub fn next_read(&self, from: &Link) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let at = if from.ended().is_some() { Instant::ZERO } else { from.next_arrival()? };
        Some(at.max(self.deaf_until))
    }

    /// Reads nothing before `until`.
    pub fn stop_reading(&mut self, until: Instant) {
        self.deaf_until = until;
    }

    /// Moves the clock of this end so far ahead.
    pub fn jump(&mut self, by: Duration) {
        self.ahead = self.ahead.saturating_add(by);
    }

    /// Lets the end do what is due: take one chunk that has arrived, or see its deadline pass, or learn that the peer is gone. Then
    /// it transmits (as it does in its first turn in any case), and what it has to say is written. Returns whether anything happened.
    pub fn turn(&mut self, now: Instant, from: &mut Link, to: &mut Link, trace: &mut Trace) -> bool {
        if self.told {
            return false;
        }
        let mut moved = std::mem::take(&mut self.has_written) | self.write(now, to, trace);
        if self.closed.is_none() && self.deaf_until <= now && from.ended().is_some() {
            self.on_ending(now, from, trace);
            return true;
        }
        if self.next_read(from).is_some_and(|at| at <= now) {
            self.receive(now, from, trace);
            moved = true;
        } else if self.next_deadline().is_some_and(|at| at <= now) {
            trace.event(now, &self.name, "meets its deadline", &[]);
            self.poke(now, trace, |transport, env| transport.on_deadline(env));
            moved = true;
        } else if moved || !self.started {
            self.poke(now, trace, |_, _| Ok(()));
        }
        self.started = true;
        self.has_written = self.write(now, to, trace);
        self.has_written || moved
    }

    /// Gives the end a command.
    pub fn command(&mut self, now: Instant, command: T::Command, trace: &mut Trace) {
        self.poke(now, trace, |transport, env| transport.on_command(env, command));
    }

    /// Shows the end SETTINGS between two frames of its peer, of which the peer knows nothing but the acknowledgement that it gets: it
    /// is as if the peer had said so. False if this is no time for it.
    pub(crate) fn slip_in_settings(&mut self, now: Instant, entry: (u16, u32), trace: &mut Trace) -> bool {
        if self.closed.is_some() || !self.tap.as_ref().is_some_and(Tap::may_take_settings) {
            return false;
        }
        trace.event(now, &self.name, "is told (setting, value):", &[entry.0.into(), entry.1.into()]);
        let mut frame = wire::settings(entry);
        match self.lend(now, |transport, env| transport.receive(env, &mut frame)) {
            Ok(consumed) => {
                assert_eq!(consumed, frame.len(), "SETTINGS are taken whole");
                if let Some(tap) = &mut self.tap {
                    tap.on_taken(&frame);
                }
            }
            Err(closed) => self.on_failure(closed),
        }
        self.poke(now, trace, |_, _| Ok(()));
        true
    }

    /// The connection is gone: tells the end, and drops what was not written.
    pub fn close(&mut self, now: Instant, closed: &Closed, trace: &mut Trace) {
        if self.told {
            return;
        }
        self.told = true;
        trace.event(now, &self.name, "closes", &[]);
        let closed = self.closed.get_or_insert_with(|| closed.clone()).clone();
        trace.bytes(closed.text.as_bytes());
        trace.line(now, || format!("{:<12} {closed}", self.name));
        self.lend(now, |transport, env| transport.on_close(env, &closed));
        self.out.clear();
    }

    /// The end has taken all there is and written all it has to say.
    pub(crate) fn check_at_rest(&self) {
        if let Some(tap) = self.tap.as_ref().filter(|_| !self.told) {
            tap.check_at_rest();
        }
    }

    fn on_ending(&mut self, now: Instant, from: &Link, trace: &mut Trace) {
        let closed = match from.ended() {
            Some(Ending::Eof) => Closed::peer("the peer closed the connection"),
            _ => Closed::peer("the peer reset the connection"),
        };
        self.close(now, &closed, trace);
    }

    fn receive(&mut self, now: Instant, from: &mut Link, trace: &mut Trace) {
        let before = self.unread.len();
        from.read(now, self.unread.tail_mut());
        trace.event(now, &self.name, "reads", &[(self.unread.len() - before) as u64]);
        trace.bytes(&self.unread.as_slice()[before..]);
        let mut unread = std::mem::take(&mut self.unread);
        match self.lend(now, |transport, env| transport.receive(env, unread.as_mut_slice())) {
            Ok(consumed) => {
                assert!(consumed <= unread.len(), "an end consumed more than it was shown");
                if let Some(tap) = &mut self.tap {
                    tap.on_taken(&unread.as_slice()[..consumed]);
                }
                unread.consume(consumed);
            }
            Err(closed) => self.on_failure(closed),
        }
        self.unread = unread;
        self.poke(now, trace, |_, _| Ok(()));
    }

    /// Pokes the end, and lets it transmit.
    fn poke(
        &mut self,
        now: Instant,
        trace: &mut Trace,
        poke: impl FnOnce(&mut T, &mut Env<'_>) -> Result<(), Closed>,
    ) {
        if self.closed.is_some() {
            return;
        }
        let result = self.lend(now, |transport, env| {
            poke(transport, env)?;
            transport.transmit(env)
        });
        if let Err(closed) = result {
            return self.on_failure(closed);
        }
        if let Some(tap) = &mut self.tap {
            tap.on_written(now, &self.name, &self.out, trace);
        }
    }

    /// The end has given up. What it has taken before that is not known, so nothing can be said of its answers.
    fn on_failure(&mut self, closed: Closed) {
        self.closed = Some(closed);
        self.tap = None;
    }

    /// Lends the end what it needs for a call, and keeps the account of its blocks.
    fn lend<R>(&mut self, now: Instant, call: impl FnOnce(&mut T, &mut Env<'_>) -> R) -> R {
        let mut pool = self.pool.borrow_mut();
        let before = pool.outstanding();
        let result = call(&mut self.transport, &mut Env::new(now + self.ahead, &mut pool, &mut self.out));
        self.blocks += pool.outstanding() as isize - before as isize;
        result
    }

    fn write(&mut self, now: Instant, to: &mut Link, trace: &mut Trace) -> bool {
        let mut written = 0;
        loop {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = self.out.slices(&mut slices);
            let mut accepted = 0;
            for slice in &slices[..filled] {
                let n = to.write(now, slice);
                accepted += n;
                if n < slice.len() {
                    break;
                }
            }
            if accepted == 0 {
                break;
            }
            self.out.advance(accepted);
            written += accepted;
        }
        if written > 0 {
            trace.event(now, &self.name, "writes", &[written as u64, self.out.len() as u64]);
            if let Some(tap) = &mut self.tap {
                tap.on_left(written);
            }
        }
        written > 0
    }
}
