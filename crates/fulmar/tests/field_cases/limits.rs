//! R78: the limits on messages hold in every kind of call, in both directions, at both ends, and say so.

use std::sync::Arc;

use fulmar::{
    Channel, ChannelBuilder, Code, Duplex, Raw, Replies, Request, Response, Router, RunningServer, Server,
    ServerBuilder, Status, Streaming, Upload, blocking,
};

use crate::common::encodings::RunLength;
use crate::common::{One, block_on};

const LIMIT: usize = 1_000;
const KINDS: [&str; 4] = ["Unary", "Upload", "Download", "Chat"];

/// A message of so many bytes that asks for a reply of so many.
fn question(bytes: usize, reply_bytes: usize) -> Raw {
    let mut message = (reply_bytes as u32).to_be_bytes().to_vec();
    message.resize(bytes, b'q');
    Raw::from(message)
}

/// The reply that a message asks for.
fn reply(question: &Raw) -> Raw {
    let bytes = question.as_ref().first_chunk().copied().map_or(0, u32::from_be_bytes);
    Raw::from(vec![b'r'; bytes as usize])
}

fn register(router: &mut Router) {
    let service = Arc::new(());
    router.unary("/demo.One/Unary", &service, |_, request: Request<Raw>| async move {
        Ok(Response::new(reply(request.get_ref())))
    });
    router.client_streaming(
        "/demo.One/Upload",
        &service,
        |_, mut requests: Request<Streaming<Raw>>| async move {
            let mut last = Raw::default();
            while let Some(message) = requests.message().await? {
                last = message;
            }
            Ok(Response::new(reply(&last)))
        },
    );
    let download = |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
        replies.send(&reply(request.get_ref())).await
    };
    router.server_streaming("/demo.One/Download", &service, download);
    let chat = |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
        while let Some(message) = requests.message().await? {
            replies.send(&reply(&message)).await?;
        }
        Ok(())
    };
    router.bidi("/demo.One/Chat", &service, chat);
    router.unary("/demo.One/Peer", &service, |_, request: Request<Raw>| async move {
        let peer = request.peer().address().map(|address| address.to_string());
        Ok(Response::new(Raw::from(peer.unwrap_or_default().into_bytes())))
    });
}

fn serve(build: impl FnOnce(ServerBuilder) -> ServerBuilder) -> RunningServer {
    let server = build(Server::builder().reactors(1).ping_policy(None)).add_service(One { register });
    server.bind("127.0.0.1:0").unwrap().spawn().unwrap()
}

/// A client that makes calls of any kind, one message each way.
trait Client {
    fn call(&mut self, kind: &str, question: Raw) -> Result<Raw, Status>;
}

impl Client for Channel {
    fn call(&mut self, kind: &str, question: Raw) -> Result<Raw, Status> {
        let path = format!("/demo.One/{kind}");
        block_on(async {
            match kind {
                "Upload" => {
                    let mut upload: Upload<Raw, Raw> = self.client_streaming(&path, ()).await?;
                    upload.send(&question).await?;
                    Ok(upload.finish().await?.into_inner())
                }
                "Download" => {
                    let replies = self.server_streaming::<Raw, Raw>(&path, question).await?;
                    only(replies.into_inner()).await
                }
                "Chat" => {
                    let Duplex { mut requests, replies } = self.bidi::<Raw, Raw>(&path, ()).await?;
                    requests.send(&question).await?;
                    requests.finish();
                    only(replies).await
                }
                _ => Ok(self.unary::<Raw, Raw>(&path, question).await?.into_inner()),
            }
        })
    }
}

/// The one message of a stream that ends well.
async fn only(mut replies: Streaming<Raw>) -> Result<Raw, Status> {
    let reply = replies.message().await?.unwrap_or_default();
    assert!(replies.message().await?.is_none());
    Ok(reply)
}

impl Client for blocking::Channel {
    fn call(&mut self, kind: &str, question: Raw) -> Result<Raw, Status> {
        let path = format!("/demo.One/{kind}");
        match kind {
            "Upload" => {
                let mut upload = self.client_streaming::<Raw, Raw>(&path, ())?;
                upload.send(&question)?;
                Ok(upload.finish()?.into_inner())
            }
            "Download" => {
                let replies = self.server_streaming::<Raw, Raw>(&path, question)?;
                replies.into_inner().next().unwrap_or_else(|| Ok(Raw::default()))
            }
            "Chat" => {
                let mut chat = self.bidi::<Raw, Raw>(&path, ())?;
                chat.send(&question)?;
                chat.finish_sending();
                Ok(chat.message()?.unwrap_or_default())
            }
            _ => Ok(self.unary::<Raw, Raw>(&path, question)?.into_inner()),
        }
    }
}

/// Runs a test with a client of each kind.
fn with_each_client(
    server: &RunningServer,
    build: impl Fn(ChannelBuilder) -> ChannelBuilder,
    test: impl Fn(&mut dyn Client),
) {
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    test(&mut build(Channel::builder(&endpoint)).build().unwrap());
    test(&mut blocking::Channel::with(build(blocking::Channel::builder(&endpoint))).unwrap());
}

/// What passes with these lengths of question and reply at the limit fails one byte above it, in every kind of call, and the
/// connection goes on.
fn assert_limit(client: &mut dyn Client, at_limit: (usize, usize), above: (usize, usize)) {
    assert_told(client, at_limit, above, "1001");
}

/// The same, with a text that tells the limit and the `size`.
fn assert_told(client: &mut dyn Client, at_limit: (usize, usize), above: (usize, usize), size: &str) {
    for kind in KINDS {
        let peer = client.call("Peer", Raw::default()).unwrap();
        let reply = client.call(kind, question(at_limit.0, at_limit.1)).unwrap();
        assert_eq!(reply.as_ref().len(), at_limit.1, "{kind}");
        let status = client.call(kind, question(above.0, above.1)).expect_err("it is over the limit");
        assert_eq!(status.code(), Code::ResourceExhausted, "{kind}: {status}");
        let text = status.message();
        assert!(text.contains(size) && text.contains("1000"), "{kind}: size and limit are told: {text}");
        assert_eq!(client.call("Peer", Raw::default()).unwrap(), peer, "{kind}: it is the same connection");
    }
}

#[test]
fn r78_a_request_over_the_limit_of_the_server_is_exhausted() {
    let server = serve(|server| server.receive_message_bytes_max(LIMIT));
    with_each_client(&server, |client| client, |client| assert_limit(client, (LIMIT, 5), (LIMIT + 1, 5)));
}

#[test]
fn r78_a_reply_over_the_limit_of_the_server_is_exhausted() {
    let server = serve(|server| server.send_message_bytes_max(LIMIT));
    with_each_client(&server, |client| client, |client| assert_limit(client, (5, LIMIT), (5, LIMIT + 1)));
}

#[test]
fn r78_a_reply_over_the_limit_of_the_client_is_exhausted() {
    let server = serve(|server| server);
    let limited = |client: ChannelBuilder| client.receive_message_bytes_max(LIMIT);
    with_each_client(&server, limited, |client| assert_limit(client, (5, LIMIT), (5, LIMIT + 1)));
}

#[test]
fn r78_a_request_over_the_limit_of_the_client_is_exhausted() {
    let server = serve(|server| server);
    let limited = |client: ChannelBuilder| client.send_message_bytes_max(LIMIT);
    with_each_client(&server, limited, |client| assert_limit(client, (LIMIT, 5), (LIMIT + 1, 5)));
}

/// How the text tells the size of a message that was given up while it unfolded.
const COMPRESSED: &str = "compressed bytes";

fn packed_server(build: impl FnOnce(ServerBuilder) -> ServerBuilder) -> RunningServer {
    let packed =
        |server: ServerBuilder| server.accept_compressed(RunLength("rle")).send_compressed(RunLength("rle"));
    serve(|server| build(packed(server)))
}

fn packed(client: ChannelBuilder) -> ChannelBuilder {
    client.accept_compressed(RunLength("rle")).send_compressed(RunLength("rle"))
}

#[test]
fn r78_a_compressed_request_over_the_limit_of_the_server_is_exhausted() {
    let server = packed_server(|server| server.receive_message_bytes_max(LIMIT));
    with_each_client(&server, packed, |client| {
        assert_told(client, (LIMIT, 5), (LIMIT + 1, 5), COMPRESSED);
    });
}

#[test]
fn r78_a_reply_over_the_limit_of_the_server_is_exhausted_before_it_is_compressed() {
    let server = packed_server(|server| server.send_message_bytes_max(LIMIT));
    with_each_client(&server, packed, |client| assert_limit(client, (5, LIMIT), (5, LIMIT + 1)));
}

#[test]
fn r78_a_compressed_reply_over_the_limit_of_the_client_is_exhausted() {
    let server = packed_server(|server| server);
    let limited = |client: ChannelBuilder| packed(client).receive_message_bytes_max(LIMIT);
    with_each_client(&server, limited, |client| {
        assert_told(client, (5, LIMIT), (5, LIMIT + 1), COMPRESSED);
    });
}

#[test]
fn r78_a_request_over_the_limit_of_the_client_is_exhausted_before_it_is_compressed() {
    let server = packed_server(|server| server);
    let limited = |client: ChannelBuilder| packed(client).send_message_bytes_max(LIMIT);
    with_each_client(&server, limited, |client| assert_limit(client, (LIMIT, 5), (LIMIT + 1, 5)));
}

#[test]
fn r78_without_limits_of_ones_own_4_mib_are_received_and_anything_is_sent() {
    const DEFAULT: usize = 4 * 1024 * 1024;
    let server = serve(|server| server);
    let usual = |client: &mut dyn Client| {
        assert_eq!(client.call("Unary", question(DEFAULT, DEFAULT)).unwrap().as_ref().len(), DEFAULT);
        for (bytes, reply_bytes) in [(DEFAULT + 1, 1), (4, DEFAULT + 1)] {
            let status = client.call("Unary", question(bytes, reply_bytes)).expect_err("4 MiB and one byte");
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.message().contains("4194305") && status.message().contains("4194304"), "{status}");
        }
    };
    with_each_client(&server, |client| client, usual);
    // Who takes more gets more.
    let server = serve(|server| server.receive_message_bytes_max(3 * DEFAULT));
    let roomy = |client: ChannelBuilder| client.receive_message_bytes_max(3 * DEFAULT);
    with_each_client(&server, roomy, |client| {
        let reply = client.call("Unary", question(3 * DEFAULT, 3 * DEFAULT)).unwrap();
        assert_eq!(reply.as_ref().len(), 3 * DEFAULT);
    });
}

/// A stream that has passed messages fails at the one that is too large, and the messages before it count.
#[test]
fn r78_messages_in_front_of_the_one_that_is_too_large_arrive() {
    let server = serve(|server| server.receive_message_bytes_max(LIMIT));
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let channel = Channel::builder(endpoint).build().unwrap();
    let chat = async {
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>("/demo.One/Chat", ()).await?;
        for _ in 0..3 {
            requests.send(&question(LIMIT, 7)).await?;
            assert_eq!(replies.message().await?.map(|reply| reply.as_ref().len()), Some(7));
        }
        let _ = requests.send(&question(LIMIT + 1, 7)).await;
        replies.message().await
    };
    assert_eq!(block_on(chat).expect_err("it is over the limit").code(), Code::ResourceExhausted);
}
