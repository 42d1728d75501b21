//! What is in use goes back to what it was.

mod common;

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, block_on, eventually, number, serve, value};
use fulmar::{Channel, ClientReactor, Counts, LocalReactor, Raw, Request, Response, Server, blocking};

fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(Duration::from_secs(20))
}

/// A request whose echo comes with metadata.
fn with_metadata() -> Request<Raw> {
    let mut request = bounded(number(7));
    request.metadata_mut().insert("x-echo", "7").unwrap();
    request
}

#[test]
fn a_local_reactor_counts_what_calls_have_in_use_and_nothing_after_them() {
    let mut reactor = LocalReactor::new().unwrap();
    let server = Server::builder().add_service(Demo::default()).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let _handle = reactor.serve(server).unwrap();
    let channel = Channel::builder(endpoint).build().unwrap();
    let mut hanging = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, with_metadata()));
    let mut chat = None;
    let mut echoed: Option<Response<Raw>> = None;
    reactor.block_on(async {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(hanging.as_mut().poll(&mut cx).is_pending());
        let mut call = channel.bidi::<Raw, Raw>(PATH_CHAT, bounded(())).await.unwrap();
        call.requests.send(&number(1)).await.unwrap();
        assert_eq!(value(&call.replies.message().await.unwrap().unwrap()), 2);
        echoed = Some(channel.unary(PATH_ECHO, with_metadata()).await.unwrap());
        chat = Some(call);
    });
    let busy = reactor.counts();
    assert_eq!((busy.connections, busy.streams, busy.handlers, busy.client_calls), (2, 4, 2, 2), "{busy:?}");
    assert_eq!((busy.deadlines, busy.cells, busy.metadata_maps), (4, 1, 2), "{busy:?}");
    assert_eq!((channel.counts().cells, channel.counts().metadata_maps), (2, 1));

    drop((hanging, chat, echoed));
    let mut polls = 0;
    let rest = loop {
        // Long enough for frames to get to the other end, which is on this thread.
        reactor.block_on(async { channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.map(drop) }).unwrap();
        let counts = reactor.counts();
        polls += 1;
        if counts.streams + counts.held_bytes == 0 || polls == 100 {
            break counts;
        }
    };
    let at_rest = Counts::default();
    assert_eq!(rest.by_name()[1..], at_rest.by_name()[1..]);
    assert_eq!(rest.connections, 2);
    assert_eq!(channel.counts(), Default::default());
}

#[test]
fn servers_and_client_reactors_are_counted_from_other_threads() {
    let server = serve();
    let reactor = ClientReactor::start().unwrap();
    let channel = block_on(Channel::builder(server.endpoint()).reactor(&reactor).connect()).unwrap();
    let mut hanging = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, bounded(number(1))));
    assert!(hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    eventually("the handler runs", || server.handle().counts().unwrap().handlers == 1);
    let counts = reactor.counts().unwrap();
    assert_eq!((counts.connections, counts.client_calls, counts.streams), (1, 1, 1), "{counts:?}");
    drop(hanging);
    eventually("no handler runs", || server.handle().counts().unwrap().handlers == 0);
    assert_eq!(reactor.counts().unwrap().client_calls, 0);
    let mut local = LocalReactor::new().unwrap();
    assert_eq!(local.block_on(async { server.handle().counts() }), None, "it would have to wait");
}

#[test]
fn a_blocking_channel_counts_its_calls() {
    let server = serve();
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    let at_rest = channel.counts();
    assert_eq!((at_rest.connections, at_rest.streams, at_rest.cells), (1, 0, 0));
    let mut numbers = channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1_000_000))).unwrap();
    assert!(numbers.get_mut().message().unwrap().is_some());
    // Leaked on purpose: what it holds stays in use.
    std::mem::forget(numbers);
    let busy = channel.counts();
    assert_eq!((busy.streams, busy.client_calls, busy.cells), (1, 1, 1), "{busy:?}");

    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    drop(channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(1_000_000))).unwrap());
    let _: Response<Raw> = channel.unary(PATH_ECHO, bounded(number(1))).unwrap();
    assert_eq!(channel.counts(), at_rest);
}

#[test]
fn calls_that_wait_for_their_connection_are_counted_until_they_are_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let channel = Channel::builder(format!("http://{}", listener.local_addr().unwrap())).build().unwrap();
    let mut reactor = LocalReactor::new().unwrap();
    let mut call = Box::pin(channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))));
    reactor.block_on(async {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        // The letter with the call is opened before this is polled again.
        let mut waited = false;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    });
    assert_eq!(reactor.counts().waiting_calls, 1);
    drop(call);
    assert_eq!(reactor.counts().waiting_calls, 0);
}

/// Polls a call so that it begins.
fn begin(call: &mut (impl Future + Unpin)) {
    assert!(std::pin::Pin::new(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// A call that waits until the end of the hour.
fn patient<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(Duration::from_secs(3_600))
}

#[test]
fn calls_given_up_while_they_wait_for_a_stream_leave_their_queue_although_nothing_else_happens() {
    let one_at_a_time = fulmar::Http2Config { streams_max: 1, ..fulmar::Http2Config::default() };
    let server = Server::builder()
        .reactors(1)
        .add_service(Demo::default())
        .http2(one_at_a_time)
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let reactor = ClientReactor::start().unwrap();
    let channel = block_on(Channel::builder(server.endpoint()).reactor(&reactor).connect()).unwrap();
    let mut hanging = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, patient(number(1))));
    begin(&mut hanging);
    eventually("the handler runs", || server.handle().counts().unwrap().handlers == 1);
    let mut waiting: Vec<_> =
        (0..10).map(|_| Box::pin(channel.unary::<Raw, Raw>(PATH_ECHO, patient(number(1))))).collect();
    waiting.iter_mut().for_each(begin);
    eventually("they wait", || reactor.counts().unwrap().waiting_calls == 10);
    assert_eq!(channel.counts().cells, 11);
    // Those in the middle first.
    waiting.drain(3..7);
    eventually("four have left", || channel.counts().cells == 7);
    waiting.clear();
    eventually("all have left", || channel.counts().cells == 1);
    assert_eq!(reactor.counts().unwrap().waiting_calls, 0);

    // Those that stay are served in the end.
    let mut patiently = Box::pin(channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(5))));
    begin(&mut patiently);
    drop(hanging);
    assert_eq!(value(block_on(patiently).unwrap().get_ref()), 5);
}

#[test]
fn calls_given_up_while_they_wait_for_a_connection_leave_their_queue_and_no_timer() {
    // Its backlog takes the connection, and nobody says anything on it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reactor = ClientReactor::start().unwrap();
    // A name that is not resolved before the test is over, and a server that never speaks.
    let (over, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let unresolved = Channel::builder("http://somewhere.invalid:1").resolver(move |_: &str, _: u16| {
        let _over = wait.lock().unwrap().recv();
        Err(fulmar::Status::unavailable("nobody has heard of it"))
    });
    let silent = Channel::builder(format!("http://{}", listener.local_addr().unwrap()));
    for builder in [unresolved, silent] {
        let builder = builder.connect_timeout(Duration::from_secs(3_600));
        let channel = builder.reactor(&reactor).build().unwrap();
        let mut waiting: Vec<_> =
            (0..10).map(|_| Box::pin(channel.unary::<Raw, Raw>(PATH_ECHO, patient(number(1))))).collect();
        waiting.iter_mut().for_each(begin);
        eventually("they wait", || reactor.counts().unwrap().waiting_calls == 10);
        waiting.clear();
        eventually("all have left", || channel.counts().cells == 0);
        assert_eq!(reactor.counts().unwrap().waiting_calls, 0);
    }
    drop(over);
}
