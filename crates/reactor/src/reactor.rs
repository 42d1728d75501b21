use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Context};
use std::time::Duration;

use fulmar_base::{Closed, Instant, Transport};
use mio::Events;
use mio::event::Event;

use crate::clock;
use crate::config::ReactorConfig;
use crate::core::{Core, Ended, Root, Source};
use crate::current::{self, Entered};
use crate::keys::{ConnectionKey, ListenerKey};
use crate::listener::{ACCEPTS_MAX, Accepted};
use crate::mailbox::{Mail, Mailbox, Target, TaskWaker};
use crate::socket::Socket;
use crate::timers::Due;

/// How many events are taken from the system at once; the others come with the next turn.
pub(crate) const EVENTS_MAX: usize = 1024;

/// How many rounds of letters, wake-ups, tasks and pipes a turn has at most before it looks at the sockets again.
const ROUNDS_MAX: usize = 16;

/// How many turns in a row may go to the future of `block_on` before the sockets are looked at.
const ROOT_TURNS_MAX: usize = 16;

/// The inbox keeps memory for so many letters, and so many wake-ups, between bursts.
const MAIL_KEPT_MAX: usize = 16 * 1024;

/// So many letters, or wake-ups, are taken to come at one time: to look at the clock costs as much as a small one of them.
const ITEMS_A_TICK: usize = 16;

/// What happens around the connections of a reactor. All methods are called on the reactor's thread, none from inside another.
pub trait Host: Sized {
    /// What drives the bytes of each connection.
    type Transport: Transport;
    /// What other threads send here.
    type Letter: Send + 'static;

    /// A listener has a new connection: [`Core::adopt`] it, send it to another reactor by letter, or drop it, which closes it.
    fn on_accept(
        &mut self,
        core: &mut Core<Self::Transport, Self::Letter>,
        listener: ListenerKey,
        socket: Socket,
    );

    /// A listener has connections that cannot be accepted for want of descriptors or memory. They wait, and it tries again by a timer,
    /// ten times a second, as long as it takes. Told at each attempt that fails; by default nothing is done about it.
    fn on_accept_failed(
        &mut self,
        core: &mut Core<Self::Transport, Self::Letter>,
        listener: ListenerKey,
        error: &io::Error,
    ) {
        let _ = (core, listener, error);
    }

    /// Does what this thread has asked the host for by other ways than letters; whether there was something. Called in every round,
    /// behind the local tasks, so that what all of them have asked for is done together.
    fn catch_up(&mut self, core: &mut Core<Self::Transport, Self::Letter>) -> bool {
        let _ = core;
        false
    }

    /// Whether there is something to [catch up](Self::catch_up) with, so that the reactor must not sleep.
    fn is_behind(&self) -> bool {
        false
    }

    /// A letter has come: from the mailbox, or from a timer.
    fn on_letter(&mut self, core: &mut Core<Self::Transport, Self::Letter>, letter: Self::Letter);

    /// A connection that was dialled has come about, as far as the system is concerned.
    fn on_connected(&mut self, core: &mut Core<Self::Transport, Self::Letter>, connection: ConnectionKey);

    /// A connection has ended, or a dialled one has failed. Its transport, whose `on_close` has been called, comes back.
    fn on_closed(
        &mut self,
        core: &mut Core<Self::Transport, Self::Letter>,
        connection: ConnectionKey,
        transport: Self::Transport,
        closed: &Closed,
    );
}

/// One thread's event loop.
///
/// A turn does, in this order: wake-ups, letters, local tasks, what these have asked the host for, and pipes, until none is ready; one
/// transmit and one write for each connection poked so; timers; then it waits for sockets, and serves each that is ready with a read, a receive, a transmit and a
/// write of its own: first those that need little, then, for as long again, listeners and those that take much.
pub struct Reactor<H: Host> {
    host: H,
    pub(crate) core: Core<H::Transport, H::Letter>,
    pub(crate) events: Events,
    /// The last turn of those who take much was the listeners'.
    accepts: bool,
}

impl<H: Host> Reactor<H> {
    /// A reactor with the host that `make_host` makes, which may listen and dial already.
    ///
    /// # Errors
    /// The system has no selector to give.
    pub fn new(
        config: ReactorConfig,
        make_host: impl FnOnce(&mut Core<H::Transport, H::Letter>) -> H,
    ) -> io::Result<Self> {
        let mut core = Core::new(config)?;
        let host = make_host(&mut core);
        Ok(Self { host, core, events: Events::with_capacity(EVENTS_MAX), accepts: false })
    }

    /// Runs until [`Core::stop`] is called; then closes everything, gives the last bytes time to get across as with any connection
    /// that is closed, and returns.
    ///
    /// # Errors
    /// The selector fails.
    pub fn run(&mut self) -> io::Result<()> {
        let _entered = Entered::new(self.core.id);
        self.core.bench.tick();
        self.work();
        while !std::mem::take(&mut self.core.stopping) {
            self.look_outside(None)?;
            self.work();
        }
        self.close_all();
        while self.core.lingering() > 0 {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Runs until `future` is ready. It is polled on this thread, when it is woken.
    ///
    /// # Panics
    /// If the selector fails, which it does not while it is open.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let _entered = Entered::new(self.core.id);
        let waker = TaskWaker::waker(Target::Root, self.core.inbox.post());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        self.core.root = Root::Woken;
        let mut turns = 0;
        loop {
            if let Some(output) = self.poll_root(future.as_mut(), &mut context) {
                return output;
            }
            self.work();
            if self.core.root == Root::Woken && turns < ROOT_TURNS_MAX {
                // Whoever waits for the future knows more to do than the sockets, most likely.
                turns += 1;
                continue;
            }
            turns = 0;
            self.look_outside(None).expect("an open selector can be waited for");
        }
    }

    /// Polls the future of `block_on`, or its like, if it was woken.
    pub(crate) fn poll_root<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Option<F::Output> {
        if self.core.root != Root::Woken {
            return None;
        }
        self.core.root = Root::Asleep;
        let polled = future.poll(context);
        self.core.bench.tick();
        match polled {
            task::Poll::Ready(output) => {
                self.core.root = Root::Absent;
                Some(output)
            }
            task::Poll::Pending => None,
        }
    }

    /// Does everything there is to do, once; if there is nothing, waits at most `timeout` for something; `None` waits for good.
    ///
    /// # Errors
    /// The selector fails.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let _entered = Entered::new(self.core.id);
        self.core.bench.tick();
        let worked = self.work();
        self.look_outside(if worked { Some(Duration::ZERO) } else { timeout })
    }

    /// The door for letters from other threads.
    pub fn mailbox(&self) -> Mailbox<H::Letter> {
        self.core.mailbox()
    }

    /// The host.
    pub fn host(&mut self) -> &mut H {
        &mut self.host
    }

    /// What the host is lent.
    pub fn core(&mut self) -> &mut Core<H::Transport, H::Letter> {
        self.core.bench.tick();
        &mut self.core
    }

    /// Both, for whoever acts on one with the other.
    pub fn parts(&mut self) -> (&mut H, &mut Core<H::Transport, H::Letter>) {
        self.core.bench.tick();
        (&mut self.host, &mut self.core)
    }

    /// What can be done without looking outside: letters, wake-ups, local tasks and pipes, until none is ready; then what they have
    /// made the connections write, which may be input to pipes; until nothing is left, or the turn's share is used up. Then timers.
    ///
    /// Returns whether there was something to do. Whoever calls it has looked at the clock since something else was done.
    pub(crate) fn work(&mut self) -> bool {
        let mut worked = false;
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                // What tasks have taken counts for what they ask for.
                self.core.bench.tick();
            }
            worked |= self.open_mail() | self.core.has_work();
            self.core.tasks.run();
            worked |= self.host.catch_up(&mut self.core);
            self.core.run_pipes();
            self.report_ended();
            if self.has_ready() {
                continue;
            }
            self.flush_dirty();
            if !self.has_ready() {
                break;
            }
        }
        worked | self.fire_timers()
    }

    /// Whether somebody is ready to run.
    fn has_ready(&self) -> bool {
        self.core.has_ready() || self.host.is_behind()
    }

    /// Whether there is work on this thread, so that it must not sleep.
    pub(crate) fn has_work(&self) -> bool {
        self.core.has_work() || self.host.is_behind()
    }

    /// Passes on all wake-ups that are there, and opens all letters; `false` if there are none.
    fn open_mail(&mut self) -> bool {
        let woken = self.pass_on_own();
        if !self.core.inbox.has_mail() {
            return woken;
        }
        let mut mail = std::mem::replace(&mut self.core.mail, Mail::new());
        self.core.inbox.swap(&mut mail);
        let some = woken || !mail.is_empty();
        self.pass_on(mail.wakes.drain(..));
        for (number, letter) in mail.letters.drain(..).enumerate() {
            self.tick_now_and_then(number);
            self.host.on_letter(&mut self.core, letter);
        }
        mail.wakes.shrink_to(MAIL_KEPT_MAX);
        mail.letters.shrink_to(MAIL_KEPT_MAX);
        self.core.mail = mail;
        some
    }

    /// Passes on the wake-ups that this thread has kept; `false` if there are none.
    fn pass_on_own(&mut self) -> bool {
        let mut woken = std::mem::take(&mut self.core.woken);
        current::swap_woken(&mut woken);
        let some = !woken.is_empty();
        self.pass_on(woken.drain(..));
        woken.shrink_to(MAIL_KEPT_MAX);
        self.core.woken = woken;
        some
    }

    /// Passes wake-ups on, those in a row for tasks of one connection together.
    fn pass_on(&mut self, wakes: impl Iterator<Item = Arc<TaskWaker>>) {
        let mut wakes = wakes.peekable();
        let mut number = 0;
        while let Some(waker) = wakes.next() {
            self.tick_now_and_then(number);
            number += 1;
            waker.dequeued();
            match waker.target {
                Target::Connection(key, task) => {
                    let others = std::iter::from_fn(|| {
                        if number.is_multiple_of(ITEMS_A_TICK) {
                            return None;
                        }
                        let next = wakes.next_if(|next| next.task_of(key).is_some())?;
                        number += 1;
                        next.dequeued();
                        next.task_of(key)
                    });
                    self.core.wake(key, std::iter::once(task).chain(others));
                }
                // Those only take note.
                Target::Local(index) => self.core.tasks.wake(index),
                Target::Root if self.core.root == Root::Absent => {}
                Target::Root => self.core.root = Root::Woken,
            }
        }
    }

    /// Looks at the clock, if this is not the first of a batch, which comes at the time of the turn, but the first of some more.
    fn tick_now_and_then(&mut self, number: usize) {
        if number > 0 && number.is_multiple_of(ITEMS_A_TICK) {
            self.core.bench.tick();
        }
    }

    /// Everything that was poked transmits and writes, once.
    fn flush_dirty(&mut self) {
        self.core.flush_dirty();
        self.report_ended();
    }

    /// Tells the host which connections have ended. What it does about it may end others.
    #[inline]
    fn report_ended(&mut self) {
        if !self.core.ended.is_empty() {
            self.tell_ended();
        }
    }

    #[cold]
    fn tell_ended(&mut self) {
        while let Some(Ended { key, transport, closed }) = self.core.ended.pop_front() {
            self.host.on_closed(&mut self.core, key, transport, &closed);
        }
    }

    /// Serves the timers whose time has come, and lets everybody transmit and write who has not; `false` if no time had come.
    fn fire_timers(&mut self) -> bool {
        let some = self.core.timers.next().is_some_and(|at| at <= self.core.bench.now);
        while let Some(due) = self.core.next_due() {
            match due {
                Due::Letter(key) => {
                    if let Some(letter) = self.core.timers.take_letter(key) {
                        self.host.on_letter(&mut self.core, letter);
                    }
                }
                Due::Listener(key) => {
                    self.core.rested(key);
                    self.core.accept_soon(key);
                }
                Due::Connection(_) => {}
            }
        }
        self.flush_dirty();
        some
    }

    /// Waits for sockets and mail, at most for `timeout`, and serves the sockets.
    pub(crate) fn look_outside(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait(self.patience(timeout))?;
        self.core.bench.tick();
        self.core.bench.looks = self.core.bench.looks.wrapping_add(1);
        let began = self.core.bench.now;
        self.serve_sockets();
        self.core.bench.crowd.note_served();
        self.serve_greedy(began);
        Ok(())
    }

    /// How long to wait for the sockets, from the time of the turn on.
    fn patience(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.has_work() || self.core.has_ready() {
            return Some(Duration::ZERO);
        }
        let timer = self.core.timers.next().map(|at| at.saturating_duration_since(self.core.bench.now));
        [timeout, timer].into_iter().flatten().min()
    }

    /// Waits for sockets or mail: at first awake, if so configured, then asleep.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout != Some(Duration::ZERO)
            && !self.core.bench.config.busy_poll.is_zero()
            && self.spin(timeout)?
        {
            return Ok(());
        }
        if timeout != Some(Duration::ZERO) && self.core.inbox.park() {
            if cfg!(debug_assertions) {
                assert!(!self.has_work(), "a reactor never sleeps while there is work");
                self.core.check_at_rest();
            }
            let result = self.poll(timeout);
            self.core.inbox.unpark();
            return result;
        }
        self.poll(Some(Duration::ZERO))
    }

    /// Looks for sockets and mail without sleeping, for as long as configured; `true` if there are some, or `timeout` is over.
    fn spin(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let busy = self.core.bench.config.busy_poll;
        let start = clock();
        let until = start + timeout.map_or(busy, |timeout| timeout.min(busy));
        loop {
            self.poll(Some(Duration::ZERO))?;
            if !self.events.is_empty() || self.core.inbox.has_mail() {
                return Ok(true);
            }
            if clock() >= until {
                return Ok(timeout.is_some_and(|timeout| timeout <= busy));
            }
            std::hint::spin_loop();
        }
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.core.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            result => result,
        }
    }

    /// Serves the sockets that are ready. Each leaves the time behind when it was done with.
    fn serve_sockets(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match Source::of(event.token()) {
                Source::Mailbox => {}
                Source::Listener(index) => {
                    if let Some(key) = self.core.listener_at(index) {
                        self.core.accept_soon(key);
                    }
                }
                Source::Connection(index) => {
                    if let Some(key) = self.core.connection_at(index) {
                        self.serve(key, event);
                    }
                }
            }
        }
        self.events = events;
        self.report_ended();
    }

    fn serve(&mut self, key: ConnectionKey, event: &Event) {
        let hung_up = event.is_read_closed() || event.is_error();
        let readable = event.is_readable() || hung_up;
        let writable = event.is_writable() || event.is_write_closed() || event.is_error();
        if self.core.on_socket(key, readable, writable, hung_up) {
            self.host.on_connected(&mut self.core, key);
            if readable {
                // The peer spoke first, and its bytes are not announced again.
                self.core.on_socket(key, true, false, false);
            }
        }
    }

    /// Serves those who take much, for as long as the others took that were served since `began`, but at least one: listeners, and the
    /// next time sockets whose turn did not suffice or whose turns are long. So whoever needs little never waits for more than one of
    /// those who take much, and these have half of the time, however many the others are.
    fn serve_greedy(&mut self, began: Instant) {
        let sockets_wait = !self.core.again.is_empty();
        self.accepts = !(self.core.accepting.is_empty() || self.accepts && sockets_wait);
        if !self.accepts && !sockets_wait {
            return;
        }
        let start = self.core.bench.now;
        let until = start + start.saturating_duration_since(began);
        if self.accepts {
            for _ in 0..self.core.accepting.len() {
                if let Some(key) = self.core.next_accepting() {
                    self.accept(key, until);
                }
            }
        } else {
            for _ in 0..self.core.again.len() {
                let Some(key) = self.core.again.pop_front() else { break };
                self.core.on_again(key);
                if self.core.bench.now >= until {
                    break;
                }
            }
        }
        self.report_ended();
    }

    /// Accepts connections, one in any case and more while there is time.
    fn accept(&mut self, key: ListenerKey, until: Instant) {
        for _ in 0..ACCEPTS_MAX {
            match self.core.accept(key) {
                Accepted::Connection(socket) => self.host.on_accept(&mut self.core, key, socket),
                Accepted::Gone => {}
                Accepted::Empty => return,
                Accepted::Exhausted(error) => return self.host.on_accept_failed(&mut self.core, key, &error),
            }
            self.core.bench.tick();
            if self.core.bench.now >= until {
                break;
            }
        }
        self.core.accept_soon(key);
    }

    pub(crate) fn close_all(&mut self) {
        let closed = Closed::local("the reactor is stopping");
        self.core.close_listeners();
        self.core.bench.tick();
        for key in self.core.keys() {
            self.core.close(key, &closed);
        }
        self.report_ended();
        self.core.hurry_leave();
    }
}

impl<H: Host> Drop for Reactor<H> {
    /// Everybody who waits for a connection of this reactor is told that it has ended.
    fn drop(&mut self) {
        let _entered = Entered::new(self.core.id);
        if std::thread::panicking() {
            // A second panic would end the process, and the first is the one to be told.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.close_all()));
        } else {
            self.close_all();
        }
        self.core.inbox.close();
    }
}

impl<H: Host> fmt::Debug for Reactor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("core", &self.core).finish_non_exhaustive()
    }
}
