//! What state a channel is in, and waiting for another one (gRPC "connectivity-semantics-and-api").

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fulmar_base::{Key, Slab};

use super::{Channel, ChannelSpec};
use crate::lock;

/// What state a channel is in (gRPC "connectivity-semantics-and-api").
///
/// A channel that is used on several reactors has a connection on each, and is in the best state that one of them is in: ready before
/// connecting before failing before idle.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum ConnectivityState {
    /// There is no connection, and none is wanted. The next call makes one, and waits for it.
    Idle,
    /// A connection is being made: calls wait for it.
    Connecting,
    /// There is a connection, and the server has sent its SETTINGS.
    Ready,
    /// The last attempt to connect has failed, and none has succeeded since: calls fail at once with what went wrong, unless they wait
    /// [for ready](crate::Request::set_wait_for_ready). The channel tries again, by itself.
    TransientFailure,
    /// The channel was dropped.
    Shutdown,
}

use ConnectivityState::{Connecting, Idle, Ready, Shutdown, TransientFailure};

/// The states of a channel's connections, and who waits for a change.
#[derive(Default, Debug)]
pub(crate) struct Connectivity {
    inner: Mutex<Inner>,
}

#[derive(Default, Debug)]
struct Inner {
    /// On how many reactors it is ready, connecting, failing.
    ready: u32,
    connecting: u32,
    failing: u32,
    shut_down: bool,
    /// None until somebody has waited.
    waiting: Option<Box<Slab<Waker>>>,
}

impl Inner {
    fn state(&self) -> ConnectivityState {
        match (self.shut_down, self.ready, self.connecting, self.failing) {
            (true, ..) => Shutdown,
            (_, 1.., ..) => Ready,
            (_, _, 1.., _) => Connecting,
            (_, _, _, 1..) => TransientFailure,
            _ => Idle,
        }
    }

    fn take_waiting(&mut self) -> Vec<Waker> {
        // The slab stays, so that no key that somebody still has names another waker.
        let Some(waiting) = &mut self.waiting else { return Vec::new() };
        let keys: Vec<_> = waiting.iter().map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| waiting.remove(key)).collect()
    }

    /// Forgets somebody who waits.
    fn remove(&mut self, place: Key<Waker>) -> Option<Waker> {
        self.waiting.as_mut()?.remove(place)
    }

    /// How many reactors are in a state that is counted.
    fn count(&mut self, state: ConnectivityState) -> Option<&mut u32> {
        match state {
            Ready => Some(&mut self.ready),
            Connecting => Some(&mut self.connecting),
            TransientFailure => Some(&mut self.failing),
            Idle | Shutdown => None,
        }
    }
}

impl Connectivity {
    pub(crate) fn state(&self) -> ConnectivityState {
        lock(&self.inner).state()
    }

    /// On one reactor the channel has gone from one state to another.
    pub(crate) fn change(&self, from: ConnectivityState, to: ConnectivityState) {
        self.update(|inner| {
            if let Some(count) = inner.count(from) {
                *count = count.saturating_sub(1);
            }
            if let Some(count) = inner.count(to) {
                *count += 1;
            }
        });
    }

    /// The channel was dropped.
    pub(crate) fn shut_down(&self) {
        self.update(|inner| inner.shut_down = true);
    }

    fn update(&self, update: impl FnOnce(&mut Inner)) {
        let mut inner = lock(&self.inner);
        let before = inner.state();
        update(&mut inner);
        let wakers = if inner.state() == before { Vec::new() } else { inner.take_waiting() };
        drop(inner);
        for waker in wakers {
            crate::wake(waker);
        }
    }
}

/// The state of a channel.
impl Channel {
    /// What state the channel is in: whether calls go through, wait, or fail at once.
    pub fn state(&self) -> ConnectivityState {
        self.spec().connectivity.state()
    }

    /// Waits until the channel is in another state than `from`, and returns it.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), fulmar::ConnectError> {
    /// use fulmar::{Channel, ConnectivityState};
    ///
    /// let channel = Channel::builder("http://127.0.0.1:50051").build()?;
    /// channel.connect_now();
    /// let mut state = channel.state();
    /// while state != ConnectivityState::Ready {
    ///     state = channel.wait_for_change(state).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_change(&self, from: ConnectivityState) -> ConnectivityState {
        self.watch().wait_for_change(from).await
    }

    /// Looks at the state without keeping the channel alive.
    pub fn watch(&self) -> ConnectivityWatch {
        ConnectivityWatch::new(self.spec().clone())
    }
}

/// Looks at the state of a channel without keeping the channel alive. Made by [`Channel::watch`](crate::Channel::watch).
#[derive(Clone)]
pub struct ConnectivityWatch {
    spec: Arc<ChannelSpec>,
}

impl ConnectivityWatch {
    pub(super) fn new(spec: Arc<ChannelSpec>) -> Self {
        Self { spec }
    }

    /// The state.
    pub fn state(&self) -> ConnectivityState {
        self.spec.connectivity.state()
    }

    /// Waits until the state is another one than `from`, and returns it. A state that lasted only while nobody looked is not told.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), fulmar::ConnectError> {
    /// use fulmar::{Channel, ConnectivityState};
    ///
    /// let channel = Channel::builder("http://127.0.0.1:50051").build()?;
    /// let watch = channel.watch();
    /// let mut state = watch.state();
    /// while state != ConnectivityState::Shutdown {
    ///     println!("{state:?}");
    ///     state = watch.wait_for_change(state).await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_change(&self, from: ConnectivityState) -> ConnectivityState {
        Change { connectivity: &self.spec.connectivity, from, place: None }.await
    }
}

impl std::fmt::Debug for ConnectivityWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectivityWatch")
            .field("endpoint", &self.spec.name())
            .field("state", &self.state())
            .finish()
    }
}

/// Waits for another state.
struct Change<'c> {
    connectivity: &'c Connectivity,
    from: ConnectivityState,
    place: Option<Key<Waker>>,
}

impl Future for Change<'_> {
    type Output = ConnectivityState;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectivityState> {
        let connectivity = self.connectivity;
        // Cloned without the lock: it is an executor's code.
        let waker = cx.waker().clone();
        let mut inner = lock(&connectivity.inner);
        let earlier = self.place.take().and_then(|place| inner.remove(place));
        let state = inner.state();
        let polled = if state == self.from {
            self.place = Some(inner.waiting.get_or_insert_default().insert(waker));
            Poll::Pending
        } else {
            Poll::Ready(state)
        };
        drop(inner);
        drop(earlier);
        polled
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let waker = lock(&self.connectivity.inner).remove(place);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    fn waiting(connectivity: &Connectivity) -> usize {
        lock(&connectivity.inner).waiting.as_ref().map_or(0, |waiting| waiting.len())
    }

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_channel_is_in_the_best_state_of_its_reactors() {
        let connectivity = Connectivity::default();
        assert_eq!(connectivity.state(), Idle);
        connectivity.change(Idle, Connecting);
        connectivity.change(Idle, Connecting);
        connectivity.change(Connecting, TransientFailure);
        assert_eq!(connectivity.state(), Connecting);
        connectivity.change(Connecting, Ready);
        assert_eq!(connectivity.state(), Ready);
        connectivity.change(Ready, Idle);
        assert_eq!(connectivity.state(), TransientFailure);
        connectivity.change(TransientFailure, Idle);
        assert_eq!(connectivity.state(), Idle);
        connectivity.shut_down();
        connectivity.change(Idle, Ready);
        assert_eq!(connectivity.state(), Shutdown, "for good");
    }

    #[test]
    fn who_waits_is_woken_by_a_change_and_by_nothing_else_and_leaves_nothing_behind() {
        let connectivity = Connectivity::default();
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut cx = Context::from_waker(&waker);
        let mut change = pin!(Change { connectivity: &connectivity, from: Idle, place: None });
        let mut given_up = Box::pin(Change { connectivity: &connectivity, from: Idle, place: None });
        for _ in 0..3 {
            assert!(change.as_mut().poll(&mut cx).is_pending());
            assert!(given_up.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(waiting(&connectivity), 2);
        drop(given_up);
        connectivity.change(Idle, Idle);
        assert_eq!((bell.0.load(Ordering::Relaxed), waiting(&connectivity)), (0, 1));
        connectivity.change(Idle, Connecting);
        assert_eq!((bell.0.load(Ordering::Relaxed), waiting(&connectivity)), (1, 0));
        assert_eq!(change.as_mut().poll(&mut cx), Poll::Ready(Connecting));
    }
}
