//! A bare server against a client.

use fulmar_grpc::{Client, Code, Config, MetadataMap, Start};
use fulmar_http2::{ErrorCode, StreamKey};

use super::{Raw, Seen, fields, raw_server};
use crate::support::{ECHO, Happened, Outcome, Side, prefixed};

/// The fields that open an answer.
const HEADERS: &[(&str, &[u8])] = &[(":status", b"200"), ("content-type", b"application/grpc")];

/// The trailers of a call that went well.
const OK: &[(&str, &[u8])] = &[("grpc-status", b"0")];

/// A client whose call the bare server has seen, with the stream of the call there.
fn called(config: Config) -> (Raw, Side<Client>, StreamKey) {
    let (mut raw, mut client) = raw_server(config);
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    client.act(|client, env| client.start(env, start, Some(b"question"), true)).expect("the call starts");
    raw.run(&mut client);
    let stream = raw.streams[0];
    (raw, client, stream)
}

/// A part of an answer.
#[derive(Copy, Clone, Debug)]
enum Part<'p> {
    Headers(&'p [(&'p str, &'p [u8])]),
    Data(&'p [u8]),
    /// A header block with END_STREAM.
    Trailers(&'p [(&'p str, &'p [u8])]),
    /// DATA with END_STREAM.
    LastData(&'p [u8]),
    Reset(ErrorCode),
}

/// What a client makes of an answer: its messages and the outcome.
fn answered(parts: &[Part<'_>]) -> (Vec<Vec<u8>>, Outcome) {
    let (mut raw, mut client, stream) =
        called(Config { receive_message_bytes_max: 1_000, ..Config::default() });
    for part in parts {
        let _ = raw.act(|raw, env| match part {
            Part::Headers(list) => raw.send_headers(env, stream, fields(list), false),
            Part::Data(bytes) => raw.send_data(env, stream, bytes, false),
            Part::Trailers(list) => raw.send_headers(env, stream, fields(list), true),
            Part::LastData(bytes) => raw.send_data(env, stream, bytes, true),
            Part::Reset(code) => {
                raw.reset(env, stream, *code);
                Ok(())
            }
        });
        raw.run(&mut client);
    }
    assert_eq!(client.error, None, "the connection is well");
    let messages = client.messages().iter().map(|message| message.to_vec()).collect();
    let outcome = client.outcome();
    assert_eq!((client.end.calls(), client.pool.outstanding()), (0, 0));
    (messages, outcome)
}

fn code_of(parts: &[Part<'_>]) -> Code {
    answered(parts).1.code
}

#[test]
fn an_answer_in_order_is_taken() {
    let message = prefixed(b"answer");
    let (messages, outcome) = answered(&[Part::Headers(HEADERS), Part::Data(&message), Part::Trailers(OK)]);
    assert_eq!((messages, outcome.code), (vec![b"answer".to_vec()], Code::Ok));
}

/// Wire rules 1 and 24: what a request looks like to others.
#[test]
fn a_request_has_the_fields_that_grpc_says_in_their_order() {
    let (mut raw, mut client) = raw_server(Config::default());
    let mut metadata = MetadataMap::new();
    metadata.insert("request-id", "17").expect("legal");
    let timeout = Some(std::time::Duration::from_secs(1));
    let start = Start {
        path: ECHO,
        metadata: &metadata,
        timeout,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    client.act(|client, env| client.start(env, start, Some(b"question"), true)).expect("the call starts");
    raw.run(&mut client);
    let Seen::Headers { fields, end: false } = &raw.log[0] else { panic!("{:?}", raw.log) };
    let get = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
    assert_eq!(get(":method"), Some(&b"POST"[..]));
    assert_eq!(get(":scheme"), Some(&b"http"[..]));
    assert_eq!(get(":path"), Some(ECHO.as_bytes()));
    assert_eq!(get(":authority"), Some(&b"test.example:1"[..]));
    assert_eq!(get("te"), Some(&b"trailers"[..]));
    assert_eq!(get("grpc-timeout"), Some(&b"1000000u"[..]));
    assert!(get("content-type").is_some_and(|value| value.starts_with(b"application/grpc")));
    assert!(get("user-agent").is_some());
    let place = |name: &str| fields.iter().position(|(known, _)| known == name).expect("it is there");
    assert_eq!(fields.last().map(|(name, _)| name.as_str()), Some("request-id"), "metadata comes last");
    assert!(place("grpc-timeout") > 3 && place("grpc-timeout") < place("content-type"));
    assert_eq!(raw.log[1], Seen::Data { bytes: prefixed(b"question"), end: true });
}

/// Wire rule 28.
#[test]
fn http_statuses_without_a_grpc_status_are_mapped() {
    let map = [
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("429", Code::Unavailable),
        ("431", Code::Unknown),
        ("500", Code::Unknown),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("301", Code::Unknown),
        ("999", Code::Unknown),
    ];
    for (status, code) in map {
        let list: &[(&str, &[u8])] = &[(":status", status.as_bytes()), ("content-type", b"text/html")];
        let (_, outcome) = answered(&[Part::Trailers(list)]);
        assert_eq!(outcome.code, code, "{status}");
        assert!(outcome.message.contains(status), "{}", outcome.message);
        let (_, outcome) =
            answered(&[Part::Headers(list), Part::Data(b"<html>"), Part::LastData(b"</html>")]);
        assert_eq!(outcome.code, code, "{status} with a body");
        assert!(outcome.message.contains("<html>"), "the page is quoted: {}", outcome.message);
    }
}

/// Wire rule 28.
#[test]
fn a_grpc_status_wins_over_the_http_status() {
    let list: &[(&str, &[u8])] =
        &[(":status", b"503"), ("content-type", b"application/grpc"), ("grpc-status", b"5")];
    assert_eq!(code_of(&[Part::Trailers(list)]), Code::NotFound);
}

/// Found by fuzzing.
#[test]
fn ok_behind_an_answer_that_is_none_does_not_count() {
    let page: &[(&str, &[u8])] = &[(":status", b"200"), ("content-type", b"text/html")];
    let (messages, outcome) = answered(&[Part::Headers(page), Part::Data(b"<html>"), Part::Trailers(OK)]);
    assert_eq!((messages.len(), outcome.code), (0, Code::Unknown));
    assert!(outcome.message.contains("<html>"), "the page is quoted: {}", outcome.message);
    let missing: &[(&str, &[u8])] = &[(":status", b"404")];
    assert_eq!(code_of(&[Part::Headers(missing), Part::Trailers(OK)]), Code::Unimplemented);
}

/// Wire rule 28.
#[test]
fn an_answer_without_a_status_is_unknown() {
    let message = prefixed(b"answer");
    assert_eq!(code_of(&[Part::Trailers(HEADERS)]), Code::Unknown);
    let (_, outcome) =
        answered(&[Part::Headers(HEADERS), Part::Data(&message), Part::Trailers(&[("a", b"1")])]);
    assert_eq!(outcome.code, Code::Unknown);
    assert!(outcome.message.contains("trailers"), "{}", outcome.message);
    assert_eq!(code_of(&[Part::Headers(HEADERS), Part::LastData(&message)]), Code::Unknown);
    let foreign: &[(&str, &[u8])] = &[(":status", b"200"), ("content-type", b"text/html")];
    assert_eq!(code_of(&[Part::Trailers(foreign)]), Code::Unknown);
    assert_eq!(code_of(&[Part::Headers(foreign), Part::LastData(b"hello")]), Code::Unknown);
    assert_eq!(code_of(&[Part::Trailers(&[(":status", b"200")])]), Code::Unknown);
}

/// Wire rule 27.
#[test]
fn a_status_in_headers_that_do_not_end_the_answer_does_not_count() {
    let list: &[(&str, &[u8])] = &[
        (":status", b"200"),
        ("content-type", b"application/grpc"),
        ("grpc-status", b"5"),
        ("grpc-message", b"early"),
    ];
    let message = prefixed(b"answer");
    let (messages, outcome) = answered(&[Part::Headers(list), Part::Data(&message), Part::Trailers(OK)]);
    assert_eq!((messages.len(), outcome.code, outcome.message.as_str()), (1, Code::Ok, ""));
}

/// Wire rule 29.
#[test]
fn interim_responses_are_skipped() {
    let message = prefixed(b"answer");
    let hints: &[(&str, &[u8])] = &[(":status", b"103"), ("link", b"</style.css>"), ("grpc-status", b"5")];
    let (messages, outcome) = answered(&[
        Part::Headers(&[(":status", b"100")]),
        Part::Headers(hints),
        Part::Headers(HEADERS),
        Part::Data(&message),
        Part::Trailers(OK),
    ]);
    assert_eq!((messages.len(), outcome.code), (1, Code::Ok));
    assert_eq!(outcome.trailers, MetadataMap::new());
}

/// Wire rule 30.
#[test]
fn garbage_for_a_status_is_unknown() {
    for value in [&b""[..], b"17", b"99999999999", b"-1", b"05", b"OK", b"5x", b"\xff"] {
        let trailers: &[(&str, &[u8])] = &[("grpc-status", value), ("grpc-message", b"odd")];
        let (_, outcome) = answered(&[Part::Headers(HEADERS), Part::Trailers(trailers)]);
        assert_eq!(outcome.code, Code::Unknown, "{}", value.escape_ascii());
    }
}

/// Wire rules 31 and 32.
#[test]
fn odd_messages_and_bad_details_do_not_hide_the_status() {
    let cases: [(&[u8], &str); 4] = [
        (b"100% sure %zz", "100% sure %zz"),
        (b"a%E2%98%BAb", "a☺b"),
        (b"caf\xe9", "caf\u{fffd}"),
        (b"%ff", "\u{fffd}"),
    ];
    for (sent, read) in cases {
        let trailers: &[(&str, &[u8])] =
            &[("grpc-status", b"7"), ("grpc-message", sent), ("grpc-status-details-bin", b"!!!")];
        let (_, outcome) = answered(&[Part::Headers(HEADERS), Part::Trailers(trailers)]);
        assert_eq!((outcome.code, outcome.message.as_str()), (Code::PermissionDenied, read));
        assert_eq!(outcome.details, b"");
    }
    let padded: &[(&str, &[u8])] = &[("grpc-status", b"7"), ("grpc-status-details-bin", b"Zg==")];
    let (_, outcome) = answered(&[Part::Headers(HEADERS), Part::Trailers(padded)]);
    assert_eq!((outcome.code, outcome.details), (Code::PermissionDenied, b"f".to_vec()));
}

/// Wire rule 12, at the client.
#[test]
fn bad_base64_in_metadata_ends_a_call_that_went_well_and_no_other() {
    let bad: &[(&str, &[u8])] = &[("grpc-status", b"0"), ("a-bin", b"!")];
    let (_, outcome) = answered(&[Part::Headers(HEADERS), Part::Trailers(bad)]);
    assert_eq!(outcome.code, Code::Internal);
    assert!(outcome.message.contains("a-bin"), "{}", outcome.message);
    let bad: &[(&str, &[u8])] = &[("grpc-status", b"5"), ("a-bin", b"!")];
    assert_eq!(code_of(&[Part::Headers(HEADERS), Part::Trailers(bad)]), Code::NotFound);
    let bad: &[(&str, &[u8])] =
        &[(":status", b"200"), ("content-type", b"application/grpc"), ("a-bin", b"!")];
    assert_eq!(code_of(&[Part::Headers(bad), Part::Trailers(OK)]), Code::Internal);
}

/// Wire rule 33.
#[test]
fn resets_are_mapped() {
    let map = [
        (ErrorCode::NoError, Code::Internal),
        (ErrorCode::ProtocolError, Code::Internal),
        (ErrorCode::InternalError, Code::Internal),
        (ErrorCode::FlowControlError, Code::Internal),
        (ErrorCode::SettingsTimeout, Code::Internal),
        (ErrorCode::FrameSizeError, Code::Internal),
        (ErrorCode::CompressionError, Code::Internal),
        (ErrorCode::ConnectError, Code::Internal),
        (ErrorCode::RefusedStream, Code::Unavailable),
        (ErrorCode::Cancel, Code::Cancelled),
        (ErrorCode::EnhanceYourCalm, Code::ResourceExhausted),
        (ErrorCode::InadequateSecurity, Code::PermissionDenied),
        (ErrorCode::StreamClosed, Code::Internal),
        (ErrorCode::Http11Required, Code::Internal),
        (ErrorCode::Unknown(77), Code::Internal),
    ];
    for (reset, code) in map {
        let (_, outcome) = answered(&[Part::Reset(reset)]);
        assert_eq!(outcome.code, code, "{reset}");
        assert!(outcome.message.contains(&reset.to_string()), "{}", outcome.message);
        assert_eq!(outcome.unprocessed, reset == ErrorCode::RefusedStream, "{reset}");
        let (_, outcome) =
            answered(&[Part::Headers(HEADERS), Part::Data(&[0, 0, 0, 0, 9, 1]), Part::Reset(reset)]);
        assert_eq!(outcome.code, code, "{reset} inside a message");
    }
}

/// Wire rule 33.
#[test]
fn a_reset_behind_the_trailers_is_no_error() {
    let (mut raw, mut client) = raw_server(Config::default());
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    let call = client
        .act(|client, env| client.start(env, start, Some(b"question"), false))
        .expect("the call starts");
    raw.run(&mut client);
    let stream = raw.streams[0];
    raw.act(|raw, env| raw.send_headers(env, stream, fields(HEADERS), false)).expect("the headers go out");
    raw.act(|raw, env| raw.send_headers(env, stream, fields(OK), true)).expect("the trailers go out");
    raw.act(|raw, env| raw.reset(env, stream, ErrorCode::NoError));
    raw.run(&mut client);
    assert_eq!(client.outcome().code, Code::Ok);
    assert!(client.act(|client, env| client.send_message(env, call, b"late")).is_err());
    assert_eq!(client.end.calls(), 0);
}

/// Wire rule 34: the client that got its trailers tells the server to stop waiting.
#[test]
fn a_client_with_trailers_resets_its_side() {
    let (mut raw, mut client) = raw_server(Config::default());
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    client.act(|client, env| client.start(env, start, Some(b"question"), false)).expect("the call starts");
    raw.run(&mut client);
    let stream = raw.streams[0];
    raw.act(|raw, env| raw.send_headers(env, stream, fields(HEADERS), false)).expect("the headers go out");
    raw.act(|raw, env| raw.send_headers(env, stream, fields(OK), true)).expect("the trailers go out");
    raw.run(&mut client);
    assert_eq!(raw.log.last(), Some(&Seen::Reset(ErrorCode::NoError)));
    assert_eq!(client.outcome().code, Code::Ok);
}

/// Wire rules 16, 18, 20 and 23.
#[test]
fn bodies_that_are_no_messages_end_the_call() {
    let bodies: [(&[u8], Code); 8] = [
        (&[1, 0, 0, 0, 1, 7], Code::Internal),
        (&[2, 0, 0, 0, 1, 7], Code::Internal),
        (&[0x80, 0, 0, 0, 1, 7], Code::Internal),
        (&[0, 0, 0, 3, 0xe9, 7], Code::ResourceExhausted),
        (&[0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
        (&[0], Code::Internal),
        (&[0, 0, 0, 0], Code::Internal),
        (&[0, 0, 0, 0, 5, 1, 2, 3, 4], Code::Internal),
    ];
    for (body, code) in bodies {
        let (messages, outcome) = answered(&[Part::Headers(HEADERS), Part::Data(body), Part::Trailers(OK)]);
        assert_eq!((messages.len(), outcome.code), (0, code), "{body:?}");
    }
}

/// Wire rule 23: the server's own error says more than the message that it broke off.
#[test]
fn an_error_behind_half_a_message_is_the_servers() {
    let trailers: &[(&str, &[u8])] = &[("grpc-status", b"15"), ("grpc-message", b"disk")];
    let parts = [Part::Headers(HEADERS), Part::Data(&[0, 0, 0, 0, 5, 1]), Part::Trailers(trailers)];
    assert_eq!(code_of(&parts), Code::DataLoss);
}

/// Wire rule 17, at the client.
#[test]
fn an_encoding_that_was_not_offered_is_internal() {
    let list: &[(&str, &[u8])] = &[
        (":status", b"200"),
        ("content-type", b"application/grpc"),
        ("grpc-encoding", b"snappy-and-friends"),
    ];
    assert_eq!(code_of(&[Part::Headers(list), Part::Trailers(OK)]), Code::Internal);
    let list: &[(&str, &[u8])] =
        &[(":status", b"200"), ("content-type", b"application/grpc"), ("grpc-encoding", b"identity")];
    assert_eq!(code_of(&[Part::Headers(list), Part::Trailers(OK)]), Code::Ok);
}

/// Wire rule 25 in spirit: what is thrown away is credited, so that the next call has a window.
#[test]
fn a_long_page_that_is_no_answer_leaves_the_connection_well() {
    let (mut raw, mut client, stream) = called(Config::default());
    let foreign: &[(&str, &[u8])] = &[(":status", b"502"), ("content-type", b"text/html")];
    raw.act(|raw, env| raw.send_headers(env, stream, fields(foreign), false)).expect("the headers go out");
    for _ in 0..200 {
        let _ = raw.act(|raw, env| raw.send_data(env, stream, &[b'x'; 16_000], false));
        raw.run(&mut client);
    }
    let outcome = client.outcome();
    assert_eq!(outcome.code, Code::Unavailable);
    assert!(outcome.message.len() < 2_000, "only the beginning is quoted");
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    let call =
        client.act(|client, env| client.start(env, start, Some(b"question"), true)).expect("the call starts");
    raw.run(&mut client);
    let stream = raw.streams[1];
    raw.act(|raw, env| raw.send_headers(env, stream, fields(HEADERS), false)).expect("the headers go out");
    let message = prefixed(&[7; 2_000_000]);
    raw.act(|raw, env| raw.send_data(env, stream, &message, false)).expect("the message goes out");
    raw.act(|raw, env| raw.send_headers(env, stream, fields(OK), true)).expect("the trailers go out");
    raw.run(&mut client);
    assert!(client.log.contains(&Happened::Message { call, bytes: vec![7; 2_000_000] }));
    assert_eq!(client.outcome().code, Code::Ok);
}

/// Wire rule 37.
#[test]
fn calls_above_the_last_id_of_a_goaway_were_not_processed() {
    let (mut raw, mut client, stream) = called(Config::default());
    // The server goes away having seen the first call only.
    raw.act(|raw, env| raw.go_away(env, ErrorCode::NoError, b"maintenance"));
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    let late = client
        .act(|client, env| client.start(env, start, Some(b"late"), true))
        .expect("it does not know yet");
    raw.run(&mut client);
    let log = client.take_log();
    assert!(log.contains(&Happened::GoingAway), "{log:?}");
    let ended: Vec<_> = log
        .into_iter()
        .filter_map(|happened| match happened {
            Happened::Finished { call, outcome } => Some((call, outcome.expect("the client knows"))),
            _ => None,
        })
        .collect();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].0, ended[0].1.code, ended[0].1.unprocessed), (late, Code::Unavailable, true));
    raw.act(|raw, env| raw.send_headers(env, stream, fields(HEADERS), false))
        .expect("the first call goes on");
    raw.act(|raw, env| raw.send_headers(env, stream, fields(OK), true)).expect("the first call goes on");
    raw.run(&mut client);
    let outcome = client.outcome();
    assert_eq!((outcome.code, outcome.unprocessed), (Code::Ok, false));
}
