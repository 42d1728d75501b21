//! Errors that say more than a code and a text: the messages of the package `google.rpc`, as servers of many languages send them
//! and clients read them.
//!
//! A [`Status`](crate::Status) carries a serialized `google.rpc.Status`, which holds any number of messages of any type. Ten types
//! are known to everybody, one for each thing that a caller may want to know; [`ErrorDetails`] holds them, and [`StatusExt`] puts
//! them into a status and takes them out.
//!
//! ```
//! use std::time::Duration;
//! use fulmar::rpc::{BadRequest, ErrorDetails, RetryInfo, StatusExt};
//! use fulmar::{Code, Status};
//!
//! // In a handler:
//! let details = ErrorDetails::new()
//!     .with_field_violation("user.name", "must not be empty")
//!     .with_field_violation("user.age", "must be 0 or more")
//!     .with_help_link("what a user has", "https://docs.example.com/users");
//! let status = Status::with_error_details(Code::InvalidArgument, "2 fields are wrong", details);
//!
//! // In a client: all of them, or one by its type.
//! let details = status.error_details()?;
//! for violation in details.bad_request().into_iter().flat_map(|bad| &bad.field_violations) {
//!     println!("{}: {}", violation.field, violation.description);
//! }
//! assert_eq!(status.detail::<BadRequest>().map(|bad| bad.field_violations.len()), Some(2));
//! assert!(status.detail::<RetryInfo>().is_none());
//! # Ok::<(), fulmar::rpc::ErrorDetailsError>(())
//! ```
//!
//! The structs are what `fulmar-build` makes of `proto/google/rpc/`. Their fields are public, and all have defaults.

mod any;
mod details;
mod messages;
mod status_ext;

/// Made by `fulmar-build`; a test there tells how to renew it.
mod generated {
    include!("google.rpc.rs");
}

pub use any::{Any, Duration};
pub use details::{ErrorDetail, ErrorDetails};
pub use generated::*;
pub use status_ext::{ErrorDetailsError, StatusExt};

#[cfg(test)]
mod tests;
