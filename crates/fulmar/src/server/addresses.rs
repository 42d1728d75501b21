//! Where a server may listen.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fulmar_reactor::{Address, UnixName};

use crate::client::target::unix_name;

/// What a server can be bound to with [`ServerBuilder::bind`](crate::ServerBuilder::bind): an address and a port of TCP, as
/// `"127.0.0.1:50051"`, `"localhost:50051"` or `(address, port)`, or a Unix socket, as `"unix:/run/greeter.sock"`,
/// `"unix:relative/path"` or `"unix-abstract:name"` (Linux and Android).
pub trait ToAddresses {
    /// The addresses, of which the first is taken that can be. Names are looked up, which waits.
    ///
    /// # Errors
    /// A text that is no address, a name that is not known.
    fn to_addresses(&self) -> io::Result<Vec<Address>>;
}

impl ToAddresses for str {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        match unix_name(self) {
            Some(Ok(name)) => Ok(vec![Address::Unix(name)]),
            Some(Err(text)) => Err(io::Error::new(io::ErrorKind::InvalidInput, text)),
            None => of_ip(self),
        }
    }
}

impl ToAddresses for String {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        self.as_str().to_addresses()
    }
}

impl ToAddresses for Address {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![self.clone()])
    }
}

impl ToAddresses for UnixName {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        Ok(vec![Address::Unix(self.clone())])
    }
}

impl ToAddresses for SocketAddr {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self)
    }
}

impl ToAddresses for (IpAddr, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self)
    }
}

impl ToAddresses for (&str, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self)
    }
}

impl ToAddresses for (String, u16) {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self)
    }
}

impl ToAddresses for [SocketAddr] {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self)
    }
}

impl<const N: usize> ToAddresses for [SocketAddr; N] {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        of_ip(self.as_slice())
    }
}

impl<T: ToAddresses + ?Sized> ToAddresses for &T {
    fn to_addresses(&self) -> io::Result<Vec<Address>> {
        (**self).to_addresses()
    }
}

fn of_ip(addresses: impl ToSocketAddrs) -> io::Result<Vec<Address>> {
    Ok(addresses.to_socket_addrs()?.map(Address::Ip).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(address: impl ToAddresses) -> String {
        address.to_addresses().unwrap()[0].to_string()
    }

    #[test]
    fn addresses_are_given_as_one_likes() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 7));
        assert_eq!(first("127.0.0.1:7"), "127.0.0.1:7");
        assert_eq!(first(String::from("[::1]:7")), "[::1]:7");
        assert_eq!(first(loopback), "127.0.0.1:7");
        assert_eq!(first([loopback]), "127.0.0.1:7");
        assert_eq!(first(&[loopback][..]), "127.0.0.1:7");
        assert_eq!(first(("127.0.0.1", 7)), "127.0.0.1:7");
        assert_eq!(first((String::from("127.0.0.1"), 7)), "127.0.0.1:7");
        assert_eq!(first((loopback.ip(), 7)), "127.0.0.1:7");
        assert_eq!(first("unix:/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(first("unix-abstract:a"), "unix-abstract:a");
        assert_eq!(first(UnixName::Unnamed), "unix:");
        assert_eq!(first(Address::Ip(loopback)), "127.0.0.1:7");
    }

    #[test]
    fn what_is_no_address_says_why() {
        assert!("127.0.0.1".to_addresses().is_err());
        let error = "unix:".to_addresses().unwrap_err();
        assert!(error.to_string().contains("path is missing"), "{error}");
    }
}
