use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Closed, Instant, Plain};
use fulmar_grpc::Config;

use crate::callee::Callee;
use crate::caller::{Ask, Caller};
use crate::ledger::{Ledger, SharedLedger};
use crate::plan::Scale;
use crate::{Driver, Link, Random, Trace, Weather};

/// How long a world may take from the hour the links are healed, by its own clock.
const REST_AFTER_HEALING: Duration = Duration::from_secs(300);

/// How many steps a world may take: far more than any needs, and few enough to end a loop without progress.
const STEPS_MAX: u64 = 20_000_000;

/// A client and a server of gRPC on a link, in virtual time, with all that may befall them: everything drawn from one seed.
///
/// Calls of all kinds start over some seconds; meanwhile the link is slow, shows single bytes, stalls, is cut and made again, or
/// the server shuts down and another takes over. Then the link heals, and the world must come to rest. After each step it is
/// checked that
///
/// - every call ends exactly once, with the status its plan, its timeout or a cut allow, and after all replies if it was answered;
/// - every message is the one that was planned, in its place;
/// - a call said to be unprocessed never reached the server;
/// - no byte is lost or made up on the way;
/// - a connection ends only if the world ends it;
/// - what waits for a peer that does not read stays within the limit;
///
/// and when a connection ends that no end keeps a call or a block.
pub struct World {
    seed: u64,
    random: Random,
    now: Instant,
    steps: u64,
    ledger: SharedLedger,
    trace: Trace,
    /// What is still to happen, by time.
    fate: VecDeque<(Instant, Event)>,
    configs: [Config; 2],
    weather: Weather,
    connection: Connection,
    connections: u64,
    calls: usize,
    draining: bool,
    healed: Option<Instant>,
}

/// What a world does to those in it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Event {
    /// The user starts a call.
    Start(u64),
    /// One direction, or both, stall for a time.
    Stall(Duration, bool, bool),
    /// The connection is cut.
    Cut,
    /// The server shuts down.
    ShutDown,
    /// The link is calm from here on.
    Heal,
}

/// Both ends of a connection and the link between them.
struct Connection {
    client: Driver<Plain<Caller>>,
    server: Driver<Plain<Callee>>,
    there: Link,
    back: Link,
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
        let weather = Weather::draw(&mut random);
        let configs = [draw_config(&mut random), draw_config(&mut random)];
        let scale = draw_scale(&mut random, &weather);
        let ledger = Rc::new(RefCell::new(Ledger::new(seed, scale)));
        let calls = random.within(1..=25);
        let fate = draw_fate(&mut random, calls);
        let connection = Connection::new(&configs, &weather, &ledger, Random::part(seed, 1));
        Self {
            seed,
            random,
            now: Instant::ZERO,
            steps: 0,
            ledger,
            trace: Trace::new(),
            fate: fate.into(),
            configs,
            weather,
            connection,
            connections: 1,
            calls,
            draining: false,
            healed: None,
        }
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
            connections: self.connections,
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
        let moved = self.connection.turn(self.now, &mut self.trace, self.random.one_in(2));
        self.check()?;
        if moved {
            return Ok(true);
        }
        if self.draining && self.connection.is_drained() {
            self.draining = false;
            self.reconnect(&Closed::caller("the server has shut down"));
            return self.check().map(|()| true);
        }
        if self.is_at_rest() {
            self.connection.close(self.now, &Closed::caller("the world rests"), &mut self.trace);
            return self.check().map(|()| false);
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
        match event {
            Event::Start(id) => {
                self.ledger.borrow_mut().waiting.push_back(id);
                self.connection.client.command(self.now, Ask::Start);
            }
            Event::Stall(time, there, back) => {
                self.trace.event(self.now, "stall", &[time.as_nanos() as u64]);
                let until = self.now + time;
                [(there, &mut self.connection.there), (back, &mut self.connection.back)]
                    .into_iter()
                    .filter(|(stalls, _)| *stalls)
                    .for_each(|(_, link)| link.stall(until));
            }
            Event::Cut => {
                self.trace.event(self.now, "cut", &[]);
                self.ledger.borrow_mut().cut = true;
                self.draining = false;
                self.reconnect(&Closed::peer("the link was cut"));
            }
            Event::ShutDown => {
                self.trace.event(self.now, "shutdown", &[]);
                self.connection.server.command(self.now, Ask::ShutDown);
                self.draining = true;
            }
            Event::Heal => {
                self.trace.event(self.now, "heal", &[]);
                self.weather = Weather::CALM;
                self.connection.there.heal();
                self.connection.back.heal();
                self.healed = Some(at);
            }
        }
    }

    fn reconnect(&mut self, closed: &Closed) {
        self.connection.close(self.now, closed, &mut self.trace);
        self.check_blocks();
        self.connections += 1;
        let random = Random::part(self.seed, self.connections);
        self.connection = Connection::new(&self.configs, &self.weather, &self.ledger, random);
    }

    fn is_at_rest(&self) -> bool {
        let ledger = self.ledger.borrow();
        let only_healing = self.fate.iter().all(|(_, event)| *event == Event::Heal);
        only_healing && ledger.waiting.is_empty() && self.connection.is_quiet()
    }

    fn next_time(&self) -> Option<Instant> {
        let fate = self.fate.front().map(|(at, _)| *at);
        [fate, self.connection.next_time()].into_iter().flatten().min()
    }

    /// Everything that must hold at any time.
    fn check(&mut self) -> Result<(), Broken> {
        for note in self.ledger.borrow_mut().take_notes() {
            self.trace.event(note.at, note.name, &note.numbers);
        }
        self.connection.check(&mut self.ledger.borrow_mut(), &self.configs);
        if self.connection.is_closed_by_world() {
            self.check_blocks();
            let ended = self.ledger.borrow().ended();
            let all = self.calls;
            self.ledger.borrow_mut().check(ended == all, || format!("{ended} of {all} calls have ended"));
        }
        let late = self.healed.is_some_and(|at| self.now > at + REST_AFTER_HEALING) || self.steps > STEPS_MAX;
        let (steps, seed, at) = (self.steps, self.seed, self.now);
        let mut ledger = self.ledger.borrow_mut();
        let ended = ledger.ended();
        ledger.check(!late, || format!("no rest after {steps} steps, {ended} calls have ended"));
        match ledger.broken() {
            Some(text) => Err(Broken { seed, at, text: text.to_owned() }),
            None => Ok(()),
        }
    }

    fn check_blocks(&self) {
        let blocks = [self.connection.client.blocks(), self.connection.server.blocks()];
        let mut ledger = self.ledger.borrow_mut();
        ledger.check(blocks == [0, 0], || format!("client and server have leaked {blocks:?} blocks"));
    }

    fn standstill(&self) -> Broken {
        let (client, server) = (&self.connection.client, &self.connection.server);
        let text = format!(
            "everything stands still: {} calls wait to be started, the client has {} calls and {} bytes to write, the server {} and \
             {}, {} bytes are under way there and {} back",
            self.ledger.borrow().waiting.len(),
            client.transport().0.calls(),
            client.waiting(),
            server.transport().0.calls(),
            server.waiting(),
            self.connection.there.under_way(),
            self.connection.back.under_way(),
        );
        Broken { seed: self.seed, at: self.now, text }
    }
}

impl Connection {
    fn new(configs: &[Config; 2], weather: &Weather, ledger: &SharedLedger, mut random: Random) -> Self {
        let [client, server] = configs.clone();
        let eager = random.one_in(2);
        let mut link = || Link::new(weather.clone(), Random::new(random.bits()));
        Self {
            client: Driver::new("client", Plain(Caller::new(client, ledger.clone(), eager))),
            server: Driver::new("server", Plain(Callee::new(server, ledger.clone()))),
            there: link(),
            back: link(),
        }
    }

    /// Each end does one thing that is due. Returns whether anything happened.
    fn turn(&mut self, now: Instant, trace: &mut Trace, client_first: bool) -> bool {
        let Self { client, server, there, back } = self;
        let first = client_first && client.turn(now, back, there, trace);
        let served = server.turn(now, there, back, trace);
        let last = !client_first && client.turn(now, back, there, trace);
        first || served || last
    }

    fn close(&mut self, now: Instant, closed: &Closed, trace: &mut Trace) {
        self.client.close(now, closed, trace);
        self.server.close(now, closed, trace);
    }

    fn next_time(&self) -> Option<Instant> {
        let ends = [self.client.next_deadline(), self.server.next_deadline()];
        let links = [self.there.next_arrival(), self.back.next_arrival()];
        ends.into_iter().chain(links).flatten().min()
    }

    /// Whether nothing is open, waits or is under way.
    fn is_quiet(&self) -> bool {
        self.client.transport().0.calls() == 0
            && self.server.transport().0.calls() == 0
            && self.bytes_left() == 0
    }

    fn is_drained(&self) -> bool {
        self.is_quiet() && self.server.transport().0.is_drained()
    }

    fn bytes_left(&self) -> usize {
        self.client.waiting() + self.server.waiting() + self.there.under_way() + self.back.under_way()
    }

    fn is_closed_by_world(&self) -> bool {
        self.client.closed().is_some_and(is_by_world) && self.server.closed().is_some_and(is_by_world)
    }

    fn check(&self, ledger: &mut Ledger, configs: &[Config; 2]) {
        for (name, closed) in [("client", self.client.closed()), ("server", self.server.closed())] {
            let by_itself = closed.filter(|closed| !is_by_world(closed));
            ledger.check(by_itself.is_none(), || format!("the {name} closed the connection: {by_itself:?}"));
        }
        for link in [&self.there, &self.back] {
            let ((accepted, delivered), under_way) = (link.totals(), link.under_way() as u64);
            ledger.check(accepted == delivered + under_way, || {
                format!("of {accepted} bytes {delivered} arrived and {under_way} are under way")
            });
        }
        let ends = [self.client.waiting(), self.server.waiting()];
        for (waiting, config) in ends.into_iter().zip(configs) {
            let most = config.http2.output_bytes_max;
            ledger.check(waiting <= most, || format!("{waiting} bytes wait to be written, more than {most}"));
        }
    }
}

/// The world closes with the words it uses above; whatever else closes is an end's own doing.
fn is_by_world(closed: &Closed) -> bool {
    ["the link was cut", "the server has shut down", "the world rests"].contains(&&*closed.text)
}

/// What happens in a world, by time: calls, and troubles, and at last no more of them.
fn draw_fate(random: &mut Random, calls: usize) -> Vec<(Instant, Event)> {
    let span = Duration::from_secs(5);
    let mut fate: Vec<_> = (0..calls as u64).map(|id| (random.time(span), Event::Start(id))).collect();
    for _ in 0..random.within(0..=3) {
        let (there, back) = [(true, true), (true, false), (false, true)][random.within(0..=2)];
        fate.push((random.time(span), Event::Stall(random.time(Duration::from_millis(800)), there, back)));
    }
    if random.one_in(4) {
        fate.push((random.time(span), Event::Cut));
    }
    if random.one_in(4) {
        fate.push((random.time(span), Event::ShutDown));
    }
    fate.push((Duration::from_secs(60), Event::Heal));
    fate.sort_by_key(|(at, _)| *at);
    fate.into_iter().map(|(at, event)| (Instant::ZERO + at, event)).collect()
}

/// Worlds that show single bytes are small, to be run in a moment.
fn draw_scale(random: &mut Random, weather: &Weather) -> Scale {
    let (message_bytes_max, metadata_bytes_max) = match weather.chunk_max {
        0..10 => (200, 200),
        10..1000 => (8_000, 2_000),
        _ => (100_000, 40_000),
    };
    Scale { messages_max: random.within(1..=8), message_bytes_max, metadata_bytes_max }
}

fn draw_config(random: &mut Random) -> Config {
    let mut config = Config::default();
    config.http2.stream_window_bytes = [500, 5_000, 65_535, 1 << 20][random.within(0..=3)];
    config.http2.connection_window_bytes = [65_535, 1 << 20][random.within(0..=1)];
    config.http2.streams_max = [1, 3, 1000][random.within(0..=2)];
    config.http2.frame_bytes_max = [16_384, 65_536][random.within(0..=1)];
    config.http2.send_queue_bytes_max = [1_000, 65_536][random.within(0..=1)];
    config.http2.header_list_bytes_max = 64 * 1024;
    config.http2.header_table_bytes_max = [0, 100, 4_096][random.within(0..=2)];
    config
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} is broken at {:?}: {}", self.seed, self.at, self.text)
    }
}

impl std::error::Error for Broken {}
