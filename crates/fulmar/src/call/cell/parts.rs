//! What a cell is told about its call, and what it answers.

use std::sync::Arc;
use std::task::Waker;

use fulmar_grpc::Code;

use crate::client::GivenUp;
use crate::trace::CallSpan;

/// Which end of the call the user of a cell is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Caller,
    Handler,
}

/// When the reader of a cell wants to be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CellShape {
    /// Only when the call is over: a caller that waits for one reply.
    #[default]
    WholeCall,
    /// So too, and the caller asks for nothing before that.
    OneReply,
    /// At each message and piece of metadata.
    EachMessage,
}

impl CellShape {
    /// Whether nobody takes the reply before the end of the call.
    pub(crate) fn is_read_at_end(self) -> bool {
        self != Self::EachMessage
    }
}

/// A call's place in a queue.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    given_up: Arc<GivenUp>,
    key: u64,
}

impl QueuePlace {
    pub(crate) fn new(given_up: &Arc<GivenUp>, key: u64) -> Self {
        Self { given_up: given_up.clone(), key }
    }

    /// The call gives its place up.
    pub(super) fn give_up(self) {
        self.given_up.add(self.key);
    }
}

/// Whom to tell of the end of a call, once the lock of its cell is gone: those who wait, and who follows the call's span.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(super) code: Code,
    pub(super) span: CallSpan,
    pub(super) wakers: [Option<Waker>; 2],
}

impl IntoIterator for Ended {
    type Item = Option<Waker>;
    type IntoIter = std::array::IntoIter<Option<Waker>, 2>;

    fn into_iter(self) -> Self::IntoIter {
        self.span.end(self.code);
        self.wakers.into_iter()
    }
}

impl Ended {
    /// Tells them all.
    #[inline]
    pub(crate) fn tell(self) {
        self.span.end(self.code);
        let [receiver, sender] = self.wakers;
        if let Some(waker) = receiver {
            crate::wake(waker);
        }
        if let Some(waker) = sender {
            crate::wake(waker);
        }
    }
}

/// What is most likely to come of asking a cell. A wrong guess costs a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guess {
    Ready,
    Pending,
}

impl Guess {
    /// The first time, there is something to wait for; when woken, it is there.
    pub(crate) fn next(&mut self) -> Self {
        std::mem::replace(self, Self::Ready)
    }
}

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The reader's queue holds messages.
    Messages,
    /// No more messages: the call goes on (handler) or is over (caller).
    End,
    /// No more messages, and the call has failed with the status in the cell.
    Failed,
}
