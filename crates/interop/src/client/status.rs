//! Calls that the server ends with an error.

use fulmar::{Code, Duplex, Response, Status};

use super::failure::{Outcome, expect_code, expect_equal};
use super::tester::Tester;
use crate::proto::grpc::testing::{EchoStatus, Empty, SimpleRequest, StreamingOutputCallRequest};

/// Code and message arrive, of a unary call and of a stream.
pub(super) async fn status_code_and_message(tester: &Tester) -> Outcome {
    const MESSAGE: &str = "test status message";
    expect_unary_status(tester, MESSAGE).await?;

    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(()).await?;
    let request =
        StreamingOutputCallRequest { response_status: Some(unknown(MESSAGE)), ..Default::default() };
    requests.send(&request).await?;
    requests.finish();
    let status = expect_code("FullDuplexCall", replies.message().await, Code::Unknown)?;
    expect_equal("FullDuplexCall: message", status.message(), MESSAGE)
}

/// White space, characters of three and of four bytes in UTF-8, all of which must be escaped on the wire.
pub(super) async fn special_status_message(tester: &Tester) -> Outcome {
    expect_unary_status(tester, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n").await
}

async fn expect_unary_status(tester: &Tester, message: &str) -> Outcome {
    let request = SimpleRequest { response_status: Some(unknown(message)), ..SimpleRequest::default() };
    let result = tester.client.unary_call(request).await;
    let status = expect_code("UnaryCall", result, Code::Unknown)?;
    expect_equal("UnaryCall: message", status.message(), message)
}

fn unknown(message: &str) -> EchoStatus {
    EchoStatus { code: Code::Unknown.as_i32(), message: message.to_owned() }
}

/// A method that the service does not have.
pub(super) async fn unimplemented_method(tester: &Tester) -> Outcome {
    expect_unimplemented(tester, "/grpc.testing.TestService/UnimplementedCall").await
}

/// A service that the server does not have.
pub(super) async fn unimplemented_service(tester: &Tester) -> Outcome {
    expect_unimplemented(tester, "/grpc.testing.UnimplementedService/UnimplementedCall").await
}

async fn expect_unimplemented(tester: &Tester, path: &str) -> Outcome {
    let result: Result<Response<Empty>, Status> = tester.channel.unary(path, Empty {}).await;
    expect_code(path, result, Code::Unimplemented)?;
    Ok(())
}
