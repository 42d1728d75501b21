//! What a reactor's host does with letters that cross each other.

use std::io::{Read, Write};

use super::*;
use crate::call::CallCell;
use crate::{Channel, Server};

const LONG: Duration = Duration::from_secs(20);

fn reactor() -> RoofReactor {
    Reactor::new(fulmar_reactor::ReactorConfig::default(), |core| RoofHost::new(core)).unwrap()
}

fn served(reactor: &mut RoofReactor) -> Arc<ServerShared> {
    let (shared, _) = Server::builder().without_listener().unwrap().into_parts();
    let (host, core) = reactor.parts();
    host.serve(core, &shared, None, true).unwrap();
    shared
}

#[test]
fn a_connection_that_arrives_behind_the_shutdown_does_not_hold_the_server() {
    let mut reactor = reactor();
    let shared = served(&mut reactor);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, peer) = listener.accept().unwrap();

    // As the reactor with the listener does it: counted first, then sent.
    shared.least_loaded().unwrap().count();
    let arrival = Arrival { server: shared.id, socket: Socket::from(accepted), peer };
    let (host, core) = reactor.parts();
    host.on_letter(core, Letter::Shutdown { server: shared.id, grace: LONG });
    assert!(!shared.wait_ended(Duration::ZERO), "one is on its way");
    host.on_letter(core, Letter::Arrived(arrival));
    assert!(shared.wait_ended(Duration::ZERO));
    drop(client);
}

#[test]
fn a_pipe_for_a_channel_that_is_gone_does_not_hold_the_server() {
    let mut reactor = reactor();
    let shared = served(&mut reactor);
    let spec = Arc::new(ChannelSpec::new(1, Place::InProcess(shared.clone()), Default::default()));
    let (host, core) = reactor.parts();
    host.on_letter(core, Letter::OpenPipe { spec, server: shared.clone() });
    host.on_letter(core, Letter::Shutdown { server: shared.id, grace: LONG });
    assert!(shared.wait_ended(Duration::ZERO));
}

#[test]
fn a_channel_forgets_the_reactors_that_have_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let channel = Channel::builder(format!("http://{}", listener.local_addr().unwrap())).build().unwrap();
    for _ in 0..3 {
        let mut reactor = reactor();
        let (host, core) = reactor.parts();
        let pending = PendingCall::probe(Arc::new(CallCell::default()));
        host.on_letter(core, Letter::Start { spec: channel.spec().clone(), pending });
        assert_eq!(channel.spec().visitors(), 1);
    }
    assert_eq!(channel.spec().visitors(), 0);
}

/// Turns until the cell's call has ended, and returns its status.
fn end_of(reactor: &mut RoofReactor, cell: &CallCell) -> fulmar_grpc::Status {
    let until = std::time::Instant::now() + LONG;
    loop {
        if let Some(status) = cell.lock().status.clone() {
            return status;
        }
        assert!(std::time::Instant::now() < until, "the call does not end");
        reactor.turn(Some(Duration::from_millis(100))).unwrap();
    }
}

#[test]
fn each_address_is_tried_until_one_speaks_http_2() {
    // One refuses, one ends the connection, one speaks something else, one says nothing; then there is a server.
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let [ending, foreign, silent] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses =
        [refusing, ending.local_addr().unwrap(), foreign.local_addr().unwrap(), silent.local_addr().unwrap()];
    std::thread::spawn(move || while ending.accept().is_ok() {});
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = foreign.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.read(&mut [0; 1_024]);
        }
    });
    let server = Server::builder().bind("127.0.0.1:0").unwrap();
    let serving = server.local_addr().unwrap();

    let mut reactor = reactor();
    let (shared, listener) = server.into_parts();
    let (host, core) = reactor.parts();
    host.serve(core, &shared, listener, false).unwrap();
    for (addresses, expected) in [
        (&[&addresses[..], &[serving]].concat(), fulmar_grpc::Code::Ok),
        (&addresses[..].to_vec(), fulmar_grpc::Code::Unavailable),
    ] {
        let channel = Channel::builder("http://no-such-host.invalid:1")
            .connect_timeout(Duration::from_millis(500))
            .build()
            .unwrap();
        let cell = Arc::new(CallCell::default());
        let (host, core) = reactor.parts();
        let start = Letter::Start { spec: channel.spec().clone(), pending: PendingCall::probe(cell.clone()) };
        host.on_letter(core, start);
        let resolved = Ok(addresses.clone());
        host.on_letter(core, Letter::Resolved { channel: channel.spec().id, resolved });
        let status = end_of(&mut reactor, &cell);
        assert_eq!(status.code(), expected, "{status}");
    }
}
