//! Compressed messages: in one direction or the other, for a whole call or message by message.

use fulmar::{Code, Compress, Compression, Request, Response, Status};

use super::failure::{Failure, Outcome, expect_code, expect_equal};
use super::tester::{Tester, expect_zeros, zeros};
use super::unary::{expect_large, large_request};
use crate::proto::grpc::testing::{
    BoolValue, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest,
};

/// A compressed request is told from a plain one: a plain one that claims to be compressed, as the probe, must be found out.
pub(super) async fn client_compressed_unary(tester: &Tester) -> Outcome {
    let probe = call_with(tester, true, Compression::Off).await;
    expect_code("UnaryCall: a plain request that claims to be compressed", probe, Code::InvalidArgument)?;
    client_compressed_unary_noprobe(tester).await
}

/// One compressed request, one plain one.
pub(super) async fn client_compressed_unary_noprobe(tester: &Tester) -> Outcome {
    for (is_compressed, compression) in [(true, gzip()), (false, Compression::Off)] {
        let reply = call_with(tester, is_compressed, compression).await?.into_inner();
        expect_large("UnaryCall", &reply)?;
    }
    Ok(())
}

/// A request that tells the server what to expect, and is sent as `compression` says.
async fn call_with(
    tester: &Tester,
    expect_compressed: bool,
    compression: Compression,
) -> Result<Response<SimpleResponse>, Status> {
    let message = SimpleRequest { expect_compressed: value(expect_compressed), ..large_request() };
    tester.client.unary_call(Request::new(message).with_compression(compression)).await
}

/// One compressed reply, one plain one.
pub(super) async fn server_compressed_unary(tester: &Tester) -> Outcome {
    for is_compressed in [true, false] {
        let request = SimpleRequest { response_compressed: value(is_compressed), ..large_request() };
        let response = tester.client.unary_call(request).await?;
        expect_equal("UnaryCall: the reply is compressed", response.was_compressed(), is_compressed)?;
        expect_large("UnaryCall", response.get_ref())?;
    }
    Ok(())
}

/// As [`client_compressed_unary`], in a stream.
pub(super) async fn client_compressed_streaming(tester: &Tester) -> Outcome {
    let probe = upload(tester, &[(27_182, true, Compress::No)]).await;
    expect_code(
        "StreamingInputCall: a plain request that claims to be compressed",
        probe,
        Code::InvalidArgument,
    )?;
    client_compressed_streaming_noprobe(tester).await
}

/// One compressed request and one plain one in the same call.
pub(super) async fn client_compressed_streaming_noprobe(tester: &Tester) -> Outcome {
    let reply = upload(tester, &[(27_182, true, Compress::Yes), (45_904, false, Compress::No)]).await?;
    expect_equal("StreamingInputCall: bytes in all", reply.aggregated_payload_size, 73_086)
}

/// Sends requests of so many bytes, each with what it tells the server to expect and as it is really sent.
async fn upload(
    tester: &Tester,
    requests: &[(usize, bool, Compress)],
) -> Result<StreamingInputCallResponse, Status> {
    let call = Request::new(()).with_compression(gzip());
    let mut upload = tester.client.streaming_input_call(call).await?;
    for &(bytes, expect_compressed, compress) in requests {
        let request = StreamingInputCallRequest {
            payload: Some(zeros(bytes)),
            expect_compressed: value(expect_compressed),
        };
        // A server that has found something out ends the call; `finish` tells with what.
        if upload.send_with(&request, compress).await.is_err() {
            break;
        }
    }
    Ok(upload.finish().await?.into_inner())
}

/// One compressed reply and one plain one in the same call.
pub(super) async fn server_compressed_streaming(tester: &Tester) -> Outcome {
    const REPLIES: [(i32, bool); 2] = [(31_415, true), (92_653, false)];
    let asked = |(size, is_compressed)| ResponseParameters {
        size,
        compressed: value(is_compressed),
        ..ResponseParameters::default()
    };
    let request = StreamingOutputCallRequest {
        response_parameters: REPLIES.map(asked).to_vec(),
        ..StreamingOutputCallRequest::default()
    };
    let mut replies = tester.client.streaming_output_call(request).await?.into_inner();
    for (bytes, is_compressed) in REPLIES {
        let Some(reply) = replies.message().await? else {
            return Err(Failure::new(format!(
                "StreamingOutputCall: it ended before the reply of {bytes} bytes"
            )));
        };
        expect_equal(
            "StreamingOutputCall: the reply is compressed",
            replies.last_was_compressed(),
            is_compressed,
        )?;
        expect_zeros("StreamingOutputCall", reply.payload.as_ref(), bytes as usize)?;
    }
    expect_equal("StreamingOutputCall: a third reply", replies.message().await?, None)
}

/// The encoding that every gRPC implementation has.
fn gzip() -> Compression {
    Compression::encoding("gzip")
}

fn value(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}
