//! TLS between our own ends, over real sockets: async, blocking and on one reactor.
#![allow(dead_code, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod errors;
mod handshakes;
mod pki;
mod proxies;
