//! A connection that the user has made, and handed in.

use std::sync::{Mutex, OnceLock};

use fulmar_reactor::{Mailbox, Socket};

use super::target::Target;
use crate::host::Letter;
use crate::lock;

/// Why a channel that was handed its connection has none any more.
pub(crate) const HANDED_IN_IS_OVER: &str =
    "the connection was handed in and is over: the channel does not know how to make another one";

/// The one connection of a channel that makes none itself.
#[derive(Debug)]
pub(crate) struct Handed {
    /// What it is called.
    pub(crate) target: Target,
    socket: Mutex<Option<Socket>>,
    /// The reactor that has it, or will: the one of the first caller that is on one. None is the channel's own.
    owner: OnceLock<Option<Mailbox<Letter>>>,
}

impl Handed {
    pub(crate) fn new(target: Target, socket: Socket) -> Self {
        Self { target, socket: Mutex::new(Some(socket)), owner: OnceLock::new() }
    }

    /// The connection, for the first who asks.
    pub(crate) fn take(&self) -> Option<Socket> {
        lock(&self.socket).take()
    }

    /// Whether the reactor of `mailbox` has the connection. The first who asks gets it.
    pub(super) fn is_on(&self, mailbox: &Mailbox<Letter>) -> bool {
        let owner = self.owner.get_or_init(|| Some(mailbox.clone()));
        owner.as_ref().is_some_and(|owner| owner.reactor() == mailbox.reactor())
    }

    /// The reactor that has the connection, for a caller that is on none; None for the channel's own.
    pub(super) fn owner(&self) -> Option<&Mailbox<Letter>> {
        self.owner.get_or_init(|| None).as_ref()
    }
}
