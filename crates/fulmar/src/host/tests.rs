//! What a reactor's host does with letters that cross each other.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::call::CallCell;
use crate::direct::InProcess;
use crate::{Channel, Server};

mod resting;

const LONG: Duration = Duration::from_secs(20);

fn reactor() -> RoofReactor {
    Reactor::new(fulmar_reactor::ReactorConfig::default(), |core| RoofHost::new(core)).unwrap()
}

fn served(reactor: &mut RoofReactor) -> Arc<ServerShared> {
    let (shared, _) = Server::builder().without_listener().unwrap().into_parts();
    let (host, core) = reactor.parts();
    host.serve(core, &shared, Vec::new(), true).unwrap();
    shared
}

#[test]
fn a_connection_that_arrives_behind_the_shutdown_does_not_hold_the_server() {
    let mut reactor = reactor();
    let shared = served(&mut reactor);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();

    // As the reactor with the listener does it: counted first, then sent.
    shared.least_loaded().unwrap().count();
    let arrival = Arrival { server: shared.id, socket: Socket::from(accepted), peer: Peer::default() };
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
    let spec =
        Arc::new(ChannelSpec::new(1, Place::InProcess(InProcess::new(shared.clone())), Default::default()));
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

#[test]
fn a_deadline_holds_from_address_to_address() {
    let [ending, silent] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [&ending, &silent].map(|listener| listener.local_addr().unwrap()).to_vec();
    let mut reactor = reactor();
    let channel = Channel::builder("http://no-such-host.invalid:1").build().unwrap();
    let spec = channel.spec();
    let start = |pending| Letter::Start { spec: spec.clone(), pending };
    let (host, core) = reactor.parts();
    host.on_letter(core, start(PendingCall::probe(Arc::default())));
    host.on_letter(core, Letter::Resolved { channel: spec.id, resolved: Ok(addresses) });
    let (stream, _) = ending.accept().unwrap();
    for _ in 0..10 {
        reactor.turn(Some(Duration::from_millis(1))).unwrap();
    }
    let cell = Arc::new(CallCell::default());
    let deadline = fulmar_reactor::clock() + Duration::from_millis(100);
    cell.lock().deadline = Some(deadline);
    let (host, core) = reactor.parts();
    host.on_letter(core, start(PendingCall::call(cell.clone())));
    assert_eq!(host.channels().armed_deadline(spec.id), Some(deadline));
    let first = core.keys();
    drop(stream);
    while reactor.core().keys() == first {
        reactor.turn(Some(Duration::from_millis(1))).unwrap();
    }
    let armed = reactor.host().channels().armed_deadline(spec.id);
    assert_eq!(armed, Some(deadline), "while the next address is dialled");
    assert_eq!(end_of(&mut reactor, &cell).code(), fulmar_grpc::Code::DeadlineExceeded);
}

/// Answers each message with itself, and never ends by itself.
struct Echo(Arc<()>);

impl crate::Service for Echo {
    fn name(&self) -> &'static str {
        "demo.Echo"
    }

    fn register(&self, router: &mut Router) {
        use crate::{Raw, Replies, Request, Streaming};
        router.bidi(
            "/demo.Echo/Echo",
            &self.0,
            |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                while let Some(message) = requests.message().await? {
                    replies.send(&message).await?;
                }
                std::future::pending::<()>().await;
                Ok::<(), fulmar_grpc::Status>(())
            },
        );
    }
}

#[test]
fn nothing_is_held_for_calls_that_were_given_up() {
    let mut reactor = reactor();
    let server = Server::builder().add_service(Echo(Arc::default())).without_listener().unwrap();
    let (shared, _) = server.into_parts();
    let (host, core) = reactor.parts();
    host.serve(core, &shared, Vec::new(), false).unwrap();
    let channel = Channel::new(Place::InProcess(InProcess::new(shared)), Default::default(), None);

    let _running = Running::enter(reactor.core().mailbox());
    reactor.block_on(async {
        for turn in 0..24 {
            let mut call = channel.bidi::<crate::Raw, crate::Raw>("/demo.Echo/Echo", ()).await.unwrap();
            // Of several frames each, so that they are put together in blocks.
            let large = crate::Raw::from(vec![7; 50_000]);
            for _ in 0..1 + turn % 3 {
                call.requests.send(&large).await.unwrap();
                if turn % 2 == 0 {
                    assert!(call.replies.message().await.unwrap().is_some());
                }
            }
            match turn % 4 {
                0 => call.requests.finish(),
                1 => drop(call.replies),
                _ => drop(call),
            }
        }
    });
    let connections = |reactor: &mut RoofReactor| {
        let core = reactor.core();
        core.keys().into_iter().fold((0, 0), |(ends, calls), key| match core.transport(key) {
            Some(RoofTransport::Client(wire)) => {
                (ends + 1, calls + wire.endpoint().awake().map_or(0, ClientEndpoint::calls))
            }
            Some(RoofTransport::Server(wire)) => {
                (ends + 1, calls + wire.endpoint().awake().map_or(0, ServerEndpoint::calls))
            }
            None => (ends, calls),
        })
    };
    for _ in 0..100 {
        reactor.turn(Some(Duration::ZERO)).unwrap();
    }
    assert_eq!(connections(&mut reactor), (2, 0), "both ends of the pipe, and no call");
    assert_eq!(reactor.core().pool().held_bytes(), 0);
    assert_eq!(reactor.core().pool().outstanding(), 0);
}

#[cfg(feature = "_tls")]
#[test]
fn field_case_r54_a_reactor_with_half_done_handshakes_sleeps() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = crate::tls::ServerTls::from_pem(own.cert.pem(), own.signing_key.serialize_pem()).unwrap();
    let server = Server::builder().tls(tls).bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let mut reactor = reactor();
    let (shared, listener) = server.into_parts();
    let (host, core) = reactor.parts();
    host.serve(core, &shared, listener, true).unwrap();

    // A record of the handshake that is not all there (RFC 8446 §5.1), and a whole one with the begin of a message.
    let part_of_a_record = [&[22, 3, 1, 1, 244][..], &[1; 100]].concat();
    let part_of_a_message = [&[22, 3, 1, 0, 100, 1, 0, 3, 232, 3, 3][..], &[7; 94]].concat();
    let says = [&[][..], &[22], &part_of_a_record, &part_of_a_message];
    let peers: Vec<_> = says
        .iter()
        .map(|bytes| {
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            peer.write_all(bytes).unwrap();
            peer
        })
        .collect();
    let started = std::time::Instant::now();
    while reactor.core().connections() < peers.len() {
        assert!(started.elapsed() < LONG, "the connections are not accepted");
        reactor.turn(Some(Duration::from_millis(10))).unwrap();
    }
    for _ in 0..100 {
        reactor.turn(Some(Duration::ZERO)).unwrap();
    }
    // What has nothing to do waits out the time that it is given.
    let (started, mut turns) = (std::time::Instant::now(), 0);
    while started.elapsed() < Duration::from_millis(300) {
        reactor.turn(Some(Duration::from_millis(100))).unwrap();
        turns += 1;
    }
    assert!(turns <= 10, "{turns} turns in 300 ms, with nothing to do");
    assert_eq!(reactor.core().connections(), peers.len(), "they may still go on");
}
