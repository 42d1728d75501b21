//! The thread that drives the connections of callers that are on no reactor.

use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::Duration;

use fulmar_grpc::Status;
use fulmar_reactor::{Mailbox, Reactor, ReactorConfig};

use crate::counts::Counts;
use crate::host::{self, Letter, RoofHost};
use crate::lock;

/// A reactor thread for client connections. It ends when the last clone and the last channel on it are dropped.
///
/// Channels need none of their own: those of a process share one that starts with the first and ends with the last. A service
/// that wants to keep some of its channels apart starts another and passes it to
/// [`ChannelBuilder::reactor`](crate::ChannelBuilder::reactor).
#[derive(Clone, Debug)]
pub struct ClientReactor {
    seat: Arc<Seat>,
}

#[derive(Debug)]
struct Seat {
    mailbox: Mailbox<Letter>,
}

/// The process's own, while a channel uses it.
static SHARED: Mutex<Weak<Seat>> = Mutex::new(Weak::new());

impl ClientReactor {
    /// Starts a thread.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the operating system refuses a thread or an event queue.
    pub fn start() -> Result<Self, Status> {
        Self::with_busy_poll(Duration::ZERO)
    }

    /// Starts a thread that looks for work without sleeping for up to `busy_poll` before it sleeps. It costs a processor core
    /// while it lasts and saves the time that waking a thread takes, twice a call: worth it where a core is free.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with_busy_poll(busy_poll: Duration) -> Result<Self, Status> {
        let failed =
            |error: std::io::Error| Status::unavailable(format!("cannot start a client reactor: {error}"));
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("fulmar-client".to_owned())
            .spawn(move || {
                let reactor = Reactor::new(ReactorConfig { busy_poll, ..ReactorConfig::default() }, |core| {
                    RoofHost::new(core)
                });
                match reactor {
                    Ok(mut reactor) => {
                        // The starter may be gone already; then its seat is never made, and the thread ends with it.
                        if sender.send(Ok(reactor.core().mailbox())).is_ok() {
                            drop(sender);
                            // An event queue that fails ends the thread; dropping the reactor tells every caller.
                            let _ = host::run(&mut reactor);
                        }
                    }
                    Err(error) => drop(sender.send(Err(error))),
                }
            })
            .map_err(failed)?;
        let mailbox = receiver
            .recv()
            .map_err(|_| Status::unavailable("the thread of a client reactor ended before it began"))?
            .map_err(failed)?;
        Ok(Self { seat: Arc::new(Seat { mailbox }) })
    }

    /// A reactor without a thread: the returned [`TokioDriver`](crate::TokioDriver) is a future to be run by a task of the tokio
    /// runtime that the calls are made on, best one of the current-thread kind. A call then crosses no thread.
    ///
    /// The future is not `Send`: it belongs into a [`LocalSet`](https://docs.rs/tokio/latest/tokio/task/struct.LocalSet.html), or
    /// beside the program's main future in a `select!`. Nothing moves on the reactor's channels while it is not polled. It ends when
    /// the last clone of this handle, and the last channel with one, is dropped; its timers are tokio's, in steps of a millisecond.
    ///
    /// ```
    /// # use fulmar::{Channel, ClientReactor, Raw, Response, Server};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Server::builder().bind("127.0.0.1:0")?;
    /// # let endpoint = format!("http://{}", server.local_addr()?);
    /// # let server = server.spawn()?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// runtime.block_on(tokio::task::LocalSet::new().run_until(async {
    ///     let (reactor, driver) = ClientReactor::on_tokio()?;
    ///     let driver = tokio::task::spawn_local(driver);
    ///     let channel = Channel::builder(endpoint).reactor(&reactor).connect().await?;
    ///     // Channels are used as ever, by any task.
    /// #   let reply: Result<Response<Raw>, _> = channel.unary("/demo.Greeter/Greet", Raw::default()).await;
    /// #   assert_eq!(reply.unwrap_err().code(), fulmar::Code::Unimplemented);
    ///     drop((channel, reactor));
    ///     driver.await??;
    /// #   Ok::<(), Box<dyn std::error::Error>>(())
    /// }))?;
    /// # server.shutdown(std::time::Duration::ZERO)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `UNAVAILABLE` outside of a tokio runtime, on a system that is not a Unix, and when the operating system refuses an event queue.
    ///
    /// # Panics
    /// When the runtime was built without I/O or without time.
    #[cfg(feature = "tokio")]
    pub fn on_tokio() -> Result<(Self, crate::TokioDriver), Status> {
        let driver = crate::TokioDriver::new()
            .map_err(|error| Status::unavailable(format!("cannot run a client reactor on tokio: {error}")))?;
        Ok((Self { seat: Arc::new(Seat { mailbox: driver.mailbox() }) }, driver))
    }

    /// How much is in use on the reactor. None on a reactor's thread (in a handler), which waiting would stop, and when the reactor
    /// does not answer within 10 s.
    pub fn counts(&self) -> Option<Counts> {
        Counts::of([self.seat.mailbox.clone()])
    }

    /// The process's own, started if it does not run.
    pub(crate) fn shared() -> Result<Self, Status> {
        let mut shared = lock(&SHARED);
        // One whose thread has ended, which only an event queue that fails brings about, is replaced.
        if let Some(seat) = shared.upgrade().filter(|seat| !seat.mailbox.is_closed()) {
            return Ok(Self { seat });
        }
        let reactor = Self::start()?;
        *shared = Arc::downgrade(&reactor.seat);
        Ok(reactor)
    }

    /// # Errors
    /// The thread has ended: here is the letter back.
    pub(crate) fn try_send(&self, letter: Letter) -> Result<(), Letter> {
        self.seat.mailbox.try_send(letter)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.mailbox.send(Letter::Stop);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use fulmar_grpc::Code;

    use super::*;
    use crate::{Channel, Raw};

    /// Waits for a call, which must end soon.
    fn end_of(channel: &Channel) -> Status {
        let mut call = Box::pin(channel.unary::<Raw, Raw>("/demo.Demo/Echo", Raw::default()));
        loop {
            match std::future::Future::poll(call.as_mut(), &mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => return result.unwrap_err(),
                Poll::Pending => thread::yield_now(),
            }
        }
    }

    #[test]
    fn channels_come_back_after_the_reactor_under_them_has_died() {
        // Nobody listens there: what a call hears is of the dial, or of the reactor.
        let channel = Channel::builder("http://127.0.0.1:1").build().unwrap();
        assert!(end_of(&channel).message().contains("cannot connect"));
        let reactor = ClientReactor::shared().unwrap();
        let seat = Arc::downgrade(&reactor.seat);
        assert!(reactor.try_send(Letter::Stop).is_ok());
        while !reactor.seat.mailbox.is_closed() {
            thread::yield_now();
        }
        let status = end_of(&channel);
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("cannot connect"), "by a reactor that runs: {status:?}");
        assert!(!seat.ptr_eq(&Arc::downgrade(&ClientReactor::shared().unwrap().seat)));
    }
}
