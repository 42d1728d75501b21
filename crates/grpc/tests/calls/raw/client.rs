//! A bare client against a server.

use fulmar_grpc::{Code, Config, MetadataMap, Status, base64, percent};
use fulmar_http2::ErrorCode;

use super::{Raw, Seen, fields, raw_client};
use crate::support::{ECHO, Happened, finish, prefixed, reply};

/// A field list: names and values.
type List<'f> = Vec<(&'f str, &'f [u8])>;

/// The fields of a request that is in order.
fn request() -> List<'static> {
    vec![
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", ECHO.as_bytes()),
        (":authority", b"test.example"),
        ("te", b"trailers"),
        ("content-type", b"application/grpc"),
    ]
}

/// [`request`] with another value for this name, or without it.
fn request_with<'f>(name: &'f str, value: Option<&'f [u8]>) -> List<'f> {
    let mut list: List<'f> = request();
    list.retain(|(known, _)| *known != name);
    if let Some(value) = value {
        let at = if name.starts_with(':') { 0 } else { list.len() };
        list.insert(at, (name, value));
    }
    list
}

/// What a server answers that nobody helps: the fields of the first header block, and whether that is all.
struct Answer {
    fields: Vec<(String, Vec<u8>)>,
    end: bool,
}

impl Answer {
    fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(known, _)| known == name)?;
        std::str::from_utf8(value).ok()
    }

    fn code(&self) -> Option<Code> {
        self.get("grpc-status").map(|value| Code::from_wire(value.as_bytes()))
    }

    fn message(&self) -> String {
        percent::decode(self.get("grpc-message").unwrap_or_default().as_bytes())
    }
}

/// Sends a request with this body; what the server answers at once, and what it makes of it.
fn ask(list: &[(&str, &[u8])], body: Option<&[u8]>) -> (Option<Answer>, Vec<Happened>) {
    let (mut raw, mut server) = raw_client(Config { receive_message_bytes_max: 1_000, ..Config::default() });
    let stream =
        raw.act(|raw, env| raw.open(env, fields(list), body.is_none())).expect("the request goes out");
    if let Some(body) = body {
        raw.act(|raw, env| raw.send_data(env, stream, body, true)).expect("the body goes out");
    }
    raw.run(&mut server);
    assert_eq!(server.pool.outstanding(), 0, "no block is left");
    (first_answer(&raw), server.take_log())
}

fn first_answer(raw: &Raw) -> Option<Answer> {
    raw.log.iter().find_map(|seen| match seen {
        Seen::Headers { fields, end } => Some(Answer { fields: fields.clone(), end: *end }),
        _ => None,
    })
}

/// The answer to a request that must not begin a call.
fn refused(list: &[(&str, &[u8])]) -> Answer {
    let (answer, happened) = ask(list, Some(&prefixed(b"question")));
    assert_eq!(happened, [], "no call begins: {list:?}");
    let answer = answer.expect("there is an answer");
    assert!(answer.end, "one header block is the whole answer");
    answer
}

/// Wire rule 2.
#[test]
fn content_types_of_grpc_begin_a_call() {
    let accepted: [&[u8]; 6] = [
        b"application/grpc",
        b"application/grpc+proto",
        b"application/grpc;charset=utf-8",
        b"application/grpc; a=b",
        b"application/grpc+proto;a=b",
        b"Application/GRPC",
    ];
    for content_type in accepted {
        let (answer, happened) =
            ask(&request_with("content-type", Some(content_type)), Some(&prefixed(b"question")));
        assert!(answer.is_none(), "{}", content_type.escape_ascii());
        assert!(matches!(happened[0], Happened::Begin { .. }));
    }
}

/// Wire rule 2.
#[test]
fn other_content_types_are_http_415() {
    let refused_types: [Option<&[u8]>; 8] = [
        None,
        Some(b""),
        Some(b"application/json"),
        Some(b"application/grpcx"),
        Some(b"application/grpc-web"),
        Some(b"application/grpc-web+proto"),
        Some(b"application/grp"),
        Some(b"text/plain; application/grpc"),
    ];
    for content_type in refused_types {
        let answer = refused(&request_with("content-type", content_type));
        assert_eq!(answer.get(":status"), Some("415"), "{content_type:?}");
        assert_eq!(answer.get("grpc-status"), None);
    }
}

/// Wire rule 2.
#[test]
fn another_message_format_is_an_error() {
    let answer = refused(&request_with("content-type", Some(b"application/grpc+json")));
    assert_eq!(answer.get(":status"), Some("200"));
    assert_eq!(answer.code(), Some(Code::Unimplemented));
}

/// Wire rule 3.
#[test]
fn other_methods_of_http_are_405() {
    for method in [&b"GET"[..], b"PUT", b"post", b"DELETE"] {
        let answer = refused(&request_with(":method", Some(method)));
        assert_eq!(answer.get(":status"), Some("405"));
        assert_eq!(answer.code(), Some(Code::Internal));
    }
    let mut list = request_with(":method", Some(b"GET"));
    list.retain(|(name, _)| *name != "content-type");
    assert_eq!(refused(&list).get(":status"), Some("415"), "the content-type is looked at first");
}

/// Wire rule 6.
#[test]
fn a_malformed_timeout_is_internal() {
    for value in [&b"1"[..], b"S", b"123456789S", b"-1S", b"1.5S", b"1s", b"1 S", b"abc"] {
        let answer = refused(&request_with("grpc-timeout", Some(value)));
        assert_eq!(
            (answer.get(":status"), answer.code()),
            (Some("200"), Some(Code::Internal)),
            "{}",
            value.escape_ascii()
        );
        assert!(answer.message().contains("grpc-timeout"), "{}", answer.message());
    }
}

/// Wire rule 12.
#[test]
fn a_binary_value_that_is_not_base64_is_internal() {
    for value in [&b"!"[..], b"A", b"Zg=", b"Zm8,A"] {
        let answer = refused(&request_with("trace-bin", Some(value)));
        assert_eq!((answer.get(":status"), answer.code()), (Some("200"), Some(Code::Internal)));
        assert!(answer.message().contains("trace-bin"), "{}", answer.message());
    }
}

/// Wire rules 10 and 11.
#[test]
fn odd_values_of_metadata_reach_the_handler_and_may_be_echoed() {
    let (mut raw, mut server) = raw_client(Config::default());
    let mut list = request();
    list.extend([
        ("latin", &b"caf\xe9 \t!"[..]),
        ("utf8", "☃".as_bytes()),
        ("a-bin", b"Zg==,Zm8"),
        ("odd!name", b"1"),
    ]);
    raw.act(|raw, env| raw.open(env, fields(&list), true)).expect("the request goes out");
    raw.run(&mut server);
    let Happened::Begin { call, metadata, .. } = server.next() else { panic!("the call begins") };
    assert_eq!(
        metadata.get_value("latin").map(|value| value.as_wire().to_vec()),
        Some(b"caf\xe9 \t!".to_vec())
    );
    assert_eq!(metadata.get("utf8"), Some("☃"));
    assert_eq!(metadata.get_all_bin("a-bin").collect::<Vec<_>>(), [&b"f"[..], b"fo"]);
    assert_eq!(metadata.get("odd!name"), Some("1"));

    server
        .act(|server, env| server.finish(env, call, &Status::ok(""), &metadata))
        .expect("the call is there");
    raw.run(&mut server);
    let answer = first_answer(&raw).expect("there is an answer");
    let echoed: Vec<_> =
        answer.fields.iter().filter(|(name, _)| metadata.contains_key(name)).cloned().collect();
    let sent: Vec<_> = metadata
        .raw_iter()
        .filter(|(name, ..)| *name != b":authority")
        .map(|(name, value, _)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()))
        .collect();
    assert_eq!(echoed, sent);
}

/// Wire rule 5.
#[test]
fn whom_a_request_is_for_is_said_by_its_authority_or_else_by_its_host() {
    let told = |change: fn(&mut List<'static>)| {
        let mut list = request();
        list.retain(|(name, _)| *name != ":authority");
        change(&mut list);
        let (_, happened) = ask(&list, Some(&prefixed(b"question")));
        let Some(Happened::Begin { metadata, .. }) = happened.first() else { panic!("the call begins") };
        assert!(!metadata.contains_key("host"), "it is no metadata");
        metadata.get(":authority").map(str::to_owned)
    };
    assert_eq!(told(|list| list.insert(0, (":authority", b"a.example"))).as_deref(), Some("a.example"));
    assert_eq!(told(|list| list.push(("host", b"b.example"))).as_deref(), Some("b.example"));
    let both = |list: &mut List<'static>| {
        list.insert(0, (":authority", b"a.example"));
        list.push(("host", b"b.example"));
    };
    assert_eq!(told(both).as_deref(), Some("a.example"));
    assert_eq!(told(|_| ()), None);
}

/// Wire rule 17.
#[test]
fn an_unknown_encoding_is_unimplemented() {
    let answer = refused(&request_with("grpc-encoding", Some(b"snappy-and-friends")));
    assert_eq!((answer.get(":status"), answer.code()), (Some("200"), Some(Code::Unimplemented)));
    let accepted = answer.get("grpc-accept-encoding").expect("it says what it accepts");
    assert!(!accepted.contains("snappy"));
    assert!(accepted.split(',').any(|encoding| encoding.trim() == "identity"));
    let (answer, happened) =
        ask(&request_with("grpc-encoding", Some(b"identity")), Some(&prefixed(b"question")));
    assert!(answer.is_none() && matches!(happened[0], Happened::Begin { .. }));
}

/// Wire rules 16, 20 and 23: how bodies end that are no messages.
#[test]
fn bodies_that_are_no_messages_end_the_call() {
    let bodies: [(&[u8], Code); 9] = [
        (&[1, 0, 0, 0, 1, 7], Code::Internal),
        (&[2, 0, 0, 0, 1, 7], Code::Internal),
        (&[0x80, 0, 0, 0, 1, 7], Code::Internal),
        (&[0xff, 0, 0, 0, 0], Code::Internal),
        (&[0, 0, 0, 3, 0xe9, 7], Code::ResourceExhausted),
        (&[0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
        (&[0], Code::Internal),
        (&[0, 0, 0, 0], Code::Internal),
        (&[0, 0, 0, 0, 5, 1, 2, 3, 4], Code::Internal),
    ];
    for (body, code) in bodies {
        let (answer, happened) = ask(&request(), Some(body));
        let answer = answer.expect("there is an answer");
        assert_eq!(
            (answer.get(":status"), answer.code(), answer.end),
            (Some("200"), Some(code), true),
            "{body:?}"
        );
        assert!(
            matches!(happened[..], [Happened::Begin { call, .. }, Happened::Finished { call: ended, .. }] if call == ended),
            "{happened:?}"
        );
    }
}

/// Wire rules 15 and 23: whole messages in front of the fault are handed over.
#[test]
fn messages_in_front_of_a_fault_are_handed_over() {
    let mut body = [prefixed(b"one"), prefixed(b""), prefixed(b"three")].concat();
    body.extend_from_slice(&[0, 0, 0, 0, 9, 1]);
    let (answer, happened) = ask(&request(), Some(&body));
    assert_eq!(answer.and_then(|answer| answer.code()), Some(Code::Internal));
    let messages: Vec<_> = happened
        .iter()
        .filter_map(|happened| match happened {
            Happened::Message { bytes, .. } => Some(bytes.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(messages, [&b"one"[..], b"", b"three"]);
    assert!(
        !happened.iter().any(|happened| matches!(happened, Happened::HalfClosed { .. })),
        "it has no proper end"
    );
}

/// Wire rule 20: the limit is looked at when the prefix has come, not when the message has.
#[test]
fn a_message_over_the_limit_is_refused_at_its_prefix() {
    let (mut raw, mut server) = raw_client(Config { receive_message_bytes_max: 1_000, ..Config::default() });
    let stream = raw.act(|raw, env| raw.open(env, fields(&request()), false)).expect("the request goes out");
    raw.act(|raw, env| raw.send_data(env, stream, &[0, 0, 0, 3, 0xe9], false)).expect("the prefix goes out");
    raw.run(&mut server);
    let answer = first_answer(&raw).expect("there is an answer");
    assert_eq!(answer.code(), Some(Code::ResourceExhausted));
    assert_eq!(raw.log.last(), Some(&Seen::Reset(ErrorCode::NoError)), "and the client is asked to stop");
    assert_eq!(server.pool.outstanding(), 0);
}

/// Wire rule 15.
#[test]
fn empty_data_and_split_prefixes_change_nothing() {
    let body = [prefixed(b"one"), prefixed(b""), prefixed(&[3; 900])].concat();
    for piece in [1, 2, 3, 4, 5, 6, 7, 100] {
        let (mut raw, mut server) = raw_client(Config::default());
        let stream =
            raw.act(|raw, env| raw.open(env, fields(&request()), false)).expect("the request goes out");
        for part in body.chunks(piece) {
            raw.act(|raw, env| raw.send_data(env, stream, part, false)).expect("a part goes out");
            raw.act(|raw, env| raw.send_data(env, stream, &[], false)).expect("an empty frame goes out");
            raw.run(&mut server);
        }
        raw.act(|raw, env| raw.send_data(env, stream, &[], true)).expect("the end goes out");
        raw.run(&mut server);
        let call = server.begun();
        assert_eq!(server.messages(), [&b"one"[..], b"", &[3; 900]]);
        assert_eq!(server.log.back(), Some(&Happened::HalfClosed { call }));
        assert_eq!(server.pool.outstanding(), 0);
    }
}

/// Trailers of a request have no meaning in gRPC besides its end.
#[test]
fn a_request_may_end_with_trailers() {
    let (mut raw, mut server) = raw_client(Config::default());
    let stream = raw.act(|raw, env| raw.open(env, fields(&request()), false)).expect("the request goes out");
    raw.act(|raw, env| raw.send_data(env, stream, &prefixed(b"question"), false))
        .expect("the message goes out");
    raw.act(|raw, env| raw.send_headers(env, stream, fields(&[("a", b"1")]), true))
        .expect("the trailers go out");
    raw.run(&mut server);
    let call = server.begun();
    assert_eq!(server.take_log()[1..], [Happened::HalfClosed { call }]);
    reply(&mut server, call, b"answer");
    raw.run(&mut server);
    assert!(raw.log.contains(&Seen::Data { bytes: prefixed(b"answer"), end: false }));
}

/// Wire rules 31 and 32, as they are on the wire.
#[test]
fn a_status_is_encoded_as_grpc_says() {
    let (mut raw, mut server) = raw_client(Config::default());
    raw.act(|raw, env| raw.open(env, fields(&request()), true)).expect("the request goes out");
    raw.run(&mut server);
    let call = server.begun();
    finish(
        &mut server,
        call,
        &Status::with_code_and_details(Code::Unauthenticated, " 100% ☺", vec![0xff, 0xfe]),
    );
    raw.run(&mut server);
    let answer = first_answer(&raw).expect("there is an answer");
    assert_eq!(answer.get("grpc-status"), Some("16"));
    assert_eq!(answer.get("grpc-message"), Some("%20100%25 %E2%98%BA"));
    let mut details = Vec::new();
    base64::encode(&[0xff, 0xfe], &mut details);
    assert_eq!(answer.get("grpc-status-details-bin").map(str::as_bytes), Some(&details[..]));
    assert_eq!(answer.get("content-type"), Some("application/grpc"));
}

/// A client may stop reading the answer with RST_STREAM at any time.
#[test]
fn a_reset_of_the_client_ends_the_call() {
    for code in [ErrorCode::Cancel, ErrorCode::NoError, ErrorCode::InternalError, ErrorCode::Unknown(99)] {
        let (mut raw, mut server) = raw_client(Config::default());
        let stream =
            raw.act(|raw, env| raw.open(env, fields(&request()), false)).expect("the request goes out");
        raw.act(|raw, env| raw.send_data(env, stream, &[0, 0, 0, 0, 9, 1, 2], false))
            .expect("a part goes out");
        raw.run(&mut server);
        let call = server.begun();
        raw.act(|raw, env| raw.reset(env, stream, code));
        raw.run(&mut server);
        assert_eq!(server.take_log(), [Happened::Finished { call, outcome: None }]);
        assert_eq!((server.end.calls(), server.pool.outstanding()), (0, 0));
        let late = server.act(|server, env| server.finish(env, call, &Status::ok(""), MetadataMap::EMPTY));
        assert!(late.is_err());
    }
}
