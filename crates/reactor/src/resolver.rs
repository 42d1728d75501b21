use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the helper thread waits for another name before it ends; it is started again when needed.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How many names may wait for the helper thread. More than that at once means that the name service is down.
const WAITING_MAX: usize = 1024;

/// Turns names into addresses. Implement it to ask something else than the system.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, each with `port`, best first. May block: it is called on a helper thread.
    ///
    /// # Errors
    /// The name is not known, or could not be looked up.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// Asks the resolver of the operating system.
#[derive(Copy, Clone, Default, Debug)]
pub struct SystemResolve;

impl Resolve for SystemResolve {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

/// What is done with the addresses of a name. Runs on the helper thread, or on the calling thread if `host` is a literal address.
pub type OnResolved = Box<dyn FnOnce(io::Result<Vec<SocketAddr>>) + Send>;

/// Looks names up on one helper thread, so that no reactor ever waits for a name.
///
/// The thread is started with the first name and ends after 10 s without one, or soon after the resolver is dropped; names asked
/// for before that are still answered. At most 1,024 names wait.
pub struct Resolver {
    shared: Arc<Shared>,
}

struct Shared {
    resolve: Box<dyn Resolve>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Job>,
    running: bool,
    open: bool,
}

struct Job {
    host: String,
    port: u16,
    on_done: OnResolved,
}

impl Resolver {
    /// A resolver that asks `resolve`.
    pub fn new(resolve: impl Resolve) -> Self {
        let state = Mutex::new(State { waiting: VecDeque::new(), running: false, open: true });
        Self { shared: Arc::new(Shared { resolve: Box::new(resolve), state, changed: Condvar::new() }) }
    }

    /// Looks `host` up and calls `on_done` with its addresses, of which there is at least one, or with an error that names the host.
    /// Does not wait.
    pub fn resolve(&self, host: &str, port: u16, on_done: OnResolved) {
        if let Some(address) = literal(host) {
            return on_done(Ok(vec![SocketAddr::new(address, port)]));
        }
        let mut state = self.shared.lock();
        if state.waiting.len() >= WAITING_MAX {
            drop(state);
            return on_done(Err(io::Error::other(format!(
                "resolve {host}: {WAITING_MAX} other names wait for the name service already"
            ))));
        }
        state.waiting.push_back(Job { host: host.to_owned(), port, on_done });
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        if start {
            self.start();
        } else {
            self.shared.changed.notify_one();
        }
    }

    /// Looks `host` up and waits for its addresses, at most for `timeout`.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), and [`io::ErrorKind::TimedOut`].
    pub fn resolve_within(&self, host: &str, port: u16, timeout: Duration) -> io::Result<Vec<SocketAddr>> {
        let (done, result) = mpsc::channel();
        self.resolve(host, port, Box::new(move |addresses| drop(done.send(addresses))));
        result.recv_timeout(timeout).unwrap_or_else(|_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("resolve {host}: no answer within {timeout:?}"),
            ))
        })
    }

    fn start(&self) {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("fulmar-names".to_owned()).spawn(move || shared.run());
        let Err(error) = thread else { return };
        let jobs = {
            let mut state = self.shared.lock();
            state.running = false;
            std::mem::take(&mut state.waiting)
        };
        for job in jobs {
            let text = format!("resolve {}: no thread to do it: {error}", job.host);
            (job.on_done)(Err(io::Error::new(error.kind(), text)));
        }
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(SystemResolve)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.lock().open = false;
        self.shared.changed.notify_one();
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl Shared {
    fn run(&self) {
        while let Some(Job { host, port, on_done }) = self.next() {
            // A resolver or a callback that panics must not keep the other names waiting. Nothing of ours is shared with it, and the
            // panic hook has told the user.
            let resolved = panic::catch_unwind(AssertUnwindSafe(|| self.look_up(&host, port)))
                .unwrap_or_else(|_| Err(unresolved(&host, io::Error::other("the resolver panicked"))));
            let _ = panic::catch_unwind(AssertUnwindSafe(|| on_done(resolved)));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            let (guard, waited) = if state.open {
                self.changed.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner)
            } else {
                state.running = false;
                return None;
            };
            state = guard;
            if waited.timed_out() && state.waiting.is_empty() {
                // Under the same lock as the last look, so that no name is left to a thread that is ending.
                state.running = false;
                return None;
            }
        }
    }

    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self.resolve.resolve(host, port) {
            Ok(addresses) if addresses.is_empty() => {
                Err(unresolved(host, io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
            }
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(unresolved(host, error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a name has no addresses. The source is what the resolver said, whatever type it has.
#[derive(Debug)]
struct Unresolved {
    host: String,
    error: io::Error,
}

fn unresolved(host: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Unresolved { host: host.to_owned(), error })
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resolve {}: {}", self.host, self.error)
    }
}

impl Error for Unresolved {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.error.get_ref() {
            Some(inner) => Some(inner),
            None => Some(&self.error),
        }
    }
}

/// An address written as one, IPv6 with or without brackets.
fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows `N.test`, which has the address 10.0.0.N.
    struct Table;

    impl Resolve for Table {
        fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let Some(label) = host.strip_suffix(".test") else {
                return Err(io::Error::other("no such name"));
            };
            let number: u8 = label.parse().map_err(io::Error::other)?;
            Ok(if number == 0 { vec![] } else { vec![SocketAddr::from(([10, 0, 0, number], port))] })
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn names_are_looked_up_on_another_thread() {
        let resolver = Resolver::new(Table);
        let (done, result) = mpsc::channel();
        for number in 1..=3 {
            let done = done.clone();
            let on_done = move |addresses| drop(done.send((std::thread::current().id(), addresses)));
            resolver.resolve(&format!("{number}.test"), 80, Box::new(on_done));
        }
        for number in 1..=3 {
            let (thread, addresses) = result.recv_timeout(PATIENCE).expect("the thread answers");
            assert_ne!(thread, std::thread::current().id());
            assert_eq!(addresses.expect("it is known"), [SocketAddr::from(([10, 0, 0, number], 80))]);
        }
    }

    #[test]
    fn literal_addresses_skip_the_thread() {
        let resolver = Resolver::new(Table);
        for (host, address) in [("127.0.0.1", "127.0.0.1:5"), ("::1", "[::1]:5"), ("[::1]", "[::1]:5")] {
            let addresses = resolver.resolve_within(host, 5, Duration::ZERO).expect("it is a literal");
            assert_eq!(addresses, [address.parse().expect("an address")]);
        }
        assert!(!resolver.shared.lock().running);
    }

    #[test]
    fn errors_name_the_host() {
        let resolver = Resolver::new(Table);
        let error =
            |host| resolver.resolve_within(host, 1, PATIENCE).expect_err("it has no address").to_string();
        assert_eq!(error("nowhere"), "resolve nowhere: no such name");
        assert_eq!(error("0.test"), "resolve 0.test: the name has no address");
    }

    #[test]
    fn what_the_resolver_said_is_the_source_of_the_error() {
        #[derive(Debug)]
        struct Odd;
        impl fmt::Display for Odd {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("odd")
            }
        }
        impl Error for Odd {}
        struct Fails;
        impl Resolve for Fails {
            fn resolve(&self, _host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
                Err(io::Error::other(Odd))
            }
        }
        let error = Resolver::new(Fails).resolve_within("a", 1, PATIENCE).expect_err("it always does");
        assert_eq!(error.to_string(), "resolve a: odd");
        assert!(error.source().is_some_and(|source| source.is::<Odd>()));
    }

    #[test]
    fn a_resolver_that_panics_is_an_error_and_answers_the_next() {
        struct Panics;
        impl Resolve for Panics {
            fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
                if host == "panic.test" {
                    panic::resume_unwind(Box::new("on purpose"));
                }
                Table.resolve(host, port)
            }
        }
        let resolver = Resolver::new(Panics);
        let error = resolver.resolve_within("panic.test", 1, PATIENCE).expect_err("it panics");
        assert_eq!(error.to_string(), "resolve panic.test: the resolver panicked");
        assert!(resolver.resolve_within("2.test", 1, PATIENCE).is_ok());
    }

    #[test]
    fn a_name_service_that_hangs_meets_the_timeout_and_the_limit() {
        struct Hangs(Mutex<mpsc::Receiver<()>>);
        impl Resolve for Hangs {
            fn resolve(&self, _host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
                let _ = self.0.lock().expect("nobody panics").recv();
                Err(io::Error::other("woken"))
            }
        }
        let (release, hangs) = mpsc::channel();
        let resolver = Resolver::new(Hangs(Mutex::new(hangs)));
        let error = resolver.resolve_within("a", 1, Duration::from_millis(1)).expect_err("it hangs");
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::TimedOut, "resolve a: no answer within 1ms".to_owned())
        );
        let (done, result) = mpsc::channel();
        for _ in 0..WAITING_MAX + 2 {
            let done = done.clone();
            resolver.resolve("b", 1, Box::new(move |addresses| drop(done.send(addresses))));
        }
        let refused = result.recv_timeout(PATIENCE).expect("one is refused").expect_err("one is refused");
        assert!(refused.to_string().contains("1024 other names"), "{refused}");
        drop(release);
    }

    #[test]
    fn names_asked_for_before_the_drop_are_answered() {
        let resolver = Resolver::new(Table);
        let (done, result) = mpsc::channel();
        resolver.resolve("7.test", 1, Box::new(move |addresses| drop(done.send(addresses))));
        drop(resolver);
        assert!(result.recv_timeout(PATIENCE).expect("it is answered").is_ok());
    }

    #[test]
    fn a_callback_that_panics_does_not_end_the_service() {
        let resolver = Resolver::new(Table);
        let (started, start) = mpsc::channel();
        let panics = move |_| {
            let _ = started.send(());
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        resolver.resolve("1.test", 1, Box::new(panics));
        start.recv_timeout(PATIENCE).expect("the callback runs");
        assert!(resolver.resolve_within("2.test", 1, PATIENCE).is_ok());
    }
}
