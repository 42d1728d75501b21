//! Two connections joined in memory.
//!
//! What one end has written stays its output until the other end takes it, so that the output's room tells the writer how much
//! has not been consumed; from there on the bytes go the way of those from a socket: into the scratch buffer behind the unread
//! tail, and into `receive`.

use fulmar_base::{Output, Transport};

use crate::bench::Bench;
use crate::connection::{Connection, Ending, Link, Next, Phase};
use crate::core::Core;
use crate::keys::ConnectionKey;

impl<T: Transport, L: Send + 'static> Core<T, L> {
    /// Lets every end of a pipe that has something to read at the start of the call read it, once.
    pub(crate) fn run_pipes(&mut self) {
        for _ in 0..self.bench.piped.len() {
            let Some(key) = self.bench.piped.pop_front() else { return };
            self.bench.tick();
            self.read_pipe(key);
        }
    }

    /// Hands what the other end has written to the transport of this end, and closes this end if that was the last.
    fn read_pipe(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get(key.key()) else { return };
        let Link::Pipe { peer } = connection.link else { return };
        let (written, writer_is_over) = match self.connections.get_mut(peer.key()) {
            Some(writer) => {
                writer.blocked = false;
                (writer.output.take(), matches!(writer.phase, Phase::Lingering(_)))
            }
            None => (None, true),
        };
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        let mut result = Ok(Next::Wait);
        if let Some(mut written) = written {
            let waited = written.len();
            result = read_all(connection, &mut written, &mut self.bench);
            self.bench.pool.give_output(written);
            if waited >= Output::SOFT_LIMIT / 2 {
                // The limit may have cut the writer off.
                self.mark_dirty(peer);
            }
        }
        if result.is_ok() && writer_is_over {
            self.close_pipe(key, peer);
        } else {
            self.settle(key, result);
        }
    }

    /// An end that has ended stays until the other has read its last bytes, and then sees the end.
    pub(crate) fn linger_in_pipe(&mut self, key: ConnectionKey, peer: ConnectionKey) {
        match self.connections.get(peer.key()) {
            Some(reader) if reader.transport.is_some() => self.bench.piped.push_back(peer),
            _ => self.remove(key),
        }
    }

    /// The other end is over, and this one has read all of it.
    fn close_pipe(&mut self, key: ConnectionKey, peer: ConnectionKey) {
        self.remove(peer);
        if let Some(connection) = self.connections.get(key.key()) {
            if connection.transport.is_some() {
                let ending = connection.peer_closed();
                self.end(key, ending);
            } else {
                self.remove(key);
            }
        }
    }
}

/// Hands everything in `written` to a connection's transport, and writes what comes of it. The bytes that are there at the start are
/// all there are, and no more than the limits of an output: that is this end's share of the round.
fn read_all<T: Transport>(
    connection: &mut Connection<T>,
    written: &mut Output,
    bench: &mut Bench,
) -> Result<Next, Ending> {
    while !written.is_empty() && connection.transport.is_some() {
        let mut end = connection.make_room(bench);
        let start = end;
        while !written.is_empty() {
            let Some(room) = bench.scratch.get_mut(end..) else { break };
            let slice = written.first();
            let len = slice.len().min(room.len());
            let (Some(into), Some(from)) = (room.get_mut(..len), slice.get(..len)) else { break };
            if len == 0 {
                break;
            }
            into.copy_from_slice(from);
            written.advance(len);
            end += len;
        }
        connection.deliver(bench, end - start)?;
        connection.flush(bench)?;
    }
    Ok(Next::Wait)
}
