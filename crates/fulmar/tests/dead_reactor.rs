//! The process's client reactor dies. A file of its own, since all channels of a process share that reactor.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{PATH_ECHO, PATH_HANG, block_on, number, serve, value};
use fulmar::{Channel, Code, Raw, Request, Status};

/// Wakes nobody, and ends the thread that tries.
struct Deadly;

impl Wake for Deadly {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker that panics"));
    }
}

async fn echo(channel: &Channel) -> Result<u64, Status> {
    let request = Request::new(number(5)).with_timeout(Duration::from_secs(20));
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, request).await?;
    Ok(value(reply.get_ref()))
}

#[test]
fn channels_come_back_after_the_reactor_under_them_has_died() {
    let server = serve();
    let channel = block_on(Channel::connect(server.endpoint())).unwrap();
    let other = block_on(Channel::connect(server.endpoint())).unwrap();
    let mut hanging = {
        let channel = other.clone();
        Box::pin(async move { channel.unary::<Raw, Raw>(PATH_HANG, number(1)).await.map(drop) })
    };
    // It is on its way before the reactor dies, and waits there.
    assert!(hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(block_on(echo(&channel)).unwrap(), 5);
    let deadly = Waker::from(Arc::new(Deadly));
    let ended = loop {
        if let Poll::Ready(ended) = hanging.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            break ended;
        }
        // A reply that comes at once needs no waker; sooner or later one does.
        let mut call = pin!(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)));
        while call.as_mut().poll(&mut Context::from_waker(&deadly)).is_pending() {
            std::thread::yield_now();
        }
    };
    assert_eq!(ended.unwrap_err().code(), Code::Unavailable, "its caller hears");
    for channel in [channel, other] {
        assert_eq!(block_on(echo(&channel)).unwrap(), 5);
    }
}
