//! TLS for servers and channels, by `rustls`: certificates, whom to trust, and what happens without them.
//!
//! A channel to `https://…` needs nothing of this, where the server's certificate is signed by an authority that Mozilla trusts.
//! Everything else is said by a [`ClientTls`] for [`ChannelBuilder::tls`](crate::ChannelBuilder::tls), and a [`ServerTls`] for
//! [`ServerBuilder::tls`](crate::ServerBuilder::tls). TLS 1.3 and 1.2 are spoken, with HTTP/2 agreed by ALPN.
//!
//! The cryptography is `ring`'s, or that of `aws-lc-rs` with the feature `tls-aws-lc-rs`.

pub use fulmar_tls::{Certificate, ClientTls, ServerTls, TlsError, rustls};
