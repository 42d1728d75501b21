//! What the library tells about its calls, messages and connections: spans and events of the crate `tracing`, with the feature of
//! that name. Without it everything here is empty and compiled away.
//!
//! | target | level | what |
//! |---|---|---|
//! | `fulmar::call` | info | a span named `call` for each call of a client and of a server; a server's handler runs inside of it |
//! | `fulmar::message` | trace | an event for each message, with its `direction` and `bytes`, in the span of its call |
//! | `fulmar::connection` | debug | events of connections: accepted, refused, connected, failed to connect, closed |
//! | `fulmar::connection` | warn | connections that cannot be accepted, once a second; a server that wants fewer PINGs |
//! | `fulmar::reactor` | warn | a handler's poll that held a reactor up, once a second |

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;
