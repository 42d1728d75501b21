//! The eight negative HTTP/2 cases: a server that does to a connection what no server should, or may and rarely does, and what a
//! client must make of it.
//!
//! | case | the server | the client |
//! |---|---|---|
//! | `goaway` | answers, then sends GOAWAY | makes its next call on a new connection |
//! | `rst_after_header` | sends headers, then RST_STREAM(NO_ERROR) | fails the call |
//! | `rst_during_data` | sends half of the reply, then RST_STREAM(NO_ERROR) | fails the call |
//! | `rst_after_data` | sends the whole reply and no trailers, then RST_STREAM(NO_ERROR) | fails the call |
//! | `ping` | sends PINGs before and after headers and data | acknowledges each |
//! | `max_streams` | allows one stream at a time, after the first SETTINGS | lets its calls wait for each other |
//! | `data_frame_padding` | replies in frames of 5 bytes and 255 of padding | gets the whole reply, and credits the padding |
//! | `no_df_padding_sanity_test` | replies in the same frames without padding | gets the whole reply |
//!
//! In each case the call is the one of `large_unary`.

mod case;
mod client;
mod connection;
mod frame;
mod options;
mod server;

pub use case::Case;
pub use client::run;
pub use options::Options;
pub use server::Http2Server;
