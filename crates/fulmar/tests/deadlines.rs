//! Deadlines and cancellation from call to call: what a handler calls ends with the call that it handles.

mod common;

use std::future::Future;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use common::{block_on, eventually, number, serve_one, value};
use fulmar::{Channel, Code, Raw, Request, Response, RunningServer, Status, blocking};

/// Answers with the milliseconds that its call has left; 0 where there is no deadline.
const PATH_LEFT: &str = "/demo.One/Left";
/// Calls [`PATH_LEFT`] in the [`Way`] that the request names, and hands the answer on.
const PATH_RELAY: &str = "/demo.One/Relay";
/// Waits for good, or calls the next server's, which does.
const PATH_DEEP: &str = "/demo.One/Deep";

/// Long enough that a test which needs it has failed.
const LONG: Duration = Duration::from_secs(20);

/// How a handler calls another server.
#[derive(Clone, Copy)]
enum Way {
    Plainly,
    WithAShorterTimeout,
    WithALongerTimeout,
    InAFutureOfItsOwn,
    Detached,
    OnAnotherThread,
    OnAnotherThreadBound,
    OnAnotherThreadBlocking,
    Forwarded,
}

const WAYS: [Way; 9] = [
    Way::Plainly,
    Way::WithAShorterTimeout,
    Way::WithALongerTimeout,
    Way::InAFutureOfItsOwn,
    Way::Detached,
    Way::OnAnotherThread,
    Way::OnAnotherThreadBound,
    Way::OnAnotherThreadBlocking,
    Way::Forwarded,
];

fn left(request: &Request<Raw>) -> Response<Raw> {
    let left = request.time_left().map_or(0, |left| left.as_millis().max(1) as u64);
    Response::new(number(left))
}

async fn relay(channel: Channel, endpoint: String, request: Request<Raw>) -> Result<Response<Raw>, Status> {
    let question = Request::new(Raw::default());
    let ask = move |question: Request<Raw>| {
        let channel = channel.clone();
        async move { channel.unary::<Raw, Raw>(PATH_LEFT, question).await }
    };
    // Waiting for another thread stops the reactor, which is nobody else's here.
    let elsewhere = |work: Box<dyn FnOnce() -> Result<Response<Raw>, Status> + Send>| {
        std::thread::spawn(work).join().map_err(|_| Status::internal("the thread panicked"))?
    };
    match WAYS[value(request.get_ref()) as usize] {
        Way::Plainly => ask(question).await,
        Way::WithAShorterTimeout => ask(question.with_timeout(Duration::from_secs(1))).await,
        Way::WithALongerTimeout => ask(question.with_timeout(LONG * 100)).await,
        Way::InAFutureOfItsOwn => Box::pin(async move { Box::pin(ask(question)).await }).await,
        Way::Detached => ask(question.without_inherited_deadline()).await,
        Way::OnAnotherThread => elsewhere(Box::new(move || block_on(ask(question)))),
        Way::OnAnotherThreadBound => {
            let question = question.with_deadline_of(&request);
            elsewhere(Box::new(move || block_on(ask(question))))
        }
        Way::OnAnotherThreadBlocking => {
            let question = question.with_deadline_of(&request);
            elsewhere(Box::new(move || {
                let mut channel = blocking::Channel::connect(endpoint)?;
                channel.unary::<Raw, Raw>(PATH_LEFT, question)
            }))
        }
        Way::Forwarded => ask(request).await,
    }
}

/// A server that tells how much time it is given, and one that asks it.
fn relay_and_back() -> (RunningServer, RunningServer) {
    let back = serve_one(|router| {
        router.unary(PATH_LEFT, &Arc::new(()), |_, request: Request<Raw>| async move { Ok(left(&request)) });
    });
    let endpoint = back.endpoint();
    let relay = serve_one(move |router| {
        let channel = Channel::builder(&endpoint).build().unwrap();
        let to = Arc::new((channel, endpoint.clone()));
        router.unary(PATH_RELAY, &to, |to, request: Request<Raw>| relay(to.0.clone(), to.1.clone(), request));
    });
    (relay, back)
}

#[test]
fn calls_made_in_a_handler_inherit_its_deadline_and_others_where_they_are_told_to() {
    let (relay, _back) = relay_and_back();
    let left = |way: Way, timeout: Option<Duration>| {
        let mut request = Request::new(number(way as u64));
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        block_on(async {
            let channel = Channel::connect(relay.endpoint()).await.unwrap();
            value(channel.unary::<Raw, Raw>(PATH_RELAY, request).await.unwrap().get_ref())
        })
    };
    let hour = Some(Duration::from_secs(3_600));
    let within =
        |left: u64, seconds: u64| left > (seconds - 60.min(seconds)) * 1_000 && left <= seconds * 1_000;
    for way in [
        Way::Plainly,
        Way::WithALongerTimeout,
        Way::InAFutureOfItsOwn,
        Way::OnAnotherThreadBound,
        Way::OnAnotherThreadBlocking,
        Way::Forwarded,
    ] {
        let (left, seconds) =
            (left(way, hour), if matches!(way, Way::WithALongerTimeout) { 2_000 } else { 3_600 });
        assert!(within(left, seconds), "way {}: {left} ms", way as u8);
    }
    for way in [Way::Detached, Way::OnAnotherThread] {
        assert_eq!(left(way, hour), 0, "way {}", way as u8);
    }
    assert!(within(left(Way::WithAShorterTimeout, hour), 1));
    for way in [Way::Plainly, Way::OnAnotherThreadBound, Way::Forwarded] {
        assert_eq!(left(way, None), 0, "way {}: there is none to inherit", way as u8);
    }
    assert!(within(left(Way::WithAShorterTimeout, None), 1));
}

/// Three servers, of which each calls the next and the last one waits for good; with the number of handlers that run.
fn three_deep() -> ([RunningServer; 3], Arc<AtomicUsize>) {
    let running = Arc::new(AtomicUsize::new(0));
    let deep = |next: Option<String>| {
        let running = running.clone();
        serve_one(move |router| {
            let next = next.as_ref().map(|endpoint| Channel::builder(endpoint).build().unwrap());
            let state = Arc::new((next, running.clone()));
            router.unary(PATH_DEEP, &state, |state, request: Request<Raw>| async move {
                let (next, running) = &*state;
                running.fetch_add(1, Ordering::SeqCst);
                let _running = CountDown(running);
                match next {
                    Some(next) => next.unary::<Raw, Raw>(PATH_DEEP, request.into_inner()).await,
                    None => std::future::pending().await,
                }
            });
        })
    };
    let last = deep(None);
    let middle = deep(Some(last.endpoint()));
    let first = deep(Some(middle.endpoint()));
    ([first, middle, last], running)
}

struct CountDown<'c>(&'c AtomicUsize);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_cancelled_call_takes_the_calls_behind_it_along_over_three_hops() {
    let (servers, running) = three_deep();
    let channel = block_on(Channel::connect(servers[0].endpoint())).unwrap();
    let mut call = Box::pin(channel.unary::<Raw, Raw>(PATH_DEEP, number(1)));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    eventually("all three handlers run", || running.load(Ordering::SeqCst) == 3);
    drop(call);
    eventually("no handler runs", || running.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_deadline_ends_the_calls_behind_it_over_three_hops() {
    let (servers, running) = three_deep();
    let channel = block_on(Channel::connect(servers[0].endpoint())).unwrap();
    let request = Request::new(number(1)).with_timeout(Duration::from_millis(200));
    let status = block_on(channel.unary::<Raw, Raw>(PATH_DEEP, request)).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    eventually("no handler runs", || running.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_connection_that_is_lost_takes_the_calls_behind_it_along() {
    let (servers, running) = three_deep();
    let mut channel = blocking::Channel::connect(servers[0].endpoint()).unwrap();
    let request = Request::new(()).with_timeout(LONG);
    let mut call = channel.bidi::<Raw, Raw>(PATH_DEEP, request).unwrap();
    call.send(&number(1)).unwrap();
    call.finish_sending();
    eventually("all three handlers run", || running.load(Ordering::SeqCst) == 3);
    drop(call);
    drop(channel);
    eventually("no handler runs", || running.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_call_without_any_time_fails_at_once_and_makes_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let channel = Channel::builder(&endpoint).timeout(Duration::ZERO).build().unwrap();
    let none = || Request::new(Raw::default()).with_timeout(Duration::ZERO);
    let check = |status: Status| {
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(status.message().contains("before the call was made"), "{status:?}");
    };
    let mut cx = Context::from_waker(Waker::noop());
    for request in [none(), Request::new(Raw::default())] {
        let mut call = pin!(channel.unary::<Raw, Raw>(PATH_LEFT, request));
        let std::task::Poll::Ready(result) = call.as_mut().poll(&mut cx) else { panic!("it fails at once") };
        check(result.unwrap_err());
    }
    check(block_on(channel.server_streaming::<Raw, Raw>(PATH_LEFT, none())).map(drop).unwrap_err());
    check(block_on(channel.client_streaming::<Raw, Raw>(PATH_LEFT, none().map(drop))).map(drop).unwrap_err());
    check(block_on(channel.bidi::<Raw, Raw>(PATH_LEFT, none().map(drop))).map(drop).unwrap_err());
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);

    let server = relay_and_back().1;
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    check(channel.unary::<Raw, Raw>(PATH_LEFT, none()).map(drop).unwrap_err());
    let reply = channel.unary::<Raw, Raw>(PATH_LEFT, Raw::default()).unwrap();
    assert_eq!(value(reply.get_ref()), 0, "and the channel is as good as before");
}

#[test]
fn a_request_is_bound_to_the_shorter_of_two_timeouts() {
    let second = Duration::from_secs(1);
    let mut request = Request::new(1).with_timeout(3 * second);
    request.set_deadline_of(&Request::new(2).with_timeout(2 * second));
    assert_eq!(request.time_left(), Some(2 * second));
    request.set_deadline_of(&Request::new(2));
    assert_eq!(request.time_left(), Some(2 * second), "a request without a deadline binds nobody");
    assert_eq!(Request::new(1).time_left(), None);
}

/// A call that is under way.
type Begun = std::pin::Pin<Box<dyn Future<Output = Result<Response<Raw>, Status>> + Send>>;

/// Begins a call when it is dropped, and leaves it for somebody else to wait for.
struct CallsOnTheWayOut(Channel, Arc<std::sync::Mutex<Option<Begun>>>);

impl Drop for CallsOnTheWayOut {
    fn drop(&mut self) {
        let channel = self.0.clone();
        let mut call: Begun =
            Box::pin(async move { channel.unary::<Raw, Raw>(PATH_LEFT, Request::new(Raw::default())).await });
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        *self.1.lock().unwrap() = Some(call);
    }
}

#[test]
fn neither_a_panic_nor_a_drop_leaves_the_deadline_of_a_handler_to_others() {
    let back = serve_one(|router| {
        router.unary(PATH_LEFT, &Arc::new(()), |_, request: Request<Raw>| async move { Ok(left(&request)) });
    });
    let to = Channel::builder(back.endpoint()).build().unwrap();
    let begun = Arc::new(std::sync::Mutex::new(None));
    let state = Arc::new((to, begun.clone()));
    let server = serve_one(move |router| {
        router.unary("/demo.One/Panic", &state, |state, _: Request<Raw>| async move {
            let answer: Response<Raw> = state.0.unary(PATH_LEFT, Request::new(Raw::default())).await?;
            // Without a word on standard error.
            std::panic::resume_unwind(Box::new(format!("had {}", value(answer.get_ref()))));
            #[expect(unreachable_code, reason = "it says what the handler would answer")]
            Ok(answer)
        });
        router.unary("/demo.One/Hang", &state, |state, _: Request<Raw>| async move {
            let _calls = CallsOnTheWayOut(state.0.clone(), state.1.clone());
            std::future::pending::<Result<Response<Raw>, Status>>().await
        });
        router.unary(PATH_RELAY, &state, |state, _: Request<Raw>| async move {
            state.0.unary::<Raw, Raw>(PATH_LEFT, Request::new(Raw::default())).await
        });
    });
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    let call = |path: &str, timeout: Option<Duration>| {
        let mut request = Request::new(Raw::default());
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        block_on(channel.unary::<Raw, Raw>(path, request))
    };
    let left_without_deadline = || value(call(PATH_RELAY, None).unwrap().get_ref());
    assert_eq!(left_without_deadline(), 0);
    for _ in 0..3 {
        let status = call("/demo.One/Panic", Some(LONG)).unwrap_err();
        assert_eq!(status.code(), Code::Unknown);
        assert!(!status.message().ends_with("had 0"), "it was under a deadline: {status}");
        assert_eq!(left_without_deadline(), 0, "the next one is not");
    }
    assert_eq!(
        call("/demo.One/Hang", Some(Duration::from_millis(50))).unwrap_err().code(),
        Code::DeadlineExceeded
    );
    eventually("the handler is dropped", || begun.lock().unwrap().is_some());
    let begun = begun.lock().unwrap().take().unwrap();
    assert_eq!(value(block_on(begun).unwrap().get_ref()), 0, "what a handler does on its way out has time");
    assert_eq!(left_without_deadline(), 0);
}
