//! Cases of many requests, many replies, or both.

use fulmar::Duplex;

use super::failure::{Failure, Outcome, expect_equal};
use super::tester::{Tester, expect_zeros, zeros};
use crate::proto::grpc::testing::{
    ResponseParameters, StreamingInputCallRequest, StreamingOutputCallRequest,
};

/// Bytes of the payloads that go up.
const REQUEST_BYTES: [usize; 4] = [27_182, 8, 1_828, 45_904];

/// Bytes of the payloads that come down.
const RESPONSE_BYTES: [i32; 4] = [31_415, 9, 2_653, 58_979];

/// Four requests, one reply.
pub(super) async fn client_streaming(tester: &Tester) -> Outcome {
    let mut upload = tester.client.streaming_input_call(()).await?;
    for bytes in REQUEST_BYTES {
        let request = StreamingInputCallRequest { payload: Some(zeros(bytes)), ..Default::default() };
        upload.send(&request).await?;
    }
    let reply = upload.finish().await?.into_inner();
    expect_equal("StreamingInputCall: bytes in all", reply.aggregated_payload_size, 74_922)
}

/// One request, four replies.
pub(super) async fn server_streaming(tester: &Tester) -> Outcome {
    let request = StreamingOutputCallRequest {
        response_parameters: RESPONSE_BYTES.map(of_size).to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut replies = tester.client.streaming_output_call(request).await?.into_inner();
    for bytes in RESPONSE_BYTES {
        let Some(reply) = replies.message().await? else {
            return Err(Failure::new(format!(
                "StreamingOutputCall: it ended before the reply of {bytes} bytes"
            )));
        };
        expect_zeros("StreamingOutputCall", reply.payload.as_ref(), bytes as usize)?;
    }
    expect_equal("StreamingOutputCall: a fifth reply", replies.message().await?, None)
}

/// A request, its reply, the next request: four times.
pub(super) async fn ping_pong(tester: &Tester) -> Outcome {
    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(()).await?;
    for (up, down) in REQUEST_BYTES.into_iter().zip(RESPONSE_BYTES) {
        requests.send(&ping(up, down)).await?;
        let Some(reply) = replies.message().await? else {
            return Err(Failure::new(format!("FullDuplexCall: it ended before the reply of {down} bytes")));
        };
        expect_zeros("FullDuplexCall", reply.payload.as_ref(), down as usize)?;
    }
    requests.finish();
    expect_equal("FullDuplexCall: a fifth reply", replies.message().await?, None)
}

/// No message in either direction.
pub(super) async fn empty_stream(tester: &Tester) -> Outcome {
    let Duplex { requests, mut replies } = tester.client.full_duplex_call(()).await?;
    requests.finish();
    expect_equal("FullDuplexCall: a reply", replies.message().await?, None)
}

/// A request with so many bytes, for one reply.
pub(super) fn ping(request_bytes: usize, response_bytes: i32) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![of_size(response_bytes)],
        payload: Some(zeros(request_bytes)),
        ..StreamingOutputCallRequest::default()
    }
}

fn of_size(size: i32) -> ResponseParameters {
    ResponseParameters { size, ..ResponseParameters::default() }
}
