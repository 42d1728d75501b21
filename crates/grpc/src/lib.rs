//! gRPC calls over HTTP/2 as a state machine without I/O: framing, metadata, status, deadlines, routes.
//!
//! [`Client`] and [`Server`] are the two ends of a connection. They are given bytes, the time and a place to write
//! ([`Env`](fulmar_base::Env)), and turn them into [`Event`]s; a world around them moves the bytes. Messages are byte
//! strings here: what is in them is the business of the layer above.
//!
//! The loop contract is printed on [`Server`]. In short: poke, drain `next_event`, `transmit`, drain, write.
//!
//! ```
//! use std::sync::Arc;
//! use fulmar_base::{Env, Input, Instant, Output, Pool};
//! use fulmar_grpc::{Client, ClientIdentity, Config, Event, MetadataMap, Routes, Server, Start};
//!
//! let mut routes = Routes::new();
//! routes.add("/echo.Echo/Call")?;
//! let mut server = Server::new(Config::default(), Arc::new(routes));
//! let identity = ClientIdentity { scheme: "http".into(), authority: "localhost".into() };
//! let mut client = Client::new(Config::default(), identity);
//!
//! let (mut pool, mut to_server, mut to_client) = (Pool::new(), Output::new(), Output::new());
//! let mut env = Env::new(Instant::ZERO, &mut pool, &mut to_server);
//! let start = Start { path: "/echo.Echo/Call", metadata: MetadataMap::EMPTY, timeout: None, deadline: None, compression: &fulmar_grpc::Compression::Default };
//! let call = client.start(&mut env, start, Some(b"hello"), true)?;
//! client.transmit(&mut env);
//!
//! // The world carries the bytes over.
//! let mut bytes = Vec::new();
//! to_server.move_to(&mut bytes);
//! let mut env = Env::new(Instant::ZERO, &mut pool, &mut to_client);
//! let input = Input::new(&bytes);
//! while let Some(event) = server.next_event(&mut env, &input)? {
//!     if let Event::Message { call, body } = event {
//!         server.release(&mut env, call, body.len());
//!         let echo = |buffer: &mut Vec<u8>| buffer.extend_from_slice(body.as_slice());
//!         server.reply(&mut env, call, MetadataMap::EMPTY, body.len(), echo, MetadataMap::EMPTY)?;
//!     }
//! }
//! server.transmit(&mut env);
//!
//! let mut bytes = Vec::new();
//! to_client.move_to(&mut bytes);
//! let mut env = Env::new(Instant::ZERO, &mut pool, &mut to_server);
//! let input = Input::new(&bytes);
//! let (mut answer, mut status) = (Vec::new(), None);
//! while let Some(event) = client.next_event(&mut env, &input)? {
//!     match event {
//!         Event::Message { body, .. } => answer = body.as_slice().to_vec(),
//!         Event::Finished { .. } => status = Some(client.take_status(call, &mut MetadataMap::new())),
//!         _ => {}
//!     }
//! }
//! assert_eq!(answer, b"hello");
//! assert!(status.is_some_and(|status| status.is_ok()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod admission;
pub mod base64;
mod call;
mod client;
mod code;
mod config;
pub mod direct;
pub mod encoding;
mod end;
mod event;
mod framing;
mod headers;
mod held;
mod memory;
mod message_buf;
pub mod metadata;
pub mod percent;
mod readings;
mod resting;
mod routes;
mod server;
mod status;
#[cfg(test)]
mod testing;
pub mod timeout;

pub use admission::{Admission, Admit};
pub use call::{Call, CallKey, Ending};
pub use client::{Client, ClientIdentity, GoingAway, Start, StartError};
pub use code::Code;
pub use config::Config;
pub use encoding::{Compress, Compression, Encodings};
pub use event::{Body, Event, Gone, Part};
pub use memory::Memory;
pub use message_buf::{Arena, MessageBuf};
pub use metadata::{MetadataError, MetadataMap};
pub use resting::{RestingClient, RestingServer};
pub use routes::{MethodId, RouteError, Routes};
pub use server::Server;
pub use status::Status;
