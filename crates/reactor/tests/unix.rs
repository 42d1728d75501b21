//! Unix domain sockets: the same as TCP, by another name.
#![cfg(unix)]

mod support;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use fulmar_base::Closed;
use fulmar_reactor::{Address, ListeningSocket, Lone, Socket, SocketOptions, UnixName};
use support::*;

/// A directory of a test's own, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fulmar-reactor-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the directory for temporary files is writable");
        Self(path)
    }

    fn listen(&self, reactor: &mut Toys) -> UnixName {
        let path = self.0.join("socket");
        let socket = ListeningSocket::from(UnixListener::bind(&path).expect("the path is free"));
        let name = UnixName::from(path);
        assert_eq!(socket.local_address().expect("it is bound"), Address::Unix(name.clone()));
        reactor.core().listen(socket).expect("the selector takes it");
        name
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_line_crosses_a_unix_socket_and_comes_back() {
    let directory = Directory::new("line");
    let mut reactor = toys();
    let name = directory.listen(&mut reactor);
    let (key, log) = dial(&mut reactor, name, Lines::default());
    say(&mut reactor, key, "hello\n");
    turn_until(&mut reactor, |reactor| {
        reactor.host().accepted.first().is_some_and(|(_, log)| log.borrow().text() == "hello\n")
    });
    let (other, _) = reactor.host().accepted[0].clone();
    say(&mut reactor, other, "and back\n");
    turn_until(&mut reactor, |_| log.borrow().text() == "hello\nand back\n");
    reactor.core().close(key, &Closed::local("enough"));
    turn_until(&mut reactor, |reactor| reactor.core().connections() + reactor.core().lingering() == 0);
    assert_eq!(reactor.host().closed_text(other), Some("the peer closed the connection"));
}

#[test]
fn more_than_a_unix_socket_holds_gets_across() {
    const BYTES: usize = 5_000_000;
    let directory = Directory::new("bulk");
    let mut reactor = toys();
    let name = directory.listen(&mut reactor);
    reactor.host().make = || Some(Lines { bulk: BYTES, ..Lines::raw() });
    let (_, log) = dial(&mut reactor, name, Lines { bulk: BYTES, ..Lines::raw() });
    turn_until(&mut reactor, |reactor| {
        reactor.host().accepted.first().is_some_and(|(_, log)| log.borrow().received.len() == BYTES)
    });
    turn_until(&mut reactor, |_| log.borrow().received.len() == BYTES);
}

#[test]
fn a_path_where_nobody_listens_is_named_by_the_error() {
    let directory = Directory::new("nobody");
    let name = UnixName::from(directory.0.join("socket"));
    let (missing, shown) = (name.clone(), Address::from(name.clone()));
    let mut reactor = toys();
    let (key, _) = dial(&mut reactor, missing, Lines::default());
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
    let text = format!("connect to {shown}: No such file or directory");
    assert_eq!(reactor.host().closed_text(key), Some(text.as_str()));
    let error = Lone::connect(name, Some(PATIENCE), Lines::default).expect_err("nobody listens");
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_lone_connection_crosses_a_unix_socket() {
    let directory = Directory::new("lone");
    let path = directory.0.join("socket");
    let listener = UnixListener::bind(&path).expect("the path is free");
    let mut lone = Lone::connect(UnixName::from(path), Some(PATIENCE), Lines::default).expect("it listens");
    let (peer, _) = listener.accept().expect("it was connected");
    talk(&mut lone, peer);
}

#[test]
fn one_of_a_pair_of_sockets_is_adopted() {
    let (one, other) = UnixStream::pair().expect("the system has sockets");
    let mut lone = Lone::adopt(one, Lines::default).expect("the stream is of use");
    assert_eq!(lone.peer(), &Address::Unix(UnixName::Unnamed));
    talk(&mut lone, other);
}

fn talk(lone: &mut Lone<Lines>, mut peer: UnixStream) {
    use std::io::{Read, Write};
    lone.command(Command::Say(b"hello\n".to_vec())).expect("it is open");
    lone.flush().expect("it is open");
    let mut line = [0; 6];
    peer.read_exact(&mut line).expect("it was written");
    peer.write_all(b"there\n").expect("it is open");
    while lone.transport().log.borrow().text() != "there\n" {
        lone.turn(None).expect("it is open");
    }
    drop(peer);
    assert_eq!(lone.turn(None).expect_err("it is over").text, "the peer closed the connection");
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn an_abstract_name_needs_no_file() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let name = format!("fulmar-reactor-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it is short");
    let listener = UnixListener::bind_addr(&address).expect("the name is free");
    let name = UnixName::Abstract(name.into_bytes().into());
    let socket = ListeningSocket::from(listener);
    assert_eq!(socket.local_address().expect("it is bound"), Address::Unix(name.clone()));
    let mut reactor = toys();
    reactor.core().listen(socket).expect("the selector takes it");
    let (key, _) = dial(&mut reactor, name.clone(), Lines::default());
    say(&mut reactor, key, "hello\n");
    turn_until(&mut reactor, |reactor| {
        reactor.host().accepted.first().is_some_and(|(_, log)| log.borrow().text() == "hello\n")
    });
}

#[test]
fn a_stream_that_is_not_connected_is_told_when_it_is_adopted() {
    let (one, other) = UnixStream::pair().expect("the system has sockets");
    one.shutdown(std::net::Shutdown::Both).expect("it is open");
    drop(other);
    let mut reactor = toys();
    let key = reactor.core().adopt(Socket::from(one), |_| Lines::default());
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
    assert!(reactor.host().closed_text(key).is_some());
}

fn bind(name: &UnixName) -> std::io::Result<ListeningSocket> {
    ListeningSocket::bind(&Address::Unix(name.clone()), &SocketOptions::default())
}

#[test]
fn a_file_that_a_dead_server_left_is_replaced_and_goes_with_the_socket() {
    let directory = Directory::new("stale");
    let path = directory.0.join("socket");
    let name = UnixName::from(path.clone());
    drop(UnixListener::bind(&path).expect("the path is free"));
    assert!(path.exists(), "the system leaves it there");
    let mut reactor = toys();
    let socket = bind(&name).expect("nobody listens");
    let key = reactor.core().listen(socket).expect("the selector takes it");
    let (_, _) = dial(&mut reactor, name.clone(), Lines::default());
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() == 1);
    reactor.core().close_listener(key);
    assert!(!path.exists());
    drop(bind(&name).expect("nobody listens"));
    assert!(!path.exists());
}

#[test]
fn a_server_that_lives_keeps_its_path_and_a_file_that_is_no_socket_stays() {
    let directory = Directory::new("taken");
    let path = directory.0.join("socket");
    let name = UnixName::from(path.clone());
    let first = bind(&name).expect("the path is free");
    let error = bind(&name).expect_err("it is taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(error.to_string(), "a server listens there");
    drop(first);
    std::fs::write(&path, "precious").expect("the directory is writable");
    let error = bind(&name).expect_err("it is taken");
    assert_eq!(error.to_string(), "the file is not a socket");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
}

#[test]
fn a_server_leaves_the_file_of_its_successor() {
    let directory = Directory::new("successor");
    let path = directory.0.join("socket");
    let name = UnixName::from(path.clone());
    let first = bind(&name).expect("the path is free");
    // As a successor does that moves its socket over the old one.
    let moved = directory.0.join("moved");
    let second = bind(&UnixName::from(moved.clone())).expect("the path is free");
    std::fs::rename(&moved, &path).expect("the directory is writable");
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(path.exists(), "it was bound under another name");
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn the_kernel_says_who_the_peer_is() {
    let (one, other) = UnixStream::pair().expect("the system has sockets");
    let credentials = Socket::from(one).unix_credentials().expect("it knows");
    assert_eq!(credentials.pid, std::process::id() as i32);
    assert_eq!(Socket::from(other).unix_credentials(), Some(credentials));
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let name = UnixName::from(PathBuf::from("/tmp/".to_owned() + &"long".repeat(50)));
    assert!(bind(&name).is_err());
    let mut reactor = toys();
    dial(&mut reactor, name, Lines::default());
    turn_until(&mut reactor, |reactor| !reactor.host().closed.is_empty());
}
