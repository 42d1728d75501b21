//! The handlers of `grpc.testing.TestService`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fulmar::{Compress, Compression, MetadataError, Replies, Request, Response, Status, Streaming};

use super::load_reports::{LoadReports, report_in};
use super::payload::{ECHO_INITIAL, ECHO_TRAILING, echo, end_if_asked, payload};
use crate::proto::grpc::testing::test_service_server::TestService;
use crate::proto::grpc::testing::{
    BoolValue, Empty, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse,
};

/// Does what each request tells it to.
#[derive(Debug)]
pub struct TestHandlers {
    reports: Arc<LoadReports>,
    /// Tells this server from all others.
    id: String,
}

impl TestHandlers {
    /// Handlers that set `reports` when a stream asks for it.
    pub fn new(reports: Arc<LoadReports>) -> Self {
        Self { reports, id: format!("fulmar-{}-{}", std::process::id(), nanoseconds()) }
    }
}

impl TestService for TestHandlers {
    async fn empty_call(&self, _request: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        let asked = request.get_ref();
        expect_compressed(asked.expect_compressed.as_ref(), request.was_compressed())?;
        end_if_asked(asked.response_status.as_ref(), request.metadata())?;
        let mut response = Response::new(SimpleResponse {
            payload: Some(payload(asked.response_type, asked.response_size)?),
            server_id: if asked.fill_server_id { self.id.clone() } else { String::new() },
            // User, scope and route are what credentials and a balancer would tell: there are none.
            ..SimpleResponse::default()
        });
        let is_compressed = is_true(asked.response_compressed.as_ref());
        response.set_compression(if is_compressed { Compression::On } else { Compression::Off });
        echo(request.metadata(), ECHO_INITIAL, response.metadata_mut())?;
        echo(request.metadata(), ECHO_TRAILING, response.trailers_mut())?;
        if let Some(report) = &asked.orca_per_query_report {
            report_in(response.trailers_mut(), report).map_err(internal)?;
        }
        Ok(response)
    }

    /// Answers with the time, so that no two answers are equal unless a proxy kept one, which the metadata allows.
    async fn cacheable_unary_call(
        &self,
        _request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let mut answer = payload(0, 0)?;
        answer.body = nanoseconds().to_string().into_bytes();
        let mut response =
            Response::new(SimpleResponse { payload: Some(answer), ..SimpleResponse::default() });
        response.metadata_mut().insert("cache-control", "max-age=60, public").map_err(internal)?;
        Ok(response)
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
        replies: &mut Replies<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        begin_stream(&request, replies)?;
        end_if_asked(request.get_ref().response_status.as_ref(), request.metadata())?;
        answer(request.get_ref(), request.peer().address(), replies).await
    }

    async fn streaming_input_call(
        &self,
        mut requests: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut bytes = 0;
        while let Some(request) = requests.message().await? {
            let was_compressed = requests.get_ref().last_was_compressed();
            expect_compressed(request.expect_compressed.as_ref(), was_compressed)?;
            bytes += request.payload.unwrap_or_default().body.len();
        }
        let aggregated_payload_size = i32::try_from(bytes)
            .map_err(|_| Status::out_of_range(format!("{bytes} bytes are more than the answer can say")))?;
        let mut response = Response::new(StreamingInputCallResponse { aggregated_payload_size });
        echo(requests.metadata(), ECHO_INITIAL, response.metadata_mut())?;
        echo(requests.metadata(), ECHO_TRAILING, response.trailers_mut())?;
        Ok(response)
    }

    /// Answers each request when it comes.
    async fn full_duplex_call(
        &self,
        mut requests: Request<Streaming<StreamingOutputCallRequest>>,
        replies: &mut Replies<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        begin_stream(&requests, replies)?;
        let mut setter = None;
        while let Some(request) = requests.message().await? {
            end_if_asked(request.response_status.as_ref(), requests.metadata())?;
            if let Some(report) = &request.orca_oob_report {
                let setter = match &setter {
                    Some(setter) => setter,
                    None => setter.insert(self.reports.setter().await),
                };
                setter.set(report);
            }
            answer(&request, requests.peer().address(), replies).await?;
        }
        Ok(())
    }

    /// Answers all requests after the last of them.
    async fn half_duplex_call(
        &self,
        mut requests: Request<Streaming<StreamingOutputCallRequest>>,
        replies: &mut Replies<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        /// Bounds what a client can make the server hold.
        const REQUESTS_MAX: usize = 10_000;
        begin_stream(&requests, replies)?;
        let mut received = Vec::new();
        while let Some(mut request) = requests.message().await? {
            end_if_asked(request.response_status.as_ref(), requests.metadata())?;
            if received.len() == REQUESTS_MAX {
                return Err(Status::resource_exhausted(format!("at most {REQUESTS_MAX} requests are kept")));
            }
            request.payload = None;
            received.push(request);
        }
        for request in &received {
            answer(request, requests.peer().address(), replies).await?;
        }
        Ok(())
    }
}

/// Sends the replies that a request asks for.
async fn answer(
    request: &StreamingOutputCallRequest,
    peer: Option<SocketAddr>,
    replies: &mut Replies<StreamingOutputCallResponse>,
) -> Result<(), Status> {
    for asked in &request.response_parameters {
        wait_for(asked).await;
        let mut reply = StreamingOutputCallResponse {
            payload: Some(payload(request.response_type, asked.size)?),
            ..StreamingOutputCallResponse::default()
        };
        if is_true(asked.fill_peer_socket_address.as_ref()) {
            reply.peer_socket_address = peer.map(|address| address.to_string()).unwrap_or_default();
        }
        let compress = if is_true(asked.compressed.as_ref()) { Compress::Yes } else { Compress::No };
        replies.send_with(&reply, compress).await?;
    }
    Ok(())
}

async fn wait_for(asked: &ResponseParameters) {
    if let Ok(micros @ 1..) = u64::try_from(asked.interval_us) {
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}

/// What the replies of any stream have: the metadata that the request asks for, and an encoding, which each reply has or not.
fn begin_stream<T, R>(request: &Request<T>, replies: &mut Replies<R>) -> Result<(), Status> {
    replies.set_compression(&Compression::On)?;
    replies.metadata(|metadata| echo(request.metadata(), ECHO_INITIAL, metadata))?;
    replies.trailers(|trailers| echo(request.metadata(), ECHO_TRAILING, trailers))
}

/// The request that was to be compressed is, and the one that was not is not.
///
/// # Errors
/// `INVALID_ARGUMENT` where it is otherwise.
fn expect_compressed(expected: Option<&BoolValue>, was_compressed: bool) -> Result<(), Status> {
    match expected {
        Some(expected) if expected.value != was_compressed => Err(Status::invalid_argument(format!(
            "expect_compressed is {}, the message was {}",
            expected.value,
            if was_compressed { "compressed" } else { "not" }
        ))),
        _ => Ok(()),
    }
}

fn is_true(value: Option<&BoolValue>) -> bool {
    value.is_some_and(|value| value.value)
}

fn internal(error: MetadataError) -> Status {
    Status::internal(error.to_string())
}

/// Nanoseconds since 1970.
fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}
