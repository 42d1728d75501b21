//! A server's end that rests.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use fulmar_base::Instant;
use fulmar_grpc::Routes;
use fulmar_reactor::ConnectionHandle;

use super::super::router::Router;
use super::super::shared::ServerShared;
use super::ServerEndpoint;
use crate::peer::Peer;
use crate::rest::{Napping, Rests};

/// What all ends of a server on one reactor have in common.
pub(crate) struct ServerKin {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) router: Rc<RefCell<Router>>,
}

/// What only one server's end knows, while there is no call.
pub(crate) struct RestingServer {
    grpc: fulmar_grpc::RestingServer,
    handle: ConnectionHandle,
    peer: Peer,
    /// That of the first handler: most connections never have two at a time.
    waker: Option<Waker>,
}

impl ServerEndpoint {
    /// The server's end of a new connection; `peer` knows nothing in-process.
    pub(crate) fn of(kin: &ServerKin, handle: ConnectionHandle, peer: Peer) -> Self {
        let ServerKin { shared, routes, router } = kin;
        let door = shared.door.clone().filter(|door| door.is_for_requests());
        let config = shared.config.clone();
        Self::new(config, routes.clone(), router.clone(), handle, peer, shared.id).behind(door)
    }
}

impl Rests for ServerEndpoint {
    type Resting = RestingServer;
    type Kin = ServerKin;

    fn is_idle(&self) -> bool {
        self.grpc.calls() == 0 && self.grpc.streams() == 0
    }

    fn rest(&mut self, now: Instant) -> Option<RestingServer> {
        if self.draining || self.closed.is_some() || self.calls.iter().any(Option::is_some) {
            return None;
        }
        let grpc = self.grpc.rest(now)?;
        // By name, so that a field which is added has its place here, too.
        let Self {
            grpc: _,
            router: _,
            calls: _,
            wakers,
            ready,
            stream_window_bytes: _,
            handle,
            peer,
            server: _,
            door: _,
            draining: _,
            closed: _,
        } = self;
        ready.clear();
        let waker = wakers.drain(..).next();
        Some(RestingServer { grpc, handle: handle.clone(), peer: std::mem::take(peer), waker })
    }

    fn wakes_at(resting: &RestingServer) -> Option<Instant> {
        resting.grpc.next_deadline()
    }

    fn body(kin: &ServerKin, resting: &RestingServer) -> Self {
        Self::of(kin, resting.handle.clone(), resting.peer.clone())
    }

    fn resume(&mut self, _: &ServerKin, resting: RestingServer) {
        let RestingServer { grpc, handle, peer, waker } = resting;
        self.grpc.resume(grpc);
        (self.handle, self.peer) = (handle, peer);
        self.wakers.extend(waker);
        self.calls.resize_with(self.wakers.len(), || None);
    }

    fn spare_memory(&self) -> usize {
        let calls = self.calls.capacity() * size_of::<Option<super::Call>>();
        calls + self.wakers.capacity() * size_of::<Waker>() + self.grpc.spare_memory()
    }
}

impl Napping<ServerEndpoint> {
    pub(crate) fn peer(&self) -> Option<&Peer> {
        match self.awake() {
            Some(end) => Some(&end.peer),
            None => Some(&self.resting()?.peer),
        }
    }
}
