//! Streams, message by message.

use bytes::Bytes;
use fulmar::{Channel, Duplex, blocking as blocking_api};
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::bench_client::blocking::BenchClient as BlockingBench;
use fulmar_benches::proto::contract::contract_client::ContractClient;
use fulmar_benches::proto::contract::contract_client::blocking::ContractClient as BlockingContract;
use fulmar_benches::proto::contract::{Mixed, Tick};
use fulmar_benches::proto::{Count, Payload};

use crate::calls::{SLOW_CALLS_MAX, TICK};
use crate::servers::{background, blocking, compressed, in_process, one_thread, placed};
use crate::{Counted, Line, Plan, flood, line};

pub(crate) const LINES: &[Line] = &[
    line("streamed message pair, blocking client", 0, blocking_pairs),
    line("streamed message pair, one thread", 0, |plan| {
        one_thread(async |channel| pairs(plan, channel).await)
    }),
    line("streamed message pair, background reactor", 0, |plan| {
        background(async |channel| pairs(plan, channel).await)
    }),
    line("streamed message pair, placed", 0, |plan| placed(async |channel| pairs(plan, channel).await)),
    line("streamed message pair, in-process", 0, |plan| {
        in_process(async |channel| pairs(plan, channel).await)
    }),
    flood("message of a client's stream, blocking client", 0, blocking_uploads),
    flood("message of a client's stream, one thread", 0, |plan| {
        one_thread(async |channel| uploads(plan, channel).await)
    }),
    flood("message of a client's stream, background reactor", 0, |plan| {
        background(async |channel| uploads(plan, channel).await)
    }),
    flood("message of a client's stream, in-process", 0, |plan| {
        in_process(async |channel| uploads(plan, channel).await)
    }),
    flood("message of a server's stream, blocking client", 0, blocking_downloads),
    flood("message of a server's stream, one thread", 0, |plan| {
        one_thread(async |channel| downloads(plan, channel).await)
    }),
    flood("message of a server's stream, background reactor", 0, |plan| {
        background(async |channel| downloads(plan, channel).await)
    }),
    flood("message of a server's stream, in-process", 0, |plan| {
        in_process(async |channel| downloads(plan, channel).await)
    }),
    line("pair of strings, bytes, numbers, blocking client", 0, blocking_mixes),
    line("pair of strings, bytes, numbers, one thread", 0, |plan| {
        one_thread(async |channel| mixes(plan, channel).await)
    }),
    line("pair of strings, bytes, numbers, background reactor", 0, |plan| {
        background(async |channel| mixes(plan, channel).await)
    }),
    line("pair of strings, bytes, numbers, placed", 0, |plan| {
        placed(async |channel| mixes(plan, channel).await)
    }),
    line("pair of strings, bytes, numbers, in-process", 0, |plan| {
        in_process(async |channel| mixes(plan, channel).await)
    }),
    flood("pair of 64 KiB, one thread", 0, |plan| one_thread(async |channel| payloads(plan, channel).await)),
    line("pair of 1 KiB, gzip, one thread", 0, |plan| packed_mixes(plan, "gzip")),
    line("pair of 1 KiB, deflate, one thread", 0, |plan| packed_mixes(plan, "deflate")),
    line("pair of 1 KiB, zstd, one thread", 0, |plan| packed_mixes(plan, "zstd")),
];

/// How many messages are under way before the counting begins, in streams of one direction.
fn warmed(plan: &Plan) -> u64 {
    plan.warm_up + plan.calls + 1
}

/// What a stream of one direction begins with, so that windows and buffers are full before the counting begins: a thousand messages
/// that own no heap would fill neither.
fn padding() -> Bytes {
    Bytes::from(vec![7; 1024])
}

/// Padded ones while it is warm-up, and then such as own no heap.
fn ticks(plan: &Plan) -> impl Iterator<Item = Tick> + use<> {
    let padding = padding();
    let padded = (0..plan.warm_up).map(move |number| Tick { number, padding: padding.clone() });
    padded.chain((0..).map(|number| Tick { number, ..Tick::default() }))
}

fn mixed() -> Mixed {
    Mixed {
        name: "Fulmarus glacialis".to_owned(),
        body: Bytes::from(vec![7; 300]),
        numbers: (0..100).map(|number| number * 300).collect(),
        weights: vec![0.8; 20],
        id: -7,
        is_wild: true,
    }
}

pub(crate) async fn pairs(plan: &Plan, channel: Channel) -> Counted {
    let Duplex { mut requests, mut replies } = BenchClient::new(channel).ticks(()).await?;
    let mut reply = Count::default();
    plan.count_async(async || {
        requests.send(&TICK).await?;
        replies.message_into(&mut reply).await?;
        Ok(())
    })
    .await
}

fn blocking_pairs(plan: &Plan) -> Counted {
    blocking(|channel| {
        let mut client = BlockingBench::new(channel);
        let mut call = client.ticks(())?;
        let mut reply = Count::default();
        plan.count(|| {
            call.send(&TICK)?;
            call.message_into(&mut reply)?;
            Ok(())
        })
    })
}

async fn uploads(plan: &Plan, channel: Channel) -> Counted {
    let mut upload = ContractClient::new(channel).upload(()).await?;
    let mut ticks = ticks(plan);
    plan.count_async(async || Ok(upload.send(&ticks.next().unwrap_or_default()).await?)).await
}

fn blocking_uploads(plan: &Plan) -> Counted {
    blocking(|channel| {
        let mut client = BlockingContract::new(channel);
        let mut upload: blocking_api::Upload<'_, Tick, Tick> = client.upload(())?;
        let mut ticks = ticks(plan);
        plan.count(|| Ok(upload.send(&ticks.next().unwrap_or_default())?))
    })
}

async fn downloads(plan: &Plan, channel: Channel) -> Counted {
    let response =
        ContractClient::new(channel).download(Tick { number: warmed(plan), padding: padding() }).await?;
    let (mut replies, mut reply) = (response.into_inner(), Tick::default());
    plan.count_async(async || {
        if replies.message_into(&mut reply).await? { Ok(()) } else { Err("too few messages".into()) }
    })
    .await
}

fn blocking_downloads(plan: &Plan) -> Counted {
    blocking(|channel| {
        let mut client = BlockingContract::new(channel);
        let response = client.download(Tick { number: warmed(plan), padding: padding() })?;
        let (mut replies, mut reply) = (response.into_inner(), Tick::default());
        plan.count(|| if replies.message_into(&mut reply)? { Ok(()) } else { Err("too few messages".into()) })
    })
}

async fn mixes(plan: &Plan, channel: Channel) -> Counted {
    let Duplex { mut requests, mut replies } = ContractClient::new(channel).mix(()).await?;
    let (message, mut reply) = (mixed(), Mixed::default());
    plan.count_async(async || {
        requests.send(&message).await?;
        replies.message_into(&mut reply).await?;
        if reply == message { Ok(()) } else { Err("another message came back".into()) }
    })
    .await
}

fn blocking_mixes(plan: &Plan) -> Counted {
    blocking(|channel| {
        let mut client = BlockingContract::new(channel);
        let mut call = client.mix(())?;
        let (message, mut reply) = (mixed(), Mixed::default());
        plan.count(|| {
            call.send(&message)?;
            call.message_into(&mut reply)?;
            if reply == message { Ok(()) } else { Err("another message came back".into()) }
        })
    })
}

fn packed_mixes(plan: &Plan, encoding: &str) -> Counted {
    compressed(encoding, async |channel| mixes(&plan.at_most(SLOW_CALLS_MAX), channel).await)
}

async fn payloads(plan: &Plan, channel: Channel) -> Counted {
    let Duplex { mut requests, mut replies } = BenchClient::new(channel).ping_pong(()).await?;
    let (payload, mut reply) = (Payload { body: Bytes::from(vec![7; 64 * 1024]) }, Payload::default());
    plan.at_most(SLOW_CALLS_MAX)
        .count_async(async || {
            requests.send(&payload).await?;
            replies.message_into(&mut reply).await?;
            Ok(())
        })
        .await
}
