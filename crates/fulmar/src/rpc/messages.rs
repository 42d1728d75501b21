//! What the generated messages can do besides: be named, and be made without naming every field.

use std::time;

use prost::Name;

use super::bad_request::FieldViolation;
use super::help::Link;
use super::{
    BadRequest, DebugInfo, ErrorInfo, Help, LocalizedMessage, PreconditionFailure, QuotaFailure, RequestInfo,
    ResourceInfo, RetryInfo, Status, precondition_failure, quota_failure,
};

macro_rules! name {
    ($($message:ident),*) => {
        $(
            impl Name for $message {
                const NAME: &'static str = stringify!($message);
                const PACKAGE: &'static str = "google.rpc";
            }
        )*
    };
}

name!(
    BadRequest,
    DebugInfo,
    ErrorInfo,
    Help,
    LocalizedMessage,
    PreconditionFailure,
    QuotaFailure,
    RequestInfo,
    ResourceInfo,
    RetryInfo,
    Status
);

impl ErrorInfo {
    /// A reason, unique within `domain`, such as `("STOCKOUT", "shop.example.com")`.
    pub fn new(reason: impl Into<String>, domain: impl Into<String>) -> Self {
        Self { reason: reason.into(), domain: domain.into(), metadata: Default::default() }
    }

    /// The same with one more word about this failure.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }
}

impl RetryInfo {
    /// Try again after this time, and not before.
    pub fn new(delay: time::Duration) -> Self {
        Self { retry_delay: Some(delay.into()) }
    }

    /// How long to wait before another try; None if the server does not say.
    pub fn delay(&self) -> Option<time::Duration> {
        self.retry_delay.map(Into::into)
    }
}

impl DebugInfo {
    /// Where the error came from, innermost first, and what else there is to say.
    pub fn new<S: Into<String>>(
        stack_entries: impl IntoIterator<Item = S>,
        detail: impl Into<String>,
    ) -> Self {
        Self { stack_entries: stack_entries.into_iter().map(Into::into).collect(), detail: detail.into() }
    }
}

impl quota_failure::Violation {
    /// Whose quota was exceeded (`project:123`), and how, for people.
    pub fn new(subject: impl Into<String>, description: impl Into<String>) -> Self {
        Self { subject: subject.into(), description: description.into(), ..Self::default() }
    }
}

impl precondition_failure::Violation {
    /// Which kind of precondition does not hold (`TOS`), what it is about, and how to mend it, for people.
    pub fn new(kind: impl Into<String>, subject: impl Into<String>, description: impl Into<String>) -> Self {
        Self { r#type: kind.into(), subject: subject.into(), description: description.into() }
    }
}

impl FieldViolation {
    /// Which field is wrong (`user.email_addresses[1].kind`), and why, for developers.
    pub fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { field: field.into(), description: description.into(), ..Self::default() }
    }
}

impl RequestInfo {
    /// What the server calls the request, and what only its operators can read.
    pub fn new(request_id: impl Into<String>, serving_data: impl Into<String>) -> Self {
        Self { request_id: request_id.into(), serving_data: serving_data.into() }
    }
}

impl ResourceInfo {
    /// The type and name of what the call wanted to use, and what went wrong with it.
    pub fn new(
        resource_type: impl Into<String>,
        resource_name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self {
            resource_type: resource_type.into(),
            resource_name: resource_name.into(),
            owner: String::new(),
            description: description.into(),
        }
    }

    /// The same with whose it is.
    #[must_use]
    pub fn with_owner(self, owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), ..self }
    }
}

impl Link {
    /// What is there, and where that is.
    pub fn new(description: impl Into<String>, url: impl Into<String>) -> Self {
        Self { description: description.into(), url: url.into() }
    }
}

impl LocalizedMessage {
    /// A language (BCP 47: `fr-CH`), and the text in it.
    pub fn new(locale: impl Into<String>, message: impl Into<String>) -> Self {
        Self { locale: locale.into(), message: message.into() }
    }
}
