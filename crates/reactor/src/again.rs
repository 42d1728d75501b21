//! Those who have their turn when the connections that need little had theirs: listeners, and sockets that take much.

use fulmar_base::Transport;

use crate::connection::Phase;
use crate::core::Core;
use crate::keys::{ConnectionKey, ListenerKey};
use crate::listener::{Accepted, EXHAUSTED_REST};

impl<T: Transport, L: Send + 'static> Core<T, L> {
    /// A socket waits for its turn among those that had more to read than fitted into an earlier one.
    pub(crate) fn retry(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key.key())
            && !std::mem::replace(&mut connection.retrying, true)
        {
            self.again.push_back(key);
        }
    }

    /// The turn of a socket that had to wait for it.
    pub(crate) fn on_again(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key.key()) else { return };
        connection.retrying = false;
        match connection.phase {
            Phase::Connecting { .. } => {}
            Phase::Open => {
                let result = connection.on_ready(&mut self.bench, true, false);
                self.settle(key, result);
            }
            Phase::Lingering(_) => self.linger(key),
        }
    }

    /// A listener accepts when the connections that need little have been served.
    pub(crate) fn accept_soon(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get_mut(key.key())
            && !std::mem::replace(&mut listener.waiting, true)
        {
            self.accepting.push_back(key);
        }
    }

    /// The listener whose turn it is.
    pub(crate) fn next_accepting(&mut self) -> Option<ListenerKey> {
        let key = self.accepting.pop_front()?;
        if let Some(listener) = self.listeners.get_mut(key.key()) {
            listener.waiting = false;
        }
        Some(key)
    }

    /// The next connection that waits to be accepted.
    pub(crate) fn accept(&mut self, key: ListenerKey) -> Accepted {
        let Some(listener) = self.listeners.get_mut(key.key()) else { return Accepted::Empty };
        let accepted = listener.accept();
        match accepted {
            // One timer for a listener, however many connections arrive meanwhile.
            Accepted::Exhausted(_) if std::mem::replace(&mut listener.resting, true) => {}
            Accepted::Exhausted(_) => self.timers.arm_listener(self.bench.now + EXHAUSTED_REST, key),
            Accepted::Connection(..) if self.connections.len() >= self.bench.config.connections_max => {
                return Accepted::Gone;
            }
            _ => {}
        }
        accepted
    }

    /// A listener that ran out of descriptors has rested.
    pub(crate) fn rested(&mut self, key: ListenerKey) {
        if let Some(listener) = self.listeners.get_mut(key.key()) {
            listener.resting = false;
        }
    }
}
