//! Asking the interceptors of a call whether it may begin.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use fulmar_base::Instant;
use fulmar_grpc::{MetadataMap, Status};

use super::hooks::{INTERCEPTOR, tell};
use super::{AnyInterceptor, CallHead, CallHooks, Chain};
use crate::call::Side;
use crate::extensions::Extensions;
use crate::metadata_lease::MetadataLease;
use crate::panics::caught;

/// A call that its interceptors are being asked about, one after the other.
pub(crate) struct Passing {
    side: Side,
    chain: Chain,
    head: CallHead,
    /// How many have let it pass.
    passed: usize,
    is_over: bool,
}

/// A call that all its interceptors have let pass.
pub(crate) struct Passed {
    pub(crate) metadata: MetadataLease,
    pub(crate) extensions: Extensions,
    pub(crate) deadline: Option<Instant>,
    pub(crate) hooks: Arc<CallHooks>,
}

impl Passing {
    pub(crate) fn new(side: Side, chain: &Chain, head: CallHead) -> Self {
        Self { side, chain: chain.clone(), head, passed: 0, is_over: false }
    }

    /// Asks them.
    ///
    /// # Errors
    /// The first refusal, as those that had let the call pass made it.
    pub(crate) async fn run(mut self) -> Result<Passed, Status> {
        let chain = self.chain.clone();
        for interceptor in chain.iter() {
            if let Err(mut status) = ask(&**interceptor, &mut self.head).await {
                self.tell(&mut status);
                return Err(status);
            }
            self.passed += 1;
        }
        self.is_over = true;
        let CallHead { metadata, info, .. } = std::mem::take(&mut self.head);
        Ok(Passed {
            metadata,
            extensions: info.extensions.clone(),
            deadline: info.deadline,
            hooks: Arc::new(CallHooks::new(self.side, chain, info)),
        })
    }

    fn tell(&mut self, status: &mut Status) {
        self.is_over = true;
        let passed = self.chain.iter().take(self.passed).map(|interceptor| &**interceptor);
        tell(passed, &self.head.info, status, &mut MetadataMap::new());
    }
}

/// The call has ended before it began.
impl Drop for Passing {
    fn drop(&mut self) {
        if !self.is_over {
            let mut status = self.head.info.cut_off_status();
            self.tell(&mut status);
        }
    }
}

async fn ask(interceptor: &dyn AnyInterceptor, head: &mut CallHead) -> Result<(), Status> {
    let mut asked = caught(INTERCEPTOR, || interceptor.on_call(head))?;
    let answer = poll_fn(|cx| match caught(INTERCEPTOR, || asked.as_mut().poll(cx)) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await;
    // What it held on to goes, which is its code too.
    caught(INTERCEPTOR, || drop(asked)).and(answer)
}
