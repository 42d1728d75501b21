//! The reactor that this thread runs, and the calls that it makes there.
//!
//! A call whose connection is on the thread that makes it needs no letter, and no lock: it waits here until the local tasks have had
//! their turn. Then the host begins the calls of each channel in one go, in the order in which they were made.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::vec::Drain;

use fulmar_reactor::Mailbox;

use super::Letter;
use crate::client::{ChannelSpec, PendingCall, Place};

/// For how many calls, and channels, memory is kept between bursts.
const KEPT_MAX: usize = 4 * 1024;

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here::NOWHERE) };
}

/// What a thread knows of the reactor that it runs.
struct Here {
    /// None where it runs none.
    mailbox: Option<Mailbox<Letter>>,
    calls: OwnCalls,
}

impl Here {
    const NOWHERE: Self = Self { mailbox: None, calls: OwnCalls { calls: Vec::new(), channels: Vec::new() } };
}

/// Calls that a thread has made, and that its reactor has not begun.
#[derive(Default)]
pub(super) struct OwnCalls {
    calls: Vec<PendingCall>,
    /// Whose they are, and how many in a row.
    channels: Vec<(Arc<ChannelSpec>, usize)>,
}

impl OwnCalls {
    fn push(&mut self, spec: &Arc<ChannelSpec>, pending: PendingCall) {
        self.calls.push(pending);
        match self.channels.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, spec) => *count += 1,
            _ => self.channels.push((spec.clone(), 1)),
        }
    }

    /// Changes places with the calls that this thread has made. To be empty.
    pub(super) fn swap(&mut self) {
        self.calls.shrink_to(KEPT_MAX);
        self.channels.shrink_to(KEPT_MAX);
        HERE.with_borrow_mut(|here| mem::swap(&mut here.calls, self));
    }

    /// The calls, and whose they are: of each channel in turn so many.
    pub(super) fn drain(&mut self) -> (Drain<'_, PendingCall>, Drain<'_, (Arc<ChannelSpec>, usize)>) {
        (self.calls.drain(..), self.channels.drain(..))
    }
}

/// Whether this thread has made calls that its reactor has not begun.
pub(super) fn has_own_calls() -> bool {
    HERE.with_borrow(|here| !here.calls.calls.is_empty())
}

/// Says, while it lives, that this thread runs a reactor.
pub(crate) struct Running {
    outer: Option<Here>,
}

impl Running {
    pub(crate) fn enter(mailbox: Mailbox<Letter>) -> Self {
        let here = Here { mailbox: Some(mailbox), calls: OwnCalls::default() };
        Self { outer: Some(HERE.replace(here)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(outer) = self.outer.take() else { return };
        let Here { mailbox, mut calls } = HERE.replace(outer);
        let Some(mailbox) = mailbox else { return };
        // The reactor finds them in its mailbox when it runs again.
        let (mut calls, channels) = calls.drain();
        for (spec, count) in channels {
            for pending in calls.by_ref().take(count) {
                mailbox.send(Letter::Start { spec: spec.clone(), pending });
            }
        }
    }
}

/// Begins a call soon on the reactor of this thread, if there is one and it can reach the channel's place. Gives it back otherwise, and
/// what is no call.
pub(crate) fn start_here(spec: &Arc<ChannelSpec>, pending: PendingCall) -> Result<(), PendingCall> {
    HERE.with_borrow_mut(|here| match &here.mailbox {
        Some(mailbox) if pending.is_plain() && spec.place.is_reached_from(mailbox) => {
            here.calls.push(spec, pending);
            Ok(())
        }
        _ => Err(pending),
    })
}

/// Sends a letter to the reactor of this thread, if there is one and it can reach `place`. Gives the letter back otherwise.
pub(crate) fn send_to_current(letter: Letter, place: &Place) -> Result<(), Letter> {
    HERE.with_borrow(|here| match &here.mailbox {
        Some(mailbox) if place.is_reached_from(mailbox) => mailbox.try_send(letter),
        _ => Err(letter),
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::call::CallCell;
    use crate::host::{RoofHost, RoofReactor};
    use crate::{Channel, Raw};

    fn channel() -> Channel {
        Channel::builder("http://127.0.0.1:1").build().unwrap()
    }

    #[test]
    fn calls_keep_their_order_and_those_of_one_channel_in_a_row_are_together() {
        let (one, other) = (channel(), channel());
        let cells: [_; 4] = std::array::from_fn(|_| Arc::new(CallCell::default()));
        let mut own = OwnCalls::default();
        for (channel, cell) in [&one, &one, &other, &one].into_iter().zip(&cells) {
            own.push(channel.spec(), PendingCall::call(cell.clone()));
        }
        let (calls, channels) = own.drain();
        let calls: Vec<_> = calls.map(PendingCall::take).collect();
        assert!(calls.iter().zip(&cells).all(|(call, cell)| Arc::ptr_eq(call, cell)));
        let channels: Vec<_> = channels.map(|(spec, count)| (spec.id, count)).collect();
        let (one, other) = (one.spec().id, other.spec().id);
        assert_eq!(channels, [(one, 2), (other, 1), (one, 1)]);
    }

    #[test]
    fn calls_that_are_left_behind_wait_in_the_mailbox_and_end_with_the_reactor() {
        let mut reactor: RoofReactor =
            fulmar_reactor::Reactor::new(fulmar_reactor::ReactorConfig::default(), |core| {
                RoofHost::new(core)
            })
            .unwrap();
        let channel = channel();
        let mut call = pin!(channel.unary::<Raw, Raw>("/demo.Unary/Call", Raw::default()));
        let mut cx = Context::from_waker(Waker::noop());
        {
            let _running = Running::enter(reactor.core().mailbox());
            assert!(call.as_mut().poll(&mut cx).is_pending());
            assert!(has_own_calls());
            {
                let _inner = Running::enter(reactor.core().mailbox());
                assert!(!has_own_calls(), "those are the outer one's");
            }
            assert!(has_own_calls());
        }
        assert!(!has_own_calls());
        assert!(call.as_mut().poll(&mut cx).is_pending(), "it waits for the reactor");
        drop(reactor);
        let std::task::Poll::Ready(Err(status)) = call.as_mut().poll(&mut cx) else {
            panic!("the reactor has ended, and the call has not");
        };
        assert_eq!(status.code(), crate::Code::Unavailable);
    }
}
