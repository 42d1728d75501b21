//! Field cases: what users of gRPC and HTTP/2 libraries report as broken, played against the real server and the real channels
//! over loopback sockets. The other side is a peer that writes its frames by hand. Tests are named after their case.

mod abuse;
mod answers;
mod bulk;
mod cancellation;
#[path = "../common/mod.rs"]
mod common;
mod compression;
mod drops;
mod flow_control;
mod held;
mod hpack;
mod lifecycle;
mod limits;
mod lives;
mod metadata;
mod peer;
mod requests;
mod runtimes;
mod service;
mod shutdown;
mod streams;
mod times;
mod unix;

use common::raw::wire;
