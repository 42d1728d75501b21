//! Many calls over one connection.

use std::collections::BTreeMap;

use fulmar_grpc::{CallKey, Client, Code, Config, MetadataMap, Server, Start, StartError, Status};

use crate::support::{ECHO, Happened, Outcome, Pair, Random, Side, finish, half_close, reply, send};

/// What a call of the crowd is to do and has done so far.
struct Plan {
    to_send: Vec<Vec<u8>>,
    sent: usize,
    received: Vec<Vec<u8>>,
    outcome: Option<Outcome>,
}

#[test]
fn interleaved_calls_keep_apart() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new();
        pair.chunk_bytes = [usize::MAX, 1_000, 100][seed as usize % 3];
        let mut plans = start_crowd(&mut pair, &mut random, 90);
        let mut keys: Vec<CallKey> = plans.keys().copied().collect();
        while !keys.is_empty() {
            let index = random.below(keys.len());
            if step(&mut pair.client, keys[index], &mut plans) {
                keys.swap_remove(index);
            }
            if random.below(4) == 0 {
                pair.run_with(echo);
                collect(&mut pair.client, &mut plans);
            }
        }
        pair.run_with(echo);
        collect(&mut pair.client, &mut plans);
        for plan in plans.values() {
            assert!(plan.received == plan.to_send, "each call gets its own messages in order");
            assert_eq!(plan.outcome.as_ref().map(|outcome| outcome.code), Some(Code::Ok));
        }
        pair.assert_at_rest();
    }
}

fn start_crowd(pair: &mut Pair, random: &mut Random, calls: usize) -> BTreeMap<CallKey, Plan> {
    (0..calls)
        .map(|_| {
            let call = pair.start(ECHO);
            let count = random.below(6);
            let to_send = (0..count)
                .map(|_| {
                    let length = [0, 3, 200, 20_000][random.below(4)];
                    random.bytes(length)
                })
                .collect();
            (call, Plan { to_send, sent: 0, received: Vec::new(), outcome: None })
        })
        .collect()
}

/// Sends the next message of a call, or ends it; whether it has ended.
fn step(client: &mut Side<Client>, call: CallKey, plans: &mut BTreeMap<CallKey, Plan>) -> bool {
    let plan = plans.get_mut(&call).expect("it was started");
    match plan.to_send.get(plan.sent) {
        Some(message) => {
            client.act(|client, env| client.send_message(env, call, message)).expect("the call is there");
            plan.sent += 1;
            false
        }
        None => {
            half_close(client, call);
            true
        }
    }
}

fn collect(client: &mut Side<Client>, plans: &mut BTreeMap<CallKey, Plan>) {
    for happened in client.take_log() {
        match happened {
            Happened::Message { call, bytes } => plans.get_mut(&call).expect("known").received.push(bytes),
            Happened::Finished { call, outcome } => {
                let plan = plans.get_mut(&call).expect("known");
                assert!(plan.outcome.is_none(), "a call ends once");
                plan.outcome = outcome;
            }
            _ => {}
        }
    }
}

fn echo(server: &mut Side<Server>, happened: Happened) {
    match happened {
        Happened::Message { call, bytes } => send(server, call, &bytes),
        Happened::HalfClosed { call } => finish(server, call, &Status::ok("")),
        _ => {}
    }
}

#[test]
fn slots_are_used_again_and_stale_keys_name_nothing() {
    let mut pair = Pair::new();
    let mut stale = Vec::new();
    for round in 0..500_u32 {
        let (call, at_server) = pair.unary(&round.to_be_bytes());
        pair.server.log.clear();
        assert!(call.index() == 0 && at_server.index() == 0, "one call at a time needs one slot");
        assert!(!stale.contains(&call));
        stale.push(call);
        reply(&mut pair.server, at_server, &round.to_be_bytes());
        pair.run();
        assert_eq!(pair.client.messages(), [round.to_be_bytes()]);
        assert_eq!(pair.client.outcome().code, Code::Ok);
        pair.server.log.clear();
        assert!(stale.iter().all(|key| pair.client.end.may_send(*key) == 0));
    }
    pair.assert_at_rest();
}

/// Wire rule 39.
#[test]
fn a_start_beyond_the_servers_limit_waits_for_capacity() {
    let mut config = Config::default();
    config.http2.streams_max = 2;
    let mut pair = Pair::with_configs(Config::default(), config);
    let first = pair.start_with(ECHO, &MetadataMap::new(), None, Some(b"1"), true);
    pair.start_with(ECHO, &MetadataMap::new(), None, Some(b"2"), true);
    let start = || Start {
        path: ECHO,
        metadata: MetadataMap::EMPTY,
        timeout: None,
        deadline: None,
        compression: &fulmar_grpc::Compression::Default,
    };
    for _ in 0..3 {
        let result = pair.client.act(|client, env| client.start(env, start(), Some(b"3"), true));
        assert!(matches!(result, Err(StartError::Busy)), "{result:?}");
    }
    pair.run();
    let at_server = pair.server.begun();
    pair.server.log.clear();
    reply(&mut pair.server, at_server, b"answer");
    pair.run();
    let log = pair.client.take_log();
    assert!(log.iter().any(|happened| matches!(happened, Happened::Finished { call, .. } if *call == first)));
    assert!(log.contains(&Happened::Capacity), "{log:?}");
    pair.client.act(|client, env| client.start(env, start(), Some(b"3"), true)).expect("there is room");
    pair.server.log.clear();
    pair.run();
    assert!(matches!(pair.server.next(), Happened::Begin { .. }));
}

#[test]
fn random_ends_of_calls_leave_nothing_behind() {
    for seed in 0..8 {
        let mut random = Random::new(100 + seed);
        let mut pair = Pair::new();
        let mut open: Vec<CallKey> = Vec::new();
        let mut at_server: Vec<CallKey> = Vec::new();
        let mut begun = 0;
        for _ in 0..600 {
            act_at_random(&mut random, &mut pair, &mut open, &mut at_server, &mut begun);
            if random.below(3) == 0 {
                pair.run();
            }
            for happened in pair.server.take_log() {
                match happened {
                    Happened::Begin { call, .. } => at_server.push(call),
                    Happened::Finished { call, .. } => at_server.retain(|open| *open != call),
                    _ => {}
                }
            }
            for happened in pair.client.take_log() {
                if let Happened::Finished { call, .. } = happened {
                    let before = open.len();
                    open.retain(|open| *open != call);
                    assert_eq!(open.len() + 1, before, "a call ends once, and only if it was not cancelled");
                }
            }
        }
        for call in open.drain(..) {
            pair.client.act(|client, env| client.cancel(env, call));
        }
        pair.run();
        assert!(begun > 50);
        pair.assert_at_rest();
    }
}

fn act_at_random(
    random: &mut Random,
    pair: &mut Pair,
    open: &mut Vec<CallKey>,
    at_server: &mut Vec<CallKey>,
    begun: &mut usize,
) {
    let length = [0, 10, 3_000, 50_000][random.below(4)];
    let message = random.bytes(length);
    match random.below(9) {
        0 | 1 if open.len() < 90 => {
            let first = (random.below(2) == 0).then_some(&message[..]);
            open.push(pair.start_with(ECHO, &MetadataMap::new(), None, first, random.below(3) == 0));
            *begun += 1;
        }
        2 | 3 if !open.is_empty() => {
            let call = open[random.below(open.len())];
            let _ = pair.client.act(|client, env| client.send_message(env, call, &message));
        }
        4 if !open.is_empty() => {
            let call = open[random.below(open.len())];
            half_close(&mut pair.client, call);
        }
        5 if !open.is_empty() => {
            let call = open.swap_remove(random.below(open.len()));
            pair.client.act(|client, env| client.cancel(env, call));
        }
        6 if !at_server.is_empty() => {
            let call = at_server[random.below(at_server.len())];
            let _ = pair.server.act(|server, env| server.send_message(env, call, &message));
        }
        7 | 8 if !at_server.is_empty() => {
            let call = at_server.swap_remove(random.below(at_server.len()));
            let status = Status::new(Code::from_i32(random.below(17) as i32), "at random");
            let _ = pair.server.act(|server, env| server.finish(env, call, &status, MetadataMap::EMPTY));
        }
        _ => {}
    }
}
