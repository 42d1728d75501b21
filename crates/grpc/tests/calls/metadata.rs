//! Metadata in both directions.

use fulmar_grpc::{Code, MetadataMap, Start, StartError, Status};

use crate::support::{DATA, ECHO, Happened, Pair, call_frames, finish, metadata, reply_with};

/// Metadata of every sort.
fn all_sorts() -> MetadataMap {
    let mut map = metadata(&[("request-id", "17"), ("several", "1"), ("empty", ""), ("several", "2, 3")]);
    map.insert_bin("trace-bin", &[0, 0xff, 7]).expect("legal");
    map.append_bin("trace-bin", b"").expect("legal");
    map.insert_sensitive("token", "swordfish").expect("legal");
    map.insert("grpc-previous-rpc-attempts", "1").expect("legal");
    map
}

#[test]
fn metadata_goes_both_ways_in_order() {
    let mut pair = Pair::new();
    let sent = all_sorts();
    let call = pair.start_with(ECHO, &sent, None, Some(b"question"), true);
    pair.run();
    let Happened::Begin { call: at_server, metadata: mut received, .. } = pair.server.next() else {
        panic!("the call begins");
    };
    assert!(received.get("user-agent").is_some_and(|agent| agent.starts_with("fulmar/")));
    received.remove("user-agent");
    received.remove(":authority");
    assert_eq!(received, sent);
    assert!(received.get_value("token").is_some_and(|value| value.is_sensitive()));

    let mut trailers = metadata(&[("checksum", "abc")]);
    trailers.insert_bin("sum-bin", b"\xfe\xff").expect("legal");
    reply_with(&mut pair.server, at_server, &received, b"answer", &trailers);
    pair.run();
    assert_eq!(pair.client.next(), Happened::Headers { call, metadata: sent });
    assert_eq!(pair.client.outcome().trailers, trailers);
    pair.assert_at_rest();
}

#[test]
fn names_that_are_not_metadata_are_not_handed_over() {
    let mut pair = Pair::new();
    let call = pair.start_with(ECHO, &MetadataMap::new(), None, Some(b"question"), true);
    pair.run();
    let Happened::Begin { call: at_server, metadata: received, .. } = pair.server.next() else {
        panic!("the call begins");
    };
    assert_eq!(received.keys().collect::<Vec<_>>(), ["user-agent", ":authority"]);
    reply_with(&mut pair.server, at_server, MetadataMap::EMPTY, b"answer", MetadataMap::EMPTY);
    pair.run();
    assert_eq!(pair.client.next(), Happened::Headers { call, metadata: MetadataMap::new() });
    assert!(pair.client.outcome().trailers.is_empty());
}

#[test]
fn metadata_of_a_call_without_messages_comes_with_its_status() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    let sent = all_sorts();
    let status = Status::not_found("no such thing");
    pair.server.act(|server, env| server.finish(env, at_server, &status, &sent)).expect("the call is there");
    pair.run();
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::NotFound, "no such thing"));
    assert_eq!(outcome.trailers, sent);
    pair.assert_at_rest();
}

#[test]
fn metadata_of_the_status_itself_goes_along() {
    let mut pair = Pair::new();
    let (_, at_server) = pair.unary(b"question");
    let status = Status::not_found("no such thing").with_metadata(metadata(&[("in-status", "1")]));
    let trailers = metadata(&[("in-trailers", "2")]);
    pair.server
        .act(|server, env| server.finish(env, at_server, &status, &trailers))
        .expect("the call is there");
    pair.run();
    let outcome = pair.client.outcome();
    assert_eq!(outcome.trailers.get("in-status"), Some("1"));
    assert_eq!(outcome.trailers.get("in-trailers"), Some("2"));
}

/// Wire rule 10: a received list can be sent back whole, though it has names that only the engine may say.
#[test]
fn an_echo_of_all_that_was_received_succeeds() {
    let mut pair = Pair::new();
    let call = pair.start_with(ECHO, &all_sorts(), None, Some(b"question"), true);
    pair.run();
    let Happened::Begin { call: at_server, metadata: received, .. } = pair.server.next() else {
        panic!("the call begins");
    };
    reply_with(&mut pair.server, at_server, &received, b"answer", &received);
    pair.run();
    assert_eq!(pair.client.next(), Happened::Headers { call, metadata: all_sorts() });
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.trailers), (Code::Ok, all_sorts()));
}

/// Wire rule 13.
#[test]
fn metadata_that_the_server_would_not_take_never_leaves() {
    let mut pair = Pair::new();
    let large = metadata(&[("large", &"x".repeat(20_000))]);
    let start = Start {
        path: ECHO,
        metadata: &large,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    let result = pair.client.act(|client, env| client.start(env, start, Some(b"question"), true));
    assert!(matches!(result, Err(StartError::HeadersTooLarge { .. })), "{result:?}");
    pair.run();
    assert_eq!(call_frames(&pair.to_server), []);
    pair.assert_at_rest();
    let (_, at_server) = pair.unary(b"the connection is well");
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
}

/// Wire rule 13: the client is told, one way or the other, and the connection goes on.
#[test]
fn metadata_that_the_client_would_not_take_ends_the_call() {
    let mut pair = Pair::new();
    let large = metadata(&[("large", &"x".repeat(20_000))]);

    let (_, at_server) = pair.unary(b"question");
    pair.server.log.clear();
    let status = Status::aborted("lost");
    let _ = pair.server.act(|server, env| server.finish(env, at_server, &status, &large));
    pair.run();
    let outcome = pair.client.outcome();
    assert_ne!(outcome.code, Code::Ok, "{outcome:?}");
    pair.server.log.clear();
    pair.assert_at_rest();

    let (_, at_server) = pair.unary(b"question");
    pair.server.log.clear();
    let _ = pair.server.act(|server, env| {
        server.reply(
            env,
            at_server,
            &large,
            6,
            |buffer| buffer.extend_from_slice(b"answer"),
            MetadataMap::EMPTY,
        )
    });
    pair.run();
    let outcome = pair.client.outcome();
    assert_ne!(outcome.code, Code::Ok, "{outcome:?}");
    pair.server.log.clear();
    pair.assert_at_rest();

    let (_, at_server) = pair.unary(b"question");
    reply_with(&mut pair.server, at_server, MetadataMap::EMPTY, b"answer", MetadataMap::EMPTY);
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok, "the next call is well");
}

/// RFC 7541 §7.1.3: with indexing, the second call would say the token in one byte.
#[test]
fn sensitive_values_are_never_put_into_a_table() {
    let length_of_second = |sensitive: bool| {
        let mut pair = Pair::new();
        let mut map = MetadataMap::new();
        match sensitive {
            true => map.insert_sensitive("token", "a-rather-long-swordfish"),
            false => map.insert("token", "a-rather-long-swordfish"),
        }
        .expect("legal");
        pair.start_with(ECHO, &map, None, Some(b"first"), true);
        pair.run();
        pair.to_server.clear();
        pair.start_with(ECHO, &map, None, Some(b"second"), true);
        pair.run();
        let frames = call_frames(&pair.to_server);
        assert_eq!(frames[1].kind, DATA);
        frames[0].payload.len()
    };
    assert!(length_of_second(true) > length_of_second(false) + 10);
}
