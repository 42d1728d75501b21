//! Calls with one message each way.

use bytes::Bytes;
use fulmar::{Channel, MetadataMap, Request};
use fulmar_benches::engines::{self, Pair};
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_client::blocking::BenchClient as BlockingClient;
use fulmar_benches::proto::{Count as Tick, Payload};

use crate::servers::{
    background, blocking, compressed, in_process, one_thread, placed, unix_blocking, unix_one_thread,
};
use crate::{Counted, Line, Plan, flood, line};

/// The engines alone, without sockets and without an API.
pub(crate) const ENGINES: &[Line] = &[
    line("engines: unary call", 0, |plan| engine_calls(plan, 0)),
    line("engines: unary call, 8 metadata entries", 0, |plan| engine_calls(plan, 8)),
    line("engines: streamed message pair", 0, engine_pairs),
];

pub(crate) const LINES: &[Line] = &[
    line("unary call, blocking client", 0, |plan| {
        blocking(|channel| {
            let mut client = BlockingClient::new(channel);
            plan.count(|| {
                client.tick(TICK)?;
                Ok(())
            })
        })
    }),
    line("unary call, Unix socket, blocking client", 0, |plan| {
        unix_blocking(|channel| {
            let mut client = BlockingClient::new(channel);
            plan.count(|| {
                client.tick(TICK)?;
                Ok(())
            })
        })
    }),
    line("unary call, Unix socket, one thread", 0, |plan| {
        unix_one_thread(async |channel| ticks(plan, channel).await)
    }),
    line("unary call, one thread", 0, |plan| one_thread(async |channel| ticks(plan, channel).await)),
    line("unary call, background reactor", 0, |plan| background(async |channel| ticks(plan, channel).await)),
    line("unary call, placed", 0, |plan| placed(async |channel| ticks(plan, channel).await)),
    line("unary call, in-process", 0, |plan| in_process(async |channel| ticks(plan, channel).await)),
    // An end that the system holds up for a tenth of a second rests, and learns header sections of this size anew afterwards.
    flood("unary call, 8 metadata entries, blocking client", 0, |plan| {
        blocking(|channel| {
            let (metadata, mut client) = (engines::metadata(8), BlockingClient::new(channel));
            plan.count(|| {
                let mut request = Request::new(TICK);
                request.metadata_mut().extend_from(&metadata);
                client.tick(request)?;
                Ok(())
            })
        })
    }),
    line("unary call, 8 metadata entries, one thread", 0, |plan| {
        one_thread(async |channel| ticks_with_metadata(plan, channel).await)
    }),
    flood("unary call, 8 metadata entries, background reactor", 0, |plan| {
        background(async |channel| ticks_with_metadata(plan, channel).await)
    }),
    // Two threads hand each call to one another: how many maps there are at a time is the system's to say.
    flood("unary call, 8 metadata entries, placed", 0, |plan| {
        placed(async |channel| ticks_with_metadata(plan, channel).await)
    }),
    line("unary call, 8 metadata entries, in-process", 0, |plan| {
        in_process(async |channel| ticks_with_metadata(plan, channel).await)
    }),
];

/// Messages of a `bytes` field, as `Bytes`.
pub(crate) const PAYLOADS: &[Line] = &[
    line("unary call of 1 B, one thread", 0, |plan| {
        one_thread(async |channel| echoes(plan, channel, 1).await)
    }),
    line("unary call of 1 KiB, one thread", 0, |plan| {
        one_thread(async |channel| echoes(plan, channel, 1024).await)
    }),
    flood("unary call of 64 KiB, one thread", 0, |plan| {
        one_thread(async |channel| echoes(plan, channel, 64 * 1024).await)
    }),
    flood("unary call of 4 MiB, one thread", 0, |plan| {
        one_thread(async |channel| echoes(plan, channel, FOUR_MIB).await)
    }),
    line("unary call of 1 KiB, Unix socket, one thread", 0, |plan| {
        unix_one_thread(async |channel| echoes(plan, channel, 1024).await)
    }),
    flood("unary call of 64 KiB, Unix socket, one thread", 0, |plan| {
        unix_one_thread(async |channel| echoes(plan, channel, 64 * 1024).await)
    }),
    line("unary call of 1 KiB, in-process", 0, |plan| {
        in_process(async |channel| echoes(plan, channel, 1024).await)
    }),
    flood("unary call of 64 KiB, in-process", 0, |plan| {
        in_process(async |channel| echoes(plan, channel, 64 * 1024).await)
    }),
    flood("unary call of 4 MiB, in-process", 0, |plan| {
        in_process(async |channel| echoes(plan, channel, FOUR_MIB).await)
    }),
    line("unary call of 1 KiB, blocking client", 0, |plan| blocking_echoes(plan, 1024)),
    flood("unary call of 64 KiB, blocking client", 0, |plan| blocking_echoes(plan, 64 * 1024)),
    flood("unary call of 4 MiB, blocking client", 0, |plan| blocking_echoes(plan, FOUR_MIB)),
];

/// Messages of 1 KiB that get smaller, compressed both ways.
pub(crate) const COMPRESSED: &[Line] = &[
    line("unary call of 1 KiB, gzip, one thread", 0, |plan| packed_echoes(plan, "gzip")),
    line("unary call of 1 KiB, deflate, one thread", 0, |plan| packed_echoes(plan, "deflate")),
    line("unary call of 1 KiB, zstd, one thread", 0, |plan| packed_echoes(plan, "zstd")),
];

/// Owns no heap.
pub(crate) const TICK: Tick = Tick { number: 7 };

/// As long as a message may be that has such a field.
const FOUR_MIB: usize = 4 * 1024 * 1024 - 16;

/// Fewer large messages than small ones, so that a line takes no longer than the others.
const BYTES_MAX: u64 = 1_000_000_000;

/// How often calls are made that take more than 100 µs each.
pub(crate) const SLOW_CALLS_MAX: u64 = 20_000;

fn engine_calls(plan: &Plan, entries: usize) -> Counted {
    let mut pair = Pair::new(engines::metadata(entries))?;
    plan.count(|| pair.unary(1, b"x"))
}

fn engine_pairs(plan: &Plan) -> Counted {
    let mut pair = Pair::new(MetadataMap::new())?;
    pair.open_streams(1)?;
    // So that windows are updated in the warm-up too, which many small messages would do much later.
    pair.ping_pong(&[7; 64 * 1024])?;
    plan.count(|| pair.ping_pong(b"x"))
}

pub(crate) async fn ticks(plan: &Plan, channel: Channel) -> Counted {
    let client = BenchClient::new(channel);
    plan.count_async(async || {
        client.tick(TICK).await?;
        Ok(())
    })
    .await
}

/// Eight entries with the request, and the same before the reply.
async fn ticks_with_metadata(plan: &Plan, channel: Channel) -> Counted {
    let (metadata, client) = (engines::metadata(8), BenchClient::new(channel));
    plan.count_async(async || {
        let mut request = Request::new(TICK);
        request.metadata_mut().extend_from(&metadata);
        client.tick(request).await?;
        Ok(())
    })
    .await
}

async fn echoes(plan: &Plan, channel: Channel, bytes: usize) -> Counted {
    let (payload, client) = (payload(bytes), BenchClient::new(channel));
    shortened(plan, bytes)
        .count_async(async || {
            client.unary(payload.clone()).await?;
            Ok(())
        })
        .await
}

fn blocking_echoes(plan: &Plan, bytes: usize) -> Counted {
    let payload = payload(bytes);
    blocking(|channel| {
        let mut client = BlockingClient::new(channel);
        shortened(plan, bytes).count(|| {
            client.unary(payload.clone())?;
            Ok(())
        })
    })
}

fn packed_echoes(plan: &Plan, encoding: &str) -> Counted {
    compressed(encoding, async |channel| {
        let client = BenchClient::new(channel);
        let payload = payload(1024);
        plan.at_most(SLOW_CALLS_MAX)
            .count_async(async || {
                let response = client.unary(payload.clone()).await?;
                if response.was_compressed() { Ok(()) } else { Err("a reply is not compressed".into()) }
            })
            .await
    })
}

fn payload(bytes: usize) -> Payload {
    Payload { body: Bytes::from(vec![7; bytes]) }
}

fn shortened(plan: &Plan, bytes: usize) -> Plan {
    let calls = BYTES_MAX / bytes as u64;
    Plan { warm_up: plan.warm_up.min(calls), ..plan.at_most(calls) }
}
