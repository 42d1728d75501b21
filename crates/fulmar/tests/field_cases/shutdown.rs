//! R41: a server is shut down from everywhere at once, with a thousand calls running.

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Raw, Request, Response, Router, Server, ServerHandle, Service, Status};

use crate::common::{block_on, eventually};

/// Hangs.
const HANG: &str = "/field.Shutdown/Hang";
/// Shuts its own server down, twice, and asks it whether it has ended.
const SHUT_DOWN: &str = "/field.Shutdown/ShutDown";

const CALLS: usize = 1_000;
const GRACE: Duration = Duration::from_millis(300);

/// What is waited for has failed the test long before.
const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Shutdown(Arc<OnceLock<ServerHandle>>);

impl Service for Shutdown {
    fn name(&self) -> &'static str {
        "field.Shutdown"
    }

    fn register(&self, router: &mut Router) {
        router.unary(HANG, &self.0, |_, _: Request<Raw>| async {
            std::future::pending::<Result<Response<Raw>, Status>>().await
        });
        router.unary(SHUT_DOWN, &self.0, |handle, request: Request<Raw>| async move {
            let handle = handle.get().ok_or_else(|| Status::internal("there is no handle"))?;
            handle.shutdown(GRACE);
            handle.shutdown(GRACE);
            // It would have to wait for itself, and does not.
            match handle.wait_ended(LONG) {
                false => Ok(Response::new(request.into_inner())),
                true => Err(Status::internal("the server has ended while its handler runs")),
            }
        });
    }
}

type Call = Pin<Box<dyn Future<Output = Result<Response<Raw>, Status>>>>;

fn begin(channel: &Channel, path: &'static str) -> Call {
    let channel = channel.clone();
    let mut call: Call = Box::pin(async move { channel.unary::<Raw, Raw>(path, Raw::default()).await });
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    call
}

#[test]
fn r41_shutdown_from_four_threads_and_a_handler_ends_a_thousand_calls_within_the_grace() {
    let service = Shutdown::default();
    let handle = service.0.clone();
    let server = Server::builder().reactors(2).add_service(service).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    handle.set(server.handle()).unwrap();
    let address = server.local_addr().unwrap();
    let busy = block_on(Channel::connect(server.endpoint())).unwrap();
    let mut calls: Vec<_> = (0..CALLS).map(|_| begin(&busy, HANG)).collect();
    eventually("all calls run", || server.handle().counts().is_some_and(|counts| counts.handlers == CALLS));
    let other = block_on(Channel::connect(server.endpoint())).unwrap();

    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            let handle = server.handle();
            scope.spawn(move || {
                handle.shutdown(GRACE);
                assert!(handle.wait_ended(LONG));
                handle.shutdown(GRACE);
            });
        }
        // The handler's call may come when the server takes none any more.
        if let Err(status) = block_on(other.unary::<Raw, Raw>(SHUT_DOWN, Raw::default())) {
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        }
    });
    let handle = server.handle();
    server.join().expect("all reactors end");
    let took = began.elapsed();
    assert!(took >= GRACE && took < GRACE + LONG, "{took:?}");

    eventually("every call has ended", || {
        calls.retain_mut(|call| match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                assert_eq!(result.unwrap_err().code(), Code::Unavailable);
                false
            }
        });
        calls.is_empty()
    });
    TcpListener::bind(address).expect("the port is free at once");
    handle.shutdown(Duration::ZERO);
    assert!(handle.wait_ended(Duration::ZERO));
    assert_eq!(handle.counts(), Some(fulmar::Counts::default()), "nothing is left to count");
    let status = block_on(handle.in_process().unary::<Raw, Raw>(HANG, Raw::default())).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "work after the end is refused: {status:?}");
}

#[test]
fn r41_a_server_that_is_dropped_or_never_runs_takes_every_verb() {
    let server = Server::builder().reactors(1).add_service(Shutdown::default()).bind("127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    let handle = server.handle();
    drop(server);
    handle.shutdown(LONG);
    handle.shutdown(Duration::ZERO);
    assert!(handle.wait_ended(Duration::ZERO));

    // One that shuts down while the thread that owns it unwinds.
    let unwound = thread::spawn(|| {
        let server =
            Server::builder().reactors(1).add_service(Shutdown::default()).bind("127.0.0.1:0").unwrap();
        let _server = server.spawn().unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(unwound.join().is_err());
}
