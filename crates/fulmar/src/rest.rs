//! Connections that rest: between its calls a connection keeps what only it knows, and lends the rest to others.
//!
//! The end of a connection is some thousand bytes, and all its lists keep room for the next calls. Of ten thousand connections most do
//! nothing at a time. So an end that has been idle for a moment is taken apart: what only this connection knows stays with it, the
//! rest, its body, goes to a [`Shelf`] of the reactor. What is poked next takes a body from there, with all the room that it needs:
//! in steady state nothing is allocated.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::time::Duration;

use fulmar_base::{Closed, Endpoint, Env, Instant, TaskId};

/// How long an end is idle before it rests: longer than the pauses of a connection in use, so that those are spared, and so short
/// that when many connections come one after the other, few are awake at a time.
const IDLE: Duration = Duration::from_millis(100);

/// How long an end waits that may not rest for something that passes with time, such as a budget that is not full.
const RETRY: Duration = Duration::from_secs(1);

/// How many bodies wait on a shelf at most.
const BODIES_MAX: usize = 64;

/// A body that holds more memory than this for calls to come is dropped: the next calls may be fewer.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// An end of a connection that can rest.
pub(crate) trait Rests: Endpoint + Sized {
    /// What only this connection knows.
    type Resting;
    /// What all ends on one shelf have in common.
    type Kin;

    /// Whether there is no call, so that it might rest.
    fn is_idle(&self) -> bool;

    /// Takes out what only this connection knows, if nothing is under way.
    fn rest(&mut self, now: Instant) -> Option<Self::Resting>;

    /// When the end that rests has to wake, if nothing happens before.
    fn wakes_at(resting: &Self::Resting) -> Option<Instant>;

    /// A new body for an end that rested.
    fn body(kin: &Self::Kin, resting: &Self::Resting) -> Self;

    /// Makes a body the end that rested.
    fn resume(&mut self, kin: &Self::Kin, resting: Self::Resting);

    /// Bytes of memory that serve nothing while it rests.
    fn spare_memory(&self) -> usize;
}

/// Where the bodies of resting ends wait, for all connections of a reactor that are of one kind.
pub(crate) struct Shelf<E: Rests> {
    pub(crate) kin: E::Kin,
    #[allow(clippy::vec_box, reason = "ends take the box itself: no memory is moved, none is allocated")]
    bodies: RefCell<Vec<Box<E>>>,
}

impl<E: Rests> Shelf<E> {
    pub(crate) fn new(kin: E::Kin) -> Self {
        // A connection may rest for the first time long after it began: that must not allocate.
        Self { kin, bodies: RefCell::new(Vec::with_capacity(BODIES_MAX)) }
    }

    /// A body for an end that rests.
    fn body(&self, resting: &E::Resting) -> Box<E> {
        let body = self.bodies.borrow_mut().pop();
        body.unwrap_or_else(|| Box::new(E::body(&self.kin, resting)))
    }

    fn give(&self, body: Box<E>) {
        let mut bodies = self.bodies.borrow_mut();
        if bodies.len() < BODIES_MAX && body.spare_memory() <= SPARE_BYTES_MAX {
            bodies.push(body);
        }
    }

    /// How many bodies wait here.
    #[cfg(test)]
    pub(crate) fn bodies(&self) -> usize {
        self.bodies.borrow().len()
    }

    /// Drops the bodies of which this is true.
    pub(crate) fn forget(&self, is_over: impl Fn(&E) -> bool) {
        self.bodies.borrow_mut().retain(|body| !is_over(body));
    }

    /// Puts a new end into the box of one that rests.
    fn boxed(&self, end: E) -> Box<E> {
        match self.bodies.borrow_mut().pop() {
            Some(mut body) => {
                *body = end;
                body
            }
            None => Box::new(end),
        }
    }
}

/// An end of a connection, awake or at rest.
pub(crate) struct Napping<E: Rests> {
    state: State<E>,
    shelf: Rc<Shelf<E>>,
}

enum State<E: Rests> {
    Awake {
        end: Box<E>,
        /// When it rests if nothing happens.
        rests_at: Option<Instant>,
    },
    Resting(E::Resting),
}

impl<E: Rests> Napping<E> {
    pub(crate) fn new(shelf: Rc<Shelf<E>>, end: E) -> Self {
        Self { state: State::Awake { end: shelf.boxed(end), rests_at: None }, shelf }
    }

    /// The end, if it is awake.
    pub(crate) fn awake(&self) -> Option<&E> {
        match &self.state {
            State::Awake { end, .. } => Some(end),
            State::Resting(_) => None,
        }
    }

    pub(crate) fn awake_mut(&mut self) -> Option<&mut E> {
        match &mut self.state {
            State::Awake { end, .. } => Some(end),
            State::Resting(_) => None,
        }
    }

    /// What there is of the end while it rests.
    pub(crate) fn resting(&self) -> Option<&E::Resting> {
        match &self.state {
            State::Awake { .. } => None,
            State::Resting(resting) => Some(resting),
        }
    }

    pub(crate) fn kin(&self) -> &E::Kin {
        &self.shelf.kin
    }

    /// The end, which wakes if it rests.
    #[inline]
    pub(crate) fn wake(&mut self) -> &mut E {
        if matches!(self.state, State::Resting(_)) {
            self.wake_up();
        }
        self.awake_mut().expect("what rested has been woken")
    }

    #[cold]
    fn wake_up(&mut self) {
        let State::Resting(resting) = &self.state else { return };
        let body = self.shelf.body(resting);
        let rested = mem::replace(&mut self.state, State::Awake { end: body, rests_at: None });
        if let (State::Awake { end, .. }, State::Resting(resting)) = (&mut self.state, rested) {
            end.resume(&self.shelf.kin, resting);
        }
    }

    #[cold]
    fn rest(&mut self, now: Instant) {
        let State::Awake { end, rests_at } = &mut self.state else { return };
        let Some(resting) = end.rest(now) else {
            *rests_at = Some(now + RETRY);
            return;
        };
        if let State::Awake { end, .. } = mem::replace(&mut self.state, State::Resting(resting)) {
            self.shelf.give(end);
        }
    }
}

impl<E: Rests> Endpoint for Napping<E> {
    type Command = E::Command;

    #[inline]
    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        self.wake().receive(env, bytes)
    }

    #[inline]
    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        let State::Awake { end, rests_at } = &mut self.state else { return Ok(()) };
        end.transmit(env)?;
        // Not before the time for which one that may not rest yet was put off.
        *rests_at = end.is_idle().then(|| rests_at.map_or(env.now + IDLE, |at| at.max(env.now + IDLE)));
        Ok(())
    }

    fn has_work(&self, is_room: bool) -> bool {
        self.awake().is_some_and(|end| end.has_work(is_room))
    }

    #[inline]
    fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Awake { end, rests_at } => match (Endpoint::next_deadline(&**end), *rests_at) {
                (Some(end), Some(rests)) => Some(end.min(rests)),
                (end, rests) => end.or(rests),
            },
            State::Resting(resting) => E::wakes_at(resting),
        }
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= env.now);
        let (acts, rests) = match &self.state {
            State::Awake { end, rests_at } => (is_due(Endpoint::next_deadline(&**end)), is_due(*rests_at)),
            State::Resting(resting) => (is_due(E::wakes_at(resting)), false),
        };
        if acts {
            return self.wake().on_deadline(env);
        }
        if rests {
            self.rest(env.now);
        }
        Ok(())
    }

    #[inline]
    fn on_command(&mut self, env: &mut Env<'_>, command: Self::Command) -> Result<(), Closed> {
        self.wake().on_command(env, command)
    }

    #[inline]
    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        // There is no task of an end that rests: this is a late wake-up of one that is over.
        match self.awake_mut() {
            Some(end) => end.on_wake(env, task),
            None => Ok(()),
        }
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        // An end that rests has nobody to tell, and no block to give back.
        if let Some(end) = self.awake_mut() {
            end.on_close(env, closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use fulmar_base::{Output, Pool};

    use super::*;

    /// An end without calls that may rest or not.
    #[derive(Default)]
    struct End {
        may_rest: bool,
        /// Bytes of memory for calls to come.
        spare: usize,
    }

    impl Endpoint for End {
        type Command = ();

        fn receive(&mut self, _: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
            Ok(bytes.len())
        }

        fn transmit(&mut self, _: &mut Env<'_>) -> Result<(), Closed> {
            Ok(())
        }

        fn next_deadline(&self) -> Option<Instant> {
            None
        }

        fn on_deadline(&mut self, _: &mut Env<'_>) -> Result<(), Closed> {
            Ok(())
        }

        fn on_command(&mut self, _: &mut Env<'_>, (): ()) -> Result<(), Closed> {
            self.may_rest = true;
            Ok(())
        }

        fn on_wake(&mut self, _: &mut Env<'_>, _: TaskId) -> Result<(), Closed> {
            Ok(())
        }

        fn on_close(&mut self, _: &mut Env<'_>, _: &Closed) {}
    }

    impl Rests for End {
        type Resting = ();
        type Kin = ();

        fn is_idle(&self) -> bool {
            true
        }

        fn rest(&mut self, _: Instant) -> Option<()> {
            self.may_rest.then_some(())
        }

        fn wakes_at((): &()) -> Option<Instant> {
            None
        }

        fn body((): &(), (): &()) -> Self {
            Self { may_rest: true, spare: 0 }
        }

        fn resume(&mut self, (): &(), (): ()) {}

        fn spare_memory(&self) -> usize {
            self.spare
        }
    }

    #[test]
    fn an_end_that_may_not_rest_yet_is_asked_again_once_a_second() {
        let mut end = Napping::new(Rc::new(Shelf::new(())), End::default());
        let (mut pool, mut out) = (Pool::new(), Output::new());
        let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut out };
        end.transmit(&mut env).unwrap();
        assert_eq!(Endpoint::next_deadline(&end), Some(env.now + IDLE));
        env.now = env.now + IDLE;
        for _ in 0..3 {
            // As reactors do it: behind whatever was called, output is asked for.
            end.on_deadline(&mut env).unwrap();
            end.transmit(&mut env).unwrap();
            assert_eq!(Endpoint::next_deadline(&end), Some(env.now + RETRY));
            env.now = env.now + RETRY;
        }
        end.on_command(&mut env, ()).unwrap();
        end.transmit(&mut env).unwrap();
        assert_eq!(Endpoint::next_deadline(&end), Some(env.now + IDLE));
        env.now = env.now + IDLE;
        end.on_deadline(&mut env).unwrap();
        end.transmit(&mut env).unwrap();
        assert!(end.awake().is_none() && Endpoint::next_deadline(&end).is_none());
    }

    #[test]
    fn few_bodies_wait_on_a_shelf_and_none_that_holds_much_memory() {
        let shelf = Rc::new(Shelf::new(()));
        let ends: Vec<_> = (0..2 * BODIES_MAX).map(|_| Box::new(End::default())).collect();
        ends.into_iter().for_each(|end| shelf.give(end));
        assert_eq!(shelf.bodies(), BODIES_MAX);

        let shelf = Shelf::new(());
        for (spare, bodies) in [(SPARE_BYTES_MAX + 1, 0), (SPARE_BYTES_MAX, 1)] {
            shelf.give(Box::new(End { spare, ..End::default() }));
            assert_eq!(shelf.bodies(), bodies, "{spare} bytes");
        }
    }
}
