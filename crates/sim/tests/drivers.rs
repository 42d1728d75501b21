//! A driver keeps the loop contract in any weather, for any endpoint.

use std::time::Duration;

use fulmar_base::{Closed, Endpoint, Env, Instant, Output, Plain, TaskId};
use fulmar_sim::{Driver, Link, Random, Trace, Weather};

/// Sends so many records of ten bytes, takes whole records only, and says when it has taken as many.
struct Records {
    to_send: usize,
    taken: usize,
    /// Ends the connection after so many.
    taken_max: usize,
    ping_at: Option<Instant>,
    closed: usize,
}

const RECORD: &[u8; 10] = b"0123456789";

impl Records {
    fn new(to_send: usize, taken_max: usize) -> Self {
        Self { to_send, taken: 0, taken_max, ping_at: None, closed: 0 }
    }
}

impl Endpoint for Records {
    type Command = usize;

    fn receive(&mut self, _env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let records = bytes.chunks_exact(RECORD.len());
        let taken = records.len();
        assert!(records.into_iter().all(|record| record == RECORD), "a byte is missing or wrong");
        self.taken += taken;
        if self.taken >= self.taken_max { Err(Closed::local("enough")) } else { Ok(taken * RECORD.len()) }
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        while self.to_send > 0 && env.out.room() > 0 {
            env.out.extend_from_slice(RECORD);
            self.to_send -= 1;
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.ping_at
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        assert!(self.ping_at.is_some_and(|at| at <= env.now));
        self.ping_at = None;
        self.to_send += 1;
        Ok(())
    }

    fn on_command(&mut self, _env: &mut Env<'_>, records: usize) -> Result<(), Closed> {
        self.to_send += records;
        Ok(())
    }

    fn on_wake(&mut self, _env: &mut Env<'_>, _task: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, _env: &mut Env<'_>, _closed: &Closed) {
        self.closed += 1;
    }
}

struct Pair {
    one: Driver<Plain<Records>>,
    other: Driver<Plain<Records>>,
    there: Link,
    back: Link,
    now: Instant,
    trace: Trace,
}

impl Pair {
    fn new(seed: u64, one: Records, other: Records) -> Self {
        let mut random = Random::new(seed);
        let mut link = || Link::new(Weather::draw(&mut random), Random::new(seed));
        Self {
            one: Driver::new("one", Plain(one)),
            other: Driver::new("other", Plain(other)),
            there: link(),
            back: link(),
            now: Instant::ZERO,
            trace: Trace::new(),
        }
    }

    fn run(&mut self) {
        loop {
            let moved = self.one.turn(self.now, &mut self.back, &mut self.there, &mut self.trace)
                | self.other.turn(self.now, &mut self.there, &mut self.back, &mut self.trace);
            assert!(self.one.waiting() <= Output::SOFT_LIMIT + RECORD.len());
            if moved {
                continue;
            }
            let times = [self.there.next_arrival(), self.back.next_arrival(), self.one.next_deadline()];
            let Some(at) = times.into_iter().flatten().filter(|at| *at > self.now).min() else { return };
            self.now = at;
        }
    }
}

#[test]
fn all_that_is_sent_arrives_in_any_weather() {
    for seed in 0..30 {
        let count = if seed % 10 == 0 { 30_000 } else { 500 };
        let mut pair = Pair::new(seed, Records::new(count, usize::MAX), Records::new(count / 2, usize::MAX));
        pair.run();
        assert_eq!(pair.other.transport().0.taken, count, "seed {seed}");
        assert_eq!(pair.one.transport().0.taken, count / 2, "seed {seed}");
        assert_eq!((pair.one.waiting(), pair.there.under_way()), (0, 0));
    }
}

#[test]
fn a_deadline_is_met_at_its_time() {
    let mut pair = Pair::new(1, Records::new(0, usize::MAX), Records::new(0, usize::MAX));
    let at = Instant::ZERO + Duration::from_secs(7);
    pair.one.transport_mut().0.ping_at = Some(at);
    pair.run();
    assert!(pair.now >= at);
    assert_eq!(pair.other.transport().0.taken, 1);
}

#[test]
fn an_end_that_closes_is_not_called_again_but_told_once() {
    let mut pair = Pair::new(2, Records::new(100, usize::MAX), Records::new(0, 10));
    pair.run();
    assert_eq!(pair.other.closed(), Some(&Closed::local("enough")));
    let taken = pair.other.transport().0.taken;
    assert!((10..=100).contains(&taken));
    pair.other.close(pair.now, &Closed::peer("gone"), &mut pair.trace);
    assert_eq!((pair.other.transport().0.closed, pair.other.transport().0.taken), (1, taken));
    assert_eq!(pair.other.closed(), Some(&Closed::local("enough")), "the first reason stays");
}
