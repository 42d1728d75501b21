use std::sync::Arc;

use rustls::Error;
use rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as chosen;
#[cfg(not(feature = "aws-lc-rs"))]
use rustls::crypto::ring as chosen;
use rustls::server::ProducesTickets;

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("TLS needs cryptography: enable the feature `ring`, or `aws-lc-rs`");

/// Where the cryptography comes from. Named, so that two providers in one program do not make a default ambiguous.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(chosen::default_provider())
}

/// Seals what a server must know to resume a session into the ticket that the client keeps: the server keeps nothing.
pub(crate) fn ticketer() -> Result<Arc<dyn ProducesTickets>, Error> {
    chosen::Ticketer::new()
}
