//! A proxy for TCP that lets bytes pass, stalls, or cuts connections off, as paths do.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often a thread looks whether something has changed.
const LOOKS: Duration = Duration::from_millis(5);

/// Takes connections and joins each to a connection of its own to the same address.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    pairs: Mutex<Vec<Arc<Pair>>>,
    taken: AtomicUsize,
    ended: AtomicBool,
}

struct Pair {
    sides: [TcpStream; 2],
    stalled: AtomicBool,
    over: AtomicBool,
}

impl Proxy {
    pub fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            pairs: Mutex::default(),
            taken: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let runs = shared.clone();
        thread::spawn(move || runs.run(&listener));
        Self { address, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were made through it.
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::SeqCst)
    }

    /// Lets nothing pass any more on the connections that there are, in either direction, and keeps them open: a path that drops
    /// everything. Later connections are not concerned.
    pub fn stall(&self) {
        for pair in self.shared.pairs.lock().unwrap().iter() {
            pair.stalled.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the connections that there are in order.
    pub fn cut(&self) {
        for pair in self.shared.pairs.lock().unwrap().drain(..) {
            pair.over.store(true, Ordering::SeqCst);
            pair.sides.iter().for_each(|side| drop(side.shutdown(Shutdown::Both)));
        }
    }

    /// Resets the connections that there are.
    pub fn reset(&self) {
        for pair in self.shared.pairs.lock().unwrap().drain(..) {
            for side in &pair.sides {
                socket2::SockRef::from(side).set_linger(Some(Duration::ZERO)).unwrap();
            }
            // Closing the last handle resets: the threads let go of theirs.
            pair.over.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.cut();
    }
}

impl Shared {
    fn run(&self, listener: &TcpListener) {
        while !self.ended.load(Ordering::SeqCst) {
            match listener.accept() {
                Ok((client, _)) => {
                    self.taken.fetch_add(1, Ordering::SeqCst);
                    // One that nobody serves ends.
                    if let Ok(server) = TcpStream::connect(self.upstream) {
                        self.join(client, server);
                    }
                }
                Err(_) => thread::sleep(LOOKS),
            }
        }
    }

    fn join(&self, client: TcpStream, server: TcpStream) {
        for side in [&client, &server] {
            side.set_nonblocking(false).unwrap();
            side.set_nodelay(true).unwrap();
            side.set_read_timeout(Some(LOOKS)).unwrap();
            side.set_write_timeout(Some(LOOKS)).unwrap();
        }
        let pair = Arc::new(Pair {
            sides: [client, server],
            stalled: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        self.pairs.lock().unwrap().push(pair.clone());
        for from in 0..2 {
            let pair = pair.clone();
            thread::spawn(move || pair.carry(from));
        }
    }
}

impl Pair {
    /// Carries bytes from one side to the other until either ends.
    fn carry(&self, from: usize) {
        let (mut from, mut to) = (&self.sides[from], &self.sides[1 - from]);
        let mut buffer = vec![0; 64 * 1024];
        let is_later =
            |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted);
        while !self.over.load(Ordering::SeqCst) {
            if self.stalled.load(Ordering::SeqCst) {
                thread::sleep(LOOKS);
                continue;
            }
            let read = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if is_later(error.kind()) => continue,
                Err(_) => break,
            };
            // What was read as the path went dead goes no further.
            while self.stalled.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
                thread::sleep(LOOKS);
            }
            let mut left = &buffer[..read];
            while !left.is_empty() && !self.over.load(Ordering::SeqCst) {
                match to.write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) if is_later(error.kind()) => {}
                    Err(_) => return,
                }
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
