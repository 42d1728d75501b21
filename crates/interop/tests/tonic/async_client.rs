//! Our asynchronous client against tonic's server, under every kind of executor.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Duplex, LocalReactor, MetadataMap, Request, Status, Streaming};
use futures::future::{poll_fn, try_join_all};

use crate::proto::lab_client::LabClient;
use crate::proto::{Answer, Failure, Order};
use crate::tonic_lab::TonicLab;
use crate::within::within_limit;

type Tested = Result<(), Box<dyn Error>>;

/// Where futures of ours must work.
#[derive(Clone, Copy, Debug)]
enum Executor {
    /// tokio, with worker threads; the future itself runs on the calling one.
    Tokio,
    /// An executor that knows nothing but wakers.
    Futures,
    /// Our own, with the connection on the thread of the caller.
    LocalReactor,
}

impl Executor {
    fn run<T>(self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Tokio => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .build()
                .expect("a tokio runtime")
                .block_on(future),
            Self::Futures => futures::executor::block_on(future),
            Self::LocalReactor => LocalReactor::new().expect("a reactor").block_on(future),
        }
    }
}

/// Runs a test under each executor, each time against a server of its own.
fn against_tonic<F: Future<Output = Tested>>(test: impl Fn(Arc<TonicLab>, LabClient) -> F + Send + 'static) {
    within_limit(move || {
        for executor in [Executor::Tokio, Executor::Futures, Executor::LocalReactor] {
            let lab = Arc::new(TonicLab::start());
            let tested = executor.run(async {
                let client = LabClient::connect(lab.uri()).await?;
                test(Arc::clone(&lab), client).await
            });
            if let Err(error) = tested {
                panic!("under {executor:?}: {error:?}");
            }
        }
    });
}

fn order(body: &[u8]) -> Order {
    Order { body: body.to_vec(), ..Order::default() }
}

async fn all(mut answers: Streaming<Answer>) -> Result<Vec<Answer>, Status> {
    let mut received = Vec::new();
    while let Some(answer) = answers.message().await? {
        received.push(answer);
    }
    Ok(received)
}

fn refused<T: fmt::Debug>(result: Result<T, Status>) -> Status {
    result.expect_err("the call was to fail")
}

#[test]
fn all_four_kinds_carry_messages() {
    against_tonic(|_lab, client| async move {
        let answer = client.echo(order(b"hello")).await?.into_inner();
        assert_eq!(answer.body, b"hello");

        let mut upload = client.collect(()).await?;
        for body in [&b"one"[..], b"", b"three"] {
            upload.send(&order(body)).await?;
        }
        let answer = upload.finish().await?.into_inner();
        assert_eq!((answer.number, answer.received_bytes), (3, 8));

        let many = client.produce(Order { replies: 5, ..order(b"x") }).await?.into_inner();
        let numbers: Vec<_> = all(many).await?.iter().map(|answer| answer.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);

        let Duplex { mut requests, mut replies } = client.converse(()).await?;
        for body in [&b"ping"[..], b"pong", b""] {
            requests.send(&Order { replies: 2, ..order(body) }).await?;
            for number in 1..=2 {
                let answer = replies.message().await?.expect("the stream is open");
                assert_eq!((answer.body.as_slice(), answer.number), (body, number));
            }
        }
        requests.finish();
        assert_eq!(replies.message().await?, None);
        Ok(())
    });
}

#[test]
fn streams_without_messages_end_with_ok() {
    against_tonic(|_lab, client| async move {
        assert_eq!(client.collect(()).await?.finish().await?.into_inner(), Answer::default());
        assert_eq!(all(client.produce(Order::default()).await?.into_inner()).await?, []);
        let Duplex { requests, mut replies } = client.converse(()).await?;
        requests.finish();
        assert_eq!(replies.message().await?, None);
        assert_eq!(client.echo(Order::default()).await?.into_inner().body, b"");
        Ok(())
    });
}

/// Two values of an ASCII and of a binary key.
fn add_metadata(metadata: &mut MetadataMap, place: &str) -> Tested {
    metadata.append(place, "first, with a comma")?;
    metadata.append(place, "second")?;
    metadata.append_bin(&format!("{place}-bin"), &[0, 255, b',', 1])?;
    metadata.append_bin(&format!("{place}-bin"), b"")?;
    Ok(())
}

fn assert_metadata(metadata: &MetadataMap, place: &str) {
    let values: Vec<_> = metadata.get_all(place).collect();
    assert_eq!(values, ["first, with a comma", "second"]);
    let name = format!("{place}-bin");
    let values: Vec<_> = metadata.get_all_bin(&name).collect();
    assert_eq!(values, [vec![0, 255, b',', 1], vec![]]);
}

#[test]
fn metadata_travels_there_and_back_before_the_reply() {
    against_tonic(|_lab, client| async move {
        let mut request = Request::new(order(b"x"));
        add_metadata(request.metadata_mut(), "x-initial")?;
        assert_metadata(client.echo(request).await?.metadata(), "x-initial");

        let mut request = Request::new(Order { replies: 1, ..order(b"x") });
        add_metadata(request.metadata_mut(), "x-initial")?;
        assert_metadata(client.produce(request).await?.metadata(), "x-initial");

        let mut request = Request::new(());
        add_metadata(request.metadata_mut(), "x-initial")?;
        let Duplex { requests, mut replies } = client.converse(request).await?;
        assert_metadata(&replies.metadata().await?, "x-initial");
        requests.finish();
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
    against_tonic(|_lab, client| async move {
        let mut request = Request::new(Order { failure: Some(failure()), ..order(b"x") });
        add_metadata(request.metadata_mut(), "x-trailing")?;
        let status = refused(client.echo(request).await);
        assert_failure(&status);
        assert_metadata(status.metadata(), "x-trailing");

        // A client stream that the server ends before the client does.
        let mut upload = client.collect(()).await?;
        upload.send(&Order { failure: Some(failure()), ..order(b"x") }).await?;
        assert_failure(&refused(upload.finish().await));

        // After messages: in the trailers.
        let request = Order { replies: 2, failure: Some(failure()), ..order(b"x") };
        let mut answers = client.produce(request).await?.into_inner();
        for number in 1..=2 {
            assert_eq!(answers.message().await?.expect("a message before the failure").number, number);
        }
        assert_failure(&refused(answers.message().await));
        Ok(())
    });
}

#[test]
fn every_code_arrives_as_it_is() {
    against_tonic(|_lab, client| async move {
        for code in 1..=16 {
            let failure = Failure { code, ..Failure::default() };
            let status = refused(client.echo(Order { failure: Some(failure), ..order(b"") }).await);
            assert_eq!(status.code() as i32, code);
        }
        Ok(())
    });
}

#[test]
fn the_client_ends_a_call_at_its_deadline_and_tells_the_server() {
    against_tonic(|lab, client| async move {
        let began = Instant::now();
        let request = Request::new(Order { hang: true, ..order(b"x") }).with_timeout(Duration::from_secs(1));
        let status = refused(client.echo(request).await);
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        lab.journal.seen("echo dropped").await;

        let request = Request::new(Order { replies: 1, hang: true, ..order(b"x") });
        let response = client.produce(request.with_timeout(Duration::from_millis(1_500))).await?;
        let timeout = response.metadata().get("x-timeout").expect("the server was told").to_owned();
        let digits = timeout.trim_end_matches(char::is_alphabetic);
        assert!(digits.parse::<u64>().is_ok() && digits.len() <= 8, "{timeout}");
        let mut answers = response.into_inner();
        assert!(answers.message().await?.is_some());
        let status = refused(answers.message().await);
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        lab.journal.seen("produce dropped").await;

        assert_eq!(client.echo(order(b"still there")).await?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn a_call_that_is_dropped_is_dropped_in_the_server() {
    against_tonic(|lab, client| async move {
        {
            let mut call = pin!(client.echo(Order { hang: true, ..order(b"x") }));
            let mut began = pin!(lab.journal.seen("echo began"));
            poll_fn(|cx| {
                assert!(call.as_mut().poll(cx).is_pending(), "the server was to hang");
                match began.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(()),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
        }
        lab.journal.seen("echo dropped").await;

        let mut answers = client.produce(Order { replies: 1, hang: true, ..order(b"x") }).await?.into_inner();
        assert!(answers.message().await?.is_some());
        drop(answers);
        lab.journal.seen("produce dropped").await;

        let Duplex { mut requests, mut replies } = client.converse(()).await?;
        requests.send(&Order { replies: 1, hang: true, ..order(b"x") }).await?;
        assert!(replies.message().await?.is_some());
        drop((requests, replies));
        lab.journal.seen("converse dropped").await;

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
    against_tonic(|_lab, client| async move {
        let body = big_body(3 * 1024 * 1024);
        let answer = client.echo(order(&body)).await?.into_inner();
        assert!(answer.body == body, "the body came back changed");

        let Duplex { mut requests, mut replies } = client.converse(()).await?;
        for _ in 0..3 {
            requests.send(&Order { replies: 1, ..order(&body) }).await?;
            let answer = replies.message().await?.expect("the stream is open");
            assert!(answer.body == body, "the body came back changed");
        }
        requests.finish();
        assert_eq!(replies.message().await?, None);
        Ok(())
    });
}

#[test]
fn a_thousand_calls_run_at_once_on_one_connection() {
    const CALLS: u32 = 1_000;
    against_tonic(|_lab, client| async move {
        let peers = Mutex::new(HashSet::new());
        // Streams, so that all are open before the first ends.
        let open = |number: u32| {
            let (client, peers) = (client.clone(), &peers);
            async move {
                let mut call = client.converse(()).await?;
                call.requests.send(&Order { replies: 1, ..order(&number.to_be_bytes()) }).await?;
                let first = call.replies.message().await?.expect("the stream is open");
                assert_eq!(first.body, number.to_be_bytes());
                let peer = call.replies.metadata().await?.get("x-peer").map(str::to_owned);
                peers.lock().expect("no holder panics").insert(peer);
                Ok::<_, Status>((number, call))
            }
        };
        let opened = try_join_all((0..CALLS).map(open)).await?;
        assert_eq!(opened.len(), CALLS as usize);
        assert_eq!(peers.lock().expect("no holder panics").len(), 1, "one connection");
        for (number, Duplex { mut requests, mut replies }) in opened {
            let body = (!number).to_be_bytes();
            requests.send(&Order { replies: 1, ..order(&body) }).await?;
            assert_eq!(replies.message().await?.expect("the stream is open").body, body);
            requests.finish();
            assert_eq!(replies.message().await?, None);
        }

        let call = |number: u32| {
            let client = client.clone();
            async move { Ok::<_, Status>((number, client.echo(order(&number.to_be_bytes())).await?.into_inner())) }
        };
        for (number, answer) in try_join_all((0..CALLS).map(call)).await? {
            assert_eq!(answer.body, number.to_be_bytes());
        }
        Ok(())
    });
}

#[test]
fn calls_from_many_threads_share_one_channel() {
    const TASKS: u32 = 200;
    within_limit(|| {
        let lab = TonicLab::start();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().expect("a runtime");
        runtime.block_on(async {
            let client = LabClient::connect(lab.uri()).await.expect("tonic takes connections");
            let call = |number: u32| {
                let client = client.clone();
                tokio::spawn(async move {
                    for round in 0..10_u32 {
                        let body = [number.to_be_bytes(), round.to_be_bytes()].concat();
                        assert_eq!(client.echo(order(&body)).await?.into_inner().body, body);
                    }
                    Ok::<_, Status>(())
                })
            };
            for task in (0..TASKS).map(call).collect::<Vec<_>>() {
                task.await.expect("no task panics").expect("every call succeeds");
            }
        });
    });
}

#[test]
fn a_slow_reader_stops_neither_the_connection_nor_other_calls() {
    const REPLIES: u32 = 200;
    const REPLY_BYTES: u32 = 256 * 1024;
    against_tonic(|_lab, client| async move {
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
fn an_upload_is_slowed_down_by_a_server_that_does_not_read() {
    const MESSAGES: usize = 100;
    against_tonic(|_lab, client| async move {
        let body = big_body(256 * 1024);
        let mut upload = client.collect(()).await?;
        for _ in 0..MESSAGES {
            upload.send(&order(&body)).await?;
        }
        let answer = upload.finish().await?.into_inner();
        assert_eq!(
            (answer.number as usize, answer.received_bytes as usize),
            (MESSAGES, MESSAGES * body.len())
        );

        // The handler hangs after the first message: sending must come to a stop, which is only a pause for the others.
        let mut upload = client.collect(()).await?;
        upload.send(&Order { hang: true, ..order(b"x") }).await?;
        let mut sent = 0;
        {
            let mut flood = pin!(async {
                loop {
                    upload.send(&order(&body)).await?;
                    sent += 1;
                    if sent > MESSAGES {
                        return Ok::<_, Status>(());
                    }
                }
            });
            let mut others = pin!(async {
                for _ in 0..50 {
                    client.echo(order(b"quick")).await?;
                }
                Ok::<_, Status>(())
            });
            poll_fn(|cx| {
                assert!(flood.as_mut().poll(cx).is_pending(), "25 MiB were taken, and nobody reads them");
                others.as_mut().poll(cx)
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn a_message_over_a_limit_fails_its_own_call_only() {
    against_tonic(|lab, client| async move {
        let mut bystander = client.converse(()).await?;

        // The client's default: 4 MiB.
        let request = Order { reply_bytes: 5 * 1024 * 1024, ..order(b"x") };
        let status = refused(client.echo(request.clone()).await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let mut answers = client.produce(Order { replies: 1, ..request }).await?.into_inner();
        assert_eq!(refused(answers.message().await).code(), Code::ResourceExhausted);

        let channel = Channel::builder(lab.uri()).send_message_bytes_max(1_000).connect().await?;
        let small = LabClient::new(channel);
        let status = refused(small.echo(order(&[1; 1_001])).await);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(small.echo(order(&[1; 900])).await?.into_inner().body, [1; 900]);

        bystander.requests.send(&Order { replies: 1, ..order(b"same connection") }).await?;
        assert_eq!(bystander.replies.message().await?.expect("an open stream").body, b"same connection");
        Ok(())
    });
}

#[test]
fn a_reply_that_cannot_be_decoded_fails_its_own_call_only() {
    against_tonic(|lab, client| async move {
        let channel = Channel::connect(lab.uri()).await?;
        // An answer's second field is a number, where a failure has a text.
        let reply = channel.unary::<Order, Failure>("/fulmar.lab.Lab/Echo", order(b"x")).await;
        let status = refused(reply);
        assert_eq!(status.code(), Code::Internal, "{status}");
        assert_eq!(LabClient::new(channel).echo(order(b"x")).await?.into_inner().body, b"x");
        assert_eq!(client.echo(order(b"x")).await?.into_inner().body, b"x");
        Ok(())
    });
}

#[test]
fn unknown_methods_are_unimplemented() {
    against_tonic(|lab, _client| async move {
        let channel = Channel::connect(lab.uri()).await?;
        for path in ["/fulmar.lab.Lab/Nothing", "/fulmar.lab.Nobody/Echo"] {
            let status = refused(channel.unary::<Order, Answer>(path, order(b"x")).await);
            assert_eq!(status.code(), Code::Unimplemented, "{path}: {status}");
        }
        Ok(())
    });
}

#[test]
fn a_call_after_the_server_has_gone_is_unavailable() {
    against_tonic(|lab, client| async move {
        assert_eq!(client.echo(order(b"x")).await?.into_inner().body, b"x");
        lab.stop();
        let status = refused(client.echo(order(b"x")).await);
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let address = lab.address.to_string();
        assert!(status.to_string().contains(&address), "where? {status}");
        Ok(())
    });
}
