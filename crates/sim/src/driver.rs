use std::io::IoSlice;

use fulmar_base::{Buffer, Closed, Env, Instant, Output, Pool, Transport};

use crate::{Link, Trace};

/// Drives one end of a connection by the loop contract of [`fulmar_base::Endpoint`], as a reactor does, in virtual time.
pub struct Driver<T> {
    name: &'static str,
    transport: T,
    pool: Pool,
    out: Output,
    unread: Buffer,
    started: bool,
    closed: Option<Closed>,
}

impl<T: Transport> Driver<T> {
    /// A new end of a connection. `name` is what the trace calls it.
    pub fn new(name: &'static str, transport: T) -> Self {
        Self {
            name,
            transport,
            pool: Pool::new(),
            out: Output::new(),
            unread: Buffer::new(),
            started: false,
            closed: None,
        }
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

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Blocks the end holds.
    pub fn blocks(&self) -> usize {
        self.pool.outstanding()
    }

    /// When the end wants to be called again, whatever arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.closed.is_some() { None } else { self.transport.next_deadline() }
    }

    /// Lets the end do what is due: take one chunk that has arrived, or see its deadline pass. Then it transmits (as it does in its
    /// first turn in any case), and what it has to say is written. Returns whether anything happened.
    pub fn turn(&mut self, now: Instant, from: &mut Link, to: &mut Link, trace: &mut Trace) -> bool {
        let mut moved = self.write(now, to, trace);
        if self.closed.is_none() && from.next_arrival().is_some_and(|at| at <= now) {
            self.receive(now, from, trace);
            moved = true;
        } else if self.next_deadline().is_some_and(|at| at <= now) {
            trace.event(now, self.name, &[2]);
            self.poke(now, |transport, env| transport.on_deadline(env));
            moved = true;
        } else if moved || !self.started {
            self.poke(now, |_, _| Ok(()));
        }
        self.started = true;
        self.write(now, to, trace) || moved
    }

    /// Gives the end a command.
    pub fn command(&mut self, now: Instant, command: T::Command) {
        self.poke(now, |transport, env| transport.on_command(env, command));
    }

    /// The connection is gone: tells the end, and drops what was not written.
    pub fn close(&mut self, now: Instant, closed: &Closed, trace: &mut Trace) {
        trace.event(now, self.name, &[3]);
        trace.bytes(closed.text.as_bytes());
        let closed = self.closed.clone().unwrap_or_else(|| closed.clone());
        self.transport.on_close(&mut Env::new(now, &mut self.pool, &mut self.out), &closed);
        self.closed = Some(closed);
        self.out.clear();
    }

    fn receive(&mut self, now: Instant, from: &mut Link, trace: &mut Trace) {
        let before = self.unread.len();
        from.read(now, self.unread.tail_mut());
        trace.event(now, self.name, &[1, (self.unread.len() - before) as u64]);
        trace.bytes(&self.unread.as_slice()[before..]);
        let mut consumed = 0;
        let unread = &mut self.unread;
        let mut env = Env::new(now, &mut self.pool, &mut self.out);
        match self.transport.receive(&mut env, unread.as_mut_slice()) {
            Ok(bytes) => consumed = bytes,
            Err(closed) => self.closed = Some(closed),
        }
        assert!(consumed <= self.unread.len(), "an end consumed more than it was shown");
        self.unread.consume(consumed);
        self.poke(now, |_, _| Ok(()));
    }

    /// Pokes the end, and lets it transmit.
    fn poke(&mut self, now: Instant, poke: impl FnOnce(&mut T, &mut Env<'_>) -> Result<(), Closed>) {
        if self.closed.is_some() {
            return;
        }
        let mut env = Env::new(now, &mut self.pool, &mut self.out);
        let result = poke(&mut self.transport, &mut env).and_then(|()| self.transport.transmit(&mut env));
        self.closed = result.err();
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
            trace.event(now, self.name, &[0, written as u64, self.out.len() as u64]);
        }
        written > 0
    }
}
