//! Who sees what, and in which order.

use fulmar::{
    Channel, Code, Duplex, Intercepted, Raw, Response, RunningServer, Server, Status, Streaming, blocking,
};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_FAIL, PATH_SUM, block_on, number, value};
use crate::{Log, Recorder, end};

/// A server with one interceptor around everything and one around its service.
fn serve(log: &Log) -> RunningServer {
    Server::builder()
        .reactors(1)
        .add_service(Intercepted::new(Demo::default(), Recorder::new("inner", log)))
        .intercept(Recorder::new("outer", log))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap()
}

/// What two interceptors see of a call with so many messages each way, apart from how requests and responses interleave.
fn check(log: Vec<String>, path: &str, requests: usize, responses: usize, code: Code) {
    let of = |what: &str| -> Vec<String> {
        log.iter().filter(|line| line.split(' ').nth(1) == Some(what)).cloned().collect()
    };
    let pairs = |first: &str, second: &str, count: usize| -> Vec<String> {
        (0..count).flat_map(|_| [first.to_owned(), second.to_owned()]).collect()
    };
    assert_eq!(of("call"), [format!("outer call {path}"), format!("inner call {path}")]);
    assert_eq!(of("request"), pairs("outer request 8", "inner request 8", requests));
    assert_eq!(of("response"), pairs("inner response 8", "outer response 8", responses));
    assert_eq!(of("finish"), [format!("inner finish {code}"), format!("outer finish {code}")]);
    let metadata = if code == Code::Ok { pairs("inner metadata", "outer metadata", 1) } else { Vec::new() };
    assert_eq!(of("metadata"), metadata);
    let place = |line: &str| log.iter().position(|other| other.contains(line));
    assert!(place(" call") < place(" request") || requests == 0);
    assert!(place(" metadata") < place(" response") || responses == 0);
    assert_eq!(place("outer finish"), Some(log.len() - 1), "the end is the end");
}

/// Makes a call of each kind, and one that fails; `checked` is asked after each.
async fn calls(channel: &Channel, mut checked: impl FnMut(&str, usize, usize, Code)) {
    let reply: Response<Raw> = channel.unary(PATH_ECHO, number(7)).await.unwrap();
    assert_eq!(value(reply.get_ref()), 7);
    checked(PATH_ECHO, 1, 1, Code::Ok);

    let mut count: Streaming<Raw> =
        channel.server_streaming(PATH_COUNT, number(5)).await.unwrap().into_inner();
    let mut counted = 0;
    while count.message().await.unwrap().is_some() {
        counted += 1;
    }
    assert_eq!(counted, 5);
    checked(PATH_COUNT, 1, 5, Code::Ok);

    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await.unwrap();
    for addend in 1..=4 {
        upload.send(&number(addend)).await.unwrap();
    }
    assert_eq!(value(upload.finish().await.unwrap().get_ref()), 10);
    checked(PATH_SUM, 4, 1, Code::Ok);

    let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await.unwrap();
    for turn in 0..3 {
        requests.send(&number(turn)).await.unwrap();
        assert_eq!(replies.message().await.unwrap(), Some(number(turn * 2)));
    }
    requests.finish();
    assert_eq!(replies.message().await.unwrap(), None);
    assert_eq!(replies.trailers().get("x-turns"), Some("3"));
    checked(PATH_CHAT, 3, 3, Code::Ok);

    let status = channel.unary::<Raw, Raw>(PATH_FAIL, number(1)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    checked(PATH_FAIL, 1, 0, Code::OutOfRange);
}

#[test]
fn a_servers_chain_sees_calls_of_all_kinds_from_outside_in_and_back() {
    let log = Log::default();
    let server = serve(&log);
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        calls(&channel, |path, requests, responses, code| {
            check(log.take_after_ends(2), path, requests, responses, code);
        })
        .await;
        calls(&server.in_process(), |path, requests, responses, code| {
            check(log.take_after_ends(2), path, requests, responses, code);
        })
        .await;
    });
    end(server);
}

#[test]
fn a_channels_chain_sees_calls_of_all_kinds_from_outside_in_and_back() {
    let log = Log::default();
    let server = crate::common::serve();
    block_on(async {
        let settings = Channel::builder(server.endpoint()).intercept(Recorder::new("outer", &log));
        let plain = Channel::connect(server.endpoint()).await.unwrap();
        for channel in [
            settings.connect().await.unwrap().intercept(Recorder::new("inner", &log)),
            plain.intercept(Recorder::new("outer", &log)).intercept(Recorder::new("inner", &log)),
            server
                .in_process()
                .intercept(Recorder::new("outer", &log))
                .intercept(Recorder::new("inner", &log)),
        ] {
            calls(&channel, |path, requests, responses, code| {
                check(log.take(), path, requests, responses, code);
            })
            .await;
        }
        calls(&plain, |_, _, _, _| {}).await;
        assert!(log.take().is_empty(), "the channel that others were derived from stays as it is");
    });
    end(server);
}

#[test]
fn a_blocking_channels_chain_sees_calls_of_all_kinds_from_outside_in_and_back() {
    let log = Log::default();
    let server = crate::common::serve();
    let settings = blocking::Channel::builder(server.endpoint()).intercept(Recorder::new("outer", &log));
    let mut channel = blocking::Channel::with(settings).unwrap().intercept(Recorder::new("inner", &log));

    channel.unary::<Raw, Raw>(PATH_ECHO, number(7)).unwrap();
    check(log.take(), PATH_ECHO, 1, 1, Code::Ok);

    let count = channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(5)).unwrap().into_inner();
    assert_eq!(count.collect::<Result<Vec<_>, _>>().unwrap().len(), 5);
    check(log.take(), PATH_COUNT, 1, 5, Code::Ok);

    let mut upload = channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).unwrap();
    for addend in 1..=4 {
        upload.send(&number(addend)).unwrap();
    }
    assert_eq!(value(upload.finish().unwrap().get_ref()), 10);
    check(log.take(), PATH_SUM, 4, 1, Code::Ok);

    let mut chat = channel.bidi::<Raw, Raw>(PATH_CHAT, ()).unwrap();
    for turn in 0..3 {
        chat.send(&number(turn)).unwrap();
        assert_eq!(chat.message().unwrap(), Some(number(turn * 2)));
    }
    chat.finish_sending();
    assert_eq!(chat.message().unwrap(), None);
    drop(chat);
    check(log.take(), PATH_CHAT, 3, 3, Code::Ok);

    let status: Status = channel.unary::<Raw, Raw>(PATH_FAIL, number(1)).unwrap_err();
    check(log.take(), PATH_FAIL, 1, 0, status.code());
    drop(channel);
    end(server);
}

#[test]
fn both_ends_of_one_call_may_be_intercepted_and_unknown_methods_too() {
    let log = Log::default();
    let server = Server::builder()
        .reactors(1)
        .unknown_methods(|mut requests, mut replies| async move {
            while let Some(message) = requests.message().await? {
                replies.send(&message).await?;
            }
            Ok(())
        })
        .intercept(Recorder::new("server", &log))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let channel = channel.intercept(Recorder::new("client", &log));
        channel.unary::<Raw, Raw>("/not.There/Echo", number(1)).await.unwrap();
    });
    let log = log.take_after_ends(2);
    let client: Vec<_> = log.iter().filter(|line| line.starts_with("client")).collect();
    assert_eq!(
        client,
        [
            "client call /not.There/Echo",
            "client request 8",
            "client metadata",
            "client response 8",
            "client finish OK"
        ]
    );
    let server_saw: Vec<_> = log.iter().filter(|line| line.starts_with("server")).collect();
    assert_eq!(
        server_saw,
        [
            "server call /not.There/Echo",
            "server request 8",
            "server metadata",
            "server response 8",
            "server finish OK"
        ]
    );
    end(server);
}
