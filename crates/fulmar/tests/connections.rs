//! A client's connections: how they come about, are shared, refuse calls, go away, are lost, and are made again.

mod common;

use std::future::Future;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::raw::{CANCEL, MAX_CONCURRENT_STREAMS, REFUSED_STREAM, RawPeer, raw_server};
use common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, join_all, number, serve, value};
use fulmar::{
    Channel, ClientReactor, Code, Http2Config, LocalReactor, Raw, Request, Server, Status, Streaming,
    blocking,
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

/// One call, not made yet, by a client of the kind that the name says.
type NamedCall<'e> = (&'static str, Box<dyn FnOnce() -> Result<u64, Status> + 'e>);

fn calls_of_both(endpoint: &str) -> [NamedCall<'_>; 2] {
    [
        (
            "async",
            Box::new(move || {
                let channel = Channel::builder(endpoint).build()?;
                block_on(echo(&channel, 5))
            }),
        ),
        (
            "blocking",
            Box::new(move || {
                let mut channel = blocking::Channel::connect(endpoint)?;
                let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(5)))?;
                Ok(value(reply.get_ref()))
            }),
        ),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    GoAway,
    Refused,
}

/// Takes connections and refuses the first call on the first `refusing` of them; answers on the next. Returns how many calls it saw.
fn refusing_server(refusal: Refusal, refusing: usize) -> (String, thread::JoinHandle<usize>) {
    raw_server(move |listener| {
        let mut seen = 0;
        let mut peers = Vec::new();
        for _ in 0..2 {
            let mut peer = RawPeer::accept(&listener, &[]);
            let mut stream = peer.next_request().unwrap();
            seen += 1;
            if matches!(refusal, Refusal::Refused) && refusing < 2 {
                // The same connection is given another chance.
                peer.reset(stream, REFUSED_STREAM);
                stream = peer.next_request().unwrap();
                peer.reply(stream, &5_u64.to_be_bytes());
                assert!(peer.next_request().is_none(), "a call is repeated once");
                return seen + 1;
            }
            if seen <= refusing {
                match refusal {
                    Refusal::GoAway => peer.go_away(0),
                    Refusal::Refused => {
                        peer.reset(stream, REFUSED_STREAM);
                        stream = peer.next_request().unwrap();
                        peer.reset(stream, REFUSED_STREAM);
                        assert!(peer.next_request().is_none(), "a call is repeated once");
                        return seen + 1;
                    }
                }
            } else {
                peer.reply(stream, &5_u64.to_be_bytes());
            }
            peers.push(peer);
        }
        for mut peer in peers {
            assert!(peer.next_request().is_none(), "a call is repeated once");
        }
        seen
    })
}

#[test]
fn a_call_that_was_not_processed_is_repeated_exactly_once() {
    for refusal in [Refusal::GoAway, Refusal::Refused] {
        for refusing in [1, 2] {
            for kind in 0..2 {
                let (endpoint, server) = refusing_server(refusal, refusing);
                let [first, second] = calls_of_both(&endpoint);
                let (name, call) = if kind == 0 { first } else { second };
                let replied = call();
                match refusing {
                    1 => assert_eq!(replied.unwrap(), 5, "{name}, {refusal:?}"),
                    _ => assert_eq!(replied.unwrap_err().code(), Code::Unavailable, "{name}, {refusal:?}"),
                }
                assert_eq!(server.join().unwrap(), 2, "{name}, {refusal:?}");
            }
        }
    }
}

#[test]
fn a_call_in_flight_is_not_repeated_when_its_connection_is_lost() {
    for kind in 0..2 {
        let (endpoint, server) = raw_server(|listener| {
            let mut peer = RawPeer::accept(&listener, &[]);
            peer.next_request().unwrap();
            drop(peer);
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let [first, second] = calls_of_both(&endpoint);
        let (name, call) = if kind == 0 { first } else { second };
        let status = call().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{name}: {status}");
        assert!(status.message().contains(&endpoint), "{name}: {status}");
        assert!(server.join().unwrap().accept().is_err(), "{name}: no other connection was made");
    }
}

#[test]
fn a_connection_that_goes_away_keeps_its_calls_and_gets_no_new_ones() {
    let (endpoint, server) = raw_server(|listener| {
        let mut old = RawPeer::accept(&listener, &[]);
        let stream = old.next_request().unwrap();
        old.begin(stream);
        old.go_away(stream);
        let mut new = RawPeer::accept(&listener, &[]);
        let other = new.next_request().unwrap();
        new.reply(other, &7_u64.to_be_bytes());
        // Until here the old call has waited.
        old.message(stream, &5_u64.to_be_bytes());
        old.send(common::raw::HEADERS, 5, stream, b"\x00\x0bgrpc-status\x010");
        // The client ends it with its last call. It may have begun the other one here before it read GOAWAY.
        while old.next().is_some() {}
        assert!(new.next_request().is_none());
    });
    block_on(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        let mut old: Streaming<Raw> =
            channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1))).await.unwrap().into_inner();
        assert_eq!(echo(&channel, 7).await.unwrap(), 7);
        assert_eq!(old.message().await.unwrap().map(|reply| value(&reply)), Some(5));
        assert!(old.message().await.unwrap().is_none());
    });
    server.join().unwrap();
}

/// Sees `calls` calls, each of which must end with RST_STREAM(CANCEL) and without END_STREAM.
fn server_of_abandoned_calls(calls: usize) -> (String, thread::JoinHandle<()>) {
    raw_server(move |listener| {
        let mut peer = RawPeer::accept(&listener, &[]);
        for _ in 0..calls {
            let stream = peer.next_request().unwrap();
            peer.begin(stream);
            let reset = loop {
                let frame = peer.next().unwrap();
                assert_eq!((frame.stream, frame.flags & common::raw::END_STREAM), (stream, 0), "{frame:?}");
                if frame.kind == common::raw::RST_STREAM {
                    break frame.payload;
                }
            };
            assert_eq!(reset, CANCEL.to_be_bytes());
        }
    })
}

#[test]
fn an_abandoned_call_is_cancelled_and_never_half_closed() {
    let (endpoint, server) = server_of_abandoned_calls(3);
    block_on(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).await.unwrap();
        upload.send(&number(1)).await.unwrap();
        drop(upload);
        let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        call.requests.send(&number(1)).await.unwrap();
        drop(call.replies);
        assert_eq!(call.requests.send(&number(1)).await.unwrap_err().code(), Code::Cancelled);
        let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        call.requests.send(&number(1)).await.unwrap();
        drop(call.requests);
        assert_eq!(call.replies.message().await.unwrap_err().code(), Code::Cancelled);
        server.join().unwrap();
    });

    let (endpoint, server) = server_of_abandoned_calls(2);
    let mut channel = blocking::Channel::connect(endpoint).unwrap();
    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).unwrap();
    upload.send(&number(1)).unwrap();
    drop(upload);
    let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).unwrap();
    call.send(&number(1)).unwrap();
    drop(call);
    server.join().unwrap();
}

#[test]
fn calls_queue_for_a_server_that_takes_one_at_a_time() {
    let config = Http2Config { streams_max: 1, ..Http2Config::default() };
    let server = Server::builder()
        .reactors(1)
        .http2(config)
        .add_service(Demo::default())
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let channel = channel.clone();
            thread::spawn(move || {
                block_on(join_all((0..100).map(|index| {
                    let (channel, index) = (channel.clone(), thread * 100 + index);
                    async move { assert_eq!(echo(&channel, index).await.unwrap(), index) }
                })));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn deadline_and_cancellation_work_while_a_call_is_queued() {
    let (endpoint, server) = raw_server(|listener| {
        let mut peer = RawPeer::accept(&listener, &[(MAX_CONCURRENT_STREAMS, 1)]);
        let stuck = peer.next_request().unwrap();
        let reset = peer.next_reset(stuck).unwrap();
        // The two that were queued and have ended meanwhile never come; the last one does.
        let last = peer.next_request().unwrap();
        peer.reply(last, &5_u64.to_be_bytes());
        assert!(peer.next_request().is_none());
        (reset, last - stuck)
    });
    let channel = block_on(Channel::connect(&endpoint)).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stuck = {
        let channel = channel.clone();
        let stuck = block_on(channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(()))).unwrap();
        thread::spawn(move || {
            let _ = stopped.recv();
            drop(stuck);
        })
    };
    {
        let cancelled = channel.unary::<Raw, Raw>(PATH_ECHO, number(1));
        let mut cancelled = pin!(cancelled);
        assert!(cancelled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let hurried = Request::new(number(2)).with_timeout(Duration::from_millis(50));
    let status = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, hurried)).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    block_on(channel.ready()).unwrap();
    let last = {
        let channel = channel.clone();
        thread::spawn(move || block_on(echo(&channel, 5)))
    };
    thread::sleep(Duration::from_millis(20));
    drop(stop);
    assert_eq!(last.join().unwrap().unwrap(), 5);
    stuck.join().unwrap();
    drop(channel);
    assert_eq!(server.join().unwrap(), (CANCEL, 2), "a call that waits uses no stream up");
}

#[test]
fn a_limit_of_no_streams_holds_calls_until_it_is_raised() {
    let (endpoint, server) = raw_server(|listener| {
        let mut peer = RawPeer::accept(&listener, &[(MAX_CONCURRENT_STREAMS, 0)]);
        thread::sleep(Duration::from_millis(20));
        peer.settings(&[(MAX_CONCURRENT_STREAMS, 10)]);
        for _ in 0..3 {
            let stream = peer.next_request().unwrap();
            peer.reply(stream, &5_u64.to_be_bytes());
        }
        assert!(peer.next_request().is_none());
    });
    {
        let channel = block_on(Channel::connect(&endpoint)).unwrap();
        block_on(join_all((0..3).map(|_| async { assert_eq!(echo(&channel, 5).await.unwrap(), 5) })));
    }
    server.join().unwrap();
}

#[test]
fn a_server_that_ends_each_connection_is_not_dialled_for_ever() {
    let (endpoint, server) = raw_server(|listener| {
        let mut connections = 0;
        // The last one is made by the test itself, to end this.
        while let Ok((mut stream, _)) = listener.accept() {
            use std::io::{Read, Write};
            let mut preface = [0; 24];
            if stream.read_exact(&mut preface).is_err() {
                return connections;
            }
            connections += 1;
            // SETTINGS with MAX_CONCURRENT_STREAMS 0, so that calls wait.
            stream.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]).unwrap();
            let _ = stream.read(&mut [0; 1_024]);
        }
        connections
    });
    let channel = Channel::builder(&endpoint).build().unwrap();
    let status = block_on(echo(&channel, 5)).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    drop(std::net::TcpStream::connect(endpoint.trim_start_matches("http://")).unwrap());
    let connections = server.join().unwrap();
    assert!(connections < 100, "{connections} connections");
}

#[test]
fn the_deadline_holds_while_the_channel_connects() {
    // Connections wait in the listener's queue, and nobody answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let channel = Channel::builder(&endpoint).build().unwrap();
    let started = Instant::now();
    block_on(join_all((1..=50).map(|index| {
        let channel = channel.clone();
        async move {
            let hurried = Request::new(number(1)).with_timeout(Duration::from_millis(index));
            let status = channel.unary::<Raw, Raw>(PATH_ECHO, hurried).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            let mut upload = channel
                .client_streaming::<Raw, Raw>(
                    PATH_SUM,
                    Request::new(()).with_timeout(Duration::from_millis(index)),
                )
                .await
                .unwrap();
            let status = upload.send(&number(1)).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
    })));
    assert!(started.elapsed() < LONG / 2);
    drop(listener);
}

#[test]
fn a_failure_to_connect_names_the_endpoint_once() {
    let endpoint = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let connected = block_on(Channel::connect(&endpoint)).unwrap_err().to_string();
    let called = block_on(echo(&Channel::builder(&endpoint).build().unwrap(), 1)).unwrap_err();
    let blocked = blocking::Channel::connect(&endpoint).unwrap_err().to_string();
    for text in [connected.as_str(), called.message(), blocked.as_str()] {
        assert_eq!(text.matches(&endpoint).count(), 1, "{text}");
    }
}

#[test]
fn too_many_calls_that_wait_are_refused_by_the_name_of_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let channel = Channel::builder(&endpoint).waiting_calls_max(10).build().unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    block_on(join_all((0..15).map(|_| {
        let (channel, refused) = (channel.clone(), refused.clone());
        async move {
            let hurried = Request::new(number(1)).with_timeout(Duration::from_millis(500));
            let status = channel.unary::<Raw, Raw>(PATH_ECHO, hurried).await.unwrap_err();
            if status.code() == Code::ResourceExhausted {
                assert!(status.message().contains("waiting_calls_max"), "{status}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    })));
    assert_eq!(refused.load(Ordering::Relaxed), 5);
    drop(listener);
}

#[test]
fn many_callers_survive_restarts_of_their_server() {
    let mut server = serve();
    let address = server.local_addr().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (channel, stop) = (channel.clone(), stop.clone());
            thread::spawn(move || {
                let mut replied = 0;
                while !stop.load(Ordering::Relaxed) {
                    block_on(join_all((0..20).map(|index| {
                        let channel = channel.clone();
                        async move {
                            match echo(&channel, index).await {
                                Ok(echoed) => assert_eq!(echoed, index),
                                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
                            }
                        }
                    })));
                    replied += 1;
                }
                replied
            })
        })
        .collect();
    for turn in 0..5 {
        thread::sleep(Duration::from_millis(20));
        server.shutdown(if turn % 2 == 0 { Duration::ZERO } else { LONG }).unwrap();
        server = Server::builder()
            .reactors(2)
            .add_service(Demo::default())
            .bind(address)
            .unwrap()
            .spawn()
            .unwrap();
    }
    // A call may still join an attempt to connect that began before the server was back.
    common::eventually("the channel comes back", || {
        block_on(echo(&channel, 5)).is_ok_and(|echoed| echoed == 5)
    });
    stop.store(true, Ordering::Relaxed);
    assert!(callers.into_iter().all(|caller| caller.join().unwrap() > 0));
    drop(server);
}

#[test]
fn a_channel_serves_several_reactors_and_threads_at_once() {
    let server = serve();
    let home = ClientReactor::start().unwrap();
    let channel = Channel::builder(server.endpoint()).reactor(&home).build().unwrap();
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let channel = channel.clone();
            thread::spawn(move || {
                let calls = async {
                    for index in 0..50 {
                        assert_eq!(echo(&channel, index).await.unwrap(), index);
                    }
                };
                match thread % 2 {
                    0 => block_on(calls),
                    _ => LocalReactor::new().unwrap().block_on(calls),
                }
            })
        })
        .collect();
    // The channels keep the reactor that the user has let go.
    drop(home);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(block_on(echo(&channel, 5)).unwrap(), 5);
}

#[test]
fn a_future_may_move_between_threads_and_executors_while_it_waits() {
    let server = serve();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    for index in 0..50 {
        let channel = channel.clone();
        let mut call = Box::pin(async move { echo(&channel, index).await });
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(replied) => assert_eq!(replied.unwrap(), index),
            // The waker that it was polled with wakes nobody; the next one counts.
            Poll::Pending => {
                let replied = thread::spawn(move || block_on(call)).join().unwrap();
                assert_eq!(replied.unwrap(), index);
            }
        }
    }
}

#[test]
fn a_path_that_is_none_is_refused_and_the_channel_goes_on() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for path in ["", "demo.Demo/Echo", "/demo.Demo/Echo now", "/demo.Demo/Echo\r\n", "/demo.Demo/Échö"]
        {
            let status = channel.unary::<Raw, Raw>(path, bounded(number(1))).await.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{path:?}: {status}");
        }
        assert_eq!(echo(&channel, 5).await.unwrap(), 5);
    });
}
