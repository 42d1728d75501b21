//! What our ends say when there is nothing to talk to, or nothing that makes sense: an error that tells what and where.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, ConnectError, LocalReactor, Server, Status, blocking};

use crate::fulmar_lab::FulmarLab;
use crate::proto::lab_client::{LabClient, blocking::LabClient as BlockingLabClient};
use crate::proto::{Answer, Order};
use crate::within::within_limit;

/// What the asynchronous client (off and on a reactor) and the blocking client say when they connect.
fn connect_errors(uri: &str) -> Vec<(&'static str, String)> {
    // Well below the limit of a test, well above what a refusal takes.
    const TIMEOUT: Duration = Duration::from_secs(2);
    let connect = || Channel::builder(uri).connect_timeout(TIMEOUT).connect();
    let text = |error: ConnectError| error.to_string();
    let background = futures::executor::block_on(connect()).map_err(text);
    let local = LocalReactor::new().expect("a reactor").block_on(connect()).map_err(text);
    let lone = blocking::Channel::with(Channel::builder(uri).connect_timeout(TIMEOUT)).map_err(text);
    vec![
        ("async", background.expect_err("nothing to connect to")),
        ("async on a reactor", local.expect_err("nothing to connect to")),
        ("blocking", lone.map(drop).expect_err("nothing to connect to")),
    ]
}

#[test]
fn an_endpoint_that_makes_no_sense_is_told_as_it_was_given() {
    within_limit(|| {
        for uri in ["ftp://127.0.0.1:1", "http://", "http://127.0.0.1:port", "http://127.0.0.1:1/path", ""] {
            for (client, text) in connect_errors(uri) {
                assert!(text.contains(uri), "{client}: {uri}: {text}");
            }
        }
        for (client, text) in connect_errors("ftp://127.0.0.1:1") {
            assert!(text.contains("scheme"), "{client}: {text}");
        }
    });
}

#[test]
fn a_peer_that_is_not_there_is_told_with_its_address() {
    within_limit(|| {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = port.expect("a free port"); // and free again, since the listener is dropped
        for (client, text) in connect_errors(&format!("http://{address}")) {
            assert!(text.contains(&address.to_string()), "{client}: {text}");
            assert!(text.to_lowercase().contains("refused"), "{client}: {text}");
        }
    });
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    within_limit(|| {
        // RFC 6761 §6.4: names under `invalid` never resolve.
        for (client, text) in connect_errors("http://nobody.invalid:50051") {
            assert!(text.contains("nobody.invalid"), "{client}: {text}");
        }
    });
}

/// A TCP server that does the same with every connection, for as long as the test runs.
fn peer(each: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let each = each.clone();
            thread::spawn(move || each(connection));
        }
    });
    address
}

/// Reads until the other end closes, so that closing does not reset what was written.
fn drain(mut connection: TcpStream) {
    let mut bytes = [0; 1024];
    while matches!(connection.read(&mut bytes), Ok(1..)) {}
}

#[test]
fn a_peer_of_http_1_is_told_as_one_that_speaks_no_http_2() {
    within_limit(|| {
        let address = peer(|mut connection| {
            let reply = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            drop(connection.write_all(reply));
            drain(connection);
        });
        for (client, text) in connect_errors(&format!("http://{address}")) {
            assert!(text.contains(&address.to_string()), "{client}: {text}");
            assert!(text.contains("HTTP"), "{client}: {text}");
        }
    });
}

#[test]
fn a_peer_that_answers_garbage_is_an_error() {
    within_limit(|| {
        let address = peer(|mut connection| {
            drop(connection.write_all(&[0xff; 4_096]));
            drain(connection);
        });
        for (client, text) in connect_errors(&format!("http://{address}")) {
            assert!(text.contains(&address.to_string()), "{client}: {text}");
        }
    });
}

#[test]
fn a_peer_that_hangs_up_is_an_error() {
    within_limit(|| {
        let address = peer(drop);
        for (client, text) in connect_errors(&format!("http://{address}")) {
            assert!(text.contains(&address.to_string()), "{client}: {text}");
        }
    });
}

#[test]
fn a_peer_that_says_nothing_is_given_up_at_the_connect_timeout() {
    within_limit(|| {
        let address = peer(drain);
        let began = Instant::now();
        for (client, text) in connect_errors(&format!("http://{address}")) {
            assert!(text.contains(&address.to_string()), "{client}: {text}");
        }
        // Three clients, two seconds each.
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(6) && took < Duration::from_secs(30), "{took:?}");
    });
}

#[test]
fn a_port_that_is_taken_is_told_with_its_address() {
    within_limit(|| {
        let lab = FulmarLab::start();
        let error = Server::builder().bind(lab.address).expect_err("somebody listens there").to_string();
        assert!(error.contains(&lab.address.to_string()), "{error}");
        // And it did no harm.
        let mut client = BlockingLabClient::connect(lab.uri()).expect("our server takes connections");
        assert_eq!(client.echo(Order::default()).expect("a reply").into_inner().number, 1);
    });
}

#[test]
fn garbage_from_a_client_ends_its_own_connection_only() {
    within_limit(|| {
        let lab = FulmarLab::start();
        let mut client = BlockingLabClient::connect(lab.uri()).expect("our server takes connections");
        assert_eq!(client.echo(Order::default()).expect("a reply").into_inner().number, 1);
        let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let garbage: [&[u8]; 4] = [
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            &[0; 100],
            &[0xff; 70_000],
            // A preface, and then not the SETTINGS that must follow (RFC 9113 §3.4).
            &[preface, &[0xff; 1_000]].concat(),
        ];
        for bytes in garbage {
            let mut stranger = TcpStream::connect(lab.address).expect("our server takes connections");
            stranger.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout above zero");
            drop(stranger.write_all(bytes)); // the server may hang up before it has read all
            let mut reply = Vec::new();
            match stranger.read_to_end(&mut reply) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server hangs up")
                }
            }
        }
        assert_eq!(client.echo(Order::default()).expect("the same connection").into_inner().number, 1);
    });
}

#[test]
fn a_call_after_shutdown_is_unavailable() {
    within_limit(|| {
        let lab = FulmarLab::start();
        let client =
            futures::executor::block_on(LabClient::connect(lab.uri())).expect("our server takes connections");
        let mut blocking = BlockingLabClient::connect(lab.uri()).expect("our server takes connections");
        futures::executor::block_on(client.echo(Order::default())).expect("a reply");
        blocking.echo(Order::default()).expect("a reply");
        lab.shut_down(Duration::from_secs(5));
        lab.join();
        let status = futures::executor::block_on(client.echo(Order::default())).expect_err("nobody is there");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let status = blocking.echo(Order::default()).expect_err("nobody is there");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    });
}

#[test]
fn a_blocking_call_in_a_handler_is_refused() {
    within_limit(|| {
        let lab = FulmarLab::start();
        let uri = lab.uri();
        let mut reactor = LocalReactor::new().expect("a reactor");
        let status: Status = reactor.block_on(async move {
            // On a reactor's thread, as a handler is.
            match BlockingLabClient::connect(&uri) {
                Ok(mut client) => {
                    client.echo(Order::default()).map(|_| ()).expect_err("it would stop the reactor")
                }
                Err(error) => error.into(),
            }
        });
        assert!(status.message().contains("reactor"), "{status}");
    });
}

#[test]
fn limits_of_a_server_are_its_own() {
    within_limit(|| {
        let lab = FulmarLab::start_with(Server::builder().receive_message_bytes_max(1_000));
        let mut client = BlockingLabClient::connect(lab.uri()).expect("our server takes connections");
        let order = |length: usize| Order { body: vec![1; length], ..Order::default() };
        let status = client.echo(order(1_000)).expect_err("the body alone is as long as the limit");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let answer: Answer = client.echo(order(900)).expect("below the limit").into_inner();
        assert_eq!(answer.body.len(), 900);

        let lab = FulmarLab::start_with(Server::builder().send_message_bytes_max(1_000));
        let mut client = BlockingLabClient::connect(lab.uri()).expect("our server takes connections");
        let status = client.echo(order(1_000)).expect_err("the reply is over the limit");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(client.echo(order(900)).expect("below the limit").into_inner().body.len(), 900);
    });
}
