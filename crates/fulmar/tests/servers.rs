//! Servers whose handlers misbehave, and servers that end: at any time, from anywhere, with anything going on.

mod common;

use std::future::Future;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut};
use common::{
    Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, block_on, eventually, number, serve, serve_demo,
    serve_one, value,
};
use fulmar::{
    Channel, Code, LocalReactor, Raw, Replies, Request, Response, RunningServer, Server, ServerHandle,
    Status, Streaming, blocking,
};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

/// A request that ends a test which would hang.
fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

async fn echo(channel: &Channel, index: u64) -> Result<u64, Status> {
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(index))).await?;
    Ok(value(reply.get_ref()))
}

/// What a [`Touchy`] message does when it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mood {
    #[default]
    Calm,
    PanicsWhenMeasured,
    PanicsWhenEncoded,
    PanicsWhenDropped,
    EncodesTooMuch,
    EncodesTooLittle,
}

/// A message written by hand, and badly.
#[derive(Debug, Default)]
struct Touchy {
    mood: Mood,
    length: usize,
}

impl prost::Message for Touchy {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        let length = match self.mood {
            Mood::EncodesTooMuch => self.length + 1,
            Mood::EncodesTooLittle => self.length.saturating_sub(1),
            _ => self.length,
        };
        buf.put_bytes(0x08, length);
        assert!(self.mood != Mood::PanicsWhenEncoded, "encoding is beneath it");
    }

    fn merge_field(
        &mut self,
        _tag: u32,
        _wire_type: prost::encoding::WireType,
        _buf: &mut impl Buf,
        _context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        panic!("decoding is beneath it");
    }

    fn encoded_len(&self) -> usize {
        assert!(self.mood != Mood::PanicsWhenMeasured, "being measured is beneath it");
        self.length
    }

    fn clear(&mut self) {}
}

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(self.mood != Mood::PanicsWhenDropped || thread::panicking(), "it will not go");
    }
}

#[test]
fn a_reply_that_misbehaves_fails_its_call_and_no_other() {
    for length in [0, 100, 300_000] {
        // A small message is encoded where it leaves, behind its frame's head: the stream can only be reset. A large one has memory
        // of its own, so that its handler's panic can still be told.
        let when_encoded = if length < 300_000 { Code::Internal } else { Code::Unknown };
        for (mood, expected) in [
            (Mood::PanicsWhenMeasured, Some(Code::Unknown)),
            (Mood::PanicsWhenEncoded, Some(when_encoded)),
            (Mood::EncodesTooMuch, Some(Code::Internal)),
            (Mood::EncodesTooLittle, (length > 0).then_some(Code::Internal)),
            (Mood::PanicsWhenDropped, None),
        ] {
            let server = serve_one(move |router| {
                router.unary("/demo.One/Touchy", &Arc::new(()), move |_, _: Request<Raw>| async move {
                    Ok::<_, Status>(Response::new(Touchy { mood, length }))
                });
                router.unary(PATH_ECHO, &Arc::new(()), |_, request: Request<Raw>| async move {
                    Ok::<_, Status>(Response::new(request.into_inner()))
                });
            });
            block_on(async {
                let channel = Channel::connect(server.endpoint()).await.unwrap();
                for turn in 0..3 {
                    let replied = channel.unary::<Raw, Raw>("/demo.One/Touchy", bounded(number(1))).await;
                    let code = replied.as_ref().err().map(Status::code);
                    assert_eq!(code, expected, "{mood:?} of {length} bytes: {replied:?}");
                    assert_eq!(echo(&channel, turn).await.unwrap(), turn, "{mood:?} of {length} bytes");
                }
            });
        }
    }
}

/// A large message that counts how often it is encoded.
#[derive(Debug, Default)]
struct Counted;

static COUNTED: AtomicUsize = AtomicUsize::new(0);

impl prost::Message for Counted {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        COUNTED.fetch_add(1, Ordering::SeqCst);
        buf.put_bytes(0x08, self.encoded_len());
    }

    fn merge_field(
        &mut self,
        _tag: u32,
        _wire_type: prost::encoding::WireType,
        _buf: &mut impl Buf,
        _context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        300_000
    }

    fn clear(&mut self) {}
}

#[test]
fn a_large_reply_over_the_send_limit_is_refused_before_it_is_encoded() {
    let register = |router: &mut fulmar::Router| {
        router.unary("/demo.One/Counted", &Arc::new(()), |_, _: Request<Raw>| async {
            Ok::<_, Status>(Response::new(Counted))
        });
    };
    for (bytes_max, expected, encoded) in [(299_999, Code::ResourceExhausted, 0), (300_000, Code::Ok, 1)] {
        let server = Server::builder().reactors(1).send_message_bytes_max(bytes_max);
        let server =
            server.add_service(common::One { register }).bind("127.0.0.1:0").unwrap().spawn().unwrap();
        let replied = block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            channel.unary::<Raw, Raw>("/demo.One/Counted", bounded(number(1))).await
        });
        let code = replied.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!((code, COUNTED.load(Ordering::SeqCst)), (expected, encoded));
    }
}

#[test]
fn a_request_that_panics_while_it_is_decoded_fails_its_call_and_no_other() {
    let server = serve_one(|router| {
        router.unary("/demo.One/Touchy", &Arc::new(()), |_, _: Request<Touchy>| async move {
            Ok::<_, Status>(Response::new(Raw::default()))
        });
        router.client_streaming(
            "/demo.One/Touchies",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Touchy>>| async move {
                requests.message().await?;
                Ok::<_, Status>(Response::new(Raw::default()))
            },
        );
        router.unary(PATH_ECHO, &Arc::new(()), |_, request: Request<Raw>| async move {
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for turn in 0..3 {
            let unary =
                channel.unary::<Raw, Raw>("/demo.One/Touchy", bounded(Raw::from(vec![0x08, 1]))).await;
            assert_eq!(unary.unwrap_err().code(), Code::Unknown);
            let mut upload =
                channel.client_streaming::<Raw, Raw>("/demo.One/Touchies", bounded(())).await.unwrap();
            upload.send(&Raw::from(vec![0x08, 1])).await.unwrap();
            assert_eq!(upload.finish().await.unwrap_err().code(), Code::Unknown);
            assert_eq!(echo(&channel, turn).await.unwrap(), turn);
        }
    });
}

#[test]
fn a_future_that_panics_when_it_is_dropped_harms_nobody() {
    /// How many were made, and how many dropped.
    #[derive(Default)]
    struct Bombs(AtomicUsize, AtomicUsize);
    struct Bomb(Arc<Bombs>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.1.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let bombs = Arc::new(Bombs::default());
    let seen = bombs.clone();
    let server = serve_one(move |router| {
        router.unary("/demo.One/Bomb", &seen, |seen, request: Request<Raw>| async move {
            seen.0.fetch_add(1, Ordering::SeqCst);
            let _bomb = Bomb(seen);
            std::future::pending::<()>().await;
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
        router.unary(PATH_ECHO, &seen, |_, request: Request<Raw>| async move {
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for turn in 0..3 {
            let bomb = Request::new(number(1)).with_timeout(Duration::from_millis(20));
            let status = channel.unary::<Raw, Raw>("/demo.One/Bomb", bomb).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert_eq!(echo(&channel, turn).await.unwrap(), turn);
        }
    });
    server.shutdown(LONG).unwrap();
    assert_eq!(bombs.1.load(Ordering::SeqCst), bombs.0.load(Ordering::SeqCst), "each once");
}

#[test]
fn handlers_are_dropped_once_when_their_connection_is_lost() {
    const CALLS: usize = 50;
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    let (mut cut_off, client) = (LocalReactor::new().unwrap(), server.endpoint());
    cut_off.block_on(async {
        let channel = Channel::connect(client).await.unwrap();
        let mut calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let channel = channel.clone();
                Box::pin(async move { channel.unary::<Raw, Raw>(PATH_HANG, number(1)).await })
            })
            .collect();
        std::future::poll_fn(|cx| {
            for call in &mut calls {
                assert!(call.as_mut().poll(cx).is_pending());
            }
            std::task::Poll::Ready(())
        })
        .await;
        // They are at their handlers: calls of one connection arrive in order.
        assert_eq!(echo(&channel, 5).await.unwrap(), 5);
    });
    // The connection goes without a word for the calls.
    drop(cut_off);
    eventually("all are dropped", || seen.dropped.load(Ordering::SeqCst) == CALLS);
    server.shutdown(LONG).unwrap();
    assert_eq!(seen.dropped.load(Ordering::SeqCst), CALLS, "each once");
}

#[test]
fn a_handler_may_write_without_reading_and_read_without_writing() {
    const COUNT: u64 = 30_000;
    let server = serve_one(|router| {
        router.bidi(
            "/demo.One/Write",
            &Arc::new(()),
            |_, _requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                for index in 0..COUNT {
                    replies.send(&number(index)).await?;
                }
                Ok::<(), Status>(())
            },
        );
        router.bidi(
            "/demo.One/Read",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>, _replies: Replies<Raw>| async move {
                while requests.message().await?.is_some() {}
                Ok::<(), Status>(())
            },
        );
        router.bidi(
            "/demo.One/Leave",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                replies
                    .metadata(|metadata| metadata.insert("x-early", "yes"))
                    .map_err(|error| Status::internal(error.to_string()))?;
                requests.message().await?;
                replies
                    .trailers(|trailers| trailers.insert("x-read", "1"))
                    .map_err(|error| Status::internal(error.to_string()))?;
                Ok::<(), Status>(())
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut call = channel.bidi::<Raw, Raw>("/demo.One/Write", bounded(())).await.unwrap();
        for index in 0..COUNT {
            assert_eq!(call.replies.message().await.unwrap().map(|reply| value(&reply)), Some(index));
        }
        assert!(call.replies.message().await.unwrap().is_none());

        let mut call = channel.bidi::<Raw, Raw>("/demo.One/Read", bounded(())).await.unwrap();
        for index in 0..COUNT {
            call.requests.send(&number(index)).await.unwrap();
        }
        call.requests.finish();
        assert!(call.replies.message().await.unwrap().is_none());

        // The handler leaves in the middle of an upload: the client hears how the call ended, and the connection goes on.
        let mut call = channel.bidi::<Raw, Raw>("/demo.One/Leave", bounded(())).await.unwrap();
        let large = Raw::from(vec![7; 50_000]);
        let refused = loop {
            if let Err(status) = call.requests.send(&large).await {
                break status;
            }
        };
        assert_eq!(refused.code(), Code::Cancelled, "{refused}");
        assert_eq!(call.replies.metadata().await.unwrap().get("x-early"), Some("yes"));
        assert!(call.replies.message().await.unwrap().is_none());
        assert_eq!(call.replies.trailers().get("x-read"), Some("1"));
        let mut call = channel.bidi::<Raw, Raw>("/demo.One/Read", bounded(())).await.unwrap();
        call.requests.send(&large).await.unwrap();
        call.requests.finish();
        assert!(call.replies.message().await.unwrap().is_none());
    });
}

/// Serves one method that shuts its own server down, in the way that `how` does.
fn serve_self_ending(
    how: impl Fn(&mut Option<RunningServer>) + Send + Sync + Clone + 'static,
) -> Arc<Mutex<Option<RunningServer>>> {
    let place: Arc<Mutex<Option<RunningServer>>> = Arc::default();
    let inside = place.clone();
    let server = serve_one(move |router| {
        let how = how.clone();
        router.unary("/demo.One/End", &inside, move |inside, request: Request<Raw>| {
            let how = how.clone();
            async move {
                how(&mut inside.lock().unwrap());
                Ok::<_, Status>(Response::new(request.into_inner()))
            }
        });
    });
    *place.lock().unwrap() = Some(server);
    place
}

#[test]
fn a_handler_may_end_its_own_server() {
    type How = fn(&mut Option<RunningServer>);
    let hows: [(How, &str); 4] = [
        (|server| server.as_ref().unwrap().handle().shutdown(LONG), "by a handle"),
        (|server| drop(server.take()), "by dropping it"),
        (
            |server| {
                let error = server.take().unwrap().shutdown(LONG).unwrap_err();
                assert!(error.to_string().contains("reactor's thread"), "{error}");
            },
            "by shutting it down",
        ),
        (
            |server| {
                let handle = server.as_ref().unwrap().handle();
                handle.shutdown(Duration::ZERO);
                assert!(!handle.wait_ended(LONG), "it would wait for itself");
            },
            "and wait for it",
        ),
    ];
    for (how, name) in hows {
        let place = serve_self_ending(how);
        let (handle, endpoint) = {
            let server = place.lock().unwrap();
            (server.as_ref().unwrap().handle(), server.as_ref().unwrap().endpoint())
        };
        let started = Instant::now();
        block_on(async {
            let channel = Channel::connect(endpoint).await.unwrap();
            // With no grace the reply may or may not get through.
            match channel.unary::<Raw, Raw>("/demo.One/End", bounded(number(5))).await {
                Ok(reply) => assert_eq!(value(reply.get_ref()), 5),
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{name}: {status}"),
            }
        });
        assert!(handle.wait_ended(LONG), "{name}");
        assert!(started.elapsed() < LONG / 2, "{name}");
    }
}

#[test]
fn waiting_for_the_end_may_take_for_ever() {
    let server = serve();
    let handle = server.handle();
    let waiter = thread::spawn(move || handle.wait_ended(Duration::MAX));
    let handle = server.handle();
    handle.shutdown(Duration::MAX);
    handle.shutdown(Duration::ZERO);
    handle.shutdown(Duration::MAX);
    server.join().unwrap();
    assert!(waiter.join().unwrap());
    handle.shutdown(Duration::ZERO);
    assert!(handle.wait_ended(Duration::ZERO), "an ended server may be shut down again");
}

#[test]
fn a_second_shutdown_shortens_the_first() {
    let server = serve();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let mut chat = block_on(channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(()))).unwrap();
    block_on(chat.requests.send(&number(1))).unwrap();
    assert!(block_on(chat.replies.message()).unwrap().is_some());
    let handle: ServerHandle = server.handle();
    handle.shutdown(Duration::from_secs(3_600));
    assert!(!handle.wait_ended(Duration::from_millis(50)), "a call is going on");
    handle.shutdown(Duration::ZERO);
    assert_eq!(block_on(chat.replies.message()).unwrap_err().code(), Code::Unavailable);
    server.join().unwrap();
}

#[test]
fn an_idle_client_that_does_not_read_does_not_hold_a_shutdown_up() {
    let server = serve();
    let mut blocked = blocking::Channel::connect(server.endpoint()).unwrap();
    let reply: Response<Raw> = blocked.unary(PATH_ECHO, number(5)).unwrap();
    assert_eq!(value(reply.get_ref()), 5);
    let started = Instant::now();
    server.shutdown(LONG).unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    drop(blocked);
}

#[test]
fn a_server_ends_while_connections_arrive_and_calls_go_on() {
    for turn in 0..2 {
        let server = Server::builder()
            .reactors(3)
            .add_service(Demo::default())
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        let address = server.local_addr().unwrap();
        let endpoint = server.endpoint();
        let knockers: Vec<_> = (0..3).map(|_| thread::spawn(move || knock_until_refused(address))).collect();
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let endpoint = endpoint.clone();
                thread::spawn(move || {
                    let mut reactor = LocalReactor::new().unwrap();
                    reactor.block_on(async {
                        let channel = Channel::builder(endpoint).build().unwrap();
                        let mut index = 0;
                        loop {
                            match echo(&channel, index).await {
                                Ok(echoed) => assert_eq!(echoed, index),
                                Err(status) => {
                                    break assert_eq!(status.code(), Code::Unavailable, "{status}");
                                }
                            }
                            index += 1;
                        }
                    });
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(30));
        let started = Instant::now();
        server.shutdown(if turn % 2 == 0 { Duration::ZERO } else { Duration::from_secs(10) }).unwrap();
        assert!(started.elapsed() < Duration::from_secs(8), "turn {turn}: {:?}", started.elapsed());
        callers.into_iter().chain(knockers).for_each(|thread| thread.join().unwrap());
    }
}

fn knock_until_refused(address: SocketAddr) {
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            Err(error) if error.kind() != std::io::ErrorKind::TimedOut => return,
            _ => {}
        }
    }
}

#[test]
fn slow_streams_are_cut_off_when_the_grace_is_over() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut replies: Streaming<Raw> = channel
            .server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(u64::MAX)))
            .await
            .unwrap()
            .into_inner();
        assert!(replies.message().await.unwrap().is_some());
        let started = Instant::now();
        server.shutdown(Duration::from_millis(50)).unwrap();
        assert!(started.elapsed() < LONG / 2);
        let status = loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a stream that was cut off looks whole"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::Unavailable);
    });
}

#[test]
fn a_wrapper_may_run_a_reactor_twice_or_never() {
    for runs in [0, 2] {
        let server = Server::builder()
            .reactors(1)
            .around_thread(move |serve| {
                for _ in 0..runs {
                    serve();
                }
            })
            .add_service(Demo::default())
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        let handle = server.handle();
        server.shutdown(LONG).unwrap();
        assert!(handle.wait_ended(LONG));
    }
}

#[test]
fn in_process_channels_leave_a_server_that_can_end() {
    for turn in 0..20 {
        let server = Server::builder()
            .reactors(1 + turn % 2)
            .add_service(Demo::default())
            .without_listener()
            .unwrap()
            .spawn()
            .unwrap();
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let channel = server.in_process();
                thread::spawn(move || {
                    // Some calls are dropped before, some after the pipe is there.
                    let call = channel.unary::<Raw, Raw>(PATH_ECHO, number(1));
                    let mut call = std::pin::pin!(call);
                    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                    let _ = call.as_mut().poll(&mut cx);
                })
            })
            .collect();
        callers.into_iter().for_each(|thread| thread.join().unwrap());
        let started = Instant::now();
        server.shutdown(Duration::from_millis(500)).unwrap();
        assert!(started.elapsed() < LONG / 2);
    }
}

#[test]
fn two_servers_live_on_one_reactor_and_end_apart() {
    let mut reactor = LocalReactor::new().unwrap();
    let bind = || Server::builder().add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let (first, second) = (bind(), bind());
    let endpoints = [&first, &second].map(|server| format!("http://{}", server.local_addr().unwrap()));
    let handle = reactor.serve(first).unwrap();
    reactor.serve(second).unwrap();
    reactor.block_on(async {
        let one = Channel::connect(&endpoints[0]).await.unwrap();
        let two = Channel::connect(&endpoints[1]).await.unwrap();
        assert_eq!(echo(&one, 1).await.unwrap(), 1);
        handle.shutdown(LONG);
        assert_eq!(echo(&two, 2).await.unwrap(), 2);
        let status = loop {
            match echo(&one, 3).await {
                Ok(_) => {}
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(echo(&two, 4).await.unwrap(), 4);
    });
    assert!(handle.wait_ended(Duration::ZERO));
}

/// Wakes nobody, and panics.
struct Deadly;

impl std::task::Wake for Deadly {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker that panics"));
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_call_of_its_reactor() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    let server = common::serve_one(move |router: &mut fulmar::Router| {
        let sender = Arc::new(Mutex::new(sender.lock().unwrap().clone()));
        router.bidi(
            "/demo.One/Leak",
            &sender,
            |sender, requests: Request<Streaming<Raw>>, _replies: Replies<Raw>| async move {
                sender.lock().unwrap().send(requests.into_inner()).unwrap();
                std::future::pending::<()>().await;
                Ok::<(), Status>(())
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.push(channel.bidi::<Raw, Raw>("/demo.One/Leak", bounded(())).await.unwrap());
        }
        let mut handlers = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        let waker = std::task::Waker::from(Arc::new(Deadly));
        {
            let mut message = std::pin::pin!(handlers[0].message());
            assert!(message.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        }
        // Whichever of the two belongs to the broken executor, each gets its message.
        for (index, call) in calls.iter_mut().enumerate() {
            call.requests.send(&number(index as u64)).await.unwrap();
        }
        let mut got: Vec<u64> = Vec::new();
        for handler in &mut handlers {
            got.push(value(&handler.message().await.unwrap().unwrap()));
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
    });
    server.shutdown(Duration::ZERO).expect("the reactor lives");
}

#[test]
fn a_server_that_loses_a_reactor_ends_and_says_so() {
    let (kill, killed) = std::sync::mpsc::channel::<()>();
    let killed = Mutex::new(killed);
    let server = Server::builder()
        .reactors(2)
        .around_thread(move |serve| {
            if thread::current().name() == Some("fulmar-server-1") {
                let _ = killed.lock().unwrap().recv();
                std::panic::resume_unwind(Box::new("what is around the reactor panics"));
            }
            serve();
        })
        .add_service(Demo::default())
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    // The reactor that is going to die gets the first connection, the other one the second.
    let _first = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let mut hanging = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, bounded(number(1))));
    let waker = std::task::Waker::noop();
    assert!(hanging.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    kill.send(()).unwrap();
    assert_eq!(block_on(hanging).unwrap_err().code(), Code::Unavailable);
    let error = server.join().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn what_a_handler_sent_before_it_panicked_arrives() {
    let server = serve_one(|router| {
        router.server_streaming(
            "/demo.One/Panic",
            &Arc::new(()),
            |_, _: Request<Raw>, mut replies: Replies<Raw>| async move {
                replies.send(&number(1)).await?;
                std::panic::resume_unwind(Box::new("on purpose"));
                #[allow(unreachable_code)]
                Ok::<(), Status>(())
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let replies = channel.server_streaming::<Raw, Raw>("/demo.One/Panic", bounded(number(1))).await;
        let mut replies = replies.unwrap().into_inner();
        assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(1));
        let status = replies.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status}");
    });
}

#[test]
fn a_reply_to_a_part_of_an_upload_is_a_reply() {
    let server = serve_one(|router| {
        router.client_streaming(
            "/demo.One/First",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>| async move {
                let first = requests.message().await?.unwrap_or_default();
                Ok::<_, Status>(Response::new(number(first.as_ref().len() as u64)))
            },
        );
    });
    let large = Raw::from(vec![7; 30_000]);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut upload = channel.client_streaming::<Raw, Raw>("/demo.One/First", bounded(())).await.unwrap();
        let refused = loop {
            if let Err(status) = upload.send(&large).await {
                break status;
            }
        };
        assert_eq!(refused.code(), Code::Cancelled, "{refused}");
        assert_eq!(value(upload.finish().await.unwrap().get_ref()), 30_000);
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let mut upload = channel.client_streaming::<Raw, Raw>("/demo.One/First", bounded(())).unwrap();
    let refused = (0..1_000).try_for_each(|_| upload.send(&large)).unwrap_err();
    assert_eq!(refused.code(), Code::Cancelled, "{refused}");
    assert_eq!(value(upload.finish().unwrap().get_ref()), 30_000);
}
