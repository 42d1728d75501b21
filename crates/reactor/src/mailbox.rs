use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use fulmar_base::TaskId;

use crate::current::{self, ReactorId};
use crate::keys::ConnectionKey;

/// The only door between threads: sends letters to the host of one reactor, from anywhere.
///
/// A letter costs an uncontended lock and a push. Only the first letter of a burst to a reactor that has gone to sleep costs a
/// system call. Letters of one thread arrive in the order they were sent.
pub struct Mailbox<L> {
    shared: Arc<Shared<L>>,
}

impl<L> Mailbox<L> {
    /// Sends a letter, without waiting. If the reactor has ended, the letter is dropped.
    pub fn send(&self, letter: L) {
        drop(self.try_send(letter));
    }

    /// Sends a letter, without waiting.
    ///
    /// # Errors
    /// The reactor has ended: here is the letter back.
    pub fn try_send(&self, letter: L) -> Result<(), L> {
        self.shared.push(letter, |mail, letter| mail.letters.push(letter))
    }

    /// Whether the calling thread is inside of the reactor that this mailbox belongs to.
    pub fn is_current_thread(&self) -> bool {
        current::current_reactor() == Some(self.shared.reactor)
    }

    /// The reactor that this mailbox belongs to.
    pub fn reactor(&self) -> ReactorId {
        self.shared.reactor
    }

    /// Whether the reactor has ended, so that letters are dropped.
    pub fn is_closed(&self) -> bool {
        !self.shared.lock().open
    }
}

impl<L> Clone for Mailbox<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Mailboxes are equal that belong to the same reactor.
impl<L> PartialEq for Mailbox<L> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<L> Eq for Mailbox<L> {}

impl<L> fmt::Debug for Mailbox<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("reactor", &self.shared.reactor).finish_non_exhaustive()
    }
}

/// What a reactor finds in its mailbox. Wake-ups, of which there are more, are kept apart, since letters are large.
pub(crate) struct Mail<L> {
    pub(crate) letters: Vec<L>,
    /// Each waker is in the mailbox at most once.
    pub(crate) wakes: Vec<Arc<TaskWaker>>,
}

impl<L> Mail<L> {
    pub(crate) const fn new() -> Self {
        Self { letters: Vec::new(), wakes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.wakes.is_empty()
    }
}

/// What is behind a [`Waker`] made by a reactor: it puts itself into the reactor's mailbox, or among what the thread
/// [keeps](current::keep_woken) that is inside of the reactor, unless it is there already.
pub(crate) struct TaskWaker {
    pub(crate) target: Target,
    queued: AtomicBool,
    post: Arc<dyn Post>,
}

/// Whom a wake-up is for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Target {
    /// A task that a transport knows.
    Connection(ConnectionKey, TaskId),
    /// A local task, by its slot.
    Local(usize),
    /// The future given to `block_on`.
    Root,
}

impl TaskWaker {
    pub(crate) fn waker(target: Target, post: Arc<dyn Post>) -> Waker {
        Waker::from(Arc::new(Self { target, queued: AtomicBool::new(false), post }))
    }

    /// The task that it wakes, if that is one of this connection.
    pub(crate) fn task_of(&self, connection: ConnectionKey) -> Option<TaskId> {
        match self.target {
            Target::Connection(key, task) if key == connection => Some(task),
            _ => None,
        }
    }

    /// The reactor that it belongs to.
    pub(crate) fn reactor(&self) -> ReactorId {
        self.post.reactor()
    }

    /// Puts it into the mailbox of its reactor.
    pub(crate) fn post(self: Arc<Self>) {
        Arc::clone(&self.post).post(self);
    }

    /// From here on the waker may be queued again. To be called before what it wakes runs, so that no wake-up is lost.
    pub(crate) fn dequeued(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel)
            && let Err(waker) = current::keep_woken(self)
        {
            waker.post();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Arc::clone(self).wake();
    }
}

/// A mailbox, to those who do not know what its letters are.
pub(crate) trait Post: Send + Sync {
    fn post(&self, waker: Arc<TaskWaker>);

    /// Whose mailbox it is.
    fn reactor(&self) -> ReactorId;
}

impl<L: Send> Post for Shared<L> {
    fn post(&self, waker: Arc<TaskWaker>) {
        drop(self.push(waker, |mail, waker| mail.wakes.push(waker)));
    }

    fn reactor(&self) -> ReactorId {
        self.reactor
    }
}

/// The reactor's end of its mailbox.
pub(crate) struct Inbox<L> {
    shared: Arc<Shared<L>>,
}

struct Shared<L> {
    queue: Mutex<Queue<L>>,
    /// Whether the queue holds something: written under the lock, read without it as a hint.
    filled: AtomicBool,
    /// Whether the reactor sleeps, or is about to, so that somebody has to wake it.
    parked: AtomicBool,
    waker: mio::Waker,
    reactor: ReactorId,
}

struct Queue<L> {
    mail: Mail<L>,
    open: bool,
    /// Who is to be woken in place of a selector: the task of another event loop, which the parked reactor is part of.
    driver: Option<Waker>,
}

impl<L> Inbox<L> {
    pub(crate) fn new(reactor: ReactorId, waker: mio::Waker) -> Self {
        let queue = Mutex::new(Queue { mail: Mail::new(), open: true, driver: None });
        let (filled, parked) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { queue, filled, parked, waker, reactor }) }
    }

    pub(crate) fn mailbox(&self) -> Mailbox<L> {
        Mailbox { shared: Arc::clone(&self.shared) }
    }

    /// Whether something lies in the mailbox: a hint, which may be late by the time a store takes to be seen.
    pub(crate) fn has_mail(&self) -> bool {
        self.shared.filled.load(Ordering::Relaxed)
    }

    /// Takes everything out, into `mail`, which must be empty and whose memory the mailbox goes on with.
    pub(crate) fn swap(&self, mail: &mut Mail<L>) {
        debug_assert!(mail.is_empty());
        if self.has_mail() {
            let mut queue = self.shared.lock();
            std::mem::swap(&mut queue.mail, mail);
            self.shared.filled.store(false, Ordering::Relaxed);
        }
    }

    /// Announces that the reactor is about to sleep; `false`, and no announcement, if something has arrived.
    ///
    /// The order makes it safe: a sender pushes under the lock, then looks whether the reactor is parked; the reactor says that it
    /// is parked, then looks under the lock. Whoever comes second sees what the first did.
    pub(crate) fn park(&self) -> bool {
        self.park_for(None)
    }

    /// As [`park`](Self::park), on behalf of a task of another event loop, which is woken if there is one.
    pub(crate) fn park_for(&self, driver: Option<&Waker>) -> bool {
        self.shared.parked.store(true, Ordering::SeqCst);
        let (may_sleep, earlier) = {
            let mut queue = self.shared.lock();
            let is_kept = match (&queue.driver, driver) {
                (None, None) => true,
                (Some(earlier), Some(driver)) => earlier.will_wake(driver),
                _ => false,
            };
            let earlier = if is_kept { None } else { std::mem::replace(&mut queue.driver, driver.cloned()) };
            (queue.mail.is_empty(), earlier)
        };
        // Not under the lock: a waker is foreign code.
        drop(earlier);
        if !may_sleep {
            self.unpark();
        }
        may_sleep
    }

    /// The reactor is awake: senders need not wake it.
    pub(crate) fn unpark(&self) {
        self.shared.parked.store(false, Ordering::SeqCst);
    }

    /// No more is taken in; what lies there is dropped.
    pub(crate) fn close(&self) {
        let mail = {
            let mut queue = self.shared.lock();
            queue.open = false;
            std::mem::replace(&mut queue.mail, Mail::new())
        };
        // Not under the lock: what is dropped may send.
        drop(mail);
    }
}

impl<L: Send + 'static> Inbox<L> {
    pub(crate) fn post(&self) -> Arc<dyn Post> {
        Arc::clone(&self.shared) as Arc<dyn Post>
    }
}

impl<L> Shared<L> {
    /// Puts an item in, as `put` does it, and wakes the reactor if it sleeps; gives the item back if the reactor has ended.
    fn push<I>(&self, item: I, put: impl FnOnce(&mut Mail<L>, I)) -> Result<(), I> {
        {
            let mut queue = self.lock();
            if !queue.open {
                return Err(item);
            }
            put(&mut queue.mail, item);
            self.filled.store(true, Ordering::Relaxed);
        }
        // Of a burst, only the one who takes the flag down makes the system call.
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        Ok(())
    }

    fn wake(&self) {
        let driver = self.lock().driver.clone();
        if let Some(driver) = driver {
            return driver.wake();
        }
        // It writes to an eventfd (or its like), and cannot fail while that is open: mio makes room if its counter is full.
        let _ = self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Queue<L>> {
        // Nothing that panics runs under the lock besides an allocation; the queue is whole whatever happened.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::{Events, Poll, Token};

    use super::*;
    use crate::current::Entered;

    fn new_inbox() -> (Poll, Inbox<u32>) {
        let poll = Poll::new().expect("the system has a selector");
        let waker = mio::Waker::new(poll.registry(), Token(0)).expect("the selector takes a waker");
        (poll, Inbox::new(ReactorId::next(), waker))
    }

    fn wake_ups(poll: &mut Poll) -> usize {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).expect("polling works");
        events.iter().count()
    }

    #[test]
    fn letters_to_an_awake_reactor_wake_nobody() {
        let (mut poll, inbox) = new_inbox();
        inbox.mailbox().send(1);
        assert_eq!(inbox.mailbox(), inbox.mailbox());
        assert_ne!(inbox.mailbox(), new_inbox().1.mailbox());
        assert!(inbox.has_mail());
        assert_eq!(wake_ups(&mut poll), 0);
    }

    #[test]
    fn a_burst_to_a_parked_reactor_wakes_it_once() {
        let (mut poll, inbox) = new_inbox();
        assert!(inbox.park());
        for letter in 0..100 {
            inbox.mailbox().send(letter);
            assert_eq!(wake_ups(&mut poll), usize::from(letter == 0));
        }
        inbox.unpark();
        let mut mail = Mail::new();
        inbox.swap(&mut mail);
        assert!(mail.letters.iter().copied().eq(0..100));
        assert!(!inbox.has_mail());
    }

    #[test]
    fn a_reactor_with_mail_does_not_park() {
        let (mut poll, inbox) = new_inbox();
        inbox.mailbox().send(1);
        assert!(!inbox.park());
        inbox.mailbox().send(2);
        assert_eq!(wake_ups(&mut poll), 0);
    }

    #[test]
    fn a_waker_is_queued_once_until_it_is_dequeued() {
        let (_poll, inbox) = new_inbox();
        let waker = TaskWaker::waker(Target::Local(3), inbox.post());
        waker.wake_by_ref();
        Waker::clone(&waker).wake();
        waker.wake_by_ref();
        let mut mail = Mail::new();
        inbox.swap(&mut mail);
        assert_eq!(mail.wakes.len(), 1);
        for task in mail.wakes.drain(..) {
            task.dequeued();
        }
        waker.wake();
        inbox.swap(&mut mail);
        assert_eq!(mail.wakes.len(), 1);
    }

    #[test]
    fn wake_ups_on_the_reactors_own_thread_go_through_the_mailbox_only_when_they_are_left_behind() {
        let ((_poll, inbox), (_other_poll, other)) = (new_inbox(), new_inbox());
        let waker = TaskWaker::waker(Target::Local(1), inbox.post());
        let entered = Entered::new(inbox.mailbox().reactor());
        waker.wake_by_ref();
        waker.wake_by_ref();
        TaskWaker::waker(Target::Local(2), other.post()).wake();
        assert!(!inbox.has_mail() && other.has_mail() && current::has_woken());
        {
            let _inner = Entered::new(other.mailbox().reactor());
            assert!(!current::has_woken(), "those are the outer one's");
        }
        let mut woken = Vec::new();
        current::swap_woken(&mut woken);
        assert_eq!(woken.len(), 1);
        woken.iter().for_each(|waker| waker.dequeued());
        waker.wake();
        drop(entered);
        assert!(inbox.has_mail() && !current::has_woken(), "for when the reactor runs again");
    }

    #[test]
    fn a_driven_reactor_wakes_its_driver_and_not_the_selector() {
        struct Woken(AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let (mut poll, inbox) = new_inbox();
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let driver = Waker::from(Arc::clone(&woken));
        assert!(inbox.park_for(Some(&driver)));
        assert!(!woken.0.load(Ordering::SeqCst));
        inbox.mailbox().send(1);
        assert!(woken.0.load(Ordering::SeqCst));
        assert_eq!(wake_ups(&mut poll), 0);
        // Once it drives itself again, its selector is what is woken.
        inbox.swap(&mut Mail::new());
        assert!(inbox.park());
        inbox.mailbox().send(2);
        assert_eq!(wake_ups(&mut poll), 1);
    }

    #[test]
    fn a_closed_mailbox_gives_letters_back() {
        let (_poll, inbox) = new_inbox();
        let mailbox = inbox.mailbox();
        mailbox.send(1);
        inbox.close();
        assert!(mailbox.is_closed());
        assert_eq!(mailbox.try_send(2), Err(2));
        let mut mail = Mail::new();
        inbox.swap(&mut mail);
        assert!(mail.is_empty());
    }
}
