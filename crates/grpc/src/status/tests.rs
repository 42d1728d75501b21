use super::*;

#[derive(Debug, PartialEq)]
struct Cause(&'static str);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Cause {}

#[derive(Debug)]
struct Wrapped(Status);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn a_status_is_small_and_may_cross_threads() {
    fn crosses_threads<T: Send + Sync + Clone + 'static>() {}
    crosses_threads::<Status>();
    assert!(size_of::<Status>() <= 40, "{}", size_of::<Status>());
    assert!(size_of::<Result<(), Status>>() <= 40, "{}", size_of::<Result<(), Status>>());
}

#[test]
fn each_constructor_makes_its_code() {
    let made = [
        Status::ok("m"),
        Status::cancelled("m"),
        Status::unknown("m"),
        Status::invalid_argument("m"),
        Status::deadline_exceeded("m"),
        Status::not_found("m"),
        Status::already_exists("m"),
        Status::permission_denied("m"),
        Status::resource_exhausted("m"),
        Status::failed_precondition("m"),
        Status::aborted("m"),
        Status::out_of_range("m"),
        Status::unimplemented("m"),
        Status::internal("m"),
        Status::unavailable("m"),
        Status::data_loss("m"),
        Status::unauthenticated("m"),
    ];
    for (status, code) in made.iter().zip(Code::ALL) {
        assert_eq!(status.code(), code);
        assert_eq!(status.message(), "m");
        assert_eq!(status.is_ok(), code == Code::Ok);
    }
}

#[test]
fn a_plain_status_has_no_rest() {
    let status = Status::internal(String::from("broken"));
    assert!(status.rest.is_none());
    assert!(status.metadata().is_empty());
    assert_eq!(status.details(), b"");
    assert!(status.source().is_none());
    let status = status.with_metadata(MetadataMap::new()).with_details(Bytes::new());
    assert!(status.rest.is_none(), "nothing needs no box");
}

#[test]
fn what_was_put_in_comes_out() {
    let mut metadata = MetadataMap::new();
    metadata.insert("retry-hint", "later").expect("a legal name");
    let mut status = Status::with_code_and_details(Code::Aborted, "lost", vec![1, 2, 3])
        .with_metadata(metadata)
        .with_source(Cause("disk"));
    status.metadata_mut().append("retry-hint", "tomorrow").expect("a legal name");

    let copy = status.clone();
    drop(status);
    assert_eq!(copy.metadata().get_all("retry-hint").collect::<Vec<_>>(), ["later", "tomorrow"]);
    assert_eq!(copy.details(), [1, 2, 3]);
    assert_eq!(copy.source().and_then(|source| source.downcast_ref()), Some(&Cause("disk")));
    assert_eq!(copy.clone().with_details(Bytes::new()).details(), b"");
    assert!(copy.with_metadata(MetadataMap::new()).metadata().is_empty());
}

#[test]
fn it_reads_well() {
    assert_eq!(Status::not_found("no such feature").to_string(), "status NOT_FOUND: no such feature");
    assert_eq!(Status::default().to_string(), "status OK");
    let mut status = Status::internal("broken");
    assert_eq!(format!("{status:?}"), r#"Status { code: Internal, message: "broken" }"#);
    status.metadata_mut().insert_sensitive("token", "swordfish").expect("a legal name");
    let status = status.with_details(vec![7]).with_source(Cause("disk"));
    let text = format!("{status:?}");
    assert!(text.contains("token") && text.contains("details") && text.contains("disk"), "{text}");
    assert!(!text.contains("swordfish"), "{text}");
}

#[test]
fn any_error_becomes_a_status() {
    let status = Status::from_error(Cause("disk"));
    assert_eq!((status.code(), status.message()), (Code::Unknown, "disk"));
    assert_eq!(status.source().and_then(|source| source.downcast_ref()), Some(&Cause("disk")));

    let status = Status::from_error(Status::aborted("lost"));
    assert_eq!((status.code(), status.message()), (Code::Aborted, "lost"));

    let status = Status::from_error(Wrapped(Status::data_loss("gone")));
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "gone"));
    assert!(status.source().is_some_and(|source| source.is::<Wrapped>()));
}

#[test]
fn a_lost_connection_is_unavailable_and_says_what_happened() {
    let closed = Closed::peer("keepalive timed out");
    let status = Status::unavailable_from(&closed);
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), closed.to_string());
    assert_eq!(status.source().and_then(|source| source.downcast_ref()), Some(&closed));
}
