//! Resolvers of one's own: they are asked, their failures reach the caller, and their codes are those that a resolver may have.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{PATH_ECHO, block_on, number, serve, value};
use fulmar::{Channel, ChannelBuilder, Code, Raw, Status, blocking};

/// The status of a call, and that of a connect, of a channel whose resolver always fails in this way.
fn failures(build: impl Fn(ChannelBuilder) -> ChannelBuilder) -> Vec<Status> {
    let builder = || build(Channel::builder("http://shop.test:80"));
    let channel = builder().build().unwrap();
    let path = PATH_ECHO;
    let call = block_on(channel.unary::<Raw, Raw>(path, number(1))).unwrap_err();
    let stream = block_on(channel.server_streaming::<Raw, Raw>(path, number(1))).unwrap_err();
    let connect = block_on(builder().connect()).unwrap_err();
    let blocking = blocking::Channel::with(builder()).unwrap_err();
    vec![call, stream, connect.into(), blocking.into()]
}

#[test]
fn a_name_that_only_the_resolver_knows_is_connected_to() {
    let server = serve();
    let address = server.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let resolver = move |host: &str, port: u16| {
        count.fetch_add(1, Ordering::SeqCst);
        assert_eq!((host, port), ("shop.test", 7));
        // The first address leads nowhere: nobody listens at port 1 of the loopback.
        Ok::<_, Status>(vec![SocketAddr::from(([127, 0, 0, 1], 1)), address])
    };
    let builder = Channel::builder("http://shop.test:7").resolver(resolver);
    let channel = builder.clone().build().unwrap();
    for index in 0..3 {
        let reply = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(index))).unwrap();
        assert_eq!(value(reply.get_ref()), index);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "once for a connection");
    let mut channel = blocking::Channel::with(builder).unwrap();
    assert_eq!(value(channel.unary::<Raw, Raw>(PATH_ECHO, number(5)).unwrap().get_ref()), 5);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn literal_addresses_are_not_asked_for() {
    let server = serve();
    let resolver = |_: &str, _: u16| Err(Status::internal("nobody should ask"));
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let channel = Channel::builder(endpoint).resolver(resolver).build().unwrap();
    assert!(block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(1))).is_ok());
}

/// Wire rule 36: codes that only servers may give become INTERNAL with the original in the text, others reach the caller.
#[test]
fn the_status_of_a_resolver_reaches_the_caller_if_it_is_one_for_resolvers() {
    for code in Code::ALL {
        let resolver = move |_: &str, _: u16| Err(Status::new(code, "the directory is closed"));
        for status in failures(|builder| builder.resolver(resolver)) {
            let is_kept = [1, 2, 4, 7, 8, 12, 13, 14, 16].contains(&code.as_i32());
            assert_eq!(status.code(), if is_kept { code } else { Code::Internal }, "{code}: {status}");
            for part in ["shop.test", "the directory is closed"] {
                assert!(status.message().contains(part), "{status}");
            }
            assert!(is_kept || status.message().contains(code.name()), "the original is told: {status}");
        }
    }
}

#[test]
fn a_resolver_without_an_address_is_unavailable() {
    for status in failures(|builder| builder.resolver(|_: &str, _: u16| Ok(Vec::new()))) {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("no address"), "{status}");
    }
}

#[test]
fn a_resolver_that_panics_fails_the_calls_that_wait_for_it() {
    let resolver = |_: &str, _: u16| std::panic::resume_unwind(Box::new("lost the book"));
    for status in failures(|builder| builder.resolver(resolver)) {
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(status.message().contains("lost the book"), "{status}");
    }
}
