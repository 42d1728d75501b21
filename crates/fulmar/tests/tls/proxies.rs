//! Connections that are cut, or stall, in the middle of a handshake or a record.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Raw, Request, blocking};

use crate::calls::{LONG, bounded, large, serve};
use crate::common::{PATH_ECHO, block_on, number};
use crate::pki::Authority;

/// What becomes of a connection once the server has sent so many bytes.
#[derive(Clone, Copy)]
enum Fate {
    /// Both directions are closed.
    Cut,
    /// Nothing is carried any more, and nothing is closed.
    Stall,
}

/// Carries connections to `server` until it has sent so many bytes on one of them.
fn proxy(server: &str, bytes: usize, fate: Fate) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let server = server.replace("https://localhost", "127.0.0.1");
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let Ok(server) = TcpStream::connect(&server) else { return };
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
            });
            thread::spawn(move || carry(client, server, bytes, fate));
        }
    });
    endpoint
}

fn carry(mut client: TcpStream, mut server: TcpStream, bytes: usize, fate: Fate) {
    let (mut left, mut buffer) = (bytes, [0; 4096]);
    while left > 0 {
        let wanted = left.min(buffer.len());
        match server.read(&mut buffer[..wanted]) {
            Ok(read) if read > 0 && client.write_all(&buffer[..read]).is_ok() => left -= read,
            _ => break,
        }
    }
    match fate {
        Fate::Cut => {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
        // Until the client gives up: its end of the connection is read by the other thread.
        Fate::Stall => while server.read(&mut buffer).is_ok_and(|read| read > 0) {},
    }
}

/// Within the server's flight, at its end, within the first records of HTTP/2, and within a large reply.
const PLACES: [usize; 8] = [1, 5, 200, 700, 1_200, 2_000, 50_000, 1_000_000];

#[test]
fn a_connection_that_is_cut_anywhere_ends_its_call_at_once() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.server_tls());
    for bytes in PLACES {
        let cut = proxy(&endpoint, bytes, Fate::Cut);
        let settings = || Channel::builder(&cut).tls(authority.client_tls());
        let began = Instant::now();
        let status = block_on(async {
            let channel = settings().build().unwrap();
            channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).await.map(drop).unwrap_err()
        });
        assert_eq!(status.code(), Code::Unavailable, "after {bytes} bytes: {status}");
        let status = match blocking::Channel::with(settings()) {
            Err(error) => error.into(),
            Ok(mut channel) => channel.unary::<Raw, Raw>(PATH_ECHO, bounded(large())).map(drop).unwrap_err(),
        };
        assert_eq!(status.code(), Code::Unavailable, "after {bytes} bytes: {status}");
        assert!(began.elapsed() < LONG / 2, "after {bytes} bytes it took {:?}", began.elapsed());
    }
}

#[test]
fn a_connection_that_stalls_anywhere_leaves_deadlines_and_other_connections_alone() {
    let authority = Authority::new("authority");
    let (_server, endpoint) = serve(authority.server_tls());
    let healthy = Channel::builder(&endpoint).tls(authority.client_tls()).build().unwrap();
    for bytes in PLACES {
        let stalled = proxy(&endpoint, bytes, Fate::Stall);
        let channel = Channel::builder(&stalled).tls(authority.client_tls()).build().unwrap();
        let request = Request::new(large()).with_timeout(Duration::from_millis(300));
        let waiting = thread::spawn(move || {
            let began = Instant::now();
            let status = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request)).map(drop).unwrap_err();
            (status, began.elapsed())
        });
        block_on(healthy.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1)))).unwrap();
        let (status, took) = waiting.join().unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "after {bytes} bytes: {status}");
        assert!(took < LONG / 2, "after {bytes} bytes it took {took:?}");
    }
}
