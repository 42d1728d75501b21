//! How connections end: told to their host at once, while their sockets may linger, so that the last bytes arrive.

use fulmar_base::Transport;

use super::{Core, Ended};
use crate::connection::{Connection, Ending, Link, Next, Phase};
use crate::keys::ConnectionKey;

/// Which part of its time to linger a connection has that has nothing to write, when its reactor ends. What a peer has under way to it
/// arrives meanwhile, and cannot reset it.
const HURRY: u32 = 4;

impl<T: Transport, L: Send + 'static> Core<T, L> {
    /// The end of a connection, as far as its transport and its host are concerned; its socket may linger.
    pub(crate) fn end(&mut self, key: ConnectionKey, ending: Ending) {
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        let (closed, flush, eof) = match ending {
            Ending::Said(closed) => {
                let flush = !closed.lost && !matches!(connection.phase, Phase::Connecting { .. });
                (closed, flush, false)
            }
            Ending::PeerClosed(closed) => (closed, true, true),
            Ending::Broken(closed) => (closed, false, false),
        };
        let Some(transport) = connection.close(&mut self.bench, &closed, eof) else { return };
        self.live -= 1;
        self.ended.push_back(Ended { key, transport, closed });
        if !flush {
            return self.remove(key);
        }
        match connection.link {
            Link::Pipe { peer } => self.linger_in_pipe(key, peer),
            // Reading what the peer still sends is for a turn of its own.
            Link::Socket { .. } => match connection.write_last(&mut self.bench) {
                Some(()) => self.settle(key, Ok(Next::Again)),
                None => self.remove(key),
            },
        }
    }

    /// One step further in taking leave of a peer.
    pub(crate) fn linger(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        if let Link::Pipe { peer } = connection.link {
            return self.linger_in_pipe(key, peer);
        }
        match connection.linger(&mut self.bench) {
            Some(next) => self.settle(key, Ok(next)),
            None => self.remove(key),
        }
    }

    /// The time to linger is over, unless the peer has made room and the thread has not heard of it.
    pub(super) fn linger_at_last(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        if matches!(connection.link, Link::Socket { .. }) {
            connection.blocked = false;
        }
        self.linger(key);
        let now = self.bench.now;
        let is_over = |connection: &Connection<T>| matches!(&connection.phase, Phase::Lingering(linger) if linger.until <= now);
        if self.connections.get(key.key()).is_some_and(is_over) {
            self.remove(key);
        }
    }

    /// Takes a connection out, and closes its socket.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.remove(key.key()) else { return };
        if let Link::Pipe { peer } = connection.link {
            self.bench.piped.push_back(peer);
        }
        connection.dismantle(&mut self.bench).disarm(&mut self.timers);
    }

    /// The reactor ends: peers that have everything and say nothing are not waited for as long as others are.
    pub(crate) fn hurry_leave(&mut self) {
        let until = self.bench.now + self.bench.config.linger / HURRY;
        let keys: Vec<_> = self.connections.iter().map(|(key, _)| ConnectionKey::of(key)).collect();
        for key in keys {
            if let Some(connection) = self.connections.get_mut(key.key())
                && connection.output.is_none()
                && let Phase::Lingering(linger) = &mut connection.phase
            {
                linger.until = linger.until.min(until);
                self.rearm(key);
            }
        }
    }
}
