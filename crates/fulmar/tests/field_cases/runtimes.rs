//! R75: a blocking client may be made, used and dropped anywhere, other runtimes' threads included, and never panics or hangs for good.

use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Code, LocalReactor, Raw, Request, Response, Server, Status, blocking};
use tokio::runtime::{Builder, Runtime};

use crate::service::{BIG, SLOW, U, serve};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

fn call(channel: &mut blocking::Channel) -> Result<(), Status> {
    let reply: Response<Raw> = channel.unary(U, bounded(Raw::from(b"ping".to_vec())))?;
    assert_eq!(reply.get_ref().as_ref(), b"ping");
    // A stream that is dropped long before its end.
    let mut big = channel.server_streaming::<Raw, Raw>(BIG, bounded(Raw::default()))?.into_inner();
    assert!(big.message()?.is_some());
    Ok(())
}

/// Makes a channel, calls, and drops it.
fn use_one(endpoint: &str) {
    let mut channel = blocking::Channel::connect(endpoint).unwrap();
    call(&mut channel).unwrap();
}

fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).build().unwrap()
}

fn on_this_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

#[test]
fn r75_a_blocking_client_works_on_every_thread_of_tokios() {
    let (server, _) = serve();
    let endpoint = server.endpoint();
    thread::scope(|scope| {
        scope.spawn(|| use_one(&endpoint)).join().unwrap();
    });
    for runtime in [workers(), on_this_thread()] {
        runtime.block_on(async { use_one(&endpoint) });
        let endpoint = endpoint.clone();
        runtime.block_on(async { tokio::spawn(async move { use_one(&endpoint) }).await }).unwrap();
    }
    let runtime = workers();
    let blocking = endpoint.clone();
    runtime.block_on(async { tokio::task::spawn_blocking(move || use_one(&blocking)).await }).unwrap();
}

/// Calls when it is dropped, and drops its channel.
struct CallsWhenDropped(Option<blocking::Channel>);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        if let Some(channel) = &mut self.0 {
            call(channel).unwrap();
        }
    }
}

#[test]
fn r75_a_blocking_client_works_while_its_thread_unwinds_and_after_its_runtime_has_shut_down() {
    let (server, _) = serve();
    let endpoint = server.endpoint();
    let connect = || CallsWhenDropped(Some(blocking::Channel::connect(&endpoint).unwrap()));
    for runtime in [workers(), on_this_thread()] {
        let mut made_there = None;
        runtime.block_on(async { made_there = Some(connect()) });
        // Dropped as part of the runtime, while it shuts down.
        let dropped_there = connect();
        runtime.spawn(async move {
            let _kept = dropped_there;
            std::future::pending::<()>().await;
        });
        runtime.shutdown_timeout(LONG);
        drop(made_there);
    }
    let unwinding = connect();
    let unwound = thread::spawn(move || {
        let _unwinding = unwinding;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(unwound.join().is_err());
}

#[test]
fn r75_a_call_to_a_server_that_its_own_thread_stops_ends_with_its_deadline() {
    // The listener belongs to the thread that calls, as a server does that runs in a task of the same current-thread runtime: it
    // takes connections into its queue, and nobody answers them while the call waits.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let runtime = on_this_thread();
    runtime.block_on(async {
        let began = Instant::now();
        let settings = blocking::Channel::builder(&endpoint).connect_timeout(Duration::from_millis(100));
        let error = blocking::Channel::with(settings).unwrap_err();
        assert!(error.to_string().contains(&endpoint) && began.elapsed() < LONG, "{error}");
    });

    let (server, _) = serve();
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    runtime.block_on(async {
        let request = Request::new(Raw::default()).with_timeout(Duration::from_millis(100));
        let status = channel.unary::<Raw, Raw>(SLOW, request).unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
}

#[test]
fn r75_on_a_thread_of_ours_it_is_refused_at_once() {
    let server = Server::builder().without_listener().unwrap();
    let (elsewhere, _) = serve();
    let endpoint = elsewhere.endpoint();
    let mut channel = blocking::Channel::connect(&endpoint).unwrap();
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    reactor.block_on(async {
        let error = blocking::Channel::connect(&endpoint).unwrap_err().to_string();
        let status = call(&mut channel).unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        for text in [error, status.to_string()] {
            assert!(text.contains("would stop that reactor") && text.contains("async"), "{text}");
        }
        drop(channel);
    });
}
