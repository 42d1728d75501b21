//! One round: calls, random steps, and a look at what is left.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fulmar::{
    Channel, ChannelCounts, Code, Counts, LocalReactor, Raw, Request, Requests, Response, Server,
    ServerHandle, Status, Streaming, Upload,
};

use super::Random;
use super::handlers::{BIDI, DOWNLOAD, Drops, Stash, Stashed, UNARY, UPLOAD};
use super::hostile::Hostile;

/// How many calls a round has.
const CALLS: usize = 8;

/// How long what is in use may take to come to nothing. A connection that lingers takes a second.
const REST_WAIT: Duration = Duration::from_secs(10);

/// And how many turns of the reactor, at the least.
const REST_TURNS: usize = 2_000;

/// Who serves.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OtherSide {
    /// A script that does what it likes.
    Hostile,
    /// Our server on the same reactor, over TCP.
    Ours,
    /// The same without a socket.
    InProcess,
}

/// Something that a user holds.
enum Held {
    Channel(Channel),
    /// A call that is under way, or is being opened.
    Call(Pin<Box<dyn Future<Output = Option<Self>>>>),
    Streaming(Streaming<Raw>),
    Requests(Requests<Raw>),
    Upload(Upload<Raw, Raw>),
    Stashed(Stashed),
    Response(#[expect(dead_code, reason = "it is there to be dropped")] Response<Raw>),
}

pub(crate) struct Round {
    seed: u64,
    random: Random,
    reactor: Option<LocalReactor>,
    hostile: Option<Hostile>,
    server: Option<ServerHandle>,
    stash: Stash,
    held: Vec<Held>,
    /// A clone of the channel, to count with.
    witness: Option<Channel>,
}

impl Round {
    pub(crate) fn new(seed: u64, other_side: OtherSide) -> Self {
        let mut random = Random::new(seed);
        let mut reactor = LocalReactor::new().unwrap();
        let stash = Stash::default();
        let (mut hostile, mut server) = (None, None);
        let channel = match other_side {
            OtherSide::Hostile => {
                Channel::builder(hostile.insert(Hostile::new()).endpoint()).build().unwrap()
            }
            OtherSide::Ours => {
                let served = Server::builder().add_service(Drops(stash.clone())).bind("127.0.0.1:0").unwrap();
                let endpoint = format!("http://{}", served.local_addr().unwrap());
                server = Some(reactor.serve(served).unwrap());
                Channel::builder(endpoint).build().unwrap()
            }
            OtherSide::InProcess => {
                let served = Server::builder().add_service(Drops(stash.clone())).without_listener().unwrap();
                server.insert(reactor.serve(served).unwrap()).in_process()
            }
        };
        let witness = random.percent(50).then(|| channel.clone());
        let mut round =
            Self { seed, random, reactor: Some(reactor), hostile, server, stash, held: Vec::new(), witness };
        for _ in 0..CALLS {
            let call = round.new_call(&channel);
            round.held.push(call);
        }
        round.held.push(Held::Channel(channel));
        round
    }

    /// A call of any kind that has not begun.
    fn new_call(&mut self, channel: &Channel) -> Held {
        let channel = channel.clone();
        let message = self.message();
        let timeout = self.random.percent(20).then(|| Duration::from_millis(self.random.below(30) as u64));
        let mut metadata = Request::new(());
        if let Some(timeout) = timeout {
            metadata.set_timeout(timeout);
        }
        if self.random.percent(20) {
            metadata.metadata_mut().insert("x-any", "thing").unwrap();
        }
        match self.random.below(4) {
            0 => call(async move {
                let reply = channel.unary::<Raw, Raw>(UNARY, metadata.map(|()| message)).await;
                reply.map(|reply| vec![Held::Response(reply)])
            }),
            1 => call(async move {
                let replies =
                    channel.server_streaming::<Raw, Raw>(DOWNLOAD, metadata.map(|()| message)).await;
                replies.map(|replies| vec![Held::Streaming(replies.into_inner())])
            }),
            2 => call(async move {
                let upload = channel.client_streaming::<Raw, Raw>(UPLOAD, metadata).await;
                upload.map(|upload| vec![Held::Upload(upload)])
            }),
            _ => call(async move {
                let both = channel.bidi::<Raw, Raw>(BIDI, metadata).await;
                both.map(|both| vec![Held::Requests(both.requests), Held::Streaming(both.replies)])
            }),
        }
    }

    fn message(&mut self) -> Raw {
        let mut bytes = vec![self.random.next() as u8, self.random.below(20) as u8];
        bytes.resize(2 + self.random.below(5_000), 0);
        Raw::from(bytes)
    }

    pub(crate) fn run(mut self) {
        let steps = 20 + self.random.below(60);
        for _ in 0..steps {
            self.step();
        }
        // Everything goes, in any order; of the reactor and the other side it was decided before.
        while !self.held.is_empty() {
            let held = self.take_any();
            self.drop_somehow(held);
            if self.random.percent(20) {
                self.turn();
            }
        }
        self.stash.lock().unwrap().clear();
        if let Some(witness) = self.witness.take() {
            self.turn();
            let seed = self.seed;
            self.until_at_rest(move |_| {
                let counts = witness.counts();
                (counts == ChannelCounts::default())
                    .then_some(())
                    .ok_or_else(|| format!("R40_SEED={seed}: {counts:?}"))
            });
        }
        self.hostile = None;
        let seed = self.seed;
        self.until_at_rest(move |reactor| {
            let counts = reactor.map_or_else(Counts::default, LocalReactor::counts);
            (counts == Counts::default()).then_some(()).ok_or_else(|| format!("R40_SEED={seed}: {counts:?}"))
        });
    }

    fn until_at_rest(&mut self, check: impl Fn(Option<&mut LocalReactor>) -> Result<(), String>) {
        let (began, mut turns) = (Instant::now(), 0);
        while let Err(left) = check(self.reactor.as_mut()) {
            // On a machine that gives this thread no time, time says nothing.
            turns += 1;
            assert!(began.elapsed() < REST_WAIT || turns < REST_TURNS, "{left}");
            self.turn();
            // A call that was on its way may have got to its handler since.
            self.stash.lock().unwrap().clear();
            std::thread::yield_now();
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.turn(),
            30..85 => self.use_any(),
            85..97 => {
                let held = self.take_any();
                self.drop_somehow(held);
            }
            97 => {
                let reactor = self.reactor.take_if(|_| self.random.percent(30));
                if self.random.percent(50) {
                    unwinding(reactor);
                }
            }
            98 => {
                let grace = Duration::from_millis([0, 5, 1_000_000][self.random.below(3)]);
                if let Some(server) = &self.server {
                    server.shutdown(grace);
                }
            }
            _ => {
                let stashed: Vec<_> = self.stash.lock().unwrap().drain(..).collect();
                self.held.extend(stashed.into_iter().map(Held::Stashed));
            }
        }
    }

    /// Lets the reactor and the other side work.
    fn turn(&mut self) {
        let turns = 1 + self.random.below(40);
        if let Some(reactor) = &mut self.reactor {
            let mut left = turns;
            reactor.block_on(poll_fn(|cx| {
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        if let Some(hostile) = &mut self.hostile {
            hostile.act(&mut self.random);
        }
    }

    fn take_any(&mut self) -> Option<Held> {
        if self.held.is_empty() {
            return None;
        }
        let index = self.random.below(self.held.len());
        Some(self.held.swap_remove(index))
    }

    /// Drops it here, in the reactor, while this thread unwinds, or on another thread.
    fn drop_somehow(&mut self, held: Option<Held>) {
        match (self.random.below(8), held) {
            (0, held) => unwinding(held),
            (1, held) => {
                if let Some(reactor) = &mut self.reactor {
                    reactor.block_on(async move { drop(held) });
                }
            }
            (2, Some(Held::Streaming(streaming))) => elsewhere(streaming),
            (2, Some(Held::Requests(requests))) => elsewhere(requests),
            (2, Some(Held::Upload(upload))) => elsewhere(upload),
            (2, Some(Held::Channel(channel))) => elsewhere(channel),
            (2, Some(Held::Stashed(Stashed::Requests(requests)))) => elsewhere(requests),
            (2, Some(Held::Stashed(Stashed::Replies(replies)))) => elsewhere(replies),
            (_, held) => drop(held),
        }
    }

    /// Uses something once, in the reactor if there is one: then its calls stay there.
    fn use_any(&mut self) {
        let Some(held) = self.take_any() else { return };
        let message = self.message();
        let choice = self.random.below(100);
        let left = match &mut self.reactor {
            Some(reactor) => reactor.block_on(async { use_once(held, &message, choice) }),
            // Without a reactor of its own a call that begins would go to the one of the process.
            None if matches!(held, Held::Call(_)) => vec![],
            None => use_once(held, &message, choice),
        };
        self.held.extend(left);
    }
}

/// A call, whose result is looked at and becomes something to hold.
fn call(future: impl Future<Output = Result<Vec<Held>, Status>> + 'static) -> Held {
    let mut opened: Option<std::vec::IntoIter<Held>> = None;
    let mut future = Box::pin(future);
    Held::Call(Box::pin(poll_fn(move |cx| {
        if let Some(opened) = &mut opened {
            return Poll::Ready(opened.next());
        }
        match future.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(status)) => {
                check(&status);
                Poll::Ready(None)
            }
            Poll::Ready(Ok(held)) => Poll::Ready(opened.insert(held.into_iter()).next()),
        }
    })))
}

/// A failure may have many reasons here, but no panic, and no bug that shows as one of the codes that the library never makes.
fn check(status: &Status) {
    assert!(!status.message().contains("panicked"), "{status:?}");
    let never = [Code::NotFound, Code::AlreadyExists, Code::OutOfRange, Code::DataLoss];
    assert!(!never.contains(&status.code()), "{status:?}");
}

fn check_result<T>(result: Result<T, Status>) -> Option<T> {
    result.inspect_err(check).ok()
}

/// Polls, sends or finishes. Returns what there is to hold afterwards.
fn use_once(held: Held, message: &Raw, choice: usize) -> Vec<Held> {
    let mut cx = Context::from_waker(Waker::noop());
    match held {
        Held::Call(mut future) => match future.as_mut().poll(&mut cx) {
            Poll::Pending => vec![Held::Call(future)],
            Poll::Ready(None) => vec![],
            // There may be a second half.
            Poll::Ready(Some(held)) => match future.as_mut().poll(&mut cx) {
                Poll::Ready(Some(other)) => vec![held, other],
                _ => vec![held],
            },
        },
        Held::Streaming(mut streaming) => {
            if choice < 10 {
                let _ = pin!(streaming.metadata()).poll(&mut cx);
            } else if let Poll::Ready(Err(status)) = streaming.poll_message(&mut cx) {
                check(&status);
                let after = streaming.poll_message(&mut cx);
                assert!(matches!(after, Poll::Ready(Ok(None))), "a stream ends once (R76): {after:?}");
            }
            vec![Held::Streaming(streaming)]
        }
        Held::Requests(requests) if choice < 10 => {
            requests.finish();
            vec![]
        }
        Held::Requests(mut requests) => {
            check_result(requests.try_send(message));
            vec![Held::Requests(requests)]
        }
        Held::Upload(upload) if choice < 20 => {
            vec![call(async move { upload.finish().await.map(|reply| vec![Held::Response(reply)]) })]
        }
        Held::Upload(mut upload) => {
            if let Poll::Ready(Err(status)) = pin!(upload.send(message)).poll(&mut cx) {
                check(&status);
            }
            vec![Held::Upload(upload)]
        }
        Held::Stashed(mut stashed) => {
            match &mut stashed {
                Stashed::Requests(requests) => drop(requests.poll_message(&mut cx)),
                Stashed::Replies(replies) => drop(replies.try_send(message)),
                Stashed::Cancellation(cancellation) => {
                    let _ = pin!(cancellation.ended()).poll(&mut cx);
                }
            }
            vec![Held::Stashed(stashed)]
        }
        held @ (Held::Channel(_) | Held::Response(_)) => vec![held],
    }
}

/// Drops it while this thread unwinds.
fn unwinding<T>(held: T) {
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
}

fn elsewhere<T: Send + 'static>(held: T) {
    std::thread::spawn(move || drop(held)).join().unwrap();
}
