//! Unix domain sockets, and connections and listeners that are handed in.
#![cfg(unix)]

mod common;

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{PATH_ECHO, block_on, number, serve_one, value};
use fulmar::{
    Address, Channel, ClientReactor, Code, Interceptor, LocalReactor, Raw, Request, Response, RunningServer,
    Server, ServerBuilder, SocketOptions, Status, UnixName, blocking,
};

const PATH_WHO: &str = "/demo.One/Who";

/// A directory of a test's own, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fulmar-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    fn target(&self) -> String {
        format!("unix:{}", self.socket().display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn demo() -> ServerBuilder {
    Server::builder().reactors(2).add_service(common::Demo::default())
}

fn call(channel: &Channel) -> Result<u64, Status> {
    block_on(async {
        let reply: Response<Raw> = channel.unary(PATH_ECHO, number(7)).await?;
        Ok(value(reply.get_ref()))
    })
}

fn connect(target: &str) -> Channel {
    block_on(Channel::connect(target)).unwrap()
}

#[test]
fn calls_of_all_clients_cross_a_unix_socket_whose_file_goes_with_the_server() {
    let directory = Directory::new("all");
    let server = demo().bind(directory.target()).unwrap().spawn().unwrap();
    assert_eq!(server.endpoint(), directory.target());
    assert_eq!(server.local_addr(), None);
    assert_eq!(server.local_addresses(), [Address::Unix(UnixName::from(directory.socket()))]);

    assert_eq!(call(&connect(&directory.target())).unwrap(), 7);
    assert_eq!(call(&connect(&format!("unix://{}", directory.socket().display()))).unwrap(), 7);
    let mut blocking = blocking::Channel::connect(directory.target()).unwrap();
    for index in 0..3 {
        let reply: Response<Raw> = blocking.unary(PATH_ECHO, number(index)).unwrap();
        assert_eq!(value(reply.get_ref()), index);
    }
    let mut reactor = LocalReactor::new().unwrap();
    let reply = reactor.block_on(async {
        let channel = Channel::connect(directory.target()).await.unwrap();
        channel.unary::<Raw, Raw>(PATH_ECHO, number(9)).await.unwrap()
    });
    assert_eq!(value(reply.get_ref()), 9);
    drop(blocking);
    server.shutdown(Duration::ZERO).unwrap();
    assert!(!directory.socket().exists());
    let error = block_on(Channel::connect(directory.target())).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn a_server_takes_the_place_of_one_that_was_killed_and_of_none_that_lives() {
    let directory = Directory::new("stale");
    drop(UnixListener::bind(directory.socket()).unwrap());
    let server = demo().bind(directory.target()).unwrap().spawn().unwrap();
    assert_eq!(call(&connect(&directory.target())).unwrap(), 7);
    let error = demo().bind(directory.target()).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::AddrInUse));
    assert!(error.to_string().contains(&directory.target()), "{error}");
    assert_eq!(call(&connect(&directory.target())).unwrap(), 7, "the server is still there");
    drop(server);
}

#[test]
fn a_server_listens_in_several_places_at_once() {
    let directory = Directory::new("several");
    let unix = UnixListener::bind(directory.socket()).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = demo().listener(tcp).listener(unix).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let targets: Vec<String> = server
        .local_addresses()
        .iter()
        .map(|address| match address {
            Address::Ip(address) => format!("http://{address}"),
            unix => unix.to_string(),
        })
        .collect();
    assert_eq!(targets.len(), 3);
    assert_eq!(server.endpoint(), targets[0]);
    for target in &targets {
        assert_eq!(call(&connect(target)).unwrap(), 7, "{target}");
    }
    server.shutdown(Duration::ZERO).unwrap();
    assert!(directory.socket().exists(), "whoever has bound a path removes it");
    for target in &targets {
        assert!(block_on(Channel::connect(target)).is_err(), "{target}");
    }
}

/// Serves a method that says who calls.
fn serve_who(build: impl FnOnce(ServerBuilder) -> Server) -> RunningServer {
    let service = common::One {
        register: |router: &mut fulmar::Router| {
            router.unary(PATH_WHO, &Arc::new(()), |_, request: Request<Raw>| async move {
                Ok(Response::new(Raw::from(format!("{:?}", request.peer().unix_credentials()).into_bytes())))
            });
        },
    };
    build(Server::builder().reactors(1).add_service(service)).spawn().unwrap()
}

fn who(channel: &Channel) -> Result<String, Status> {
    let reply: Response<Raw> = block_on(channel.unary(PATH_WHO, Raw::default()))?;
    Ok(String::from_utf8(reply.into_inner().as_ref().to_vec()).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn handlers_interceptors_and_doors_know_the_process_at_the_other_end() {
    struct OnlyThisProcess;
    impl Interceptor for OnlyThisProcess {
        async fn on_call(&self, call: &mut fulmar::CallHead) -> Result<(), Status> {
            let credentials = call.peer().unix_credentials();
            match credentials.is_some_and(|credentials| credentials.pid == std::process::id() as i32) {
                true => Ok(()),
                false => Err(Status::permission_denied("another process")),
            }
        }
    }
    let directory = Directory::new("who");
    let server = serve_who(|builder| {
        builder
            .admit_connections(|peer| peer.unix_credentials().is_some() && peer.address().is_none())
            .admit(|request| match request.peer().local() {
                Some(Address::Unix(UnixName::Path(_))) => Ok(()),
                other => Err(Status::permission_denied(format!("{other:?}"))),
            })
            .intercept(OnlyThisProcess)
            .listener(TcpListener::bind("127.0.0.1:0").unwrap())
            .bind(directory.target())
            .unwrap()
    });
    let credentials = who(&connect(&directory.target())).unwrap();
    assert!(credentials.contains(&format!("pid: {}", std::process::id())), "{credentials}");
    assert!(block_on(Channel::connect(server.endpoint())).is_err(), "TCP has no credentials");
    let status = who(&server.in_process()).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[test]
fn handlers_know_both_addresses_of_a_tcp_connection() {
    let server = serve_one(|router| {
        router.unary("/demo.One/Where", &Arc::new(()), |_, request: Request<Raw>| async move {
            let peer = request.peer();
            let text = format!("{} {}", peer.address().unwrap(), peer.local_address().unwrap());
            assert_eq!(peer.to_string(), peer.address().unwrap().to_string());
            Ok(Response::new(Raw::from(text.into_bytes())))
        });
    });
    let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let expected = format!("{} {}", stream.local_addr().unwrap(), server.local_addr().unwrap());
    let channel = Channel::builder("http://greeter").connected(stream).build().unwrap();
    let reply: Response<Raw> = block_on(channel.unary("/demo.One/Where", Raw::default())).unwrap();
    assert_eq!(reply.get_ref().as_ref(), expected.as_bytes());
}

#[test]
fn a_pair_of_sockets_joins_a_channel_of_each_kind_to_a_server_without_a_listener() {
    let server = demo().without_listener().unwrap().spawn().unwrap();
    let join = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.handle().serve(theirs).unwrap();
        ours
    };
    let mut blocking = blocking::Channel::with(Channel::builder("pair").connected(join())).unwrap();
    let reply: Response<Raw> = blocking.unary(PATH_ECHO, number(1)).unwrap();
    assert_eq!(value(reply.get_ref()), 1);

    let reactor = ClientReactor::start().unwrap();
    let channel = Channel::builder("pair").connected(join()).reactor(&reactor).build().unwrap();
    assert_eq!(call(&channel).unwrap(), 7);
    // From another reactor the call goes to the one that has the connection.
    let mut local = LocalReactor::new().unwrap();
    let reply = local.block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(2))).unwrap();
    assert_eq!(value(reply.get_ref()), 2);

    let channel = Channel::builder("pair").connected(join()).build().unwrap();
    let reply = local.block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(3))).unwrap();
    assert_eq!(value(reply.get_ref()), 3);
    assert_eq!(local.counts().connections, 1, "the first caller's reactor has it");
}

#[test]
fn a_connection_that_was_handed_in_stays_where_it_was_made_first() {
    let server = demo().without_listener().unwrap().spawn().unwrap();
    let join = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.handle().serve(theirs).unwrap();
        Channel::builder("pair").connected(ours).build().unwrap()
    };
    let mut local = LocalReactor::new().unwrap();

    // Made from no reactor: on the channel's own.
    let channel = join();
    channel.connect_now();
    let reply = local.block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(1))).unwrap();
    assert_eq!(value(reply.get_ref()), 1);
    assert_eq!(call(&channel).unwrap(), 7);
    assert_eq!(local.counts().connections, 0);

    // Promised to the reactor of this thread, and asked for from another one before it is there.
    let channel = join();
    local.block_on(async {
        channel.connect_now();
        thread::scope(|scope| scope.spawn(|| channel.connect_now()).join()).unwrap();
    });
    let reply = local.block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(2))).unwrap();
    assert_eq!(value(reply.get_ref()), 2);
    assert_eq!(local.counts().connections, 1);
}

#[test]
fn a_channel_that_was_handed_its_connection_says_when_it_is_over() {
    let server = demo().without_listener().unwrap().spawn().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.handle().serve(theirs).unwrap();
    let settings = Channel::builder("pair").connected(ours);
    let channel = settings.clone().build().unwrap();
    let error = settings.build().unwrap_err();
    assert!(error.to_string().contains("handed in"), "only the first gets it: {error}");
    assert_eq!(call(&channel).unwrap(), 7);
    server.shutdown(Duration::ZERO).unwrap();
    let status = call(&channel).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(call(&channel).unwrap_err().message().contains("handed in"));
}

#[test]
fn sockets_that_are_of_no_use_are_refused_where_they_are_handed_in() {
    let server = demo()
        .admit_connections(|peer| peer.address().is_some())
        .without_listener()
        .unwrap()
        .spawn()
        .unwrap();
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let error = server.handle().serve(theirs).unwrap_err();
    assert!(error.to_string().contains("does not admit"), "{error}");
    let unconnected = || {
        let stream = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        TcpStream::from(stream)
    };
    assert!(server.handle().serve(unconnected()).is_err());
    assert!(Channel::builder("nobody").connected(unconnected()).build().is_err());
    let handle = server.handle();
    server.shutdown(Duration::ZERO).unwrap();
    let (_ours, theirs) = UnixStream::pair().unwrap();
    assert!(handle.serve(theirs).is_err(), "it has ended");
}

#[test]
fn options_are_set_on_what_is_handed_in_and_what_is_dialled() {
    let tos = |class| SocketOptions { type_of_service: Some(class), ..SocketOptions::default() };
    let class = |socket: &TcpStream| socket2::SockRef::from(socket).tos_v4().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let same = listener.try_clone().unwrap();
    let server = demo().socket_options(tos(0x20)).listener(listener).build().unwrap();
    assert_eq!(socket2::SockRef::from(&same).tos_v4().unwrap(), 0x20);
    let server = server.spawn().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.try_clone().unwrap();
    drop(demo().socket_options(tos(0x20)).listener(listener).bind("127.0.0.1:0").unwrap());
    assert_eq!(socket2::SockRef::from(&other).tos_v4().unwrap(), 0x20, "beside one that is bound here");

    let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let same = stream.try_clone().unwrap();
    let settings = Channel::builder("http://greeter").socket_options(tos(0x40)).connected(stream);
    assert_eq!(call(&settings.build().unwrap()).unwrap(), 7);
    assert!(same.nodelay().unwrap());
    assert_eq!(class(&same), 0x40);

    let missing = SocketOptions { device: Some("no-such-0".to_owned()), ..SocketOptions::default() };
    let channel = Channel::builder(server.endpoint()).socket_options(missing.clone()).build().unwrap();
    assert_eq!(call(&channel).unwrap_err().code(), Code::Unavailable);
    assert!(demo().socket_options(missing).bind("127.0.0.1:0").is_err());
}

/// gRFC A18: the timeout of a keepalive is also that of what was sent and not acknowledged.
#[cfg(target_os = "linux")]
#[test]
fn the_timeout_of_a_keepalive_is_that_of_a_socket_that_the_user_has_given_none() {
    let keepalive = fulmar::Keepalive {
        time: Duration::from_secs(60),
        timeout: Duration::from_secs(20),
        without_calls: false,
    };
    for (user_timeout, expected) in [(None, 20), (Some(Duration::from_secs(30)), 30)] {
        let options = SocketOptions { user_timeout, ..SocketOptions::default() };
        let server = demo().keepalive(keepalive).socket_options(options);
        let server = server.without_listener().unwrap().spawn().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let same = accepted.try_clone().unwrap();
        server.handle().serve(accepted).unwrap();
        let set = socket2::SockRef::from(&same).tcp_user_timeout().unwrap();
        assert_eq!(set, Some(Duration::from_secs(expected)));

        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let same = ours.try_clone().unwrap();
        let options = SocketOptions { user_timeout, ..SocketOptions::default() };
        let settings = Channel::builder("http://greeter").keepalive(keepalive).socket_options(options);
        let _channel = settings.connected(ours).build().unwrap();
        let set = socket2::SockRef::from(&same).tcp_user_timeout().unwrap();
        assert_eq!(set, Some(Duration::from_secs(expected)), "a client's");
    }
}
