//! HTTP/2 (RFC 9113): both ends of a connection as one state machine without I/O.
//!
//! A [`Connection`] turns the bytes of a peer into [`Event`]s, and verbs of its user into bytes. It does not know where bytes come
//! from, what time it is, or how to wait: all that is lent to it in a [`fulmar_base::Env`] for the length of one call. It is a
//! client or a server by its [`Role`], not by its type.
//!
//! # The loop contract
//!
//! 1. **Poke one thing**: bytes arrived, a deadline passed, or the user wants something (`open`, `send_…`, `reset`, …).
//! 2. **Drain** [`Connection::next_event`] until it gives `None`; each event may poke further.
//! 3. **Run ready tasks** of the upper layer until none is left; they may poke further.
//! 4. Call [`Connection::transmit`], and go back to 2 while [`Connection::has_events`].
//! 5. **Write** what is in the output, then **re-arm** to [`Connection::next_deadline`].
//!
//! Never wait while a task is ready or output could be written. Unread input (at most the beginning of a frame) is kept by the
//! caller and presented again in front of the next bytes. On an error, flush the output, which ends in GOAWAY, and close.
//!
//! # What is written when
//!
//! Only DATA waits. Control frames and header sections are appended to the output at once; DATA leaves when the windows of its
//! stream and of the connection allow it and the output has room, else it waits on its stream, and trailers wait behind it.
//! Streams with DATA waiting take turns of one frame.
//!
//! # Example
//!
//! A client and a server, and the wire between them two vectors:
//!
//! ```
//! use fulmar_base::{Env, Input, Instant, Output, Pool};
//! use fulmar_http2::{Config, Connection, Event, Field, Role};
//!
//! let mut pool = Pool::new();
//! let (mut to_server, mut to_client) = (Output::new(), Output::new());
//! let mut client = Connection::new(Role::Client, Config::default());
//! let mut server = Connection::new(Role::Server, Config::default());
//!
//! // The client asks.
//! let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut to_server };
//! let request = [
//!     Field::new(b":method", b"GET"),
//!     Field::new(b":scheme", b"http"),
//!     Field::new(b":path", b"/bird"),
//!     Field::new(b":authority", b"sea.example"),
//! ];
//! let asked = client.open(&mut env, request, true)?;
//! client.transmit(&mut env);
//!
//! // The server reads the request, and answers it.
//! let mut wire = Vec::new();
//! to_server.move_to(&mut wire);
//! let input = Input::new(&wire);
//! let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut to_client };
//! while let Some(event) = server.next_event(&mut env, &input)? {
//!     if let Event::Headers { stream, end: true } = event {
//!         assert!(server.fields().any(|field| field.name == b":path" && field.value == b"/bird"));
//!         server.send_headers(&mut env, stream, [Field::new(b":status", b"200")], false)?;
//!         server.send_data(&mut env, stream, b"fulmar", true)?;
//!     }
//! }
//! server.transmit(&mut env);
//! assert!(input.is_empty());
//!
//! // The client reads the answer.
//! let mut wire = Vec::new();
//! to_client.move_to(&mut wire);
//! let input = Input::new(&wire);
//! let mut env = Env { now: Instant::ZERO, pool: &mut pool, out: &mut to_server };
//! let mut body = Vec::new();
//! while let Some(event) = client.next_event(&mut env, &input)? {
//!     if let Event::Data { stream, bytes, .. } = event {
//!         assert_eq!(stream, asked);
//!         body.extend_from_slice(bytes);
//!         client.release(&mut env, stream, bytes.len());
//!     }
//! }
//! assert_eq!(body, b"fulmar");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod backlog;
mod closed_streams;
mod config;
mod connection;
mod error;
mod event;
mod flow;
mod frame;
mod known;
mod limits;
mod memory;
mod pulse;
mod scheduler;
mod section;
mod settings;
mod stream;
mod streams;
mod timers;
mod tuning;
mod validate;
mod waiting;

pub use config::Config;
pub use connection::{Connection, Resting, Role, Sent};
pub use error::{Error, ErrorCode, OpenError, Reach, SendError};
pub use event::Event;
pub use fulmar_hpack::{FIELD_OVERHEAD_BYTES, Field, Fields, Indexing, Template};
pub use known::KnownSection;
pub use memory::{Memory, Sends};
pub use pulse::{Ages, Keepalive, PingPolicy};
pub use section::{Known, Plain, Section};
pub use stream::{Stream, StreamKey};
