//! Compressed messages between tonic and us: all kinds of calls, both ways, in each encoding that both know.

use std::error::Error;
use std::fmt;

use fulmar::encoding::{Deflate, Gzip, Zstd};
use fulmar::{
    Channel, ChannelBuilder, Code, Compress, Compression, Duplex, Request, Server, ServerBuilder, Streaming,
    blocking,
};
use tokio_stream::iter;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap as TonicMetadata;

use crate::fulmar_lab::FulmarLab;
use crate::proto::lab_client::{LabClient, blocking::LabClient as BlockingLabClient};
use crate::proto::tonic::lab_client::LabClient as TonicLabClient;
use crate::proto::{Answer, Order};
use crate::tonic_lab::TonicLab;
use crate::within::within_limit;

type Tested = Result<(), Box<dyn Error>>;
type TonicClient = TonicLabClient<tonic::transport::Channel>;

const ENCODINGS: [(&str, CompressionEncoding); 3] = [
    ("gzip", CompressionEncoding::Gzip),
    ("deflate", CompressionEncoding::Deflate),
    ("zstd", CompressionEncoding::Zstd),
];

/// What is worth compressing, and longer than a frame.
fn body() -> Vec<u8> {
    (0..100_000_usize).map(|index| (index / 100) as u8).collect()
}

fn order(replies: u32) -> Order {
    Order { body: body(), replies, ..Order::default() }
}

/// Runs on a tokio runtime of its own, within the limit of a test.
fn run<F: Future<Output = Tested>>(test: impl FnOnce() -> F + Send + 'static) {
    within_limit(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        if let Err(error) = runtime.expect("a tokio runtime").block_on(test()) {
            panic!("{error:?}");
        }
    });
}

fn assert_body(answer: &Answer, number: u32) {
    assert_eq!(answer.number, number);
    assert!(answer.body == body(), "the body came back changed");
}

// tonic's client, our server.

fn accept_all(server: ServerBuilder) -> ServerBuilder {
    server
        .accept_compressed(Gzip::default())
        .accept_compressed(Deflate::default())
        .accept_compressed(Zstd::default())
}

async fn tonic_client(lab: &FulmarLab) -> Result<TonicClient, tonic::transport::Error> {
    let channel = tonic::transport::Endpoint::from_shared(lab.uri())?.connect().await?;
    Ok(TonicLabClient::new(channel))
}

/// A request whose replies are to be compressed so.
fn wanting<T>(message: T, want: &'static str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("x-want", want.parse().expect("a legal value"));
    request
}

/// In which form the server got the messages.
fn assert_flags(trailers: &TonicMetadata, flags: &str) {
    assert_eq!(trailers.get("x-flags").map(|value| value.as_bytes()), Some(flags.as_bytes()));
}

fn assert_encoding(metadata: &TonicMetadata, encoding: Option<&str>) {
    let said = metadata.get("grpc-encoding").map(|value| value.to_str().expect("ASCII"));
    assert_eq!(said, encoding);
}

/// All four kinds of calls, whose messages our server must get in this form and send in this encoding.
async fn tonic_calls(client: &mut TonicClient, want: &'static str, got: char, sent: Option<&str>) -> Tested {
    let response = client.echo(wanting(order(0), want)).await?;
    assert_flags(response.metadata(), &got.to_string());
    assert_encoding(response.metadata(), sent);
    assert_body(response.get_ref(), 1);

    let response = client.collect(wanting(iter([order(0), order(0), order(0)]), want)).await?;
    assert_flags(response.metadata(), &[got; 3].iter().collect::<String>());
    assert_encoding(response.metadata(), sent);
    assert_eq!((response.get_ref().number, response.get_ref().received_bytes), (3, 300_000));

    let response = client.produce(wanting(order(3), want)).await?;
    assert_encoding(response.metadata(), sent);
    let mut answers = response.into_inner();
    for number in 1..=3 {
        assert_body(&answers.message().await?.expect("three answers"), number);
    }
    assert_eq!(answers.message().await?, None);
    assert_flags(&answers.trailers().await?.expect("trailers"), &got.to_string());

    let response = client.converse(wanting(iter([order(2), order(1)]), want)).await?;
    assert_encoding(response.metadata(), sent);
    let mut answers = response.into_inner();
    for number in [1, 2, 1] {
        assert_body(&answers.message().await?.expect("two answers and one"), number);
    }
    assert_eq!(answers.message().await?, None);
    assert_flags(&answers.trailers().await?.expect("trailers"), &[got; 2].iter().collect::<String>());
    Ok(())
}

#[test]
fn tonics_client_compresses_and_unfolds_all_kinds_in_each_encoding() {
    run(|| async {
        let lab = FulmarLab::start_with(accept_all(Server::builder()));
        for (name, encoding) in ENCODINGS {
            let mut client = tonic_client(&lab).await?.send_compressed(encoding).accept_compressed(encoding);
            tonic_calls(&mut client, name, 'c', Some(name)).await?;
        }
        Ok(())
    });
}

#[test]
fn tonics_client_may_compress_in_another_encoding_than_it_accepts_or_in_one_direction_only() {
    run(|| async {
        let lab = FulmarLab::start_with(accept_all(Server::builder()).send_compressed(Zstd::default()));
        for (up_name, up) in ENCODINGS {
            for (down_name, down) in ENCODINGS {
                if up_name == down_name {
                    continue;
                }
                let mut client = tonic_client(&lab).await?.send_compressed(up).accept_compressed(down);
                tonic_calls(&mut client, down_name, 'c', Some(down_name)).await?;
            }
            // Replies plain: as the handler wants it, and because the client takes no others.
            let mut client = tonic_client(&lab).await?.send_compressed(up).accept_compressed(up);
            tonic_calls(&mut client, "off", 'c', None).await?;
            let mut client = tonic_client(&lab).await?.send_compressed(up);
            tonic_calls(&mut client, up_name, 'c', None).await?;
            let mut client = tonic_client(&lab).await?.accept_compressed(up);
            tonic_calls(&mut client, up_name, 'p', Some(up_name)).await?;
        }
        Ok(())
    });
}

#[test]
fn our_servers_default_encoding_is_used_for_a_tonic_client_that_accepts_it() {
    run(|| async {
        let lab = FulmarLab::start_with(Server::builder().send_compressed(Gzip::default()));
        for (encoding, sent) in [(CompressionEncoding::Gzip, Some("gzip")), (CompressionEncoding::Zstd, None)]
        {
            let mut client = tonic_client(&lab).await?.accept_compressed(encoding);
            let response = client.echo(order(0)).await?;
            assert_encoding(response.metadata(), sent);
            assert_body(response.get_ref(), 1);
        }
        Ok(())
    });
}

#[test]
fn our_server_sends_plain_messages_between_compressed_ones() {
    run(|| async {
        let lab = FulmarLab::start_with(accept_all(Server::builder()));
        for (name, encoding) in ENCODINGS {
            let mut client = tonic_client(&lab).await?.accept_compressed(encoding);
            let mut request = wanting(order(4), name);
            request.metadata_mut().insert("x-plain", "every second".parse()?);
            let response = client.produce(request).await?;
            assert_encoding(response.metadata(), Some(name));
            let mut answers = response.into_inner();
            for number in 1..=4 {
                assert_body(&answers.message().await?.expect("four answers"), number);
            }
            assert_eq!(answers.message().await?, None);
        }
        Ok(())
    });
}

#[test]
fn tonics_client_hears_which_encodings_our_server_knows() {
    run(|| async {
        let lab = FulmarLab::start_with(Server::builder().accept_compressed(Gzip::default()));
        let mut client = tonic_client(&lab).await?.send_compressed(CompressionEncoding::Zstd);
        let status = client.echo(order(0)).await.expect_err("zstd is not accepted");
        assert_eq!(status.code(), tonic::Code::Unimplemented, "{status}");
        assert!(status.message().contains("zstd"), "{status}");
        let known = status.metadata().get("grpc-accept-encoding").expect("what is known").to_str()?;
        assert!(known.split(',').any(|name| name.trim() == "gzip"), "{known}");

        let mut client = client.send_compressed(CompressionEncoding::Gzip);
        assert_body(client.echo(order(0)).await?.get_ref(), 1);
        Ok(())
    });
}

// Our clients, tonic's server.

fn tonic_lab(accepted: &'static [CompressionEncoding], sent: &'static [CompressionEncoding]) -> TonicLab {
    TonicLab::start_with(|lab| {
        let lab = accepted.iter().fold(lab, |lab, encoding| lab.accept_compressed(*encoding));
        sent.iter().fold(lab, |lab, encoding| lab.send_compressed(*encoding))
    })
}

/// A channel that accepts one encoding and knows how to send in all.
fn channel(lab: &TonicLab, accepts: &str) -> ChannelBuilder {
    let channel = Channel::builder(lab.uri());
    match accepts {
        "gzip" => channel.accept_compressed(Gzip::default()),
        "deflate" => channel.accept_compressed(Deflate::default()),
        _ => channel.accept_compressed(Zstd::default()),
    }
    .send_compressed(Gzip::default())
    .send_compressed(Deflate::default())
    .send_compressed(Zstd::default())
}

fn ours<T>(message: T, sends: &'static str, want: &str) -> Request<T> {
    let mut request = Request::new(message).with_compression(Compression::encoding(sends));
    request.metadata_mut().insert("x-want", want).expect("a legal value");
    request
}

/// Reads answers with these numbers, all compressed in this encoding or all plain.
async fn assert_answers(mut answers: Streaming<Answer>, numbers: &[u32], got: Option<&str>) -> Tested {
    for number in numbers {
        assert_body(&answers.message().await?.expect("as many as were ordered"), *number);
        assert_eq!(answers.last_was_compressed(), got.is_some());
        assert_eq!(answers.encoding().as_deref(), got);
    }
    assert_eq!(answers.message().await?, None);
    Ok(())
}

fn assert_sent(metadata: &fulmar::MetadataMap, sends: &str) {
    assert_eq!(metadata.get("x-encoding"), Some(sends), "the encoding that tonic's server saw");
}

/// All four kinds of calls in this encoding, whose answers must come in that one.
async fn our_calls(client: &LabClient, sends: &'static str, want: &str, got: Option<&str>) -> Tested {
    let response = client.echo(ours(order(0), sends, want)).await?;
    assert_sent(response.metadata(), sends);
    assert_eq!((response.encoding(), response.was_compressed()), (got, got.is_some()));
    assert_body(response.get_ref(), 1);

    let mut upload = client.collect(ours((), sends, want)).await?;
    for compress in [Compress::Default, Compress::No, Compress::Yes] {
        upload.send_with(&order(0), compress).await?;
    }
    let response = upload.finish().await?;
    assert_eq!((response.encoding(), response.was_compressed()), (got, got.is_some()));
    assert_eq!((response.get_ref().number, response.get_ref().received_bytes), (3, 300_000));

    let response = client.produce(ours(order(3), sends, want)).await?;
    assert_sent(response.metadata(), sends);
    assert_answers(response.into_inner(), &[1, 2, 3], got).await?;

    let Duplex { mut requests, replies } = client.converse(ours((), sends, want)).await?;
    requests.send_with(&order(2), Compress::No).await?;
    requests.send_with(&order(1), Compress::Yes).await?;
    requests.finish();
    assert_answers(replies, &[1, 2, 1], got).await
}

const ALL: &[CompressionEncoding] =
    &[CompressionEncoding::Gzip, CompressionEncoding::Deflate, CompressionEncoding::Zstd];

#[test]
fn our_client_compresses_and_unfolds_all_kinds_in_each_combination() {
    run(|| async {
        let lab = tonic_lab(ALL, ALL);
        for (sends, _) in ENCODINGS {
            for (accepts, _) in ENCODINGS {
                let client = LabClient::new(channel(&lab, accepts).connect().await?);
                our_calls(&client, sends, "any", Some(accepts)).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn our_client_takes_plain_answers_to_compressed_requests() {
    run(|| async {
        let silent = tonic_lab(ALL, &[]);
        for (sends, _) in ENCODINGS {
            let client = LabClient::new(channel(&silent, sends).connect().await?);
            our_calls(&client, sends, "any", None).await?;
        }
        // The server knows how, and does not for this call: its headers tell the encoding all the same.
        let lab = tonic_lab(ALL, ALL);
        let client = LabClient::new(channel(&lab, "gzip").connect().await?);
        let response = client.echo(ours(order(0), "gzip", "off")).await?;
        assert!(!response.was_compressed());
        assert_body(response.get_ref(), 1);
        Ok(())
    });
}

#[test]
fn our_client_hears_that_tonics_server_does_not_know_an_encoding() {
    fn assert_refused(refused: Result<impl fmt::Debug, fulmar::Status>, encoding: &str) {
        let status = refused.expect_err("tonic's server accepts gzip only");
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        assert!(status.message().contains(encoding), "{status}");
    }
    run(|| async {
        let lab = tonic_lab(&[CompressionEncoding::Gzip], &[]);
        let client = LabClient::new(channel(&lab, "zstd").connect().await?);
        for sends in ["zstd", "deflate"] {
            assert_refused(client.echo(ours(order(0), sends, "any")).await, sends);
            assert_refused(client.collect(ours((), sends, "any")).await?.finish().await, sends);
            assert_refused(client.produce(ours(order(1), sends, "any")).await, sends);
            let Duplex { requests, mut replies } = client.converse(ours((), sends, "any")).await?;
            requests.finish();
            assert_refused(replies.message().await, sends);
        }
        our_calls(&client, "gzip", "any", None).await
    });
}

#[test]
fn our_blocking_client_compresses_and_unfolds_in_each_encoding() {
    within_limit(|| {
        let lab = tonic_lab(ALL, ALL);
        for (name, _) in ENCODINGS {
            let settings = channel(&lab, name);
            let mut client =
                BlockingLabClient::new(blocking::Channel::with(settings).expect("tonic takes connections"));
            let response = client.echo(ours(order(0), name, "any")).expect("an echo");
            assert_sent(response.metadata(), name);
            assert_eq!((response.encoding(), response.was_compressed()), (Some(name), true));
            assert_body(response.get_ref(), 1);

            let mut call = client.converse(ours((), name, "any")).expect("a call");
            for compress in [Compress::Yes, Compress::No] {
                call.send_with(&order(1), compress).expect("room");
                assert_body(&call.message().expect("an open stream").expect("an answer"), 1);
                assert!(call.last_was_compressed());
            }
            call.finish_sending();
            assert_eq!(call.message().expect("an end"), None);
        }
    });
}
