//! A client's executor is broken: its wakers panic.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{PATH_ECHO, PATH_HANG, block_on, eventually, number, serve, value};
use fulmar::{Channel, ClientReactor, Raw, Request, Status};

/// Wakes nobody, and panics.
struct Deadly(Arc<AtomicUsize>);

impl Wake for Deadly {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("a waker that panics"));
    }
}

async fn echo(channel: &Channel) -> Result<u64, Status> {
    let request = Request::new(number(5)).with_timeout(Duration::from_secs(20));
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, request).await?;
    Ok(value(reply.get_ref()))
}

#[test]
fn a_waker_that_panics_is_its_callers_misfortune_only() {
    let server = serve();
    let reactor = ClientReactor::start().unwrap();
    let channel = || Channel::builder(server.endpoint()).reactor(&reactor);
    let broken = block_on(channel().connect()).unwrap();
    let other = block_on(channel().connect()).unwrap();
    let mut hanging = {
        let other = other.clone();
        Box::pin(async move { other.unary::<Raw, Raw>(PATH_HANG, number(1)).await.map(drop) })
    };
    assert!(hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());

    let panics = Arc::new(AtomicUsize::new(0));
    let deadly = Waker::from(Arc::new(Deadly(panics.clone())));
    for count in 1..=3 {
        // A reply that comes at once needs no waker; one that waits for its connection does.
        let mut call =
            pin!(broken.unary::<Raw, Raw>(
                PATH_HANG,
                Request::new(number(1)).with_timeout(Duration::from_millis(20))
            ));
        assert!(call.as_mut().poll(&mut Context::from_waker(&deadly)).is_pending());
        eventually("the waker is called", || panics.load(Ordering::SeqCst) == count);
        assert!(call.as_mut().poll(&mut Context::from_waker(&deadly)).is_ready(), "it only has to look");
    }
    assert!(hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "not affected");
    for channel in [broken, other] {
        assert_eq!(block_on(echo(&channel)).unwrap(), 5);
    }
}
