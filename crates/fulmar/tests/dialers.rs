//! Connections that the user makes, whenever a channel wants one.

mod common;

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATH_ECHO, block_on, eventually, number, value};
use fulmar::{
    Backoff, Channel, ChannelBuilder, Code, ConnectivityState, LocalReactor, Raw, Request, Status, blocking,
};

const LONG: Duration = Duration::from_secs(20);

fn quickly() -> Backoff {
    Backoff { initial: Duration::from_millis(20), max: Duration::from_millis(100), ..Backoff::default() }
}

fn request() -> Request<Raw> {
    Request::new(number(7)).with_timeout(LONG)
}

fn call(channel: &Channel) -> Result<u64, Status> {
    block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request())).map(|reply| value(reply.get_ref()))
}

/// Settings of a channel that is connected to a server of the test's, and how often it was.
fn dialled(server: &fulmar::RunningServer) -> (ChannelBuilder, Arc<AtomicUsize>) {
    let (address, dials) = (server.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = dials.clone();
    let dial = move || {
        count.fetch_add(1, Ordering::SeqCst);
        TcpStream::connect(address)
    };
    // Nobody is at this address: it is only what the server is called.
    (Channel::builder("http://greeter.invalid:1").dialer(dial).backoff(quickly()), dials)
}

#[test]
fn channels_of_each_kind_connect_by_it_and_connect_again() {
    let server = common::serve();
    let (settings, dials) = dialled(&server);
    let channel = settings.clone().build().unwrap();
    let mut blocking = blocking::Channel::lazy(settings.clone()).unwrap();
    let mut local = LocalReactor::new().unwrap();
    assert_eq!(dials.load(Ordering::SeqCst), 0, "nobody has called");
    assert_eq!(call(&channel).unwrap(), 7);
    assert_eq!(call(&channel).unwrap(), 7);
    assert_eq!(
        blocking.unary::<Raw, Raw>(PATH_ECHO, request()).map(|reply| value(reply.get_ref())).unwrap(),
        7
    );
    local.block_on(channel.unary::<Raw, Raw>(PATH_ECHO, request())).unwrap();
    assert_eq!(dials.load(Ordering::SeqCst), 3, "one for each reactor that the channel is used on, and one");

    // What its connection hears it would only hear while it runs.
    drop(local);

    let address = server.local_addr().unwrap();
    server.shutdown(Duration::ZERO).unwrap();
    eventually("the connection is lost", || channel.state() != ConnectivityState::Ready);
    let server = fulmar::Server::builder().reactors(1).add_service(common::Demo::default());
    let _server = server.bind(address).unwrap().spawn().unwrap();
    let waiting = || request().with_wait_for_ready(true);
    block_on(channel.unary::<Raw, Raw>(PATH_ECHO, waiting())).unwrap();
    blocking.unary::<Raw, Raw>(PATH_ECHO, waiting()).unwrap();
    assert!(dials.load(Ordering::SeqCst) >= 5);
}

#[test]
fn what_it_fails_with_is_told_with_the_server_and_the_kind() {
    let dial =
        || Err::<TcpStream, _>(io::Error::new(io::ErrorKind::PermissionDenied, "the proxy wants a password"));
    let panics = || -> io::Result<TcpStream> { panic!("out of order") };
    let named = Channel::builder("http://greeter:1").backoff(quickly());
    for (settings, said) in
        [(named.clone().dialer(dial), "the proxy wants a password"), (named.dialer(panics), "out of order")]
    {
        let channel = settings.clone().build().unwrap();
        let mut blocking = blocking::Channel::lazy(settings).unwrap();
        let statuses =
            [call(&channel).unwrap_err(), blocking.unary::<Raw, Raw>(PATH_ECHO, request()).unwrap_err()];
        for status in statuses {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().contains("http://greeter:1"), "{status}");
            assert!(status.message().contains(said), "{status}");
        }
        assert_eq!(channel.state(), ConnectivityState::TransientFailure);
    }
}

#[test]
fn one_that_takes_too_long_is_given_up_and_what_it_brings_late_serves_the_next_attempt_or_is_closed() {
    let server = common::serve();
    let address = server.local_addr().unwrap();
    let slow = move || {
        thread::sleep(Duration::from_millis(500));
        TcpStream::connect(address)
    };
    let settings = Channel::builder("http://greeter:1").dialer(slow).backoff(quickly());
    let channel = settings.connect_timeout(Duration::from_millis(100)).build().unwrap();
    let began = Instant::now();
    let status = call(&channel).unwrap_err();
    assert!(status.message().contains("the dialer has made no connection in time"), "{status}");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    // Attempts follow each other all the time, so that one of them finds a connection.
    eventually("it is ready", || channel.state() == ConnectivityState::Ready);
    assert_eq!(call(&channel).unwrap(), 7);
    drop(channel);
    eventually("nothing is left", || server.handle().counts().is_some_and(|counts| counts.connections == 0));
}
