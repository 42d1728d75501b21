use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where one end of a connection is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IP address and a port of TCP.
    Ip(SocketAddr),
    /// A Unix domain socket, whose connections are streams.
    Unix(UnixName),
}

/// What a Unix domain socket is bound to. Can be told on every system; only Unix systems open such sockets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum UnixName {
    /// Nothing: the usual end of a client.
    Unnamed,
    /// A file. How long a path may be depends on the system: about 100 bytes.
    Path(Box<Path>),
    /// A name without a file, in the namespace of the system's network (Linux and Android). It goes with its socket.
    Abstract(Box<[u8]>),
}

impl Address {
    /// The address and port, if it is one of TCP.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl From<UnixName> for Address {
    fn from(name: UnixName) -> Self {
        Self::Unix(name)
    }
}

impl From<PathBuf> for UnixName {
    fn from(path: PathBuf) -> Self {
        Self::Path(path.into())
    }
}

#[cfg(unix)]
impl From<&std::os::unix::net::SocketAddr> for UnixName {
    fn from(address: &std::os::unix::net::SocketAddr) -> Self {
        if let Some(path) = address.as_pathname() {
            return Self::Path(path.into());
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            #[cfg(target_os = "android")]
            use std::os::android::net::SocketAddrExt;
            #[cfg(target_os = "linux")]
            use std::os::linux::net::SocketAddrExt;
            if let Some(name) = address.as_abstract_name() {
                return Self::Abstract(name.into());
            }
        }
        Self::Unnamed
    }
}

impl fmt::Display for Address {
    /// As targets are written: `127.0.0.1:50051`, `unix:/run/greeter.sock`, `unix-abstract:greeter`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(UnixName::Unnamed) => f.write_str("unix:"),
            Self::Unix(UnixName::Path(path)) => write!(f, "unix:{}", path.display()),
            Self::Unix(UnixName::Abstract(name)) => write!(f, "unix-abstract:{}", name.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_as_targets_are_written() {
        assert_eq!(Address::from(SocketAddr::from(([127, 0, 0, 1], 80))).to_string(), "127.0.0.1:80");
        let path = UnixName::from(PathBuf::from("/run/a b.sock"));
        assert_eq!(Address::from(path).to_string(), "unix:/run/a b.sock");
        let name = UnixName::Abstract(Box::from(&b"a\0b"[..]));
        assert_eq!(Address::from(name).to_string(), "unix-abstract:a\\x00b");
        assert_eq!(Address::from(UnixName::Unnamed).to_string(), "unix:");
    }

    #[test]
    fn an_address_needs_no_more_room_than_one_of_tcp() {
        assert_eq!(size_of::<Address>(), size_of::<SocketAddr>());
    }
}
