//! Our blocking client against tonic's server, from a plain thread and from a worker of tokio's.

use std::error::Error;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Code, MetadataMap, Request, Status};

use crate::proto::lab_client::blocking::LabClient;
use crate::proto::{Answer, Failure, Order};
use crate::tonic_lab::TonicLab;
use crate::within::within_limit;

type Tested = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a test on a plain thread and inside a task of tokio's, each time against a server of its own.
fn against_tonic(test: fn(&TonicLab, LabClient) -> Tested) {
    within_limit(move || {
        let run = move || {
            let lab = TonicLab::start();
            let client = LabClient::connect(lab.uri())?;
            test(&lab, client)
        };
        run().unwrap_or_else(|error| panic!("on a plain thread: {error:?}"));

        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let tested = runtime.block_on(async { tokio::spawn(async move { run() }).await });
        tested.expect("no panic").unwrap_or_else(|error| panic!("in a worker of tokio's: {error:?}"));
    });
}

fn order(body: &[u8]) -> Order {
    Order { body: body.to_vec(), ..Order::default() }
}

fn refused<T: fmt::Debug>(result: Result<T, Status>) -> Status {
    result.expect_err("the call was to fail")
}

#[test]
fn all_four_kinds_carry_messages() {
    against_tonic(|_lab, mut client| {
        assert_eq!(client.echo(order(b"hello"))?.into_inner().body, b"hello");

        let mut upload = client.collect(())?;
        for body in [&b"one"[..], b"", b"three"] {
            upload.send(&order(body))?;
        }
        let answer = upload.finish()?.into_inner();
        assert_eq!((answer.number, answer.received_bytes), (3, 8));

        let answers = client.produce(Order { replies: 5, ..order(b"x") })?.into_inner();
        let numbers: Result<Vec<_>, _> = answers.map(|answer| answer.map(|answer| answer.number)).collect();
        assert_eq!(numbers?, [1, 2, 3, 4, 5]);

        let mut call = client.converse(())?;
        for body in [&b"ping"[..], b"pong", b""] {
            call.send(&Order { replies: 2, ..order(body) })?;
            for number in 1..=2 {
                let answer = call.message()?.expect("the stream is open");
                assert_eq!((answer.body.as_slice(), answer.number), (body, number));
            }
        }
        call.finish_sending();
        assert_eq!(call.message()?, None);
        Ok(())
    });
}

#[test]
fn streams_without_messages_end_with_ok() {
    against_tonic(|_lab, mut client| {
        assert_eq!(client.collect(())?.finish()?.into_inner(), Answer::default());
        assert_eq!(client.produce(Order::default())?.into_inner().message()?, None);
        let mut call = client.converse(())?;
        call.finish_sending();
        assert_eq!(call.message()?, None);
        Ok(())
    });
}

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

const ODD_MESSAGE: &str = "100 % schiefgegangen: größer als 名前 🐦\nzweite Zeile";

#[test]
fn metadata_and_errors_travel_both_ways() {
    against_tonic(|_lab, mut client| {
        let mut request = Request::new(order(b"x"));
        add_metadata(request.metadata_mut(), "x-initial")?;
        assert_metadata(client.echo(request)?.metadata(), "x-initial");

        let details = vec![0, 1, 254, 255];
        let code = Code::FailedPrecondition as i32;
        let failure = Failure { code, message: ODD_MESSAGE.to_owned(), details: details.clone() };
        let mut request = Request::new(Order { failure: Some(failure), ..order(b"x") });
        add_metadata(request.metadata_mut(), "x-trailing")?;
        let status = refused(client.echo(request));
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.message(), ODD_MESSAGE);
        assert_eq!(status.details(), details);
        assert_metadata(status.metadata(), "x-trailing");
        Ok(())
    });
}

#[test]
fn the_client_ends_a_call_at_its_deadline_and_tells_the_server() {
    against_tonic(|lab, mut client| {
        let began = Instant::now();
        let request = Request::new(Order { hang: true, ..order(b"x") }).with_timeout(Duration::from_secs(1));
        let status = refused(client.echo(request));
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        lab.journal.wait_for("echo dropped");

        let request = Request::new(Order { replies: 1, hang: true, ..order(b"x") });
        let mut answers = client.produce(request.with_timeout(Duration::from_millis(1_500)))?.into_inner();
        assert!(answers.message()?.is_some());
        let status = refused(answers.message());
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        drop(answers);
        lab.journal.wait_for("produce dropped");
        assert_eq!(client.echo(order(b"still there"))?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn a_stream_that_is_dropped_is_dropped_in_the_server() {
    against_tonic(|lab, mut client| {
        let mut answers = client.produce(Order { replies: 1, hang: true, ..order(b"x") })?.into_inner();
        assert!(answers.message()?.is_some());
        drop(answers);
        lab.journal.wait_for("produce dropped");

        let mut call = client.converse(())?;
        call.send(&Order { replies: 1, hang: true, ..order(b"x") })?;
        assert!(call.message()?.is_some());
        drop(call);
        lab.journal.wait_for("converse dropped");
        assert_eq!(client.echo(order(b"still there"))?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn three_mebibytes_go_there_and_back() {
    against_tonic(|_lab, mut client| {
        let body: Vec<u8> = (0..3 * 1024 * 1024).map(|index| (index / 251 + index) as u8).collect();
        assert!(client.echo(order(&body))?.into_inner().body == body, "the body came back changed");
        let mut call = client.converse(())?;
        for _ in 0..3 {
            call.send(&Order { replies: 1, ..order(&body) })?;
            assert!(call.message()?.expect("an open stream").body == body, "the body came back changed");
        }
        Ok(())
    });
}

#[test]
fn a_slow_reader_gets_everything_in_the_end() {
    const REPLIES: u32 = 100;
    const REPLY_BYTES: u32 = 256 * 1024;
    against_tonic(|_lab, mut client| {
        let request = Order { replies: REPLIES, reply_bytes: REPLY_BYTES, ..Order::default() };
        let mut answers = client.produce(request)?.into_inner();
        for number in 1..=REPLIES {
            if number % 20 == 1 {
                thread::sleep(Duration::from_millis(20)); // the windows fill
            }
            let answer = answers.message()?.expect("as many as ordered");
            assert_eq!((answer.number, answer.body.len()), (number, REPLY_BYTES as usize));
        }
        assert_eq!(answers.message()?, None);
        Ok(())
    });
}

#[test]
fn a_reply_over_the_limit_fails_its_own_call_only() {
    against_tonic(|_lab, mut client| {
        let request = Order { reply_bytes: 5 * 1024 * 1024, ..order(b"x") };
        let status = refused(client.echo(request));
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert_eq!(client.echo(order(b"still there"))?.into_inner().body, b"still there");
        Ok(())
    });
}

#[test]
fn many_calls_follow_each_other_on_one_connection() {
    against_tonic(|_lab, mut client| {
        let mut peers = std::collections::HashSet::new();
        for number in 0..1_000_u32 {
            let response = client.echo(order(&number.to_be_bytes()))?;
            peers.insert(response.metadata().get("x-peer").map(str::to_owned));
            assert_eq!(response.into_inner().body, number.to_be_bytes());
        }
        assert_eq!(peers.len(), 1, "{peers:?}");
        Ok(())
    });
}

#[test]
fn a_call_after_the_server_has_gone_is_unavailable() {
    against_tonic(|lab, mut client| {
        assert_eq!(client.echo(order(b"x"))?.into_inner().body, b"x");
        lab.stop();
        let status = refused(client.echo(order(b"x")));
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        Ok(())
    });
}
