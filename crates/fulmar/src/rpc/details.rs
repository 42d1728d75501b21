//! The details of an error, taken apart.

use std::time::Duration;

use prost::{DecodeError, Message, Name};

use super::bad_request::FieldViolation;
use super::help::Link;
use super::{
    Any, BadRequest, DebugInfo, ErrorInfo, Help, LocalizedMessage, PreconditionFailure, QuotaFailure,
    RequestInfo, ResourceInfo, RetryInfo, precondition_failure, quota_failure,
};

/// The details of an error, in order: what a server tells about it besides a code and a text.
///
/// There may be several of one type, and of types that are not known here; they are all kept.
///
/// ```
/// use std::time::Duration;
/// use fulmar::rpc::{ErrorDetails, ErrorInfo};
///
/// let details = ErrorDetails::new()
///     .with(ErrorInfo::new("STOCKOUT", "shop.example.com").with_metadata("article", "17"))
///     .with_retry_info(Duration::from_secs(60));
/// assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some("STOCKOUT"));
/// assert_eq!(details.retry_info().and_then(|info| info.delay()), Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ErrorDetails {
    details: Vec<ErrorDetail>,
}

/// Making them.
impl ErrorDetails {
    /// None yet.
    pub const fn new() -> Self {
        Self { details: Vec::new() }
    }

    /// The same with one more: any of the ten, or an [`Any`] with a message of another type.
    #[must_use]
    pub fn with(mut self, detail: impl Into<ErrorDetail>) -> Self {
        self.push(detail);
        self
    }

    /// Adds one.
    pub fn push(&mut self, detail: impl Into<ErrorDetail>) {
        self.details.push(detail.into());
    }

    /// Adds why the call failed, for programs: a reason that is unique within a domain. For metadata use
    /// [`with`](Self::with) and [`ErrorInfo::with_metadata`].
    #[must_use]
    pub fn with_error_info(self, reason: impl Into<String>, domain: impl Into<String>) -> Self {
        self.with(ErrorInfo::new(reason, domain))
    }

    /// Adds how long to wait before another try.
    #[must_use]
    pub fn with_retry_info(self, delay: Duration) -> Self {
        self.with(RetryInfo::new(delay))
    }

    /// Adds what helps a developer of the server: where the error came from, innermost first, and what else there is to say.
    #[must_use]
    pub fn with_debug_info<S: Into<String>>(
        self,
        stack_entries: impl IntoIterator<Item = S>,
        detail: impl Into<String>,
    ) -> Self {
        self.with(DebugInfo::new(stack_entries, detail))
    }

    /// Adds a quota that was exceeded: whose (`project:123`), and how. Several become one [`QuotaFailure`].
    #[must_use]
    pub fn with_quota_violation(
        mut self,
        subject: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        let failure = self.only::<QuotaFailure>();
        failure.violations.push(quota_failure::Violation::new(subject, description));
        self
    }

    /// Adds a precondition that does not hold: its kind (`TOS`), what it is about, and how to mend it. Several become one
    /// [`PreconditionFailure`].
    #[must_use]
    pub fn with_precondition_violation(
        mut self,
        kind: impl Into<String>,
        subject: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        let failure = self.only::<PreconditionFailure>();
        failure.violations.push(precondition_failure::Violation::new(kind, subject, description));
        self
    }

    /// Adds a field that is wrong, and why. Several become one [`BadRequest`].
    #[must_use]
    pub fn with_field_violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        self.only::<BadRequest>().field_violations.push(FieldViolation::new(field, description));
        self
    }

    /// Adds what the server calls the request, and what only its operators can read.
    #[must_use]
    pub fn with_request_info(self, request_id: impl Into<String>, serving_data: impl Into<String>) -> Self {
        self.with(RequestInfo::new(request_id, serving_data))
    }

    /// Adds what the call wanted to use: type, name, and what went wrong with it. For the owner use [`with`](Self::with) and
    /// [`ResourceInfo::with_owner`].
    #[must_use]
    pub fn with_resource_info(
        self,
        resource_type: impl Into<String>,
        resource_name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        self.with(ResourceInfo::new(resource_type, resource_name, description))
    }

    /// Adds a place to read on. Several become one [`Help`].
    #[must_use]
    pub fn with_help_link(mut self, description: impl Into<String>, url: impl Into<String>) -> Self {
        self.only::<Help>().links.push(Link::new(description, url));
        self
    }

    /// Adds a text for the people who use the program, in a language (BCP 47: `fr-CH`).
    #[must_use]
    pub fn with_localized_message(self, locale: impl Into<String>, message: impl Into<String>) -> Self {
        self.with(LocalizedMessage::new(locale, message))
    }

    /// The first of type `M`, which is added if there is none.
    fn only<M: Known>(&mut self) -> &mut M {
        let index = self.details.iter().position(|detail| M::of(detail).is_some()).unwrap_or_else(|| {
            self.push(M::default());
            self.details.len() - 1
        });
        M::of_mut(&mut self.details[index]).expect("one of this type was found or pushed there")
    }
}

/// Reading them.
impl ErrorDetails {
    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, ErrorDetail> {
        self.details.iter()
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.details.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.details.is_empty()
    }

    /// Why the call failed, for programs.
    pub fn error_info(&self) -> Option<&ErrorInfo> {
        self.first()
    }

    /// When the call may be tried again.
    pub fn retry_info(&self) -> Option<&RetryInfo> {
        self.first()
    }

    /// What helps a developer of the server.
    pub fn debug_info(&self) -> Option<&DebugInfo> {
        self.first()
    }

    /// Which quotas the call has exceeded.
    pub fn quota_failure(&self) -> Option<&QuotaFailure> {
        self.first()
    }

    /// What must come true before the call can succeed.
    pub fn precondition_failure(&self) -> Option<&PreconditionFailure> {
        self.first()
    }

    /// What is wrong with the request.
    pub fn bad_request(&self) -> Option<&BadRequest> {
        self.first()
    }

    /// What names the request.
    pub fn request_info(&self) -> Option<&RequestInfo> {
        self.first()
    }

    /// What the call wanted to use.
    pub fn resource_info(&self) -> Option<&ResourceInfo> {
        self.first()
    }

    /// Where to read on.
    pub fn help(&self) -> Option<&Help> {
        self.first()
    }

    /// A text for the people who use the program.
    pub fn localized_message(&self) -> Option<&LocalizedMessage> {
        self.first()
    }

    /// Those of other types, as they came.
    pub fn others(&self) -> impl Iterator<Item = &Any> {
        self.details.iter().filter_map(|detail| match detail {
            ErrorDetail::Other(any) => Some(any),
            _ => None,
        })
    }

    fn first<M: Known>(&self) -> Option<&M> {
        self.details.iter().find_map(M::of)
    }
}

impl<D: Into<ErrorDetail>> FromIterator<D> for ErrorDetails {
    fn from_iter<I: IntoIterator<Item = D>>(details: I) -> Self {
        Self { details: details.into_iter().map(Into::into).collect() }
    }
}

impl IntoIterator for ErrorDetails {
    type Item = ErrorDetail;
    type IntoIter = std::vec::IntoIter<ErrorDetail>;

    fn into_iter(self) -> Self::IntoIter {
        self.details.into_iter()
    }
}

impl<'d> IntoIterator for &'d ErrorDetails {
    type Item = &'d ErrorDetail;
    type IntoIter = std::slice::Iter<'d, ErrorDetail>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A message that has a variant of its own.
trait Known: Message + Default + Into<ErrorDetail> {
    fn of(detail: &ErrorDetail) -> Option<&Self>;

    fn of_mut(detail: &mut ErrorDetail) -> Option<&mut Self>;
}

macro_rules! error_detail {
    ($($(#[$doc:meta])* $message:ident,)*) => {
        /// One detail of an error.
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub enum ErrorDetail {
            $($(#[$doc])* $message($message),)*
            /// A message of another type.
            Other(Any),
        }

        impl ErrorDetail {
            /// Takes a message out of its `Any`.
            ///
            /// # Errors
            /// The type is one of the ten, and the bytes are none of it.
            pub fn unpack(any: Any) -> Result<Self, DecodeError> {
                let Some(name) = any.type_name().strip_prefix("google.rpc.") else {
                    return Ok(Self::Other(any));
                };
                match name {
                    $($message::NAME => $message::decode(any.value.as_slice()).map(Self::$message),)*
                    _ => Ok(Self::Other(any)),
                }
            }

            /// Puts the message into an `Any`.
            pub fn pack(&self) -> Any {
                match self {
                    $(Self::$message(message) => Any::pack(message),)*
                    Self::Other(any) => any.clone(),
                }
            }
        }

        $(
            impl From<$message> for ErrorDetail {
                fn from(message: $message) -> Self {
                    Self::$message(message)
                }
            }

            impl Known for $message {
                fn of(detail: &ErrorDetail) -> Option<&Self> {
                    if let ErrorDetail::$message(message) = detail { Some(message) } else { None }
                }

                fn of_mut(detail: &mut ErrorDetail) -> Option<&mut Self> {
                    if let ErrorDetail::$message(message) = detail { Some(message) } else { None }
                }
            }
        )*
    };
}

error_detail! {
    /// Why the call failed, for programs.
    ErrorInfo,
    /// When the call may be tried again.
    RetryInfo,
    /// What helps a developer of the server.
    DebugInfo,
    /// Which quotas the call has exceeded.
    QuotaFailure,
    /// What must come true before the call can succeed.
    PreconditionFailure,
    /// What is wrong with the request.
    BadRequest,
    /// What names the request.
    RequestInfo,
    /// What the call wanted to use.
    ResourceInfo,
    /// Where to read on.
    Help,
    /// A text for the people who use the program.
    LocalizedMessage,
}

impl From<Any> for ErrorDetail {
    /// As it is: a message of a type that has a variant of its own is not taken out.
    fn from(any: Any) -> Self {
        Self::Other(any)
    }
}
