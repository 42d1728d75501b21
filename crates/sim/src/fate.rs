use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::Config;

use crate::connection::Side;
use crate::link::Ending;
use crate::plan::Scale;
use crate::{Random, Weather};

/// What a world does to those in it. Clients and calls go by their numbers; what befalls a client befalls its latest connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The user starts a call.
    Start(u64),
    /// One direction, or both, stall for a time.
    Stall { client: usize, time: Duration, there: bool, back: bool },
    /// One side may send only so many parts of 256 of its windows.
    ShrinkWindow { client: usize, side: Side, parts: u32 },
    /// It may send all of them again, on all connections of the client.
    RestoreWindow { client: usize, side: Side },
    /// What goes to one side ends after so many more bytes.
    Cut { client: usize, to: Side, after: u64, ending: Ending },
    /// One side reads nothing for a time, or not any more.
    StopReading { client: usize, side: Side, time: Option<Duration> },
    /// The clock of the server, or of a client, jumps ahead.
    Jump { client: Option<usize>, by: Duration },
    /// The server shuts down the connection.
    ShutDown { client: usize },
    /// All is well from here on.
    Heal,
}

impl Event {
    /// For the trace: a name, and numbers that tell one of a kind from another.
    pub(crate) fn describe(&self) -> (&'static str, [u64; 3]) {
        let nanos = |time: Duration| time.as_nanos() as u64;
        match *self {
            Self::Start(call) => ("has a call for its client:", [call, 0, 0]),
            Self::Stall { client, time, there, back } => (
                "stalls (client, ns, 1 there + 2 back):",
                [client as u64, nanos(time), u64::from(there) + 2 * u64::from(back)],
            ),
            Self::Cut { client, to, after, ending } => (
                match (to, ending) {
                    (Side::Client, Ending::Eof) => "ends what goes to the client (client, after bytes):",
                    (Side::Server, Ending::Eof) => "ends what goes to the server (client, after bytes):",
                    (Side::Client, Ending::Reset) => "resets what goes to the client (client, after bytes):",
                    (Side::Server, Ending::Reset) => "resets what goes to the server (client, after bytes):",
                },
                [client as u64, after, 0],
            ),
            Self::StopReading { client, side, time } => (
                match side {
                    Side::Client => "keeps the client from reading (client, ns or 0 for ever):",
                    Side::Server => "keeps the server from reading (client, ns or 0 for ever):",
                },
                [client as u64, time.map_or(0, nanos), 0],
            ),
            Self::ShrinkWindow { client, side, parts } => (
                match side {
                    Side::Client => "shrinks what the client may send (client, parts of 256):",
                    Side::Server => "shrinks what the server may send (client, parts of 256):",
                },
                [client as u64, parts.into(), 0],
            ),
            Self::RestoreWindow { client, side } => (
                match side {
                    Side::Client => "restores what the client may send (client):",
                    Side::Server => "restores what the server may send (client):",
                },
                [client as u64, 0, 0],
            ),
            Self::Jump { client: None, by } => ("moves the clock of the server (ns):", [nanos(by), 0, 0]),
            Self::Jump { client: Some(client), by } => {
                ("moves the clock of a client (client, ns):", [client as u64, nanos(by), 0])
            }
            Self::ShutDown { client } => ("has the server shut down (client):", [client as u64, 0, 0]),
            Self::Heal => ("heals", [0; 3]),
        }
    }
}

/// What happens in a world, by time: calls, and troubles, and at last no more of them.
pub(crate) fn draw(random: &mut Random, calls: usize, clients: usize) -> Vec<(Instant, Event)> {
    let span = Duration::from_secs(5);
    let mut fate: Vec<_> = (0..calls as u64).map(|id| (random.time(span), Event::Start(id))).collect();
    draw_windows(random, &mut fate, clients);
    for _ in 0..random.within(0..=3) {
        let (there, back) = [(true, true), (true, false), (false, true)][random.within(0..=2)];
        let client = random.within(0..=clients - 1);
        let time = random.time(Duration::from_millis(800));
        fate.push((random.time(span), Event::Stall { client, time, there, back }));
    }
    // Three worlds in five know none of what follows: there every call has to end as planned.
    if !random.one_in(5) && random.one_in(2) {
        for _ in 0..random.within(1..=3) {
            fate.push((random.time(span), draw_trouble(random, clients)));
        }
    }
    if random.one_in(4) {
        fate.push((random.time(span), Event::ShutDown { client: random.within(0..=clients - 1) }));
    }
    fate.push((Duration::from_secs(60), Event::Heal));
    fate.sort_by_key(|(at, _)| *at);
    fate.into_iter().map(|(at, event)| (Instant::ZERO + at, event)).collect()
}

/// In every other world windows change when calls are under way.
fn draw_windows(random: &mut Random, fate: &mut Vec<(Duration, Event)>, clients: usize) {
    if random.one_in(2) {
        return;
    }
    for position in 0..fate.len() {
        let (start, Event::Start(id)) = fate[position] else { continue };
        let client = id as usize % clients;
        let side = [Side::Client, Side::Server][random.within(0..=1)];
        let parts = [0, 0, 1, 100, 255][random.within(0..=4)];
        let at = start + random.time(Duration::from_millis(300));
        fate.push((at, Event::ShrinkWindow { client, side, parts }));
        fate.push((at + random.time(Duration::from_millis(800)), Event::RestoreWindow { client, side }));
    }
}

/// Something that calls need not survive.
fn draw_trouble(random: &mut Random, clients: usize) -> Event {
    let client = random.within(0..=clients - 1);
    let side = [Side::Client, Side::Server][random.within(0..=1)];
    match random.within(0..=3) {
        0 | 1 => {
            let ending = [Ending::Eof, Ending::Reset][random.within(0..=1)];
            Event::Cut { client, to: side, after: random.magnitude(100_000) as u64, ending }
        }
        2 => {
            let time = (!random.one_in(3)).then(|| random.time(Duration::from_secs(20)));
            Event::StopReading { client, side, time }
        }
        _ => {
            let by = [
                Duration::from_millis(100),
                Duration::from_secs(15),
                Duration::from_secs(100 * 365 * 86_400),
            ];
            let client = (side == Side::Client).then_some(client);
            Event::Jump { client, by: by[random.within(0..=2)] }
        }
    }
}

/// Worlds that show single bytes, or give credit for single bytes, are small, to be run in a moment.
pub(crate) fn draw_scale(random: &mut Random, weathers: &[Weather], configs: &[Config]) -> Scale {
    let windows = configs.iter().map(|config| config.http2.stream_window_bytes as usize);
    let chunks = weathers.iter().map(|weather| weather.chunk_max);
    let least = chunks.chain(windows).min().unwrap_or(usize::MAX);
    let messages_max = random.within(1..=8);
    match least {
        0..10 => Scale { messages_max, message_bytes_max: 200, metadata_bytes_max: 200 },
        10..1000 => Scale { messages_max, message_bytes_max: 8_000, metadata_bytes_max: 2_000 },
        // Now and then a message is more than the output takes at a time.
        _ if random.one_in(16) => {
            Scale { messages_max: 2, message_bytes_max: 600_000, metadata_bytes_max: 100 }
        }
        _ => Scale { messages_max, message_bytes_max: 100_000, metadata_bytes_max: 40_000 },
    }
}

pub(crate) fn draw_config(random: &mut Random) -> Config {
    let mut config = Config::default();
    config.http2.stream_window_bytes = [1, 500, 5_000, 65_535, 1 << 20][random.within(0..=4)];
    config.http2.connection_window_bytes = [65_535, 1 << 20][random.within(0..=1)];
    config.http2.window_bytes_max = [0, 100_000, 16 << 20][random.within(0..=2)];
    config.http2.streams_max = [1, 3, 1000][random.within(0..=2)];
    config.held_bytes_max = [10_000, 64 << 20][random.within(0..=1)];
    config.http2.frame_bytes_max = [16_384, 65_536][random.within(0..=1)];
    config.http2.send_queue_bytes_max = [1_000, 65_536][random.within(0..=1)];
    config.http2.output_bytes_max = [512 * 1024, 2 * 1024 * 1024][random.within(0..=1)];
    config.http2.header_list_bytes_max = 64 * 1024;
    config.http2.header_table_bytes_max = [0, 100, 4_096][random.within(0..=2)];
    config
}
