//! A resolver of the user's.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use fulmar_grpc::{Code, Status};
use fulmar_reactor::Resolver;

use crate::control_plane::control_plane;
use crate::panics::caught;

/// Turns the name of an endpoint into addresses, where the operating system does not know or should not be asked:
/// [`ChannelBuilder::resolver`](crate::ChannelBuilder::resolver).
///
/// A closure is one:
///
/// ```
/// use std::net::SocketAddr;
/// use fulmar::{Channel, Status};
///
/// let resolver = |host: &str, port: u16| match host {
///     "greeter" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
///     _ => Err(Status::unavailable(format!("nobody has heard of {host}"))),
/// };
/// let channel = Channel::builder("http://greeter:50051").resolver(resolver).build()?;
/// # Ok::<(), fulmar::ConnectError>(())
/// ```
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, each with `port` or another one, best first. May block: it is called on a thread that does nothing
    /// else, one name after the other, each time that the channel connects. The connect timeout goes on meanwhile.
    ///
    /// # Errors
    /// Calls that wait for the connection fail with this status. A code that says something of the request or of the server's data,
    /// which no resolver can know (`OK`, `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION`, `ABORTED`,
    /// `OUT_OF_RANGE`, `DATA_LOSS`), becomes `INTERNAL` with the original in the text (gRFC A54). No address at all, and a name that
    /// cannot be looked up for the moment, is best told as `UNAVAILABLE`.
    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Status>;
}

impl<F> Resolve for F
where
    F: Fn(&str, u16) -> Result<Vec<SocketAddr>, Status> + Send + Sync + 'static,
{
    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Status> {
        self(host, port)
    }
}

/// Asks the user's resolver, on a thread of its own.
pub(super) fn resolver_of(resolve: impl Resolve) -> Resolver {
    Resolver::new(Asks(resolve))
}

struct Asks<R>(R);

impl<R: Resolve> fulmar_reactor::Resolve for Asks<R> {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let resolved = caught("the resolver", || self.0.resolve(host, port)).flatten();
        resolved.map_err(|status| io::Error::other(control_plane(status, "the resolver")))
    }
}

/// The status of a call whose server's name has no addresses: with the code that a resolver of the user's gave, if it was one.
pub(crate) fn unresolved(error: &io::Error) -> Status {
    let status = error.source().and_then(|source| source.downcast_ref::<Status>());
    let code = status.map_or(Code::Unavailable, Status::code);
    Status::new(code, format!("the name cannot be resolved: {error}"))
}
