//! A connection that rests whenever it may says the same, byte for byte, as one that never does. Each seed is one conversation.

use std::time::Duration;

use fulmar_http2::{Ages, Config, Connection, ErrorCode, Keepalive, PingPolicy, Role};

use crate::random::Random;
use crate::support::*;

/// The same conversation with two engines, of which one rests.
struct Twins {
    awake: Peer,
    rests: Peer,
    /// Where another connection was.
    body: Option<Connection>,
    rested: usize,
}

impl Twins {
    fn new(role: Role, config: &Config) -> Self {
        let twin = || match role {
            Role::Server => Peer::of_server(config.clone()),
            Role::Client => Peer::of_client(config.clone()),
        };
        Self { awake: twin(), rests: twin(), body: None, rested: 0 }
    }

    /// Has something happen to both; whether the connections go on.
    #[track_caller]
    fn both(&mut self, what: &str, mut act: impl FnMut(&mut Peer)) -> bool {
        act(&mut self.awake);
        act(&mut self.rests);
        assert_eq!(self.rests.takes_wire(), self.awake.takes_wire(), "behind {what}");
        assert_eq!(self.rests.takes_events(), self.awake.takes_events(), "behind {what}");
        assert_eq!(self.rests.error, self.awake.error, "behind {what}");
        self.awake.error.is_none() && !self.awake.engine.is_going_away()
    }

    /// Goes on in the body of another connection, or in its own.
    fn rest(&mut self, elsewhere: bool) {
        let engine = &mut self.rests.engine;
        let Some(resting) = engine.rest(self.rests.now) else { return };
        let (role, config) = (engine.role(), engine.config().clone());
        if elsewhere {
            let other = self.body.take().unwrap_or_else(|| Connection::new(role, Config::default()));
            self.body = Some(std::mem::replace(engine, other));
            engine.reconfigure(config);
        }
        engine.resume(resting);
        self.rested += 1;
    }
}

fn config() -> Config {
    Config {
        // Probes are of one burst of DATA, and are forgotten with it.
        window_bytes_max: 0,
        ping_policy: Some(PingPolicy {
            interval_min: Duration::from_secs(5),
            without_calls: true,
            strikes_max: 2,
        }),
        keepalive: Some(Keepalive {
            time: Duration::from_secs(60),
            timeout: Duration::from_secs(20),
            without_calls: true,
        }),
        ages: Ages { idle_max: Some(Duration::from_secs(300)), ..Ages::NEVER },
        budget_refill_ms: 1_000,
        ..Config::default()
    }
}

/// Header sections that come again, and some that do not.
fn section(first: Pairs, random: &mut Random) -> Pairs {
    let value = match random.below(4) {
        0 => random.below(1_000),
        few => few,
    };
    first.into_iter().chain([("about".to_owned(), format!("the value {value}"))]).collect()
}

/// One thing that a peer may do, or that time does, to a connection with these open streams. Whether it goes on.
fn happens(twins: &mut Twins, random: &mut Random) -> bool {
    match random.below(6) {
        0 => twins.both("a PING", |peer| peer.sends(Frame::Ping(*b"and you?"))),
        1 => {
            let size = [0, 100, 4_096, 65_536][random.below(4)];
            twins.both("SETTINGS of a table", |peer| {
                peer.sends(Frame::Settings(vec![(HEADER_TABLE_SIZE, size)]));
            })
        }
        2 => {
            let size = [10, 1_000, 65_535, 1 << 20][random.below(4)];
            twins.both("SETTINGS of a window", |peer| {
                peer.sends(Frame::Settings(vec![(INITIAL_WINDOW_SIZE, size)]));
            })
        }
        3 => {
            let increment = 1 + random.below(10_000) as u32;
            twins.both("WINDOW_UPDATE", |peer| peer.sends(window_update(0, increment)))
        }
        _ => {
            let time = Duration::from_millis([1, 100, 3_000, 5_000, 30_000][random.below(5)]);
            twins.both("some time", |peer| peer.waits(time))
        }
    }
}

/// A request to the engine, and its answer; whether the connection goes on.
fn serves(twins: &mut Twins, random: &mut Random, id: u32) -> bool {
    let (asks, says) = (section(request(), random), section(ok(), random));
    let (question, answer) = (vec![b'?'; random.below(30_000)], vec![b'!'; random.below(30_000)]);
    let ending = random.below(4);
    let mut goes_on = twins.both("a request", |peer| peer.sends(headers(id, asks.clone())));
    goes_on = goes_on
        && twins.both("DATA", |peer| {
            for piece in question.chunks(16_384) {
                peer.sends(data(id, piece));
            }
            peer.releases(id, question.len());
        });
    if ending == 0 {
        return goes_on && twins.both("RST_STREAM", |peer| peer.sends(reset(id, ErrorCode::Cancel)));
    }
    goes_on = goes_on && twins.both("END_STREAM", |peer| peer.sends(last_data(id, "")));
    goes_on = goes_on
        && twins.both("an answer", |peer| {
            peer.answers(id, &says, false);
            peer.answers_data(id, &answer, false);
            peer.answers(id, &trailers(), true);
        });
    // All that a small window holds back.
    goes_on
        && twins.both("credit", |peer| {
            peer.sends(window_update(id, 1 << 20));
            peer.sends(window_update(0, 1 << 16));
        })
}

/// A request of the engine, and its answer; whether the connection goes on.
fn asks(twins: &mut Twins, random: &mut Random) -> bool {
    let (asks, says) = (section(request(), random), section(ok(), random));
    let (question, answer) = (vec![b'?'; random.below(30_000)], vec![b'!'; random.below(30_000)]);
    let mut id = 0;
    let mut goes_on = twins.both("a request", |peer| {
        if let Ok(key) = peer.act(|client, env| client.open(env, fields(&asks), false)) {
            id = peer.learn(key);
            peer.answers_data(id, &question, true);
        }
    });
    goes_on = goes_on
        && twins.both("credit", |peer| {
            peer.sends(window_update(id, 1 << 20));
            peer.sends(window_update(0, 1 << 16));
        });
    goes_on = goes_on
        && twins.both("an answer", |peer| {
            peer.sends(headers(id, says.clone()));
            for piece in answer.chunks(16_384) {
                peer.sends(data(id, piece));
            }
            peer.releases(id, answer.len());
        });
    goes_on && twins.both("trailers", |peer| peer.sends(last_headers(id, trailers())))
}

#[test]
fn a_connection_that_rests_says_the_same_as_one_that_does_not() {
    for role in [Role::Server, Role::Client] {
        let (mut rested, mut calls, mut strikes) = (0, 0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut twins = Twins::new(role, &config());
            let mut id = 1;
            for _ in 0..100 {
                let goes_on = if random.below(2) == 0 {
                    happens(&mut twins, &mut random)
                } else {
                    calls += 1;
                    id += 2;
                    match role {
                        Role::Server => serves(&mut twins, &mut random, id - 2),
                        Role::Client => asks(&mut twins, &mut random),
                    }
                };
                if !goes_on {
                    break;
                }
                twins.rest(random.below(2) == 0);
            }
            rested += twins.rested;
            strikes += usize::from(twins.awake.error.is_some_and(|error| error.text == "too_many_pings"));
        }
        assert!(calls > 1_000 && rested > 1_000, "{calls} calls and {rested} rests as {role:?}");
        assert!(strikes > 0 || role == Role::Client, "no peer was too curious");
    }
}
