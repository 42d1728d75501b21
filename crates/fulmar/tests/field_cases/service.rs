//! The service that the cases call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulmar::{
    Code, Http2Config, MetadataMap, Raw, Replies, Request, Response, Router, RunningServer, Server,
    ServerBuilder, Service, Status, Streaming,
};

/// Unary echo of the message; metadata `x-…` comes back as headers, `t-…` as trailers.
pub(crate) const U: &str = "/field.Cases/U";
/// Sleeps until it is cancelled.
pub(crate) const SLOW: &str = "/field.Cases/Slow";
/// Aborts with INVALID_ARGUMENT, without reading its stream of requests.
pub(crate) const FAIL: &str = "/field.Cases/Fail";
/// Echoes each message of its stream.
pub(crate) const BIDI: &str = "/field.Cases/Bidi";
/// Streams messages of [`BIG_MESSAGE_BYTES`] without end.
pub(crate) const BIG: &str = "/field.Cases/Big";
/// Takes a stream and answers with the number of its bytes, eight bytes big-endian.
pub(crate) const CS: &str = "/field.Cases/CS";

pub(crate) const BIG_MESSAGE_BYTES: usize = 64 * 1024;

/// What the handlers have done.
#[derive(Default)]
pub(crate) struct Seen {
    /// Calls of `U` that a handler got.
    pub(crate) unary: AtomicUsize,
    /// Calls of `Slow` that have begun.
    pub(crate) slow_started: AtomicUsize,
    /// Calls of `Slow` whose future was dropped.
    pub(crate) slow_cancelled: AtomicUsize,
    /// The most calls of `Slow` that ran at the same time.
    pub(crate) slow_most: AtomicUsize,
    /// Messages that `Big` has sent.
    pub(crate) big_sent: AtomicUsize,
    /// Calls of `Big` that have ended or were dropped.
    pub(crate) big_ended: AtomicUsize,
}

#[derive(Default)]
struct Cases {
    seen: Arc<Seen>,
}

/// Serves the cases on one reactor.
pub(crate) fn serve() -> (RunningServer, Arc<Seen>) {
    serve_with(Http2Config::default())
}

/// The same with other settings of the connections.
pub(crate) fn serve_with(config: Http2Config) -> (RunningServer, Arc<Seen>) {
    serve_built(|server| server.http2(config))
}

/// The same with other settings of the server.
pub(crate) fn serve_built(build: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (RunningServer, Arc<Seen>) {
    let cases = Cases::default();
    let seen = cases.seen.clone();
    // Its peers settle by PINGs, more often than a server likes.
    let server =
        build(Server::builder().reactors(1).ping_policy(None)).add_service(cases).bind("127.0.0.1:0");
    (server.unwrap().spawn().unwrap(), seen)
}

impl Service for Cases {
    fn name(&self) -> &'static str {
        "field.Cases"
    }

    fn register(&self, router: &mut Router) {
        router.unary(U, &self.seen, echo);
        router.unary(SLOW, &self.seen, |seen, _: Request<Raw>| async move {
            let started = seen.slow_started.fetch_add(1, Ordering::SeqCst) + 1;
            let running = started - seen.slow_cancelled.load(Ordering::SeqCst);
            seen.slow_most.fetch_max(running, Ordering::SeqCst);
            let _count = CountDrop(&seen.slow_cancelled);
            std::future::pending::<Result<Response<Raw>, Status>>().await
        });
        router.bidi(
            FAIL,
            &self.seen,
            |_, _requests: Request<Streaming<Raw>>, _replies: Replies<Raw>| async {
                Err(Status::new(Code::InvalidArgument, "nope é%"))
            },
        );
        router.bidi(
            BIDI,
            &self.seen,
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                while let Some(message) = requests.message().await? {
                    replies.send(&message).await?;
                }
                Ok(())
            },
        );
        router.server_streaming(
            BIG,
            &self.seen,
            |seen, _: Request<Raw>, mut replies: Replies<Raw>| async move {
                let _count = CountDrop(&seen.big_ended);
                let message = Raw::from(vec![b'b'; BIG_MESSAGE_BYTES]);
                loop {
                    replies.send(&message).await?;
                    seen.big_sent.fetch_add(1, Ordering::SeqCst);
                }
            },
        );
        router.client_streaming(CS, &self.seen, |_, mut requests: Request<Streaming<Raw>>| async move {
            let mut bytes = 0;
            while let Some(message) = requests.message().await? {
                bytes += message.as_ref().len() as u64;
            }
            Ok(Response::new(Raw::from(bytes.to_be_bytes().to_vec())))
        });
    }
}

async fn echo(seen: Arc<Seen>, request: Request<Raw>) -> Result<Response<Raw>, Status> {
    seen.unary.fetch_add(1, Ordering::SeqCst);
    let mut headers = MetadataMap::new();
    let mut trailers = MetadataMap::new();
    for (name, value, _) in request.metadata().raw_iter() {
        let echoed = match name {
            [b't', b'-', ..] => trailers.append_received(name, value, false),
            [b'x', b'-', ..] => headers.append_received(name, value, false),
            _ => Ok(()),
        };
        echoed.map_err(|error| Status::internal(error.to_string()))?;
    }
    let mut response = Response::new(request.into_inner());
    *response.metadata_mut() = headers;
    *response.trailers_mut() = trailers;
    Ok(response)
}

/// Counts when it is dropped.
struct CountDrop<'c>(&'c AtomicUsize);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
