//! Cases of one request and one reply.

use fulmar::{Code, Request, Response, Status};

use super::failure::{Failure, Outcome, expect_equal};
use super::tester::{Tester, expect_zeros, zeros};
use crate::proto::grpc::testing::{Empty, SimpleRequest, SimpleResponse};

/// How many bytes go up and come down in a large call.
pub(crate) const LARGE_REQUEST_BYTES: usize = 271_828;
pub(crate) const LARGE_RESPONSE_BYTES: i32 = 314_159;

/// A message of no bytes each way.
pub(super) async fn empty_unary(tester: &Tester) -> Outcome {
    let reply = tester.client.empty_call(Empty {}).await?;
    expect_equal("EmptyCall", reply.into_inner(), Empty {})
}

/// More than a window each way.
pub(crate) async fn large_unary(tester: &Tester) -> Outcome {
    let reply = tester.client.unary_call(large_request()).await?.into_inner();
    expect_large("UnaryCall", &reply)
}

/// What [`large_unary`] sends.
pub(crate) fn large_request() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_RESPONSE_BYTES,
        payload: Some(zeros(LARGE_REQUEST_BYTES)),
        ..SimpleRequest::default()
    }
}

/// What [`large_unary`] must get.
///
/// # Errors
/// It is not.
pub(crate) fn expect_large(what: &str, reply: &SimpleResponse) -> Outcome {
    expect_zeros(what, reply.payload.as_ref(), LARGE_RESPONSE_BYTES as usize)
}

/// Two calls of the method whose answers a proxy may keep. Calls go out as POST, which no proxy answers by itself (RFC 9110 §9.3.3),
/// so each answer is a time, and the second is the later one.
pub(super) async fn cacheable_unary(tester: &Tester) -> Outcome {
    let first = time_of(&call_cacheable(tester).await?)?;
    let second = time_of(&call_cacheable(tester).await?)?;
    if second <= first {
        return Err(Failure::new(format!("CacheableUnaryCall: the time {second} came after {first}")));
    }
    Ok(())
}

async fn call_cacheable(tester: &Tester) -> Result<Response<SimpleResponse>, Status> {
    let mut request = Request::new(SimpleRequest { payload: Some(zeros(8)), ..SimpleRequest::default() });
    // Without it some proxies take the call for one of their own host.
    if let Err(error) = request.metadata_mut().insert("x-user-ip", "1.2.3.4") {
        return Err(Status::internal(error.to_string()));
    }
    tester.client.cacheable_unary_call(request).await
}

/// The time in an answer, decimal nanoseconds.
fn time_of(response: &Response<SimpleResponse>) -> Result<u128, Failure> {
    let payload = response.get_ref().payload.clone().unwrap_or_default();
    let time = str::from_utf8(&payload.body).ok().and_then(|text| text.parse().ok());
    time.ok_or_else(|| Failure::new(format!("CacheableUnaryCall: the answer is no time: {:?}", payload.body)))
}

/// A request of 10 MiB.
pub(super) async fn very_large_request(tester: &Tester) -> Outcome {
    let request =
        SimpleRequest { response_size: 10, payload: Some(zeros(10 << 20)), ..SimpleRequest::default() };
    let reply = tester.client.unary_call(request).await?.into_inner();
    expect_zeros("UnaryCall", reply.payload.as_ref(), 10)
}

/// All calls of a channel go to the same server, however many its name stands for.
pub(super) async fn pick_first_unary(tester: &Tester) -> Outcome {
    const CALLS: usize = 100;
    let mut first = String::new();
    for call in 0..CALLS {
        let request = SimpleRequest {
            response_size: 1,
            payload: Some(zeros(1)),
            fill_server_id: true,
            ..SimpleRequest::default()
        };
        let id = tester.client.unary_call(request).await?.into_inner().server_id;
        if id.is_empty() {
            let text = "this server does not tell its server_id, without which the case says nothing";
            return Err(Status::new(Code::FailedPrecondition, text).into());
        }
        if call == 0 {
            first = id;
        } else {
            expect_equal("UnaryCall: server_id", &id, &first)?;
        }
    }
    Ok(())
}
