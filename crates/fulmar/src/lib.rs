//! Fulmar: a gRPC transport for services that care about latency.
//!
//! - Servers whose handlers run on the thread that read the request: [`Server`].
//! - Clients that need no runtime: [`blocking`] ones whose calling thread does the I/O, and asynchronous ones, [`Channel`], whose
//!   futures run under any executor.
//! - No allocation per message in steady state, and a limit on everything.
//!
//! Most users let `fulmar-build` generate a client and a server trait from a `.proto` file; what generated code does, everyone can
//! do by hand:
//!
//! ```
//! use std::sync::Arc;
//! use fulmar::{Channel, LocalReactor, Raw, Request, Response, Router, Server, Service, Status};
//!
//! struct Greeter(Arc<()>);
//!
//! impl Service for Greeter {
//!     fn name(&self) -> &'static str {
//!         "demo.Greeter"
//!     }
//!
//!     fn register(&self, router: &mut Router) {
//!         router.unary("/demo.Greeter/Greet", &self.0, |_, request: Request<Raw>| async move {
//!             let name = String::from_utf8_lossy(request.get_ref().as_ref()).into_owned();
//!             Ok(Response::new(Raw::from(format!("hello {name}").into_bytes())))
//!         });
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().add_service(Greeter(Arc::default())).bind("127.0.0.1:0")?;
//! let endpoint = format!("http://{}", server.local_addr()?);
//!
//! // Both ends on this thread. `server.run()` would serve on threads of its own.
//! let mut reactor = LocalReactor::new()?;
//! reactor.serve(server)?;
//! let reply = reactor.block_on(async {
//!     let channel = Channel::connect(endpoint).await?;
//!     let reply: Response<Raw> = channel.unary("/demo.Greeter/Greet", Raw::from(b"world".to_vec())).await?;
//!     Ok::<_, Box<dyn std::error::Error>>(reply)
//! })?;
//! assert_eq!(reply.get_ref().as_ref(), b"hello world");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tls` | yes | `https://` and the module `tls`, with the cryptography of `ring`; needs a C compiler |
//! | `tls-aws-lc-rs` | | the same with `aws-lc-rs`, which is taken where both are on; needs a C compiler |
//! | `tls-native-roots` | | `ClientTls::with_native_roots`: the authorities that the machine trusts |
//! | `gzip`, `deflate`, `zstd` | | the encodings of these names in [`encoding`]; `zstd` needs a C compiler |
//! | `tracing` | | spans and events for the subscribers of that crate |
//! | `tokio` | | `ClientReactor::on_tokio` and `LocalReactor::run_until`; on Unix systems |
//!
//! # Tracing
//!
//! With the feature `tracing`, subscribers of the crate of that name hear of all that happens: a span `call` of the target
//! `fulmar::call` and the level info for each call on each side, with the fields that OpenTelemetry gives calls (`otel.name`,
//! `rpc.service`, `rpc.method`, `network.peer.address`, `rpc.grpc.status_code`, …) and `duration_us`; in it, an event of
//! `fulmar::message` (trace) for each message, with `direction` and `bytes`, and what the handler itself tells; events of
//! `fulmar::connection` (debug; warn, where connections cannot be accepted or a server wants fewer PINGs); and of
//! `fulmar::reactor` (warn), once a second, where a handler's poll took longer than 10 ms and held up what else its reactor has to
//! do. Where nobody listens a call costs a few comparisons more; without the feature, nothing.

#![forbid(unsafe_code)]

pub mod blocking;
mod call;
mod client;
mod context;
mod control_plane;
mod counts;
mod direct;
mod encoded;
mod error;
mod extensions;
mod handling;
mod host;
mod intercept;
mod local;
mod metadata_lease;
mod packing;
mod panics;
mod payload;
mod peer;
mod random;
mod rare;
mod request;
mod response;
mod rest;
pub mod rpc;
mod server;
#[cfg(feature = "_tls")]
pub mod tls;
#[cfg(feature = "tokio")]
mod tokio;
mod trace;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

pub use call::{CallEnd, Cancellation, Duplex, Replies, Requests, Streaming, Upload};
pub use client::{
    Backoff, Channel, ChannelBuilder, ClientReactor, ConnectivityState, ConnectivityWatch, Resolve,
};
pub use counts::{ChannelCounts, Counts};
pub use encoded::Encoded;
pub use error::{ConnectError, ServerError, TransportError};
pub use extensions::Extensions;
pub use fulmar_grpc::encoding;
pub use fulmar_grpc::{Code, Compress, Compression, MetadataError, MetadataMap, Status};
pub use fulmar_http2::{Config as Http2Config, Keepalive, PingPolicy};
pub use fulmar_reactor::{
    Address, ListeningSocket, Socket, SocketKeepalive, SocketOptions, UnixCredentials, UnixName,
};
pub use intercept::{CallCredentials, CallHead, CallInfo, Interceptor, WithCredentials};
pub use local::LocalReactor;
pub use payload::{Payload, Raw};
pub use peer::Peer;
pub use request::{IntoRequest, Request};
pub use response::Response;
pub use server::{
    Admission, Intercepted, Placement, Router, RunningServer, Server, ServerBuilder, ServerHandle, Service,
    ToAddresses,
};
#[cfg(feature = "tokio")]
pub use tokio::TokioDriver;

/// Includes what `fulmar-build` made of the package `$package` of a `.proto` file.
///
/// ```ignore
/// mod helloworld {
///     fulmar::include_proto!("helloworld");
/// }
/// ```
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Calls a waker, which is an executor's code.
///
/// A panic in it ends here, once the panic hook has told of it: the executor is broken, and the other calls of this thread, which
/// may be under other executors, have nothing to do with it. One that polls right away does so on nobody's behalf.
fn wake(waker: Waker) {
    let _nothing = handling::Handling::nothing();
    panics::contained(|| waker.wake());
}

/// Locks, whatever happened to an earlier holder: no user code runs under our locks, so what they guard is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
