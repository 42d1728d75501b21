//! Calls that end badly, and how each end is told.

use fulmar_base::Closed;
use fulmar_grpc::{Code, Config, MetadataMap, Status};
use fulmar_http2::ErrorCode;

use crate::support::{
    DATA, ECHO, END_STREAM, HEADERS, Happened, Pair, RST_STREAM, call_frames, finish, half_close, reply, send,
};

/// Wire rules 26, 31 and 32.
#[test]
fn an_error_before_any_message_is_one_header_block() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    let text = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
    let status = Status::with_code_and_details(Code::Unknown, text, vec![8, 2, 0xff]);
    finish(&mut pair.server, at_server, &status);
    pair.run();
    let frames = call_frames(&pair.to_client);
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].kind, frames[0].flags & END_STREAM), (HEADERS, END_STREAM));
    let happened = pair.client.log.clone();
    assert_eq!(happened.len(), 1, "no headers event: {happened:?}");
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::Unknown, text));
    assert_eq!(outcome.details, [8, 2, 0xff]);
    assert!(outcome.trailers.is_empty());
    pair.assert_at_rest();
}

#[test]
fn every_code_and_odd_messages_arrive_as_they_were_sent() {
    let mut pair = Pair::new();
    for code in Code::ALL {
        for text in ["", " ", "%", "100%25", "trailing ", "ümläut", "\u{0}\u{7f}", &"long ".repeat(500)] {
            let (_, at_server) = pair.unary(b"question");
            pair.server.log.clear();
            finish(&mut pair.server, at_server, &Status::new(code, text.to_owned()));
            pair.run();
            let outcome = pair.client.outcome();
            assert_eq!((outcome.code, outcome.message.as_str()), (code, text));
            pair.server.log.clear();
        }
    }
    pair.assert_at_rest();
}

/// The code and the beginning of the message survive a client that accepts less than the whole.
#[test]
fn a_message_that_the_client_would_not_take_is_cut() {
    let mut pair = Pair::new();
    for text in ["a rather long story ".repeat(1_000), "☺".repeat(5_000)] {
        let (_, at_server) = pair.unary(b"question");
        let status = Status::aborted(text.clone()).with_details(vec![1; 20_000]);
        finish(&mut pair.server, at_server, &status);
        pair.run();
        let outcome = pair.client.outcome();
        assert_eq!(outcome.code, Code::Aborted);
        assert!(outcome.message.len() >= 100 && text.starts_with(&outcome.message), "{}", outcome.message);
        pair.server.log.clear();
        pair.assert_at_rest();
    }
}

#[test]
fn an_error_after_messages_comes_behind_them() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    send(&mut pair.server, at_server, &[1; 50_000]);
    send(&mut pair.server, at_server, b"second");
    finish(&mut pair.server, at_server, &Status::data_loss("the rest is gone").with_details(vec![1]));
    pair.run();
    assert_eq!(pair.client.messages(), [&[1; 50_000][..], b"second"]);
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::DataLoss, "the rest is gone"));
    assert_eq!(outcome.details, [1]);
    pair.assert_at_rest();
}

/// Wire rule 4.
#[test]
fn an_unknown_method_is_unimplemented() {
    let mut pair = Pair::new();
    for path in
        ["/test.Service/Nothing", "/test.service/Echo", "/TEST.Service/ECHO", "/", "/nothing", "/a/b/c"]
    {
        pair.start_with(path, &MetadataMap::new(), None, Some(b"question"), true);
        pair.run();
        let outcome = pair.client.outcome();
        assert_eq!(outcome.code, Code::Unimplemented, "{path}");
        assert!(outcome.message.contains(path), "{}", outcome.message);
        assert_eq!(pair.server.take_log(), [], "no call begins");
        let frames = call_frames(&pair.to_client);
        assert_eq!((frames[0].kind, frames[0].flags & END_STREAM), (HEADERS, END_STREAM));
        pair.to_client.clear();
    }
    pair.assert_at_rest();
}

/// Wire rule 4, with a client that goes on sending.
#[test]
fn a_client_that_streams_to_an_unknown_method_is_stopped() {
    let mut pair = Pair::new();
    let call = pair.start("/test.Service/Nothing");
    pair.client.act(|client, env| client.send_message(env, call, &[1; 200_000])).expect("the call is there");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Unimplemented);
    assert!(pair.client.act(|client, env| client.send_message(env, call, b"more")).is_err());
    pair.run();
    pair.assert_at_rest();
}

/// Wire rule 20.
#[test]
fn a_request_over_the_limit_is_exhausted_and_one_at_the_limit_passes() {
    let config = Config { receive_message_bytes_max: 1_000, ..Config::default() };
    let mut pair = Pair::with_configs(Config::default(), config);
    let (_, at_server) = pair.unary(&[1; 1_000]);
    assert_eq!(pair.server.messages(), [[1; 1_000]]);
    reply(&mut pair.server, at_server, &[2; 100_000]);
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.server.log.clear();

    for length in [1_001, 500_000] {
        pair.start_with(ECHO, &MetadataMap::new(), None, Some(&vec![1; length]), true);
        pair.run();
        let at_server = pair.server.begun();
        assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
        let outcome = pair.client.outcome();
        assert_eq!(outcome.code, Code::ResourceExhausted, "{outcome:?}");
        assert!(outcome.message.contains("1000"), "the limit is told: {}", outcome.message);
        pair.assert_at_rest();
    }
}

/// Wire rule 20.
#[test]
fn an_answer_over_the_limit_is_exhausted_and_one_at_the_limit_passes() {
    let config = Config { receive_message_bytes_max: 1_000, ..Config::default() };
    let mut pair = Pair::with_configs(config, Config::default());
    let (_, at_server) = pair.unary(b"question");
    reply(&mut pair.server, at_server, &[2; 1_000]);
    pair.run();
    assert_eq!(pair.client.messages(), [[2; 1_000]]);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.server.log.clear();

    for length in [1_001, 500_000] {
        let (_, at_server) = pair.unary(b"question");
        pair.server.log.clear();
        send(&mut pair.server, at_server, &vec![2; length]);
        pair.run();
        assert!(pair.client.messages().is_empty());
        assert_eq!(pair.client.outcome().code, Code::ResourceExhausted);
        assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
        pair.assert_at_rest();
    }
}

/// Wire rule 20.
#[test]
fn a_message_over_the_send_limit_is_never_sent() {
    let config = || Config { send_message_bytes_max: 1_000, ..Config::default() };
    let mut pair = Pair::with_configs(config(), config());
    let (_, at_server) = pair.unary(&[1; 1_000]);
    pair.server.log.clear();
    let result = pair.server.act(|server, env| server.send_message(env, at_server, &[2; 1_001]));
    assert!(result.is_err());
    pair.run();
    let outcome = pair.client.outcome();
    assert_eq!(outcome.code, Code::ResourceExhausted);
    assert!(outcome.message.contains("1001") && outcome.message.contains("1000"), "{}", outcome.message);
    assert!(call_frames(&pair.to_client).iter().all(|frame| frame.kind != DATA));

    let call = pair.start(ECHO);
    pair.run();
    let at_server = {
        assert!(matches!(pair.server.next(), Happened::Finished { .. }));
        pair.server.begun()
    };
    let result = pair.client.act(|client, env| client.send_message(env, call, &[1; 1_001]));
    assert!(result.is_err());
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::ResourceExhausted);
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    pair.assert_at_rest();
}

/// Wire rule 34.
#[test]
fn a_server_that_is_done_early_stops_the_client() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    pair.client.act(|client, env| client.send_message(env, call, b"first")).expect("the call is there");
    pair.run();
    let at_server = pair.server.begun();
    pair.server.log.clear();
    finish(&mut pair.server, at_server, &Status::failed_precondition("enough"));
    pair.run();
    let frames = call_frames(&pair.to_client);
    assert_eq!(frames.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [HEADERS, RST_STREAM]);
    assert_eq!(frames[1].payload, ErrorCode::NoError.as_u32().to_be_bytes());
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::FailedPrecondition, "enough"));
    assert!(pair.client.act(|client, env| client.send_message(env, call, b"second")).is_err());
    half_close(&mut pair.client, call);
    pair.run();
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    pair.assert_at_rest();
}

#[test]
fn the_client_cancels() {
    let mut pair = Pair::new();
    let call = pair.start_with(ECHO, &MetadataMap::new(), None, Some(b"question"), false);
    pair.run();
    let at_server = pair.server.begun();
    send(&mut pair.server, at_server, b"answer");
    pair.run();
    pair.client.log.clear();
    pair.server.log.clear();
    pair.client.act(|client, env| client.cancel(env, call));
    pair.run();
    assert_eq!(pair.server.take_log(), [Happened::Finished { call: at_server, outcome: None }]);
    assert_eq!(pair.client.take_log(), [], "who cancels is not told");
    let frames = call_frames(&pair.to_server);
    assert_eq!(
        frames.last().map(|frame| frame.payload.clone()),
        Some(ErrorCode::Cancel.as_u32().to_be_bytes().to_vec())
    );
    assert!(pair.server.act(|server, env| server.send_message(env, at_server, b"late")).is_err());
    assert!(
        pair.server
            .act(|server, env| server.finish(env, at_server, &Status::ok(""), MetadataMap::EMPTY))
            .is_err()
    );
    pair.client.act(|client, env| client.cancel(env, call));
    pair.run();
    pair.assert_at_rest();
}

/// Wire rule 48.
#[test]
fn a_call_cancelled_at_once_does_no_harm() {
    let mut pair = Pair::new();
    for _ in 0..50 {
        let call = pair.start_with(ECHO, &MetadataMap::new(), None, Some(&[1; 100_000]), true);
        pair.client.act(|client, env| client.cancel(env, call));
    }
    pair.run();
    pair.server.log.clear();
    pair.assert_at_rest();
    let (_, at_server) = pair.unary(b"question");
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
}

/// Wire rule 35.
#[test]
fn a_lost_connection_ends_every_call_at_both_ends() {
    let mut pair = Pair::new();
    let calls = [pair.start(ECHO), pair.start(ECHO), pair.start(ECHO)];
    pair.run();
    pair.client.close(&Closed::peer("socket reset"));
    let mut ended = Vec::new();
    for happened in pair.client.take_log() {
        let Happened::Finished { call, outcome: Some(outcome) } = happened else { panic!("{happened:?}") };
        assert_eq!(outcome.code, Code::Unavailable);
        assert!(outcome.message.contains("socket reset"), "{}", outcome.message);
        assert!(!outcome.unprocessed, "the server may have seen it");
        ended.push(call);
    }
    ended.sort();
    assert_eq!(ended, calls);
    let begun = [pair.server.begun(), pair.server.begun(), pair.server.begun()];
    pair.server.close(&Closed::peer("socket reset"));
    let mut ended = Vec::new();
    for happened in pair.server.take_log() {
        let Happened::Finished { call, .. } = happened else { panic!("{happened:?}") };
        ended.push(call);
    }
    ended.sort();
    assert_eq!(ended, begun);
    assert_eq!((pair.client.end.calls(), pair.server.end.calls()), (0, 0));
    assert!(pair.client.act(|client, env| client.send_message(env, calls[0], b"late")).is_err());
    assert_eq!((pair.client.pool.outstanding(), pair.server.pool.outstanding()), (0, 0));
}

#[test]
fn verbs_on_a_call_that_is_over_are_answered() {
    let mut pair = Pair::new();
    let (call, at_server) = pair.unary(b"question");
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    pair.server.log.clear();
    pair.client.log.clear();
    assert!(pair.client.act(|client, env| client.send_message(env, call, b"more")).is_err());
    half_close(&mut pair.client, call);
    pair.client.act(|client, env| client.cancel(env, call));
    pair.client.act(|client, env| client.release(env, call, 1_000));
    assert_eq!(pair.client.end.may_send(call), 0);
    assert!(pair.server.act(|server, env| server.send_headers(env, at_server, MetadataMap::EMPTY)).is_err());
    assert!(pair.server.act(|server, env| server.send_message(env, at_server, b"more")).is_err());
    pair.server.act(|server, env| server.release(env, at_server, usize::MAX));
    assert_eq!(pair.server.end.may_send(at_server), 0);
    pair.run();
    assert_eq!((pair.client.take_log(), pair.server.take_log()), (vec![], vec![]));
    pair.assert_at_rest();
}
