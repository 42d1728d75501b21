//! The five rules of the call cell.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use bytes::BufMut;
use fulmar_base::Pool;
use fulmar_grpc::{Body, Compress, MessageBuf};

use super::*;
use crate::call::{Replies, Streaming};
use crate::payload::Raw;

/// Whether nobody holds the cell's lock at this moment.
fn is_unlocked(cell: &CallCell) -> bool {
    !matches!(cell.state.try_lock(), Err(std::sync::TryLockError::WouldBlock))
}

thread_local! {
    static WATCHED: std::cell::RefCell<Weak<CallCell>> = const { std::cell::RefCell::new(Weak::new()) };
}

/// A message whose code looks whether the watched cell is locked.
#[derive(Default)]
struct Nosy;

impl Nosy {
    fn look() {
        if let Some(cell) = WATCHED.with_borrow(Weak::upgrade) {
            assert!(is_unlocked(&cell), "user code ran under the cell's lock");
        }
    }
}

impl Payload for Nosy {
    fn encoded_len(&self) -> usize {
        Self::look();
        3
    }

    fn encode(&self, out: &mut impl BufMut) {
        Self::look();
        out.put_slice(b"abc");
    }

    fn decode_from(&mut self, _body: &mut MessageBuf<'_>) -> Result<(), Status> {
        Self::look();
        Ok(())
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        Self::look();
    }
}

/// A waker that looks whether the watched cell is locked, and counts.
struct NosyWaker {
    cell: Weak<CallCell>,
    wakes: AtomicUsize,
}

impl NosyWaker {
    fn new(cell: &Arc<CallCell>) -> Arc<Self> {
        Arc::new(Self { cell: Arc::downgrade(cell), wakes: AtomicUsize::new(0) })
    }

    fn look(&self) {
        if let Some(cell) = self.cell.upgrade() {
            assert!(is_unlocked(&cell), "a waker was used under the cell's lock");
        }
    }
}

impl Wake for NosyWaker {
    fn wake(self: Arc<Self>) {
        self.look();
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for NosyWaker {
    fn drop(&mut self) {
        self.look();
    }
}

fn arrive(cell: &CallCell, bytes: &[u8]) -> Option<Waker> {
    let mut state = cell.lock();
    state.inbound.push(Body::Lent(bytes), false, &mut Pool::new());
    state.receive_waker.take()
}

fn ready<F: Future>(future: F) -> Option<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn rule_1_no_user_code_runs_under_the_lock() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    WATCHED.set(Arc::downgrade(&cell));

    let mut replies = Replies::<Nosy>::new(cell.clone(), usize::MAX);
    assert!(ready(replies.send(&Nosy)).is_some_and(|sent| sent.is_ok()));
    replies.metadata(|_| Nosy::look());
    replies.trailers(|_| Nosy::look());

    arrive(&cell, b"abc");
    let mut requests = Streaming::<Nosy>::new(cell.clone(), None);
    assert!(ready(requests.message()).is_some_and(|message| message.is_ok_and(|message| message.is_some())));
    assert_eq!(cell.lock().outbound.as_slice(), b"\0\0\0\0\x03abc");
}

#[test]
fn rule_2_wakers_are_stored_replaced_called_and_dropped_without_the_lock() {
    let cell = Arc::new(CallCell::default());
    let (first, second) = (NosyWaker::new(&cell), NosyWaker::new(&cell));

    for (waker, guess) in [(&first, Guess::Ready), (&second, Guess::Pending)] {
        let waker = Waker::from(waker.clone());
        let mut queue = Inbound::default();
        assert!(cell.poll_inbound(&Context::from_waker(&waker), guess, &mut queue).is_pending());
        assert!(cell.poll_room(&Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&first), 1, "the replaced waker was dropped");

    let wakers = cell.lock().end(Status::default());
    for waker in wakers.into_iter().flatten() {
        waker.wake();
    }
    assert_eq!(second.wakes.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn rule_2_a_waker_that_wakes_the_same_task_is_not_replaced() {
    let cell = Arc::new(CallCell::default());
    let waker = NosyWaker::new(&cell);
    let task = Waker::from(waker.clone());
    for guess in [Guess::Pending, Guess::Ready, Guess::Pending] {
        assert!(cell.poll_end(&Context::from_waker(&task), guess).is_pending());
    }
    assert_eq!(Arc::strong_count(&waker), 3, "ours, the task's and the one stored first");
}

#[test]
fn rule_3_a_cell_with_a_leaked_handle_is_not_recycled() {
    let mut cell = Arc::new(CallCell::default());
    arrive(&cell, b"of the first call");
    let leaked = Streaming::<Raw>::new(cell.clone(), None);
    assert!(CallCell::recycle(&mut cell).is_none());
    assert!(!cell.lock().inbound.is_empty(), "nothing was touched");

    drop(leaked);
    assert!(CallCell::recycle(&mut cell).is_some());
    let state = cell.lock();
    assert!(state.inbound.is_empty() && state.outbound.is_empty() && state.status.is_none());
}

#[test]
fn rule_4_poison_is_ignored() {
    let cell = Arc::new(CallCell::default());
    let poisoned = catch_unwind(AssertUnwindSafe(|| {
        let _state = cell.lock();
        panic!("a thread dies");
    }));
    assert!(poisoned.is_err() && cell.state.is_poisoned());

    cell.lock().room = 1;
    assert!(cell.send(&Raw::from(b"x".to_vec()), Compress::Default, usize::MAX).is_ok());
    let mut cell = cell;
    assert!(CallCell::recycle(&mut cell).is_some());
}

#[test]
fn rule_5_the_connection_is_told_once_until_it_has_looked() {
    let cell = Arc::new(CallCell::default());
    let door = NosyWaker::new(&cell);
    {
        let mut state = cell.lock();
        state.door = Some(Waker::from(door.clone()));
        state.room = 100;
    }
    let message = Raw::from(b"x".to_vec());
    assert!(cell.send(&message, Compress::Default, usize::MAX).is_ok());
    assert!(cell.send(&message, Compress::Default, usize::MAX).is_ok());
    assert_eq!(door.wakes.load(Ordering::Relaxed), 1, "one knock for what one look sees");

    cell.lock().knocked = false;
    cell.end_outbound();
    assert_eq!(door.wakes.load(Ordering::Relaxed), 2);

    cell.lock().knocked = false;
    cell.lock().set_window(64 * 1024);
    cell.taken(&mut Inbound::default(), RELEASE_BYTES_MAX);
    assert_eq!(door.wakes.load(Ordering::Relaxed), 3, "a peer that may run dry is worth a knock");

    cell.lock().knocked = false;
    cell.abandon();
    assert_eq!(door.wakes.load(Ordering::Relaxed), 4);
}

#[test]
fn what_arrives_between_a_look_and_the_storing_of_the_waker_is_not_missed() {
    let cell = Arc::new(CallCell::default());
    let mut looks = 0;
    let found = cell.poll(
        &Context::from_waker(Waker::noop()),
        Guess::Ready,
        |state| &mut state.receive_waker,
        |_| {
            looks += 1;
            if looks == 1 { Poll::Pending } else { Poll::Ready(()) }
        },
    );
    assert!(found.is_ready());
    assert_eq!(looks, 2);
}

#[test]
fn a_message_over_the_limit_is_refused_and_leaves_nothing_behind() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    let refused = cell.send(&Raw::from(vec![0; 11]), Compress::Default, 10).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("11") && refused.message().contains("10"), "{refused}");
    assert!(cell.lock().outbound.is_empty());
    assert!(cell.send(&Raw::from(vec![0; 10]), Compress::Default, 10).is_ok(), "exactly at the limit passes");
}

#[test]
fn a_sender_waits_without_room_and_one_message_may_overshoot() {
    let cell = Arc::new(CallCell::default());
    let cx = Context::from_waker(Waker::noop());
    assert!(cell.poll_room(&cx).is_pending());
    cell.lock().room = 1;
    assert!(cell.poll_room(&cx).is_ready());
    assert!(cell.send(&Raw::from(vec![0; 50]), Compress::Default, usize::MAX).is_ok());
    assert!(cell.poll_room(&cx).is_pending());
}

/// Encodes to another length than it says, or panics in the middle.
#[derive(Default)]
struct Faulty {
    announced: usize,
    encoded: usize,
    panics: bool,
}

impl Payload for Faulty {
    fn encoded_len(&self) -> usize {
        self.announced
    }

    fn encode(&self, out: &mut impl BufMut) {
        out.put_bytes(b'x', self.encoded);
        assert!(!self.panics, "the message does not like to be encoded");
    }

    fn decode_from(&mut self, _body: &mut MessageBuf<'_>) -> Result<(), Status> {
        assert!(!self.panics, "the message does not like to be decoded");
        Ok(())
    }
}

#[test]
fn a_message_that_lies_about_its_length_is_refused_and_leaves_nothing_behind() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    assert!(cell.send(&Raw::from(b"before".to_vec()), Compress::Default, usize::MAX).is_ok());
    for (announced, encoded) in [(5, 4), (5, 6), (0, 1), (1, 0), (20_000, 19_999), (20_000, 20_001)] {
        let refused = cell
            .send(&Faulty { announced, encoded, panics: false }, Compress::Default, usize::MAX)
            .unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
    }
    assert_eq!(cell.lock().outbound.as_slice(), b"\0\0\0\0\x06before");
}

#[test]
fn rule_4_a_message_that_panics_while_it_is_encoded_takes_no_other_with_it() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    assert!(cell.send(&Raw::from(b"before".to_vec()), Compress::Default, usize::MAX).is_ok());
    for announced in [5, 20_000] {
        let faulty = Faulty { announced, encoded: 3, panics: true };
        let sent = catch_unwind(AssertUnwindSafe(|| cell.send(&faulty, Compress::Default, usize::MAX)));
        assert!(sent.is_err());
    }
    assert!(cell.send(&Raw::from(b"behind".to_vec()), Compress::Default, usize::MAX).is_ok());
    assert_eq!(cell.lock().outbound.as_slice(), b"\0\0\0\0\x06before\0\0\0\0\x06behind");
}

/// Memory of a user that looks whether the watched cell is locked when it is dropped.
struct NosyMemory(Vec<u8>);

impl AsRef<[u8]> for NosyMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for NosyMemory {
    fn drop(&mut self) {
        Nosy::look();
    }
}

#[test]
fn rule_1_memory_of_a_user_is_dropped_without_the_lock() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    WATCHED.set(Arc::downgrade(&cell));
    let message = Raw(bytes::Bytes::from_owner(NosyMemory(vec![7; 20_000])));
    assert!(cell.send(&message, Compress::Default, usize::MAX).is_ok());
    drop(message);
    let mut parts = 0;
    drop(cell.with_outbound(cell.lock(), |outbound| parts = outbound.parts().count()));
    assert!(parts > 1 && cell.lock().outbound.is_empty());
    WATCHED.take();
}

#[test]
fn rule_4_metadata_survives_a_change_that_panics() {
    let cell = Arc::new(CallCell::default());
    let mut replies = Replies::<Raw>::new(cell.clone(), usize::MAX);
    replies.metadata(|metadata| metadata.insert("x-set", "before")).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| replies.metadata(|_| panic!("no"))));
    assert!(panicked.is_err());
    assert_eq!(cell.lock().metadata_out.get("x-set"), Some("before"));
}

#[test]
fn metadata_that_was_sent_is_not_taken_out_of_the_cell_again() {
    let cell = Arc::new(CallCell::default());
    cell.lock().room = 100;
    let mut replies = Replies::<Raw>::new(cell.clone(), usize::MAX);
    replies.metadata(|metadata| metadata.insert("x-set", "before")).unwrap();
    assert!(ready(replies.send(&Raw::default())).is_some_and(|sent| sent.is_ok()));
    replies.metadata(|metadata| {
        // The connection may look at this moment.
        assert_eq!(cell.lock().metadata_out.get("x-set"), Some("before"));
        metadata.insert("x-set", "too late").unwrap();
    });
    assert_eq!(cell.lock().metadata_out.get("x-set"), Some("before"));
}

#[test]
fn a_message_that_panics_while_it_is_decoded_counts_as_taken_with_its_block() {
    let mut pool = Pool::new();
    let mut queue = Inbound::default();
    let mut block = pool.take(8 * 1024);
    block.extend_from_slice(&[7; 8 * 1024]);
    queue.push(Body::Block(block), false, &mut pool);
    queue.push(Body::Lent(b"next"), false, &mut pool);
    let panicked = catch_unwind(AssertUnwindSafe(|| queue.take(|_, _| panic!("no"))));
    assert!(panicked.is_err());
    assert_eq!(queue.take(|body, _| body.to_vec()), Some((b"next".to_vec(), 4)));
    queue.give_used(&mut pool);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_caller_that_gives_up_wakes_its_own_other_half() {
    let cell = Arc::new(CallCell::default());
    let waker = NosyWaker::new(&cell);
    let task = Waker::from(waker.clone());
    let mut queue = Inbound::default();
    assert!(cell.poll_inbound(&Context::from_waker(&task), Guess::Pending, &mut queue).is_pending());
    cell.abandon();
    assert_eq!(waker.wakes.load(Ordering::Relaxed), 1);
    let found = cell.poll_inbound(&Context::from_waker(&task), Guess::Pending, &mut queue);
    assert_eq!(found, Poll::Ready(Arrived::Failed));
    let wakers = cell.lock().end(Status::unavailable("what came later"));
    assert!(wakers.into_iter().flatten().next().is_none());
    assert_eq!(cell.lock().status.as_ref().map(Status::code), Some(Code::Cancelled), "the first end counts");
}

#[test]
fn what_a_handler_does_not_read_is_credited_and_its_blocks_go_back() {
    let mut pool = Pool::new();
    let cell = Arc::new(CallCell::default());
    cell.lock().side = Side::Handler;
    let mut requests = Streaming::<Raw>::new(cell.clone(), None);
    let large = |pool: &mut Pool| {
        let mut block = pool.take(8 * 1024);
        block.extend_from_slice(&[7; 8 * 1024]);
        Body::Block(block)
    };
    {
        let mut state = cell.lock();
        state.inbound.push(Body::Lent(b"read"), false, &mut pool);
        state.inbound.push(large(&mut pool), false, &mut pool);
    }
    assert!(ready(requests.message()).is_some_and(|message| message.is_ok()));
    cell.lock().inbound.push(large(&mut pool), false, &mut pool);
    drop(requests);

    let mut state = cell.lock();
    assert!(state.inbound_discarded && state.knocked);
    let whole = (PREFIX_LEN + 4) + 2 * (PREFIX_LEN + 8 * 1024);
    assert_eq!(state.take_releases(), Some(whole - PREFIX_LEN));
    state.inbound.give_used(&mut pool);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_reader_reports_before_a_small_window_runs_dry() {
    for (window, knocks_at) in
        [(64 * 1024, RELEASE_BYTES_MAX), (16 << 20, RELEASE_BYTES_MAX), (1_000, 250), (1, 0)]
    {
        let cell = Arc::new(CallCell::default());
        cell.lock().set_window(window);
        let (mut queue, mut taken, cx) = (Inbound::default(), 0, Context::from_waker(Waker::noop()));
        while !cell.lock().knocked {
            // Whether the reader comes back to the cell or goes on with what it has.
            if taken % 2 == 0 {
                assert!(cell.poll_inbound(&cx, Guess::Pending, &mut queue).is_pending());
            }
            taken += PREFIX_LEN;
            cell.taken(&mut queue, 0);
        }
        assert!((knocks_at..knocks_at + 2 * PREFIX_LEN).contains(&taken), "{window}: knocked at {taken}");
    }
}

#[test]
fn a_recycled_cell_keeps_little_memory_whatever_it_was_used_for() {
    let mut cell = Arc::new(CallCell::default());
    lock(&cell.state).outbound.bytes_mut().resize(4 << 20, 7);
    // The next call may need as much again, and has a use for it or not.
    assert!(CallCell::recycle(&mut cell).is_some());
    let kept = CallCell::recycle(&mut cell).expect("nobody else holds it");
    assert!(kept <= size_of::<CallCell>() + 2 * 64 * 1024, "{kept} bytes");
}
