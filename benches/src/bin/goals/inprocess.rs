//! Calls through memory, both ends and the caller on one thread.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fulmar::{Channel, LocalReactor, Payload, Request, Response, Router, Server, Service};
use fulmar_benches::meter::process_cpu_ns;

use crate::{Fallible, Plan, Row, median};

const PATH_BYTES: &str = "/fulmar.bench.Owned/Bytes";
const PATH_VEC: &str = "/fulmar.bench.Owned/Vec";
const PAYLOAD_BYTES: usize = 1_024;

/// A message that shares its bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct OfBytes {
    #[prost(bytes = "bytes", tag = "1")]
    body: Bytes,
}

/// The same message with bytes of its own.
#[derive(Clone, PartialEq, prost::Message)]
struct OfVec {
    #[prost(bytes = "vec", tag = "1")]
    body: Vec<u8>,
}

struct Owned;

impl Service for Owned {
    fn name(&self) -> &'static str {
        "fulmar.bench.Owned"
    }

    fn register(&self, router: &mut Router) {
        router.unary(PATH_BYTES, &Arc::new(()), |_, request: Request<OfBytes>| async move {
            Ok(Response::new(request.into_inner()))
        });
        router.unary(PATH_VEC, &Arc::new(()), |_, request: Request<OfVec>| async move {
            Ok(Response::new(request.into_inner()))
        });
    }
}

pub(crate) fn times(plan: &Plan) -> Fallible<Vec<Row>> {
    let shared = OfBytes { body: Bytes::from(vec![7; PAYLOAD_BYTES]) };
    let owned = OfVec { body: vec![7; PAYLOAD_BYTES] };
    let none = String::new;
    Ok(vec![
        Row::at_most("unary, 1,024 B as `Bytes`, one thread", 0.5, time(plan, PATH_BYTES, &shared)?, none()),
        Row::at_most("unary, 1,024 B as `Vec`, one thread", 0.8, time(plan, PATH_VEC, &owned)?, none()),
    ])
}

/// Microseconds a call.
fn time<M: Payload + Clone>(plan: &Plan, path: &str, message: &M) -> Fallible<f64> {
    let mut reactor = LocalReactor::new()?;
    let server = Server::builder().add_service(Owned).without_listener()?;
    let channel = reactor.serve(server)?.in_process();
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds {
        // The first round's first calls fill the pools.
        call(&mut reactor, &channel, path, message, 1_000)?;
        let (began, cpu_began, mut calls) = (Instant::now(), process_cpu_ns(), 0);
        while began.elapsed() < plan.time / plan.rounds {
            call(&mut reactor, &channel, path, message, 1_000)?;
            calls += 1_000;
        }
        let cpu_micros = (process_cpu_ns() - cpu_began) as f64 / 1e3;
        let micros = if plan.by_cpu { cpu_micros } else { began.elapsed().as_secs_f64() * 1e6 };
        rounds.push(micros / f64::from(calls));
    }
    median(rounds)
}

fn call<M: Payload + Clone>(
    reactor: &mut LocalReactor,
    channel: &Channel,
    path: &str,
    message: &M,
    calls: u32,
) -> Fallible<()> {
    reactor.block_on(async {
        for _ in 0..calls {
            let reply: Response<M> = channel.unary(path, message.clone()).await?;
            std::hint::black_box(reply);
        }
        Ok(())
    })
}
