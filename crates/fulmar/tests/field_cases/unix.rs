//! R55: what requests over Unix sockets call the server.
#![cfg(unix)]

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

use fulmar::{Channel, Raw, RunningServer, blocking};

use crate::common::block_on;
use crate::peer::{
    END_HEADERS, END_STREAM, Frame, HEADERS, PREFACE, Peer, data, headers, literal, message, settings,
};
use crate::service::{U, serve_built};

/// A path of a test's own for a socket.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("fulmar-{name}-{}.sock", std::process::id()))
}

/// A raw peer is written for TCP, and asks nothing of its socket that a Unix socket does not do.
fn peer_over(stream: UnixStream) -> Peer {
    Peer::new(TcpStream::from(OwnedFd::from(stream)))
}

fn serve_both(name: &str) -> RunningServer {
    let listener = UnixListener::bind(path(name)).unwrap();
    // It stays there until the test removes it.
    serve_built(|builder| builder.listener(listener)).0
}

/// The normal request, with these fields about the host.
fn request_to(hosts: &[(&str, &str)]) -> Vec<u8> {
    let mut block = [literal(":method", "POST"), literal(":scheme", "http"), literal(":path", U)].concat();
    for (name, value) in hosts {
        block.extend(literal(name, value));
    }
    block.extend([literal("te", "trailers"), literal("content-type", "application/grpc")].concat());
    block
}

fn status_of(peer: &mut Peer, hosts: &[(&str, &str)]) -> Option<String> {
    let stream = peer.take_stream();
    let block = request_to(hosts);
    peer.send(&[headers(stream, END_HEADERS, &block), data(stream, END_STREAM, &message(b"hello"))]);
    peer.answer(stream).trailer("grpc-status").map(str::to_owned)
}

#[test]
fn r55_a_server_takes_any_authority_over_unix_sockets_and_tcp() {
    let server = serve_both("r55-server");
    let mut unix = peer_over(UnixStream::connect(path("r55-server")).unwrap());
    unix.send(&[PREFACE.to_vec(), settings(&[])]);
    unix.exchange_settings();
    let tcp = Peer::connect(server.local_addr().unwrap());
    for mut peer in [unix, tcp] {
        for hosts in [
            &[(":authority", "localhost")][..],
            &[(":authority", "/var/run/x.sock")],
            &[(":authority", "%2Fvar%2Frun%2Fx.sock")],
            &[(":authority", "unix:/var/run/x.sock")],
            &[(":authority", "!\"#$&'()*+,;<=>?[\\]^`{|}~")],
            &[(":authority", "")],
            &[("host", "/var/run/x.sock")],
            &[("host", "")],
            &[],
        ] {
            assert_eq!(status_of(&mut peer, hosts).as_deref(), Some("0"), "{hosts:?}");
        }
        peer.assert_alive();
    }
    drop(server);
    std::fs::remove_file(path("r55-server")).unwrap();
}

/// Plays a server for one call, and returns what its request began with.
fn capture(listener: UnixListener) -> thread::JoinHandle<Frame> {
    thread::spawn(move || {
        let mut peer = peer_over(listener.accept().unwrap().0);
        peer.expect_preface();
        peer.send(&[settings(&[])]);
        peer.exchange_settings();
        let request = peer.until(|frame| frame.kind == HEADERS);
        peer.until(|frame| frame.has(END_STREAM));
        peer.reply(request.stream, b"");
        request
    })
}

#[test]
fn r55_clients_call_the_server_of_a_unix_socket_localhost() {
    let path = path("r55-client");
    let target = format!("unix:{}", path.display());
    for is_blocking in [false, true] {
        let captured = capture(UnixListener::bind(&path).unwrap());
        if is_blocking {
            let mut channel = blocking::Channel::connect(&target).unwrap();
            channel.unary::<Raw, Raw>(U, Raw::default()).unwrap();
        } else {
            block_on(async {
                let channel = Channel::connect(&target).await.unwrap();
                channel.unary::<Raw, Raw>(U, Raw::default()).await.unwrap();
            });
        }
        let request = captured.join().unwrap();
        assert_eq!(request.field(":authority"), Some("localhost"));
        assert_eq!(request.field(":scheme"), Some("http"));
        assert_eq!(request.field("host"), None);
        std::fs::remove_file(&path).unwrap();
    }
}
