use std::borrow::Cow;
use std::fmt;

/// A TLS configuration that cannot be: the text says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    text: Cow<'static, str>,
}

impl TlsError {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS configuration: {}", self.text)
    }
}

impl std::error::Error for TlsError {}
