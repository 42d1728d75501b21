//! Credentials of calls: what they add arrives, and what they fail with is what credentials may fail with.

mod common;

use std::sync::Arc;

use common::{PATH_ECHO, block_on, number, serve_one};
use fulmar::{
    CallCredentials, CallInfo, Channel, Code, MetadataMap, Raw, Request, Response, Status, WithCredentials,
    blocking,
};

struct Token;

impl CallCredentials for Token {
    async fn add_to(&self, call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        let value = format!("for {}", call.method());
        metadata
            .insert_sensitive("authorization", &value)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

struct Fails(Code);

impl CallCredentials for Fails {
    async fn add_to(&self, _: &CallInfo, _: &mut MetadataMap) -> Result<(), Status> {
        Err(Status::new(self.0, "the keys are lost"))
    }
}

#[test]
fn what_credentials_add_arrives_and_is_sensitive() {
    let server = serve_one(|router| {
        router.unary(PATH_ECHO, &Arc::new(()), |_, request: Request<Raw>| async move {
            let value = request.metadata().get_value("authorization");
            let value = value.ok_or_else(|| Status::unauthenticated("nothing came"))?;
            assert!(value.is_sensitive());
            Ok(Response::new(Raw::from(value.as_wire().to_vec())))
        });
    });
    let builder = || {
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        Channel::builder(endpoint).intercept(WithCredentials(Token))
    };
    let channel = builder().build().unwrap();
    let reply = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(1))).unwrap();
    assert_eq!(reply.get_ref().as_ref(), b"for Echo");
    let mut channel = blocking::Channel::with(builder()).unwrap();
    let reply = channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).unwrap();
    assert_eq!(reply.get_ref().as_ref(), b"for Echo");
}

/// Wire rule 36.
#[test]
fn the_status_of_credentials_reaches_the_caller_if_it_is_one_for_credentials() {
    for code in Code::ALL {
        // No server: the call does not get that far.
        let builder = || Channel::builder("http://127.0.0.1:1").intercept(WithCredentials(Fails(code)));
        let channel = builder().build().unwrap();
        let unary = block_on(channel.unary::<Raw, Raw>(PATH_ECHO, number(1))).unwrap_err();
        let stream = block_on(channel.server_streaming::<Raw, Raw>(PATH_ECHO, number(1))).unwrap_err();
        for status in [unary, stream] {
            let is_kept = [1, 2, 4, 7, 8, 12, 13, 14, 16].contains(&code.as_i32());
            assert_eq!(status.code(), if is_kept { code } else { Code::Internal }, "{code}: {status}");
            assert!(status.message().contains("the keys are lost"), "{status}");
            assert!(is_kept || status.message().contains(code.name()), "the original is told: {status}");
        }
    }
}
