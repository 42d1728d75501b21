use std::time;

use fulmar_grpc::{Code, Status};
use prost::{Message, Name};

use super::*;

/// One of each of the ten.
fn all_ten() -> ErrorDetails {
    ErrorDetails::new()
        .with(ErrorInfo::new("STOCKOUT", "shop.example.com").with_metadata("article", "17"))
        .with_retry_info(time::Duration::from_millis(1_500))
        .with_debug_info(["inner", "outer"], "more")
        .with_quota_violation("project:1", "too many reads")
        .with_precondition_violation("TOS", "example.com", "not accepted")
        .with_field_violation("name", "must not be empty")
        .with_request_info("17", "opaque")
        .with(ResourceInfo::new("table", "users", "is being rebuilt").with_owner("project:1"))
        .with_help_link("the manual", "https://example.com")
        .with_localized_message("fr-CH", "trop tard")
}

fn status_with(details: ErrorDetails) -> Status {
    Status::with_error_details(Code::ResourceExhausted, "sold out", details)
}

#[test]
fn all_ten_come_back_with_their_status() {
    let status = status_with(all_ten());
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "sold out"));
    let details = status.error_details().expect("they are what they say");
    assert_eq!(details, all_ten());
    assert_eq!(details.len(), 10);
    assert_eq!(details.error_info().expect("there").metadata["article"], "17");
    assert_eq!(details.retry_info().expect("there").delay(), Some(time::Duration::from_millis(1_500)));
    assert_eq!(details.debug_info().expect("there").stack_entries, ["inner", "outer"]);
    assert_eq!(details.quota_failure().expect("there").violations[0].subject, "project:1");
    assert_eq!(details.precondition_failure().expect("there").violations[0].r#type, "TOS");
    assert_eq!(details.bad_request().expect("there").field_violations[0].field, "name");
    assert_eq!(details.request_info().expect("there").request_id, "17");
    assert_eq!(details.resource_info().expect("there").owner, "project:1");
    assert_eq!(details.help().expect("there").links[0].url, "https://example.com");
    assert_eq!(details.localized_message().expect("there").locale, "fr-CH");
    assert_eq!(details.others().count(), 0);
}

#[test]
fn one_detail_is_found_by_its_type() {
    let status = status_with(all_ten());
    assert_eq!(status.detail::<Help>().as_ref(), all_ten().help());
    assert_eq!(status.detail::<LocalizedMessage>().as_ref(), all_ten().localized_message());
    let status = status_with(ErrorDetails::new().with_request_info("17", ""));
    assert!(status.detail::<Help>().is_none());
    assert!(Status::internal("").detail::<Help>().is_none());
}

#[test]
fn a_status_without_details_has_none() {
    let status = Status::not_found("gone");
    assert!(status.error_details().expect("nothing is wrong with nothing").is_empty());
    assert_eq!(status_with(ErrorDetails::new()).error_details().expect("empty"), ErrorDetails::new());
}

#[test]
fn violations_of_one_kind_are_one_message() {
    let details = ErrorDetails::new()
        .with_field_violation("a", "1")
        .with_help_link("b", "2")
        .with_field_violation("c", "3")
        .with_quota_violation("d", "4")
        .with_quota_violation("e", "5")
        .with_precondition_violation("f", "", "6")
        .with_precondition_violation("g", "", "7")
        .with_help_link("h", "8");
    assert_eq!(details.len(), 4);
    let fields = &details.bad_request().expect("there").field_violations;
    assert_eq!(fields.iter().map(|field| field.field.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(details.quota_failure().expect("there").violations.len(), 2);
    assert_eq!(details.precondition_failure().expect("there").violations.len(), 2);
    assert_eq!(details.help().expect("there").links.len(), 2);
}

/// What another implementation writes, byte for byte: field 1 a varint, field 2 text, field 3 an Any of field 1 text, field 2 bytes.
#[test]
fn details_of_others_are_read_and_ours_are_written_alike() {
    let retry = b"\x0a\x04\x08\x01\x10\x07";
    let url = b"type.googleapis.com/google.rpc.RetryInfo";
    let any = [b"\x0a\x28", &url[..], b"\x12\x06", retry].concat();
    let wire = [b"\x08\x08\x12\x08sold out\x1a\x32", &any[..]].concat();
    let details = ErrorDetails::new().with_retry_info(time::Duration::new(1, 7));
    assert_eq!(status_with(details.clone()).details(), wire);
    let received = Status::with_code_and_details(Code::ResourceExhausted, "sold out", wire);
    assert_eq!(received.error_details().expect("they are right"), details);
}

/// Wire rule 32: what a `google.rpc.Status` says of code and message is not what counts.
#[test]
fn code_and_message_of_the_details_agree_or_do_not_count() {
    let sent = super::Status::decode(status_with(all_ten()).details()).expect("a google.rpc.Status");
    assert_eq!((sent.code, sent.message.as_str(), sent.details.len()), (8, "sold out", 10));

    let liar = super::Status { code: 5, message: "not found".to_owned(), details: sent.details };
    let status = Status::with_code_and_details(Code::Aborted, "conflict", liar.encode_to_vec());
    assert_eq!((status.code(), status.message()), (Code::Aborted, "conflict"));
    assert_eq!(status.error_details().expect("they are right"), all_ten());
    let message = status.to_rpc_status();
    assert_eq!((message.code, message.message.as_str(), message.details.len()), (10, "conflict", 10));
}

/// Wire rule 32: bad bytes hide nothing.
#[test]
fn bytes_that_are_no_details_leave_the_status_as_it_is() {
    for bytes in [&b"\xff"[..], b"\x1a\x7f", b"\x08", b"\x0f\x01", &[0x1a; 40]] {
        let status = Status::with_code_and_details(Code::Aborted, "conflict", bytes.to_vec());
        assert_eq!((status.code(), status.message(), status.details()), (Code::Aborted, "conflict", bytes));
        let error = status.error_details().expect_err("they are not right").to_string();
        assert!(error.contains("no google.rpc.Status"), "{error}");
        assert!(status.detail::<Help>().is_none());
        assert_eq!(status.to_rpc_status().code, 10);
    }
}

#[test]
fn a_detail_that_is_not_what_it_says_does_not_hide_the_others() {
    let broken = Any { type_url: "type.googleapis.com/google.rpc.Help".to_owned(), value: b"\xff".to_vec() };
    let status =
        status_with(ErrorDetails::new().with(broken).with_request_info("17", "").with_help_link("", "x"));
    let error = status.error_details().expect_err("one is broken").to_string();
    assert!(error.contains("detail 0 is no google.rpc.Help"), "{error}");
    assert_eq!(status.detail::<RequestInfo>().expect("it can be read").request_id, "17");
    assert_eq!(status.detail::<Help>().expect("the second one can be read").links[0].url, "x");
}

#[test]
fn details_of_other_types_are_kept_in_order() {
    let other =
        |number: u8| Any { type_url: format!("example.com/my.Type{number}"), value: vec![number, 0xff] };
    let sent = ErrorDetails::new().with(other(1)).with_request_info("17", "").with(other(2));
    let details = status_with(sent.clone()).error_details().expect("they are right");
    assert_eq!(details, sent);
    assert_eq!(details.others().collect::<Vec<_>>(), [&other(1), &other(2)]);
    let newer = Any { type_url: "type.googleapis.com/google.rpc.Unheard".to_owned(), value: vec![1] };
    let details =
        status_with(ErrorDetails::new().with(newer.clone())).error_details().expect("they are right");
    assert_eq!(details.others().collect::<Vec<_>>(), [&newer]);
}

/// Only what is behind the last slash counts.
#[test]
fn the_type_is_known_by_its_name_and_not_by_who_serves_it() {
    for url in
        ["google.rpc.RequestInfo", "/google.rpc.RequestInfo", "https://a.example/b/google.rpc.RequestInfo"]
    {
        let any = Any { type_url: url.to_owned(), value: RequestInfo::new("17", "").encode_to_vec() };
        assert_eq!(any.type_name(), "google.rpc.RequestInfo");
        assert_eq!(ErrorDetail::unpack(any.clone()).expect("right"), RequestInfo::new("17", "").into());
        assert_eq!(any.unpack::<RequestInfo>().expect("right"), Some(RequestInfo::new("17", "")));
        assert_eq!(any.unpack::<Help>().expect("another type is no error"), None);
    }
    assert_eq!(Any::default().type_name(), "");
    assert_eq!(Any::pack(&Help::default()).type_url, "type.googleapis.com/google.rpc.Help");
}

#[test]
fn durations_are_those_of_the_standard_library_as_far_as_they_go() {
    let max = time::Duration::from_secs(315_576_000_000);
    for duration in [time::Duration::ZERO, time::Duration::new(7, 999_999_999), max] {
        assert_eq!(time::Duration::from(Duration::from(duration)), duration);
    }
    assert_eq!(time::Duration::from(Duration::from(time::Duration::MAX)), max);
    for (seconds, nanos) in [(-1, 0), (0, -1), (1, -1), (-1, -1), (1, 1_000_000_000), (i64::MIN, i32::MIN)] {
        assert_eq!(time::Duration::from(Duration { seconds, nanos }), time::Duration::ZERO);
    }
    assert_eq!(RetryInfo::default().delay(), None);
}

#[test]
fn a_status_crosses_other_protocols_as_a_message() {
    let status = Status::from_rpc_status(status_with(all_ten()).to_rpc_status());
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "sold out"));
    assert_eq!(status.error_details().expect("they are right"), all_ten());
    let odd = super::Status { code: 99, message: "odd".to_owned(), details: Vec::new() };
    let status = Status::from_rpc_status(odd);
    assert_eq!((status.code(), status.message(), status.details()), (Code::Unknown, "odd", &b""[..]));
}

#[test]
fn names_are_those_of_the_package() {
    assert_eq!(super::Status::full_name(), "google.rpc.Status");
    assert_eq!(PreconditionFailure::full_name(), "google.rpc.PreconditionFailure");
}
