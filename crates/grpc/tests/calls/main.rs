//! Calls from one end of a connection to the other, over memory and in virtual time.
//!
//! Most tests drive a [`Client`](fulmar_grpc::Client) against a [`Server`](fulmar_grpc::Server). Those in `raw` put a
//! bare HTTP/2 connection in the place of one of them, to say what no well-behaved end would say.

mod admission;
mod calls_at_once;
mod connections;
mod deadlines;
mod early_end;
mod errors;
mod flow;
mod held;
mod kinds;
mod memory;
mod metadata;
mod raw;
mod resting;
mod support;
