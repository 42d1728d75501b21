use super::*;

type Pair = (&'static str, &'static str);

fn fields(pairs: &[Pair]) -> impl Iterator<Item = Field<'_>> + Clone {
    pairs.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()))
}

fn listed<'f>(fields: impl Iterator<Item = Field<'f>>) -> Vec<(String, String)> {
    fields
        .map(|field| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(field.name), text(field.value))
        })
        .collect()
}

fn owned(pairs: &[Pair]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const REQUEST: [Pair; 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("content-type", "application/grpc")];

/// Reads `REQUEST` with some fields replaced or added.
fn read(changes: &[Pair]) -> Result<Request, Refusal> {
    let mut routes = Routes::new();
    routes.add("/a.B/C").expect("a path");
    let kept = REQUEST.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    let pairs: Vec<Pair> = kept.chain(changes).copied().collect();
    read_request(fields(&pairs), &routes, "proto", &Encodings::default(), &mut MetadataMap::new())
}

fn refused(changes: &[Pair]) -> (Code, String) {
    match read(changes) {
        Err(Refusal::Status(status)) => (status.code(), status.message().to_owned()),
        other => panic!("{other:?} instead of a status for {changes:?}"),
    }
}

#[test]
fn only_the_exact_media_type_is_grpc() {
    for accepted in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
        "application/grpc+proto; a=b",
        "Application/gRPC",
    ] {
        assert!(read(&[("content-type", accepted)]).is_ok(), "{accepted}");
    }
    for foreign in ["application/grpcx", "application/grpc-web", "application/grp", "application/json", ""] {
        let read = read(&[("content-type", foreign)]);
        assert!(matches!(read, Err(Refusal::NotGrpc)), "{foreign}");
    }
    assert_eq!(refused(&[("content-type", "application/grpc+json")]).0, Code::Unimplemented);
}

#[test]
fn the_content_type_is_looked_at_before_the_method() {
    assert!(matches!(read(&[(":method", "GET")]), Err(Refusal::NotPost)));
    assert!(matches!(read(&[(":method", "GET"), ("content-type", "text/html")]), Err(Refusal::NotGrpc)));
}

#[test]
fn paths_are_compared_byte_for_byte() {
    for path in ["/a.B/c", "/a.B/C/", "a.B/C", "//a.B/C", "/", "", "/a.B/C?x"] {
        assert_eq!(refused(&[(":path", path)]), (Code::Unimplemented, format!("unknown method {path}")));
    }
}

#[test]
fn timeouts_are_read_and_malformed_ones_refused() {
    assert_eq!(read(&[]).expect("well-formed").timeout, None);
    let read = read(&[("grpc-timeout", "250m")]).expect("well-formed");
    assert_eq!(read.timeout, Some(Duration::from_millis(250)));
    for malformed in ["", "m", "5", "123456789m", "+1m", "-1m", "1x", "1 m", "0x1m"] {
        assert_eq!(refused(&[("grpc-timeout", malformed)]).0, Code::Internal, "{malformed:?}");
    }
    assert_eq!(refused(&[("grpc-timeout", "0n")]).0, Code::DeadlineExceeded);
}

#[test]
fn an_unknown_encoding_is_refused_by_name_and_identity_is_none() {
    assert!(read(&[("grpc-encoding", "identity")]).is_ok());
    let (code, message) = refused(&[("grpc-encoding", "snappy")]);
    assert_eq!(code, Code::Unimplemented);
    assert!(message.contains("snappy"), "{message}");
}

#[test]
fn metadata_is_what_neither_http_nor_grpc_uses() {
    let pairs = [
        &REQUEST[..],
        &[
            ("te", "trailers"),
            ("user-agent", "test/1"),
            ("grpc-accept-encoding", "gzip"),
            ("grpc-previous-rpc-attempts", "2"),
            ("grpc-unknown", "x"),
            ("key", "a"),
            ("key", "b"),
            ("bytes-bin", "AAE,AgM="),
        ],
    ]
    .concat();
    let mut routes = Routes::new();
    routes.add("/a.B/C").expect("a path");
    let mut metadata = MetadataMap::new();
    read_request(fields(&pairs), &routes, "proto", &Encodings::default(), &mut metadata)
        .expect("well-formed");
    assert_eq!(
        listed(metadata_fields(&metadata)),
        owned(&[
            ("grpc-previous-rpc-attempts", "2"),
            ("key", "a"),
            ("key", "b"),
            ("bytes-bin", "AAE"),
            ("bytes-bin", "AgM")
        ])
    );
    assert_eq!(metadata.get("user-agent"), Some("test/1"), "readable, though it is not passed on");
}

#[test]
fn metadata_that_is_not_base64_is_refused_by_name() {
    let (code, message) = refused(&[("bytes-bin", "a*b")]);
    assert_eq!(code, Code::Internal);
    assert!(message.contains("bytes-bin"), "{message}");
}

#[test]
fn a_request_has_the_order_of_the_grpc_document() {
    let mut metadata = MetadataMap::new();
    metadata.insert("key", "value").expect("legal");
    metadata.insert_bin("key-bin", &[0xff]).expect("legal");
    let head = RequestHead {
        scheme: "http",
        authority: "host:1",
        path: "/a.B/C",
        user_agent: "fulmar/1",
        content_type: "application/grpc",
        accept_encoding: "zstd,identity",
    };
    assert_eq!(
        listed(
            request_head(head)
                .chain(request_timeout(b"1S"))
                .chain(encoding_field(Some("gzip")))
                .chain(request_rest(head))
                .chain(metadata_fields(&metadata))
        ),
        owned(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/a.B/C"),
            (":authority", "host:1"),
            ("te", "trailers"),
            ("grpc-timeout", "1S"),
            ("grpc-encoding", "gzip"),
            ("content-type", "application/grpc"),
            ("grpc-accept-encoding", "zstd,identity"),
            ("user-agent", "fulmar/1"),
            ("key", "value"),
            ("key-bin", "/w"),
        ])
    );
    let without = RequestHead { authority: "", ..head };
    let fields = request_head(without).chain(request_timeout(b"")).chain(request_rest(without));
    let names: Vec<_> = listed(fields).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [":method", ":scheme", ":path", "te", "content-type", "grpc-accept-encoding", "user-agent"]
    );
}

#[test]
fn sensitive_metadata_stays_out_of_every_table() {
    let mut metadata = MetadataMap::new();
    metadata.insert_sensitive("authorization", "secret").expect("legal");
    let field = metadata_fields(&metadata).next().expect("one field");
    assert_eq!(field.indexing, Indexing::Never);
}

#[test]
fn a_status_is_written_and_read_back() {
    let mut text = StatusText::default();
    let plain = Status::default();
    text.encode(&plain);
    assert_eq!(listed(text.fields(plain.code())), owned(&[("grpc-status", "0")]));

    let message = "t\ttab ü 😈 100%\r\n";
    let status = Status::new(Code::NotFound, message).with_details(vec![1, 2, 3]);
    text.encode(&status);
    let answer = read_answer(text.fields(status.code()), &Encodings::default(), &mut MetadataMap::new());
    let read = answer.status.expect("a status");
    assert_eq!((read.code(), read.message(), read.details()), (Code::NotFound, message, &[1, 2, 3][..]));
}

#[test]
fn the_beginning_of_a_message_is_whole_characters() {
    let mut text = StatusText::default();
    let cases = [
        (0, ""),
        (1, "a"),
        (6, "a"),
        (7, "a%C3%BC"),
        (9, "a%C3%BC"),
        (10, "a%C3%BC%20"),
        (11, "a%C3%BC b"),
        (14, "a%C3%BC b%25"),
        (99, "a%C3%BC b%25"),
    ];
    for (max, kept) in cases {
        let status = Status::new(Code::Internal, "aü b%").with_details(vec![1]);
        text.encode(&status);
        text.encode_beginning(&status, max);
        let expected = [("grpc-status", "13"), ("grpc-message", kept)];
        let expected = if kept.is_empty() { &expected[..1] } else { &expected };
        assert_eq!(listed(text.fields(Code::Internal)), owned(expected), "{max}");
        assert!(kept.len() <= max);
    }
}

#[test]
fn details_that_are_not_base64_do_not_hide_the_status() {
    let pairs = [("grpc-status", "5"), ("grpc-message", "gone"), ("grpc-status-details-bin", "***")];
    let status =
        read_answer(fields(&pairs), &Encodings::default(), &mut MetadataMap::new()).status.expect("a status");
    assert_eq!((status.code(), status.message(), status.details()), (Code::NotFound, "gone", &[][..]));
}

#[test]
fn an_answer_without_a_status_means_what_its_http_status_means() {
    let meaning = |pairs: &[Pair]| {
        let status =
            foreign_status(&read_answer(fields(pairs), &Encodings::default(), &mut MetadataMap::new()));
        (status.code(), status.message().to_owned())
    };
    for (http, code) in [
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("429", Code::Unavailable),
        ("431", Code::Unknown),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("500", Code::Unknown),
        ("600", Code::Unknown),
        ("999", Code::Unknown),
    ] {
        let (meant, message) = meaning(&[(":status", http)]);
        assert_eq!(meant, code, "{http}");
        assert!(message.contains(http), "{message}");
    }
    for garbage in ["", "20", "2000", "abc", "-20", "+20"] {
        assert_eq!(meaning(&[(":status", garbage)]).0, Code::Unknown, "{garbage}");
    }
    let (code, message) = meaning(&[(":status", "200"), ("content-type", "text/html")]);
    assert_eq!(code, Code::Unknown);
    assert!(message.contains("text/html"), "{message}");
    assert_eq!(meaning(&[(":status", "200"), ("content-type", "application/grpc")]).0, Code::Unknown);
}

#[test]
fn metadata_of_an_answer_may_have_any_value_that_http_allows() {
    let latin = [Field::new(b"key", b"caf\xe9")];
    let mut metadata = MetadataMap::new();
    assert!(read_answer(latin.into_iter(), &Encodings::default(), &mut metadata).fault.is_none());
    let echoed: Vec<_> = metadata_fields(&metadata).map(|field| field.value.to_vec()).collect();
    assert_eq!(echoed, [b"caf\xe9"]);
}

#[test]
fn an_answer_with_bad_base64_is_a_fault_and_not_dropped() {
    let fault = read_answer(fields(&[("key-bin", "*")]), &Encodings::default(), &mut MetadataMap::new())
        .fault
        .expect("a fault");
    assert_eq!(fault.code(), Code::Internal);
}
