//! TLS for Fulmar: an endpoint wrapped in rustls is a transport.
//!
//! [`Tls`] stands where [`Plain`](fulmar_base::Plain) stands: whoever drives connections does not see the difference. TLS 1.3 and 1.2,
//! with the `ring` provider, or `aws-lc-rs` by the feature of that name; HTTP/2 must be agreed by ALPN (RFC 9113 §3.2).
//!
//! [`ServerTls`] and [`ClientTls`] are made once and shared by all connections, each of which begins with a [`TlsSession`] of them.
#![forbid(unsafe_code)]

mod client;
mod common;
mod error;
mod explain;
mod identity;
mod provider;
mod records;
mod server;
mod session;
mod transport;

pub use client::{ClientTls, TlsName};
pub use error::TlsError;
pub use identity::{Certificate, PeerCertificates};
/// The library that does it, for configurations of one's own.
pub use rustls;
pub use server::ServerTls;
pub use session::TlsSession;
pub use transport::Tls;
