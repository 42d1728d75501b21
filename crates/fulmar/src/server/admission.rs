//! Letting requests in, or not, before anything is made for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fulmar_grpc::{MetadataMap, Status};

use crate::panics::caught;
use crate::peer::Peer;

/// Whose panics are caught here.
const ADMITTER: &str = "what admits requests";

/// A request at the door: it is well-formed and names a method of the server, and no call was made of it yet.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'r> {
    request: &'r fulmar_grpc::Admission<'r>,
    peer: &'r Peer,
    calls: usize,
}

impl Admission<'_> {
    /// The path of the method, `/package.Service/Method`.
    pub fn path(&self) -> &str {
        self.request.path
    }

    /// The metadata of the request.
    pub fn metadata(&self) -> &MetadataMap {
        self.request.metadata
    }

    /// How long the client waits; `None` for ever.
    pub fn timeout(&self) -> Option<Duration> {
        self.request.timeout
    }

    /// Who is at the other end of the connection that the request came over. Knows nothing in-process.
    pub fn peer(&self) -> &Peer {
        self.peer
    }

    /// How many calls the server has under way, over all its connections and reactors, without this one.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// How many calls the connection has under way, without this one.
    pub fn connection_calls(&self) -> usize {
        self.request.calls
    }
}

type AdmitConnection = Box<dyn Fn(&Peer) -> bool + Send + Sync>;

type Admit = Box<dyn Fn(&Admission<'_>) -> Result<(), Status> + Send + Sync>;

/// The door of a server that asks before it lets requests in. Others have none.
#[derive(Default)]
pub(crate) struct Door {
    connections: Vec<AdmitConnection>,
    admits: Vec<Admit>,
    /// Calls under way.
    calls: AtomicUsize,
}

impl Door {
    pub(crate) fn add_for_connections(&mut self, admit: AdmitConnection) {
        self.connections.push(admit);
    }

    /// Whether all who are asked let a connection in. One that panics does not.
    pub(crate) fn admits_connection(&self, peer: &Peer) -> bool {
        self.connections.iter().all(|admit| caught(ADMITTER, || admit(peer)).unwrap_or(false))
    }

    /// Whether somebody has to be asked about requests.
    pub(crate) fn is_for_requests(&self) -> bool {
        !self.admits.is_empty()
    }

    pub(crate) fn add(&mut self, admit: Admit) {
        self.admits.push(admit);
    }

    /// Asks everybody in turn.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) fn ask(&self, request: &fulmar_grpc::Admission<'_>, peer: &Peer) -> Result<(), Status> {
        let admission = Admission { request, peer, calls: self.calls.load(Ordering::Relaxed) };
        self.admits.iter().try_for_each(|admit| caught(ADMITTER, || admit(&admission)).flatten())
    }

    /// A call has begun.
    pub(crate) fn enter(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// A call is over.
    pub(crate) fn leave(&self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
