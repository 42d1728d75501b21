//! Which calls take which way.

use fulmar::{Channel, Counts, LocalReactor, Raw, Server, ServerBuilder, Status};

use crate::common::{Demo, PATH_ECHO, PATH_HANG};
use crate::stage::poll_some;

/// What is in use while a call that never ends goes on, as the second of its channel.
fn counts_during_a_call(
    build: impl FnOnce(ServerBuilder) -> ServerBuilder,
    message: Raw,
) -> (Counts, Counts) {
    let mut reactor = LocalReactor::new().unwrap();
    let server = build(Server::builder().add_service(Demo::default())).without_listener().unwrap();
    let channel = reactor.serve(server).unwrap().in_process();
    let run = async |channel: &Channel| -> Result<(), Status> {
        channel.unary::<Raw, Raw>(PATH_ECHO, Raw::default()).await.map(|_| ())
    };
    reactor.block_on(run(&channel)).unwrap();
    let idle = reactor.counts();
    let mut call = Box::pin(channel.unary::<Raw, Raw>(PATH_HANG, message));
    assert!(reactor.block_on(poll_some(&mut call, 20)).is_pending());
    let during = reactor.counts();
    drop(call);
    reactor.block_on(run(&channel)).unwrap();
    assert_eq!(reactor.counts(), idle, "nothing is left of it");
    (during, idle)
}

#[test]
fn a_small_unary_call_has_no_stream() {
    let (during, idle) = counts_during_a_call(|builder| builder, Raw::from(vec![7; 1_000]));
    assert_eq!((during.streams, during.handlers, during.client_calls), (0, 1, 1));
    assert_eq!(during.connections, idle.connections);
}

#[test]
fn a_call_that_does_not_fit_takes_the_connection() {
    let (during, _) = counts_during_a_call(|builder| builder, Raw::from(vec![7; 100_000]));
    assert_eq!((during.streams, during.handlers, during.client_calls), (2, 1, 1), "it is large");
    let (during, _) = counts_during_a_call(|builder| builder.admit(|_| Ok(())), Raw::default());
    assert_eq!((during.streams, during.handlers, during.client_calls), (2, 1, 1), "somebody is asked");
}
