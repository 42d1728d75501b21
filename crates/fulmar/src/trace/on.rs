//! What is told goes to the `tracing` subscriber of the thread that it happens on, or of the process.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Mutex;
use std::thread::LocalKey;
use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::Code;
use fulmar_reactor::clock;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::lock;

/// How many records of spans wait for other calls.
const SPARE_MAX: usize = 4_096;

/// A handler's poll that takes longer is told of: meanwhile its reactor does nothing else.
const SLOW_POLL: Duration = Duration::from_millis(10);

/// How long a thread is silent about slow polls, or about what it cannot accept, once it has told of one.
const SILENCE: Duration = Duration::from_secs(1);

/// The span of one call; empty where no subscriber wants any. It ends once: with the code that it is told, or when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CallSpan(Option<Box<Open>>);

/// A span that somebody wants.
#[derive(Debug)]
struct Open {
    span: Span,
    is_server: bool,
    began: Instant,
    /// What the call was answered with.
    code: Cell<Option<Code>>,
}

/// Records that wait for their next calls: they are made on one thread and given back on another.
#[expect(
    clippy::vec_box,
    reason = "it is the boxes that travel, so that a call without a subscriber carries one pointer"
)]
static SPARE: Mutex<Vec<Box<Open>>> = Mutex::new(Vec::new());

impl CallSpan {
    /// The span of a call that a server handles. It has no parent: what the thread did before is none of the call's.
    pub(crate) fn of_handler<P: Display>(path: &str, peer: Option<P>, now: Instant) -> Self {
        if !tracing::level_enabled!(Level::INFO) {
            return Self(None);
        }
        let (name, service, method) = names(path);
        let span = tracing::info_span!(
            target: "fulmar::call",
            parent: None,
            "call",
            otel.name = name,
            otel.kind = "server",
            otel.status_code = Empty,
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            network.peer.address = peer.map(tracing::field::display),
            rpc.grpc.status_code = Empty,
            duration_us = Empty,
        );
        Self::open(span, true, now)
    }

    /// The span of a call that a client makes, inside of the one that the caller is in.
    pub(crate) fn of_caller(path: &str, server: &str) -> Self {
        if !tracing::level_enabled!(Level::INFO) {
            return Self(None);
        }
        let (name, service, method) = names(path);
        let span = tracing::info_span!(
            target: "fulmar::call",
            "call",
            otel.name = name,
            otel.kind = "client",
            otel.status_code = Empty,
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            server.address = server,
            rpc.grpc.status_code = Empty,
            duration_us = Empty,
        );
        Self::open(span, false, clock())
    }

    fn open(span: Span, is_server: bool, began: Instant) -> Self {
        if span.is_disabled() {
            return Self(None);
        }
        let open = Open { span, is_server, began, code: Cell::new(None) };
        let spare = lock(&SPARE).pop();
        Self(Some(match spare {
            Some(mut spare) => {
                *spare = open;
                spare
            }
            None => Box::new(open),
        }))
    }

    pub(crate) fn link(&self) -> Link {
        Link(self.0.as_ref().and_then(|open| open.span.id()))
    }

    /// What this thread does is done inside of the span, while what is returned lives.
    pub(crate) fn enter(&self) -> Option<tracing::span::Entered<'_>> {
        self.0.as_ref().map(|open| open.span.enter())
    }

    /// The call was answered with `code`, which is what counts when it ends.
    pub(crate) fn set_code(&self, code: Code) {
        if let Some(open) = &self.0 {
            open.code.set(Some(code));
        }
    }

    /// Ends the span of a call that ended with `code`, unless it was answered with another one.
    pub(crate) fn end(self, code: Code) {
        if let Some(open) = &self.0
            && open.code.get().is_none()
        {
            open.code.set(Some(code));
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            finish(open);
        }
    }
}

#[inline(never)]
fn finish(mut open: Box<Open>) {
    // A call that nobody told of its end was given up before it was sent.
    let code = open.code.get().unwrap_or(Code::Cancelled);
    let took = clock().saturating_duration_since(open.began);
    open.span.record("rpc.grpc.status_code", code as u32);
    open.span.record("duration_us", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    if is_error(code, open.is_server) {
        open.span.record("otel.status_code", "ERROR");
    }
    // Closing is the subscriber's code, and so is not under the lock.
    open.span = Span::none();
    let mut spare = lock(&SPARE);
    if spare.len() < SPARE_MAX {
        spare.push(open);
    }
}

/// Whose fault a code is, as OpenTelemetry's conventions for gRPC have it: a server is not to blame for what its clients ask for.
fn is_error(code: Code, is_server: bool) -> bool {
    // UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. As numbers: the library makes none of the last.
    const OF_SERVERS: [u32; 6] = [2, 4, 12, 13, 14, 15];
    if is_server { OF_SERVERS.contains(&(code as u32)) } else { code != Code::Ok }
}

/// `/package.Service/Method` as name, service and method.
fn names(path: &str) -> (&str, &str, &str) {
    let name = path.strip_prefix('/').unwrap_or(path);
    let (service, method) = name.split_once('/').unwrap_or((name, ""));
    (name, service, method)
}

/// What belongs to a call finds its span by it. A span that has ended is no parent any more, which subscribers allow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Option<tracing::span::Id>);

impl Link {
    /// Whether nobody follows the call.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn sent(self, bytes: usize) {
        if self.0.is_some() {
            tracing::trace!(target: "fulmar::message", parent: self.0, direction = "sent", bytes, "message");
        }
    }

    pub(crate) fn received(self, bytes: usize) {
        if self.0.is_some() {
            tracing::trace!(target: "fulmar::message", parent: self.0, direction = "received", bytes, "message");
        }
    }
}

/// A poll of a handler, with the time at which it began if anybody wants to know.
pub(crate) struct Polling(Option<Instant>);

impl Polling {
    pub(crate) fn begin() -> Self {
        Self(tracing::level_enabled!(Level::WARN).then(clock))
    }

    /// Tells of a poll that took long, with the path of its method.
    pub(crate) fn end(self, path: Option<&str>) {
        if let Some(began) = self.0 {
            let now = clock();
            if now.saturating_duration_since(began) > SLOW_POLL {
                tell_slow(path, began, now);
            }
        }
    }
}

thread_local! {
    /// When this thread may tell of a slow poll again.
    static SLOW_SILENT_UNTIL: Cell<Instant> = const { Cell::new(Instant::ZERO) };
    /// When this thread may tell again that it cannot accept.
    static ACCEPT_SILENT_UNTIL: Cell<Instant> = const { Cell::new(Instant::ZERO) };
}

/// Whether this thread may tell of something again; if so, it is silent about it for a while.
fn may_tell(silent_until: &'static LocalKey<Cell<Instant>>, now: Instant) -> bool {
    let may = silent_until.get() <= now;
    if may {
        silent_until.set(now + SILENCE);
    }
    may
}

#[cold]
fn tell_slow(path: Option<&str>, began: Instant, now: Instant) {
    if !may_tell(&SLOW_SILENT_UNTIL, now) {
        return;
    }
    let took = now.saturating_duration_since(began);
    tracing::warn!(
        target: "fulmar::reactor",
        path,
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "a handler has held its reactor up: work that takes long belongs on a thread of its own"
    );
}

/// A server has a new connection.
pub(crate) fn accepted(peer: impl Display) {
    tracing::debug!(target: "fulmar::connection", side = "server", peer = %peer, "accepted");
}

/// A server cannot accept the connections that wait. Told once a second.
pub(crate) fn accept_failed(error: &std::io::Error, connections: usize, now: Instant) {
    if !may_tell(&ACCEPT_SILENT_UNTIL, now) {
        return;
    }
    tracing::warn!(
        target: "fulmar::connection",
        side = "server",
        connections,
        %error,
        "connections wait that cannot be accepted: are there enough file descriptors?"
    );
}

/// A server does not want a connection.
pub(crate) fn refused(peer: impl Display) {
    tracing::debug!(target: "fulmar::connection", side = "server", peer = %peer, "refused");
}

/// A channel is connected, as far as the network is concerned.
pub(crate) fn connected(server: &str) {
    tracing::debug!(target: "fulmar::connection", side = "client", peer = server, "connected");
}

/// A server has ended a connection because it was asked too often whether it is there; `time` is that of the next connection.
pub(crate) fn too_many_pings(server: &str, time: std::time::Duration) {
    tracing::warn!(
        target: "fulmar::connection",
        side = "client",
        peer = server,
        "the server wants fewer pings (too_many_pings): the next connection waits {time:?} before it asks"
    );
}

/// A connection is over, or never came about.
pub(crate) fn closed(side: &'static str, peer: Option<impl Display>, reason: &str) {
    tracing::debug!(target: "fulmar::connection", side, peer = peer.map(tracing::field::display), reason, "closed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_records_of_spans_wait_for_other_calls() {
        for _ in 0..=SPARE_MAX {
            let open = Open { span: Span::none(), is_server: true, began: clock(), code: Cell::new(None) };
            finish(Box::new(open));
        }
        // Other tests may use them at the same time: there are no more in any case.
        assert!(lock(&SPARE).len() <= SPARE_MAX);
    }
}
