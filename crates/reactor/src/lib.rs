//! One thread's event loop: sockets on mio, timers, local tasks, a mailbox, in-process pipes.
//!
//! This crate turns an operating system into bytes, and knows nothing of what they mean. A [`Reactor`] drives
//! [`Transport`](fulmar_base::Transport)s, each over a TCP connection, a Unix domain socket or one end of an in-memory pipe, after the
//! loop contract of [`Endpoint`](fulmar_base::Endpoint):
//!
//! ```text
//!        other threads ── Mailbox ──► letters, wake-ups ─┐
//!                                                        ▼
//!   socket ──► scratch ──► Transport::receive       on_command, on_wake       timers ──► on_deadline
//!                                  └───────────────────┬─┴───────────────────────────────┘
//!                                                      ▼
//!   socket ◄── one vectored write ◄── Output ◄── Transport::transmit
//! ```
//!
//! - A [`Host`] says what happens around connections: what to do with a new one, with a letter, with one that has ended.
//! - [`Core`] is what a host is lent to act: listen, dial, join a pipe, command, close, spawn.
//! - [`Mailbox`] is the only door between threads.
//! - [`Lone`] is one connection without a reactor, driven by the thread that calls.
//! - `Driver` (feature `tokio`) makes a reactor a part of a tokio runtime.
//! - [`Resolver`] looks names up on a thread of its own.
//!
//! One thread owns its connections, its pool and its scratch buffer: there is no lock but the mailbox. A panic of a host, transport
//! or task is not caught here: it ends the reactor, which closes its connections on the way out.
#![forbid(unsafe_code)]

mod address;
mod again;
mod bench;
mod blocking;
mod clock;
mod config;
mod connection;
mod core;
mod current;
#[cfg(feature = "tokio")]
mod driven;
mod keys;
mod listener;
mod lone;
mod mailbox;
mod options;
#[cfg(feature = "tokio")]
mod outside;
mod pace;
mod pipe;
mod reactor;
mod resolver;
mod socket;
mod tasks;
mod timers;

pub use address::{Address, UnixName};
pub use clock::clock;
pub use config::ReactorConfig;
pub use core::Core;
pub use current::{ReactorId, current_reactor, on_reactor_thread};
#[cfg(feature = "tokio")]
pub use driven::Driver;
pub use keys::{ConnectionHandle, ConnectionKey, ListenerKey, TimerKey};
pub use listener::ListeningSocket;
pub use lone::Lone;
pub use mailbox::Mailbox;
pub use options::{Dial, SocketKeepalive, SocketOptions};
pub use reactor::{Host, Reactor};
pub use resolver::{OnResolved, Resolve, Resolver, SystemResolve};
pub use socket::{Socket, UnixCredentials};
