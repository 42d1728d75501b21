use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use fulmar_base::{Key, TaskId};

use crate::mailbox::{Post, Target, TaskWaker};

/// Names a connection of a reactor. The key of a connection that has ended names nothing, and never another connection.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionKey(u64);

impl ConnectionKey {
    pub(crate) fn of<C>(key: Key<C>) -> Self {
        Self(key.to_u64())
    }

    pub(crate) fn key<C>(self) -> Key<C> {
        Key::from_u64(self.0)
    }

    /// A number below the highest count of connections there ever was at one time; reused when the connection has ended.
    pub fn index(self) -> usize {
        self.key::<()>().index()
    }

    /// The whole key as a number.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The key that is this number.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

/// Names a listening socket of a reactor.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerKey(u64);

impl ListenerKey {
    pub(crate) fn of<C>(key: Key<C>) -> Self {
        Self(key.to_u64())
    }

    pub(crate) fn key<C>(self) -> Key<C> {
        Key::from_u64(self.0)
    }
}

/// Names a timer that delivers a letter.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey(u64);

impl TimerKey {
    pub(crate) fn of<C>(key: Key<C>) -> Self {
        Self(key.to_u64())
    }

    pub(crate) fn key<C>(self) -> Key<C> {
        Key::from_u64(self.0)
    }
}

/// What a transport is told about the connection it is made for.
#[derive(Clone)]
pub struct ConnectionHandle {
    key: ConnectionKey,
    post: Arc<dyn Post>,
}

impl ConnectionHandle {
    pub(crate) fn new(key: ConnectionKey, post: Arc<dyn Post>) -> Self {
        Self { key, post }
    }

    /// The connection's key.
    pub fn key(&self) -> ConnectionKey {
        self.key
    }

    /// A waker for a task of the transport, for any thread: each time it is woken, the reactor calls
    /// [`Transport::on_wake`](fulmar_base::Transport::on_wake) with `task`, once for all wake-ups since the last call.
    ///
    /// Allocates; to be made once for each slot of a task and used again.
    pub fn waker(&self, task: TaskId) -> Waker {
        TaskWaker::waker(Target::Connection(self.key, task), Arc::clone(&self.post))
    }
}

impl fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionHandle").field("key", &self.key).finish_non_exhaustive()
    }
}
