//! The plays.

use std::time::Duration;

use fulmar::{CallHead, CallInfo, Channel, Interceptor, MetadataMap, Raw, Request, Status};

use crate::stage::{
    CHAT, COUNT, DO, ECHO, Log, ODD, PANICS, SUM, Stage, TEXT, TOO_LONG, TOO_SHORT, WAIT, later, poll_some,
    shown, shown_response, shown_status,
};
use crate::{compare, compare_with};

const MOMENT: Duration = Duration::from_millis(40);
const LONG: Duration = Duration::from_secs(60);

fn raw(bytes: usize) -> Raw {
    Raw::from(vec![7; bytes])
}

impl Stage {
    /// Makes a unary call, and writes down what came of it.
    async fn call(&self, path: &str, request: impl fulmar::IntoRequest<Raw>) {
        self.call_over(&self.channel, path, request).await;
    }

    async fn call_over(&self, channel: &Channel, path: &str, request: impl fulmar::IntoRequest<Raw>) {
        let response = channel.unary::<Raw, Raw>(path, request).await;
        // Headers of requests say where the server is.
        let shown = shown_response(&response);
        let shown = match shown.split_once("metadata of the request of ") {
            Some((before, size)) => {
                format!("{before}{}", size.trim_start_matches(|digit: char| digit.is_ascii_digit()))
            }
            None => shown,
        };
        self.log.add(format!("{path} {shown}"));
    }

    /// Has the handler do something.
    async fn order(&self, order: &str) {
        let response = self.channel.unary::<Raw, Raw>(DO, Raw::from(order.as_bytes().to_vec())).await;
        self.log.add(format!("{order}: {}", shown_response(&response)));
    }

    /// Waits until handlers have written so many lines.
    async fn until_handlers(&self, lines: usize) {
        let began = std::time::Instant::now();
        while self.handlers.len() < lines {
            assert!(began.elapsed() < LONG, "handlers have seen no more than {:?}", self.handlers.take());
            std::thread::sleep(Duration::from_millis(1));
            later(1).await;
        }
    }
}

#[test]
fn messages_of_all_sizes_come_back_as_they_were() {
    compare(|stage| {
        Box::pin(async move {
            for bytes in [0, 1, 4_091, 4_096, 4_097, 16_379, 16_384, 16_385, 70_000, 4_194_304] {
                stage.call(ECHO, raw(bytes)).await;
                stage.order(&format!("reply {bytes}")).await;
            }
            stage.order("reply 4194305").await;
            stage.call(ECHO, raw(4_194_305)).await;
        })
    });
}

#[test]
fn limits_on_messages_hold_with_their_texts() {
    compare_with(
        |builder, _| builder.receive_message_bytes_max(30_000).send_message_bytes_max(20_000),
        |stage| {
            Box::pin(async move {
                for bytes in [20_000, 20_001, 30_000, 30_001] {
                    stage.call(ECHO, raw(bytes)).await;
                }
            })
        },
    );
    compare_with(
        |builder, _| builder.receive_message_bytes_max(1_000).send_message_bytes_max(100),
        |stage| {
            Box::pin(async move {
                for bytes in [100, 101, 1_000, 1_001, 20_000] {
                    stage.call(ECHO, raw(bytes)).await;
                }
            })
        },
    );
}

#[test]
fn metadata_goes_both_ways_in_its_order() {
    compare(|stage| {
        Box::pin(async move {
            let mut request = Request::new(raw(3));
            let metadata = request.metadata_mut();
            metadata.append("x-one", "1, 2").unwrap();
            metadata.append_bin("x-two-bin", b"\x00\x01, \xff").unwrap();
            metadata.append("x-one", "").unwrap();
            metadata.append_sensitive("x-secret", "hush").unwrap();
            metadata.append_bin("x-two-bin", b"").unwrap();
            metadata.append("grpc-previous-rpc-attempts", "2").unwrap();
            stage.call(ECHO, request).await;
            stage.call(ECHO, Request::new(raw(1)).with_timeout(LONG)).await;
            stage.call(ECHO, raw(2)).await;
        })
    });
}

#[test]
fn metadata_over_limits_fails_calls_with_the_same_texts() {
    compare(|stage| {
        Box::pin(async move {
            for (count, bytes) in
                [(10, 100), (115, 100), (130, 100), (170, 100), (230, 1), (239, 1), (260, 1)]
            {
                let mut request = Request::new(raw(3));
                for number in 0..count {
                    request.metadata_mut().append(&format!("y-{number}"), &"v".repeat(bytes)).unwrap();
                }
                stage.call(ECHO, request).await;
            }
            for order in ["metadata", "trailers", "fail-metadata"] {
                for count in [10, 100, 115, 118, 119, 120, 130, 200] {
                    stage.order(&format!("{order} {count}")).await;
                }
            }
            for order in ["many", "many-trailers"] {
                for count in [230, 250, 253, 254, 255, 256, 257, 300] {
                    stage.order(&format!("{order} {count}")).await;
                }
            }
        })
    });
}

#[test]
fn statuses_arrive_as_they_were_sent() {
    compare(|stage| {
        Box::pin(async move {
            for code in 1..=17 {
                stage.order(&format!("fail {code}")).await;
            }
            for order in
                ["fail-richly", "fail-ok", "fail-long 10", "fail-long 1000", "fail-long 9000", "nonsense"]
            {
                stage.order(order).await;
            }
        })
    });
}

#[test]
fn what_handlers_and_messages_do_wrong_is_told_alike() {
    compare(|stage| {
        Box::pin(async move {
            stage.order("panic").await;
            stage.order("panic-late").await;
            for odd in [TOO_SHORT, TOO_LONG, PANICS] {
                stage.call(ODD, raw(odd)).await;
            }
            stage.call(TEXT, Raw::from(vec![0x0a, 0x02, 0xff, 0xfe])).await;
            stage.call(TEXT, Raw::from(vec![0x0a, 0x02, b'o', b'k'])).await;
            stage.call("/play.Play/Nothing", raw(1)).await;
            stage.call("play", raw(1)).await;
            stage.call(COUNT, raw(0)).await;
            stage.call(COUNT, raw(1)).await;
            stage.call(SUM, raw(5)).await;
            stage.order("later 5").await;
        })
    });
}

#[test]
fn compression_is_refused_and_let_be_alike() {
    compare(|stage| {
        Box::pin(async move {
            stage.order("compress nothing-known").await;
            stage.order("plain").await;
            let on = Request::new(raw(10_000)).with_compression(fulmar::Compression::On);
            stage.call(ECHO, on).await;
            let unknown = Request::new(raw(10)).with_compression(fulmar::Compression::encoding("none-such"));
            stage.call(ECHO, unknown).await;
        })
    });
}

#[test]
fn deadlines_end_calls_on_both_sides() {
    compare(|stage| {
        Box::pin(async move {
            stage.call(WAIT, Request::new(raw(1)).with_timeout(Duration::ZERO)).await;
            stage.call(WAIT, Request::new(raw(2)).with_timeout(MOMENT)).await;
            stage.until_handlers(1).await;
            // One of the two clocks of a call over a socket is a little ahead.
            let told = wait_for_left(&stage).await;
            stage.log.add(format!("{}", told.contains("too late") || told.contains("cancelled")));
            stage.gate.open(1);
            stage.call(WAIT, Request::new(raw(3)).with_timeout(LONG)).await;
            stage.until_handlers(2).await;
        })
    });
}

/// Takes the lines of handlers away up to that of one that has left, which is returned.
async fn wait_for_left(stage: &Stage) -> String {
    let mut seen = Vec::new();
    loop {
        seen.extend(stage.handlers.take());
        if let Some(line) = seen.iter().find(|line| line.starts_with("left")) {
            return line.clone();
        }
        std::thread::sleep(Duration::from_millis(1));
        later(1).await;
    }
}

#[test]
fn calls_that_are_dropped_are_cancelled() {
    compare(|stage| {
        Box::pin(async move {
            for _ in 0..3 {
                let mut call = Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(1)));
                while stage.handlers.len() == 0 {
                    assert!(poll_some(&mut call, 1).await.is_pending());
                }
                drop(call);
                stage.log.add(wait_for_left(&stage).await);
            }
            // One that is dropped before anybody has seen it.
            drop(Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(1))));
            stage.call(ECHO, raw(1)).await;
        })
    });
}

#[test]
fn many_calls_wait_side_by_side_and_end_as_they_are_let() {
    compare(|stage| {
        Box::pin(async move {
            let calls = (0..50).map(|number| {
                let stage = stage.clone();
                Box::pin(async move {
                    let response = stage.channel.unary::<Raw, Raw>(WAIT, raw(number)).await;
                    assert_eq!(response.unwrap().get_ref(), &raw(number));
                })
            });
            stage.gate.open(50);
            crate::common::join_all(calls).await;
            stage.until_handlers(100).await;
            let mut lines = stage.handlers.take();
            lines.sort();
            lines.into_iter().for_each(|line| stage.log.add(line));
        })
    });
}

#[test]
fn no_more_calls_run_at_a_time_than_the_server_lets() {
    compare_with(
        |builder, _| builder.http2(fulmar::Http2Config { streams_max: 2, ..Default::default() }),
        |stage| {
            Box::pin(async move {
                let mut calls: Vec<_> = (0..4)
                    .map(|number| Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(number))))
                    .collect();
                for call in &mut calls {
                    assert!(poll_some(call, 20).await.is_pending());
                }
                stage.until_handlers(2).await;
                let chat = stage.channel.bidi::<Raw, Raw>(CHAT, ()).await;
                later(50).await;
                stage.log.add(format!("{} have begun", stage.handlers.len()));
                let late =
                    stage.channel.unary::<Raw, Raw>(ECHO, Request::new(raw(9)).with_timeout(MOMENT)).await;
                stage.log.add(shown_response(&late));
                stage.gate.open(4);
                for call in calls {
                    stage.log.add(shown_response(&call.await));
                }
                let mut chat = chat.unwrap();
                chat.requests.send(&raw(5)).await.unwrap();
                stage.log.add(format!("{:?}", chat.replies.message().await));
                chat.requests.finish();
                stage.log.add(shown_status(&chat.replies.message().await.unwrap_err()));
                stage.until_handlers(10).await;
                let mut lines = stage.handlers.take();
                lines.sort();
                lines.into_iter().for_each(|line| stage.log.add(line));
            })
        },
    );
}

#[test]
fn a_call_that_waits_for_a_stream_begins_when_one_of_any_kind_ends() {
    compare_with(
        |builder, _| builder.http2(fulmar::Http2Config { streams_max: 2, ..Default::default() }),
        |stage| {
            Box::pin(async move {
                let mut chat = stage.channel.bidi::<Raw, Raw>(CHAT, ()).await.unwrap();
                chat.requests.send(&raw(1)).await.unwrap();
                assert!(chat.replies.message().await.unwrap().is_some());
                let mut waits = Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(2)));
                while stage.handlers.len() < 2 {
                    assert!(poll_some(&mut waits, 1).await.is_pending());
                }
                let mut third = Box::pin(stage.channel.unary::<Raw, Raw>(ECHO, raw(3)));
                assert!(poll_some(&mut third, 50).await.is_pending());
                stage.log.add(format!("{} have begun", stage.handlers.len()));
                chat.requests.finish();
                stage.log.add(shown_status(&chat.replies.message().await.unwrap_err()));
                stage.log.add(shown_response(&third.await));
                stage.gate.open(1);
                stage.log.add(shown_response(&waits.await));
                stage.until_handlers(5).await;
            })
        },
    );
}

#[test]
fn a_graceful_shutdown_lets_calls_end_and_takes_no_more() {
    compare(|stage| {
        Box::pin(async move {
            let mut call = Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(1)));
            while stage.handlers.len() == 0 {
                assert!(poll_some(&mut call, 1).await.is_pending());
            }
            stage.handle.shutdown(LONG);
            let mut state = stage.channel.state();
            let began = std::time::Instant::now();
            while state == fulmar::ConnectivityState::Ready {
                assert!(began.elapsed() < LONG);
                std::thread::sleep(Duration::from_millis(1));
                later(1).await;
                state = stage.channel.state();
            }
            stage.log.add(format!("{state:?}"));
            let refused = stage.channel.unary::<Raw, Raw>(ECHO, raw(2)).await;
            stage.log.add(refused.unwrap_err().code().to_string());
            assert!(!stage.handle.wait_ended(Duration::ZERO));
            stage.gate.open(1);
            stage.log.add(shown_response(&call.await));
            while !stage.handle.wait_ended(Duration::from_millis(1)) {
                assert!(began.elapsed() < LONG);
                later(1).await;
            }
        })
    });
}

#[test]
fn a_shutdown_without_grace_cuts_calls_off() {
    compare(|stage| {
        Box::pin(async move {
            let mut call = Box::pin(stage.channel.unary::<Raw, Raw>(WAIT, raw(1)));
            while stage.handlers.len() == 0 {
                assert!(poll_some(&mut call, 1).await.is_pending());
            }
            stage.handle.shutdown(Duration::ZERO);
            stage.log.add(shown_response(&call.await));
            stage.log.add(wait_for_left(&stage).await);
        })
    });
}

#[test]
fn streams_of_all_kinds_are_as_they_were() {
    compare(|stage| {
        Box::pin(async move {
            let mut count = stage.channel.server_streaming::<Raw, Raw>(COUNT, raw(40)).await.unwrap();
            while let Some(message) = count.get_mut().message().await.unwrap() {
                stage.log.add(format!("{} bytes", message.as_ref().len()));
            }
            stage.log.add(shown(count.get_ref().trailers()));
            let mut upload = stage.channel.client_streaming::<Raw, Raw>(SUM, ()).await.unwrap();
            for number in 0..40 {
                upload.send(&raw(number * 1_000)).await.unwrap();
            }
            stage.log.add(shown_response(&upload.finish().await));
            let mut chat = stage.channel.bidi::<Raw, Raw>(CHAT, ()).await.unwrap();
            for number in 0..10 {
                chat.requests.send(&raw(number)).await.unwrap();
                stage.log.add(format!("{:?}", chat.replies.message().await));
            }
            chat.requests.finish();
            stage.log.add(shown_status(&chat.replies.message().await.unwrap_err()));
            stage.until_handlers(5).await;
        })
    });
}

/// Writes down everything it sees, and refuses what it is told to.
struct Watcher {
    name: &'static str,
    log: Log,
}

impl Interceptor for Watcher {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let time_left = call.time_left().is_some();
        self.log.add(format!("{} call {} [{}] {time_left}", self.name, call.path(), shown(call.metadata())));
        if let Some(polls) = call.metadata().get("x-wait") {
            later(polls.parse().unwrap()).await;
        }
        call.metadata_mut().append(&format!("x-{}", self.name), "was here").unwrap();
        match call.metadata().get("x-refuse") == Some(self.name) {
            true => Err(Status::permission_denied(format!("{} refuses the call", self.name))),
            false => Ok(()),
        }
    }

    fn on_request_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        self.log.add(format!("{} request {} to {}", self.name, message.len(), call.method()));
        if message.len() == 13 { Err(Status::out_of_range("13 brings bad luck")) } else { Ok(()) }
    }

    fn on_response_metadata(&self, _: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        self.log.add(format!("{} metadata [{}]", self.name, shown(metadata)));
        metadata.append(&format!("x-{}-answer", self.name), "seen").unwrap();
        Ok(())
    }

    fn on_response_message(&self, _: &CallInfo, message: &[u8]) -> Result<(), Status> {
        self.log.add(format!("{} response {}", self.name, message.len()));
        if message.len() == 14 { Err(Status::out_of_range("so does 14")) } else { Ok(()) }
    }

    fn on_finish(&self, _: &CallInfo, status: &mut Status, trailers: &mut MetadataMap) {
        self.log.add(format!("{} finish {status} [{}]", self.name, shown(trailers)));
        trailers.append(&format!("x-{}-finish", self.name), "at last").unwrap();
        if status.message() == "what is change?" {
            *status = Status::already_exists("changed");
        }
    }
}

#[test]
fn interceptors_of_both_sides_see_the_same() {
    compare_with(
        |builder, handlers| builder.intercept(Watcher { name: "server", log: handlers.clone() }),
        |stage| {
            Box::pin(async move {
                let channel = stage.channel.intercept(Watcher { name: "client", log: stage.log.clone() });
                for bytes in [1, 13, 14, 5_000, 20_000] {
                    stage.call_over(&channel, ECHO, raw(bytes)).await;
                    stage.call(ECHO, raw(bytes)).await;
                }
                for who in ["client", "server"] {
                    let mut request = Request::new(raw(3));
                    request.metadata_mut().append("x-refuse", who).unwrap();
                    stage.call_over(&channel, ECHO, request).await;
                }
                let mut request = Request::new(raw(3)).with_timeout(LONG);
                request.metadata_mut().append("x-wait", "3").unwrap();
                stage.call_over(&channel, ECHO, request).await;
                for order in
                    ["change", "panic", "panic-late", "later 3", "fail-richly", "fail-ok", "trailers 3"]
                {
                    let order = Raw::from(order.as_bytes().to_vec());
                    stage.call_over(&channel, DO, order).await;
                }
                stage.call_over(&channel, TEXT, Raw::from(vec![0x0a, 0x02, 0xff, 0xfe])).await;
                stage.call_over(&channel, ODD, raw(TOO_LONG)).await;
            })
        },
    );
}

#[test]
fn requests_are_admitted_alike() {
    compare_with(
        |builder, handlers| {
            let log = handlers.clone();
            builder.admit(move |admission| {
                let (calls, here) = (admission.calls(), admission.connection_calls());
                log.add(format!("{} [{}] {calls} {here}", admission.path(), shown(admission.metadata())));
                match admission.metadata().get("x-out") {
                    Some(_) => Err(Status::resource_exhausted("no room")),
                    None => Ok(()),
                }
            })
        },
        |stage| {
            Box::pin(async move {
                stage.call(ECHO, raw(1)).await;
                let mut request = Request::new(raw(3));
                request.metadata_mut().append("x-out", "1").unwrap();
                stage.call(ECHO, request).await;
            })
        },
    );
}

#[test]
fn handlers_that_call_their_own_server_hand_their_deadline_on() {
    compare(|stage| {
        Box::pin(async move {
            for timeout in [None, Some(LONG), Some(MOMENT)] {
                for order in ["ask fail 5", "ask ask later 3", "ask ask reply 3000", "ask panic"] {
                    let mut request = Request::new(Raw::from(order.as_bytes().to_vec()));
                    if let Some(timeout) = timeout.filter(|timeout| *timeout == LONG) {
                        request.set_timeout(timeout);
                    }
                    stage.call(DO, request).await;
                }
            }
            let hangs = Request::new(Raw::from(b"ask hang".to_vec())).with_timeout(MOMENT);
            stage.call(DO, hangs).await;
        })
    });
}
