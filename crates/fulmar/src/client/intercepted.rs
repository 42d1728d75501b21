//! Letting the interceptors of a channel decide about its calls.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use fulmar_base::Instant;
use fulmar_grpc::{Code, Status};
use fulmar_reactor::clock;

use super::{Channel, PendingCall};
use crate::call::{CallCell, Side};
use crate::extensions::Extensions;
use crate::intercept::{CallHead, Chain, Passed, Passing};
use crate::metadata_lease::MetadataLease;

impl Channel {
    /// Has the interceptors let a call pass that is prepared. Boxed, so that calls without interceptors need no room for it.
    pub(super) fn pass<'c>(
        &'c self,
        path: &'c str,
        extensions: Extensions,
        cell: &'c Arc<CallCell>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'c>> {
        Box::pin(async move {
            let passing = passing(self.chain(), path, extensions, cell);
            let passed = self.in_time(cell, passing).await.map_err(|status| cell.fail(status))?;
            take_over(cell, passed);
            Ok(())
        })
    }

    /// Waits for interceptors, up to the deadline of their call, which they may bring forward.
    async fn in_time(
        &self,
        cell: &CallCell,
        passing: impl Future<Output = Result<Passed, Status>>,
    ) -> Result<Passed, Status> {
        let mut passing = pin!(passing);
        // Most do not wait: then nobody has to look at the time.
        let mut held: Option<Held> = None;
        poll_fn(|cx| {
            if let Poll::Ready(passed) = passing.as_mut().poll(cx) {
                return Poll::Ready(passed);
            }
            let Some(deadline) = cell.lock().deadline else { return Poll::Pending };
            if held.as_ref().is_none_or(|held| held.until != deadline) {
                held = Some(Held::until(deadline, self)?);
            }
            held.as_ref().map_or(Poll::Pending, |held| held.poll_end(cx).map(Err))
        })
        .await
    }
}

/// The cell of nothing but a deadline, which the reactor watches.
struct Held {
    cell: Arc<CallCell>,
    until: Instant,
}

impl Held {
    /// # Errors
    /// `UNAVAILABLE` when no reactor could be started.
    fn until(deadline: Instant, channel: &Channel) -> Result<Self, Status> {
        let cell = channel.take_cell();
        cell.lock().deadline = Some(deadline);
        channel.submit(PendingCall::held(cell.clone()))?;
        Ok(Self { cell, until: deadline })
    }

    fn poll_end(&self, cx: &Context<'_>) -> Poll<Status> {
        self.cell.poll_status(cx).map(|status| match status.code() {
            Code::DeadlineExceeded => out_of_time(),
            _ => status,
        })
    }
}

/// The reactor forgets it.
impl Drop for Held {
    fn drop(&mut self) {
        self.cell.abandon();
    }
}

/// Has the interceptors of a blocking channel let a call pass. The thread sleeps while they wait, and does not look after its
/// connection.
///
/// # Errors
/// Their refusal; `DEADLINE_EXCEEDED` when they take longer than the call may.
pub(crate) fn pass_blocking(
    chain: &Chain,
    path: &str,
    extensions: Extensions,
    cell: &Arc<CallCell>,
) -> Result<(), Status> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let passing = passing(chain, path, extensions, cell);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut cx, mut passing) = (Context::from_waker(&waker), pin!(passing));
    loop {
        if let Poll::Ready(passed) = passing.as_mut().poll(&mut cx) {
            take_over(cell, passed?);
            return Ok(());
        }
        let deadline = cell.lock().deadline;
        match deadline.map(|deadline| deadline.saturating_duration_since(clock())) {
            None => thread::park(),
            Some(left) if left.is_zero() => return Err(out_of_time()),
            Some(left) => thread::park_timeout(left),
        }
    }
}

/// The question to the interceptors about the call that is prepared in `cell`.
fn passing(
    chain: &Chain,
    path: &str,
    extensions: Extensions,
    cell: &Arc<CallCell>,
) -> impl Future<Output = Result<Passed, Status>> + Send + use<> {
    let mut state = cell.lock();
    let deadline = state.deadline;
    let metadata = MetadataLease::from(std::mem::take(&mut state.metadata_out));
    drop(state);
    Passing::new(Side::Caller, chain, CallHead::called(path, deadline, metadata, extensions, cell.clone()))
        .run()
}

/// Writes what the interceptors made of a call into its cell.
fn take_over(cell: &CallCell, passed: Passed) {
    let mut state = cell.lock();
    state.metadata_out = passed.metadata.into_map();
    state.deadline = passed.deadline;
    state.hooks = Some(passed.hooks);
}

fn out_of_time() -> Status {
    Status::deadline_exceeded("the deadline passed while an interceptor held the call")
}
