//! Asking somebody before a call begins.

use std::time::Duration;

use crate::metadata::MetadataMap;
use crate::status::Status;

/// A request that is well-formed and names a method, of which no call was made yet.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'r> {
    /// The path of the method.
    pub path: &'r str,
    /// The metadata of the request.
    pub metadata: &'r MetadataMap,
    /// How long the client waits; `None` for ever.
    pub timeout: Option<Duration>,
    /// How many calls the connection has.
    pub calls: usize,
}

/// Decides whether a request becomes a call: the status of one that does not is the whole answer.
pub type Admit = Box<dyn FnMut(&Admission<'_>) -> Result<(), Status> + Send>;
