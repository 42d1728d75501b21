//! Why a case failed.

use std::fmt::{self, Debug, Display};

use fulmar::{Code, ConnectError, MetadataError, Status};

/// What was not as a case expects.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
}

/// How a case ended.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with a text for the user.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Like [`Display`]: what `main` prints of an error.
impl Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::new(format!("a call failed: {status}"))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<MetadataError> for Failure {
    fn from(error: MetadataError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self { what }
    }
}

/// Compares what came with what must come.
///
/// # Errors
/// Both, when they differ.
pub(crate) fn expect_equal<T: PartialEq + Debug>(what: &str, came: T, expected: T) -> Outcome {
    if came == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{what}: {} was expected, {} came", shortened(&expected), shortened(&came))))
}

/// The status of a call that must fail with this code.
///
/// # Errors
/// The call succeeded, or failed otherwise.
pub(crate) fn expect_code<T: Debug>(
    what: &str,
    result: Result<T, Status>,
    code: Code,
) -> Result<Status, Failure> {
    match result {
        Err(status) if status.code() == code => Ok(status),
        Err(status) => Err(Failure::new(format!("{what}: {} was expected, {status} came", code.name()))),
        Ok(value) => {
            let value = shortened(&value);
            Err(Failure::new(format!("{what}: {} was expected, the call gave {value}", code.name())))
        }
    }
}

/// A value as text for people, who do not read payloads.
fn shortened(value: &impl Debug) -> String {
    const CHARACTERS_MAX: usize = 200;
    let text = format!("{value:?}");
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
