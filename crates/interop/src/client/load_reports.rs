//! Load reports (ORCA): what a server says of its load reaches the client.

use std::time::Duration;

use fulmar::{Duplex, Request, Requests, Streaming};
use prost::Message;
use prost_types::Duration as ProtoDuration;

use super::failure::{Failure, Outcome, expect_equal};
use super::tester::Tester;
use crate::proto::grpc::testing::{
    SimpleRequest, StreamingOutputCallRequest, StreamingOutputCallResponse, TestOrcaReport,
};
use crate::proto::xds::data::orca::v3::OrcaLoadReport;
use crate::proto::xds::service::orca::v3::OrcaLoadReportRequest;
use crate::proto::xds::service::orca::v3::open_rca_service_client::OpenRcaServiceClient;
use crate::server::{LOAD_REPORT_TRAILER, load_report};

/// How long a report that a test has set may take to arrive.
const REPORT_WITHIN: Duration = Duration::from_secs(30);

/// The trailers of a call tell what the call has cost.
pub(super) async fn orca_per_rpc(tester: &Tester) -> Outcome {
    let report = TestOrcaReport {
        request_cost: [("cost".to_owned(), 3456.32)].into(),
        ..utilisation(0.8210, 0.5847, 0.30499)
    };
    let request = SimpleRequest { orca_per_query_report: Some(report.clone()), ..SimpleRequest::default() };
    let response = tester.client.unary_call(request).await?;
    let Some(trailer) = response.trailers().get_bin(LOAD_REPORT_TRAILER) else {
        return Err(Failure::new(format!("UnaryCall: there is no trailer {LOAD_REPORT_TRAILER}")));
    };
    let received = OrcaLoadReport::decode(trailer.as_slice())
        .map_err(|error| Failure::new(format!("UnaryCall: {LOAD_REPORT_TRAILER}: {error}")))?;
    expect_equal("UnaryCall: load report", received, load_report(&report))
}

/// A stream of its own tells the load of the server, and its changes.
pub(super) async fn orca_oob(tester: &Tester) -> Outcome {
    let mut reports = open_reports(tester).await?;
    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(()).await?;
    for report in [utilisation(0.8210, 0.5847, 0.30499), utilisation(0.29309, 0.2, 0.2039)] {
        set(&report, &mut requests, &mut replies).await?;
        wait_for(&load_report(&report), &mut reports).await?;
    }
    requests.finish();
    expect_equal("FullDuplexCall: a third reply", replies.message().await?, None)
}

async fn open_reports(tester: &Tester) -> Result<Streaming<OrcaLoadReport>, Failure> {
    let client = OpenRcaServiceClient::new(tester.channel.clone());
    let every_second = ProtoDuration { seconds: 1, nanos: 0 };
    let message =
        OrcaLoadReportRequest { report_interval: Some(every_second), ..OrcaLoadReportRequest::default() };
    // Two reports are waited for.
    let request = Request::new(message).with_timeout(2 * REPORT_WITHIN);
    Ok(client.stream_core_metrics(request).await?.into_inner())
}

/// Makes the server tell this load from now on.
async fn set(
    report: &TestOrcaReport,
    requests: &mut Requests<StreamingOutputCallRequest>,
    replies: &mut Streaming<StreamingOutputCallResponse>,
) -> Outcome {
    let request = StreamingOutputCallRequest {
        response_parameters: vec![crate::proto::grpc::testing::ResponseParameters {
            size: 1,
            ..Default::default()
        }],
        orca_oob_report: Some(report.clone()),
        ..StreamingOutputCallRequest::default()
    };
    requests.send(&request).await?;
    match replies.message().await? {
        Some(_) => Ok(()),
        None => Err(Failure::new("FullDuplexCall: it ended before the reply to a load report")),
    }
}

/// Reads reports until this one comes; the deadline of the stream bounds it.
async fn wait_for(expected: &OrcaLoadReport, reports: &mut Streaming<OrcaLoadReport>) -> Outcome {
    let mut last = None;
    loop {
        match reports.message().await {
            Ok(Some(report)) if report == *expected => return Ok(()),
            Ok(Some(report)) => last = Some(report),
            Ok(None) => {
                return Err(Failure::new("StreamCoreMetrics: the server ended the stream of load reports"));
            }
            Err(status) => {
                return Err(Failure::new(format!(
                    "StreamCoreMetrics: {expected:?} did not come: {status}; the last report was {last:?}"
                )));
            }
        }
    }
}

fn utilisation(cpu: f64, memory: f64, util: f64) -> TestOrcaReport {
    TestOrcaReport {
        cpu_utilization: cpu,
        memory_utilization: memory,
        utilization: [("util".to_owned(), util)].into(),
        ..TestOrcaReport::default()
    }
}
