use std::fmt;
use std::path::{Path, PathBuf};

/// Why `.proto` files could not be compiled.
///
/// Displays as `proto/greeter.proto:3:5: reason`, with as much of the position as is known. `Debug` prints the same, so that
/// a `build.rs` whose `main` returns this error shows it well.
pub struct Error {
    file: Option<PathBuf>,
    position: Option<Position>,
    reason: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
}

impl Error {
    /// The file that the error is about: its include path joined with its name.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The line in [`file`](Self::file), counted from 1.
    pub fn line(&self) -> Option<usize> {
        self.position.map(|position| position.line)
    }

    /// The column in [`line`](Self::line), counted from 1.
    pub fn column(&self) -> Option<usize> {
        self.position.map(|position| position.column)
    }

    /// What is wrong, without the place.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { file: None, position: None, reason: reason.into(), source: None }
    }

    pub(crate) fn in_file(file: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self { file: Some(file.into()), ..Self::new(reason) }
    }

    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Takes over an error of the compiler, which names files relative to one of `includes`.
    pub(crate) fn from_protox(error: protox::Error, includes: &[PathBuf]) -> Self {
        let name = error.file().map(str::to_owned);
        let file = name.as_deref().map(|name| locate(name, includes));
        let position = position_in_debug(&format!("{error:?}"), name.as_deref(), &error.to_string())
            .or_else(|| file.as_deref().filter(|_| error.is_parse()).and_then(end_of_text));
        let mut reason = error.to_string();
        if let Some(cause) = std::error::Error::source(&error) {
            reason = format!("{reason}: {cause}");
        }
        Self { file, position, reason, source: Some(Box::new(error)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(Position { line, column }) = self.position {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.reason)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// The path of the file called `name` in the first of `includes` that has it, as imports are resolved.
fn locate(name: &str, includes: &[PathBuf]) -> PathBuf {
    includes
        .iter()
        .map(|include| include.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// protox keeps its positions to itself but for its `Debug` form, `name:line:column: reason`.
fn position_in_debug(debug: &str, name: Option<&str>, reason: &str) -> Option<Position> {
    let place = debug.strip_suffix(reason)?.strip_prefix(name?)?;
    let (line, column) = place.trim().trim_matches(':').split_once(':')?;
    Some(Position { line: line.parse().ok()?, column: column.parse().ok()? })
}

/// Where the text of `file` ends, for errors without a place of their own: an unexpected end of the file, or bytes that are
/// not UTF-8.
fn end_of_text(file: &Path) -> Option<Position> {
    let bytes = std::fs::read(file).ok()?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text.trim_end(),
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
    };
    let last_line = text.rsplit('\n').next().unwrap_or_default();
    Some(Position { line: text.matches('\n').count() + 1, column: last_line.chars().count() + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_read_from_what_protox_prints() {
        let at = |debug| position_in_debug(debug, Some("a/b.proto"), "name 'X' is not defined");
        let here = Some(Position { line: 12, column: 5 });
        assert_eq!(at("a/b.proto:12:5: name 'X' is not defined"), here);
        assert_eq!(at("a/b.proto: name 'X' is not defined"), None);
        assert_eq!(at("name 'X' is not defined"), None);
    }

    #[test]
    fn error_shows_as_much_of_the_place_as_is_known() {
        let mut error = Error::in_file("proto/x.proto", "broken");
        assert_eq!(error.to_string(), "proto/x.proto: broken");
        error.position = Some(Position { line: 3, column: 5 });
        assert_eq!(error.to_string(), "proto/x.proto:3:5: broken");
        assert_eq!(format!("{error:?}"), "proto/x.proto:3:5: broken");
        assert_eq!(Error::new("broken").to_string(), "broken");
    }
}
