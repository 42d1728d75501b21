//! Details of errors, written by one implementation and read by the other, through a call.

use std::time::Duration;

use fulmar::rpc::{self, StatusExt as _};
use prost::Message;
use tonic_types::StatusExt as _;

use crate::fulmar_lab::FulmarLab;
use crate::proto::lab_client::blocking::LabClient;
use crate::proto::tonic::lab_client::LabClient as TonicClient;
use crate::proto::{Failure, Order};
use crate::tonic_lab::TonicLab;
use crate::within::within_limit;

/// One of each of the ten, with every field set.
fn ours() -> rpc::ErrorDetails {
    let quota = rpc::quota_failure::Violation {
        api_service: "api".to_owned(),
        quota_metric: "reads".to_owned(),
        quota_id: "reads-a-day".to_owned(),
        quota_dimensions: [("zone".to_owned(), "a".to_owned())].into(),
        quota_value: 10,
        future_quota_value: Some(20),
        ..rpc::quota_failure::Violation::new("project:1", "too many")
    };
    let field = rpc::bad_request::FieldViolation {
        reason: "EMPTY".to_owned(),
        localized_message: Some(rpc::LocalizedMessage::new("de", "leer")),
        ..rpc::bad_request::FieldViolation::new("name", "must not be empty")
    };
    rpc::ErrorDetails::new()
        .with(rpc::ErrorInfo::new("STOCKOUT", "shop.example.com").with_metadata("article", "17"))
        .with_retry_info(Duration::new(3, 7))
        .with_debug_info(["inner", "outer"], "more")
        .with(rpc::QuotaFailure { violations: vec![quota] })
        .with_precondition_violation("TOS", "example.com", "not accepted")
        .with(rpc::BadRequest { field_violations: vec![field] })
        .with_request_info("17", "opaque")
        .with(rpc::ResourceInfo::new("table", "users", "is being rebuilt").with_owner("project:1"))
        .with_help_link("the manual", "https://example.com")
        .with_localized_message("fr-CH", "trop tard")
}

/// The order of a failure with these details.
fn order(code: i32, message: &str, details: &[u8]) -> Order {
    let failure = Failure { code, message: message.to_owned(), details: details.to_vec() };
    Order { failure: Some(failure), ..Order::default() }
}

#[test]
fn tonic_reads_the_ten_details_that_we_write() {
    within_limit(|| {
        let lab = FulmarLab::start();
        let status = fulmar::Status::with_error_details(fulmar::Code::Aborted, "sold out", ours());
        let order = order(10, "sold out", status.details());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let received = runtime.expect("a tokio runtime").block_on(async {
            let endpoint = tonic::transport::Endpoint::from_shared(lab.uri()).expect("a URI");
            let channel = endpoint.connect().await.expect("our server takes connections");
            TonicClient::new(channel).echo(order).await.expect_err("the order was to fail")
        });
        assert_eq!((received.code(), received.message()), (tonic::Code::Aborted, "sold out"));
        let details = received.check_error_details().expect("tonic can read them");
        assert_eq!(details.error_info().expect("there").metadata["article"], "17");
        assert_eq!(details.retry_info().expect("there").retry_delay, Some(Duration::new(3, 7)));
        assert_eq!(details.debug_info().expect("there").stack_entries, ["inner", "outer"]);
        let quota = &details.quota_failure().expect("there").violations[0];
        assert_eq!(quota.quota_value, 10);
        assert_eq!((quota.api_service.as_str(), quota.quota_id.as_str()), ("api", "reads-a-day"));
        assert_eq!((quota.quota_metric.as_str(), quota.quota_dimensions["zone"].as_str()), ("reads", "a"));
        assert_eq!(details.precondition_failure().expect("there").violations[0].r#type, "TOS");
        assert_eq!(details.bad_request().expect("there").field_violations[0].field, "name");
        assert_eq!(details.request_info().expect("there").serving_data, "opaque");
        assert_eq!(details.resource_info().expect("there").owner, "project:1");
        assert_eq!(details.help().expect("there").links[0].url, "https://example.com");
        assert_eq!(details.localized_message().expect("there").locale, "fr-CH");

        // All fields of all of them: none is lost or moved when tonic reads and writes them again.
        let theirs = tonic_types::pb::Status::decode(received.details()).expect("a google.rpc.Status");
        assert_eq!(theirs.details.len(), 10);
        let again = fulmar::Status::with_code_and_details(fulmar::Code::Aborted, "", through_tonic(theirs));
        assert_eq!(again.error_details().expect("they are right"), ours());
    });
}

/// Decodes and encodes each detail with the types of tonic-types.
fn through_tonic(mut status: tonic_types::pb::Status) -> Vec<u8> {
    use tonic_types::pb;
    fn again<M: Message + Default>(value: &[u8]) -> Vec<u8> {
        M::decode(value).expect("it is of that type").encode_to_vec()
    }
    for any in &mut status.details {
        let name = any.type_url.strip_prefix("type.googleapis.com/google.rpc.").expect("one of the ten");
        any.value = match name {
            "ErrorInfo" => again::<pb::ErrorInfo>(&any.value),
            "RetryInfo" => again::<pb::RetryInfo>(&any.value),
            "DebugInfo" => again::<pb::DebugInfo>(&any.value),
            "QuotaFailure" => again::<pb::QuotaFailure>(&any.value),
            "PreconditionFailure" => again::<pb::PreconditionFailure>(&any.value),
            "BadRequest" => again::<pb::BadRequest>(&any.value),
            "RequestInfo" => again::<pb::RequestInfo>(&any.value),
            "ResourceInfo" => again::<pb::ResourceInfo>(&any.value),
            "Help" => again::<pb::Help>(&any.value),
            "LocalizedMessage" => again::<pb::LocalizedMessage>(&any.value),
            other => panic!("{other} is none of the ten"),
        };
    }
    status.encode_to_vec()
}

#[test]
fn we_read_the_details_that_tonic_writes() {
    within_limit(|| {
        let lab = TonicLab::start();
        let mut theirs = tonic_types::ErrorDetails::with_retry_info(Some(Duration::new(3, 7)));
        theirs.add_bad_request_violation("name", "must not be empty");
        theirs.add_quota_failure_violation("project:1", "too many");
        theirs.add_help_link("the manual", "https://example.com");
        theirs.set_error_info("STOCKOUT", "shop.example.com", [("article".to_owned(), "17".to_owned())]);
        let status = tonic::Status::with_error_details(tonic::Code::Aborted, "sold out", theirs);
        let mut client = LabClient::connect(format!("http://{}", lab.address)).expect("tonic serves");
        let received =
            client.echo(order(10, "sold out", status.details())).expect_err("the order was to fail");
        assert_eq!((received.code(), received.message()), (fulmar::Code::Aborted, "sold out"));
        let details = received.error_details().expect("they are right");
        assert_eq!(details.len(), 5);
        assert_eq!(details.retry_info().expect("there").delay(), Some(Duration::new(3, 7)));
        assert_eq!(details.bad_request().expect("there").field_violations[0].field, "name");
        assert_eq!(details.quota_failure().expect("there").violations[0].description, "too many");
        assert_eq!(details.help().expect("there").links[0].description, "the manual");
        assert_eq!(details.error_info().expect("there").metadata["article"], "17");
        assert_eq!(received.detail::<rpc::RetryInfo>(), details.retry_info().copied());
    });
}
