//! A client's end that rests.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use fulmar_base::Instant;
use fulmar_reactor::{ConnectionHandle, Mailbox};

use super::{ClientEndpoint, Return};
use crate::client::ChannelSpec;
use crate::host::Letter;
use crate::rest::{Napping, Rests};

/// What only one client's end knows, while there is no call.
pub(crate) struct RestingClient {
    grpc: fulmar_grpc::RestingClient,
    spec: Arc<ChannelSpec>,
    handle: Option<ConnectionHandle>,
    keepalive_time: Option<Duration>,
    carried: bool,
    /// That of the first call: most connections never have two at a time.
    door: Option<Waker>,
}

impl Rests for ClientEndpoint {
    type Resting = RestingClient;
    /// The reactor's own.
    type Kin = Mailbox<Letter>;

    fn is_idle(&self) -> bool {
        self.grpc.calls() == 0 && self.grpc.streams() == 0 && self.waiting.is_empty() && self.direct == 0
    }

    fn rest(&mut self, now: Instant) -> Option<RestingClient> {
        let is_idle = self.is_ready()
            && !self.going_away
            && self.waiting.is_empty()
            && self.direct == 0
            && self.calls.iter().all(Option::is_none);
        let grpc = if is_idle { self.grpc.rest(now)? } else { return None };
        // By name, so that a field which is added has its place here, too.
        let Self {
            grpc: _,
            spec,
            calls,
            doors,
            handle,
            waiting,
            not_processed: _,
            ready_by: _,
            going_away: _,
            keepalive_time,
            carried,
            direct: _,
            lost: _,
        } = self;
        calls.clear();
        waiting.rest();
        spec.cells.rest();
        let door = doors.drain(..).next().flatten();
        Some(RestingClient {
            grpc,
            spec: spec.clone(),
            handle: handle.take(),
            keepalive_time: *keepalive_time,
            carried: *carried,
            door,
        })
    }

    fn wakes_at(resting: &RestingClient) -> Option<Instant> {
        resting.grpc.next_deadline()
    }

    fn body(mailbox: &Mailbox<Letter>, resting: &RestingClient) -> Self {
        let not_processed = Return::ByLetter(mailbox.clone());
        Self::new(resting.spec.clone(), resting.handle.clone(), not_processed, Instant::ZERO)
    }

    fn resume(&mut self, _: &Mailbox<Letter>, resting: RestingClient) {
        let RestingClient { grpc, spec, handle, keepalive_time, carried, door } = resting;
        if !Arc::ptr_eq(&self.spec, &spec) || self.keepalive_time != keepalive_time {
            let mut config = spec.connection_config();
            // The channel may have slowed down for its next connections.
            if let (Some(keepalive), Some(time)) = (&mut config.http2.keepalive, keepalive_time) {
                keepalive.time = time;
            }
            self.keepalive_time = keepalive_time;
            self.grpc.reconfigure(&config, spec.security().scheme(), spec.authority());
            self.waiting.set_calls_max(spec.config.waiting_calls_max);
            self.spec = spec;
        }
        self.grpc.resume(grpc);
        self.handle = handle;
        if door.is_some() {
            self.doors.push(door);
            self.calls.push(None);
        }
        (self.ready_by, self.carried, self.direct, self.lost) = (None, carried, 0, None);
    }

    fn spare_memory(&self) -> usize {
        let calls = self.calls.capacity() * size_of::<Option<super::Call>>();
        calls + self.doors.capacity() * size_of::<Option<Waker>>() + self.grpc.spare_memory()
    }
}

impl Napping<ClientEndpoint> {
    pub(crate) fn channel_id(&self) -> u64 {
        let resting = || self.resting().map_or(0, |resting| resting.spec.id);
        self.awake().map_or_else(resting, ClientEndpoint::channel_id)
    }

    pub(crate) fn server_name(&self) -> &str {
        let resting = || self.resting().map_or("", |resting| resting.spec.name());
        self.awake().map_or_else(resting, ClientEndpoint::server_name)
    }

    /// Whether a call was begun on this connection.
    pub(crate) fn has_carried(&self) -> bool {
        let resting = || self.resting().is_some_and(|resting| resting.carried);
        self.awake().map_or_else(resting, |end| end.carried)
    }

    /// Whether calls may go to the server without this connection.
    pub(crate) fn takes_direct_calls(&self) -> bool {
        // One that rests has room for a call: it has none.
        self.awake().map_or_else(|| self.has_carried(), ClientEndpoint::takes_direct_calls)
    }

    /// Whether new calls may be given to this connection.
    pub(crate) fn takes_calls(&self) -> bool {
        self.awake().is_none_or(ClientEndpoint::takes_calls)
    }
}
