//! Where a channel goes: `http://host:port`, `https://host:port`, or a Unix socket.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use fulmar_reactor::{Address, UnixName};

use crate::error::ConnectError;

/// The port of `http` without one (RFC 9110 §4.2.1).
const HTTP_PORT: u16 = 80;

/// The port of `https` without one (RFC 9110 §4.2.2).
const HTTPS_PORT: u16 = 443;

/// A parsed endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the user wrote it, for texts.
    pub(crate) uri: String,
    /// Without the brackets of an IPv6 address; `localhost` for a Unix socket.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether the scheme asks for TLS; None where there is no scheme.
    pub(crate) is_secure: Option<bool>,
    /// What `:authority` says.
    pub(crate) authority: String,
    unix: Option<UnixName>,
}

impl Target {
    /// Parses `http://host[:port][/]` or `https://…`, whose scheme may be left out, `unix:path`, `unix:///absolute/path` and
    /// `unix-abstract:name` (gRPC "naming").
    ///
    /// # Errors
    /// An unknown scheme, a missing host or name, a port that is none, or a path.
    pub(crate) fn parse(uri: &str) -> Result<Self, ConnectError> {
        let fail = |reason: String| ConnectError::new(uri, reason);
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
        Ok(Self {
            uri: uri.to_owned(),
            host: host.to_owned(),
            port,
            is_secure,
            authority: authority.to_owned(),
            unix: None,
        })
    }

    /// A Unix socket has no host: `localhost` is what it is called (gRPC "naming").
    fn unix(uri: &str, name: UnixName) -> Self {
        Self {
            uri: uri.to_owned(),
            host: "localhost".to_owned(),
            port: 0,
            is_secure: None,
            authority: "localhost".to_owned(),
            unix: Some(name),
        }
    }

    /// The address, where the host is a literal one, or a Unix socket, and needs no resolving.
    pub(crate) fn literal_address(&self) -> Option<Address> {
        match &self.unix {
            Some(name) => Some(Address::Unix(name.clone())),
            None => IpAddr::from_str(&self.host).ok().map(|ip| SocketAddr::new(ip, self.port).into()),
        }
    }
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
        (target.host, target.port, target.authority)
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
    fn unix_sockets_are_called_localhost() {
        for (uri, shown) in [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("unix:///run/a.sock", "unix:/run/a.sock"),
            ("unix:a b/c?d", "unix:a b/c?d"),
            ("unix-abstract:greeter", "unix-abstract:greeter"),
        ] {
            let target = Target::parse(uri).unwrap();
            assert_eq!((target.authority.as_str(), target.uri.as_str()), ("localhost", uri));
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
