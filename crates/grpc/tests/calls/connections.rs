//! The life of the connection below the calls.

use std::sync::Arc;

use fulmar_base::Closed;
use fulmar_grpc::{Code, Config, MetadataMap, Server, Start, StartError};

use crate::support::{ECHO, Happened, Pair, Side, new_client, reply, routes};

/// Wire rule 37.
#[test]
fn a_server_that_shuts_down_finishes_the_calls_it_has() {
    let mut pair = Pair::new();
    let (call, at_server) = pair.unary(b"question");
    pair.server.log.clear();
    pair.server.act(|server, env| server.shutdown(env));
    pair.run();
    assert_eq!(pair.client.take_log(), [Happened::GoingAway]);
    assert!(!pair.server.end.is_drained());
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    let result = pair.client.act(|client, env| client.start(env, start, Some(b"late"), true));
    assert!(matches!(result, Err(StartError::GoingAway)), "{result:?}");
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert!(pair.client.log.contains(&Happened::Message { call, bytes: b"answer".to_vec() }));
    assert_eq!(pair.client.outcome().code, Code::Ok);
    assert!(pair.server.end.is_drained());
    pair.server.log.clear();
    pair.assert_at_rest();
}

#[test]
fn a_server_without_calls_is_drained_at_once() {
    let mut pair = Pair::new();
    assert!(!pair.server.end.is_drained(), "not before it shuts down");
    pair.server.act(|server, env| server.shutdown(env));
    pair.run();
    assert!(pair.server.end.is_drained());
    assert_eq!(pair.client.take_log(), [Happened::GoingAway]);
}

#[test]
fn a_call_may_start_before_the_server_has_said_anything() {
    let mut client = Side::new(new_client(Config::default()));
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    client.act(|client, env| client.start(env, start, Some(b"question"), true)).expect("the call starts");
    let mut bytes = Vec::new();
    client.out.move_to(&mut bytes);
    let mut server = Side::new(Server::new(Config::default(), Arc::new(routes())));
    server.receive(&bytes);
    let call = server.begun();
    assert_eq!(
        server.take_log(),
        [Happened::Message { call, bytes: b"question".to_vec() }, Happened::HalfClosed { call }]
    );
}

/// Wire rule 35: a connection that never came to speak has processed nothing.
#[test]
fn a_connection_lost_before_it_was_ready_leaves_its_calls_unavailable() {
    let mut client = Side::new(new_client(Config::default()));
    let start = Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    client.act(|client, env| client.start(env, start, Some(b"question"), true)).expect("the call starts");
    client.close(&Closed::peer("refused"));
    let outcome = client.outcome();
    assert_eq!(outcome.code, Code::Unavailable);
    assert!(outcome.message.contains("refused"));
}

#[test]
fn garbage_ends_the_connection_and_its_calls() {
    let mut pair = Pair::new();
    pair.unary(b"question");
    pair.server.receive(&[0xff; 100]);
    assert!(pair.server.error.is_some());
    assert!(pair.server.log.iter().any(|happened| matches!(happened, Happened::Finished { .. })));
    assert!(!pair.server.out.is_empty(), "a GOAWAY says why");
    pair.client.receive(&[0xff; 100]);
    assert!(pair.client.error.is_some());
    assert_eq!(pair.client.outcome().code, Code::Unavailable);
    assert_eq!((pair.client.pool.outstanding(), pair.server.pool.outstanding()), (0, 0));
}

/// Random damage to what is on its way never panics, and whatever happens every call ends once.
#[test]
fn damaged_bytes_never_harm_more_than_the_connection() {
    use crate::support::Random;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new();
        for _ in 0..3 {
            let length = random.below(300);
            let message = random.bytes(length);
            pair.start_with(ECHO, &MetadataMap::new(), None, Some(&message), random.below(2) == 0);
        }
        let mut bytes = Vec::new();
        pair.client.out.move_to(&mut bytes);
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        pair.server.receive(&bytes);
        let begun: Vec<_> = pair.server.take_log();
        for happened in &begun {
            if let Happened::Begin { call, .. } = happened {
                let _ = pair.server.act(|server, env| {
                    server.reply(
                        env,
                        *call,
                        MetadataMap::EMPTY,
                        2,
                        |buffer| buffer.extend_from_slice(b"ok"),
                        MetadataMap::EMPTY,
                    )
                });
            }
        }
        pair.server.out.move_to(&mut bytes);
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        pair.client.receive(&bytes);
        pair.client.close(&Closed::peer("cut"));
        pair.server.close(&Closed::peer("cut"));
        let ended =
            pair.client.take_log().iter().filter(|event| matches!(event, Happened::Finished { .. })).count();
        assert_eq!(ended, 3, "seed {seed}");
        assert_eq!((pair.client.end.calls(), pair.server.end.calls()), (0, 0), "seed {seed}");
        assert_eq!((pair.client.pool.outstanding(), pair.server.pool.outstanding()), (0, 0), "seed {seed}");
    }
}
