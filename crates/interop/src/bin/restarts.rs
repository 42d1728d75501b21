//! Restarts a server again and again under load, as a rolling restart does, and looks whether a call is lost or done twice:
//! `restarts -- --restarts 200`.
//!
//! The server is a process of its own, this program once more. It is shut down gracefully, and when it has ended another one begins on
//! the same port. Callers wait for ready, so that none of their calls may fail; and no call may reach two handlers, as none may be
//! repeated that could have reached one. Ends with 0 when that holds and no descriptor is left over; else with 1.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Backoff, Channel, LocalReactor, Raw, Request, Response, Router, Server, Service, Status};
use futures::future::join_all;
use lexopt::ValueExt;

const WORK: &str = "/restarts.Restarts/Work";

/// How long a server serves before it is restarted.
const SERVES: Duration = Duration::from_millis(60);

/// How long the calls of a server that shuts down may take. None takes a fraction of it.
const GRACE: Duration = Duration::from_secs(30);

/// How long a call may wait and take: it is lost then.
const CALL_MAX: Duration = Duration::from_secs(60);

/// How many descriptors may be open at the end that were not at the start: a connection and what its reactor needs.
const DESCRIPTORS_MORE_MAX: usize = 8;

fn main() -> ExitCode {
    match Options::parse().and_then(|options| options.run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("restarts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
struct Options {
    restarts: u32,
    callers: usize,
    /// When to stop, and to fail.
    time_max: Duration,
    /// Serve on this port, instead of everything else.
    serve: Option<u16>,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options =
            Self { restarts: 200, callers: 64, time_max: Duration::from_secs(900), serve: None };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                lexopt::Arg::Long("restarts") => options.restarts = arguments.value()?.parse()?,
                lexopt::Arg::Long("callers") => options.callers = arguments.value()?.parse()?,
                lexopt::Arg::Long("seconds-max") => {
                    options.time_max = Duration::from_secs(arguments.value()?.parse()?);
                }
                lexopt::Arg::Long("serve") => options.serve = Some(arguments.value()?.parse()?),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }

    fn run(self) -> Result<bool, Box<dyn Error>> {
        match self.serve {
            Some(port) => serve(port).map(|()| true),
            None => restart(&self),
        }
    }
}

/// Takes note of each call that reaches it.
#[derive(Clone, Default)]
struct Restarts {
    done: Arc<Mutex<Vec<u64>>>,
}

impl Service for Restarts {
    fn name(&self) -> &'static str {
        "restarts.Restarts"
    }

    fn register(&self, router: &mut Router) {
        router.unary(WORK, &self.done, |done, request: Request<Raw>| async move {
            let number = number(request.get_ref()).ok_or_else(|| Status::internal("no number"))?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            // Some are at it when the server shuts down.
            turns(number % 64).await;
            Ok(Response::new(request.into_inner()))
        });
    }
}

fn number(message: &Raw) -> Option<u64> {
    message.as_ref().try_into().ok().map(u64::from_be_bytes)
}

/// Lets others run so many times.
async fn turns(times: u64) {
    for _ in 0..times {
        let mut is_second = false;
        poll_fn(|cx| match std::mem::replace(&mut is_second, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }
}

/// The server's process: serves until its input ends, shuts down, and tells which calls it has seen.
fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let service = Restarts::default();
    let done = service.done.clone();
    let server = Server::builder().reactors(2).add_service(service).bind(("127.0.0.1", port))?.spawn()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "serving")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown(GRACE)?;
    let done = done.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes: Vec<u8> = done.iter().flat_map(|number| number.to_be_bytes()).collect();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}

/// A server that runs.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(port: u16) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("the server has no output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        match line.as_str() {
            "serving\n" => Ok(Self { child, out }),
            _ => Err(format!("the server did not start: {line:?}, {}", child.wait()?).into()),
        }
    }

    /// Shuts it down; the calls that it has seen.
    fn stop(mut self) -> Result<Vec<u64>, Box<dyn Error + Send + Sync>> {
        drop(self.child.stdin.take());
        let mut bytes = Vec::new();
        self.out.read_to_end(&mut bytes)?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("a server failed: {status}").into());
        }
        Ok(bytes
            .chunks_exact(8)
            .map(|number| u64::from_be_bytes(number.try_into().unwrap_or_default()))
            .collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the thread that restarts has seen.
#[derive(Default)]
struct Seen {
    restarts: u32,
    /// The calls that each server has seen, all together.
    done: Vec<u64>,
    longest_shutdown: Duration,
}

fn restart(options: &Options) -> Result<bool, Box<dyn Error>> {
    // A port that is free; servers bind it again and again.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let began = Instant::now();
    let is_over = Arc::new(AtomicBool::new(false));
    let first = Running::start(port).map_err(|error| error.to_string())?;
    let restarter = {
        let (is_over, until, restarts) = (is_over.clone(), began + options.time_max, options.restarts);
        thread::spawn(move || {
            let seen = keep_restarting(first, port, restarts, until, &is_over);
            is_over.store(true, Ordering::SeqCst);
            seen
        })
    };

    let mut reactor = LocalReactor::new()?;
    let backoff =
        Backoff { initial: Duration::from_millis(20), max: Duration::from_millis(200), ..Backoff::default() };
    let channel =
        Channel::builder(format!("http://127.0.0.1:{port}")).backoff(backoff).wait_for_ready(true).build()?;
    let (next, lost, answered) = (Cell::new(0_u64), Cell::new(0_u64), RefCell::new(Vec::new()));
    reactor.block_on(call(&channel, &next, &lost, &answered))?;
    let descriptors = count_descriptors();
    let callers = (0..options.callers).map(|_| async {
        while !is_over.load(Ordering::SeqCst) {
            if let Err(status) = call(&channel, &next, &lost, &answered).await
                && lost.get() <= 10
            {
                eprintln!("lost: {status}");
            }
        }
    });
    reactor.block_on(join_all(callers));
    let descriptors_after = count_descriptors();
    let seen = restarter
        .join()
        .map_err(|_| "the thread that restarts panicked")?
        .map_err(|error| error.to_string())?;

    let mut times: HashMap<u64, u32> = HashMap::new();
    for number in &seen.done {
        *times.entry(*number).or_default() += 1;
    }
    let twice = times.values().filter(|times| **times > 1).count();
    let never = answered.borrow().iter().filter(|number| !times.contains_key(number)).count();
    println!(
        "{} restarts under load from {} callers: {} calls in {:.1?}, {} lost, {twice} done twice, {never} answered and not done",
        seen.restarts,
        options.callers,
        next.get(),
        began.elapsed(),
        lost.get(),
    );
    println!(
        "longest shutdown {:.0?}; descriptors {descriptors} before, {descriptors_after} after",
        seen.longest_shutdown
    );
    Ok(seen.restarts == options.restarts
        && lost.get() == 0
        && twice == 0
        && never == 0
        && descriptors_after <= descriptors + DESCRIPTORS_MORE_MAX)
}

fn keep_restarting(
    mut server: Running,
    port: u16,
    restarts: u32,
    until: Instant,
    is_over: &AtomicBool,
) -> Result<Seen, Box<dyn Error + Send + Sync>> {
    let mut seen = Seen::default();
    while seen.restarts < restarts && Instant::now() < until {
        thread::sleep(SERVES);
        let stopping = Instant::now();
        seen.done.extend(server.stop()?);
        seen.longest_shutdown = seen.longest_shutdown.max(stopping.elapsed());
        server = Running::start(port)?;
        seen.restarts += 1;
    }
    // The callers end with the last calls of the last server.
    thread::sleep(SERVES);
    is_over.store(true, Ordering::SeqCst);
    thread::sleep(Duration::from_secs(1));
    seen.done.extend(server.stop()?);
    Ok(seen)
}

/// Makes one call. One that fails is lost.
async fn call(
    channel: &Channel,
    next: &Cell<u64>,
    lost: &Cell<u64>,
    answered: &RefCell<Vec<u64>>,
) -> Result<(), Status> {
    let number = next.replace(next.get() + 1);
    let request = Request::new(Raw::from(number.to_be_bytes().to_vec())).with_timeout(CALL_MAX);
    match channel.unary::<Raw, Raw>(WORK, request).await {
        Ok(_) => {
            answered.borrow_mut().push(number);
            Ok(())
        }
        Err(status) => {
            lost.set(lost.get() + 1);
            Err(status)
        }
    }
}

/// How many descriptors this process has open; 0 where the system does not say.
fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
