use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Closed, Instant};

use crate::connection::{Connection, Node, Side};
use crate::fate::{self, Event};
use crate::ledger::{Ledger, SharedLedger};
use crate::{Random, Trace, Weather};

/// How long a world may take from the hour the links are healed, by its own clock.
const REST_AFTER_HEALING: Duration = Duration::from_secs(300);

/// How long a client waits until it starts a call again that a server did not take: at once, a server that has no room for it yet
/// would see it again and again without time to make some.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// How many steps a world may take: far more than any needs, and few enough to end a loop without progress.
const STEPS_MAX: u64 = 20_000_000;

/// One to three clients and a server of gRPC, and the links between them, in virtual time, with all that may befall them: everything
/// drawn from one seed.
///
/// Calls of all kinds start over some seconds; meanwhile links are slow, show single bytes, stall, or are cut at any byte, politely or
/// not; an end stops reading, for a time or for ever; SETTINGS change windows under way; clocks jump ahead; the server shuts a
/// connection down, and its client makes another. Then everything heals, and the world must come to rest. After each step it is checked that
///
/// - every call ends exactly once, with the status its plan or its timeout allow, or UNAVAILABLE if its connection was harmed, and
///   after all replies if it was answered;
/// - every message is the one that was planned, in its place, and what arrives of a call was sent before;
/// - a call said to be unprocessed never reached the server;
/// - no byte is lost or made up on the way;
/// - what each end writes is legal after what it has taken: whole frames in an order that streams allow, within the windows and the
///   frame size of the peer, settings and pings acknowledged in turn, as a judge sees it who reads the wire on his own account;
/// - nobody waits who has something to do;
/// - a connection ends only if the world ends it, or if it was harmed and a limit on the peer's silence says so;
/// - what waits for a peer that does not read stays within the limit, and the memory of each end within its sum, part by part;
///
/// and when an end goes that it keeps no call and no block.
pub struct World {
    seed: u64,
    now: Instant,
    steps: u64,
    ledger: SharedLedger,
    trace: Trace,
    /// What is still to happen, by time.
    fate: VecDeque<(Instant, Event)>,
    clients: Vec<Node>,
    server: Node,
    /// How the bytes of each client travel.
    weathers: Vec<Weather>,
    connections: Vec<Connection>,
    /// How many connections there were.
    made: u64,
    calls: usize,
    healed: Option<Instant>,
}

/// A world that came to rest with everything as it must be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The hash of all that happened, at what time.
    pub hash: u64,
    /// How many events are in the hash.
    pub events: u64,
    /// How many calls ended.
    pub calls: usize,
    /// How many connections there were.
    pub connections: u64,
    /// How long it took by the world's clock.
    pub time: Duration,
}

/// A world in which something did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The seed that brings it about again.
    pub seed: u64,
    /// When it was seen, by the world's clock.
    pub at: Instant,
    /// What did not hold.
    pub text: String,
}

impl World {
    /// The world of this seed, before anything happened.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clients = [1, 1, 2, 3][random.within(0..=3)];
        let weathers: Vec<_> = (0..clients).map(|_| Weather::draw(&mut random)).collect();
        let configs: Vec<_> = (0..=clients).map(|_| fate::draw_config(&mut random)).collect();
        let scale = fate::draw_scale(&mut random, &weathers, &configs);
        let mut nodes: Vec<_> = configs.into_iter().map(|config| Node::new(config, scale)).collect();
        let server = nodes.swap_remove(clients);
        let calls = random.within(1..=25);
        let mut world = Self {
            seed,
            now: Instant::ZERO,
            steps: 0,
            ledger: Rc::new(RefCell::new(Ledger::new(seed, scale, clients))),
            trace: Trace::new(),
            fate: fate::draw(&mut random, calls, clients).into(),
            clients: nodes,
            server,
            weathers,
            connections: Vec::new(),
            made: 0,
            calls,
            healed: None,
        };
        // The others make a connection when they have a call for it, which may leave before the server has said a word.
        (0..clients).filter(|_| random.one_in(2)).for_each(|client| world.dial(client));
        world
    }

    /// Lets the world go on until it rests.
    ///
    /// # Errors
    /// Something did not hold.
    pub fn run(&mut self) -> Result<Report, Broken> {
        while self.step()? {}
        Ok(Report {
            hash: self.trace.hash(),
            events: self.trace.events(),
            calls: self.calls,
            connections: self.made,
            time: self.now.saturating_duration_since(Instant::ZERO),
        })
    }

    /// Does what is due, or lets time pass until something is. False when the world has come to rest.
    ///
    /// # Errors
    /// Something does not hold.
    pub fn step(&mut self) -> Result<bool, Broken> {
        self.steps += 1;
        while let Some(&(at, event)) = self.fate.front().filter(|(at, _)| *at <= self.now) {
            self.fate.pop_front();
            self.befall(at, event);
        }
        let mut moved = false;
        for connection in &mut self.connections {
            moved |= connection.turn(self.now, &self.ledger, &mut self.trace);
        }
        self.check()?;
        self.schedule_retries();
        self.connections.retain(|connection| !connection.is_over());
        if self.dial_where_calls_wait() || moved {
            return Ok(true);
        }
        self.connections.iter().for_each(|connection| connection.check_idle(&mut self.ledger.borrow_mut()));
        self.check()?;
        if self.is_at_rest() {
            return self.rest().map(|()| false);
        }
        match self.next_time() {
            Some(at) => self.now = self.now.max(at),
            None => return Err(self.standstill()),
        }
        Ok(true)
    }

    /// Keeps each event as a line for a person to read.
    pub fn keep_log(&mut self) {
        self.trace.keep_log();
    }

    /// The lines kept.
    pub fn log(&self) -> &[String] {
        self.trace.log()
    }

    fn befall(&mut self, at: Instant, event: Event) {
        let (name, numbers) = event.describe();
        self.trace.event(self.now, "the world", name, &numbers);
        let (now, ledger) = (self.now, self.ledger.clone());
        match event {
            Event::Start(id) => self.start(id),
            Event::Stall { client, time, there, back } => {
                self.with_latest(client, |connection, _| connection.stall(now + time, there, back));
            }
            Event::ShrinkWindow { client, side, parts } => {
                self.with_latest(client, |connection, trace| {
                    connection.shrink_window(now, side, parts, trace);
                });
            }
            Event::RestoreWindow { client, side } => {
                let of_client = self.connections.iter_mut().filter(|connection| connection.node == client);
                of_client.for_each(|connection| connection.restore_window(side));
            }
            Event::Cut { client, to, after, ending } => {
                self.with_latest(client, |connection, _| connection.cut(to, after, ending, &ledger));
            }
            Event::StopReading { client, side, time } => {
                let until = time.map(|time| now + time);
                self.with_latest(client, |connection, _| connection.stop_reading(side, until, &ledger));
            }
            Event::Jump { client, by } => self.jump(client, by),
            Event::ShutDown { client } => {
                self.with_latest(client, |connection, trace| connection.shut_down(now, trace));
            }
            Event::Heal => {
                self.weathers.fill(Weather::CALM);
                self.connections.iter_mut().for_each(Connection::heal);
                self.healed = Some(at);
            }
        }
    }

    fn start(&mut self, id: u64) {
        let client = id as usize % self.clients.len();
        self.ledger.borrow_mut().waiting[client].push_back(id);
        self.dial_where_calls_wait();
        let now = self.now;
        self.with_latest(client, |connection, trace| connection.start_calls(now, trace));
    }

    /// Calls that a server did not take are started again.
    fn schedule_retries(&mut self) {
        let at = self.now + RETRY_AFTER;
        for id in self.ledger.borrow_mut().retries.drain(..) {
            let position = self.fate.partition_point(|(other, _)| *other <= at);
            self.fate.insert(position, (at, Event::Start(id)));
        }
    }

    fn jump(&mut self, client: Option<usize>, by: Duration) {
        self.ledger.borrow_mut().clocks_jumped = true;
        let (node, side) = match client {
            Some(client) => (&mut self.clients[client], Side::Client),
            None => (&mut self.server, Side::Server),
        };
        node.ahead = node.ahead.saturating_add(by);
        for connection in &mut self.connections {
            if client.is_none_or(|client| connection.node == client) {
                connection.jump(side, by, &self.ledger);
            }
        }
    }

    /// Does something with the connection that a client made last.
    fn with_latest(&mut self, client: usize, act: impl FnOnce(&mut Connection, &mut Trace)) {
        let mut of_client = self.connections.iter_mut().filter(|connection| connection.node == client);
        if let Some(connection) = of_client.next_back() {
            act(connection, &mut self.trace);
        }
    }

    fn dial(&mut self, client: usize) {
        let random = Random::part(self.seed, 1 + self.made);
        let node = (client, &self.clients[client]);
        let weather = &self.weathers[client];
        self.connections.push(Connection::new(self.made, node, &self.server, weather, &self.ledger, random));
        self.made += 1;
    }

    /// A client whose calls wait makes a connection if it has none that takes calls. Returns whether one was made.
    fn dial_where_calls_wait(&mut self) -> bool {
        let made = self.made;
        for client in 0..self.clients.len() {
            if self.ledger.borrow().waiting[client].is_empty() {
                continue;
            }
            let mut latest = self.connections.iter().rev().filter(|connection| connection.node == client);
            if !latest.next().is_some_and(Connection::takes_calls) {
                self.dial(client);
            }
            let now = self.now;
            self.with_latest(client, |connection, trace| connection.start_calls(now, trace));
        }
        self.made > made
    }

    fn is_at_rest(&self) -> bool {
        let only_healing = self.fate.iter().all(|(_, event)| *event == Event::Heal);
        let nothing_waits = self.ledger.borrow().waiting.iter().all(VecDeque::is_empty);
        only_healing && nothing_waits && self.connections.iter().all(Connection::is_quiet)
    }

    /// The last thing to happen: everybody goes.
    fn rest(&mut self) -> Result<(), Broken> {
        self.connections.iter().for_each(Connection::check_at_rest);
        let closed = Closed::caller("the world rests");
        for connection in &mut self.connections {
            connection.close(self.now, &closed, &mut self.trace);
        }
        self.check()?;
        let (ended, all) = (self.ledger.borrow().ended(), self.calls);
        let nodes = self.clients.iter().chain([&self.server]);
        let left: Vec<_> = nodes
            .map(|node| {
                let pool = node.pool.borrow();
                (pool.outstanding(), pool.held_bytes())
            })
            .collect();
        let mut ledger = self.ledger.borrow_mut();
        ledger.check(ended == all, || format!("{ended} of {all} calls have ended"));
        ledger.check(left.iter().all(|&left| left == (0, 0)), || {
            format!("clients and server have leaked blocks, or count bytes as held: {left:?}")
        });
        drop(ledger);
        self.check()
    }

    fn next_time(&self) -> Option<Instant> {
        let fate = self.fate.front().map(|(at, _)| *at);
        self.connections.iter().map(Connection::next_time).chain([fate]).flatten().min()
    }

    /// Everything that must hold at any time.
    fn check(&mut self) -> Result<(), Broken> {
        for note in self.ledger.borrow_mut().take_notes() {
            self.trace.event(self.now, note.who, note.what, &note.numbers);
        }
        let mut ledger = self.ledger.borrow_mut();
        for connection in &self.connections {
            connection.check(&mut ledger, &self.clients[connection.node], &self.server);
        }
        let late = self.healed.is_some_and(|at| self.now > at + REST_AFTER_HEALING) || self.steps > STEPS_MAX;
        let (steps, ended) = (self.steps, ledger.ended());
        ledger.check(!late, || format!("no rest after {steps} steps, {ended} calls have ended"));
        match ledger.broken() {
            Some(text) => Err(Broken { seed: self.seed, at: self.now, text: text.to_owned() }),
            None => Ok(()),
        }
    }

    fn standstill(&self) -> Broken {
        let waiting: usize = self.ledger.borrow().waiting.iter().map(VecDeque::len).sum();
        let connections: Vec<_> = self.connections.iter().map(Connection::describe).collect();
        let text = format!(
            "everything stands still: {waiting} calls wait to be started; {}",
            connections.join("; ")
        );
        Broken { seed: self.seed, at: self.now, text }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} is broken at {:?}: {}", self.seed, self.at, self.text)
    }
}

impl std::error::Error for Broken {}
