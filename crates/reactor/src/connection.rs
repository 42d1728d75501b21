use std::io::{self, IoSlice, Read};
use std::time::Duration;

use fulmar_base::{Block, Closed, Env, Instant, Output, Transport};

use crate::address::Address;
use crate::bench::Bench;
use crate::keys::ConnectionKey;
use crate::pace::{Pace, Turn, WRITE_BYTES_MAX};
use crate::socket::{Stream, reason};
use crate::timers::Armed;

/// One connection reads at most so many bytes that nobody wants any more before others get their turn.
const DISCARD_BYTES_MAX: usize = 64 * 1024;

/// One vectored write has at most so many slices. (Linux takes 1,024; with slices of 16 KiB and more, 64 are a megabyte.)
const SLICES_MAX: usize = 64;

/// A read or write that moved less than it might have shows that the socket is empty or full, so that trying again until it says so
/// can be saved. True of epoll, whose edges do not depend on it; elsewhere mio may need to see the refusal.
const SHORT_IS_DRY: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// One connection: a transport, what carries its bytes, and what waits on either side.
pub(crate) struct Connection<T> {
    /// `None` once the connection has ended for the transport, and lingers only to get its last bytes across.
    pub(crate) transport: Option<T>,
    pub(crate) link: Link,
    pub(crate) phase: Phase,
    /// What waits to be written. An idle connection has none, so that it holds no memory.
    pub(crate) output: Option<Output>,
    /// What was received and not consumed: at most one frame. An idle connection has none.
    tail: Option<Block>,
    pub(crate) armed: Armed,
    /// In the list of those that transmit and write at the end of the round.
    pub(crate) dirty: bool,
    /// Its last burst was cut off by its share of the turn.
    pub(crate) cut_off: bool,
    /// In the list of those that have more to read than fitted into the turn.
    pub(crate) retrying: bool,
    /// The system has announced an end or an error, which only reading to the end brings to light.
    pub(crate) hung_up: bool,
    /// The socket took less than it was given; or the other end of the pipe knows that there is something to read.
    pub(crate) blocked: bool,
    pub(crate) pace: Pace,
    /// Something waits to be written, and some of it has to leave by then.
    stalled_until: Option<Instant>,
    /// How many bytes were written since the sockets were last looked at, and which look that was.
    written: (usize, u32),
    /// A write has failed: what is read from here on is the last there is.
    write_failed: bool,
}

/// What carries the bytes.
pub(crate) enum Link {
    Socket {
        stream: Stream,
        peer: Address,
    },
    /// The other end, whose output is the input of this one.
    Pipe {
        peer: ConnectionKey,
    },
}

/// Where a connection is in its life.
pub(crate) enum Phase {
    /// Being dialled; the transport is there, and its output waits.
    Connecting { deadline: Option<(Instant, Duration)> },
    /// Both ends are there.
    Open,
    /// Without a transport; see [`Linger`].
    Lingering(Linger),
}

/// A closing connection: writes what is left, says that it has ended, then reads until the peer has ended too. Closing a socket
/// with unread bytes resets the connection, and the reset may overtake the last bytes written.
pub(crate) struct Linger {
    /// Give up at this time, which moves while bytes move …
    pub(crate) until: Instant,
    /// … up to this one.
    last: Instant,
    /// Our half is closed.
    shut: bool,
    /// The peer has closed its half.
    pub(crate) eof: bool,
}

/// What a connection wants after a piece of work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// To hear of it when something happens.
    Wait,
    /// Another piece, after others had theirs.
    Again,
}

/// How a connection comes to its end.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The transport or the host says so: flush, then linger.
    Said(Closed),
    /// The peer has closed its half: flush.
    PeerClosed(Closed),
    /// Nothing can be read or written any more.
    Broken(Closed),
}

impl<T> Connection<T> {
    pub(crate) fn new(link: Link, phase: Phase) -> Self {
        Self {
            transport: None,
            link,
            phase,
            output: None,
            tail: None,
            armed: Armed::default(),
            dirty: false,
            cut_off: false,
            retrying: false,
            hung_up: false,
            blocked: false,
            pace: Pace::new(),
            stalled_until: None,
            written: (0, 0),
            write_failed: false,
        }
    }

    /// Gives everything that came from the bench back to it.
    pub(crate) fn dismantle(mut self, bench: &mut Bench) -> Armed {
        if let Some(out) = self.output.take() {
            bench.pool.give_output(out);
        }
        self.drop_tail(bench);
        self.armed
    }

    /// Whether the connection that is being dialled has come about.
    ///
    /// # Errors
    /// It has failed.
    pub(crate) fn check_connected(&mut self) -> io::Result<bool> {
        let Link::Socket { stream, .. } = &self.link else { return Ok(true) };
        let connected = stream.is_connected()?;
        if connected {
            stream.prepare()?;
            self.phase = Phase::Open;
        }
        Ok(connected)
    }

    fn tail_len(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.len())
    }

    /// Gives an output in which nothing waits back.
    fn drop_empty_output(&mut self, bench: &mut Bench) {
        if let Some(out) = self.output.take_if(|out| out.is_empty()) {
            bench.pool.give_output(out);
        }
    }

    /// Keeps what the transport left unread: the scratch buffer is for others next.
    fn keep_tail(&mut self, bench: &mut Bench, unread: std::ops::Range<usize>) {
        let unread = bench.scratch.get(unread).unwrap_or_default();
        bench.pool.unhold(self.tail_len());
        bench.pool.hold(unread.len());
        if unread.is_empty() {
            if let Some(tail) = self.tail.take() {
                bench.pool.give(tail);
            }
            return;
        }
        let mut tail = match self.tail.take() {
            Some(tail) if tail.capacity() >= unread.len() => tail,
            Some(small) => {
                bench.pool.give(small);
                bench.pool.take(unread.len())
            }
            None => bench.pool.take(unread.len()),
        };
        tail.clear();
        tail.extend_from_slice(unread);
        self.tail = Some(tail);
    }

    fn drop_tail(&mut self, bench: &mut Bench) {
        if let Some(tail) = self.tail.take() {
            bench.pool.unhold(tail.len());
            bench.pool.give(tail);
        }
    }

    /// Writes what waits, as far as the link takes it; `true` if all of it has left.
    fn write(&mut self, out: &mut Output, bench: &mut Bench) -> io::Result<bool> {
        match &mut self.link {
            Link::Socket { stream, .. } => {
                if !self.blocked {
                    self.blocked = !write_to(stream, out)?;
                }
            }
            Link::Pipe { peer } => {
                if !std::mem::replace(&mut self.blocked, true) {
                    bench.piped.push_back(*peer);
                }
            }
        }
        Ok(out.is_empty())
    }

    /// Takes leave of the peer, one step further.
    ///
    /// Returns what it wants next, or `None` if that was the last. Only for sockets: an end of a pipe lingers until the other end
    /// has read it.
    pub(crate) fn linger(&mut self, bench: &mut Bench) -> Option<Next> {
        self.write_last(bench)?;
        let (Phase::Lingering(linger), Link::Socket { stream, .. }) = (&mut self.phase, &mut self.link)
        else {
            return Some(Next::Wait);
        };
        let mut next = Next::Wait;
        if !linger.eof {
            match discard(stream, &mut bench.scratch, self.hung_up).ok()? {
                Discarded::End => linger.eof = true,
                Discarded::All => {}
                Discarded::Some => next = Next::Again,
            }
        }
        (!linger.eof || !linger.shut).then_some(next)
    }

    /// Writes what is left, and says that it was all.
    ///
    /// Returns `None` if nothing more will get across.
    pub(crate) fn write_last(&mut self, bench: &mut Bench) -> Option<()> {
        let (Phase::Lingering(linger), Link::Socket { stream, .. }) = (&mut self.phase, &mut self.link)
        else {
            return Some(());
        };
        if let Some(mut out) = self.output.take() {
            let waiting = out.len();
            if !self.blocked {
                self.blocked = !write_to(stream, &mut out).ok()?;
            }
            if out.len() < waiting {
                linger.until = (bench.now + bench.config.linger).min(linger.last);
            }
            if out.is_empty() {
                bench.pool.give_output(out);
            } else {
                self.output = Some(out);
            }
        }
        if self.output.is_none() && !linger.shut {
            linger.shut = true;
            stream.shutdown_write().ok()?;
        }
        Some(())
    }
}

/// What keeps one connection from being a burden to others.
impl<T> Connection<T> {
    /// Starts, or starts again, the time that a peer has to take some of what waits.
    fn note_stall(&mut self, bench: &Bench, waiting: usize, left: usize) {
        if left == 0 || matches!(self.link, Link::Pipe { .. }) {
            self.stalled_until = None;
        } else if left < waiting || self.stalled_until.is_none() {
            self.stalled_until = Some(bench.now + bench.config.write_stall);
        }
    }
}

impl<T: Transport> Connection<T> {
    /// Calls the transport, if there still is one, with what the thread lends.
    pub(crate) fn poke<R>(
        &mut self,
        bench: &mut Bench,
        poke: impl FnOnce(&mut T, &mut Env<'_>) -> R,
    ) -> Option<R> {
        let transport = self.transport.as_mut()?;
        let out = self.output.get_or_insert_with(|| bench.pool.take_output());
        let result = poke(transport, &mut Env::new(bench.now, &mut bench.pool, out));
        self.drop_empty_output(bench);
        Some(result)
    }

    /// When the connection wants to be looked at next, whatever happens.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let transport = self.transport.as_ref().and_then(Transport::next_deadline);
        let own = match &self.phase {
            Phase::Connecting { deadline } => deadline.map(|(at, _)| at),
            Phase::Open => self.stalled_until,
            // The other end of a pipe reads in any case, so there is nothing to give up on.
            Phase::Lingering(_) if matches!(self.link, Link::Pipe { .. }) => None,
            Phase::Lingering(linger) => Some(linger.until),
        };
        [transport, own].into_iter().flatten().min()
    }

    /// Whether nothing is left to do before something happens outside: no work of the transport, no output that the link would
    /// take, no deadline before the timer. What has gone wrong with the contract otherwise.
    pub(crate) fn check_at_rest(&self) -> Result<(), &'static str> {
        let Some(transport) = self.transport.as_ref().filter(|_| matches!(self.phase, Phase::Open)) else {
            return Ok(());
        };
        if self.retrying || self.dirty || self.write_failed {
            return Err("a connection waits for its turn");
        }
        if self.output.is_some() && !self.blocked {
            return Err("output waits that nothing blocks");
        }
        if transport.has_work(self.output.is_none()) {
            return Err("a transport has an event, a task or something to transmit");
        }
        if self.next_deadline().is_some_and(|deadline| self.armed.at().is_none_or(|at| at > deadline)) {
            return Err("the timer comes too late for a deadline");
        }
        Ok(())
    }

    /// The socket has become readable or writable, or there was more to read than fitted into a turn.
    pub(crate) fn on_ready(
        &mut self,
        bench: &mut Bench,
        readable: bool,
        writable: bool,
    ) -> Result<Next, Ending> {
        if writable && std::mem::take(&mut self.blocked) {
            self.flush(bench)?;
        }
        if readable { self.receive(bench) } else { Ok(Next::Wait) }
    }

    /// Reads what the socket has, hands it to the transport, and writes what comes of it.
    fn receive(&mut self, bench: &mut Bench) -> Result<Next, Ending> {
        let mut turn = Turn::new(&bench.crowd, bench.now);
        while !turn.is_over() {
            let tail_len = self.make_room(bench);
            let Link::Socket { stream, peer } = &mut self.link else { return Ok(Next::Wait) };
            let room = bench.scratch.get_mut(tail_len..).unwrap_or_default();
            // At least as much as the tail, which is moved for each read: a long frame is not moved for every kilobyte of it.
            let asked = room.len().min(turn.read_bytes(&self.pace).max(tail_len));
            match stream.read(room.get_mut(..asked).unwrap_or_default()) {
                Ok(0) => return Err(self.peer_closed()),
                Ok(received) => {
                    // The time is told after the read, so that nothing arrives later than the time says: a deadline that the peer
                    // sends along as a span of time would come before the peer's own.
                    bench.tick();
                    let began = bench.now;
                    self.deliver(bench, received)?;
                    self.flush(bench)?;
                    bench.tick();
                    let took_ns = bench.now.as_nanos().saturating_sub(began.as_nanos());
                    let full = received == asked;
                    turn.note_read(&mut self.pace, took_ns, received, full);
                    if SHORT_IS_DRY && !full && !self.hung_up {
                        turn.end(&mut self.pace, &mut bench.crowd, bench.now, true);
                        return Ok(Next::Wait);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    turn.end(&mut self.pace, &mut bench.crowd, bench.now, true);
                    return Ok(Next::Wait);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let closed = Closed::peer(format!("read from {peer}: {}", reason(&error)));
                    return Err(Ending::Broken(closed.caused_by(error.kind())));
                }
            }
        }
        turn.end(&mut self.pace, &mut bench.crowd, bench.now, false);
        Ok(Next::Again)
    }

    /// Hands the unread tail, and the bytes that were put behind it into the scratch buffer, to the transport.
    pub(crate) fn deliver(&mut self, bench: &mut Bench, received: usize) -> Result<(), Ending> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        let tail_len = self.tail.as_ref().map_or(0, |tail| tail.len());
        let len = tail_len + received;
        let out = self.output.get_or_insert_with(|| bench.pool.take_output());
        let result = {
            let wire = bench.scratch.get_mut(..len).unwrap_or_default();
            if let (Some(tail), Some(front)) = (&self.tail, wire.get_mut(..tail_len)) {
                front.copy_from_slice(tail);
            }
            transport.receive(&mut Env::new(bench.now, &mut bench.pool, out), wire)
        };
        self.drop_empty_output(bench);
        let consumed = result.map_err(Ending::Said)?.min(len);
        self.keep_tail(bench, consumed..len);
        let unread_max = bench.config.unread_bytes_max;
        if self.tail_len() > unread_max {
            let text = format!("the peer sent a frame that is longer than the limit of {unread_max} bytes");
            return Err(Ending::Said(Closed::peer(text)));
        }
        Ok(())
    }

    /// Where the next bytes go: how many lie before them in the scratch buffer, which has room behind them.
    pub(crate) fn make_room(&self, bench: &mut Bench) -> usize {
        let tail_len = self.tail_len();
        bench.reserve(tail_len);
        tail_len
    }

    /// The end of what the peer sends, with all of it delivered.
    pub(crate) fn peer_closed(&self) -> Ending {
        let closed = match self.tail_len() {
            0 => Closed::peer("the peer closed the connection"),
            unread => Closed::peer(format!(
                "the peer closed the connection in the middle of a frame, of which {unread} bytes had arrived"
            )),
        };
        Ending::PeerClosed(closed.caused_by(io::ErrorKind::UnexpectedEof))
    }

    /// Lets the transport transmit, and writes: about [`WRITE_BYTES_MAX`] between two looks at the sockets.
    ///
    /// A burst that came near the soft limit may have been cut off by it, so there may be another behind it.
    pub(crate) fn flush(&mut self, bench: &mut Bench) -> Result<(), Ending> {
        if matches!(self.phase, Phase::Connecting { .. }) || self.write_failed {
            return Ok(());
        }
        if self.written.1 != bench.looks {
            self.written = (0, bench.looks);
        }
        while self.written.0 < WRITE_BYTES_MAX {
            let Some(transport) = &mut self.transport else { return Ok(()) };
            let mut out = self.output.take().unwrap_or_else(|| bench.pool.take_output());
            let result = transport.transmit(&mut Env::new(bench.now, &mut bench.pool, &mut out));
            self.output = Some(out);
            if result.is_err() {
                self.drop_empty_output(bench);
            }
            result.map_err(Ending::Said)?;
            if self.write_out(bench)? < Output::SOFT_LIMIT / 2 || self.output.is_some() {
                return Ok(());
            }
        }
        // What the transport adds to it without being asked, answers and small messages, is no bulk and leaves all the same.
        self.write_out(bench)?;
        self.cut_off = self.output.is_none();
        Ok(())
    }

    /// Writes what waits. Returns how much that was, whether it has left or not.
    fn write_out(&mut self, bench: &mut Bench) -> Result<usize, Ending> {
        let Some(mut out) = self.output.take() else { return Ok(0) };
        let waiting = out.len();
        let written = if waiting > 0 { self.write(&mut out, bench) } else { Ok(true) };
        let left = out.len();
        self.written.0 += waiting - left;
        self.output = Some(out);
        self.drop_empty_output(bench);
        self.note_stall(bench, waiting, left);
        match written {
            Ok(true) => {}
            Ok(false) => self.check_backlog(left, bench)?,
            Err(error) => return Err(self.write_failed(&error, bench)),
        }
        Ok(waiting)
    }

    /// How the connection ends if the peer has taken nothing for too long.
    ///
    /// A thread that was kept from its work for as long has not heard that the peer made room, so that is looked for first.
    pub(crate) fn judge_stall(&mut self, bench: &mut Bench) -> Option<Ending> {
        let is_over =
            |stalled_until: Option<Instant>, bench: &Bench| stalled_until.is_some_and(|at| at <= bench.now);
        if !matches!(self.phase, Phase::Open) || !is_over(self.stalled_until, bench) {
            return None;
        }
        self.blocked = false;
        if let Err(ending) = self.flush(bench) {
            return Some(ending);
        }
        if !is_over(self.stalled_until, bench) {
            return None;
        }
        let (waiting, time) = (self.output.as_ref().map_or(0, Output::len), bench.config.write_stall);
        Some(Ending::Broken(Closed::peer(format!(
            "the peer does not read: {waiting} bytes wait to be written, and none has left in {time:?}"
        ))))
    }

    fn check_backlog(&self, waiting: usize, bench: &Bench) -> Result<(), Ending> {
        let max = bench.config.output_bytes_max;
        if waiting <= max {
            return Ok(());
        }
        let text =
            format!("the peer does not read: {waiting} bytes wait to be written, and the limit is {max}");
        Err(Ending::Broken(Closed::peer(text)))
    }

    /// A peer that closes with bytes of ours unread resets the connection. What it said before that, which may be the reason, has
    /// arrived all the same and is read first.
    fn write_failed(&mut self, error: &io::Error, bench: &mut Bench) -> Ending {
        self.write_failed = true;
        self.hung_up = true;
        if let Some(out) = self.output.take() {
            bench.pool.give_output(out);
        }
        let closed = match self.receive(bench) {
            Err(Ending::Said(closed) | Ending::PeerClosed(closed)) => closed,
            Ok(_) | Err(Ending::Broken(_)) => {
                let peer = match &self.link {
                    Link::Socket { peer, .. } => peer.to_string(),
                    Link::Pipe { .. } => "a pipe".to_owned(),
                };
                Closed::peer(format!("write to {peer}: {}", reason(error))).caused_by(error.kind())
            }
        };
        Ending::Broken(closed)
    }

    /// Takes the transport out, after it has heard why; from here on the connection lingers.
    pub(crate) fn close(&mut self, bench: &mut Bench, closed: &Closed, eof: bool) -> Option<T> {
        self.poke(bench, |transport, env| transport.on_close(env, closed))?;
        let linger = bench.config.linger;
        self.phase = Phase::Lingering(Linger {
            until: bench.now + linger,
            last: bench.now + linger * 10,
            shut: false,
            eof,
        });
        self.transport.take()
    }
}

/// Writes until `out` is empty, or the socket takes no more; `true` in the first case.
fn write_to(stream: &Stream, out: &mut Output) -> io::Result<bool> {
    while !out.is_empty() {
        let (asked, sent) = match out.only() {
            Some(only) => (only.len(), stream.send(&[IoSlice::new(only)])),
            None => send_slices(stream, out),
        };
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                out.advance(written);
                if SHORT_IS_DRY && written < asked {
                    return Ok(false);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Writes what leaves first. Returns how many bytes that is, and how many have left.
#[inline(never)]
fn send_slices(stream: &Stream, out: &Output) -> (usize, io::Result<usize>) {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let filled = out.slices(&mut slices);
    let slices = slices.get(..filled).unwrap_or_default();
    (slices.iter().map(|slice| slice.len()).sum(), stream.send(slices))
}

enum Discarded {
    /// The peer has closed.
    End,
    /// All there was.
    All,
    /// Some, and there may be more.
    Some,
}

/// Reads what nobody wants any more. `hung_up`: the end is announced, and only reading as far as that brings it to light.
fn discard(stream: &mut Stream, scratch: &mut [u8], hung_up: bool) -> io::Result<Discarded> {
    let asked = scratch.len().min(DISCARD_BYTES_MAX);
    loop {
        match stream.read(scratch.get_mut(..asked).unwrap_or_default()) {
            Ok(0) => return Ok(Discarded::End),
            Ok(read) if SHORT_IS_DRY && read < asked && !hung_up => return Ok(Discarded::All),
            Ok(_) => return Ok(Discarded::Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Discarded::All),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::config::ReactorConfig;

    #[test]
    fn lingering_goes_on_while_the_peer_reads_and_not_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let peer = listener.local_addr().expect("it is bound");
        let mut reader = std::net::TcpStream::connect(peer).expect("it listens");
        let (stream, _) = listener.accept().expect("it was connected");
        stream.set_nonblocking(true).expect("it takes the mode");
        let second = Duration::from_secs(1);
        let mut bench = Bench::new(ReactorConfig { linger: second, ..ReactorConfig::default() });
        let (start, last) = (bench.now, bench.now + second * 10);
        let mut until = start + second;
        let stream = Stream::Tcp(mio::net::TcpStream::from_std(stream));
        let link = Link::Socket { stream, peer: peer.into() };
        let linger = Linger { until, last, shut: false, eof: false };
        let mut connection: Connection<()> = Connection::new(link, Phase::Lingering(linger));
        let mut out = Output::new();
        out.extend_from_slice(&vec![b'.'; 50_000_000]);
        connection.output = Some(out);

        let waiting = |connection: &Connection<()>| connection.output.as_ref().map_or(0, Output::len);
        let mut moved = 0;
        for step in 0..20 {
            bench.now = start + second * step / 2;
            let before = waiting(&connection);
            connection.blocked = false;
            assert_eq!(connection.linger(&mut bench), Some(Next::Wait));
            if waiting(&connection) < before {
                moved += 1;
                until = (bench.now + second).min(last);
            }
            let Phase::Lingering(linger) = &connection.phase else { panic!("it lingers") };
            assert_eq!(linger.until, until, "in step {step}");
            reader.read_exact(&mut vec![0; 1_000_000]).expect("it comes");
        }
        assert!(moved > 1, "the peer has read, so there was room again");
    }
}
