//! Nothing is told.

use std::fmt::Display;

use fulmar_base::Instant;
use fulmar_grpc::Code;

/// The span of one call.
#[derive(Debug, Default)]
pub(crate) struct CallSpan(());

/// What belongs to a call finds its span by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(());

/// A poll of a handler.
pub(crate) struct Polling;

/// Being inside of a span.
pub(crate) struct Entered;

impl CallSpan {
    #[inline]
    pub(crate) fn of_handler<P: Display>(_path: &str, _peer: Option<P>, _now: Instant) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn of_caller(_path: &str, _server: &str) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn link(&self) -> Link {
        Link(())
    }

    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        Entered
    }

    #[inline]
    pub(crate) fn set_code(&self, _code: Code) {}

    #[inline]
    pub(crate) fn end(self, _code: Code) {}
}

impl Link {
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        true
    }

    #[inline]
    pub(crate) fn sent(self, _bytes: usize) {}

    #[inline]
    pub(crate) fn received(self, _bytes: usize) {}
}

impl Polling {
    #[inline]
    pub(crate) fn begin() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn end(self, _path: Option<&str>) {}
}

#[inline]
pub(crate) fn accepted(_peer: impl Display) {}

#[inline]
pub(crate) fn accept_failed(_error: &std::io::Error, _connections: usize, _now: Instant) {}

#[inline]
pub(crate) fn refused(_peer: impl Display) {}

#[inline]
pub(crate) fn connected(_server: &str) {}

#[inline]
pub(crate) fn too_many_pings(_server: &str, _time: std::time::Duration) {}

#[inline]
pub(crate) fn closed(_side: &'static str, _peer: Option<impl Display>, _reason: &str) {}
