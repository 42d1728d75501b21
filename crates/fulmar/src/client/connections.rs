//! The client connections of one reactor: one for each channel that made calls on it.

use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::net::SocketAddr;
use std::ops::Add;
use std::rc::Rc;
use std::sync::Arc;

use fulmar_base::Closed;
use fulmar_grpc::Status;
use fulmar_reactor::{Address, ConnectionHandle, ConnectionKey, Mailbox, Socket};

use super::channel_state::{ChannelState, Link};
use super::endpoint::ClientEndpoint;
use super::resolve::unresolved;
use super::{ChannelSpec, PendingCall};
use crate::counts::Counts;
use crate::error::TransportError;
use crate::host::{Core, Letter, RoofTransport};
use crate::rest::{Napping, Shelf};

/// All channels that this reactor has seen, with their connections.
pub(crate) struct Connections {
    /// By the number of the channel. Each call looks here, and there are few: to hash costs more than to compare.
    channels: BTreeMap<u64, Box<ChannelState>>,
    /// The bodies of connections that rest.
    shelf: Rc<Shelf<ClientEndpoint>>,
}

impl Connections {
    /// Those of the reactor of this mailbox.
    pub(crate) fn new(mailbox: Mailbox<Letter>) -> Self {
        Self { channels: BTreeMap::new(), shelf: Rc::new(Shelf::new(mailbox)) }
    }

    /// How many bodies wait for connections.
    #[cfg(test)]
    pub(crate) fn bodies(&self) -> usize {
        self.shelf.bodies()
    }

    /// Gives a call to the channel's connection; makes one if there is none.
    pub(crate) fn start(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>, pending: PendingCall) {
        match self.channel(core, spec) {
            Some(channel) => channel.start(core, pending),
            None => pending.end(dropped()),
        }
    }

    /// The connection of a channel, if it is ready.
    pub(crate) fn ready_link(&self, channel: u64) -> Option<ConnectionKey> {
        match self.channels.get(&channel)?.link {
            Link::Ready(key) => Some(key),
            _ => None,
        }
    }

    /// [Starts](Self::start) calls of one channel, in their order.
    pub(crate) fn start_all(
        &mut self,
        core: &mut Core,
        spec: &Arc<ChannelSpec>,
        calls: &mut impl Iterator<Item = PendingCall>,
    ) {
        match self.channel(core, spec) {
            Some(channel) => channel.start_all(core, calls),
            None => calls.for_each(|pending| pending.end(dropped())),
        }
    }

    /// Takes back a call that its connection could not have processed.
    pub(crate) fn restart(&mut self, core: &mut Core, channel: u64, pending: PendingCall) {
        match self.channels.get_mut(&channel) {
            Some(channel) => channel.start(core, pending),
            None => pending.end(dropped()),
        }
    }

    /// Somebody wants a connection at once.
    pub(crate) fn connect(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>) {
        if let Some(channel) = self.channel(core, spec) {
            channel.connect_at_once(core);
        }
    }

    pub(crate) fn on_resolved(
        &mut self,
        core: &mut Core,
        channel: u64,
        resolved: io::Result<Vec<SocketAddr>>,
    ) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        let Link::Connecting(attempt) = &mut channel.link else { return };
        if !attempt.is_resolving {
            return;
        }
        match resolved {
            Ok(addresses) => attempt.resolved(addresses.into_iter().map(Address::from).collect()),
            Err(error) => {
                attempt.resolved(Vec::new());
                attempt.last_error = Some(unresolved(&error));
            }
        }
        channel.go_on(core);
    }

    pub(crate) fn on_dialled(&mut self, core: &mut Core, channel: u64, dialled: Result<Socket, Status>) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.on_dialled(core, dialled);
        }
    }

    /// The server has sent its SETTINGS on a connection.
    pub(crate) fn on_ready(&mut self, core: &mut Core, channel: u64, key: ConnectionKey) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.on_ready(core, key);
        }
    }

    /// A connection takes no more calls. `carried`: it had some.
    pub(crate) fn on_retiring(&mut self, core: &mut Core, channel: u64, key: ConnectionKey, carried: bool) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.on_lost(core, key, carried);
        }
    }

    /// A connection is gone, or a dial has failed. Calls that the connection never began get another one.
    pub(crate) fn on_closed(
        &mut self,
        core: &mut Core,
        key: ConnectionKey,
        mut endpoint: Napping<ClientEndpoint>,
        closed: &Closed,
    ) {
        let Some(channel) = self.channels.get_mut(&endpoint.channel_id()) else { return };
        if let Link::Connecting(attempt) = &mut channel.link
            && attempt.failed(key)
        {
            let cause = TransportError::new(endpoint.server_name(), closed);
            attempt.last_error = Some(Status::unavailable(closed.text.clone()).with_source(cause));
            channel.go_on(core);
        }
        channel.on_lost(core, key, endpoint.has_carried());
        // On one that rests no call waits.
        for pending in endpoint.awake_mut().into_iter().flat_map(ClientEndpoint::take_waiting) {
            channel.start(core, pending);
        }
    }

    /// Something of a channel that is not connected may be due.
    pub(crate) fn on_timer(&mut self, core: &mut Core, channel: u64) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.on_timer(core);
        }
    }

    /// Calls that wait here were given up.
    pub(crate) fn on_given_up(&mut self, core: &mut Core, channel: u64) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.let_leave(core);
        }
    }

    /// The channel was dropped: nobody can be waiting for a call of it.
    pub(crate) fn forget(&mut self, core: &mut Core, channel: u64) {
        if let Some(state) = self.channels.remove(&channel) {
            self.shelf.forget(|body| body.channel_id() == channel);
            state.end(core);
        }
    }

    /// The reactor ends: channels need not tell it of their end any more.
    pub(crate) fn leave(&mut self, mailbox: &Mailbox<Letter>) {
        for channel in std::mem::take(&mut self.channels).into_values() {
            channel.leave(mailbox);
        }
    }

    /// What waits for connections here.
    pub(crate) fn counts(&self) -> Counts {
        self.channels.values().map(|channel| channel.counts()).fold(Counts::default(), Add::add)
    }

    /// Joins the channel to a server of this reactor by a pipe. `make_server` gives the server's end. False when no pipe was made.
    pub(crate) fn open_pipe(
        &mut self,
        core: &mut Core,
        channel: u64,
        make_server: Option<impl FnOnce(ConnectionHandle) -> RoofTransport>,
    ) -> bool {
        self.channels.get_mut(&channel).is_some_and(|channel| channel.open_pipe(core, make_server))
    }

    /// The first deadline of a call of the channel that waits, if the channel's timer fires by then.
    #[cfg(test)]
    pub(crate) fn armed_deadline(&self, channel: u64) -> Option<fulmar_base::Instant> {
        self.channels.get(&channel)?.armed_deadline()
    }

    /// What this reactor knows of a channel, which may be nothing yet. None for a channel that is gone.
    fn channel(&mut self, core: &mut Core, spec: &Arc<ChannelSpec>) -> Option<&mut ChannelState> {
        match self.channels.entry(spec.id) {
            Entry::Occupied(entry) => Some(&mut **entry.into_mut()),
            Entry::Vacant(_) if !spec.visit(core.mailbox()) => None,
            Entry::Vacant(entry) => {
                let state = ChannelState::new(spec, self.shelf.clone());
                Some(&mut **entry.insert(Box::new(state)))
            }
        }
    }
}

fn dropped() -> Status {
    Status::unavailable("the channel was dropped")
}
