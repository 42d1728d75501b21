//! Flow control: large messages through small windows, and ends that do not take what they are sent.

use std::collections::VecDeque;

use fulmar_grpc::{CallKey, Client, Code, Config, Server, Status};

use crate::support::{ECHO, Happened, Pair, Random, Side, finish, half_close, reply, send};

/// Both ends with the smallest connection window there is, and this stream window.
fn small_windows(stream_window_bytes: u32) -> Pair {
    let config = || {
        let mut config = Config::default();
        config.http2.stream_window_bytes = stream_window_bytes;
        config.http2.connection_window_bytes = 65_535;
        config
    };
    Pair::with_configs(config(), config())
}

#[test]
fn messages_of_three_mebibytes_pass_through_small_windows() {
    for stream_window_bytes in [1_000, 16_384, 65_535] {
        let mut pair = small_windows(stream_window_bytes);
        let message = Random::new(3).bytes(3 << 20);
        let (_, at_server) = pair.unary(&message);
        assert!(pair.server.messages() == [&message[..]], "it arrives whole");
        pair.server.log.clear();
        reply(&mut pair.server, at_server, &message);
        pair.run();
        assert!(pair.client.messages() == [&message[..]], "it comes back whole");
        assert_eq!(pair.client.outcome().code, Code::Ok);
        pair.server.log.clear();
        pair.assert_at_rest();
    }
}

/// A message larger than the window arrives even if the ones before it have not been taken yet, else nobody ever could go on.
#[test]
fn one_message_may_be_larger_than_the_window() {
    let mut pair = small_windows(1_000);
    pair.server.takes_at_once = false;
    let (_, at_server) = pair.unary(&[1; 500_000]);
    assert_eq!(pair.server.messages(), [[1; 500_000]]);
    pair.server.act(|server, env| server.release(env, at_server, 500_000));
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);
}

/// Sends messages as long as the client may.
fn send_while_allowed(client: &mut Side<Client>, call: CallKey, message: &[u8]) -> usize {
    let mut sent = 0;
    while client.end.may_send(call) > 0 {
        client.act(|client, env| client.send_message(env, call, message)).expect("the call is there");
        sent += 1;
        assert!(sent < 10_000, "what may be queued has a limit");
    }
    sent
}

#[test]
fn a_server_that_takes_nothing_stops_the_client_until_it_does() {
    let mut pair = Pair::new();
    pair.server.takes_at_once = false;
    let call = pair.start(ECHO);
    let mut sent = 0;
    loop {
        let more = send_while_allowed(&mut pair.client, call, &[1; 1_000]);
        sent += more;
        assert!(sent < 10_000, "a server that takes nothing stops the client");
        pair.run();
        pair.client.log.clear();
        if more == 0 {
            break;
        }
    }
    let arrived = pair.server.messages().len();
    assert!(arrived < sent, "some wait at the client");
    assert!(arrived * 1_005 <= 64 * 1024, "no more than the window: {arrived}");
    assert!(sent * 1_005 < 3 * 64 * 1024, "no more than the window and the queue: {sent}");
    assert_eq!(pair.client.end.may_send(call), 0);
    pair.run();
    assert_eq!(pair.client.take_log(), [], "nothing moves");

    let at_server = pair.server.begun();
    pair.server.log.clear();
    for _ in 0..arrived {
        pair.server.act(|server, env| server.release(env, at_server, 1_000));
    }
    pair.run();
    assert!(pair.client.log.contains(&Happened::Writable { call }), "{:?}", pair.client.log);
    assert!(pair.client.end.may_send(call) > 0);
    assert!(!pair.server.messages().is_empty(), "what waited has come");

    // Other calls are not held up by this one.
    pair.server.takes_at_once = true;
    pair.server.log.clear();
    pair.client.log.clear();
    let (_, other) = pair.unary(b"question");
    reply(&mut pair.server, other, b"answer");
    pair.run();
    assert_eq!(pair.client.outcome().code, Code::Ok);

    pair.client.act(|client, env| client.cancel(env, call));
    pair.run();
    pair.server.log.clear();
    pair.assert_at_rest();
}

#[test]
fn a_client_that_takes_nothing_stops_the_server_until_it_does() {
    let mut pair = Pair::new();
    pair.client.takes_at_once = false;
    let (call, at_server) = pair.unary(b"question");
    pair.server.log.clear();
    let mut sent = 0;
    while pair.server.end.may_send(at_server) > 0 {
        send(&mut pair.server, at_server, &[1; 1_000]);
        sent += 1;
        pair.run();
        assert!(sent < 1_000);
    }
    let arrived = pair.client.messages().len();
    assert!(arrived < sent && arrived * 1_005 <= 64 * 1024, "{arrived} of {sent}");
    finish(&mut pair.server, at_server, &Status::ok(""));
    pair.run();
    let has_finished =
        |log: &VecDeque<Happened>| log.iter().any(|event| matches!(event, Happened::Finished { .. }));
    assert!(!has_finished(&pair.client.log), "the status waits behind the messages");
    assert!(!has_finished(&pair.server.log), "a call is over when its last byte has been handed over");

    let mut taken = 0;
    while taken < sent {
        for _ in 0..pair.client.messages().len() {
            pair.client.act(|client, env| client.release(env, call, 1_000));
            taken += 1;
        }
        pair.client.log.retain(|happened| !matches!(happened, Happened::Message { .. }));
        pair.run();
    }
    assert_eq!(taken, sent);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    assert!(has_finished(&pair.server.log));
    pair.server.log.clear();
    pair.assert_at_rest();
}

/// The connection's window never waits for an application: calls that are not read do not starve the others.
#[test]
fn calls_that_nobody_reads_do_not_use_up_the_connection() {
    let mut pair = small_windows(65_535);
    pair.server.takes_at_once = false;
    for _ in 0..20 {
        pair.start_with(ECHO, fulmar_grpc::MetadataMap::EMPTY, None, Some(&[1; 30_000]), false);
    }
    pair.run();
    assert_eq!(pair.server.messages().len(), 20, "600,000 bytes through a window of 65,535");
}

/// Five bytes of prefix each: messages without bytes fill a window too, and empty it when they are taken.
#[test]
fn messages_without_bytes_are_under_flow_control() {
    let mut pair = Pair::new();
    let call = pair.start(ECHO);
    let messages = [0; 5 * 4_000];
    for _ in 0..25 {
        pair.client
            .act(|client, env| client.send_framed_slice(env, call, &messages))
            .expect("the call is there");
        pair.run();
    }
    assert_eq!(pair.server.messages().len(), 100_000);
    pair.server.log.clear();

    pair.server.takes_at_once = false;
    for _ in 0..25 {
        pair.client
            .act(|client, env| client.send_framed_slice(env, call, &messages))
            .expect("the call is there");
        pair.run();
    }
    assert!(pair.server.messages().len() * 5 <= 64 * 1024, "{}", pair.server.messages().len());
}

#[test]
fn a_slow_echo_of_random_messages_conserves_every_byte() {
    let mut random = Random::new(8);
    let mut pair = small_windows(5_000);
    pair.chunk_bytes = 777;
    let call = pair.start(ECHO);
    let messages: Vec<Vec<u8>> = (0..60).map(|_| sized(&mut random)).collect();
    let mut back = Vec::new();
    for message in &messages {
        pair.client.act(|client, env| client.send_message(env, call, message)).expect("the call is there");
        pair.run_with(echo);
        back.extend(pair.client.messages().iter().map(|message| message.to_vec()));
        pair.client.log.clear();
    }
    half_close(&mut pair.client, call);
    pair.run_with(echo);
    assert!(back == messages);
    assert_eq!(pair.client.outcome().code, Code::Ok);
    pair.assert_at_rest();
}

fn sized(random: &mut Random) -> Vec<u8> {
    let length = [0, 1, 100, 4_995, 5_000, 16_379, 16_384, 40_000][random.below(8)];
    random.bytes(length)
}

fn echo(server: &mut Side<Server>, happened: Happened) {
    match happened {
        Happened::Message { call, bytes } => send(server, call, &bytes),
        Happened::HalfClosed { call } => finish(server, call, &Status::ok("")),
        _ => {}
    }
}
