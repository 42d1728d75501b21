//! Load reports (ORCA): what a server says of its own load, with the trailers of a call and in a stream of its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fulmar::{MetadataError, MetadataMap, Replies, Request, Status};
use prost::Message;

use crate::proto::grpc::testing::TestOrcaReport;
use crate::proto::xds::data::orca::v3::OrcaLoadReport;
use crate::proto::xds::service::orca::v3::OrcaLoadReportRequest;
use crate::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaService;

/// The trailer of a call that carries the report (gRFC A51).
pub const LOAD_REPORT_TRAILER: &str = "endpoint-load-metrics-bin";

/// The shortest time between two reports of a stream, whatever the client asks for.
const REPORT_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What the server says of its load: nothing, until a test sets it.
#[derive(Debug, Default)]
pub struct LoadReports {
    current: Mutex<OrcaLoadReport>,
    /// Held by the stream that has set the report, so that tests that run at the same time do not mix.
    setter: tokio::sync::Mutex<()>,
}

/// The right to set the report, until it is dropped.
#[derive(Debug)]
pub(super) struct Setter<'r> {
    reports: &'r LoadReports,
    _only: tokio::sync::MutexGuard<'r, ()>,
}

impl LoadReports {
    /// Waits until no other stream sets the report.
    pub(super) async fn setter(&self) -> Setter<'_> {
        Setter { reports: self, _only: self.setter.lock().await }
    }

    fn current(&self) -> OrcaLoadReport {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Setter<'_> {
    /// Sets what all streams of reports tell from now on. Costs belong to single calls, so they are left out.
    pub(super) fn set(&self, report: &TestOrcaReport) {
        let report = OrcaLoadReport { request_cost: HashMap::new(), ..load_report(report) };
        *self.reports.current.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl OpenRcaService for std::sync::Arc<LoadReports> {
    /// Tells the load at once, and again whenever the interval has passed, until the client leaves.
    async fn stream_core_metrics(
        &self,
        request: Request<OrcaLoadReportRequest>,
        replies: &mut Replies<OrcaLoadReport>,
    ) -> Result<(), Status> {
        let asked = request.get_ref().report_interval;
        let asked = asked.and_then(|interval| Duration::try_from(interval).ok()).unwrap_or_default();
        let interval = asked.max(REPORT_INTERVAL_MIN);
        loop {
            replies.send(&self.current()).await?;
            tokio::time::sleep(interval).await;
        }
    }
}

/// Adds the report that a call asked for to its trailers.
///
/// # Errors
/// None that a report could cause; what the map refuses.
pub(super) fn report_in(trailers: &mut MetadataMap, report: &TestOrcaReport) -> Result<(), MetadataError> {
    trailers.insert_bin(LOAD_REPORT_TRAILER, &load_report(report).encode_to_vec())
}

/// The report on the wire that a test's report stands for.
pub(crate) fn load_report(report: &TestOrcaReport) -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.memory_utilization,
        request_cost: report.request_cost.clone(),
        utilization: report.utilization.clone(),
        ..OrcaLoadReport::default()
    }
}
