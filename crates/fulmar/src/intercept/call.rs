//! What interceptors know of a call.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::{MetadataMap, Status};
use fulmar_reactor::clock;

use crate::call::{CallCell, CallEnd, CallFate};
use crate::context::CallContext;
use crate::extensions::Extensions;
use crate::metadata_lease::MetadataLease;
use crate::peer::Peer;

/// What stays the same while a call runs.
#[derive(Clone, Debug, Default)]
pub struct CallInfo {
    pub(super) path: Cow<'static, str>,
    pub(super) peer: Peer,
    pub(super) deadline: Option<Instant>,
    pub(super) extensions: Extensions,
    /// None on a client.
    pub(super) fate: Option<Arc<CallFate>>,
}

impl CallInfo {
    /// The path of the method, `/package.Service/Method`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The full name of the service, `package.Service`.
    pub fn service(&self) -> &str {
        self.names().0
    }

    /// The name of the method alone.
    pub fn method(&self) -> &str {
        self.names().1
    }

    fn names(&self) -> (&str, &str) {
        let names = self.path.strip_prefix('/').unwrap_or(&self.path);
        names.rsplit_once('/').unwrap_or((names, ""))
    }

    /// Server: who is at the other end of the connection that the call came over. Knows nothing in-process, and on a client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// How long the call may still take; `None` without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(clock()))
    }

    /// What the caller, or interceptors that were asked before, left for this one; and what it left for itself.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// How a call ended that nobody read the end of.
    pub(super) fn cut_off_status(&self) -> Status {
        if let Some(end) = self.fate.as_ref().and_then(|fate| fate.end()) {
            return match end {
                CallEnd::Finished => Status::cancelled("the call ended without an answer"),
                end => end.status(),
            };
        }
        match self.deadline {
            Some(deadline) if deadline <= clock() => {
                Status::deadline_exceeded("the deadline of the call has passed")
            }
            _ => Status::cancelled("the call was given up by its caller"),
        }
    }
}

/// A call that has not begun: what is known of it, its metadata and its extensions.
#[derive(Debug, Default)]
pub struct CallHead {
    pub(super) metadata: MetadataLease,
    pub(super) info: CallInfo,
    /// Client: where whoever watches the deadline looks for it.
    pub(super) cell: Option<Arc<CallCell>>,
}

impl CallHead {
    /// Of a call to be handled, whose metadata and extensions it takes.
    pub(crate) fn handled(context: &mut CallContext) -> Self {
        let info = CallInfo {
            path: context.path().clone(),
            peer: context.peer().clone(),
            deadline: context.deadline(),
            extensions: context.take_extensions(),
            fate: context.fate().cloned(),
        };
        Self { metadata: context.take_metadata(), info, cell: None }
    }

    /// Of a call to be made, whose deadline `cell` follows.
    pub(crate) fn called(
        path: &str,
        deadline: Option<Instant>,
        metadata: MetadataLease,
        extensions: Extensions,
        cell: Arc<CallCell>,
    ) -> Self {
        let info = CallInfo { path: path.to_owned().into(), deadline, extensions, ..CallInfo::default() };
        Self { metadata, info, cell: Some(cell) }
    }

    /// The metadata of the request.
    pub fn metadata(&self) -> &MetadataMap {
        self.metadata.get()
    }

    /// The metadata of the request, to change.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        self.metadata.get_mut()
    }

    /// The extensions, to add to. On a server, what is here is in the handler's request too.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.info.extensions
    }

    /// Client: the call must end within `timeout` from this moment on, or earlier where it had to before; that includes the time
    /// that interceptors take. It changes nothing on a server, whose client says how long it waits.
    pub fn limit_time(&mut self, timeout: Duration) {
        if self.info.fate.is_none() {
            let deadline = clock().saturating_add(timeout);
            let deadline = self.info.deadline.map_or(deadline, |earlier| earlier.min(deadline));
            self.info.deadline = Some(deadline);
            if let Some(cell) = &self.cell {
                cell.lock().deadline = Some(deadline);
            }
        }
    }
}

impl Deref for CallHead {
    type Target = CallInfo;

    fn deref(&self) -> &CallInfo {
        &self.info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_service_and_a_method() {
        let names = |path: &'static str| {
            let info = CallInfo { path: path.into(), ..CallInfo::default() };
            (info.service().to_owned(), info.method().to_owned())
        };
        assert_eq!(names("/a.B/C"), ("a.B".into(), "C".into()));
        assert_eq!(names("/nested/a.B/C"), ("nested/a.B".into(), "C".into()));
        assert_eq!(names("odd"), ("odd".into(), String::new()));
        assert_eq!(names(""), (String::new(), String::new()));
    }

    #[test]
    fn time_is_only_ever_shortened() {
        let mut head = CallHead::default();
        assert_eq!(head.time_left(), None);
        head.limit_time(Duration::from_secs(60));
        head.limit_time(Duration::from_secs(3_600));
        assert!(head.time_left().is_some_and(|left| left <= Duration::from_secs(60)));
        head.limit_time(Duration::ZERO);
        assert_eq!(head.time_left(), Some(Duration::ZERO));
        assert_eq!(head.cut_off_status().code(), fulmar_grpc::Code::DeadlineExceeded);
    }
}
