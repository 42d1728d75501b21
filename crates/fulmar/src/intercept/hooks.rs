//! The interceptors of one call while it runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fulmar_grpc::{MetadataMap, Status};

use super::{AnyInterceptor, CallInfo, Chain};
use crate::call::Side;
use crate::lock;
use crate::panics::caught;
use crate::payload::Payload;
use crate::response::Response;

/// Whose panics are caught here.
pub(super) const INTERCEPTOR: &str = "an interceptor";

/// How much memory a call keeps for the messages it shows.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The interceptors that have let a call pass, for the rest of the call.
#[derive(Debug)]
pub(crate) struct CallHooks {
    side: Side,
    chain: Chain,
    info: CallInfo,
    /// Nobody was shown the response's metadata.
    metadata_due: AtomicBool,
    /// Nobody was told of the end.
    finish_due: AtomicBool,
    /// Memory for encoded messages that are shown before they are sent.
    scratch: Mutex<Vec<u8>>,
}

impl CallHooks {
    pub(super) fn new(side: Side, chain: Chain, info: CallInfo) -> Self {
        Self {
            side,
            chain,
            info,
            metadata_due: AtomicBool::new(true),
            finish_due: AtomicBool::new(true),
            scratch: Mutex::default(),
        }
    }

    pub(crate) fn side(&self) -> Side {
        self.side
    }

    /// Shows a message that is to be sent, and hands it to `send` if nobody objects.
    ///
    /// # Errors
    /// The first objection, or what `send` says.
    pub(crate) fn send<R>(
        &self,
        message: &impl Payload,
        send: impl FnOnce(&Shown) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let mut bytes = std::mem::take(&mut *lock(&self.scratch));
        bytes.clear();
        message.encode(&mut bytes);
        let shown = Shown(bytes);
        let sent = match self.side {
            Side::Caller => self.on_request(&shown.0),
            Side::Handler => self.on_response(&shown.0),
        };
        let sent = sent.and_then(|()| send(&shown));
        let Shown(mut bytes) = shown;
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES_MAX);
        *lock(&self.scratch) = bytes;
        sent
    }

    /// Shows a message that was received.
    ///
    /// # Errors
    /// The first objection.
    pub(crate) fn receive(&self, message: &[u8]) -> Result<(), Status> {
        match self.side {
            Side::Caller => self.on_response(message),
            Side::Handler => self.on_request(message),
        }
    }

    /// Shows the response's metadata, unless that was done before.
    ///
    /// # Errors
    /// The first objection.
    pub(crate) fn show_metadata(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        if !self.metadata_due.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.inwards().rev().try_for_each(|interceptor| {
            caught(INTERCEPTOR, || interceptor.on_response_metadata(&self.info, metadata)).flatten()
        })
    }

    /// Whether the response's metadata has to be shown.
    pub(crate) fn has_metadata_due(&self) -> bool {
        self.metadata_due.load(Ordering::Relaxed)
    }

    /// Tells how the call ended, unless that was done before.
    pub(crate) fn finish(&self, status: &mut Status, trailers: &mut MetadataMap) {
        if self.finish_due.swap(false, Ordering::Relaxed) {
            tell(self.inwards(), &self.info, status, trailers);
        }
    }

    /// Tells that the call fails with `status`. Returns the status to fail with.
    pub(crate) fn fail(&self, mut status: Status) -> Status {
        self.finish(&mut status, &mut MetadataMap::new());
        status
    }

    /// Tells that nobody waits for the end of the call any more.
    pub(crate) fn cut_off(&self) {
        if self.finish_due.load(Ordering::Relaxed) {
            self.fail(self.info.cut_off_status());
        }
    }

    /// Shows the one response of a call and tells of the end.
    ///
    /// # Errors
    /// That of the call, or what it was made into.
    pub(crate) fn respond<T>(&self, result: Result<Response<T>, Status>) -> Result<Response<T>, Status> {
        let mut response = result.map_err(|status| self.fail(status))?;
        let mut status = Status::default();
        self.finish(&mut status, response.trailers_mut());
        if status.is_ok() { Ok(response) } else { Err(status) }
    }

    fn on_request(&self, message: &[u8]) -> Result<(), Status> {
        self.inwards().try_for_each(|interceptor| {
            caught(INTERCEPTOR, || interceptor.on_request_message(&self.info, message)).flatten()
        })
    }

    fn on_response(&self, message: &[u8]) -> Result<(), Status> {
        self.inwards().rev().try_for_each(|interceptor| {
            caught(INTERCEPTOR, || interceptor.on_response_message(&self.info, message)).flatten()
        })
    }

    fn inwards(&self) -> impl DoubleEndedIterator<Item = &dyn AnyInterceptor> {
        self.chain.iter().map(|interceptor| &**interceptor)
    }
}

/// Whoever forgets a call has given it up.
impl Drop for CallHooks {
    fn drop(&mut self) {
        self.cut_off();
    }
}

/// Tells interceptors, from the innermost on, how a call ended. One that panics makes it `UNKNOWN` for the others.
pub(super) fn tell<'i>(
    interceptors: impl DoubleEndedIterator<Item = &'i dyn AnyInterceptor>,
    info: &CallInfo,
    status: &mut Status,
    trailers: &mut MetadataMap,
) {
    for interceptor in interceptors.rev() {
        if let Err(panic) = caught(INTERCEPTOR, || interceptor.on_finish(info, status, trailers)) {
            *status = panic;
        }
    }
}

/// A message in the form in which interceptors have seen it.
#[derive(Clone, Default)]
pub(crate) struct Shown(Vec<u8>);

impl Payload for Shown {
    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn encode(&self, out: &mut impl bytes::BufMut) {
        out.put_slice(&self.0);
    }

    fn decode_from(&mut self, body: &mut fulmar_grpc::MessageBuf<'_>) -> Result<(), Status> {
        self.0.clear();
        std::io::Read::read_to_end(&mut bytes::Buf::reader(body), &mut self.0)
            .map(drop)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_shown_messages_that_is_kept_is_bounded() {
        let hooks = CallHooks::new(Side::Caller, Chain::default(), CallInfo::default());
        hooks.send(&vec![7_u8; 4 * KEPT_BYTES_MAX], |_| Ok(())).unwrap();
        assert!(lock(&hooks.scratch).capacity() <= KEPT_BYTES_MAX);
    }
}
