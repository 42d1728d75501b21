//! The code generated for names that clash, with Rust or with each other (`crates/build/tests/protos/clashes`), compiles
//! without a warning, and its methods go where their names of the `.proto` say: field case R73.

#![deny(warnings)]
// Nothing here is exported, so the first two would be about this file, not about the generated code. The third is not on by
// default, and prost does not write for it.
#![allow(dead_code, unreachable_pub, clippy::use_self)]

mod corpus {
    include!(concat!(env!("OUT_DIR"), "/clashes/mod.rs"));
}

use corpus::clashes::{service_names, well_known};
use fulmar::{Channel, Duplex, LocalReactor, Replies, Request, Response, Server, Status, Streaming};

/// The corpus, as it is compiled here.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../build/tests/protos/clashes");

/// What the case names is in the corpus; that it compiles is why this test runs at all.
#[test]
fn r73_the_corpus_has_every_name_of_the_case() -> Outcome {
    let mut corpus = String::new();
    for entry in std::fs::read_dir(CORPUS)? {
        corpus += &std::fs::read_to_string(entry?.path())?;
    }
    let rpcs = ["Connect", "New", "Clone", "Drop", "Call", "Self", "Type", "Async"];
    let rpcs = rpcs.map(|name| format!("rpc {name}("));
    let services = ["service Sync ", "service Send ", "service Echo { rpc Echo(echo)"];
    let others = ["package clashes.nested.type.async.v1;", "package clashes.nested.mod;", "oneof body {"];
    let empty = ["rpc Unary(google.protobuf.Empty) returns (google.protobuf.Empty)"];
    for wanted in rpcs.iter().map(String::as_str).chain(services).chain(others).chain(empty) {
        assert!(corpus.contains(wanted), "{wanted}");
    }
    Ok(())
}

/// Implements services whose names are also those of traits and types that the generated code needs.
struct Everything;

impl service_names::self_server::Self_ for Everything {
    async fn self_(
        &self,
        request: Request<service_names::Echo>,
    ) -> Result<Response<service_names::Echo>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

impl service_names::clone_server::Clone for Everything {
    async fn clone(
        &self,
        request: Request<service_names::Echo>,
    ) -> Result<Response<service_names::Echo>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

impl service_names::s_server::S for Everything {
    async fn s(
        &self,
        request: Request<service_names::Echo>,
    ) -> Result<Response<service_names::Echo>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

impl well_known::well_known_server::WellKnown for Everything {
    async fn unary(&self, _: Request<()>) -> Result<Response<()>, Status> {
        Ok(Response::new(()))
    }

    async fn server_streaming(
        &self,
        _: Request<()>,
        replies: &mut Replies<prost_types::Timestamp>,
    ) -> Result<(), Status> {
        replies.send(&prost_types::Timestamp { seconds: 7, nanos: 0 }).await
    }

    async fn client_streaming(
        &self,
        mut requests: Request<Streaming<prost_types::Any>>,
    ) -> Result<Response<()>, Status> {
        while requests.message().await?.is_some() {}
        Ok(Response::new(()))
    }

    async fn bidi(
        &self,
        mut requests: Request<Streaming<()>>,
        replies: &mut Replies<()>,
    ) -> Result<(), Status> {
        while requests.message().await?.is_some() {
            replies.send(&()).await?;
        }
        Ok(())
    }

    async fn texts(&self, request: Request<String>) -> Result<Response<Vec<u8>>, Status> {
        Ok(Response::new(request.into_inner().into_bytes()))
    }

    async fn numbers(&self, request: Request<i32>) -> Result<Response<f64>, Status> {
        Ok(Response::new(f64::from(request.into_inner())))
    }

    async fn flags(&self, request: Request<bool>) -> Result<Response<prost_types::Duration>, Status> {
        Ok(Response::new(prost_types::Duration { seconds: i64::from(request.into_inner()), nanos: 0 }))
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Serves all of them and polls `call` with a channel to them, on one thread.
fn with_channel(call: impl AsyncFnOnce(Channel) -> Outcome) -> Outcome {
    let server = Server::builder()
        .add_service(service_names::self_server::SelfServer::new(Everything))
        .add_service(service_names::clone_server::CloneServer::new(Everything))
        .add_service(service_names::s_server::SServer::new(Everything))
        .add_service(well_known::well_known_server::WellKnownServer::new(Everything))
        .bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;
    reactor.block_on(async { call(Channel::connect(endpoint).await?).await })
}

#[test]
fn r73_services_named_like_what_the_code_needs_are_called() -> Outcome {
    let echo = || service_names::Echo { content: Some(service_names::echo::Content::Text("here".into())) };
    with_channel(async |channel| {
        let client = service_names::self_client::SelfClient::new(channel.clone());
        assert_eq!(client.self_(echo()).await?.into_inner(), echo());
        let client = service_names::clone_client::CloneClient::new(channel.clone());
        // A client that can be cloned, with an rpc of that name.
        assert_eq!(client.clone().call_clone(echo()).await?.into_inner(), echo());
        let client = service_names::s_client::SClient::new(channel);
        assert_eq!(client.s(echo()).await?.into_inner(), echo());
        Ok(())
    })
}

#[test]
fn r73_well_known_types_travel_as_types_of_rust() -> Outcome {
    with_channel(async |channel| {
        let client = well_known::well_known_client::WellKnownClient::new(channel);
        client.unary(()).await?;
        assert_eq!(client.texts("text".to_owned()).await?.into_inner(), b"text");
        assert_eq!(client.numbers(-7).await?.into_inner(), -7.0);
        assert_eq!(client.flags(true).await?.into_inner().seconds, 1);

        let mut stamps = client.server_streaming(()).await?.into_inner();
        assert_eq!(stamps.message().await?.map(|stamp| stamp.seconds), Some(7));
        assert_eq!(stamps.message().await?, None);

        let mut upload = client.client_streaming(()).await?;
        upload.send(&prost_types::Any::default()).await?;
        upload.finish().await?;

        let Duplex { mut requests, mut replies } = client.bidi(()).await?;
        requests.send(&()).await?;
        assert_eq!(replies.message().await?, Some(()));
        requests.finish();
        assert_eq!(replies.message().await?, None);
        Ok(())
    })
}
