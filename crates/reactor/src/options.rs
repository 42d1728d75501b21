use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::address::Address;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// What the operating system is asked to do with sockets. The defaults ask for nothing: the system's own settings hold, besides
/// Nagle's algorithm, which is always off.
///
/// What a system does not have is an error where the socket is opened, and so is what it does not permit. Not looked at are the
/// [user timeout](Self::user_timeout) where there is none, because connections are found dead by other means there, and of Unix domain
/// sockets all but the sizes of buffers and the backlog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// How many bytes the system buffers that were written and have not left (`SO_SNDBUF`). Linux doubles it, for its own needs, up
    /// to a limit of its own. Default: the system's, which it adjusts by itself where it is not set.
    pub send_buffer_bytes: Option<usize>,
    /// How many bytes the system buffers that have arrived and were not read (`SO_RCVBUF`); as for sending.
    pub receive_buffer_bytes: Option<usize>,
    /// Probes of TCP on idle connections. Default: none. Keepalive by HTTP/2 finds more: a peer whose system lives and whose program
    /// does not.
    pub keepalive: Option<SocketKeepalive>,
    /// How many connections the system keeps that nobody has accepted yet. The system has a limit of its own for it (on Linux
    /// `net.core.somaxconn`). Listeners only. Default: 4,096.
    pub backlog: u32,
    /// Several listeners, of this process or others of the same user, may share a port, and get its connections in turn
    /// (`SO_REUSEPORT`). Listeners only; not on Windows. Default: false.
    pub reuse_port: bool,
    /// Whether a listener for IPv6 takes IPv6 only, or IPv4 too where the address is `[::]` (`IPV6_V6ONLY`). Default: the system's.
    pub only_v6: Option<bool>,
    /// The network interface that the socket uses, such as `eth0` (`SO_BINDTODEVICE`; Linux and Android). Default: the one that
    /// leads to the peer.
    pub device: Option<String>,
    /// The address that a dialled connection comes from. Default: that of the interface that leads to the peer.
    pub local_address: Option<IpAddr>,
    /// The type of service, or traffic class, that packets ask for (`IP_TOS`, `IPV6_TCLASS`): the upper six bits are the
    /// DSCP of RFC 2474. Default: 0.
    pub type_of_service: Option<u8>,
    /// How long what was written may wait for the peer's system to acknowledge it before the connection is lost
    /// (`TCP_USER_TIMEOUT`, RFC 5482; Linux and Android, not looked at elsewhere). Default: the system's, about 15 minutes.
    pub user_timeout: Option<Duration>,
}

/// Probes of TCP (RFC 9293 §3.8.4) on a connection on which nothing moves.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SocketKeepalive {
    /// How long nothing moves before the first probe.
    pub time: Duration,
    /// The time between probes. Default: the system's.
    pub interval: Option<Duration>,
    /// How many probes are not answered before the connection is lost. Default: the system's.
    pub retries: Option<u32>,
}

impl SocketKeepalive {
    /// Probes after `time`, and from then on as often as the system thinks fit.
    pub const fn after(time: Duration) -> Self {
        Self { time, interval: None, retries: None }
    }
}

/// Where [`Core::dial`](crate::Core::dial) connects to, and with which options.
#[derive(Clone, Debug)]
pub struct Dial<'o> {
    pub(crate) address: Address,
    pub(crate) options: &'o SocketOptions,
}

impl<A: Into<Address>> From<A> for Dial<'_> {
    fn from(address: A) -> Self {
        Self { address: address.into(), options: &UNSET }
    }
}

impl<'o, A: Into<Address>> From<(A, &'o SocketOptions)> for Dial<'o> {
    fn from((address, options): (A, &'o SocketOptions)) -> Self {
        Self { address: address.into(), options }
    }
}

impl SocketOptions {
    /// A socket of TCP for connections to an address of the kind of `address`, or for a listener there.
    pub(crate) fn open(&self, address: &SocketAddr) -> io::Result<Socket> {
        let domain = Domain::for_address(*address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        self.apply_tcp(&socket, domain)?;
        if let Some(device) = &self.device {
            sys::bind_device(&socket, device)?;
        }
        Ok(socket)
    }

    /// A Unix domain socket for connections, or for a listener.
    #[cfg(unix)]
    pub(crate) fn open_unix(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        self.apply_buffers(&socket)?;
        Ok(socket)
    }

    /// A socket of TCP to connect to `address`.
    pub(crate) fn open_to(&self, address: &SocketAddr) -> io::Result<Socket> {
        let socket = self.open(address)?;
        if let Some(local) = self.local_address {
            if local.is_ipv4() != address.is_ipv4() {
                let text = format!("the local address {local} is of another family");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
        }
        Ok(socket)
    }

    /// Sets what can be set on a connection that is open already.
    pub(crate) fn apply_open(&self, socket: &SockRef<'_>) -> io::Result<()> {
        // Nothing is asked for as a rule, and then nothing is asked.
        if *self == UNSET {
            return Ok(());
        }
        match socket.local_addr()?.domain() {
            domain @ (Domain::IPV4 | Domain::IPV6) => self.apply_tcp(socket, domain),
            _ => self.apply_buffers(socket),
        }
    }

    fn apply_buffers(&self, socket: &Socket) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }

    fn apply_tcp(&self, socket: &Socket, domain: Domain) -> io::Result<()> {
        self.apply_buffers(socket)?;
        if let Some(keepalive) = &self.keepalive {
            let asked = TcpKeepalive::new().with_time(keepalive.time);
            socket.set_tcp_keepalive(&sys::with_probes(asked, keepalive)?)?;
        }
        if let Some(timeout) = self.user_timeout {
            sys::set_user_timeout(socket, timeout)?;
        }
        match self.type_of_service {
            Some(class) => sys::set_type_of_service(socket, domain, class.into()),
            None => Ok(()),
        }
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        UNSET.clone()
    }
}

/// The defaults.
static UNSET: SocketOptions = SocketOptions {
    send_buffer_bytes: None,
    receive_buffer_bytes: None,
    keepalive: None,
    backlog: 4096,
    reuse_port: false,
    only_v6: None,
    device: None,
    local_address: None,
    type_of_service: None,
    user_timeout: None,
};

/// What not all systems have.
pub(crate) mod sys {
    use std::io;
    use std::time::Duration;

    use socket2::{Domain, Socket, TcpKeepalive};

    use super::SocketKeepalive;

    #[allow(dead_code, reason = "some systems have everything")]
    fn unsupported<R>(what: &str) -> io::Result<R> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("this system has no {what}")))
    }

    pub(super) fn bind_device(socket: &Socket, device: &str) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return socket.bind_device(Some(device.as_bytes()));
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = (socket, device);
            unsupported("way to bind a socket to a device")
        }
    }

    pub(crate) fn set_reuse_port(socket: &Socket) -> io::Result<()> {
        #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos"))))]
        return socket.set_reuse_port(true);
        #[cfg(not(all(unix, not(any(target_os = "solaris", target_os = "illumos")))))]
        {
            let _ = socket;
            unsupported("ports for several listeners")
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn set_user_timeout(socket: &Socket, timeout: Duration) -> io::Result<()> {
        // The system counts milliseconds, and takes none for its own default.
        socket.set_tcp_user_timeout(Some(timeout.max(Duration::from_millis(1))))
    }

    /// Connections are found dead by other means there.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn set_user_timeout(_: &Socket, _: Duration) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn set_type_of_service(socket: &Socket, domain: Domain, class: u32) -> io::Result<()> {
        if domain == Domain::IPV4 {
            #[cfg(not(any(target_os = "solaris", target_os = "redox", target_os = "haiku")))]
            return socket.set_tos_v4(class);
            #[cfg(any(target_os = "solaris", target_os = "redox", target_os = "haiku"))]
            return unsupported("type of service");
        }
        #[cfg(any(
            target_os = "linux",
            target_os = "android",
            target_os = "macos",
            target_os = "freebsd",
            target_os = "netbsd",
            target_os = "openbsd"
        ))]
        return socket.set_tclass_v6(class);
        #[cfg(not(any(
            target_os = "linux",
            target_os = "android",
            target_os = "macos",
            target_os = "freebsd",
            target_os = "netbsd",
            target_os = "openbsd"
        )))]
        {
            let _ = (socket, class);
            unsupported("traffic classes of IPv6")
        }
    }

    /// What `keepalive` says of the probes after the first.
    pub(super) fn with_probes(asked: TcpKeepalive, keepalive: &SocketKeepalive) -> io::Result<TcpKeepalive> {
        let SocketKeepalive { interval, retries, .. } = *keepalive;
        #[cfg(any(
            target_os = "linux",
            target_os = "android",
            target_vendor = "apple",
            target_os = "freebsd",
            target_os = "netbsd",
            windows
        ))]
        {
            let mut asked = asked;
            if let Some(interval) = interval {
                asked = asked.with_interval(interval);
            }
            if let Some(retries) = retries {
                asked = asked.with_retries(retries);
            }
            Ok(asked)
        }
        #[cfg(not(any(
            target_os = "linux",
            target_os = "android",
            target_vendor = "apple",
            target_os = "freebsd",
            target_os = "netbsd",
            windows
        )))]
        match (interval, retries) {
            (None, None) => Ok(asked),
            _ => unsupported("interval between the probes of TCP, and no number of them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_asked_of_a_socket_is_set() {
        let options = SocketOptions {
            send_buffer_bytes: Some(100_000),
            receive_buffer_bytes: Some(50_000),
            keepalive: Some(SocketKeepalive {
                interval: Some(Duration::from_secs(7)),
                retries: Some(3),
                ..SocketKeepalive::after(Duration::from_secs(70))
            }),
            type_of_service: Some(0x68),
            ..SocketOptions::default()
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().expect("it is one");
            let Ok(socket) = options.open(&address) else {
                assert!(address.is_ipv6(), "there may be machines without IPv6");
                continue;
            };
            assert!(socket.send_buffer_size().expect("it is open") >= 100_000);
            let receive_buffer_bytes = socket.recv_buffer_size().expect("it is open");
            assert!((50_000..=100_000).contains(&receive_buffer_bytes), "{receive_buffer_bytes}");
            assert!(socket.keepalive().expect("it is open"));
            assert_eq!(socket.tcp_keepalive_time().expect("it is open"), Duration::from_secs(70));
            assert_eq!(socket.tcp_keepalive_interval().expect("it is open"), Duration::from_secs(7));
            assert_eq!(socket.tcp_keepalive_retries().expect("it is open"), 3);
            let class = if address.is_ipv4() { socket.tos_v4() } else { socket.tclass_v6() };
            assert_eq!(class.expect("it is open"), 0x68, "{address}");
        }
    }

    #[test]
    fn a_device_that_is_none_is_an_error_and_not_ignored() {
        let options = SocketOptions { device: Some("no-such-0".to_owned()), ..SocketOptions::default() };
        assert!(options.open(&SocketAddr::from(([127, 0, 0, 1], 0))).is_err());
    }

    #[test]
    fn a_local_address_is_of_the_family_of_the_peer() {
        let options = SocketOptions {
            local_address: Some("127.0.0.1".parse().expect("it is one")),
            ..SocketOptions::default()
        };
        let socket = options.open_to(&SocketAddr::from(([127, 0, 0, 1], 1))).expect("loopback has ports");
        let local = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        assert!(local.ip().is_loopback() && local.port() != 0);
        match options.open_to(&"[::1]:1".parse().expect("it is one")) {
            Ok(_) => panic!("IPv4 does not lead there"),
            // There may be machines without IPv6, which fail earlier.
            Err(error) => {
                assert!(error.kind() == io::ErrorKind::InvalidInput || error.raw_os_error().is_some())
            }
        }
    }
}
