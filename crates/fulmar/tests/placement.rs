//! Handlers on other reactors than that of their connection do what all handlers do.

mod common;

use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::{
    Demo, One, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_FAIL, PATH_HANG, PATH_PANIC, PATH_SUM, block_on,
    eventually, join_all, number, value,
};
use fulmar::{
    CallEnd, CallHead, CallInfo, Cancellation, Channel, Code, Counts, Duplex, Interceptor, MetadataMap,
    Placement, Raw, Replies, Request, Response, Router, RunningServer, Server, Service, Status, Streaming,
    Upload,
};

const REACTORS: usize = 3;

fn spread(service: impl Service) -> RunningServer {
    Server::builder()
        .reactors(REACTORS)
        .placement(Placement::Spread)
        .add_service(service)
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap()
}

fn connected<T>(server: &RunningServer, calls: impl AsyncFnOnce(Channel) -> T) -> T {
    block_on(async { calls(Channel::connect(server.endpoint()).await.unwrap()).await })
}

/// Waits until nothing but the connections is in use.
fn comes_to_rest(server: &RunningServer) {
    eventually("everything is given back", || {
        let mut counts = server.handle().counts().unwrap();
        counts.connections = 0;
        counts == Counts::default()
    });
}

#[test]
fn the_calls_of_one_connection_are_handled_by_all_reactors_in_turn() {
    let seen: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let threads = seen.clone();
    let server = spread(One {
        register: move |router: &mut Router| {
            router.unary("/demo.One/Echo", &threads, |threads, request: Request<Raw>| async move {
                threads.lock().unwrap().push(thread::current().id());
                Ok(Response::new(request.into_inner()))
            });
        },
    });
    connected(&server, async |channel| {
        for call in 0..3 * REACTORS as u64 {
            let reply: Response<Raw> = channel.unary("/demo.One/Echo", number(call)).await.unwrap();
            assert_eq!(value(reply.get_ref()), call);
        }
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), REACTORS, "{seen:?}");
    comes_to_rest(&server);
}

#[test]
fn a_reactor_that_is_busy_gets_no_further_calls() {
    let server = spread(Demo::default());
    connected(&server, async |channel| {
        let hanging: Vec<_> = (0..2 * REACTORS)
            .map(|_| {
                let channel = channel.clone();
                Box::pin(async move {
                    let request = Request::new(number(1)).with_timeout(Duration::from_millis(300));
                    let status = channel.unary::<Raw, Raw>(PATH_HANG, request).await.unwrap_err();
                    assert_eq!(status.code(), Code::DeadlineExceeded);
                })
            })
            .collect();
        join_all(hanging).await;
        for call in 0..10 {
            let reply: Response<Raw> = channel.unary(PATH_ECHO, number(call)).await.unwrap();
            assert_eq!(value(reply.get_ref()), call);
        }
    });
    comes_to_rest(&server);
}

#[test]
fn calls_of_all_kinds_work_side_by_side_with_metadata_and_trailers() {
    let server = spread(Demo::default());
    connected(&server, async |channel| {
        let calls = (0..60).map(|round| all_kinds(channel.clone(), round));
        join_all(calls).await;
    });
    comes_to_rest(&server);
}

async fn all_kinds(channel: Channel, round: u64) {
    let mut request = Request::new(number(round));
    request.metadata_mut().insert("x-echo", "there").unwrap();
    request.metadata_mut().insert_bin("x-echo-bin", &[1, 2, 3]).unwrap();
    let reply: Response<Raw> = channel.unary(PATH_ECHO, request).await.unwrap();
    assert_eq!(value(reply.get_ref()), round);
    assert_eq!(reply.metadata().get("x-echo"), Some("there"));
    assert_eq!(reply.trailers().get_bin("x-echo-bin").as_deref(), Some(&[1, 2, 3][..]));

    let mut counted: Streaming<Raw> =
        channel.server_streaming(PATH_COUNT, number(round)).await.unwrap().into_inner();
    let mut next = 0;
    while let Some(message) = counted.message().await.unwrap() {
        assert_eq!(value(&message), next);
        next += 1;
    }
    assert_eq!(next, round);

    let mut upload: Upload<Raw, Raw> = channel.client_streaming(PATH_SUM, ()).await.unwrap();
    for addend in 1..=round {
        upload.send(&number(addend)).await.unwrap();
    }
    assert_eq!(value(upload.finish().await.unwrap().get_ref()), round * (round + 1) / 2);

    let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
    for turn in 0..10 {
        requests.send(&number(turn)).await.unwrap();
        assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(turn * 2));
    }
    requests.finish();
    assert!(replies.message().await.unwrap().is_none());
    assert_eq!(replies.trailers().get("x-turns"), Some("10"));
}

#[test]
fn megabytes_go_both_ways_and_slow_readers_stop_their_writers() {
    let server = spread(One {
        register: |router: &mut Router| {
            router.unary("/demo.One/Echo", &Arc::new(()), |_, request: Request<Raw>| async move {
                Ok(Response::new(request.into_inner()))
            });
            router.bidi("/demo.One/Chat", &Arc::new(()), chat);
        },
    });
    async fn chat(
        _: Arc<()>,
        mut requests: Request<Streaming<Raw>>,
        mut replies: Replies<Raw>,
    ) -> Result<(), Status> {
        while let Some(message) = requests.message().await? {
            replies.send(&message).await?;
        }
        Ok(())
    }
    connected(&server, async |channel| {
        for call in 0..6_u8 {
            let large = Raw::from(vec![call; 3_000_000]);
            let reply: Response<Raw> = channel.unary("/demo.One/Echo", large.clone()).await.unwrap();
            assert!(*reply.get_ref() == large);
            let Duplex { mut requests, mut replies } =
                channel.bidi::<Raw, Raw>("/demo.One/Chat", ()).await.unwrap();
            for index in 0..20_u8 {
                let message = Raw::from(vec![index; 200_000]);
                requests.send(&message).await.unwrap();
                assert!(replies.message().await.unwrap().unwrap() == message);
            }
        }
    });
    comes_to_rest(&server);
}

#[test]
fn failures_and_panics_reach_the_caller_and_nobody_else() {
    let server = spread(Demo::default());
    connected(&server, async |channel| {
        for _ in 0..2 * REACTORS {
            let failed = channel.unary::<Raw, Raw>(PATH_FAIL, number(7)).await.unwrap_err();
            assert_eq!(failed.code(), Code::OutOfRange);
            assert!(failed.message().contains("7 ist zu groß"), "{failed:?}");
            let panicked = channel.unary::<Raw, Raw>(PATH_PANIC, number(7)).await.unwrap_err();
            assert_eq!(panicked.code(), Code::Unknown);
            assert!(panicked.message().contains("the handler has had enough"), "{panicked:?}");
            let none = channel.unary::<Raw, Raw>("/demo.Demo/None", number(7)).await.unwrap_err();
            assert_eq!(none.code(), Code::Unimplemented);
            channel.unary::<Raw, Raw>(PATH_ECHO, number(7)).await.unwrap();
        }
    });
    comes_to_rest(&server);
}

#[test]
fn a_message_too_long_to_send_fails_its_call() {
    let server = Server::builder()
        .reactors(REACTORS)
        .placement(Placement::Spread)
        .send_message_bytes_max(100)
        .add_service(One {
            register: |router: &mut Router| {
                router.unary("/demo.One/Echo", &Arc::new(()), |_, request: Request<Raw>| async move {
                    Ok(Response::new(request.into_inner()))
                });
            },
        })
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    connected(&server, async |channel| {
        for bytes in [100, 101, 100, 101, 100, 101] {
            let reply = channel.unary::<Raw, Raw>("/demo.One/Echo", Raw::from(vec![7; bytes])).await;
            let code = reply.map_or_else(|status| status.code(), |_| Code::Ok);
            assert_eq!(code, if bytes > 100 { Code::ResourceExhausted } else { Code::Ok });
        }
    });
}

/// A service that hangs, and tells when and why its handlers are dropped.
#[derive(Clone, Default)]
struct Hanging {
    started: Arc<AtomicUsize>,
    ends: Arc<Mutex<Vec<Option<CallEnd>>>>,
}

struct TellEnd {
    cancellation: Cancellation,
    ends: Arc<Mutex<Vec<Option<CallEnd>>>>,
}

impl Drop for TellEnd {
    fn drop(&mut self) {
        self.ends.lock().unwrap().push(self.cancellation.reason());
    }
}

impl Service for Hanging {
    fn name(&self) -> &'static str {
        "demo.Hanging"
    }

    fn register(&self, router: &mut Router) {
        router.unary(
            "/demo.Hanging/Hang",
            &Arc::new(self.clone()),
            |this, request: Request<Raw>| async move {
                this.started.fetch_add(1, Ordering::SeqCst);
                let _end = TellEnd { cancellation: request.cancellation(), ends: this.ends.clone() };
                if request.get_ref().as_ref().is_empty() {
                    return Ok(Response::new(Raw::default()));
                }
                pending().await
            },
        );
        router.bidi("/demo.Hanging/Chat", &Arc::new(self.clone()), hang);
    }
}

async fn hang(
    this: Arc<Hanging>,
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    this.started.fetch_add(1, Ordering::SeqCst);
    let _end = TellEnd { cancellation: requests.cancellation(), ends: this.ends.clone() };
    while let Some(message) = requests.message().await? {
        replies.send(&message).await?;
    }
    pending().await
}

impl Hanging {
    fn ends(&self, count: usize) -> Vec<Option<CallEnd>> {
        eventually("handlers are dropped", || self.ends.lock().unwrap().len() >= count);
        std::mem::take(&mut self.ends.lock().unwrap())
    }
}

#[test]
fn a_handler_is_dropped_where_it_runs_when_its_call_ends_and_knows_why() {
    let service = Hanging::default();
    let server = spread(service.clone());
    connected(&server, async |channel| {
        let expiring = (0..REACTORS).map(|_| {
            let request = Request::new(number(1)).with_timeout(Duration::from_millis(100));
            let call = channel.unary::<Raw, Raw>("/demo.Hanging/Hang", request);
            async { assert_eq!(call.await.unwrap_err().code(), Code::DeadlineExceeded) }
        });
        join_all(expiring).await;
        // On a busy machine a call may expire before it arrives, and the client's reset may arrive before the server's deadline.
        channel.unary::<Raw, Raw>("/demo.Hanging/Hang", Raw::default()).await.unwrap();
        comes_to_rest(&server);
        let ends = std::mem::take(&mut *service.ends.lock().unwrap());
        let is_cut_off = |end: &&Option<CallEnd>| {
            matches!(end, Some(CallEnd::DeadlineExceeded | CallEnd::ClientCancelled))
        };
        assert_eq!(ends.iter().filter(is_cut_off).count(), ends.len() - 1, "{ends:?}");

        let mut chats = Vec::new();
        for _ in 0..REACTORS {
            let mut chat = channel.bidi::<Raw, Raw>("/demo.Hanging/Chat", ()).await.unwrap();
            chat.requests.send(&number(1)).await.unwrap();
            assert!(chat.replies.message().await.unwrap().is_some());
            chats.push(chat);
        }
        drop(chats);
        assert_eq!(service.ends(REACTORS), [Some(CallEnd::ClientCancelled); REACTORS]);

        for _ in 0..REACTORS {
            channel.unary::<Raw, Raw>("/demo.Hanging/Hang", Raw::default()).await.unwrap();
        }
        service.ends(REACTORS);
    });
    comes_to_rest(&server);
}

#[test]
fn calls_that_are_given_up_at_once_leave_nothing_behind() {
    let service = Hanging::default();
    let server = spread(service.clone());
    connected(&server, async |channel| {
        for round in 0..200 {
            let mut call = Box::pin(channel.unary::<Raw, Raw>("/demo.Hanging/Hang", number(1)));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(call.as_mut(), &mut cx).is_pending());
            if round % 3 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
        channel.unary::<Raw, Raw>("/demo.Hanging/Hang", Raw::default()).await.unwrap();
    });
    eventually("every handler that was started is dropped", || {
        service.started.load(Ordering::SeqCst) == service.ends.lock().unwrap().len()
    });
    comes_to_rest(&server);
}

#[test]
fn a_connection_that_is_lost_ends_its_placed_calls() {
    let service = Hanging::default();
    let server = spread(service.clone());
    let channel = connected(&server, async |channel| {
        let mut calls: Vec<_> = (0..REACTORS)
            .map(|_| Box::pin(channel.unary::<Raw, Raw>("/demo.Hanging/Hang", number(1))))
            .collect();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for call in &mut calls {
            assert!(std::future::Future::poll(call.as_mut(), &mut cx).is_pending());
        }
        eventually("the calls arrive", || service.started.load(Ordering::SeqCst) == REACTORS);
        std::mem::forget(calls);
        channel.clone()
    });
    server.handle().shutdown(Duration::ZERO);
    assert_eq!(service.ends(REACTORS), [Some(CallEnd::ServerShutdown); REACTORS]);
    server.join().unwrap();
    drop(channel);
}

/// Where handlers wait until it is opened.
#[derive(Default)]
struct Gate {
    arrived: AtomicUsize,
    /// Whether it is open, and who waits.
    state: Mutex<(bool, Vec<Waker>)>,
}

impl Gate {
    async fn pass(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        poll_fn(|cx| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        let waiting = std::mem::take(&mut state.1);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[test]
fn a_server_that_shuts_down_lets_placed_calls_end() {
    let gate = Arc::new(Gate::default());
    let of_handlers = gate.clone();
    let server = spread(One {
        register: move |router: &mut Router| {
            router.unary("/demo.One/Wait", &of_handlers, |gate, request: Request<Raw>| async move {
                gate.pass().await;
                Ok(Response::new(request.into_inner()))
            });
        },
    });
    let (handle, address) = (server.handle(), server.local_addr().unwrap());
    connected(&server, async |channel| {
        let calls = (0..2 * REACTORS as u64).map(|call| {
            let waiting = channel.unary::<Raw, Raw>("/demo.One/Wait", number(call));
            async move { assert_eq!(value(waiting.await.unwrap().get_ref()), call) }
        });
        let stopper = thread::spawn(move || {
            eventually("all handlers run", || gate.arrived.load(Ordering::SeqCst) == 2 * REACTORS);
            handle.shutdown(Duration::from_secs(20));
            eventually("the server goes", || TcpStream::connect(address).is_err());
            gate.open();
        });
        join_all(calls).await;
        stopper.join().unwrap();
    });
    server.join().unwrap();
}

#[test]
fn interceptors_see_placed_calls_as_any_others() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);
    impl Interceptor for Seen {
        async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
            match call.metadata().get("x-no") {
                Some(_) => Err(Status::permission_denied("no")),
                None => Ok(()),
            }
        }
        fn on_response_metadata(&self, _: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
            metadata.insert("x-seen", "yes").map_err(|error| Status::internal(error.to_string()))
        }
        fn on_finish(&self, _: &CallInfo, status: &mut Status, _: &mut MetadataMap) {
            self.0.lock().unwrap().push(status.code().to_string());
        }
    }
    let seen = Seen::default();
    let server = Server::builder()
        .reactors(REACTORS)
        .placement(Placement::Spread)
        .intercept(seen.clone())
        .add_service(Demo::default())
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    connected(&server, async |channel| {
        for _ in 0..REACTORS {
            let reply: Response<Raw> = channel.unary(PATH_ECHO, number(5)).await.unwrap();
            assert_eq!((value(reply.get_ref()), reply.metadata().get("x-seen")), (5, Some("yes")));
            let mut request = Request::new(number(5));
            request.metadata_mut().insert("x-no", "1").unwrap();
            let refused = channel.unary::<Raw, Raw>(PATH_ECHO, request).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
            let mut counted: Streaming<Raw> =
                channel.server_streaming(PATH_COUNT, number(3)).await.unwrap().into_inner();
            while counted.message().await.unwrap().is_some() {}
        }
    });
    comes_to_rest(&server);
    assert_eq!(seen.0.lock().unwrap().len(), 2 * REACTORS, "told of the calls that it let pass");
}

#[test]
fn one_reactor_places_nothing_and_serves_all_the_same() {
    let server = Server::builder().placement(Placement::Spread).add_service(Demo::default());
    let server = server.bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut reactor = fulmar::LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    reactor.block_on(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        all_kinds(channel, 5).await;
    });
}
