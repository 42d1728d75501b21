//! Socket options, as far as they show.

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use fulmar_reactor::{Address, ListeningSocket, Lone, Socket, SocketOptions};
use support::*;

fn loopback() -> Address {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}

#[test]
fn a_dialled_connection_comes_from_the_address_that_was_asked_for() {
    // All of 127.0.0.0/8 is loopback on Linux; elsewhere only one address is.
    let local = IpAddr::V4(Ipv4Addr::new(127, 0, 0, if cfg!(target_os = "linux") { 7 } else { 1 }));
    let options = SocketOptions { local_address: Some(local), ..SocketOptions::default() };
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let address = listener.local_addr().expect("it is bound");
    let mut reactor = toys();
    reactor.core().dial((address, &options), Some(PATIENCE), |_| Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().connected.len() == 1);
    assert_eq!(listener.accept().expect("it was connected").1.ip(), local);
    let lone = Lone::connect((address, &options), Some(PATIENCE), Lines::default).expect("it listens");
    assert_eq!(listener.accept().expect("it was connected").1.ip(), local);
    drop(lone);
}

#[test]
fn an_option_that_cannot_be_set_is_how_the_connection_ends() {
    let options = SocketOptions { device: Some("no-such-0".to_owned()), ..SocketOptions::default() };
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut reactor = toys();
    let key = reactor.core().dial((address, &options), Some(PATIENCE), |_| Lines::default());
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
    let text = reactor.host().closed_text(key).expect("it has ended").to_owned();
    assert!(text.starts_with("connect to 127.0.0.1:1: "), "{text}");
    assert!(ListeningSocket::bind(&loopback(), &options).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn listeners_that_say_so_share_a_port_and_others_do_not() {
    let options = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let one = ListeningSocket::bind(&loopback(), &options).expect("loopback has ports");
    let address = one.local_address().expect("it is bound");
    let other = ListeningSocket::bind(&address, &options).expect("both say so");
    assert_eq!(other.local_address().expect("it is bound"), address);
    assert!(ListeningSocket::bind(&address, &SocketOptions::default()).is_err());
}

#[test]
fn a_socket_that_is_handed_in_sends_at_once_and_takes_options() {
    let (stream, peer) = socket_pair();
    stream.set_nodelay(false).expect("it is open");
    let same = stream.try_clone().expect("there are descriptors");
    let socket = Socket::from(stream);
    assert!(same.nodelay().expect("it is open"));
    assert_eq!(socket.peer(), &Address::Ip(peer.local_addr().expect("it is open")));
    assert_eq!(socket.local_address(), peer.peer_addr().ok().map(Address::Ip));
    let options = SocketOptions { type_of_service: Some(0x20), ..SocketOptions::default() };
    socket.apply(&options).expect("loopback has classes");
    assert_eq!(socket2::SockRef::from(&same).tos_v4().expect("it is open"), 0x20);
    assert_eq!(socket.unix_credentials(), None);
}
