//! One constructor for each code.

use std::borrow::Cow;

use super::Status;
use crate::Code;

impl Status {
    /// [`Code::Ok`]: the call succeeded; a message is legal with it, and nobody reads it.
    pub fn ok(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Ok, message)
    }

    /// [`Code::Cancelled`]: the call was cancelled, typically by the caller.
    pub fn cancelled(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Cancelled, message)
    }

    /// [`Code::Unknown`]: an error of which no more is known.
    pub fn unknown(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unknown, message)
    }

    /// [`Code::InvalidArgument`]: the arguments are wrong whatever the state of the system.
    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// [`Code::DeadlineExceeded`]: the deadline passed before the call completed.
    pub fn deadline_exceeded(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::DeadlineExceeded, message)
    }

    /// [`Code::NotFound`]: something that was asked for does not exist.
    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// [`Code::AlreadyExists`]: something that was to be created exists already.
    pub fn already_exists(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::AlreadyExists, message)
    }

    /// [`Code::PermissionDenied`]: the caller is known and may not do this.
    pub fn permission_denied(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// [`Code::ResourceExhausted`]: a quota, a limit or a space is used up.
    pub fn resource_exhausted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    /// [`Code::FailedPrecondition`]: the system is not in the state that the call needs.
    pub fn failed_precondition(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// [`Code::Aborted`]: the call was given up because of a conflict.
    pub fn aborted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Aborted, message)
    }

    /// [`Code::OutOfRange`]: the call went past the end of what there is.
    pub fn out_of_range(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    /// [`Code::Unimplemented`]: the method does not exist here, or is not supported.
    pub fn unimplemented(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// [`Code::Internal`]: something that must always hold is broken.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// [`Code::Unavailable`]: the service cannot be reached for the moment.
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// [`Code::DataLoss`]: data is lost or corrupt for good.
    pub fn data_loss(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::DataLoss, message)
    }

    /// [`Code::Unauthenticated`]: the caller is not known: valid credentials are missing.
    pub fn unauthenticated(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unauthenticated, message)
    }
}
