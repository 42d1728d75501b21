//! The flags of `http2_server` and `http2_client`.

use std::ffi::OsString;

use super::Case;
use crate::flags;

/// What the flags say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// `--server_host`: where the client connects to, and where the server listens. `127.0.0.1` by default.
    pub host: String,
    /// `--server_port` of the client, `--port` of the server. 8080 by default; a server picks one for 0.
    pub port: u16,
    /// `--test_case`. `goaway` by default.
    pub case: Case,
}

impl Default for Options {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: 8080, case: Case::GoAway }
    }
}

impl Options {
    /// Reads the flags of a command line.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self::default();
        flags::parse(given, |name, flag| {
            match name {
                "server_host" | "host" => options.host = flag.text()?,
                "server_port" | "port" => options.port = flag.number()?,
                "test_case" => options.case = flag.number()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_official_flags_are_understood() {
        let parsed = |line: &str| Options::parse(line.split_whitespace().map(OsString::from));
        let expected = Options { host: "localhost".into(), port: 7, case: Case::RstDuringData };
        let line = "--server_host=localhost --server_port=7 --test_case=rst_during_data";
        assert_eq!(parsed(line), Ok(expected));
        assert_eq!(
            parsed("--port=0 --test_case=ping").map(|options| (options.port, options.case)),
            Ok((0, Case::Ping))
        );
        assert!(parsed("--test_case=pong").unwrap_err().contains("there is no case pong"));
    }
}
