//! A toy protocol of lines, a host that does what letters say, and ways to drive both.
#![allow(dead_code, unreachable_pub)]

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Closed, Env, Instant, TaskId, Transport};
use fulmar_reactor::{
    Address, ConnectionHandle, ConnectionKey, Core, Host, ListenerKey, Reactor, ReactorConfig, Socket, clock,
};

/// No test waits longer than this for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What happened to a transport, for the test to look at.
#[derive(Default, Debug)]
pub struct Log {
    pub received: Vec<u8>,
    pub receives: usize,
    /// How many bytes were offered at the last receive.
    pub offered: usize,
    pub transmits: usize,
    pub wakes: Vec<u64>,
    pub commands: usize,
    pub deadlines: Vec<Instant>,
    pub closes: Vec<Closed>,
}

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// Takes whole lines. Answers each with itself, if it is an echo; `quit` with `bye`, and is over.
#[derive(Default)]
pub struct Lines {
    pub echo: bool,
    /// Takes any bytes at once, not only whole lines.
    pub raw: bool,
    /// How long it takes over each receive.
    pub slow: Duration,
    /// Bytes that wait for room in the output, like DATA of an engine.
    pub bulk: usize,
    /// Breaks the loop contract: has something to transmit, and does not.
    pub lazy: bool,
    pub deadline: Option<Instant>,
    pub handle: Option<ConnectionHandle>,
    pub log: Rc<RefCell<Log>>,
}

impl Lines {
    pub fn echo() -> Self {
        Self { echo: true, ..Self::default() }
    }

    pub fn raw() -> Self {
        Self { raw: true, ..Self::default() }
    }
}

pub enum Command {
    /// These bytes, at once.
    Say(Vec<u8>),
    /// So many bytes, when there is room.
    Bulk(usize),
    At(Instant),
    Fail(&'static str),
}

impl Transport for Lines {
    type Command = Command;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        let end = match wire.iter().rposition(|&byte| byte == b'\n') {
            _ if self.raw => wire.len(),
            Some(at) => at + 1,
            None => 0,
        };
        let mut log = self.log.borrow_mut();
        log.receives += 1;
        log.offered = wire.len();
        std::thread::sleep(self.slow);
        log.received.extend_from_slice(&wire[..end]);
        if self.echo {
            env.out.extend_from_slice(&wire[..end]);
        }
        if wire[..end].ends_with(b"quit\n") {
            env.out.extend_from_slice(b"bye\n");
            return Err(Closed::peer("it quit"));
        }
        Ok(end)
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.log.borrow_mut().transmits += 1;
        while self.bulk > 0 && env.out.room() > 0 && !self.lazy {
            let len = self.bulk.min(env.out.room()).min(16 * 1024);
            let filled = env.out.bytes_mut().len() + len;
            env.out.bytes_mut().resize(filled, b'.');
            self.bulk -= len;
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.deadline = None;
        self.log.borrow_mut().deadlines.push(env.now);
        env.out.extend_from_slice(b"late\n");
        Ok(())
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: Command) -> Result<(), Closed> {
        self.log.borrow_mut().commands += 1;
        match command {
            Command::Say(bytes) => env.out.extend_from_slice(&bytes),
            Command::Bulk(bytes) => self.bulk += bytes,
            Command::At(deadline) => self.deadline = Some(deadline),
            Command::Fail(text) => {
                env.out.extend_from_slice(b"failed\n");
                return Err(Closed::caller(text));
            }
        }
        Ok(())
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        self.log.borrow_mut().wakes.push(task.0);
        env.out.extend_from_slice(format!("woken {}\n", task.0).as_bytes());
        Ok(())
    }

    fn has_work(&self, is_room: bool) -> bool {
        is_room && self.bulk > 0
    }

    fn on_close(&mut self, _env: &mut Env<'_>, closed: &Closed) {
        self.log.borrow_mut().closes.push(closed.clone());
    }
}

type Act = Box<dyn FnOnce(&mut Toy, &mut Core<Lines, Letter>) + Send>;

/// A letter says what is to be done.
pub struct Letter(pub Act);

pub fn letter(act: impl FnOnce(&mut Toy, &mut Core<Lines, Letter>) + Send + 'static) -> Letter {
    Letter(Box::new(act))
}

/// Gives every accepted connection a transport, and keeps a record.
pub struct Toy {
    /// What accepted connections get; `None` refuses them.
    pub make: fn() -> Option<Lines>,
    pub accepted: Vec<(ConnectionKey, Rc<RefCell<Log>>)>,
    pub refused: usize,
    pub connected: Vec<ConnectionKey>,
    pub closed: Vec<(ConnectionKey, String)>,
    pub notes: Vec<u64>,
    /// What tasks ask for without letters, as numbers to be noted.
    pub asked: Rc<RefCell<Vec<u64>>>,
}

impl Toy {
    pub fn new() -> Self {
        Self {
            make: || Some(Lines::echo()),
            accepted: Vec::new(),
            refused: 0,
            connected: Vec::new(),
            closed: Vec::new(),
            notes: Vec::new(),
            asked: Rc::default(),
        }
    }

    pub fn closed_text(&self, key: ConnectionKey) -> Option<&str> {
        self.closed.iter().find(|(closed, _)| *closed == key).map(|(_, text)| text.as_str())
    }
}

impl Host for Toy {
    type Transport = Lines;
    type Letter = Letter;

    fn on_accept(&mut self, core: &mut Core<Lines, Letter>, _: ListenerKey, socket: Socket) {
        let Some(mut lines) = (self.make)() else {
            self.refused += 1;
            return;
        };
        let log = Rc::clone(&lines.log);
        let key = core.adopt(socket, |handle| {
            lines.handle = Some(handle);
            lines
        });
        self.accepted.push((key, log));
    }

    fn catch_up(&mut self, _: &mut Core<Lines, Letter>) -> bool {
        let asked = std::mem::take(&mut *self.asked.borrow_mut());
        self.notes.extend(&asked);
        !asked.is_empty()
    }

    fn is_behind(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    fn on_letter(&mut self, core: &mut Core<Lines, Letter>, letter: Letter) {
        (letter.0)(self, core);
    }

    fn on_connected(&mut self, _: &mut Core<Lines, Letter>, connection: ConnectionKey) {
        self.connected.push(connection);
    }

    fn on_closed(
        &mut self,
        core: &mut Core<Lines, Letter>,
        connection: ConnectionKey,
        transport: Lines,
        closed: &Closed,
    ) {
        assert_eq!(
            transport.log.borrow().closes,
            std::slice::from_ref(closed),
            "on_close comes first, and once"
        );
        assert!(core.transport(connection).is_none(), "the connection is over");
        self.closed.push((connection, closed.text.to_string()));
    }
}

pub type Toys = Reactor<Toy>;

pub fn toys() -> Toys {
    toys_with(ReactorConfig::default())
}

pub fn toys_with(config: ReactorConfig) -> Toys {
    Reactor::new(config, |_| Toy::new()).expect("the system has a selector")
}

/// Turns the reactor until `done`.
#[track_caller]
pub fn turn_until(reactor: &mut Toys, mut done: impl FnMut(&mut Toys) -> bool) {
    let end = clock() + PATIENCE;
    while !done(reactor) {
        assert!(clock() < end, "it did not happen in time; closed: {:?}", reactor.host().closed);
        reactor.turn(Some(Duration::from_millis(5))).expect("turning works");
    }
}

/// A listener of the reactor at a port of the system's choice.
pub fn listen(reactor: &mut Toys) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    reactor.core().listen(listener).expect("the selector takes it");
    address
}

/// Dials, with a transport whose log comes back.
pub fn dial(
    reactor: &mut Toys,
    address: impl Into<Address>,
    lines: Lines,
) -> (ConnectionKey, Rc<RefCell<Log>>) {
    let log = Rc::clone(&lines.log);
    let make = |handle| Lines { handle: Some(handle), ..lines };
    (reactor.core().dial(address, Some(PATIENCE), make), log)
}

#[track_caller]
pub fn say(reactor: &mut Toys, key: ConnectionKey, text: &str) {
    command(reactor, key, Command::Say(text.as_bytes().to_vec()));
}

#[track_caller]
pub fn command(reactor: &mut Toys, key: ConnectionKey, command: Command) {
    assert!(reactor.core().command(key, command).is_ok(), "the connection takes commands");
}

/// A blocking client that gives up at some time.
pub fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the listener is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("it takes a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("it takes a timeout");
    stream
}

/// A connected pair of blocking sockets.
pub fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let one = client(listener.local_addr().expect("it is bound"));
    let (other, _) = listener.accept().expect("it was connected");
    other.set_read_timeout(Some(PATIENCE)).expect("it takes a timeout");
    other.set_write_timeout(Some(PATIENCE)).expect("it takes a timeout");
    (one, other)
}

pub fn read_to_end(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it ends in order");
    text
}

pub fn write_all(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("it is open");
}
