//! gRPC's official interoperability tests on Fulmar, and tests of Fulmar against other gRPC implementations.
//!
//! - [`server`]: the test service, as the program `interop_server` runs it.
//! - [`client`]: the test cases, as the program `interop_client` runs them. For users it is also a model of how calls are made: one
//!   file for each group of cases, each case one function.
//! - [`negative`]: servers that break HTTP/2 connections in eight ways (`http2_server`), and what a client must make of it
//!   (`http2_client`).
//!
//! The programs take the flags of their counterparts in grpc-go and grpc-java, so that official scripts can run them.
//! `.ci/interop.sh` runs all three implementations against each other; `docs/interop.md` has its result.

#![forbid(unsafe_code)]

pub mod client;
pub mod flags;
pub mod negative;
pub mod proto;
pub mod server;
