//! Requests that are asked about before they become calls, and requests to methods that nobody added.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fulmar_base::{Env, Input};
use fulmar_grpc::{Code, Config, Event, MetadataMap, Routes, Server, Status};

use crate::support::{
    ECHO, END_STREAM, HEADERS, Pair, RST_STREAM, Side, call_frames, metadata, new_client, reply,
};

#[test]
fn a_request_that_is_not_admitted_is_answered_with_one_block_and_never_begins() {
    let mut pair = Pair::new();
    let (asks, asked) = mpsc::channel();
    pair.server.end.set_admit(Box::new(move |request| {
        asks.send((request.path.to_owned(), request.timeout, request.calls)).unwrap();
        match request.metadata.get("x-token") {
            Some("secret") => Ok(()),
            _ => Err(Status::unauthenticated("no token")),
        }
    }));
    let last_asked = || asked.try_recv().ok();
    // Often enough for the header block to be recognised.
    for _ in 0..5 {
        pair.to_client.clear();
        pair.start_with(ECHO, MetadataMap::EMPTY, None, Some(b"question"), true);
        pair.run();
        let outcome = pair.client.outcome();
        assert_eq!((outcome.code, outcome.message.as_str()), (Code::Unauthenticated, "no token"));
        // The message of the request had not been seen yet: the client is told to stop.
        let frames = call_frames(&pair.to_client);
        let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
        assert_eq!((kinds, frames[0].flags & END_STREAM), (vec![HEADERS, RST_STREAM], END_STREAM));
        assert!(pair.server.take_log().is_empty(), "nothing has begun");
        assert_eq!(last_asked(), Some((ECHO.to_owned(), None, 0)));
    }
    let (secret, timeout) = (metadata(&[("x-token", "secret")]), Some(Duration::from_secs(3)));
    pair.start_with(ECHO, &secret, timeout, Some(b"question"), true);
    pair.run();
    let at_server = pair.server.begun();
    assert_eq!(last_asked(), Some((ECHO.to_owned(), timeout, 0)));
    pair.start_with(ECHO, &metadata(&[("x-token", "wrong")]), None, Some(b"question"), true);
    pair.run();
    assert_eq!(last_asked(), Some((ECHO.to_owned(), None, 1)), "one call is under way");
    assert_eq!(pair.client.outcome().code, Code::Unauthenticated);
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.server.take_log();
    pair.assert_at_rest();
}

#[test]
fn what_is_no_request_for_a_method_is_answered_without_asking() {
    let mut pair = Pair::new();
    pair.server.end.set_admit(Box::new(|_| panic!("nobody is to be asked")));
    pair.start_with("/no.Such/Method", MetadataMap::EMPTY, None, Some(b"question"), true);
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Unimplemented);
    pair.start_with(ECHO, MetadataMap::EMPTY, Some(Duration::ZERO), Some(b"question"), true);
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::DeadlineExceeded);
}

#[test]
fn the_path_of_an_unknown_method_is_there_while_its_call_begins() {
    let mut routes = Routes::new();
    routes.add(ECHO).unwrap();
    let fallback = routes.add_fallback().unwrap();
    let mut pair = Pair::new();
    // A connection of its own: the pair's server has other routes.
    let mut server = Server::new(Config::default(), Arc::new(routes));
    pair.client = Side::new(new_client(Config::default()));
    for turn in 0..12 {
        let path = ["/not.There/A", ECHO, "/not.There/B"][turn % 3];
        pair.start_with(path, MetadataMap::EMPTY, None, Some(b"question"), true);
    }
    pair.client.act(|client, env| client.transmit(env));
    let mut bytes = Vec::new();
    pair.client.out.move_to(&mut bytes);
    let input = Input::new(&bytes);
    let mut env = Env::new(pair.server.now, &mut pair.server.pool, &mut pair.server.out);
    let mut begun = Vec::new();
    while let Some(event) = server.next_event(&mut env, &input).unwrap() {
        if let Event::Begin { method, .. } = event {
            assert_eq!(method == fallback, server.path(method) != ECHO);
            begun.push(server.path(method).to_owned());
        }
    }
    assert_eq!(begun, ["/not.There/A", ECHO, "/not.There/B"].repeat(4));

    // Too late: the section in hand is that of a request for a path that is no text.
    const END_HEADERS: u8 = 4;
    let block = [&b"\x83\x86\x04\x03/a\xff\x0f\x10\x10"[..], b"application/grpc"].concat();
    let head = [0, 0, block.len() as u8, HEADERS, END_HEADERS | END_STREAM, 0, 0, 0, 25];
    assert!(server.next_event(&mut env, &Input::new(&[&head[..], &block].concat())).unwrap().is_none());
    assert_eq!(server.path(fallback), "");
}
