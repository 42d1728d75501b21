//! The official test server: `grpc.testing.TestService` and the load reports of `xds.service.orca.v3.OpenRcaService`.

mod load_reports;
mod options;
mod payload;
mod service;

use std::error::Error;
use std::sync::Arc;

use fulmar::encoding::Gzip;
use fulmar::{Http2Config, Server};

use crate::proto::grpc::testing::test_service_server::TestServiceServer;
use crate::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
pub(crate) use load_reports::load_report;
pub use load_reports::{LOAD_REPORT_TRAILER, LoadReports};
pub use options::{Options, USAGE};
pub use service::TestHandlers;

/// The longest request that is taken, in bytes: what grpc-java's test server takes, whose `very_large_request` has 10 MiB.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// A server with the test services, bound and not running yet.
///
/// # Errors
/// The address is taken; what the options ask for is not supported; no thread for the timers of the handlers.
pub fn bind(options: &Options) -> Result<Server, Box<dyn Error>> {
    options.check()?;
    // Handlers wait between replies: tokio has the timers, and one thread that runs them.
    let timers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let reports = Arc::new(LoadReports::default());
    let mut http2 = Http2Config::default();
    if let Some(streams) = options.streams_max {
        http2.streams_max = streams;
    }
    let mut builder = Server::builder();
    if let Some(tls) = options.tls()? {
        builder = builder.tls(tls);
    }
    Ok(builder
        .receive_message_bytes_max(REQUEST_BYTES_MAX)
        .http2(http2)
        .accept_compressed(Gzip::default())
        .around_thread(move |serve| {
            let _entered = timers.enter();
            serve();
        })
        .add_service(TestServiceServer::new(TestHandlers::new(reports.clone())))
        .add_service(OpenRcaServiceServer::new(reports))
        .bind((options.host.as_str(), options.port))?)
}
