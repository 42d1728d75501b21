//! Calls that end before the server has ended them.

use std::time::Duration;

use fulmar::{Code, Duplex, Request};

use super::failure::{Failure, Outcome, expect_code};
use super::streaming::ping;
use super::tester::{Tester, expect_zeros, zeros};
use crate::proto::grpc::testing::{
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
};

/// A client stream is given up before its first request.
pub(super) async fn cancel_after_begin(tester: &Tester) -> Outcome {
    // Opened as a stream both ways, whose halves are apart: one is dropped, which cancels, and the other sees what becomes of it.
    let call = tester.channel.bidi::<StreamingInputCallRequest, StreamingInputCallResponse>(
        "/grpc.testing.TestService/StreamingInputCall",
        (),
    );
    let Duplex { requests, mut replies } = call.await?;
    drop(requests);
    expect_code("StreamingInputCall", replies.message().await, Code::Cancelled)?;
    Ok(())
}

/// A stream both ways is given up after its first reply.
pub(super) async fn cancel_after_first_response(tester: &Tester) -> Outcome {
    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(()).await?;
    requests.send(&ping(27_182, 31_415)).await?;
    let Some(reply) = replies.message().await? else {
        return Err(Failure::new("FullDuplexCall: it ended before its first reply"));
    };
    expect_zeros("FullDuplexCall", reply.payload.as_ref(), 31_415)?;
    drop(requests);
    expect_code("FullDuplexCall", replies.message().await, Code::Cancelled)?;
    Ok(())
}

/// The deadline passes while the server waits for what never comes.
pub(super) async fn timeout_on_sleeping_server(tester: &Tester) -> Outcome {
    let request = Request::new(()).with_timeout(Duration::from_millis(1));
    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(request).await?;
    let request = StreamingOutputCallRequest { payload: Some(zeros(27_182)), ..Default::default() };
    // The deadline may have passed by then.
    if let Err(status) = requests.send(&request).await {
        expect_code::<()>("FullDuplexCall", Err(status), Code::DeadlineExceeded)?;
    }
    expect_code("FullDuplexCall", replies.message().await, Code::DeadlineExceeded)?;
    Ok(())
}
