//! Letters, wake-ups, timers and local tasks: whatever wakes a reactor besides sockets.

mod support;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use fulmar_base::{Closed, TaskId};
use fulmar_reactor::{ReactorConfig, clock, current_reactor, on_reactor_thread};
use support::*;

#[test]
fn no_letter_is_lost_and_those_of_one_thread_stay_in_order() {
    const THREADS: u64 = 4;
    const LETTERS: u64 = 25_000;
    for busy_poll in [Duration::ZERO, Duration::from_micros(50)] {
        let mut reactor = toys_with(ReactorConfig { busy_poll, ..ReactorConfig::default() });
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mailbox = reactor.core().mailbox();
                thread::spawn(move || {
                    for number in 0..LETTERS {
                        mailbox.send(letter(move |toy, _| toy.notes.push(thread << 32 | number)));
                        if number % 64 == 0 {
                            // The reactor gets to sleep now and then.
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        // It sleeps without a timeout: a lost wake-up would stop the test.
        while reactor.host().notes.len() < (THREADS * LETTERS) as usize {
            reactor.turn(None).expect("turning works");
        }
        for thread in 0..THREADS {
            let numbers = reactor.host().notes.iter().filter(|note| *note >> 32 == thread);
            assert!(numbers.map(|note| note & 0xFFFF_FFFF).eq(0..LETTERS));
        }
        for sender in senders {
            sender.join().expect("it sends");
        }
    }
}

#[test]
fn a_ping_pong_between_two_threads_never_stalls() {
    const ROUNDS: u64 = 5_000;
    let mut reactor = toys();
    let mailbox = reactor.core().mailbox();
    let turns = Arc::new(AtomicUsize::new(0));
    let other = {
        let turns = Arc::clone(&turns);
        thread::spawn(move || {
            for round in 0..ROUNDS {
                mailbox.send(letter(move |toy, _| toy.notes.push(round)));
                while turns.load(Ordering::Acquire) <= round as usize {
                    thread::yield_now();
                }
            }
        })
    };
    while reactor.host().notes.len() < ROUNDS as usize {
        reactor.turn(None).expect("turning works");
        turns.store(reactor.host().notes.len(), Ordering::Release);
    }
    other.join().expect("it sends");
}

#[test]
fn wake_ups_from_many_threads_reach_the_transport_and_are_gathered() {
    const WAKES: usize = 10_000;
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (_, log) = dial(&mut reactor, address, Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let (key, server) = reactor.host().accepted[0].clone();
    let handle = reactor.core().transport(key).and_then(|lines| lines.handle.clone()).expect("it has one");
    assert_eq!(handle.key(), key);
    let wakers: Vec<Waker> = (0..3).map(|task| handle.waker(TaskId(task))).collect();

    // While the reactor does not turn, any number of wake-ups are one.
    for _ in 0..100 {
        wakers.iter().for_each(Waker::wake_by_ref);
    }
    turn_until(&mut reactor, |_| log.borrow().text() == "woken 0\nwoken 1\nwoken 2\n");
    assert_eq!(server.borrow().wakes, [0, 1, 2]);

    let threads: Vec<_> = wakers
        .into_iter()
        .map(|waker| {
            thread::spawn(move || {
                (0..WAKES).for_each(|_| waker.wake_by_ref());
                waker
            })
        })
        .collect();
    turn_until(&mut reactor, |_| threads.iter().all(|thread| thread.is_finished()));
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    let counts = [0, 1, 2].map(|task| server.borrow().wakes.iter().filter(|woken| **woken == task).count());
    assert!(counts.iter().all(|count| (2..=WAKES + 1).contains(count)), "{counts:?}");

    // A waker that outlives its connection wakes nobody.
    reactor.core().close(key, &Closed::local("enough"));
    turn_until(&mut reactor, |reactor| reactor.core().connections() == 0);
    let before = server.borrow().wakes.len();
    for thread in threads {
        thread.join().expect("it wakes").wake();
    }
    reactor.turn(Some(Duration::ZERO)).expect("turning works");
    assert_eq!(server.borrow().wakes.len(), before);
}

#[test]
fn what_tasks_ask_the_host_for_is_done_behind_all_of_them_and_before_the_reactor_waits() {
    let mut reactor = toys();
    let asked = Rc::clone(&reactor.host().asked);
    for number in 0..3 {
        let asked = Rc::clone(&asked);
        reactor.core().spawn(async move {
            assert_eq!(asked.borrow().len(), number, "nothing is done between the tasks");
            asked.borrow_mut().push(number as u64);
        });
    }
    reactor.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(reactor.host().notes, [0, 1, 2]);
    asked.borrow_mut().push(3);
    let began = clock();
    reactor.turn(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(reactor.host().notes, [0, 1, 2, 3]);
    assert!(clock().saturating_duration_since(began) < Duration::from_secs(10), "it has not waited");
}

#[test]
fn a_letter_sent_from_inside_is_handled_without_waiting() {
    let mut reactor = toys();
    let mailbox = reactor.core().mailbox();
    assert!(!mailbox.is_current_thread());
    let inner = mailbox.clone();
    mailbox.send(letter(move |_, _| {
        assert!(inner.is_current_thread());
        inner.send(letter(|toy, _| toy.notes.push(1)));
    }));
    reactor.turn(Some(PATIENCE)).expect("turning works");
    assert_eq!(reactor.host().notes, [1]);
}

#[test]
fn a_letter_that_answers_itself_for_ever_does_not_starve_the_sockets() {
    fn again(mailbox: fulmar_reactor::Mailbox<Letter>) -> Letter {
        letter(move |toy, _| {
            toy.notes.push(0);
            mailbox.clone().send(again(mailbox));
        })
    }
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mailbox = reactor.core().mailbox();
    mailbox.clone().send(again(mailbox));
    let (key, log) = dial(&mut reactor, address, Lines::default());
    say(&mut reactor, key, "hello\n");
    turn_until(&mut reactor, |_| log.borrow().text() == "hello\n");
}

#[test]
fn letters_to_a_reactor_that_has_ended_come_back() {
    let mut reactor = toys();
    let mailbox = reactor.core().mailbox();
    let dropped = Arc::new(());
    let held = Arc::clone(&dropped);
    mailbox.send(letter(move |_, _| drop(held)));
    drop(reactor);
    assert_eq!(Arc::strong_count(&dropped), 1, "what lay in the mailbox is dropped");
    assert!(mailbox.try_send(letter(|_, _| ())).is_err());
}

#[test]
fn stopping_closes_what_is_open_and_returns() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let mailbox = reactor.core().mailbox();
    let client = thread::spawn(move || {
        let mut stream = client(address);
        write_all(&mut stream, "hello\n");
        std::io::Read::read_exact(&mut stream, &mut [0; 6]).expect("it is served");
        mailbox.send(letter(|_, core| core.stop()));
        read_to_end(&mut stream)
    });
    reactor.run().expect("running works");
    assert_eq!(client.join().expect("it ends in order"), "");
    assert_eq!(reactor.host().closed[0].1, "the reactor is stopping");
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!((reactor.core().connections(), reactor.core().lingering()), (0, 0));
}

#[test]
fn timers_deliver_their_letters_in_order_and_not_before_their_time() {
    let mut reactor = toys();
    let now = clock();
    for delay in [30, 10, 20, 0] {
        let at = now + Duration::from_millis(delay);
        let arrived = letter(move |toy, core| {
            assert!(core.now() >= at);
            toy.notes.push(delay);
        });
        reactor.core().set_timer(at, arrived);
    }
    let cancelled =
        reactor.core().set_timer(now + Duration::from_millis(15), letter(|toy, _| toy.notes.push(15)));
    assert!(reactor.core().cancel_timer(cancelled).is_some());
    assert!(reactor.core().cancel_timer(cancelled).is_none());
    // Without another reason to wake up.
    while reactor.host().notes.len() < 4 {
        reactor.turn(None).expect("turning works");
    }
    assert_eq!(reactor.host().notes, [0, 10, 20, 30]);
}

#[test]
fn the_deadline_of_a_transport_is_kept_wherever_it_moves() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    let now = clock();
    let (near, far) = (now + Duration::from_millis(20), now + Duration::from_millis(40));
    // Later, then nearer, then later again: it passes once, at the last one.
    for at in [far, near, far] {
        command(&mut reactor, key, Command::At(at));
        reactor.turn(Some(Duration::ZERO)).expect("turning works");
    }
    while log.borrow().deadlines.is_empty() {
        reactor.turn(None).expect("turning works");
    }
    assert!(log.borrow().deadlines[0] >= far);
    let server = reactor.host().accepted[0].1.clone();
    turn_until(&mut reactor, |_| server.borrow().text() == "late\n");
    assert_eq!(log.borrow().deadlines.len(), 1);
}

#[test]
fn block_on_polls_the_future_when_it_is_woken_and_tells_where_it_runs() {
    let mut reactor = toys();
    let id = reactor.core().id();
    let (polls, wakers) = (Cell::new(0), Arc::new(Mutex::new(Vec::<Waker>::new())));
    let given = Arc::clone(&wakers);
    let other = thread::spawn(move || {
        for _ in 0..5 {
            let waker = loop {
                if let Some(waker) = given.lock().expect("nobody panics").pop() {
                    break waker;
                }
                thread::yield_now();
            };
            waker.wake();
        }
    });
    let answer = reactor.block_on(poll_fn(|context| {
        assert_eq!(current_reactor(), Some(id));
        polls.set(polls.get() + 1);
        if polls.get() == 6 {
            return Poll::Ready(42);
        }
        wakers.lock().expect("nobody panics").push(context.waker().clone());
        Poll::Pending
    }));
    other.join().expect("it wakes");
    assert_eq!((answer, polls.get()), (42, 6));
    assert!(!on_reactor_thread());
}

#[test]
fn a_future_that_is_always_ready_does_not_starve_the_sockets() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (key, log) = dial(&mut reactor, address, Lines::default());
    say(&mut reactor, key, "hello\n");
    reactor.block_on(poll_fn(|context| {
        if log.borrow().text() == "hello\n" {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
}

#[test]
fn local_tasks_run_need_not_be_send_and_reuse_their_slots() {
    let mut reactor = toys();
    let done = Rc::new(Cell::new(0));
    for round in 1..=3 {
        for _ in 0..10 {
            let done = Rc::clone(&done);
            reactor.core().spawn(async move {
                yields(3).await;
                done.set(done.get() + 1);
            });
        }
        assert_eq!(reactor.core().tasks(), 10);
        turn_until(&mut reactor, |_| done.get() == round * 10);
        assert_eq!(reactor.core().tasks(), 0);
    }
}

#[test]
fn tasks_wake_each_other_and_the_future_that_is_waited_for() {
    let mut reactor = toys();
    let slot: Rc<RefCell<(Option<Waker>, u32)>> = Rc::default();
    let (taken, given) = (Rc::clone(&slot), Rc::clone(&slot));
    reactor.core().spawn(async move {
        for number in 1..=100 {
            yields(1).await;
            let mut slot = given.borrow_mut();
            slot.1 = number;
            if let Some(waker) = slot.0.take() {
                waker.wake();
            }
        }
    });
    reactor.block_on(poll_fn(|context| {
        let mut slot = taken.borrow_mut();
        slot.0 = Some(context.waker().clone());
        if slot.1 == 100 { Poll::Ready(()) } else { Poll::Pending }
    }));
}

#[test]
fn a_panicking_task_ends_the_reactor_and_everybody_hears_of_it() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    let (_, log) = dial(&mut reactor, address, Lines::default());
    reactor.core().spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || reactor.block_on(yields(100))));
    assert!(panicked.is_err());
    assert_eq!(log.borrow().closes, [Closed::local("the reactor is stopping")]);
    assert!(!on_reactor_thread());
}

/// Pends so many times, waking itself.
fn yields(times: usize) -> impl Future<Output = ()> {
    struct Yields(usize);
    impl Future for Yields {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.0 == 0 {
                return Poll::Ready(());
            }
            self.0 -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
    Yields(times)
}
