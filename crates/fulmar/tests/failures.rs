//! What bad input, bad peers and bad handlers get: an error that says what and where, never a panic, a hang or a lost connection.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, PATH_PANIC, PATH_SUM, block_on, eventually, number,
    serve, serve_demo, value,
};
use fulmar::{
    Channel, Code, LocalReactor, Raw, Request, Response, Router, Server, Service, Status, Streaming, blocking,
};

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

async fn echo(channel: &Channel, message: Raw) -> Result<Raw, Status> {
    channel.unary::<Raw, Raw>(PATH_ECHO, message).await.map(Response::into_inner)
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::builder().add_service(Demo::default()).bind(address).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::AddrInUse));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn two_services_of_one_name_are_an_error_that_names_them() {
    let error = Server::builder()
        .add_service(Demo::default())
        .add_service(Demo::default())
        .bind("127.0.0.1:0")
        .unwrap_err();
    assert!(error.to_string().contains("demo.Demo"), "{error}");
}

#[test]
fn an_unknown_scheme_is_an_error_of_both_clients() {
    let refused = block_on(Channel::connect("ftp://127.0.0.1:1")).unwrap_err();
    assert!(refused.to_string().contains("\"ftp\""), "{refused}");
    let refused = blocking::Channel::connect("ftp://127.0.0.1:1").unwrap_err();
    assert!(refused.to_string().contains("\"ftp\""), "{refused}");
}

/// An address that refuses connections.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn an_unreachable_peer_is_unavailable_with_endpoint_and_reason() {
    let endpoint = format!("http://{}", closed_port());
    for text in [
        block_on(Channel::connect(&endpoint)).unwrap_err().to_string(),
        blocking::Channel::connect(&endpoint).unwrap_err().to_string(),
        block_on(async {
            let channel = Channel::builder(&endpoint).build().unwrap();
            let status = echo(&channel, number(1)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            status.message().to_owned()
        }),
    ] {
        assert!(text.contains(&endpoint) && text.contains("refused"), "{text}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_an_error_that_says_so() {
    let error = block_on(Channel::connect("http://no-such-host.invalid:1")).unwrap_err();
    assert!(error.to_string().contains("resolved"), "{error}");
    let error = blocking::Channel::connect("http://no-such-host.invalid:1").unwrap_err();
    assert!(error.to_string().contains("resolved"), "{error}");
}

/// A TCP server that answers each connection with `answer` and keeps it until the other side ends it.
fn foreign_server(answer: &'static [u8], connections: usize) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let _ = stream.write_all(answer);
            let mut scratch = [0; 1024];
            while matches!(stream.read(&mut scratch), Ok(read) if read > 0) {}
        }
    });
    (endpoint, thread)
}

#[test]
fn a_peer_that_speaks_http_1_is_found_out_by_both_clients() {
    let (endpoint, thread) = foreign_server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", 2);
    for error in [
        block_on(Channel::connect(&endpoint)).unwrap_err(),
        blocking::Channel::connect(&endpoint).unwrap_err(),
    ] {
        assert!(error.to_string().contains("HTTP"), "{error}");
    }
    thread.join().unwrap();
}

#[test]
fn a_peer_that_says_nothing_meets_the_connect_timeout() {
    let (endpoint, thread) = foreign_server(b"", 2);
    let settings = || Channel::builder(&endpoint).connect_timeout(Duration::from_millis(100));
    let started = Instant::now();
    for error in
        [block_on(settings().connect()).unwrap_err(), blocking::Channel::with(settings()).unwrap_err()]
    {
        assert!(error.to_string().contains("SETTINGS"), "{error}");
    }
    assert!(started.elapsed() < LONG);
    thread.join().unwrap();
}

#[test]
fn messages_over_a_limit_fail_their_call_only() {
    let server = Server::builder()
        .reactors(1)
        .receive_message_bytes_max(1_000)
        .add_service(Demo::default())
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel =
            Channel::builder(server.endpoint()).send_message_bytes_max(2_000).connect().await.unwrap();
        assert_eq!(
            echo(&channel, Raw::from(vec![1; 1_000])).await.unwrap().as_ref().len(),
            1_000,
            "at the limit"
        );

        let status = echo(&channel, Raw::from(vec![1; 1_001])).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("1001") && status.message().contains("1000"), "{status}");

        let status = echo(&channel, Raw::from(vec![1; 2_001])).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("2001") && status.message().contains("2000"), "{status}");

        assert_eq!(value(&echo(&channel, number(5)).await.unwrap()), 5, "the connection is still there");
    });
    let small = Channel::builder(server.endpoint()).receive_message_bytes_max(10);
    let status =
        block_on(async { echo(&small.connect().await.unwrap(), Raw::from(vec![1; 11])).await }).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[test]
fn a_message_that_cannot_be_decoded_is_internal_and_the_connection_survives() {
    struct Strict(Arc<()>);
    impl Service for Strict {
        fn name(&self) -> &'static str {
            "demo.Strict"
        }
        fn register(&self, router: &mut Router) {
            router.unary("/demo.Strict/Call", &self.0, |_, request: Request<String>| async move {
                Ok::<_, Status>(Response::new(request.into_inner()))
            });
        }
    }
    let server = Server::builder()
        .reactors(1)
        .add_service(Strict(Arc::default()))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        // Field 1 with a length of 100, and nothing behind it.
        let broken =
            channel.unary::<Raw, Raw>("/demo.Strict/Call", Raw::from(vec![0x0a, 100])).await.unwrap_err();
        assert_eq!(broken.code(), Code::Internal);
        assert!(broken.message().contains("decoded"), "{broken}");
        let good = channel.unary::<String, String>("/demo.Strict/Call", "fine".to_owned()).await.unwrap();
        assert_eq!(good.get_ref(), "fine");
        let unreadable =
            channel.unary::<String, u64>("/demo.Strict/Call", "fine".to_owned()).await.unwrap_err();
        assert_eq!(unreadable.code(), Code::Internal, "{unreadable}");
    });
}

#[test]
fn unknown_methods_and_wrong_numbers_of_messages_are_unimplemented() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for path in ["/demo.Demo/NoSuchMethod", "/no.Such/Service", "/demo.demo/echo"] {
            let status = channel.unary::<Raw, Raw>(path, number(1)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{status}");
        }
        // A method with a stream of replies, called as if it had one.
        let status = channel.unary::<Raw, Raw>(PATH_COUNT, number(2)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        // A method with one request, called with none and with two.
        for requests in [0, 2] {
            let mut upload = channel.client_streaming::<Raw, Raw>(PATH_ECHO, ()).await.unwrap();
            for _ in 0..requests {
                let _ = upload.send(&number(1)).await;
            }
            assert_eq!(upload.finish().await.unwrap_err().code(), Code::Unimplemented);
        }
        assert_eq!(value(&echo(&channel, number(5)).await.unwrap()), 5);
    });
}

#[test]
fn a_handler_that_panics_gives_unknown_and_its_connection_survives() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for _ in 0..3 {
            let status = channel.unary::<Raw, Raw>(PATH_PANIC, number(1)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unknown);
            assert!(status.message().contains("has had enough"), "{status}");
            assert_eq!(value(&echo(&channel, number(5)).await.unwrap()), 5);
        }
    });
}

#[test]
fn a_deadline_ends_the_call_at_both_ends() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    let timeout = Duration::from_millis(50);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let hang = Request::new(number(1)).with_timeout(timeout);
        let status = channel.unary::<Raw, Raw>(PATH_HANG, hang).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(value(&echo(&channel, number(5)).await.unwrap()), 5);
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let hang = Request::new(number(1)).with_timeout(timeout);
    let status = channel.unary::<Raw, Raw>(PATH_HANG, hang).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let reply: Response<Raw> = channel.unary(PATH_ECHO, number(5)).unwrap();
    assert_eq!(value(reply.get_ref()), 5);
    eventually("both handlers are dropped", || seen.dropped.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_call_that_is_dropped_cancels_its_handler() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    {
        let mut hang = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, number(1)));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(hang.as_mut().poll(&mut cx).is_pending());
        // The call is at its handler before it is dropped, since calls of one channel leave in order.
        assert_eq!(value(&block_on(echo(&channel, number(5))).unwrap()), 5);
    }
    eventually("the handler is dropped", || seen.dropped.load(Ordering::SeqCst) == 1);
    assert_eq!(value(&block_on(echo(&channel, number(5))).unwrap()), 5);
}

#[test]
fn an_upload_that_is_dropped_is_cancelled_and_never_looks_whole() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap();
        upload.send(&number(1)).await.unwrap();
        drop(upload);
        let chat = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
        drop(chat.requests);
        let mut replies = chat.replies;
        // The call is cancelled here, so no status comes from the server.
        drop(replies.message());
        drop(replies);
        assert_eq!(value(&echo(&channel, number(5)).await.unwrap()), 5);
    });
}

#[test]
fn a_reader_that_stops_makes_its_sender_wait_and_nobody_else() {
    let demo = Demo::default();
    let seen = demo.seen.clone();
    let server = serve_demo(demo);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let mut count: Streaming<Raw> =
            channel.server_streaming(PATH_COUNT, number(1_000_000)).await.unwrap().into_inner();
        assert!(count.message().await.unwrap().is_some());
        // Bounded by the queue, the stream window and the output: far less than the 13 MB of the whole stream.
        for index in 0..20 {
            assert_eq!(value(&echo(&channel, number(index)).await.unwrap()), index);
        }
        let sent = seen.sent.load(Ordering::SeqCst);
        assert!(sent < 100_000, "{sent} messages were sent to a reader that does not read");
    });
}

#[test]
fn calls_after_the_servers_end_are_unavailable() {
    let server = serve();
    let endpoint = server.endpoint();
    let channel = block_on(Channel::connect(&endpoint)).unwrap();
    let mut blocked = blocking::Channel::connect(&endpoint).unwrap();
    assert_eq!(value(&block_on(echo(&channel, number(5))).unwrap()), 5);
    server.shutdown(Duration::from_secs(1)).unwrap();

    let status = block_on(echo(&channel, number(5))).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(&endpoint), "{status}");
    let status = blocked.unary::<Raw, Raw>(PATH_ECHO, number(5)).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[test]
fn a_channel_comes_back_with_its_server() {
    let server = serve();
    let address = server.local_addr().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let mut blocked = blocking::Channel::connect(server.endpoint()).unwrap();
    server.shutdown(Duration::from_secs(1)).unwrap();
    let server = Server::builder().add_service(Demo::default()).bind(address).unwrap().spawn().unwrap();
    assert_eq!(value(&block_on(echo(&channel, number(5))).unwrap()), 5);
    let reply: Response<Raw> = blocked.unary(PATH_ECHO, number(6)).unwrap();
    assert_eq!(value(reply.get_ref()), 6);
    drop(server);
}

#[test]
fn a_graceful_shutdown_lets_a_call_end_and_an_immediate_one_cuts_it_off() {
    for (grace, expected) in [(LONG, None), (Duration::ZERO, Some(Code::Unavailable))] {
        let server = serve();
        let channel = block_on(Channel::connect(server.endpoint())).unwrap();
        let mut chat = block_on(channel.bidi::<Raw, Raw>(PATH_CHAT, ())).unwrap();
        block_on(chat.requests.send(&number(1))).unwrap();
        assert!(block_on(chat.replies.message()).unwrap().is_some());
        server.handle().shutdown(grace);
        match expected {
            None => {
                block_on(chat.requests.send(&number(2))).unwrap();
                assert!(block_on(chat.replies.message()).unwrap().is_some());
                chat.requests.finish();
                assert!(block_on(chat.replies.message()).unwrap().is_none());
            }
            // Not finished: else the call could end before the server hears of its shutdown.
            Some(code) => assert_eq!(block_on(chat.replies.message()).unwrap_err().code(), code),
        }
        server.join().unwrap();
    }
}

#[test]
fn a_blocking_call_in_a_handler_is_refused() {
    struct Careless(Arc<String>);
    impl Service for Careless {
        fn name(&self) -> &'static str {
            "demo.Careless"
        }
        fn register(&self, router: &mut Router) {
            router.unary("/demo.Careless/Call", &self.0, |endpoint, _: Request<Raw>| async move {
                match blocking::Channel::connect(endpoint.as_str()) {
                    Ok(_) => Ok(Response::new(Raw::default())),
                    Err(error) => Err(Status::from(error)),
                }
            });
        }
    }
    let other = serve();
    let careless = Careless(Arc::new(other.endpoint()));
    let server = Server::builder().add_service(careless).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let status = block_on(channel.unary::<Raw, Raw>("/demo.Careless/Call", number(1))).unwrap_err();
    assert!(status.message().contains("reactor"), "{status}");
}

#[test]
fn a_handler_may_call_another_service() {
    struct Proxy(Arc<Channel>);
    impl Service for Proxy {
        fn name(&self) -> &'static str {
            "demo.Proxy"
        }
        fn register(&self, router: &mut Router) {
            router.unary("/demo.Proxy/Call", &self.0, |channel, request: Request<Raw>| async move {
                channel.unary::<Raw, Raw>(PATH_ECHO, request.into_inner()).await
            });
        }
    }
    let inner = serve();
    let proxy = Proxy(Arc::new(Channel::builder(inner.endpoint()).build().unwrap()));
    let server = Server::builder().add_service(proxy).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    for index in 0..10 {
        let reply = block_on(channel.unary::<Raw, Raw>("/demo.Proxy/Call", number(index))).unwrap();
        assert_eq!(value(reply.get_ref()), index);
    }
}

#[test]
fn in_process_channels_fail_cleanly_without_their_server() {
    let server = Server::builder().add_service(Demo::default()).without_listener().unwrap();
    let channel = server.handle().in_process();
    let status = block_on(echo(&channel, number(1))).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);

    let running = server.spawn().unwrap();
    assert_eq!(value(&block_on(echo(&channel, number(5))).unwrap()), 5);
    running.shutdown(Duration::from_secs(5)).unwrap();
    let status = block_on(echo(&channel, number(1))).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[test]
fn a_blocking_channel_may_move_to_another_thread() {
    let server = serve();
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let replied =
        thread::spawn(move || channel.unary::<Raw, Raw>(PATH_ECHO, number(5)).unwrap().into_inner());
    assert_eq!(value(&replied.join().unwrap()), 5);
}

#[test]
#[should_panic(expected = "on a reactor's thread")]
fn block_on_inside_block_on_is_refused() {
    let mut outer = LocalReactor::new().unwrap();
    outer.block_on(async { LocalReactor::new().unwrap().block_on(async {}) });
}
