//! Makes very many calls of all four kinds, of which most go wrong in one way or another, and looks whether everything that was in
//! use for them is free again: `churn -- --calls 200000`.
//!
//! Server and client are in one process and talk over loopback. Ends with 0 when every call ended as it should, and every count is
//! back at its start value; else with 1, and a table of what is not.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{
    Channel, Code, LocalReactor, Raw, Replies, Request, Response, Router, RunningServer, Server, Service,
    Status, Streaming,
};
use futures::future::join_all;
use lexopt::ValueExt;

const UNARY: &str = "/churn.Churn/Unary";
const UPLOAD: &str = "/churn.Churn/Upload";
const DOWNLOAD: &str = "/churn.Churn/Download";
const BIDI: &str = "/churn.Churn/Bidi";

/// How many calls there are at a time.
const CALLERS: usize = 64;

/// How long a call may take that has no deadline of its own: it has failed the test then.
const CALL_MAX: Duration = Duration::from_secs(60);

/// How long it may take at the end until nothing is in use.
const REST_MAX: Duration = Duration::from_secs(20);

/// How many messages a stream has.
const MESSAGES: usize = 3;

/// How a call ends, which is also what its messages ask of the handler.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Succeeds,
    /// The handler answers with an error.
    Fails,
    /// The client gives it up while the handler hangs.
    Cancels,
    /// The handler hangs, and the deadline comes.
    Expires,
    /// The client drops what it holds before the call has done anything.
    Drops,
}

const WAYS: [Way; 5] = [Way::Succeeds, Way::Fails, Way::Cancels, Way::Expires, Way::Drops];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("churn: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
struct Options {
    calls: u64,
    /// When to stop making calls, and to fail.
    time_max: Duration,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self { calls: 200_000, time_max: Duration::from_secs(900) };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                lexopt::Arg::Long("calls") => options.calls = arguments.value()?.string()?.parse()?,
                lexopt::Arg::Long("seconds-max") => {
                    options.time_max = Duration::from_secs(arguments.value()?.string()?.parse()?);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }
}

fn run() -> Result<bool, Box<dyn Error>> {
    let options = Options::parse()?;
    let server = Server::builder().reactors(1).add_service(Churn).bind("127.0.0.1:0")?.spawn()?;
    let mut reactor = LocalReactor::new()?;
    let channel = reactor.block_on(Channel::connect(server.endpoint()))?;
    let before = count(&server, &mut reactor, &channel)?;

    let began = Instant::now();
    let until = began + options.time_max;
    let (next, wrong) = (Cell::new(0), Cell::new(0_u64));
    let callers = (0..CALLERS).map(|_| async {
        while next.get() < options.calls && Instant::now() < until {
            let index = next.replace(next.get() + 1);
            if let Err(what) = call(&channel, index).await {
                wrong.set(wrong.get() + 1);
                if wrong.get() <= 10 {
                    eprintln!("call {index}: {what}");
                }
            }
        }
    });
    reactor.block_on(join_all(callers));
    let (made, took) = (next.get(), began.elapsed());
    println!("{made} calls in {took:.1?}, {:.0} a second", made as f64 / took.as_secs_f64());

    let is_at_rest = report(&before, &rest(&before, &server, &mut reactor, &channel)?);
    if wrong.get() > 0 {
        println!("{} calls did not end as they should", wrong.get());
    }
    if made < options.calls {
        println!("{} calls were not made: the time is up", options.calls - made);
    }
    server.shutdown(Duration::ZERO)?;
    Ok(is_at_rest && wrong.get() == 0 && made == options.calls)
}

/// A count with the name of what it counts.
type Count = (String, usize);

/// Everything that is in use at both ends.
fn count(
    server: &RunningServer,
    reactor: &mut LocalReactor,
    channel: &Channel,
) -> Result<Vec<Count>, Box<dyn Error>> {
    let at_server = server.handle().counts().ok_or("the server does not answer")?;
    let sides = [("server", at_server), ("client", reactor.counts())];
    let mut counts: Vec<Count> = Vec::new();
    for (side, of_side) in sides {
        counts.extend(of_side.by_name().map(|(name, count)| (format!("{side} {name}"), count)));
    }
    counts.push(("channel cells".to_owned(), channel.counts().cells));
    counts.push(("channel metadata_maps".to_owned(), channel.counts().metadata_maps));
    Ok(counts)
}

/// The counts once they are what they were, or when it has taken too long.
fn rest(
    before: &[Count],
    server: &RunningServer,
    reactor: &mut LocalReactor,
    channel: &Channel,
) -> Result<Vec<Count>, Box<dyn Error>> {
    let began = Instant::now();
    loop {
        let counts = count(server, reactor, channel)?;
        if counts == before || began.elapsed() > REST_MAX {
            return Ok(counts);
        }
        // What is on its way arrives.
        reactor.block_on(turns(20));
        thread::sleep(Duration::from_millis(1));
    }
}

/// Prints what is in use; whether it is what it was before.
fn report(before: &[Count], after: &[Count]) -> bool {
    let mut is_same = true;
    println!("{:<28} {:>8} {:>8}", "in use", "before", "after");
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let mark = if before == after { "" } else { "  <- not at its start value" };
        println!("{name:<28} {before:>8} {after:>8}{mark}");
        is_same &= before == after;
    }
    is_same
}

/// Makes one call. An error says that it ended in another way than it should have.
async fn call(channel: &Channel, index: u64) -> Result<(), String> {
    let mixed = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let way = WAYS[(mixed % 5) as usize];
    let message = message(way, mixed);
    let mut request = Request::new(()).with_timeout(CALL_MAX);
    if way == Way::Expires {
        request.set_timeout(Duration::from_micros(mixed / 5 % 3_000));
    }
    if mixed.is_multiple_of(7) {
        request.metadata_mut().insert("x-churn", "7").map_err(|error| error.to_string())?;
    }
    let whole = make(channel, mixed / 16 % 4, request, message);
    let result = match way {
        Way::Succeeds | Way::Fails | Way::Expires => whole.await,
        Way::Cancels | Way::Drops => {
            let polls = if way == Way::Drops { 1 } else { 2 + mixed / 64 % 30 };
            match for_some_polls(whole, polls).await {
                Some(result) => result,
                None => return Ok(()),
            }
        }
    };
    match (way, result.map_err(|status| (status.code(), status))) {
        (Way::Succeeds, Ok(())) | (Way::Fails, Err((Code::Aborted, _))) => Ok(()),
        (Way::Expires, Err((Code::DeadlineExceeded, _))) => Ok(()),
        // The handler hangs, so that nothing else may come.
        (_, result) => Err(format!("a call that {} ended with {result:?}", way.text())),
    }
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeds",
            Self::Fails => "fails",
            Self::Cancels => "is cancelled",
            Self::Expires => "expires",
            Self::Drops => "is dropped",
        }
    }
}

/// A message that tells the handler what to do; a few are large.
fn message(way: Way, mixed: u64) -> Raw {
    let length = if mixed.is_multiple_of(97) { 20_000 } else { 1 + (mixed % 60) as usize };
    let order = match way {
        Way::Succeeds => 0,
        Way::Fails => 1,
        Way::Cancels | Way::Expires | Way::Drops => 2,
    };
    Raw::from(vec![order; length])
}

/// Makes a call of the kind with this number, to its end.
async fn make(channel: &Channel, kind: u64, request: Request<()>, message: Raw) -> Result<(), Status> {
    match kind {
        0 => channel.unary::<Raw, Raw>(UNARY, request.map(|()| message)).await.map(drop),
        1 => {
            let mut upload = channel.client_streaming::<Raw, Raw>(UPLOAD, request).await?;
            for _ in 0..MESSAGES {
                // A call that has failed says so at its end.
                if upload.send(&message).await.is_err() {
                    break;
                }
            }
            upload.finish().await.map(drop)
        }
        2 => {
            let replies = channel.server_streaming::<Raw, Raw>(DOWNLOAD, request.map(|()| message)).await?;
            read(&mut replies.into_inner()).await
        }
        _ => {
            let mut both = channel.bidi::<Raw, Raw>(BIDI, request).await?;
            for _ in 0..MESSAGES {
                if both.requests.send(&message).await.is_err() {
                    break;
                }
            }
            both.requests.finish();
            read(&mut both.replies).await
        }
    }
}

async fn read(replies: &mut Streaming<Raw>) -> Result<(), Status> {
    let mut message = Raw::default();
    while replies.message_into(&mut message).await? {}
    Ok(())
}

/// Polls a call so many times and drops it, unless it has ended.
async fn for_some_polls<F: Future>(call: F, polls: u64) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        left -= 1;
        if left == 0 {
            return Poll::Ready(None);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Lets the reactor work so many times.
async fn turns(count: u64) {
    for_some_polls(std::future::pending::<()>(), count).await;
}

/// Does what the first byte of a message says.
struct Churn;

async fn obey(message: &Raw) -> Result<(), Status> {
    match message.as_ref().first() {
        Some(1) => Err(Status::new(Code::Aborted, "as it was told to")),
        Some(2) => std::future::pending().await,
        _ => Ok(()),
    }
}

impl Service for Churn {
    fn name(&self) -> &'static str {
        "churn.Churn"
    }

    fn register(&self, router: &mut Router) {
        let nothing = Arc::new(());
        router.unary(UNARY, &nothing, |_, request: Request<Raw>| async move {
            obey(request.get_ref()).await?;
            Ok(Response::new(request.into_inner()))
        });
        router.client_streaming(UPLOAD, &nothing, |_, mut requests: Request<Streaming<Raw>>| async move {
            let mut message = Raw::default();
            while requests.message_into(&mut message).await? {
                obey(&message).await?;
            }
            Ok(Response::new(message))
        });
        router.server_streaming(
            DOWNLOAD,
            &nothing,
            |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                for _ in 0..MESSAGES {
                    replies.send(request.get_ref()).await?;
                }
                obey(request.get_ref()).await
            },
        );
        router.bidi(
            BIDI,
            &nothing,
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                let mut message = Raw::default();
                while requests.message_into(&mut message).await? {
                    replies.send(&message).await?;
                    obey(&message).await?;
                }
                Ok(())
            },
        );
    }
}
