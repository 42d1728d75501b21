//! Reactors that a tokio runtime drives: the feature `tokio`, which `cargo test` of the whole workspace has on.
#![cfg(all(feature = "tokio", unix))]

mod common;

use std::future::Future;
use std::thread;
use std::time::Duration;

use common::{Demo, PATH_CHAT, PATH_ECHO, PATH_HANG, number, serve, value};
use fulmar::{
    Channel, ClientReactor, Code, Duplex, LocalReactor, Raw, Request, Response, Router, Server, Service,
    Status,
};
use tokio::task::{JoinSet, LocalSet, spawn_local};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

/// Runs a future on a current-thread runtime where `spawn_local` works.
fn on_tokio<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bounded = async { tokio::time::timeout(LONG, future).await.expect("the test ends in time") };
    runtime.block_on(LocalSet::new().run_until(bounded))
}

/// A client reactor that a task of this runtime drives.
fn driven() -> (ClientReactor, tokio::task::JoinHandle<std::io::Result<()>>) {
    let (reactor, driver) = ClientReactor::on_tokio().unwrap();
    (reactor, spawn_local(driver))
}

async fn connect(endpoint: &str, reactor: &ClientReactor) -> Channel {
    Channel::builder(endpoint).reactor(reactor).connect().await.unwrap()
}

async fn echo(channel: &Channel, index: u64) -> Result<u64, Status> {
    let reply: Response<Raw> = channel.unary(PATH_ECHO, number(index)).await?;
    Ok(value(reply.get_ref()))
}

/// Answers with the name of the thread that its handler runs on, after a moment of tokio's time.
struct Where;

const PATH_WHERE: &str = "/demo.Where/Where";

impl Service for Where {
    fn name(&self) -> &'static str {
        "demo.Where"
    }

    fn register(&self, router: &mut Router) {
        router.unary(PATH_WHERE, &std::sync::Arc::new(()), |_, _: Request<Raw>| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(Response::new(Raw::from(format!("{:?}", thread::current().id()).into_bytes())))
        });
    }
}

#[test]
fn many_tasks_call_over_a_reactor_that_tokio_drives() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, _driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        let mut callers = JoinSet::new();
        for index in 0..64 {
            let channel = channel.clone();
            callers.spawn(async move {
                for round in 0..20 {
                    assert_eq!(echo(&channel, index * 1000 + round).await.unwrap(), index * 1000 + round);
                }
            });
        }
        callers.join_all().await;
        // Whoever asks waits, and the driver answers here.
        let counts = tokio::task::spawn_blocking(move || reactor.counts()).await.unwrap();
        assert_eq!(counts.unwrap().connections, 1, "all of them on the one connection of this reactor");
    });
    drop(server);
}

#[test]
fn nothing_moves_unless_the_driver_is_polled() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, driver) = ClientReactor::on_tokio().unwrap();
        let channel = Channel::builder(&endpoint).reactor(&reactor).build().unwrap();
        let mut call = Box::pin(echo(&channel, 7));
        let early = tokio::time::timeout(Duration::from_millis(50), call.as_mut()).await;
        assert!(early.is_err(), "there is no thread behind it: {early:?}");
        let _driver = spawn_local(driver);
        assert_eq!(call.await.unwrap(), 7);
    });
    drop(server);
}

#[test]
fn streams_and_large_messages_pass() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, _driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        let large = Raw::from(vec![7; 3 * 1024 * 1024]);
        let reply: Response<Raw> = channel.unary(PATH_ECHO, large.clone()).await.unwrap();
        assert!(reply.get_ref().as_ref() == large.as_ref());
        let chat = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
        let Duplex { mut requests, mut replies } = chat;
        for index in 0..100 {
            requests.send(&number(index)).await.unwrap();
            assert!(replies.message().await.unwrap().is_some());
        }
    });
    drop(server);
}

#[test]
fn threads_elsewhere_call_over_it_too() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, _driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        let caller = tokio::task::spawn_blocking(move || {
            for index in 0..200 {
                assert_eq!(common::block_on(echo(&channel, index)).unwrap(), index);
            }
        });
        caller.await.unwrap();
    });
    drop(server);
}

#[test]
fn deadlines_pass_by_tokios_timer() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, _driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        for timeout_ms in [40, 20] {
            let request = Request::new(number(1)).with_timeout(Duration::from_millis(timeout_ms));
            let result: Result<Response<Raw>, Status> = channel.unary(PATH_HANG, request).await;
            assert_eq!(result.unwrap_err().code(), Code::DeadlineExceeded);
        }
    });
    drop(server);
}

#[test]
fn the_driver_ends_with_the_last_handle() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        drop(reactor);
        assert_eq!(echo(&channel, 1).await.unwrap(), 1);
        drop(channel);
        driver.await.unwrap().unwrap();
    });
    drop(server);
}

#[test]
fn calls_of_a_driver_that_is_dropped_end_unavailable() {
    let server = serve();
    let endpoint = server.endpoint();
    on_tokio(async {
        let (reactor, driver) = driven();
        let channel = connect(&endpoint, &reactor).await;
        let hanging = {
            let channel = channel.clone();
            spawn_local(async move { channel.unary::<Raw, Raw>(PATH_HANG, number(1)).await })
        };
        assert_eq!(echo(&channel, 1).await.unwrap(), 1);
        driver.abort();
        assert_eq!(hanging.await.unwrap().unwrap_err().code(), Code::Unavailable);
        assert_eq!(echo(&channel, 1).await.unwrap_err().code(), Code::Unavailable);
    });
    drop(server);
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    let status = ClientReactor::on_tokio().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("tokio"), "{status:?}");
    let mut reactor = LocalReactor::new().unwrap();
    assert!(common::block_on(reactor.run_until(async {})).is_err());
}

#[test]
fn a_server_and_its_callers_share_one_thread_with_tokio() {
    let server = Server::builder().add_service(Where).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let here = format!("{:?}", thread::current().id());
    on_tokio(async {
        let mut reactor = LocalReactor::new().unwrap();
        let handle = reactor.serve(server).unwrap();
        let calls = async {
            let channel = Channel::connect(endpoint).await.unwrap();
            for _ in 0..3 {
                let reply: Response<Raw> = channel.unary(PATH_WHERE, Raw::default()).await.unwrap();
                assert_eq!(String::from_utf8_lossy(reply.get_ref().as_ref()), here);
            }
            handle.shutdown(Duration::ZERO);
        };
        reactor.run_until(calls).await.unwrap();
    });
}

#[test]
fn a_reactor_whose_run_was_dropped_drives_itself_again() {
    let server = Server::builder().add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    on_tokio(async {
        let endless = reactor.run_until(std::future::pending::<()>());
        assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
        let calls = async {
            let channel = Channel::connect(endpoint.as_str()).await.unwrap();
            echo(&channel, 5).await.unwrap()
        };
        assert_eq!(reactor.run_until(calls).await.unwrap(), 5);
    });
    let again = reactor.block_on(async {
        let channel = Channel::connect(endpoint.as_str()).await.unwrap();
        echo(&channel, 6).await.unwrap()
    });
    assert_eq!(again, 6);
}
