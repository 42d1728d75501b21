//! Calls that end otherwise than with a reply.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fulmar::{Channel, Code, Request, Response, Status};
use fulmar_benches::proto::bench_client::BenchClient;
use fulmar_benches::proto::contract::Tick;
use fulmar_benches::proto::contract::contract_client::ContractClient;
use fulmar_benches::proto::contract::contract_client::blocking::ContractClient as BlockingContract;
use futures::future::{join5, poll_fn};

use crate::calls::{SLOW_CALLS_MAX, TICK};
use crate::servers::{background, blocking, in_process, one_thread};
use crate::{Counted, Line, Plan, flood, line};

/// A status that comes with a text owns it: one allocation at the client.
pub(crate) const LINES: &[Line] = &[
    line("failed call with a text, blocking client", 1, blocking_failures),
    line("failed call with a text, one thread", 1, |plan| {
        one_thread(async |channel| failures(plan, channel).await)
    }),
    line("failed call with a text, background reactor", 1, |plan| {
        background(async |channel| failures(plan, channel).await)
    }),
    line("failed call with a text, in-process", 1, |plan| {
        in_process(async |channel| failures(plan, channel).await)
    }),
    line("cancelled call, one thread", 0, |plan| one_thread(async |channel| cancels(plan, channel).await)),
    line("cancelled call, background reactor", 0, |plan| {
        background(async |channel| cancels(plan, channel).await)
    }),
    line("cancelled call, in-process", 0, |plan| in_process(async |channel| cancels(plan, channel).await)),
    flood("25 expired calls, one thread", 0, |plan| {
        one_thread(async |channel| expiries(plan, channel).await)
    }),
    flood("25 expired calls, background reactor", 0, |plan| {
        background(async |channel| expiries(plan, channel).await)
    }),
    flood("25 expired calls, in-process", 0, |plan| {
        in_process(async |channel| expiries(plan, channel).await)
    }),
];

fn expect_code(ended: Result<Response<Tick>, Status>, code: Code) -> crate::Done {
    match ended {
        Err(status) if status.code() == code => Ok(()),
        Err(status) => Err(status.into()),
        Ok(_) => Err("a call succeeds that was to fail".into()),
    }
}

async fn failures(plan: &Plan, channel: Channel) -> Counted {
    let client = ContractClient::new(channel);
    plan.count_async(async || expect_code(client.fail(Tick::default()).await, Code::NotFound)).await
}

fn blocking_failures(plan: &Plan) -> Counted {
    blocking(|channel| {
        let mut client = BlockingContract::new(channel);
        plan.count(|| expect_code(client.fail(Tick::default()), Code::NotFound))
    })
}

/// A call that its handler has, and whose caller gives it up. The calls around it, which allocate nothing, see that both ends have
/// got so far.
async fn cancels(plan: &Plan, channel: Channel) -> Counted {
    let (client, other) = (ContractClient::new(channel.clone()), BenchClient::new(channel));
    plan.count_async(async || {
        {
            let mut call = pin!(client.hang(Tick::default()));
            poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Pending => Poll::Ready(Ok(())),
                Poll::Ready(ended) => Poll::Ready(ended.map(drop)),
            })
            .await?;
            other.tick(TICK).await?;
        }
        other.tick(TICK).await?;
        Ok(())
    })
    .await
}

/// Calls whose deadline passes while their handlers wait, 25 at a time, since each takes a millisecond.
async fn expiries(plan: &Plan, channel: Channel) -> Counted {
    let client = ContractClient::new(channel);
    // A connection keeps the latest header blocks that it has seen twice. With a timeout hardly one is like another, and it would go on
    // making room for them for long.
    for seconds in 0..100 {
        let timeout = Duration::from_secs(10_000_000 + seconds / 3);
        let request = Request::new(Tick::default()).with_timeout(timeout);
        expect_code(client.fail(request).await, Code::NotFound)?;
    }
    let call = || async {
        let request = Request::new(Tick::default()).with_timeout(Duration::from_millis(1));
        expect_code(client.hang(request).await, Code::DeadlineExceeded)
    };
    let five = || async {
        let (a, b, c, d, e) = join5(call(), call(), call(), call(), call()).await;
        a.and(b).and(c).and(d).and(e)
    };
    let plan = Plan { warm_up: plan.warm_up / 25, ..plan.at_most(plan.calls.min(SLOW_CALLS_MAX) / 25) };
    plan.count_async(async || {
        let (a, b, c, d, e) = join5(five(), five(), five(), five(), five()).await;
        a.and(b).and(c).and(d).and(e)
    })
    .await
}
