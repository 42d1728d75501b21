//! Compiles `.proto` files to Rust: messages by [`prost`], services as Fulmar clients and servers.
//!
//! Nothing has to be installed: the `.proto` files are read by `protox`, not by `protoc`, and nothing calls `rustfmt`.
//! Only the output folder is written to.
//!
//! # In three steps
//!
//! ```toml
//! [dependencies]
//! fulmar = "0.1"
//! prost = "0.14"
//! prost-types = "0.14" # only when a .proto uses Timestamp, Any and the like
//!
//! [build-dependencies]
//! fulmar-build = "0.1"
//! ```
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), fulmar_build::Error> {
//!     fulmar_build::compile_protos(&["proto/helloworld.proto"], &["proto"])
//! }
//! ```
//!
//! ```ignore
//! // src/lib.rs: one file for each package
//! pub mod helloworld {
//!     fulmar::include_proto!("helloworld");
//! }
//! ```
//!
//! Options are set on a [`Builder`], which [`configure`] makes.
//!
//! # What is generated
//!
//! For `service Greeter { rpc SayHello(HelloRequest) returns (HelloReply); }` of package `helloworld`, beside the messages:
//!
//! | item | what it is |
//! |---|---|
//! | `greeter_server::Greeter` | the trait to implement, one `async fn` for each rpc; its futures need not be `Send` |
//! | `greeter_server::GreeterServer` | hands an implementation to a `fulmar::Server` |
//! | `greeter_client::GreeterClient` | the async client, for any executor |
//! | `greeter_client::blocking::GreeterClient` | the blocking client |
//!
//! The comments of the `.proto` become the documentation of what is made from them. They are plain text to rustdoc: code in
//! them is never run as a test, and brackets and angle brackets are neither links nor HTML.
//!
//! # Names
//!
//! Messages, fields and modules are named as prost names them: `lower_snake` and `UpperCamel`, keywords as raw identifiers
//! (`r#type`), and those that cannot be raw with an underscore (`self_`). On top of that:
//!
//! - A client method that would hide a function which every client has (`new`, `connect`, `clone`) gets the prefix
//!   `call_`: `rpc New` is called by `client.call_new(…)`. The server's trait keeps `new`.
//! - Of two rpcs of a service that end in the same Rust name (`GetFeature`, `get_feature`), the later gets an underscore at
//!   its end: `get_feature_`. So does a service's module whose name the package already uses.
//!
//! The wire always carries the names of the `.proto`.
//!
//! [`prost`]: https://docs.rs/prost

#![forbid(unsafe_code)]

mod builder;
mod client;
mod comments;
mod error;
mod names;
mod output;
mod schema;
mod server;
mod service;
mod source;

use std::path::Path;

pub use builder::{Builder, configure};
pub use error::Error;

/// Compiles `protos`, and what they import, into cargo's `OUT_DIR`: one file for each package, named after it
/// (`helloworld.rs`; `_.rs` for files without a package).
///
/// `includes` are the folders that imports are looked up in; each file of `protos` must lie in one of them. The files of
/// `google/protobuf/` are always there. This is [`configure`]`().`[`compile`](Builder::compile)`(…)`.
///
/// # Errors
///
/// Names the file, line, column and reason where a `.proto` is wrong; see [`Error`].
pub fn compile_protos(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
    configure().compile(protos, includes)
}
