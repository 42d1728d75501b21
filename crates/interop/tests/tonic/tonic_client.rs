//! tonic's client against our server.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::fulmar_lab::FulmarLab;
use crate::proto::tonic::lab_client::LabClient;
use crate::proto::{Answer, Failure, Order};
use crate::within::within_limit;

/// Runs a test on a tokio runtime of its own, against a server of its own.
fn against_fulmar<F>(test: impl FnOnce(Arc<FulmarLab>, LabClient<Channel>) -> F + Send + 'static)
where
    F: Future<Output = Result<(), Box<dyn std::error::Error>>>,
{
    within_limit(|| {
        let lab = Arc::new(FulmarLab::start());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a tokio runtime");
        let tested = runtime.block_on(async {
            let client = LabClient::new(connect(&lab.uri()).await);
            test(Arc::clone(&lab), client).await
        });
        if let Err(error) = tested {
            panic!("{error:?}");
        }
    });
}

async fn connect(uri: &str) -> Channel {
    let endpoint = Endpoint::from_shared(uri.to_owned()).expect("a URI");
    endpoint.connect().await.expect("our server takes connections")
}

fn order(body: &[u8]) -> Order {
    Order { body: body.to_vec(), ..Order::default() }
}

/// A stream of orders that the test sends one by one.
fn orders() -> (mpsc::Sender<Order>, ReceiverStream<Order>) {
    let (sender, receiver) = mpsc::channel(16);
    (sender, ReceiverStream::new(receiver))
}

async fn all(mut answers: Streaming<Answer>) -> Result<Vec<Answer>, Status> {
    let mut received = Vec::new();
    while let Some(answer) = answers.message().await? {
        received.push(answer);
    }
    Ok(received)
}

#[test]
fn all_four_kinds_carry_messages() {
    against_fulmar(|_lab, mut client| async move {
        let answer = client.echo(order(b"hello")).await?.into_inner();
        assert_eq!(answer.body, b"hello");

        let parts = [&b"one"[..], b"", b"three"].map(order);
        let answer = client.collect(tokio_stream::iter(parts)).await?.into_inner();
        assert_eq!((answer.number, answer.received_bytes), (3, 8));

        let many = client.produce(Order { replies: 5, ..order(b"x") }).await?.into_inner();
        let numbers: Vec<_> = all(many).await?.iter().map(|answer| answer.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);

        let (sender, receiver) = orders();
        let mut answers = client.converse(receiver).await?.into_inner();
        for body in [&b"ping"[..], b"pong", b""] {
            sender.send(Order { replies: 2, ..order(body) }).await?;
            for number in 1..=2 {
                let answer = answers.message().await?.expect("the stream is open");
                assert_eq!((answer.body.as_slice(), answer.number), (body, number));
            }
        }
        drop(sender);
        assert_eq!(answers.message().await?, None);
        Ok(())
    });
}

#[test]
fn streams_without_messages_end_with_ok() {
    against_fulmar(|_lab, mut client| async move {
        let answer = client.collect(tokio_stream::iter([])).await?.into_inner();
        assert_eq!(answer, Answer::default());
        assert_eq!(all(client.produce(Order::default()).await?.into_inner()).await?, []);
        assert_eq!(all(client.converse(tokio_stream::iter([])).await?.into_inner()).await?, []);
        Ok(())
    });
}

/// Two values of an ASCII and of a binary key, to come back where `place` says.
fn add_metadata(metadata: &mut MetadataMap, place: &'static str, place_bin: &'static str) {
    metadata.append(place, MetadataValue::from_static("first, with a comma"));
    metadata.append(place, MetadataValue::from_static("second"));
    metadata.append_bin(place_bin, MetadataValue::from_bytes(&[0, 255, b',', 1]));
    metadata.append_bin(place_bin, MetadataValue::from_bytes(b""));
}

fn assert_metadata(metadata: &MetadataMap, place: &'static str, place_bin: &'static str) {
    let values: Vec<_> = metadata.get_all(place).iter().collect();
    assert_eq!(values, ["first, with a comma", "second"]);
    let values: Vec<_> = metadata.get_all_bin(place_bin).iter().map(|value| value.to_bytes()).collect();
    let values: Vec<_> = values.into_iter().map(|value| value.expect("base64").to_vec()).collect();
    assert_eq!(values, [vec![0, 255, b',', 1], vec![]]);
}

#[test]
fn metadata_travels_there_and_back_before_the_reply() {
    against_fulmar(|_lab, mut client| async move {
        let mut request = Request::new(order(b"x"));
        add_metadata(request.metadata_mut(), "x-initial", "x-initial-bin");
        let response = client.echo(request).await?;
        assert_metadata(response.metadata(), "x-initial", "x-initial-bin");

        let mut request = Request::new(tokio_stream::iter([order(b"x")]));
        add_metadata(request.metadata_mut(), "x-initial", "x-initial-bin");
        let response = client.converse(request).await?;
        assert_metadata(response.metadata(), "x-initial", "x-initial-bin");
        Ok(())
    });
}

#[test]
fn metadata_travels_in_the_trailers() {
    against_fulmar(|_lab, mut client| async move {
        let mut request = Request::new(Order { replies: 1, ..order(b"x") });
        add_metadata(request.metadata_mut(), "x-trailing", "x-trailing-bin");
        let mut answers = client.produce(request).await?.into_inner();
        while answers.message().await?.is_some() {}
        let trailers = answers.trailers().await?.expect("trailers after the last message");
        assert_metadata(&trailers, "x-trailing", "x-trailing-bin");
        Ok(())
    });
}

/// What no header may carry as it is: beyond ASCII, the escape itself, and control characters.
const ODD_MESSAGE: &str = "100 % schiefgegangen: größer als 名前 🐦\nzweite Zeile";

fn failure() -> Failure {
    Failure {
        code: Code::FailedPrecondition as i32,
        message: ODD_MESSAGE.to_owned(),
        details: vec![0, 1, 254, 255],
    }
}

fn assert_failure(status: &Status) {
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), ODD_MESSAGE);
    assert_eq!(status.details(), [0, 1, 254, 255]);
}

#[test]
fn errors_arrive_with_code_message_details_and_metadata() {
    against_fulmar(|_lab, mut client| async move {
        let mut request = Request::new(Order { failure: Some(failure()), ..order(b"x") });
        add_metadata(request.metadata_mut(), "x-trailing", "x-trailing-bin");
        let status = client.echo(request).await.expect_err("the order was to fail");
        assert_failure(&status);
        assert_metadata(status.metadata(), "x-trailing", "x-trailing-bin");

        // A client stream that the server ends before the client does.
        let (sender, receiver) = orders();
        sender.send(Order { failure: Some(failure()), ..order(b"x") }).await?;
        let status = client.collect(receiver).await.expect_err("the order was to fail");
        assert_failure(&status);

        // After messages: in the trailers.
        let request = Order { replies: 2, failure: Some(failure()), ..order(b"x") };
        let mut answers = client.produce(request).await?.into_inner();
        for number in 1..=2 {
            assert_eq!(answers.message().await?.expect("a message before the failure").number, number);
        }
        assert_failure(&answers.message().await.expect_err("the order was to fail"));
        Ok(())
    });
}

#[test]
fn every_code_arrives_as_it_is() {
    against_fulmar(|_lab, mut client| async move {
        for code in 1..=16 {
            let failure = Failure { code, ..Failure::default() };
            let status =
                client.echo(Order { failure: Some(failure), ..order(b"") }).await.expect_err("failure");
            assert_eq!(status.code(), Code::from_i32(code));
        }
        Ok(())
    });
}

#[test]
fn the_server_ends_a_call_at_its_deadline_and_drops_the_handler() {
    against_fulmar(|lab, mut client| async move {
        let (sender, receiver) = orders();
        let mut request = Request::new(receiver);
        request.set_timeout(Duration::from_millis(1_500));
        sender.send(Order { replies: 1, hang: true, ..order(b"x") }).await?;
        let response = client.converse(request).await?;
        let timeout = response.metadata().get("x-timeout").expect("the handler saw the deadline").to_str()?;
        let timeout_us: u64 = timeout.parse()?;
        assert!(timeout_us <= 1_500_000, "{timeout_us} µs");
        let mut answers = response.into_inner();
        // tonic's client counts its own timeout only until the headers of the response; from here on it is the server's,
        // which ends the call with RST_STREAM(CANCEL).
        assert!(answers.message().await?.is_some());
        let status = answers.message().await.expect_err("the deadline passed");
        assert_eq!(status.code(), Code::Cancelled, "{status}");
        lab.journal.seen("converse dropped").await;
        assert_eq!(client.echo(order(b"still there")).await?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn a_call_that_the_client_drops_is_dropped_in_the_server() {
    against_fulmar(|lab, mut client| async move {
        let mut other = client.clone();
        let call = tokio::spawn(async move { other.echo(Order { hang: true, ..order(b"x") }).await });
        lab.journal.seen("echo began").await;
        call.abort();
        lab.journal.seen("echo dropped").await;

        let mut answers = client.produce(Order { replies: 1, hang: true, ..order(b"x") }).await?.into_inner();
        assert!(answers.message().await?.is_some());
        drop(answers);
        lab.journal.seen("produce dropped").await;
        assert_eq!(client.echo(order(b"still there")).await?.into_inner().body, b"still there");
        Ok(())
    });
}

/// A body whose every part tells where it belongs.
fn big_body(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 251 + index) as u8).collect()
}

#[test]
fn three_mebibytes_go_there_and_back() {
    against_fulmar(|_lab, mut client| async move {
        let body = big_body(3 * 1024 * 1024);
        let answer = client.echo(order(&body)).await?.into_inner();
        assert!(answer.body == body, "the body came back changed");

        let (sender, receiver) = orders();
        let mut answers = client.converse(receiver).await?.into_inner();
        for _ in 0..3 {
            sender.send(Order { replies: 1, ..order(&body) }).await?;
            let answer = answers.message().await?.expect("the stream is open");
            assert!(answer.body == body, "the body came back changed");
        }
        Ok(())
    });
}

#[test]
fn a_thousand_calls_run_at_once_on_one_connection() {
    const CALLS: u32 = 1_000;
    against_fulmar(|_lab, client| async move {
        let peers = Mutex::new(HashSet::new());
        // Streams, so that all are open before the first ends.
        let open = |number: u32| {
            let (mut client, peers) = (client.clone(), &peers);
            async move {
                let (sender, receiver) = orders();
                sender
                    .send(Order { replies: 1, ..order(&number.to_be_bytes()) })
                    .await
                    .expect("an open channel");
                let response = client.converse(receiver).await?;
                peers.lock().expect("no holder panics").insert(response.metadata().get("x-peer").cloned());
                let mut answers = response.into_inner();
                let first = answers.message().await?.expect("the stream is open");
                assert_eq!(first.body, number.to_be_bytes());
                Ok::<_, Status>((number, sender, answers))
            }
        };
        let opened = try_join_all((0..CALLS).map(open)).await?;
        assert_eq!(opened.len(), CALLS as usize);
        assert_eq!(peers.lock().expect("no holder panics").len(), 1, "one connection");
        for (number, sender, mut answers) in opened {
            let body = (!number).to_be_bytes();
            sender.send(Order { replies: 1, ..order(&body) }).await?;
            assert_eq!(answers.message().await?.expect("the stream is open").body, body);
            drop(sender);
            assert_eq!(answers.message().await?, None);
        }

        let call = |number: u32| {
            let mut client = client.clone();
            async move { Ok::<_, Status>((number, client.echo(order(&number.to_be_bytes())).await?.into_inner())) }
        };
        for (number, answer) in try_join_all((0..CALLS).map(call)).await? {
            assert_eq!(answer.body, number.to_be_bytes());
        }
        Ok(())
    });
}

#[test]
fn a_slow_reader_stops_neither_the_server_nor_other_calls() {
    const REPLIES: u32 = 200;
    const REPLY_BYTES: u32 = 256 * 1024;
    against_fulmar(|_lab, mut client| async move {
        let request = Order { replies: REPLIES, reply_bytes: REPLY_BYTES, ..Order::default() };
        let mut answers = client.produce(request).await?.into_inner();
        assert_eq!(answers.message().await?.expect("a first message").number, 1);
        // Nobody reads: 50 MiB must wait in the server's handler, and others must get through.
        for _ in 0..50 {
            assert_eq!(client.echo(order(b"quick")).await?.into_inner().body, b"quick");
        }
        for number in 2..=REPLIES {
            let answer = answers.message().await?.expect("as many as ordered");
            assert_eq!((answer.number, answer.body.len()), (number, REPLY_BYTES as usize));
        }
        assert_eq!(answers.message().await?, None);
        Ok(())
    });
}

#[test]
fn a_handler_that_panics_fails_its_own_call_only() {
    against_fulmar(|_lab, mut client| async move {
        let (sender, receiver) = orders();
        let mut bystander = client.converse(receiver).await?.into_inner();

        let status =
            client.echo(Order { panic: true, ..order(b"x") }).await.expect_err("the handler panicked");
        assert_eq!(status.code(), Code::Unknown, "{status}");
        // Whether a message that the handler sent just before gets through is not promised.
        let request = Order { replies: 1, panic: true, ..order(b"x") };
        let answered = match client.produce(request).await {
            Ok(response) => all(response.into_inner()).await,
            Err(status) => Err(status),
        };
        let status = answered.expect_err("the handler panicked");
        assert_eq!(status.code(), Code::Unknown, "{status}");

        sender.send(Order { replies: 1, ..order(b"same connection") }).await?;
        let answer = bystander.message().await?.expect("an open stream");
        assert_eq!(answer.body, b"same connection");
        Ok(())
    });
}

/// A unary call by path and with whatever message.
async fn call<M: prost::Message + Default + 'static>(
    client: &mut Grpc<Channel>,
    path: &'static str,
    message: M,
) -> Result<Answer, Status> {
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<M, Answer>::default();
    client
        .unary(Request::new(message), PathAndQuery::from_static(path), codec)
        .await
        .map(tonic::Response::into_inner)
}

#[test]
fn unknown_methods_and_services_are_unimplemented() {
    against_fulmar(|lab, _client| async move {
        let mut client = Grpc::new(connect(&lab.uri()).await);
        for path in ["/fulmar.lab.Lab/Nothing", "/fulmar.lab.Nobody/Echo", "/"] {
            let status = call(&mut client, path, order(b"x")).await.expect_err(path);
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
        }
        assert_eq!(call(&mut client, "/fulmar.lab.Lab/Echo", order(b"x")).await?.body, b"x");
        Ok(())
    });
}

#[test]
fn a_message_that_cannot_be_decoded_fails_its_own_call_only() {
    against_fulmar(|lab, _client| async move {
        let mut client = Grpc::new(connect(&lab.uri()).await);
        // Its first field is a number, where an order has bytes.
        let message = Failure { code: 5, ..Failure::default() };
        let status = call(&mut client, "/fulmar.lab.Lab/Echo", message).await.expect_err("not an order");
        assert_eq!(status.code(), Code::Internal, "{status}");
        assert_eq!(call(&mut client, "/fulmar.lab.Lab/Echo", order(b"x")).await?.body, b"x");
        Ok(())
    });
}

#[test]
fn a_message_over_the_servers_limit_fails_its_own_call_only() {
    against_fulmar(|_lab, mut client| async move {
        let status = client.echo(order(&big_body(5 * 1024 * 1024))).await.expect_err("over 4 MiB");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(client.echo(order(b"still there")).await?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn shutdown_lets_open_calls_end_and_takes_no_new_ones() {
    against_fulmar(|lab, mut client| async move {
        let (sender, receiver) = orders();
        let mut answers = client.converse(receiver).await?.into_inner();
        lab.shut_down(Duration::from_secs(30));
        // The open stream goes on …
        for body in [&b"one"[..], b"two"] {
            sender.send(Order { replies: 1, ..order(body) }).await?;
            assert_eq!(answers.message().await?.expect("an open stream").body, body);
        }
        // … and the server ends with it, long before the grace is over.
        let began = Instant::now();
        drop(sender);
        assert_eq!(answers.message().await?, None);
        lab.join();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        // Which of the two tonic says depends on how far it is with closing its end.
        let status = client.echo(order(b"too late")).await.expect_err("nobody is there");
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status}");
        Ok(())
    });
}

#[test]
fn shutdown_without_grace_ends_open_calls() {
    against_fulmar(|lab, mut client| async move {
        let mut other = client.clone();
        let call = tokio::spawn(async move { other.echo(Order { hang: true, ..order(b"x") }).await });
        lab.journal.seen("echo began").await;
        lab.shut_down(Duration::ZERO);
        lab.join();
        lab.journal.seen("echo dropped").await;
        let status = call.await?.expect_err("the server is gone");
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown), "{status}");
        client.echo(order(b"too late")).await.expect_err("nobody is there");
        Ok(())
    });
}
