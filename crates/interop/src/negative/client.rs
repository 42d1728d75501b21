//! What a client must make of it.

use std::thread;
use std::time::Duration;

use fulmar::Code;
use futures::future::try_join_all;

use super::{Case, Options};
use crate::client::{Failure, Outcome, Tester, expect_code, large_request, large_unary};

/// Calls that the client makes at the same time where only one is allowed: what grpc-go's client makes, the most of all.
const PARALLEL_CALLS: usize = 15;

/// Runs a case against a server. Waits for it: not to be called on a reactor's thread.
///
/// # Errors
/// What was not as the case expects.
pub fn run(options: &Options) -> Outcome {
    let connect = crate::client::Options {
        server_host: options.host.clone(),
        server_port: options.port,
        ..crate::client::Options::default()
    };
    futures::executor::block_on(async {
        let tester = Tester::connect(&connect).await?;
        match options.case {
            Case::GoAway => go_away(&tester).await,
            Case::RstAfterHeader | Case::RstDuringData | Case::RstAfterData => {
                reset(&tester, options.case).await
            }
            Case::Ping | Case::DataFramePadding | Case::NoDataFramePadding => large_unary(&tester).await,
            Case::MaxStreams => max_streams(&tester).await,
        }
    })
}

/// The second call takes another connection, of which the application sees nothing.
async fn go_away(tester: &Tester) -> Outcome {
    large_unary(tester).await?;
    // The connection lives on a thread of its own; this gives GOAWAY, which is still under way, the time to arrive there.
    thread::sleep(Duration::from_secs(1));
    large_unary(tester).await
}

/// A stream that ends without trailers is an error, whatever the code of its reset says (PROTOCOL-HTTP2 "Errors").
async fn reset(tester: &Tester, case: Case) -> Outcome {
    let result = tester.client.unary_call(large_request()).await;
    expect_code(case.name(), result.map(|_| "a reply"), Code::Internal)?;
    Ok(())
}

/// The calls wait for each other, and all succeed.
async fn max_streams(tester: &Tester) -> Outcome {
    // Until it has ended, the limit has arrived.
    large_unary(tester).await?;
    try_join_all((0..PARALLEL_CALLS).map(|_| large_unary(tester)))
        .await
        .map_err(|failure| Failure::new(format!("{PARALLEL_CALLS} calls, one at a time: {failure}")))?;
    Ok(())
}
