//! Keepalive, ping policing, ages (gRFC A8 and A9), in virtual time.

use std::time::Duration;

use fulmar_base::Fault;
use fulmar_http2::{Ages, Config, Connection, ErrorCode, Keepalive, OpenError, PingPolicy, Reach, Role};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

fn keeps_alive(time: u64, timeout: u64, without_calls: bool) -> Config {
    let (time, timeout) = (SECOND * time as u32, SECOND * timeout as u32);
    Config { keepalive: Some(Keepalive { time, timeout, without_calls }), ..Config::default() }
}

fn go_away(last_id: u32, code: ErrorCode, debug: &str) -> Frame {
    Frame::GoAway { last_id, code, debug: debug.to_owned() }
}

/// The only frame there is, a PING that waits for an answer.
#[track_caller]
fn takes_ping(peer: &mut Peer) -> [u8; 8] {
    match peer.takes_frames().as_slice() {
        [Frame::Ping(payload)] => *payload,
        others => panic!("not one PING: {others:?}"),
    }
}

#[track_caller]
fn expects_dead(peer: &mut Peer) {
    let error = peer.error.clone().expect("the silence has an end");
    assert_eq!((error.fault, error.reach), (Fault::Peer, Reach::Transport), "{error}");
    assert!(error.text.contains("keepalive"), "{error}");
}

#[test]
fn a_silent_server_is_asked_after_the_time_and_given_up_after_the_timeout() {
    let mut peer = Peer::of_client(keeps_alive(10, 3, false));
    peer.is_requested(false);
    peer.takes_frames();
    peer.waits(SECOND * 10 - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    takes_ping(&mut peer);
    peer.waits(SECOND * 3 - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    expects_dead(&mut peer);
}

#[test]
fn any_byte_is_a_sign_of_life_and_the_time_counts_from_the_last_one() {
    let mut peer = Peer::of_client(keeps_alive(10, 3, false));
    let id = peer.is_requested(false);
    peer.takes_frames();
    peer.waits(SECOND * 6);
    // The beginning of a frame.
    peer.sends_bytes(&[0, 0, 4, 0, 0, 0, 0, 0, id as u8, b'.']);
    peer.waits(SECOND * 9);
    peer.expects_silence();
    peer.waits(SECOND);
    let payload = takes_ping(&mut peer);
    peer.waits(SECOND);
    // Not the answer, and enough.
    peer.sends_bytes(b"..");
    peer.waits(SECOND * 9);
    peer.expects_silence();
    peer.waits(SECOND);
    assert_eq!(takes_ping(&mut peer), payload);
}

#[test]
fn an_answer_in_time_is_followed_by_the_next_question_a_time_later_not_a_timeout_later() {
    let mut peer = Peer::of_client(keeps_alive(10, 60, true));
    for _ in 0..5 {
        peer.waits(SECOND * 10);
        let payload = takes_ping(&mut peer);
        peer.sends(Frame::Pong(payload));
        peer.expects_silence();
    }
    peer.waits(SECOND * 10);
    takes_ping(&mut peer);
    peer.waits(SECOND * 59);
    peer.expects_silence();
    peer.waits(SECOND);
    expects_dead(&mut peer);
}

#[test]
fn without_calls_a_client_does_not_ask_and_asks_first_when_one_begins_after_a_long_silence() {
    let mut peer = Peer::of_client(keeps_alive(10, 3, false));
    peer.waits(SECOND * 3_600);
    peer.expects_silence();
    let key = peer.act(|client, env| client.open(env, fields(&request()), true)).unwrap();
    let id = peer.learn(key);
    let frames = peer.takes_frames();
    assert!(
        matches!(frames.as_slice(), [Frame::Ping(_), Frame::Headers { id: 1, .. }]),
        "the PING comes first: {frames:?}"
    );
    peer.waits(SECOND * 2);
    peer.sends(last_headers(id, ok()));
    peer.takes_events();
    // The answer to the call is one to the PING, too; and nothing is open any more.
    peer.waits(SECOND * 3_600);
    peer.expects_silence();
}

#[test]
fn a_call_soon_after_the_last_byte_asks_nothing_and_the_silence_counts_from_that_byte() {
    let mut peer = Peer::of_client(keeps_alive(10, 3, false));
    peer.waits(SECOND * 4);
    peer.is_requested(true);
    peer.expects_silence();
    peer.waits(SECOND * 6);
    takes_ping(&mut peer);
}

#[test]
fn timers_that_nobody_ran_are_seen_to_before_a_stream_is_opened() {
    // As with a connection that is only driven while somebody calls.
    let mut peer = Peer::of_client(keeps_alive(10, 3, true));
    peer.waits(SECOND * 10);
    takes_ping(&mut peer);
    peer.now = peer.now + SECOND * 3_600;
    let opened = peer.act(|client, env| client.open(env, fields(&request()), true));
    assert_eq!(opened, Err(OpenError::GoingAway), "not on a connection whose PING is overdue");
    expects_dead(&mut peer);
}

#[test]
fn a_server_asks_without_calls_too() {
    let mut peer = Peer::of_server(keeps_alive(10, 3, false));
    peer.waits(SECOND * 10);
    let payload = takes_ping(&mut peer);
    peer.sends(Frame::Pong(payload));
    peer.waits(SECOND * 10);
    takes_ping(&mut peer);
    peer.waits(SECOND * 3);
    expects_dead(&mut peer);
}

#[test]
fn three_deadlines_in_silence_have_a_server_asked_without_any_keepalive() {
    let mut peer = Peer::of_client(Config::default());
    peer.is_requested(true);
    peer.takes_frames();
    for _ in 0..2 {
        peer.act(|client, env| client.note_deadline_passed(env));
        peer.expects_silence();
    }
    peer.waits(SECOND);
    peer.sends(Frame::Ping(*b"its own."));
    peer.expects(Frame::Pong(*b"its own."));
    for _ in 0..2 {
        peer.waits(SECOND);
        peer.act(|client, env| client.note_deadline_passed(env));
    }
    peer.expects_silence();
    peer.act(|client, env| client.note_deadline_passed(env));
    takes_ping(&mut peer);
    peer.act(|client, env| client.note_deadline_passed(env));
    peer.waits(Keepalive::TIMEOUT_DEFAULT - SECOND);
    peer.expects_silence();
    peer.waits(SECOND);
    expects_dead(&mut peer);
}

#[test]
fn pings_of_different_purposes_are_told_apart() {
    let mut peer = Peer::of_client(keeps_alive(10, 30, true));
    peer.act(|client, env| client.ping(env, *b"the user"));
    peer.waits(SECOND * 10);
    let frames = peer.takes_frames();
    let [Frame::Ping(users), Frame::Ping(ours)] = frames[..] else { panic!("{frames:?}") };
    assert_ne!(users, ours);
    peer.sends(Frame::Pong(ours));
    peer.expects_silence();
    peer.sends(Frame::Pong(users));
    peer.expects_event(Happened::Pong(*b"the user"));
    // One never asked for counts as nothing.
    peer.sends(Frame::Pong(ours));
    peer.expects_silence();
}

fn polices(without_calls: bool) -> Config {
    let policy = PingPolicy { interval_min: SECOND * 10, without_calls, strikes_max: 2 };
    Config { ping_policy: Some(policy), ..Config::default() }
}

#[track_caller]
fn pings(peer: &mut Peer) {
    peer.sends(Frame::Ping(*b"a client"));
    peer.expects(Frame::Pong(*b"a client"));
}

#[track_caller]
fn pings_once_too_often(peer: &mut Peer) {
    peer.sends(Frame::Ping(*b"a client"));
    assert_eq!(peer.error.as_ref().map(|error| &*error.text), Some("too_many_pings"));
    peer.expects_connection_error(ErrorCode::EnhanceYourCalm);
}

#[test]
fn the_third_strike_ends_the_connection() {
    let mut peer = Peer::of_server(polices(true));
    for _ in 0..3 {
        pings(&mut peer);
        peer.waits(SECOND * 10 - Duration::from_millis(1));
    }
    pings_once_too_often(&mut peer);
}

#[test]
fn pings_at_the_pace_that_is_allowed_are_no_strikes() {
    let mut peer = Peer::of_server(polices(true));
    for _ in 0..100 {
        pings(&mut peer);
        peer.waits(SECOND * 10);
    }
}

#[test]
fn without_streams_two_hours_are_wanted_unless_pings_are_permitted_then() {
    let mut peer = Peer::of_server(polices(false));
    peer.requests(1, false);
    for _ in 0..10 {
        pings(&mut peer);
        peer.waits(SECOND * 10);
    }
    peer.sends(reset(1, ErrorCode::Cancel));
    peer.takes_events();
    for _ in 0..2 {
        pings(&mut peer);
        peer.waits(SECOND * 2 * 3_600 - Duration::from_millis(1));
    }
    pings_once_too_often(&mut peer);
}

#[test]
fn headers_and_data_that_the_server_sends_take_the_strikes_back_and_reset_the_clock() {
    let mut peer = Peer::of_server(polices(false));
    peer.requests(1, true);
    for _ in 0..3 {
        pings(&mut peer);
    }
    peer.answers(1, &ok(), false);
    peer.expects(headers(1, ok()));
    for _ in 0..3 {
        pings(&mut peer);
    }
    let key = peer.key(1);
    peer.act(|server, env| server.send_data(env, key, b"more", false)).expect("the stream is open");
    peer.expects(data(1, "more"));
    for _ in 0..3 {
        pings(&mut peer);
    }
    pings_once_too_often(&mut peer);
}

fn ends(ages: Ages) -> Config {
    Config { ages, ..Config::default() }
}

/// Both phases of a GOAWAY that says why.
#[track_caller]
fn departs(peer: &mut Peer, last_id: u32, why: &str) {
    peer.expects(go_away(0x7fff_ffff, ErrorCode::NoError, why));
    let payload = takes_ping(peer);
    peer.sends(Frame::Pong(payload));
    peer.expects(go_away(last_id, ErrorCode::NoError, why));
}

#[test]
fn idleness_counts_from_the_end_of_the_last_stream() {
    let mut peer = Peer::of_server(ends(Ages { idle_max: Some(SECOND * 60), ..Ages::NEVER }));
    for id in [1, 3, 5] {
        peer.waits(SECOND * 59);
        peer.requests(id, true);
        peer.waits(SECOND * 300);
        peer.answers(id, &ok(), true);
        peer.expects(last_headers(id, ok()));
        peer.takes_events();
    }
    peer.waits(SECOND * 60 - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    departs(&mut peer, 5, "max_idle");
    assert!(peer.engine.is_drained());
}

#[test]
fn a_connection_without_any_stream_is_idle_from_its_start() {
    let mut peer = Peer::of_server(ends(Ages { idle_max: Some(SECOND * 60), ..Ages::NEVER }));
    peer.waits(SECOND * 60);
    departs(&mut peer, 0, "max_idle");
    assert!(peer.engine.is_drained());
}

#[test]
fn a_client_that_has_been_idle_for_too_long_goes_away_at_once() {
    let mut peer = Peer::of_client(ends(Ages { idle_max: Some(SECOND * 60), ..Ages::NEVER }));
    peer.waits(SECOND * 60);
    peer.expects(go_away(0, ErrorCode::NoError, "max_idle"));
    assert!(peer.engine.is_drained());
    let opened = peer.act(|client, env| client.open(env, fields(&request()), true));
    assert_eq!(opened, Err(OpenError::GoingAway));
}

#[test]
fn an_old_connection_goes_away_and_its_streams_may_end_without_grace() {
    let mut peer = Peer::of_server(ends(Ages { age_max: Some(SECOND * 100), ..Ages::NEVER }));
    peer.requests(1, true);
    peer.waits(SECOND * 100);
    departs(&mut peer, 1, "max_age");
    peer.waits(SECOND * 1_000_000);
    peer.answers(1, &ok(), true);
    peer.expects(last_headers(1, ok()));
    peer.takes_events();
    assert!(peer.engine.is_drained());
}

#[test]
fn when_the_grace_is_over_the_connection_is_cut_off() {
    let ages = Ages { age_max: Some(SECOND * 100), age_grace: Some(SECOND * 5), ..Ages::NEVER };
    let mut peer = Peer::of_server(ends(ages));
    peer.requests(1, true);
    peer.waits(SECOND * 100);
    departs(&mut peer, 1, "max_age");
    peer.waits(SECOND * 5 - Duration::from_millis(1));
    peer.expects_silence();
    peer.waits(Duration::from_millis(1));
    let error = peer.error.clone().expect("the grace is over");
    assert_eq!((error.fault, error.code), (Fault::Local, ErrorCode::NoError), "{error}");
}

#[test]
fn each_connection_has_its_own_share_of_the_age() {
    for (permille, seconds) in [(900, 90), (1_000, 100), (1_100, 110)] {
        let ages = Ages { age_max: Some(SECOND * 100), ..Ages::NEVER };
        let mut engine = Connection::new(Role::Server, ends(ages));
        engine.set_age_permille(permille);
        let mut peer = Peer::silent_before(engine);
        peer.shakes_hands(&[]);
        peer.waits(SECOND * seconds - Duration::from_millis(1));
        peer.expects_silence();
        peer.waits(Duration::from_millis(1));
        peer.expects(go_away(0x7fff_ffff, ErrorCode::NoError, "max_age"));
    }
}

/// Takes the engine apart and goes on in the body of another one.
#[track_caller]
fn rests(peer: &mut Peer) {
    let resting = peer.engine.rest(peer.now).expect("nothing is under way");
    let mut body = Connection::new(peer.engine.role(), peer.engine.config().clone());
    body.resume(resting);
    peer.engine = body;
}

#[test]
fn a_rest_takes_no_strikes_back() {
    let mut peer = Peer::of_server(polices(true));
    for _ in 0..3 {
        pings(&mut peer);
        peer.waits(SECOND * 5);
        rests(&mut peer);
        rests(&mut peer);
    }
    pings_once_too_often(&mut peer);
}

#[test]
fn headers_that_the_server_sent_before_a_rest_make_the_next_ping_a_good_one() {
    let mut peer = Peer::of_server(polices(true));
    for id in [1, 3, 5, 7] {
        for _ in 0..2 {
            pings(&mut peer);
        }
        peer.requests(id, true);
        peer.answers(id, &ok(), true);
        peer.expects(last_headers(id, ok()));
        peer.takes_events();
        peer.waits(SECOND);
        rests(&mut peer);
    }
}

#[test]
fn a_client_whose_calls_go_unanswered_asks_no_more_often_than_servers_allow() {
    let config = Config { ping_policy: Some(PingPolicy::default()), ..Config::default() };
    let (mut server, mut client) = (Peer::of_server(config), Peer::of_client(Config::default()));
    let ask = |client: &mut Peer, server: &mut Peer| {
        for _ in 0..3 {
            client.act(|client, env| client.note_deadline_passed(env));
        }
        let frames = client.takes_frames();
        for frame in &frames {
            let Frame::Ping(payload) = *frame else { panic!("{frame:?}") };
            server.sends(frame.clone());
            server.expects(Frame::Pong(payload));
            client.sends(Frame::Pong(payload));
        }
        frames.len()
    };
    server.requests(1, false);
    client.is_requested(false);
    let mut asked = 0;
    for _ in 0..12 * 60 {
        asked += ask(&mut client, &mut server);
        client.waits(SECOND * 5);
        server.waits(SECOND * 5);
    }
    assert!((10..=13).contains(&asked), "{asked} times in an hour");

    // An answer takes the server's strikes back.
    let id = client.is_requested(true);
    client.sends(last_headers(id, ok()));
    client.expects_event(Happened::Headers { id, fields: ok(), end: true });
    client.expects_event(Happened::Closed(id));
    server.answers(1, &ok(), false);
    server.expects(headers(1, ok()));
    assert_eq!(ask(&mut client, &mut server), 1);
}
