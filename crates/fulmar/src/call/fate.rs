//! How a call ends, for the work that was begun for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fulmar_base::Closed;
use fulmar_grpc::{Code, Ending, Status};

use crate::context::CallFacts;
use crate::lock;

/// How a call ended, as its server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallEnd {
    /// The handler returned.
    Finished,
    /// The client gave the call up: it cancelled it, or dropped what it held of it.
    ClientCancelled,
    /// The deadline of the call passed.
    DeadlineExceeded,
    /// The connection to the client was lost.
    ConnectionLost,
    /// The server shut down, and the grace that it gave its calls is over.
    ServerShutdown,
    /// The client broke a rule, or a limit was crossed, and the call was ended with an error.
    Failed,
}

/// All ends in the order in which they are declared. Their number in a [`CallFate`] is one more than here, and 0 while the call runs.
const ENDS: [CallEnd; 6] = [
    CallEnd::Finished,
    CallEnd::ClientCancelled,
    CallEnd::DeadlineExceeded,
    CallEnd::ConnectionLost,
    CallEnd::ServerShutdown,
    CallEnd::Failed,
];

impl CallEnd {
    /// Whether the call ended otherwise than by the return of its handler.
    pub fn is_cancelled(self) -> bool {
        self != Self::Finished
    }

    /// What the engine says, together with what it does not know: why the connection closed.
    pub(crate) fn new(ending: Ending, closed: Option<&Closed>) -> Self {
        match ending {
            Ending::Answered => Self::Finished,
            Ending::Cancelled => Self::ClientCancelled,
            Ending::DeadlineExceeded => Self::DeadlineExceeded,
            Ending::Failed => Self::Failed,
            Ending::ConnectionLost => match closed.map(|closed| closed.fault) {
                Some(fulmar_base::Fault::Local) => Self::ServerShutdown,
                _ => Self::ConnectionLost,
            },
        }
    }

    /// The code of a call that ended so without being answered.
    pub(crate) fn code(self) -> Code {
        match self {
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            _ => Code::Cancelled,
        }
    }

    /// What a handle hears that outlives the call.
    pub(crate) fn status(self) -> Status {
        Status::new(self.code(), self.text())
    }

    fn text(self) -> &'static str {
        match self {
            Self::Finished => "the call is over",
            Self::ClientCancelled => "the client cancelled the call",
            Self::DeadlineExceeded => "the deadline of the call has passed",
            Self::ConnectionLost => "the connection to the client was lost",
            Self::ServerShutdown => "the server has shut down",
            Self::Failed => "the call failed for what its client sent",
        }
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Tells how a call ended to whoever does something for it: [`Request::cancellation`](crate::Request::cancellation).
///
/// A call that is cancelled needs none for its handler, whose future is dropped. This is for what such a future does not own: a
/// task spawned elsewhere, a computation on another thread, and code that runs when the future is dropped and wants to know why.
/// It may be used from any thread and under any executor, and kept as long as one likes.
///
/// ```
/// # use fulmar::{Raw, Request, Response, Status};
/// async fn handler(request: Request<Raw>) -> Result<Response<Raw>, Status> {
///     let cancellation = request.cancellation();
///     let worker = std::thread::spawn(move || {
///         (0..1_000_000_u64).take_while(|_| !cancellation.is_cancelled()).sum::<u64>()
///     });
/// #   worker.join().unwrap();
///     Ok(Response::new(request.into_inner()))
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancellation {
    /// None for a request that a client has made: it is no call yet.
    fate: Option<Arc<CallFate>>,
}

impl Cancellation {
    pub(crate) fn new(fate: Option<Arc<CallFate>>) -> Self {
        Self { fate }
    }

    /// Whether the call was ended by something else than the return of its handler.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some_and(CallEnd::is_cancelled)
    }

    /// How the call ended; `None` while it goes on.
    pub fn reason(&self) -> Option<CallEnd> {
        self.fate.as_ref()?.end()
    }

    /// Waits until the call is cancelled, and says by what. It waits for good where the call ends with the return of its handler, so
    /// it is for a place beside other work; a task that does nothing else waits for [`ended`](Self::ended).
    pub fn cancelled(&self) -> impl Future<Output = CallEnd> + Send + Unpin + 'static {
        Watching { fate: self.fate.clone(), watcher: None, is_looked_for: CallEnd::is_cancelled }
    }

    /// Waits until the call is over, however it ends.
    pub fn ended(&self) -> impl Future<Output = CallEnd> + Send + Unpin + 'static {
        Watching { fate: self.fate.clone(), watcher: None, is_looked_for: |_| true }
    }
}

/// The end of one call, shared by its connection, its request and whoever asks; recycled when only the connection holds it.
#[derive(Debug, Default)]
pub(crate) struct CallFate {
    /// 0, or one more than the index in [`ENDS`].
    end: AtomicU8,
    /// Whether the only message of the call was compressed.
    was_compressed: AtomicBool,
    facts: CallFacts,
    watchers: Mutex<Vec<Watcher>>,
    next_watcher: AtomicU64,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    waker: Waker,
}

impl CallFate {
    pub(crate) fn end(&self) -> Option<CallEnd> {
        let number = self.end.load(Ordering::Acquire);
        ENDS.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The call is over; those who wait hear by [`wake`](Self::wake). The first end counts: a call that is handled on one thread, and
    /// has its connection on another, may end on both.
    pub(crate) fn set_end(&self, end: CallEnd) {
        let _ = self.end.compare_exchange(0, end as u8 + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Wakes who waits. A watcher looks again under the lock before it waits, so each that was not woken here has seen the end.
    pub(crate) fn wake(&self) {
        let watchers = std::mem::take(&mut *lock(&self.watchers));
        for watcher in watchers {
            crate::wake(watcher.waker);
        }
    }

    /// Says what call it is of. Nothing if somebody else holds it, which nobody does of a recycled one.
    pub(crate) fn set_facts(fate: &mut Arc<Self>, facts: CallFacts) {
        if let Some(only) = Arc::get_mut(fate) {
            only.facts = facts;
        }
    }

    /// What stays as it is while the call is handled.
    #[inline]
    pub(crate) fn facts(&self) -> &CallFacts {
        &self.facts
    }

    /// Whether [`note_compressed`](Self::note_compressed) was called.
    pub(crate) fn was_compressed(&self) -> bool {
        self.was_compressed.load(Ordering::Relaxed)
    }

    /// The only message of the call was compressed. It is handed over behind this, in whatever way orders the two.
    pub(crate) fn note_compressed(&self) {
        self.was_compressed.store(true, Ordering::Relaxed);
    }

    /// Makes it ready for another call. False, and nothing done, when somebody else holds it too.
    pub(crate) fn recycle(fate: &mut Arc<Self>) -> bool {
        let Some(only) = Arc::get_mut(fate) else { return false };
        *only.end.get_mut() = 0;
        *only.was_compressed.get_mut() = false;
        // Of what it was of, the certificates of the peer included, nothing is kept.
        only.facts = CallFacts::default();
        true
    }

    /// Leaves a waker, in place of the one that the watcher left before. Wakers are cloned and dropped without the lock, since both
    /// may run an executor's code.
    pub(crate) fn watch(&self, watcher: &mut Option<u64>, waker: &Waker) -> Option<CallEnd> {
        let id = *watcher.get_or_insert_with(|| self.next_watcher.fetch_add(1, Ordering::Relaxed));
        let mut new = Watcher { id, waker: waker.clone() };
        let mut watchers = lock(&self.watchers);
        let end = self.end();
        if end.is_none() {
            match watchers.iter_mut().find(|other| other.id == id) {
                Some(old) => std::mem::swap(old, &mut new),
                None => {
                    watchers.push(new);
                    return None;
                }
            }
        }
        drop(watchers);
        drop(new);
        end
    }

    pub(crate) fn forget(&self, watcher: u64) {
        let mut watchers = lock(&self.watchers);
        let position = watchers.iter().position(|other| other.id == watcher);
        let forgotten = position.map(|position| watchers.swap_remove(position));
        drop(watchers);
        drop(forgotten);
    }
}

/// Waits for the end of a call.
struct Watching {
    fate: Option<Arc<CallFate>>,
    /// The number of the waker that was left.
    watcher: Option<u64>,
    is_looked_for: fn(CallEnd) -> bool,
}

impl Future for Watching {
    type Output = CallEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallEnd> {
        let this = &mut *self;
        let Some(fate) = &this.fate else { return Poll::Pending };
        match fate.end().or_else(|| fate.watch(&mut this.watcher, cx.waker())) {
            Some(end) if (this.is_looked_for)(end) => Poll::Ready(end),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let (Some(fate), Some(watcher)) = (&self.fate, self.watcher) {
            fate.forget(watcher);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Wake;
    use std::time::Duration;

    use fulmar_base::Instant;
    use fulmar_reactor::Socket;

    use super::*;
    use crate::peer::Peer;
    use crate::wire::ServerSecurity;

    struct Count(AtomicU64);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_end_comes_out_as_it_went_in() {
        for end in ENDS {
            let fate = Arc::new(CallFate::default());
            let cancellation = Cancellation::new(Some(fate.clone()));
            assert_eq!((cancellation.reason(), cancellation.is_cancelled()), (None, false));
            fate.set_end(end);
            assert_eq!(cancellation.reason(), Some(end));
            assert_eq!(cancellation.is_cancelled(), end != CallEnd::Finished);
        }
    }

    #[test]
    fn the_first_end_counts() {
        for (first, second) in [
            (CallEnd::Finished, CallEnd::ClientCancelled),
            (CallEnd::ClientCancelled, CallEnd::Finished),
            (CallEnd::Failed, CallEnd::ConnectionLost),
        ] {
            let fate = Arc::new(CallFate::default());
            let cancellation = Cancellation::new(Some(fate.clone()));
            fate.set_end(first);
            fate.set_end(second);
            assert_eq!(cancellation.reason(), Some(first));
        }
    }

    #[test]
    fn who_waits_is_woken_once_with_the_waker_left_last_and_who_has_left_is_not() {
        let fate = Arc::new(CallFate::default());
        let cancellation = Cancellation::new(Some(fate.clone()));
        let counts: [Arc<Count>; 3] = std::array::from_fn(|_| Arc::new(Count(AtomicU64::new(0))));
        let wakers = counts.clone().map(Waker::from);
        let mut waiting = cancellation.cancelled();
        let mut leaving = cancellation.ended();
        for waker in &wakers[..2] {
            assert!(pin!(&mut waiting).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert!(pin!(&mut leaving).poll(&mut Context::from_waker(&wakers[2])).is_pending());
        drop(leaving);
        assert_eq!(lock(&fate.watchers).len(), 1);
        fate.set_end(CallEnd::ConnectionLost);
        fate.wake();
        fate.wake();
        assert_eq!(counts.map(|count| count.0.load(Ordering::SeqCst)), [0, 1, 0]);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(pin!(&mut waiting).poll(&mut cx), Poll::Ready(CallEnd::ConnectionLost));
        assert_eq!(pin!(cancellation.ended()).poll(&mut cx), Poll::Ready(CallEnd::ConnectionLost));
    }

    #[test]
    fn the_return_of_the_handler_is_an_end_and_no_cancellation() {
        let fate = Arc::new(CallFate::default());
        let cancellation = Cancellation::new(Some(fate.clone()));
        fate.set_end(CallEnd::Finished);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(cancellation.cancelled()).poll(&mut cx).is_pending());
        assert_eq!(pin!(cancellation.ended()).poll(&mut cx), Poll::Ready(CallEnd::Finished));
        assert!(pin!(Cancellation::default().ended()).poll(&mut cx).is_pending(), "a request of a client's");
    }

    #[test]
    fn a_fate_that_somebody_keeps_serves_no_other_call() {
        let mut fate = Arc::new(CallFate::default());
        let kept = Cancellation::new(Some(fate.clone()));
        fate.set_end(CallEnd::Failed);
        assert!(!CallFate::recycle(&mut fate));
        assert_eq!(kept.reason(), Some(CallEnd::Failed));
        drop(kept);
        assert!(CallFate::recycle(&mut fate));
        assert_eq!(fate.end(), None);
    }

    #[test]
    fn a_fate_that_waits_for_another_call_keeps_nothing_of_the_last_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = Peer::of(&Socket::from(stream), &ServerSecurity::None);
        let mut fate = Arc::new(CallFate::default());
        let facts = CallFacts {
            timeout: Some(Duration::ZERO),
            deadline: Some(Instant::ZERO),
            peer,
            encoding: Some(Arc::from("gzip")),
            path: "/demo.Demo/Echo".into(),
            metadata: Some(Arc::default()),
        };
        CallFate::set_facts(&mut fate, facts);
        assert!(fate.facts().peer.remote().is_some());
        assert!(CallFate::recycle(&mut fate));
        let CallFacts { timeout, deadline, peer, encoding, path, metadata } = fate.facts();
        assert!(peer.remote().is_none(), "it may have certificates");
        assert_eq!((timeout, deadline, encoding, metadata.is_none()), (&None, &None, &None, true));
        assert!(path.is_empty());
    }
}
