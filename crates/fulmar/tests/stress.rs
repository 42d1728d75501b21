//! Seeded storms: many threads, every kind of call, small windows, handles that are dropped at any moment. What must hold: every call
//! that is waited for ends, no message is lost, doubled or put out of order, and afterwards everything works.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_HANG, PATH_SUM, block_on, number, value};
use fulmar::{
    Channel, Code, Http2Config, LocalReactor, Raw, Replies, Request, Router, RunningServer, Server, Service,
    Status, Streaming, blocking,
};

/// xorshift64*, seeded.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// A request that ends a test which would hang.
fn bounded<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(Duration::from_secs(20))
}

/// Streams that live on threads of their own.
struct Elsewhere(Arc<AtomicU64>);

impl Service for Elsewhere {
    fn name(&self) -> &'static str {
        "demo.Elsewhere"
    }

    fn register(&self, router: &mut Router) {
        router.bidi(
            "/demo.Elsewhere/Echo",
            &self.0,
            |running, requests: Request<Streaming<Raw>>, replies: Replies<Raw>| async move {
                let (done, ended) = Done::pair();
                running.fetch_add(1, Ordering::SeqCst);
                let mut requests = requests.into_inner();
                let mut replies = replies;
                thread::spawn(move || {
                    let result = block_on(async {
                        let mut message = Raw::default();
                        while requests.message_into(&mut message).await? {
                            replies.send(&message).await?;
                        }
                        Ok::<(), Status>(())
                    });
                    drop((requests, replies));
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.tell(result);
                });
                ended.await
            },
        );
    }
}

/// A future that another thread makes ready.
#[derive(Clone, Default)]
struct Done(Arc<std::sync::Mutex<Telling>>);

#[derive(Default)]
struct Telling {
    result: Option<Result<(), Status>>,
    waker: Option<std::task::Waker>,
}

impl Done {
    fn pair() -> (Self, Self) {
        let done = Self::default();
        (done.clone(), done)
    }

    fn tell(&self, result: Result<(), Status>) {
        let mut state = self.0.lock().unwrap();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl std::future::Future for Done {
    type Output = Result<(), Status>;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let mut state = self.0.lock().unwrap();
        match state.result.take() {
            Some(result) => std::task::Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                std::task::Poll::Pending
            }
        }
    }
}

fn serve(
    random: &mut Random,
    running: &Arc<AtomicU64>,
    address: Option<SocketAddr>,
) -> (RunningServer, Http2Config) {
    let config = Http2Config {
        stream_window_bytes: [50, 1_000, 20_000, 65_536][random.below(4) as usize],
        streams_max: [2, 10, 1_000][random.below(3) as usize],
        ..Http2Config::default()
    };
    let server = Server::builder()
        .reactors(1 + random.below(2) as usize)
        .http2(config.clone())
        .add_service(Demo::default())
        .add_service(Elsewhere(running.clone()))
        .bind(address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))))
        .unwrap()
        .spawn()
        .unwrap();
    (server, config)
}

/// One call of a kind, dropped or waited for as chance has it.
async fn call(channel: &Channel, random: &mut Random) -> Result<(), Status> {
    let gives_up = random.below(4) == 0;
    let count = random.below(60);
    match random.below(5) {
        0 => {
            let reply = channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(count))).await?;
            assert_eq!(value(reply.get_ref()), count);
        }
        1 => {
            let hurried = Request::new(number(1)).with_timeout(Duration::from_micros(random.below(2_000)));
            let status = channel.unary::<Raw, Raw>(PATH_HANG, hurried).await.unwrap_err();
            if status.code() != Code::DeadlineExceeded {
                return Err(status);
            }
        }
        2 => {
            let replies = channel.server_streaming::<Raw, Raw>(PATH_COUNT, bounded(number(count))).await?;
            let mut replies = replies.into_inner();
            for index in 0..count {
                if gives_up && index == count / 2 {
                    return Ok(());
                }
                assert_eq!(replies.message().await?.map(|reply| value(&reply)), Some(index));
            }
            assert!(replies.message().await?.is_none());
        }
        3 => {
            let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, bounded(())).await?;
            for _ in 0..count {
                upload.send(&number(3)).await?;
            }
            if !gives_up {
                assert_eq!(value(upload.finish().await?.get_ref()), 3 * count);
            }
        }
        _ => {
            let elsewhere = random.below(2) == 0;
            let (path, factor) = if elsewhere { ("/demo.Elsewhere/Echo", 1) } else { (PATH_CHAT, 2) };
            chat(channel, path, factor, count, gives_up).await?;
        }
    }
    Ok(())
}

/// Writes on a thread of its own and reads here.
async fn chat(channel: &Channel, path: &str, factor: u64, count: u64, gives_up: bool) -> Result<(), Status> {
    let call = channel.bidi::<Raw, Raw>(path, bounded(())).await?;
    let (mut requests, mut replies) = (call.requests, call.replies);
    let sender = thread::spawn(move || {
        block_on(async {
            for index in 0..count {
                requests.send(&number(index)).await?;
            }
            if !gives_up {
                requests.finish();
            }
            Ok::<(), Status>(())
        })
    });
    let mut expected = 0;
    let ended = loop {
        match replies.message().await {
            Ok(Some(reply)) => {
                assert_eq!(value(&reply), expected * factor);
                expected += 1;
            }
            ended => break ended,
        }
    };
    let sent = sender.join().unwrap();
    match ended {
        Ok(_) => {
            assert_eq!((gives_up, expected), (false, count), "it ends well if it is finished, and whole")
        }
        Err(status) if gives_up && status.code() == Code::Cancelled => {}
        Err(status) => return Err(status),
    }
    sent
}

/// With `quakes`, the server ends in the middle, and comes back at the same address.
fn storm(seed: u64, quakes: bool) {
    let mut random = Random::new(seed);
    let running = Arc::new(AtomicU64::new(0));
    let (mut server, config) = serve(&mut random, &running, None);
    let channel = block_on(Channel::builder(server.endpoint()).http2(config.clone()).connect()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (channel, mut random) = (channel.clone(), Random::new(seed * 100 + thread + 1));
            thread::spawn(move || {
                let calls = async {
                    for _ in 0..12 {
                        match call(&channel, &mut random).await {
                            Err(status) if quakes && status.code() == Code::Unavailable => {}
                            ended => ended.unwrap(),
                        }
                    }
                };
                match thread % 2 {
                    0 => block_on(calls),
                    _ => LocalReactor::new().unwrap().block_on(calls),
                }
            })
        })
        .collect();
    if quakes {
        let address = server.local_addr();
        thread::sleep(Duration::from_millis(random.below(10)));
        server.shutdown(Duration::from_millis(random.below(3))).unwrap();
        server = serve(&mut random, &running, address).0;
    }
    for thread in threads {
        thread.join().unwrap_or_else(|_| panic!("seed {seed}"));
    }
    common::eventually("handles elsewhere hear of the end", || running.load(Ordering::SeqCst) == 0);
    let mut blocked =
        blocking::Channel::with(blocking::Channel::builder(server.endpoint()).http2(config)).unwrap();
    let reply = blocked.unary::<Raw, Raw>(PATH_ECHO, bounded(number(seed))).unwrap();
    assert_eq!(value(reply.get_ref()), seed);
    drop((blocked, channel));
    server.shutdown(Duration::from_secs(20)).unwrap();
}

#[test]
fn storms_of_calls_leave_nothing_behind() {
    for seed in 0..10 {
        storm(seed, false);
    }
}

#[test]
fn storms_in_which_the_server_goes_and_comes_leave_nothing_behind() {
    for seed in 100..110 {
        storm(seed, true);
    }
}
