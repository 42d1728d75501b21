//! A status and its details.

use std::borrow::Cow;
use std::fmt;

use fulmar_grpc::{Code, Status};
use prost::{DecodeError, Message, Name};

use super::{ErrorDetail, ErrorDetails};

/// What a [`Status`] can do with the messages of `google.rpc`. In scope with `use fulmar::rpc::StatusExt`.
pub trait StatusExt: sealed::Sealed + Sized {
    /// A status with this code and message, and with details: a `google.rpc.Status` that says the same goes over the wire in
    /// `grpc-status-details-bin`. Details that a client would not take, because its limit on header lists is too low, are left
    /// out.
    fn with_error_details(code: Code, message: impl Into<Cow<'static, str>>, details: ErrorDetails) -> Self;

    /// The details, all of them; none for a status without.
    ///
    /// # Errors
    /// The bytes of the details are no `google.rpc.Status`, or one detail is not what it says it is. The status itself counts all
    /// the same, and [`detail`](Self::detail) finds what can be read.
    fn error_details(&self) -> Result<ErrorDetails, ErrorDetailsError>;

    /// The first detail of type `M` that can be read; one of the ten, or any other.
    fn detail<M: Message + Name + Default>(&self) -> Option<M>;

    /// The status as a message, for protocols that carry one. Code and message are those of the status: what its details say of
    /// these does not count.
    fn to_rpc_status(&self) -> super::Status;

    /// The status that a message stands for; its details are kept. A number that no code has is [`Code::Unknown`].
    fn from_rpc_status(status: super::Status) -> Self;
}

impl StatusExt for Status {
    fn with_error_details(code: Code, message: impl Into<Cow<'static, str>>, details: ErrorDetails) -> Self {
        let message = message.into();
        let details = details.iter().map(ErrorDetail::pack).collect();
        let encoded = super::Status { code: code.as_i32(), message: message.clone().into_owned(), details };
        Self::with_code_and_details(code, message, encoded.encode_to_vec())
    }

    fn error_details(&self) -> Result<ErrorDetails, ErrorDetailsError> {
        let decoded = super::Status::decode(self.details()).map_err(|source| ErrorDetailsError {
            what: "the details are no google.rpc.Status".to_owned(),
            source,
        })?;
        let unpack = |(index, any): (usize, super::Any)| {
            let what = || format!("detail {index} is no {}", any.type_name());
            ErrorDetail::unpack(any.clone()).map_err(|source| ErrorDetailsError { what: what(), source })
        };
        decoded.details.into_iter().enumerate().map(unpack).collect()
    }

    fn detail<M: Message + Name + Default>(&self) -> Option<M> {
        let decoded = super::Status::decode(self.details()).ok()?;
        decoded.details.iter().find_map(|any| any.unpack().ok().flatten())
    }

    fn to_rpc_status(&self) -> super::Status {
        let decoded = super::Status::decode(self.details()).unwrap_or_default();
        super::Status {
            code: self.code().as_i32(),
            message: self.message().to_owned(),
            details: decoded.details,
        }
    }

    fn from_rpc_status(status: super::Status) -> Self {
        let code = Code::from_i32(status.code);
        if status.details.is_empty() {
            return Self::new(code, status.message);
        }
        let details = super::Status { code: code.as_i32(), ..status.clone() }.encode_to_vec();
        Self::with_code_and_details(code, status.message, details)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for fulmar_grpc::Status {}
}

/// The details of a status cannot be read. What the status itself says is not touched by that.
#[derive(Clone, Debug)]
pub struct ErrorDetailsError {
    what: String,
    source: DecodeError,
}

impl fmt::Display for ErrorDetailsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for ErrorDetailsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
