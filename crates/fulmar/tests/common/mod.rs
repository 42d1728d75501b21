//! A service for tests, and just enough of an executor.
#![allow(dead_code, unreachable_pub)]

pub mod encodings;
pub mod proxy;
pub mod raw;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use fulmar::{
    Channel, Code, Duplex, Raw, Replies, Request, Response, Router, RunningServer, Server, Service, Status,
    Streaming, Upload,
};

pub const PATH_ECHO: &str = "/demo.Demo/Echo";
pub const PATH_FAIL: &str = "/demo.Demo/Fail";
pub const PATH_PANIC: &str = "/demo.Demo/Panic";
pub const PATH_HANG: &str = "/demo.Demo/Hang";
pub const PATH_COUNT: &str = "/demo.Demo/Count";
pub const PATH_SUM: &str = "/demo.Demo/Sum";
pub const PATH_CHAT: &str = "/demo.Demo/Chat";

/// Answers in every kind of call.
#[derive(Default)]
pub struct Demo {
    pub seen: Arc<Seen>,
}

/// What the handlers have seen.
#[derive(Default)]
pub struct Seen {
    /// Futures of `Hang` that were dropped before their end.
    pub dropped: AtomicUsize,
    /// Messages that `Count` has sent.
    pub sent: AtomicUsize,
}

/// Counts when it is dropped.
struct CountDrop(Arc<Seen>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Service for Demo {
    fn name(&self) -> &'static str {
        "demo.Demo"
    }

    fn register(&self, router: &mut Router) {
        router.unary(PATH_ECHO, &self.seen, |_, request| async move { echo(request) });
        router.unary(PATH_FAIL, &self.seen, |_, request: Request<Raw>| async move {
            let text = format!("\t{} ist zu groß: ☺ 🐦\r\n", value(request.get_ref()));
            Err::<Response<Raw>, _>(Status::new(Code::OutOfRange, text))
        });
        router.unary(PATH_PANIC, &self.seen, |_, _: Request<Raw>| async move {
            if true {
                panic!("the handler has had enough");
            }
            Ok::<Response<Raw>, Status>(Response::default())
        });
        router.unary(PATH_HANG, &self.seen, |seen, request: Request<Raw>| async move {
            let _count = CountDrop(seen);
            std::future::pending::<()>().await;
            echo(request)
        });
        router.server_streaming(PATH_COUNT, &self.seen, count);
        router.client_streaming(PATH_SUM, &self.seen, |_, mut numbers: Request<Streaming<Raw>>| async move {
            let mut sum = 0;
            while let Some(addend) = numbers.message().await? {
                sum += value(&addend);
            }
            Ok(Response::new(number(sum)))
        });
        router.bidi(PATH_CHAT, &self.seen, chat);
    }
}

fn echo(request: Request<Raw>) -> Result<Response<Raw>, Status> {
    let mut echoed = Vec::new();
    if let Some(text) = request.metadata().get("x-echo") {
        echoed.push(text.to_owned());
    }
    let binary = request.metadata().get_bin("x-echo-bin").map(|bytes| bytes.to_vec());
    let mut response = Response::new(request.into_inner());
    for text in echoed {
        response
            .metadata_mut()
            .insert("x-echo", &text)
            .map_err(|error| Status::internal(error.to_string()))?;
    }
    if let Some(bytes) = binary {
        response
            .trailers_mut()
            .insert_bin("x-echo-bin", &bytes)
            .map_err(|error| Status::internal(error.to_string()))?;
    }
    Ok(response)
}

async fn count(seen: Arc<Seen>, request: Request<Raw>, mut replies: Replies<Raw>) -> Result<(), Status> {
    for index in 0..value(request.get_ref()) {
        replies.send(&number(index)).await?;
        seen.sent.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

async fn chat(
    _: Arc<Seen>,
    mut numbers: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    let mut turns = 0;
    let mut message = Raw::default();
    while numbers.message_into(&mut message).await? {
        turns += 1;
        replies.send(&number(value(&message) * 2)).await?;
    }
    let turns: u32 = turns;
    replies
        .trailers(|trailers| trailers.insert("x-turns", &turns.to_string()))
        .map_err(|error| Status::internal(error.to_string()))
}

pub fn serve() -> RunningServer {
    serve_demo(Demo::default())
}

pub fn serve_demo(demo: Demo) -> RunningServer {
    Server::builder().reactors(2).add_service(demo).bind("127.0.0.1:0").unwrap().spawn().unwrap()
}

pub fn number(value: u64) -> Raw {
    Raw::from(value.to_be_bytes().to_vec())
}

pub fn value(message: &Raw) -> u64 {
    u64::from_be_bytes(message.as_ref().try_into().unwrap())
}

/// Runs a future on this thread, which parks while it waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs futures side by side until all are done.
pub async fn join_all<F: Future<Output = ()>>(futures: impl IntoIterator<Item = F>) {
    let mut running: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for slot in &mut running {
            if let Some(future) = slot {
                match future.as_mut().poll(cx) {
                    Poll::Ready(()) => *slot = None,
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// Makes a call of each of the four kinds.
pub async fn four_kinds(channel: &Channel) {
    let reply: Response<Raw> = channel.unary(PATH_ECHO, number(7)).await.unwrap();
    assert_eq!(value(reply.get_ref()), 7);

    let mut count: Streaming<Raw> =
        channel.server_streaming(PATH_COUNT, number(5)).await.unwrap().into_inner();
    let mut counted = Vec::new();
    while let Some(message) = count.message().await.unwrap() {
        counted.push(value(&message));
    }
    assert_eq!(counted, [0, 1, 2, 3, 4]);

    let mut upload: Upload<Raw, Raw> = channel.client_streaming(PATH_SUM, ()).await.unwrap();
    for addend in 1..=100 {
        upload.send(&number(addend)).await.unwrap();
    }
    assert_eq!(value(upload.finish().await.unwrap().get_ref()), 5050);

    let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
    for turn in 0..10 {
        requests.send(&number(turn)).await.unwrap();
        assert_eq!(replies.message().await.unwrap().map(|reply| value(&reply)), Some(turn * 2));
    }
    requests.finish();
    assert!(replies.message().await.unwrap().is_none());
    assert_eq!(replies.trailers().get("x-turns"), Some("10"));
}

/// Waits, a bounded time, until something that another thread does has happened.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if happened() {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("did not happen in time: {what}");
}

/// That something does not take `limit`. A machine that has other things to do makes everything slow for a moment: it is done again, and one
/// of a few times is enough.
pub fn soon(limit: std::time::Duration, mut something: impl FnMut()) {
    let mut fastest = std::time::Duration::MAX;
    for _ in 0..5 {
        let began = std::time::Instant::now();
        something();
        fastest = fastest.min(began.elapsed());
        if fastest < limit {
            return;
        }
    }
    panic!("it took {fastest:?} when it was fastest, and must not take {limit:?}");
}

/// A service of one method, for a handler made on the spot.
pub struct One<F> {
    pub register: F,
}

impl<F: Fn(&mut Router) + Send + Sync + 'static> Service for One<F> {
    fn name(&self) -> &'static str {
        "demo.One"
    }

    fn register(&self, router: &mut Router) {
        (self.register)(router);
    }
}

/// Serves what `register` registers on one reactor thread.
pub fn serve_one(register: impl Fn(&mut Router) + Send + Sync + 'static) -> RunningServer {
    Server::builder().reactors(1).add_service(One { register }).bind("127.0.0.1:0").unwrap().spawn().unwrap()
}
