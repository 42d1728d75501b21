//! Handshakes that stop half way, never begin, or come with everything at once: field case R54 over real sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::tls::rustls;
use fulmar::{Channel, Code, Raw, Request, Server, blocking};

use crate::calls::{LONG, bounded, serve};
use crate::common::raw::frame;
use crate::common::{Demo, PATH_ECHO, block_on, eventually, number};
use crate::pki::Authority;

/// A client's end of `rustls`, which speaks HTTP/2 by hand.
fn rustls_client(authority: &Authority) -> rustls::ClientConnection {
    let config = authority.rustls_client(rustls::DEFAULT_VERSIONS, &["h2"]);
    rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

/// HEADERS and DATA of a whole call to `Echo`, with a message of eight bytes.
fn request(stream: u32) -> Vec<u8> {
    // `:method: POST`, `:scheme: https`, `:path`, `te: trailers` and the content type, without the dynamic table (RFC 7541).
    let mut block = vec![0x83, 0x87, 0x04, PATH_ECHO.len() as u8];
    block.extend(PATH_ECHO.as_bytes());
    for (name, value) in [("te", "trailers"), ("content-type", "application/grpc")] {
        block.extend([0x00, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    let mut bytes = frame(1, 4, stream, &block);
    bytes.extend(frame(0, 1, stream, &[0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]));
    bytes
}

fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()
}

fn flush(tls: &mut rustls::ClientConnection) -> Vec<u8> {
    let mut wire = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut wire).unwrap();
    }
    wire
}

/// Reads until so many streams have ended with trailers; how many have, once the server says nothing more or closes.
fn ended_streams(tls: &mut rustls::ClientConnection, stream: &mut TcpStream, wanted: usize) -> usize {
    let (mut plain, mut ended) = (Vec::new(), 0);
    while ended < wanted && tls.read_tls(stream).is_ok_and(|read| read > 0) {
        let state = tls.process_new_packets().unwrap();
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut plain[start..]).unwrap();
        while let Some(head) = plain.get(..9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            if plain.len() < 9 + length {
                break;
            }
            plain.drain(..9 + length);
            ended += usize::from(kind == 1 && flags & 1 != 0);
        }
    }
    ended
}

/// A connection whose handshake lacks only what the client says last, which is in the session.
fn almost_open(server: std::net::SocketAddr, authority: &Authority) -> (rustls::ClientConnection, TcpStream) {
    let (mut tls, mut stream) = (rustls_client(authority), TcpStream::connect(server).unwrap());
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&flush(&mut tls)).unwrap();
    while tls.is_handshaking() {
        tls.read_tls(&mut stream).unwrap();
        tls.process_new_packets().unwrap();
    }
    (tls, stream)
}

#[test]
fn field_case_r54_finished_and_a_call_in_one_segment_are_answered_without_further_input() {
    let authority = Authority::new("authority");
    let (server, _) = serve(authority.server_tls());
    let (mut tls, mut stream) = almost_open(server.local_addr().unwrap(), &authority);
    // Finished, and a record each for the preface with SETTINGS, HEADERS and DATA.
    let call = request(1);
    let headers = call.len() - 9 - 13;
    for record in [&preface()[..], &call[..headers], &call[headers..]] {
        tls.writer().write_all(record).unwrap();
    }
    stream.write_all(&flush(&mut tls)).unwrap();
    assert_eq!(ended_streams(&mut tls, &mut stream, 1), 1);
}

#[test]
fn field_case_r54_three_calls_in_one_record_are_answered_without_further_input() {
    let authority = Authority::new("authority");
    let (server, _) = serve(authority.server_tls());
    let (mut tls, mut stream) = almost_open(server.local_addr().unwrap(), &authority);
    let calls = [preface(), request(1), request(3), request(5)].concat();
    tls.writer().write_all(&calls).unwrap();
    let wire = flush(&mut tls);
    stream.write_all(&wire).unwrap();
    assert_eq!(ended_streams(&mut tls, &mut stream, 3), 3);
}

#[test]
fn field_case_r54_half_done_and_silent_handshakes_are_cut_off_and_stop_nobody() {
    let authority = Authority::new("authority");
    let tls = authority.server_tls().handshake_timeout(Duration::from_millis(800));
    let (server, endpoint) = serve(tls);
    let address = server.local_addr().unwrap();
    let began = Instant::now();
    // One that says nothing, some that say a part of their hello, and some that say the whole of it and then nothing.
    let mut stuck: Vec<TcpStream> = Vec::new();
    for part in [0, 1, 5, 100, usize::MAX] {
        for _ in 0..4 {
            let hello = flush(&mut rustls_client(&authority));
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&hello[..part.min(hello.len())]).unwrap();
            stuck.push(stream);
        }
    }
    // Others are served meanwhile, by the same reactor.
    let settings = || Channel::builder(&endpoint).tls(authority.client_tls());
    block_on(async {
        let channel = settings().connect().await.unwrap();
        channel.unary::<Raw, Raw>(PATH_ECHO, bounded(number(1))).await.unwrap();
    });
    for mut stream in stuck {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(began.elapsed() >= Duration::from_millis(700), "nobody was cut off before the time was up");
    eventually("the server has let go of them all", || {
        server.handle().counts().is_some_and(|counts| counts.connections == 0)
    });
}

#[test]
fn a_server_that_says_nothing_meets_the_connect_timeout_and_is_said_to_have_been_in_its_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    // The system accepts for it, and nobody reads.
    let authority = Authority::new("authority");
    let settings = || {
        Channel::builder(&endpoint).tls(authority.client_tls()).connect_timeout(Duration::from_millis(200))
    };
    let began = Instant::now();
    for error in
        [block_on(settings().connect()).unwrap_err(), blocking::Channel::with(settings()).unwrap_err()]
    {
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.reason().contains("TLS: the handshake was not completed"), "{error}");
    }
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_deadline_within_the_handshake_ends_the_call_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let authority = Authority::new("authority");
    let channel = Channel::builder(&endpoint).tls(authority.client_tls()).build().unwrap();
    let began = Instant::now();
    let request = Request::new(number(1)).with_timeout(Duration::from_millis(200));
    let status = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request)).map(drop).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(began.elapsed() < LONG / 2);
}

#[test]
fn a_server_that_goes_in_the_middle_of_the_handshake_is_said_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
        }
    });
    let authority = Authority::new("authority");
    let settings = || Channel::builder(&endpoint).tls(authority.client_tls());
    for error in
        [block_on(settings().connect()).unwrap_err(), blocking::Channel::with(settings()).unwrap_err()]
    {
        assert!(error.reason().contains("TLS: during the handshake"), "{error}");
    }
    server.join().unwrap();
}

#[test]
fn the_last_bytes_of_a_connection_are_delivered_and_close_notify_follows_them() {
    let authority = Authority::new("authority");
    let server = Server::builder().reactors(1).tls(authority.server_tls()).add_service(Demo::default());
    let server = server.bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let (mut tls, mut stream) = almost_open(server.local_addr().unwrap(), &authority);
    tls.writer().write_all(&[preface(), request(1)].concat()).unwrap();
    stream.write_all(&flush(&mut tls)).unwrap();
    assert_eq!(ended_streams(&mut tls, &mut stream, 1), 1);
    server.handle().shutdown(Duration::ZERO);
    // Whatever it says at its end (GOAWAY), it closes as TLS wants it (RFC 8446 §6.1).
    let mut has_closed = false;
    while tls.read_tls(&mut stream).is_ok_and(|read| read > 0) {
        has_closed |= tls.process_new_packets().unwrap().peer_has_closed();
    }
    assert!(has_closed, "there was no close_notify");
}
