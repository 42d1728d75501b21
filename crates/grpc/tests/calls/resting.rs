//! Ends that rest between calls.

use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::{Client, Code, Config, MetadataMap, Server};

use crate::support::{ECHO, Happened, OTHER, Pair, Side, reply, reply_with};

/// A call with metadata of its own, both ways.
fn call(pair: &mut Pair, path: &str, about: &str) {
    let mut metadata = MetadataMap::new();
    metadata.append("about", about).expect("legal");
    let call = pair.start_with(path, &metadata, None, Some(b"question"), true);
    pair.run();
    let Some(Happened::Begin { call: at_server, path: arrived, metadata: received, .. }) =
        pair.server.log.pop_front()
    else {
        panic!("the server has not heard of the call");
    };
    assert_eq!((&*arrived, received.get("about")), (path, Some(about)));
    reply_with(&mut pair.server, at_server, &metadata, b"answer", &metadata);
    pair.run();
    assert!(pair.client.log.contains(&Happened::Message { call, bytes: b"answer".to_vec() }));
    let outcome = pair.client.outcome();
    assert_eq!((outcome.code, outcome.trailers.get("about")), (Code::Ok, Some(about)));
    pair.client.log.clear();
    pair.server.log.clear();
    pair.assert_at_rest();
}

/// So long after a call an end may rest.
fn wait(pair: &mut Pair) {
    pair.advance(Duration::from_millis(100));
    assert_eq!((pair.client.take_log(), pair.server.take_log()), (vec![], vec![]));
}

fn rest_client(side: &mut Side<Client>) -> Option<fulmar_grpc::RestingClient> {
    side.end.rest(side.now)
}

fn rest_server(side: &mut Side<Server>) -> Option<fulmar_grpc::RestingServer> {
    side.end.rest(side.now)
}

#[test]
fn ends_that_have_rested_go_on_in_bodies_of_other_connections() {
    let mut pairs = [Pair::new(), Pair::new(), Pair::new()];
    for round in 0..6 {
        for (n, pair) in pairs.iter_mut().enumerate() {
            // Once, so that it changes the tables, and again, so that it is known, and its template is filled.
            for _ in 0..=round % 3 {
                call(pair, if round % 2 == 0 { ECHO } else { OTHER }, &format!("connection {n}"));
            }
            wait(pair);
        }
        let mut resting: Vec<_> = pairs
            .iter_mut()
            .map(|pair| {
                (rest_client(&mut pair.client).expect("idle"), rest_server(&mut pair.server).expect("idle"))
            })
            .collect();
        resting.rotate_left(round % 3);
        for (pair, (client, server)) in pairs.iter_mut().zip(resting) {
            pair.client.end.resume(client);
            pair.server.end.resume(server);
        }
    }
}

#[test]
fn a_connection_keeps_its_windows_while_it_rests() {
    let mut pair = Pair::new();
    for round in 0..40 {
        let (call, at_server) = pair.unary(&[round; 60_000]);
        assert_eq!(pair.server.messages(), [[round; 60_000]]);
        reply(&mut pair.server, at_server, &[round; 60_000]);
        pair.run();
        assert!(pair.client.log.contains(&Happened::Message { call, bytes: vec![round; 60_000] }));
        pair.client.log.clear();
        pair.server.log.clear();
        wait(&mut pair);
        let client = rest_client(&mut pair.client).expect("idle");
        let server = rest_server(&mut pair.server).expect("idle");
        pair.client.end.resume(client);
        pair.server.end.resume(server);
    }
    pair.assert_at_rest();
}

#[test]
fn an_end_with_something_under_way_does_not_rest() {
    let mut pair = Pair::new();
    wait(&mut pair);
    let at_client = pair.start(ECHO);
    assert!(rest_client(&mut pair.client).is_none(), "a call has begun");
    pair.run();
    assert!(rest_server(&mut pair.server).is_none(), "a call is served");
    pair.client.act(|client, env| client.cancel(env, at_client));
    pair.run();
    pair.server.log.clear();
    wait(&mut pair);
    assert!(rest_client(&mut pair.client).is_some());

    let mut pair = Pair::new();
    wait(&mut pair);
    pair.server.act(|server, env| server.shutdown(env));
    assert!(rest_server(&mut pair.server).is_none(), "it takes leave");
    pair.run();
    assert!(rest_client(&mut pair.client).is_none(), "the server takes leave");
    let mut client = Side::new(crate::support::new_client(Config::default()));
    assert!(client.end.rest(Instant::from_nanos(u64::MAX)).is_none(), "nothing has arrived");
}

#[test]
fn what_a_peer_has_spent_of_its_budgets_is_not_forgotten_by_a_rest() {
    let mut config = Config::default();
    config.http2.pings_budget = 2;
    let mut pair = Pair::with_configs(Config::default(), config);
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    wait(&mut pair);
    pair.server.receive(&ping);
    assert!(rest_server(&mut pair.server).is_none());
    pair.advance(Duration::from_millis(4_900));
    assert!(rest_server(&mut pair.server).is_none());
    pair.advance(Duration::from_millis(101));
    assert!(rest_server(&mut pair.server).is_some(), "half of the time has brought one of two back");
}

#[test]
fn a_resting_end_holds_its_tables_and_little_else() {
    let mut pair = Pair::new();
    call(&mut pair, ECHO, "memory");
    wait(&mut pair);
    let client = rest_client(&mut pair.client).expect("idle");
    let server = rest_server(&mut pair.server).expect("idle");
    for bytes in [size_of_val(&client) + client.memory_bytes(), size_of_val(&server) + server.memory_bytes()]
    {
        assert!(bytes <= 1_200, "{bytes}");
    }
}
