use std::time::Duration;

use fulmar_base::{Closed, Instant, Plain};
use fulmar_grpc::{Config, Memory};
use fulmar_http2::{Role, Sends};

use crate::callee::Callee;
use crate::caller::{Ask, Caller};
use crate::driver::SharedPool;
use crate::ledger::{Ledger, SharedLedger};
use crate::link::Ending;
use crate::plan::Scale;
use crate::tap::{SharedCalls, Tap};
use crate::{Driver, Link, Random, Trace, Weather, wire};

/// What an end that was mistreated may close its connection for by itself: the peer's silence. Nothing else, and no other end.
const SILENCES: [&str; 7] = [
    "preface_ms",
    "settings_ack_ms",
    "frame_ms",
    "header_block_ms",
    "credit_wait_ms",
    "stall_ms",
    "output_bytes_max",
];

/// Client or server of a world: what its connections share.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) pool: SharedPool,
    /// How far its clock is ahead of the world's.
    pub(crate) ahead: Duration,
    /// The most memory that an end of it may hold.
    memory_max: Memory,
}

/// What stands in front of each message.
const PREFIX_BYTES: usize = 5;

/// More fields than any header section of a world has.
const FIELDS_MAX: usize = 20;

impl Node {
    pub(crate) fn new(config: Config, scale: Scale) -> Self {
        let sends = Sends {
            data_bytes_max: scale.message_bytes_max + PREFIX_BYTES,
            fields_max: FIELDS_MAX,
            field_bytes_max: scale.metadata_bytes_max + 1_000,
        };
        let memory_max = config.memory_max(&sends);
        Self { config, pool: SharedPool::default(), ahead: Duration::ZERO, memory_max }
    }
}

/// Which end of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Both ends of a connection and the link between them.
pub(crate) struct Connection {
    number: u64,
    /// Which client's it is.
    pub(crate) node: usize,
    client: Driver<Plain<Caller>>,
    server: Driver<Plain<Callee>>,
    there: Link,
    back: Link,
    random: Random,
    /// Something was done to it that calls need not survive.
    harmed: bool,
    /// A side has stopped reading, not to begin again.
    deaf: bool,
    draining: bool,
    /// What the client may send on a stream, and what the server may.
    windows: [Window; 2],
    /// Whether what the client sends, and what the server sends, ends because its sender is gone.
    spread: [bool; 2],
}

/// What one side may send on a stream at first.
struct Window {
    /// As the other side says itself.
    bytes: u32,
    /// As it seems to say for a time, which is less.
    shrunk: bool,
    /// Not for much longer.
    restores: bool,
}

impl Window {
    fn of(receiver: &Node) -> Self {
        Self { bytes: receiver.config.http2.stream_window_bytes, shrunk: false, restores: false }
    }
}

impl Connection {
    pub(crate) fn new(
        number: u64,
        (node, client): (usize, &Node),
        server: &Node,
        weather: &Weather,
        ledger: &SharedLedger,
        mut random: Random,
    ) -> Self {
        let eager = random.one_in(2);
        let calls = SharedCalls::default();
        let tap = |role, node: &Node| Some(Tap::new(role, &node.config.http2, calls.clone()));
        let caller = Caller::new(client.config.clone(), ledger.clone(), (node, number), eager);
        let callee = Callee::new(server.config.clone(), ledger.clone(), number);
        let mut link = || Link::new(weather.clone(), Random::new(random.bits()));
        Self {
            number,
            node,
            client: Driver::of_node(
                format!("client {node}.{number}"),
                Plain(caller),
                client.pool.clone(),
                client.ahead,
                tap(Role::Client, client),
            ),
            server: Driver::of_node(
                format!("server {node}.{number}"),
                Plain(callee),
                server.pool.clone(),
                server.ahead,
                tap(Role::Server, server),
            ),
            there: link(),
            back: link(),
            random,
            harmed: false,
            deaf: false,
            draining: false,
            windows: [Window::of(server), Window::of(client)],
            spread: [false; 2],
        }
    }

    /// Each end does one thing that is due. Returns whether anything happened.
    pub(crate) fn turn(&mut self, now: Instant, ledger: &SharedLedger, trace: &mut Trace) -> bool {
        self.restore_windows(now, trace);
        let client_first = self.random.one_in(2);
        let Self { client, server, there, back, .. } = self;
        let first = client_first && client.turn(now, back, there, trace);
        let served = server.turn(now, there, back, trace);
        let last = !client_first && client.turn(now, back, there, trace);
        self.settle(now, ledger, trace) || first || served || last
    }

    /// The client starts the calls that wait, unless it was told to wait for room.
    pub(crate) fn start_calls(&mut self, now: Instant, trace: &mut Trace) {
        if self.client.transport().0.takes_calls() {
            self.client.command(now, Ask::Start, trace);
        }
    }

    /// The server takes no more calls.
    pub(crate) fn shut_down(&mut self, now: Instant, trace: &mut Trace) {
        self.draining = true;
        self.server.command(now, Ask::ShutDown, trace);
    }

    /// One side may send only a part of the window on a stream, `parts` of 256, and so less on the streams that are open; until the
    /// window is restored.
    pub(crate) fn shrink_window(&mut self, now: Instant, side: Side, parts: u32, trace: &mut Trace) {
        let bytes = (u64::from(self.windows[side as usize].bytes) * u64::from(parts) / 256) as u32;
        if self.set_window(now, side, bytes, trace) {
            self.windows[side as usize].shrunk = true;
        }
    }

    /// Each side may send what the other one says itself, as soon as that can be said.
    pub(crate) fn restore_window(&mut self, side: Side) {
        let window = &mut self.windows[side as usize];
        window.restores = window.shrunk;
    }

    fn restore_windows(&mut self, now: Instant, trace: &mut Trace) {
        for side in [Side::Client, Side::Server] {
            let Window { bytes, restores, .. } = self.windows[side as usize];
            if restores && self.set_window(now, side, bytes, trace) {
                self.windows[side as usize] = Window { bytes, shrunk: false, restores: false };
            }
        }
    }

    fn set_window(&mut self, now: Instant, side: Side, bytes: u32, trace: &mut Trace) -> bool {
        let entry = (wire::SETTINGS_INITIAL_WINDOW_SIZE, bytes);
        match side {
            Side::Client => self.client.slip_in_settings(now, entry, trace),
            Side::Server => self.server.slip_in_settings(now, entry, trace),
        }
    }

    pub(crate) fn stall(&mut self, until: Instant, there: bool, back: bool) {
        [(there, &mut self.there), (back, &mut self.back)]
            .into_iter()
            .filter(|(stalls, _)| *stalls)
            .for_each(|(_, link)| link.stall(until));
    }

    /// One side reads nothing for a time, or ever again.
    pub(crate) fn stop_reading(&mut self, side: Side, until: Option<Instant>, ledger: &SharedLedger) {
        self.harm(ledger);
        self.deaf |= until.is_none();
        let until = until.unwrap_or(Instant::from_nanos(u64::MAX));
        match side {
            Side::Client => self.client.stop_reading(until),
            Side::Server => self.server.stop_reading(until),
        }
    }

    /// What goes to one side ends after so many more bytes.
    pub(crate) fn cut(&mut self, to: Side, after: u64, ending: Ending, ledger: &SharedLedger) {
        self.harm(ledger);
        match to {
            Side::Client => self.back.cut(after, ending),
            Side::Server => self.there.cut(after, ending),
        }
    }

    pub(crate) fn jump(&mut self, side: Side, by: Duration, ledger: &SharedLedger) {
        self.harm(ledger);
        match side {
            Side::Client => self.client.jump(by),
            Side::Server => self.server.jump(by),
        }
    }

    /// From here on the link is calm, and a side that would not read any more is dead.
    pub(crate) fn heal(&mut self) {
        self.there.heal();
        self.back.heal();
        if self.deaf {
            self.client.stop_reading(Instant::ZERO);
            self.server.stop_reading(Instant::ZERO);
            self.there.cut(0, Ending::Reset);
            self.back.cut(0, Ending::Reset);
        }
    }

    /// What must hold before time passes: that nobody has anything to do.
    pub(crate) fn check_idle(&self, ledger: &mut Ledger) {
        let works =
            [(self.client.has_work(), self.client.name()), (self.server.has_work(), self.server.name())];
        for (works, name) in works {
            ledger.check(!works, || format!("{name} waits, although it has something to do"));
        }
    }

    /// What must hold when nothing is open, waits or is under way.
    pub(crate) fn check_at_rest(&self) {
        self.client.check_at_rest();
        self.server.check_at_rest();
    }

    pub(crate) fn close(&mut self, now: Instant, closed: &Closed, trace: &mut Trace) {
        self.client.close(now, closed, trace);
        self.server.close(now, closed, trace);
    }

    pub(crate) fn next_time(&self) -> Option<Instant> {
        let deadlines = [self.client.next_deadline(), self.server.next_deadline()];
        let reads = [self.client.next_read(&self.back), self.server.next_read(&self.there)];
        deadlines.into_iter().chain(reads).flatten().min()
    }

    /// Whether the client may start calls here.
    pub(crate) fn takes_calls(&self) -> bool {
        self.client.closed().is_none() && !self.client.transport().0.is_going_away()
    }

    /// Whether both ends know that it is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.client.is_over() && self.server.is_over()
    }

    /// Whether nothing is open, waits or is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        let bytes =
            self.client.waiting() + self.server.waiting() + self.there.under_way() + self.back.under_way();
        let halves = self.client.is_over() != self.server.is_over();
        !halves
            && bytes == 0
            && self.client.transport().0.calls() == 0
            && self.server.transport().0.calls() == 0
    }

    /// What must hold at any time.
    pub(crate) fn check(&self, ledger: &mut Ledger, client: &Node, server: &Node) {
        for link in [&self.there, &self.back] {
            let ((accepted, delivered, lost), under_way) = (link.totals(), link.under_way() as u64);
            ledger.check(accepted == delivered + lost + under_way, || {
                format!(
                    "of {accepted} bytes {delivered} arrived, {lost} were lost and {under_way} are under way"
                )
            });
            ledger.check(lost == 0 || self.harmed || self.client.is_over() || self.server.is_over(), || {
                format!("{lost} bytes were lost on the way")
            });
        }
        for (waiting, node) in [(self.client.waiting(), client), (self.server.waiting(), server)] {
            let most = node.config.http2.output_bytes_max;
            ledger.check(waiting <= most, || format!("{waiting} bytes wait to be written, more than {most}"));
        }
        for (name, held, node) in self.memory(client, server) {
            let most = &node.memory_max;
            for ((part, held), (_, most)) in held.parts().zip(most.parts()) {
                ledger.check(held <= most, || {
                    format!("{name} holds {held} bytes for {part}, more than {most}")
                });
            }
        }
        let ends = [
            (self.client.is_over(), self.client.blocks(), self.client.name()),
            (self.server.is_over(), self.server.blocks(), self.server.name()),
        ];
        for (over, blocks, name) in ends {
            ledger.check(!over || blocks == 0, || format!("{name} has leaked {blocks} blocks"));
        }
    }

    /// What each end holds.
    fn memory<'n>(&self, client: &'n Node, server: &'n Node) -> [(&str, Memory, &'n Node); 2] {
        let with_driver = |mut memory: Memory, (output, unread): (usize, usize)| {
            (memory.http2.output, memory.http2.unread) = (output, unread);
            memory
        };
        let of_client = with_driver(self.client.transport().0.memory(), self.client.memory_bytes());
        let of_server = with_driver(self.server.transport().0.memory(), self.server.memory_bytes());
        [(self.client.name(), of_client, client), (self.server.name(), of_server, server)]
    }

    /// Where everything stands, for a person.
    pub(crate) fn describe(&self) -> String {
        format!(
            "on connection {} the client has {} calls and {} bytes to write, the server {} and {}, {} bytes are under way there and \
             {} back",
            self.number,
            self.client.transport().0.calls(),
            self.client.waiting(),
            self.server.transport().0.calls(),
            self.server.waiting(),
            self.there.under_way(),
            self.back.under_way(),
        )
    }

    fn harm(&mut self, ledger: &SharedLedger) {
        self.harmed = true;
        ledger.borrow_mut().harmed.insert(self.number);
    }

    /// Lets ends that have given up go when they have said why, and the other end learn of it.
    fn settle(&mut self, now: Instant, ledger: &SharedLedger, trace: &mut Trace) -> bool {
        let failures = [self.client.failure(), self.server.failure()];
        for closed in failures.into_iter().flatten() {
            let excused = self.harmed && SILENCES.iter().any(|limit| closed.text.contains(limit));
            ledger
                .borrow_mut()
                .check(excused, || format!("an end has closed connection {}: {closed}", self.number));
        }
        let drained =
            self.draining && self.server.closed().is_none() && self.server.transport().0.is_drained();
        let shut_down = Closed::caller("the server has shut down");
        let client_goes = self.client.failure().is_some() && self.client.waiting() == 0;
        let server_goes = (drained || self.server.failure().is_some()) && self.server.waiting() == 0;
        if client_goes {
            self.client.close(now, &shut_down, trace);
        }
        if server_goes {
            self.server.close(now, &shut_down, trace);
        }
        self.spread_the_end();
        client_goes || server_goes
    }

    /// What an end that is gone had written arrives, or, if it did not go in peace, not all of it.
    fn spread_the_end(&mut self) {
        let ends = [(self.client.is_over(), &mut self.there), (self.server.is_over(), &mut self.back)];
        for ((over, link), spread) in ends.into_iter().zip(&mut self.spread) {
            if over && !*spread {
                *spread = true;
                if self.harmed && self.random.one_in(2) {
                    link.cut(self.random.within(0..=link.under_way()) as u64, Ending::Reset);
                } else {
                    link.cut(0, Ending::Eof);
                }
            }
        }
    }
}
