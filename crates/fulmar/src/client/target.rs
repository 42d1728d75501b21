//! Where a channel goes: `http://host:port`, `https://host:port`, or a Unix socket.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use fulmar_reactor::{Address, UnixName};

use crate::error::ConnectError;

/// The port of `http` without one (RFC 9110 §4.2.1).
const HTTP_PORT: u16 = 80;

/// The port of `https` without one (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;

/// What a Unix socket is called where a host is wanted.
const LOCALHOST: &str = "localhost";

/// A parsed endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// What the user wrote, and behind it what is no part of that. There may be many channels, and each of them keeps a target.
    text: Box<str>,
    uri_bytes: u32,
    host: Range<u32>,
    authority: Range<u32>,
    pub(crate) port: u16,
    /// Whether the scheme asks for TLS; None where there is no scheme.
    pub(crate) is_secure: Option<bool>,
    unix: Option<Box<UnixName>>,
}

/// The longest endpoint, in bytes.
const URI_BYTES_MAX: usize = 64 * 1024;

impl Target {
    /// Parses `http://host[:port][/]` or `https://…`, whose scheme may be left out, `unix:path`, `unix:///absolute/path` and
    /// `unix-abstract:name` (gRPC "naming").
    ///
    /// # Errors
    /// An unknown scheme, a missing host or name, a port that is none, or a path.
    pub(crate) fn parse(uri: &str) -> Result<Self, ConnectError> {
        let fail = |reason: String| ConnectError::new(uri, reason);
        if uri.len() > URI_BYTES_MAX {
            return Err(ConnectError::new("", format!("an endpoint has at most {URI_BYTES_MAX} bytes")));
        }
        if let Some(name) = unix_name(uri) {
            return name.map(|name| Self::unix(uri, name)).map_err(|reason| fail(reason.to_owned()));
        }
        let (is_secure, rest) = match uri.split_once("://") {
            None => (None, uri),
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some((scheme, _)) => {
                return Err(fail(format!(
                    "the scheme \"{scheme}\" is not supported: use \"http\" or \"https\""
                )));
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) || authority.contains(char::is_whitespace) {
            return Err(fail(
                "an endpoint is http://host:port, without path, query, fragment or user".to_owned(),
            ));
        }
        let default_port = if is_secure == Some(true) { HTTPS_PORT } else { HTTP_PORT };
        let (host, port) = split_port(authority, default_port).map_err(fail)?;
        if host.is_empty() {
            return Err(fail("the host is missing: an endpoint is http://host:port".to_owned()));
        }
        // The authority stands behind the scheme, and the host is in it, behind a bracket if there is one.
        let authority_start = uri.len() - rest.len();
        let host_start = authority_start + usize::from(authority.starts_with('['));
        Ok(Self {
            text: uri.into(),
            uri_bytes: uri.len() as u32,
            host: range(host_start, host),
            authority: range(authority_start, authority),
            port,
            is_secure,
            unix: None,
        })
    }

    /// A Unix socket has no host: `localhost` is what it is called (gRPC "naming").
    fn unix(uri: &str, name: UnixName) -> Self {
        let localhost = range(uri.len(), LOCALHOST);
        Self {
            text: format!("{uri}{LOCALHOST}").into(),
            uri_bytes: uri.len() as u32,
            host: localhost.clone(),
            authority: localhost,
            port: 0,
            is_secure: None,
            unix: Some(Box::new(name)),
        }
    }

    /// As the user wrote it, for texts.
    pub(crate) fn uri(&self) -> &str {
        self.part(&(0..self.uri_bytes))
    }

    /// Without the brackets of an IPv6 address; `localhost` for a Unix socket.
    pub(crate) fn host(&self) -> &str {
        self.part(&self.host)
    }

    /// What `:authority` says.
    pub(crate) fn authority(&self) -> &str {
        self.part(&self.authority)
    }

    fn part(&self, range: &Range<u32>) -> &str {
        self.text.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// The address, where the host is a literal one, or a Unix socket, and needs no resolving.
    pub(crate) fn literal_address(&self) -> Option<Address> {
        match &self.unix {
            Some(name) => Some(Address::Unix(UnixName::clone(name))),
            None => IpAddr::from_str(self.host()).ok().map(|ip| SocketAddr::new(ip, self.port).into()),
        }
    }
}

/// Where `part` is that begins at `start`.
fn range(start: usize, part: &str) -> Range<u32> {
    start as u32..(start + part.len()) as u32
}

/// The Unix socket that a text names, if it has the form of one. Paths and names are taken as they are written.
pub(crate) fn unix_name(text: &str) -> Option<Result<UnixName, &'static str>> {
    if let Some(name) = text.strip_prefix("unix-abstract:") {
        return Some(match name.as_bytes() {
            [] => Err("the name is missing: write unix-abstract:name"),
            name => Ok(UnixName::Abstract(name.into())),
        });
    }
    let path = text.strip_prefix("unix:")?;
    Some(match (path, path.strip_prefix("//")) {
        ("" | "//", _) => Err("the path is missing: write unix:/absolute/path or unix:relative/path"),
        (_, Some(path)) if !path.starts_with('/') => {
            Err("behind unix:// the path is absolute: write unix:///absolute/path, or unix:relative/path")
        }
        (_, Some(path)) | (path, None) => Ok(UnixName::from(PathBuf::from(path))),
    })
}

/// Splits `host:port`, `[v6]:port` or a host alone.
fn split_port(authority: &str, default_port: u16) -> Result<(&str, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) =
                rest.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
            match after {
                "" => (host, None),
                after => (host, Some(after.strip_prefix(':').ok_or("a colon must follow the IPv6 address")?)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None => default_port,
        Some(port) => port.parse().map_err(|_| format!("\"{port}\" is not a port"))?,
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> (String, u16, String) {
        let target = Target::parse(uri).unwrap();
        (target.host().to_owned(), target.port, target.authority().to_owned())
    }

    #[test]
    fn hosts_addresses_and_ports_are_understood() {
        assert_eq!(parsed("http://localhost:50051"), ("localhost".into(), 50051, "localhost:50051".into()));
        assert_eq!(parsed("localhost:50051/"), ("localhost".into(), 50051, "localhost:50051".into()));
        assert_eq!(parsed("http://svc.example"), ("svc.example".into(), 80, "svc.example".into()));
        assert_eq!(parsed("http://[::1]:7"), ("::1".into(), 7, "[::1]:7".into()));
        assert_eq!(
            Target::parse("http://[::1]:7").unwrap().literal_address(),
            Some("[::1]:7".parse::<SocketAddr>().unwrap().into())
        );
        assert_eq!(Target::parse("http://localhost:7").unwrap().literal_address(), None);
        assert_eq!(parsed("https://svc.example"), ("svc.example".into(), 443, "svc.example".into()));
        assert_eq!(Target::parse("https://svc.example").unwrap().is_secure, Some(true));
        assert_eq!(Target::parse("http://svc.example").unwrap().is_secure, Some(false));
        assert_eq!(Target::parse("svc.example").unwrap().is_secure, None);
    }

    #[test]
    fn an_endpoint_that_is_no_name_but_a_book_is_refused() {
        let longest = "h".repeat(URI_BYTES_MAX);
        assert_eq!(Target::parse(&longest).unwrap().host(), longest);
        let error = Target::parse(&format!("{longest}h")).unwrap_err().to_string();
        assert!(error.contains("65536") && error.len() < 200, "{error}");
    }

    #[test]
    fn unix_sockets_are_called_localhost() {
        for (uri, shown) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("unix:///run/a.sock", "unix:/run/a.sock"),
            ("unix:a b/c?d", "unix:a b/c?d"),
            ("unix-abstract:greeter", "unix-abstract:greeter"),
        ] {
            let target = Target::parse(uri).unwrap();
            assert_eq!((target.authority(), target.uri()), ("localhost", uri));
            assert_eq!(target.literal_address().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_endpoint_says_why() {
        for (uri, reason) in [
            ("ftp://localhost:1", "scheme \"ftp\""),
            ("http://", "host is missing"),
            ("http://:1", "host is missing"),
            ("http://localhost:port", "\"port\" is not a port"),
            ("http://localhost:65536", "\"65536\" is not a port"),
            ("http://localhost:1/path", "without path"),
            ("http://user@localhost:1", "without path"),
            ("http://[::1:1", "not closed"),
            ("http://[::1]1", "colon must follow"),
            ("unix:", "path is missing"),
            ("unix://", "path is missing"),
            ("unix://run/a.sock", "path is absolute"),
            ("unix-abstract:", "name is missing"),
        ] {
            let text = Target::parse(uri).unwrap_err().to_string();
            assert!(text.contains(reason), "{uri}: {text}");
            assert!(text.contains(uri), "{uri}: {text}");
        }
    }
}
