//! How a call ended: a code, a message for people, and what may come with them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use fulmar_base::Closed;

use crate::{Code, MetadataMap};

mod constructors;

/// How a call ended.
///
/// A code and a message cross the wire (`grpc-status`, `grpc-message`), and so do metadata (the trailers of the call)
/// and details (a serialized `google.rpc.Status`, `grpc-status-details-bin`). The source stays on this side: it is the
/// error that led here, for logs and for `downcast_ref`.
///
/// A status is 40 bytes; one with neither metadata, details nor source and with a literal message needs no memory
/// besides.
///
/// ```
/// use fulmar_grpc::{Code, Status};
/// let status = Status::not_found("no such feature");
/// assert_eq!(status.code(), Code::NotFound);
/// assert_eq!(status.to_string(), "status NOT_FOUND: no such feature");
/// ```
#[derive(Clone)]
pub struct Status {
    code: Code,
    message: Cow<'static, str>,
    rest: Option<Box<Rest>>,
}

/// What most statuses do not have.
#[derive(Clone, Default)]
struct Rest {
    metadata: MetadataMap,
    details: Bytes,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Status {
    /// A status with this code and message.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), rest: None }
    }

    /// A status with this code and message and a serialized `google.rpc.Status`.
    pub fn with_code_and_details(
        code: Code,
        message: impl Into<Cow<'static, str>>,
        details: impl Into<Bytes>,
    ) -> Self {
        Self::new(code, message).with_details(details)
    }

    /// The status that `error` stands for: the first `Status` among it and its sources, or else
    /// [`Code::Unknown`] with the error's text. The error becomes the [source](Error::source).
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = error.into();
        let error = match error.downcast::<Self>() {
            Ok(status) => return *status,
            Err(error) => error,
        };
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(status) = inner.downcast_ref::<Self>() {
                return status.clone().with_source(error);
            }
            cause = inner.source();
        }
        Self::new(Code::Unknown, error.to_string()).with_source(error)
    }

    /// The status of a call whose connection is over: [`Code::Unavailable`] with what happened, which is the
    /// [source](Error::source) too.
    pub fn unavailable_from(closed: &Closed) -> Self {
        Self::unavailable(closed.to_string()).with_source(closed.clone())
    }

    /// The code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The message for people; may be empty.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the code is [`Code::Ok`].
    pub const fn is_ok(&self) -> bool {
        matches!(self.code, Code::Ok)
    }

    /// The status that the other end gets to see: without its source, and without its metadata, which are trailers.
    pub(crate) fn without_what_stays_here(&self) -> Self {
        let shown = Self::new(self.code, self.message.clone());
        match &self.rest {
            None => shown,
            Some(rest) => shown.with_details(rest.details.clone()),
        }
    }

    /// Whether there is nothing besides the code.
    pub(crate) fn is_plain(&self) -> bool {
        self.message.is_empty() && self.rest.is_none()
    }

    /// The metadata that came or goes with the status as trailers.
    pub fn metadata(&self) -> &MetadataMap {
        self.rest.as_ref().map_or(MetadataMap::EMPTY, |rest| &rest.metadata)
    }

    /// The metadata, to add to it.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.rest_mut().metadata
    }

    /// The same status with this metadata instead of its own.
    #[must_use]
    pub fn with_metadata(mut self, metadata: MetadataMap) -> Self {
        if !metadata.is_empty() || self.rest.is_some() {
            self.rest_mut().metadata = metadata;
        }
        self
    }

    /// The details: a serialized `google.rpc.Status`, or nothing.
    ///
    /// They are handed over as they came. Where the code in them differs from [`Status::code`], the latter counts.
    pub fn details(&self) -> &[u8] {
        self.rest.as_ref().map_or(&[], |rest| &rest.details)
    }

    /// The same status with these details instead of its own.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        let details = details.into();
        if !details.is_empty() || self.rest.is_some() {
            self.rest_mut().details = details;
        }
        self
    }

    /// The same status with the error that led to it. It does not cross the wire.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.rest_mut().source = Some(Arc::from(source.into()));
        self
    }

    fn rest_mut(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }
}

impl Default for Status {
    /// [`Code::Ok`] with an empty message.
    fn default() -> Self {
        Self::new(Code::Ok, "")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.code)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut status = f.debug_struct("Status");
        status.field("code", &self.code).field("message", &self.message);
        if let Some(rest) = &self.rest {
            if !rest.metadata.is_empty() {
                status.field("metadata", &rest.metadata);
            }
            if !rest.details.is_empty() {
                status.field("details", &rest.details);
            }
            if let Some(source) = &rest.source {
                status.field("source", source);
            }
        }
        status.finish()
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.rest.as_ref()?.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests;
