//! TLS for Fulmar: an endpoint wrapped in rustls is a transport.
//!
//! [`Tls`] stands where [`Plain`](fulmar_base::Plain) stands: whoever drives connections does not see the difference. TLS 1.3 and 1.2,
//! with the `ring` provider; HTTP/2 must be agreed by ALPN (RFC 9113 §3.2).
//!
//! [`TlsServerConfig`] and [`TlsClientConfig`] are made once and shared by all connections: clones are cheap.
#![forbid(unsafe_code)]

mod config;
mod session;
mod transport;

pub use config::{TlsClientConfig, TlsConfigError, TlsServerConfig};
pub use transport::Tls;
