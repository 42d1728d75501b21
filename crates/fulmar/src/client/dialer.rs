//! Connections that the user makes, whenever the channel wants one.

use std::sync::Arc;
use std::{fmt, io, thread};

use fulmar_base::Closed;
use fulmar_grpc::Status;
use fulmar_reactor::{Socket, SocketOptions};

use super::target::Target;
use crate::error::TransportError;
use crate::panics::caught;

/// Makes a connection. May block.
#[derive(Clone)]
pub(crate) struct Dial(Arc<dyn Fn() -> io::Result<Socket> + Send + Sync>);

/// Makes the connections of a channel.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// What the server is called.
    pub(crate) target: Target,
    dial: Dial,
}

impl Dial {
    pub(super) fn new<S: Into<Socket>>(dial: impl Fn() -> io::Result<S> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || dial().map(Into::into)))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

impl Dialer {
    pub(super) fn new(target: Target, dial: Dial) -> Self {
        Self { target, dial }
    }

    /// Makes a connection on the calling thread, and sets it up.
    ///
    /// # Errors
    /// The user's function fails or panics, or what it gives is not connected or does not take the options.
    pub(crate) fn dial(&self, options: &SocketOptions) -> Result<Socket, Status> {
        let dialled = caught("the dialer", || (self.dial.0)());
        let dialled = dialled.unwrap_or_else(|panicked| Err(io::Error::other(panicked.message().to_owned())));
        let set_up = dialled.and_then(|socket| {
            socket.check()?;
            socket.apply(options)?;
            Ok(socket)
        });
        set_up.map_err(|error| {
            let closed = Closed::peer(format!("the dialer: {error}")).caused_by(error.kind());
            let cause = TransportError::new(self.target.uri(), &closed);
            Status::unavailable(closed.text).with_source(cause)
        })
    }

    /// The same on a thread of its own, which tells `on_done`.
    pub(super) fn dial_elsewhere(
        self: &Arc<Self>,
        options: SocketOptions,
        on_done: impl FnOnce(Result<Socket, Status>) + Send + 'static,
    ) -> io::Result<()> {
        let dialer = self.clone();
        let dial = move || on_done(dialer.dial(&options));
        thread::Builder::new().name("fulmar-dial".to_owned()).spawn(dial).map(drop)
    }
}
