//! Handles of calls that are dropped in any order, moved to other threads, or used after their call's end.

mod common;

use std::future::Future;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use common::{
    Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, PATH_SUM, block_on, eventually, number, serve,
    serve_demo, serve_one, value,
};
use fulmar::{
    Channel, Code, Duplex, Http2Config, LocalReactor, Raw, Replies, Request, Response, Server, Status,
    Streaming,
};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

/// A request that ends a test which would hang.
fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(LONG)
}

/// Polls once, and drops.
fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_reader_hears_that_the_other_half_of_its_call_was_dropped() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } =
            channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        requests.send(&number(1)).await.unwrap();
        assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(2));
        let dropper = thread::spawn(move || drop(requests));
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Cancelled);
        dropper.join().unwrap();
    });
}

#[test]
fn both_halves_of_a_call_without_a_connection_hear_of_its_end() {
    // Connections wait in the listener's queue, and nobody answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    block_on(async {
        let channel = Channel::builder(endpoint).build().unwrap();
        let Duplex { requests, mut replies } =
            channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        drop(requests);
        assert_eq!(replies.message().await.unwrap_err().code(), Code::Cancelled);

        let Duplex { mut requests, replies } =
            channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        drop(replies);
        assert_eq!(requests.send(&number(1)).await.unwrap_err().code(), Code::Cancelled);
    });
}

#[test]
fn a_handler_that_drops_its_stream_stops_no_sender() {
    // Enough that a window of 64 KiB is full several times over, of messages read and unread when the stream is dropped.
    const COUNT: u64 = 400;
    let server = serve_one(|router| {
        router.bidi(
            "/demo.One/Drop",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                requests.message().await?;
                replies.send(&number(1)).await?;
                // Let the window fill up.
                requests.message().await?;
                drop(requests);
                replies.send(&number(2)).await?;
                // The call goes on until the client ends it.
                std::future::pending::<()>().await;
                Ok::<(), Status>(())
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } =
            channel.bidi::<Raw, Raw>("/demo.One/Drop", bounded(())).await.unwrap();
        let message = Raw::from(vec![7; 1_000]);
        for _ in 0..COUNT {
            requests.send(&message).await.unwrap();
        }
        for expected in 1..=2 {
            assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(expected));
        }
    });
}

#[test]
fn streams_flow_through_windows_of_any_size() {
    for window in [1, 100, 1_000, 20_000] {
        let config = Http2Config { stream_window_bytes: window, ..Http2Config::default() };
        let server = Server::builder()
            .reactors(1)
            .http2(config.clone())
            .add_service(Demo::default())
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        // Messages of 13 bytes, several windows full, but for the smallest, where each byte takes its round trip.
        let count = u64::from(window / 5).clamp(20, 2_000);
        block_on(async {
            let channel = Channel::builder(server.endpoint()).http2(config).connect().await.unwrap();
            let replies =
                channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(count))).await.unwrap();
            let mut replies: Streaming<Raw> = replies.into_inner();
            for index in 0..count {
                let reply = replies.message().await.unwrap();
                assert_eq!(reply.map(|reply| value(&reply)), Some(index), "window {window}");
            }
            assert!(replies.message().await.unwrap().is_none());

            let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).await.unwrap();
            for _ in 0..count {
                upload.send(&number(3)).await.unwrap();
            }
            assert_eq!(value(upload.finish().await.unwrap().get_ref()), 3 * count);
        });
    }
}

#[test]
fn a_handlers_handles_work_on_another_thread() {
    const COUNT: u64 = 20_000;
    for window in [2_000, 64 * 1024] {
        let config = Http2Config { stream_window_bytes: window, ..Http2Config::default() };
        let server = Server::builder()
            .reactors(1)
            .http2(config.clone())
            .add_service(common::One {
                register: |router: &mut fulmar::Router| {
                    router.bidi("/demo.One/Elsewhere", &Arc::new(()), |_, requests, replies| {
                        let elsewhere = thread::spawn(move || block_on(echo_all(requests, replies)));
                        async move {
                            let mut turns = 0;
                            while !elsewhere.is_finished() && turns < 10_000 {
                                turns += 1;
                                pause().await;
                            }
                            elsewhere.join().map_err(|_| Status::internal("the thread panicked"))?
                        }
                    });
                },
            })
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        block_on(async {
            let channel = Channel::builder(server.endpoint()).http2(config).connect().await.unwrap();
            let Duplex { mut requests, mut replies } =
                channel.bidi::<Raw, Raw>("/demo.One/Elsewhere", bounded(())).await.unwrap();
            let count = COUNT / if window == 2_000 { 10 } else { 1 };
            let sender = thread::spawn(move || {
                block_on(async {
                    for index in 0..count {
                        requests.send(&number(index)).await.unwrap();
                    }
                    requests.finish();
                });
            });
            for index in 0..count {
                assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(index));
            }
            assert!(replies.message().await.unwrap().is_none());
            sender.join().unwrap();
        });
    }
}

async fn echo_all(requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>) -> Result<(), Status> {
    let mut requests = requests.into_inner();
    let mut message = Raw::default();
    while requests.message_into(&mut message).await? {
        replies.send(&message).await?;
    }
    Ok(())
}

/// Gives way for a moment, under any executor.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut paused, true) {
            return std::task::Poll::Ready(());
        }
        let waker = cx.waker().clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            waker.wake();
        });
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn handles_that_outlive_their_handler_see_the_call_cancelled() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let server = serve_one(move |router| {
        let sender = Arc::new(std::sync::Mutex::new(sender.lock().unwrap().clone()));
        router.bidi(
            "/demo.One/Leak",
            &sender,
            |sender, requests: Request<Streaming<Raw>>, replies: Replies<Raw>| async move {
                sender.lock().unwrap().send((requests.into_inner(), replies)).unwrap();
                Ok::<(), Status>(())
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for turn in 0..3 {
            let mut call = channel.bidi::<Raw, Raw>("/demo.One/Leak", bounded(())).await.unwrap();
            assert!(call.replies.message().await.unwrap().is_none());
            let (mut requests, mut replies) = receiver.recv().unwrap();
            let used = thread::spawn(move || {
                block_on(async {
                    let read = requests.message().await.unwrap_err();
                    let sent = replies.send(&number(1)).await.unwrap_err();
                    (read.code(), sent.code())
                })
            });
            assert_eq!(used.join().unwrap(), (Code::Cancelled, Code::Cancelled), "turn {turn}");
        }
    });
}

#[test]
fn a_unary_call_to_a_method_that_streams_for_ever_ends() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let status = channel.unary::<Raw, Raw>(PATH_COUNT, bounded(number(u64::MAX))).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
    });
    let mut channel = fulmar::blocking::Channel::connect(server.endpoint()).unwrap();
    let status = channel.unary::<Raw, Raw>(PATH_COUNT, bounded(number(u64::MAX))).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    // The server hears of it, and stops.
    let mut before = seen.sent.load(Ordering::SeqCst);
    eventually("the handlers stop", || {
        thread::sleep(Duration::from_millis(20));
        let sent = seen.sent.load(Ordering::SeqCst);
        std::mem::replace(&mut before, sent) == sent
    });
}

#[test]
fn a_channel_dropped_before_its_reactor_has_seen_its_call_makes_no_connection() {
    let server = serve();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.block_on(async {
        let channel = Channel::builder(endpoint).build().unwrap();
        poll_once(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)));
        drop(channel);
        let other = Channel::connect(server.endpoint()).await.unwrap();
        assert_eq!(value(other.unary::<Raw, Raw>(PATH_ECHO, number(5)).await.unwrap().get_ref()), 5);
    });
    let accepted = listener.accept();
    assert!(accepted.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
}

#[test]
fn calls_of_every_kind_may_be_dropped_at_any_time() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    for turn in 0..200 {
        poll_once(channel.unary::<Raw, Raw>(PATH_HANG, number(1)));
        poll_once(channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(1_000)));
        let upload = block_on(channel.client_streaming::<Raw, Raw>(PATH_SUM, ())).unwrap();
        let call = block_on(channel.bidi::<Raw, Raw>(PATH_CHAT, ())).unwrap();
        match turn % 4 {
            0 => drop(upload),
            1 => poll_once(upload.finish()),
            2 => poll_once(async move {
                let mut upload = upload;
                let _ = upload.send(&number(1)).await;
            }),
            _ => drop(thread::spawn(move || drop(upload))),
        }
        let Duplex { mut requests, mut replies } = call;
        match turn % 3 {
            0 => drop((requests, replies)),
            1 => {
                poll_once(replies.message());
                requests.finish();
            }
            _ => {
                poll_once(requests.send(&number(1)));
                drop((replies, requests));
            }
        }
    }
    let reply: Response<Raw> = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(5)))).unwrap();
    assert_eq!(value(reply.get_ref()), 5);
    // Calls dropped before they were sent never reach a handler, so there may be fewer than 200; none is left.
    server.shutdown(LONG).unwrap();
    assert!(seen.dropped.load(Ordering::SeqCst) <= 200);
}

#[test]
fn handles_outlive_their_channel_and_their_reactor() {
    let server = serve();
    let (mut upload, mut replies, mut call) = {
        let mut reactor = LocalReactor::new().unwrap();
        reactor.block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            let upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).await.unwrap();
            let replies: Response<Streaming<Raw>> =
                channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(u64::MAX))).await.unwrap();
            let call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
            (upload, replies.into_inner(), call)
        })
    };
    block_on(async {
        assert_eq!(upload.send(&number(1)).await.unwrap_err().code(), Code::Unavailable);
        let ended = loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a stream that was cut off looks whole"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::Unavailable);
        assert_eq!(call.requests.send(&number(1)).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(call.replies.message().await.unwrap_err().code(), Code::Unavailable);
    });
}

#[test]
fn handles_are_dropped_while_a_thread_unwinds() {
    let server = serve();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let unwound = Arc::new(AtomicUsize::new(0));
    for _ in 0..5 {
        let (channel, unwound) = (channel.clone(), unwound.clone());
        let panicked = thread::spawn(move || {
            block_on(async {
                let _upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap();
                let _call = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
                let _replies =
                    channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(1_000_000)).await.unwrap();
                unwound.fetch_add(1, Ordering::SeqCst);
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        });
        assert!(panicked.join().is_err());
    }
    assert_eq!(unwound.load(Ordering::SeqCst), 5);
    let reply: Response<Raw> = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(5)))).unwrap();
    assert_eq!(value(reply.get_ref()), 5);
}

#[test]
fn streams_can_be_polled_and_sent_on_by_hand() {
    let server = serve_one(|router| {
        router.bidi(
            "/demo.One/Hand",
            &Arc::new(()),
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                // As much as goes without waiting, which is not for ever.
                let mut sent = 0_u64;
                while replies.try_send(&Raw::from(vec![7; 1_000]))? {
                    sent += 1;
                }
                std::future::poll_fn(|cx| replies.poll_ready(cx)).await?;
                while requests.message().await?.is_some() {}
                replies.send(&number(sent)).await
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut call = channel.bidi::<Raw, Raw>("/demo.One/Hand", bounded(())).await.unwrap();
        std::future::poll_fn(|cx| call.requests.poll_ready(cx)).await.unwrap();
        assert!(call.requests.try_send(&number(1)).unwrap());
        call.requests.finish();
        let mut count = 0;
        let last = loop {
            let reply = std::future::poll_fn(|cx| call.replies.poll_message(cx)).await.unwrap().unwrap();
            if reply.as_ref().len() == 8 {
                break value(&reply);
            }
            count += 1;
        };
        assert_eq!(last, count);
        assert!((1..1_000).contains(&count), "{count}");
        assert!(call.replies.message().await.unwrap().is_none());
    });
}
