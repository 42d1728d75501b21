//! The flags of the test server.

use std::ffi::OsString;

use fulmar::tls::ServerTls;

use crate::flags;

/// What `--help` prints.
pub const USAGE: &str = "\
The gRPC interop test server.

  --port=PORT                        port to listen on; 0 picks a free one (10000)
  --host=HOST                        address to listen on (127.0.0.1)
  --use_tls=true|false               serve TLS (false)
  --tls_cert_file=FILE               the server's certificate, PEM
  --tls_key_file=FILE                its key, PEM
  --use_alts=true|false              serve ALTS (false); not supported
  --max_concurrent_streams_limit=N   calls that a client may have open at a time on a connection (1000)

Prints `listening on ADDRESS` when it serves.
";

/// What the flags say.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--host`: the address to listen on.
    pub host: String,
    /// `--port`: 0 picks one.
    pub port: u16,
    /// `--use_tls`.
    pub use_tls: bool,
    /// `--tls_cert_file`: a file in PEM format.
    pub certificate_file: Option<String>,
    /// `--tls_key_file`: a file in PEM format.
    pub key_file: Option<String>,
    /// `--use_alts`.
    pub use_alts: bool,
    /// `--max_concurrent_streams_limit`: SETTINGS_MAX_CONCURRENT_STREAMS.
    pub streams_max: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 10_000,
            use_tls: false,
            certificate_file: None,
            key_file: None,
            use_alts: false,
            streams_max: None,
        }
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
                "host" => options.host = flag.text()?,
                "port" => options.port = flag.number()?,
                "use_tls" => options.use_tls = flag.switch()?,
                "tls_cert_file" => options.certificate_file = Some(flag.text()?),
                "tls_key_file" => options.key_file = Some(flag.text()?),
                "use_alts" => options.use_alts = flag.switch()?,
                "max_concurrent_streams_limit" => options.streams_max = Some(flag.number()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }

    /// The certificate that the server shows; None without `--use_tls`.
    ///
    /// # Errors
    /// A text for the user: a flag that is missing, a file that cannot be read, or has not what it should have.
    pub(crate) fn tls(&self) -> Result<Option<ServerTls>, String> {
        if !self.use_tls {
            return Ok(None);
        }
        let read = |flag: &str, file: &Option<String>| match file {
            Some(file) => std::fs::read(file).map_err(|error| format!("{flag}={file}: {error}")),
            None => Err(format!("--use_tls=true needs {flag}=FILE")),
        };
        let certificate = read("--tls_cert_file", &self.certificate_file)?;
        let key = read("--tls_key_file", &self.key_file)?;
        ServerTls::from_pem(certificate, key).map(Some).map_err(|error| error.to_string())
    }

    /// Whether the server can do what is asked for.
    ///
    /// # Errors
    /// A text for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.use_alts {
            return Err("--use_alts=true: ALTS is not supported; use --use_alts=false".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_official_flags_are_understood() {
        let options =
            parsed("--port=0 --use_tls=true --tls_cert_file=a.pem --tls_key_file=a.key --use_alts=false")
                .unwrap();
        assert_eq!((options.port, options.use_tls, options.use_alts), (0, true, false));
        assert_eq!(options.certificate_file.as_deref(), Some("a.pem"));
        assert_eq!(options.key_file.as_deref(), Some("a.key"));
        assert_eq!(parsed("--max_concurrent_streams_limit=2").unwrap().streams_max, Some(2));
    }

    #[test]
    fn what_is_not_supported_is_refused_and_not_ignored() {
        let text = parsed("--use_alts=true").unwrap().check().unwrap_err();
        assert!(text.contains("ALTS is not supported"), "{text}");
        for (line, reason) in [
            ("--use_tls=true", "--tls_cert_file"),
            ("--use_tls=true --tls_cert_file=/nonexistent/a.pem", "/nonexistent/a.pem"),
        ] {
            let text = parsed(line).unwrap().tls().unwrap_err();
            assert!(text.contains(reason), "{text}");
        }
        assert_eq!(parsed("--use_tls=false").unwrap().check(), Ok(()));
    }
}
