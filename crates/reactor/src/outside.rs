//! What a reactor that tokio drives waits for: its selector and its earliest timer.

#[cfg(unix)]
pub(crate) use unix::Outside;

#[cfg(not(unix))]
pub(crate) use elsewhere::Outside;

#[cfg(unix)]
mod unix {
    use std::future::Future;
    use std::io::{self, ErrorKind};
    use std::os::fd::AsFd;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use fulmar_base::Instant;
    use tokio::net::unix::pipe::Receiver;
    use tokio::runtime::Handle;
    use tokio::time::Sleep;

    use crate::clock;

    pub(crate) struct Outside {
        /// A descriptor of the reactor's selector: one selector (epoll, kqueue) can wait for another. To tokio it is a pipe, from
        /// which nobody reads: of what tokio can wait for, that is what takes any descriptor without `unsafe`.
        selector: Receiver,
        sleep: Pin<Box<Sleep>>,
        /// When `sleep` ends: never later than the earliest timer, and earlier if that has been put off since.
        armed: Option<Instant>,
    }

    impl Outside {
        pub(crate) fn new(poll: &mio::Poll) -> io::Result<Self> {
            Handle::try_current().map_err(io::Error::other)?;
            let descriptor = poll.registry().as_fd().try_clone_to_owned()?;
            let selector = Receiver::from_owned_fd_unchecked(descriptor)?;
            Ok(Self { selector, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), armed: None })
        }

        /// If the runtime has heard from the selector, calls `serve`, which tells whether it took all that the selector had.
        pub(crate) fn poll_sockets(
            &mut self,
            context: &mut Context<'_>,
            serve: impl FnOnce() -> io::Result<bool>,
        ) -> Poll<io::Result<()>> {
            ready!(self.selector.poll_read_ready(context))?;
            let served = self.selector.try_io(|| match serve() {
                // Said after serving: tokio notices what was told meanwhile, which is told once.
                Ok(true) => Err(ErrorKind::WouldBlock.into()),
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            });
            match served {
                Err(error) if error.kind() != ErrorKind::WouldBlock => Poll::Ready(Err(error)),
                _ => Poll::Ready(Ok(())),
            }
        }

        /// Ready if the time of `timer` has come; else the task is woken when it comes.
        pub(crate) fn poll_timer(&mut self, timer: Option<Instant>, context: &mut Context<'_>) -> Poll<()> {
            let Some(timer) = timer else { return Poll::Pending };
            loop {
                let now = clock();
                if timer <= now {
                    return Poll::Ready(());
                }
                if self.armed.is_none_or(|armed| timer < armed) {
                    let wait = timer.saturating_duration_since(now);
                    self.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
                    self.armed = Some(timer);
                }
                if self.sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.armed = None;
            }
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::convert::Infallible;
    use std::io;
    use std::task::{Context, Poll};

    use fulmar_base::Instant;

    /// There is none: a selector of this system cannot wait for another.
    pub(crate) struct Outside(Infallible);

    impl Outside {
        pub(crate) fn new(_: &mio::Poll) -> io::Result<Self> {
            let text = "a tokio runtime can drive a reactor on Unix systems only";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }

        pub(crate) fn poll_sockets(
            &mut self,
            _: &mut Context<'_>,
            _: impl FnOnce() -> io::Result<bool>,
        ) -> Poll<io::Result<()>> {
            match self.0 {}
        }

        pub(crate) fn poll_timer(&mut self, _: Option<Instant>, _: &mut Context<'_>) -> Poll<()> {
            match self.0 {}
        }
    }
}
