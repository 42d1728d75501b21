//! What a subscriber of `tracing` hears: a span for each call and side, whatever its end; an event for each message; events of
//! connections; slow polls.

mod recorder;

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use fulmar::{
    CallHead, Channel, Code, Duplex, Interceptor, LocalReactor, Placement, Raw, Replies, Request, Response,
    Router, RunningServer, Server, Service, Status, Streaming, Upload, blocking,
};
use recorder::{SpanRecord, recorder};

/// One method for each test, so that tests find their calls; `kind` says what its handler does.
struct Method {
    path: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Answers, and tells of it.
    Echo,
    Fail,
    Panic,
    Hang,
    Stream,
    Slow,
    /// Answers with a message that does not have the length that it announces.
    Misencode,
    /// Answers with a message that is over the limit.
    SendTooMuch,
}

/// More than [`Kind::SendTooMuch`] may send.
const TOO_MANY_BYTES: usize = 1_001;

#[derive(Debug, Default)]
struct Misencoded;

impl prost::Message for Misencoded {
    fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
        buf.put_slice(&[8; 99]);
    }

    fn merge_field(
        &mut self,
        _tag: u32,
        _wire_type: prost::encoding::WireType,
        _buf: &mut impl bytes::Buf,
        _context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        100
    }

    fn clear(&mut self) {}
}

fn raw(bytes: usize) -> Raw {
    Raw::from(vec![7; bytes])
}

impl Service for Method {
    fn name(&self) -> &'static str {
        "demo.Traced"
    }

    fn register(&self, router: &mut Router) {
        if self.kind == Kind::Stream {
            return router.bidi(self.path, &Arc::new(()), chat);
        }
        if self.kind == Kind::Misencode {
            return router.unary(self.path, &Arc::new(()), |_, _: Request<Raw>| async {
                Ok::<_, Status>(Response::new(Misencoded))
            });
        }
        router.unary(self.path, &Arc::new(self.kind), |kind, request: Request<Raw>| async move {
            let _dropped = TellDrop;
            match *kind {
                Kind::SendTooMuch => return Ok(Response::new(raw(TOO_MANY_BYTES))),
                Kind::Echo | Kind::Stream | Kind::Misencode => {
                    tracing::info!(target: "test", "echoing");
                    again().await;
                    tracing::info!(target: "test", "echoed");
                }
                Kind::Fail => return Err(Status::not_found("no such bird")),
                Kind::Panic => panic!("the handler has had enough"),
                Kind::Hang => pending().await,
                Kind::Slow => thread::sleep(Duration::from_millis(15)),
            }
            Ok(Response::new(request.into_inner()))
        });
    }
}

async fn chat(
    _: Arc<()>,
    mut requests: Request<Streaming<Raw>>,
    mut replies: Replies<Raw>,
) -> Result<(), Status> {
    while let Some(message) = requests.message().await? {
        replies.send(&message).await?;
    }
    Ok(())
}

/// Tells of the end of a handler's future.
struct TellDrop;

impl Drop for TellDrop {
    fn drop(&mut self) {
        tracing::info!(target: "test", "dropped");
    }
}

/// Waits to be polled once more.
async fn again() {
    let mut is_second = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn serve(path: &'static str, kind: Kind) -> RunningServer {
    recorder();
    let limited = match kind {
        Kind::SendTooMuch => Server::builder().send_message_bytes_max(TOO_MANY_BYTES - 1),
        _ => Server::builder(),
    };
    limited.reactors(1).add_service(Method { path, kind }).bind("127.0.0.1:0").unwrap().spawn().unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// One unary call over a fresh connection, and the spans of its two sides.
fn one_call(path: &'static str, kind: Kind, request: Request<Raw>) -> (Result<(), Status>, [SpanRecord; 2]) {
    let server = serve(path, kind);
    let result = wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        channel.unary::<Raw, Raw>(path, request).await.map(drop)
    });
    let spans = ["client", "server"].map(|kind| recorder().ended(kind, path, 1).remove(0));
    drop(server);
    (result, spans)
}

fn codes(spans: &[SpanRecord; 2]) -> [&str; 2] {
    [spans[0].fields.get("rpc.grpc.status_code"), spans[1].fields.get("rpc.grpc.status_code")]
}

#[test]
fn a_call_has_a_span_on_each_side_that_says_what_happened() {
    let path = "/demo.Traced/Fine";
    let user = {
        recorder();
        tracing::info_span!(target: "test", "user")
    };
    let (result, spans) = user.in_scope(|| one_call(path, Kind::Echo, Request::new(raw(5))));
    result.unwrap();
    assert_eq!(codes(&spans), ["0", "0"]);
    for span in &spans {
        assert_eq!(span.fields.get("rpc.system"), "grpc");
        assert_eq!(span.fields.get("rpc.service"), "demo.Traced");
        assert_eq!(span.fields.get("rpc.method"), "Fine");
        assert_eq!(span.fields.get("otel.status_code"), "", "no error");
        assert!(span.fields.get("duration_us").parse::<u64>().is_ok());
        assert_eq!(recorder().messages(span), (1, 1));
    }
    assert!(spans[0].fields.get("server.address").starts_with("127.0.0.1:"));
    assert!(spans[1].fields.get("network.peer.address").starts_with("127.0.0.1:"));
    assert_eq!(spans[0].parent, user.id().map(|id| id.into_u64()));
    assert_eq!(spans[1].parent, None);
}

#[test]
fn what_a_handler_tells_is_told_inside_of_its_span_at_every_poll_and_when_it_is_dropped() {
    let (_, [_, server]) = one_call("/demo.Traced/Inside", Kind::Echo, Request::new(raw(1)));
    let told: Vec<_> = recorder()
        .events()
        .into_iter()
        .filter(|event| event.target == "test" && event.parent == Some(server.id))
        .map(|event| event.fields.get("message").to_owned())
        .collect();
    assert_eq!(told, ["echoing", "echoed", "dropped"]);
}

#[test]
fn a_call_made_in_a_handler_is_part_of_the_handlers_span() {
    let (inner_path, path) = ("/demo.Traced/Inner", "/demo.Traced/Outer");
    let inner = serve(inner_path, Kind::Echo);
    let channel = Channel::builder(inner.endpoint()).build().unwrap();
    struct Proxy(Arc<Channel>);
    impl Service for Proxy {
        fn name(&self) -> &'static str {
            "demo.Traced"
        }
        fn register(&self, router: &mut Router) {
            router.unary("/demo.Traced/Outer", &self.0, |channel, request: Request<Raw>| async move {
                channel.unary::<Raw, Raw>("/demo.Traced/Inner", request.into_inner()).await
            });
        }
    }
    let outer =
        Server::builder().add_service(Proxy(Arc::new(channel))).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    wait(async {
        let channel = Channel::connect(outer.endpoint()).await.unwrap();
        channel.unary::<Raw, Raw>(path, raw(1)).await.unwrap();
    });
    let server = recorder().ended("server", path, 1).remove(0);
    let client = recorder().ended("client", inner_path, 1).remove(0);
    assert_eq!(client.parent, Some(server.id));
}

#[test]
fn calls_that_fail_end_with_their_codes_and_blame_the_server_for_its_own_faults_only() {
    let (result, spans) = one_call("/demo.Traced/Fails", Kind::Fail, Request::new(raw(1)));
    assert_eq!(result.unwrap_err().code(), Code::NotFound);
    assert_eq!(codes(&spans), ["5", "5"]);
    assert_eq!([&spans[0], &spans[1]].map(|span| span.fields.get("otel.status_code")), ["ERROR", ""]);

    let (result, spans) = one_call("/demo.Traced/Panics", Kind::Panic, Request::new(raw(1)));
    assert_eq!(result.unwrap_err().code(), Code::Unknown);
    assert_eq!(codes(&spans), ["2", "2"]);
    assert_eq!([&spans[0], &spans[1]].map(|span| span.fields.get("otel.status_code")), ["ERROR", "ERROR"]);
}

#[test]
fn a_reply_that_cannot_be_sent_ends_both_spans_with_the_same_code() {
    let (result, spans) = one_call("/demo.Traced/Misencodes", Kind::Misencode, Request::new(raw(1)));
    assert_eq!(result.unwrap_err().code(), Code::Internal);
    assert_eq!(codes(&spans), ["13", "13"]);

    let (result, spans) = one_call("/demo.Traced/SendsTooMuch", Kind::SendTooMuch, Request::new(raw(1)));
    assert_eq!(result.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(codes(&spans), ["8", "8"]);
}

#[test]
fn a_call_whose_deadline_passes_ends_on_both_sides() {
    let request = Request::new(raw(1)).with_timeout(Duration::from_millis(800));
    let (result, spans) = one_call("/demo.Traced/Late", Kind::Hang, request);
    assert_eq!(result.unwrap_err().code(), Code::DeadlineExceeded);
    // The client's reset may reach the server before the server's own deadline comes, which began when the request arrived.
    assert!(matches!(codes(&spans), ["4", "4" | "1"]), "{spans:?}");
}

#[test]
fn a_call_without_any_time_and_one_that_interceptors_refuse_have_a_span_too() {
    let path = "/demo.Traced/Never";
    let server = serve(path, Kind::Echo);
    struct Refuse;
    impl Interceptor for Refuse {
        async fn on_call(&self, _call: &mut CallHead) -> Result<(), Status> {
            Err(Status::permission_denied("not you"))
        }
    }
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let request = Request::new(raw(1)).with_timeout(Duration::ZERO);
        channel.unary::<Raw, Raw>(path, request).await.unwrap_err();
        channel.intercept(Refuse).unary::<Raw, Raw>(path, raw(1)).await.unwrap_err();
    });
    let spans = recorder().ended("client", path, 2);
    let mut codes: Vec<_> = spans.iter().map(|span| span.fields.get("rpc.grpc.status_code")).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["4", "7"]);
}

#[test]
fn a_call_that_is_given_up_ends_as_cancelled_on_both_sides() {
    let path = "/demo.Traced/Dropped";
    let server = serve(path, Kind::Hang);
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let call = channel.unary::<Raw, Raw>(path, raw(1));
        assert!(tokio::time::timeout(Duration::from_millis(500), call).await.is_err());
        // One that was never polled is no call.
        drop(channel.unary::<Raw, Raw>(path, raw(1)));
        let mut unsent = Box::pin(channel.unary::<Raw, Raw>(path, raw(1)));
        let _ = unsent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(unsent);
    });
    for span in recorder().ended("client", path, 2) {
        assert_eq!(span.fields.get("rpc.grpc.status_code"), "1");
    }
    drop(server);
    for span in recorder().spans().iter().filter(|span| span.fields.get("rpc.method") == "Dropped") {
        assert_eq!((span.closes, span.fields.get("rpc.grpc.status_code")), (1, "1"), "{span:?}");
    }
}

#[test]
fn a_connection_that_is_lost_ends_the_spans_of_its_calls() {
    let path = "/demo.Traced/Lost";
    let server = serve(path, Kind::Hang);
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let stop = async {
            while !recorder().has_begun("server", path) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.handle().shutdown(Duration::ZERO);
        };
        let call = channel.unary::<Raw, Raw>(path, raw(1));
        assert_eq!(tokio::join!(call, stop).0.unwrap_err().code(), Code::Unavailable);
    });
    assert_eq!(recorder().ended("client", path, 1)[0].fields.get("rpc.grpc.status_code"), "14");
    assert_eq!(recorder().ended("server", path, 1)[0].fields.get("rpc.grpc.status_code"), "1");
}

#[test]
fn every_message_of_a_stream_is_an_event_with_its_length() {
    let path = "/demo.Traced/Stream";
    let server = serve(path, Kind::Stream);
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(path, ()).await.unwrap();
        for bytes in [1, 200, 70_000] {
            requests.send(&raw(bytes)).await.unwrap();
            replies.message().await.unwrap();
        }
        requests.finish();
        assert!(replies.message().await.unwrap().is_none());
    });
    for kind in ["client", "server"] {
        let span = recorder().ended(kind, path, 1).remove(0);
        assert_eq!(span.fields.get("rpc.grpc.status_code"), "0");
        let events = recorder().events();
        for direction in ["sent", "received"] {
            let bytes = events.iter().filter(|event| event.parent == Some(span.id));
            let bytes = bytes.filter(|event| event.fields.get("direction") == direction);
            let bytes: Vec<_> = bytes.map(|event| event.fields.get("bytes")).collect();
            assert_eq!(bytes, ["1", "200", "70000"], "{direction} by the {kind}");
        }
    }
}

#[test]
fn streams_that_are_dropped_before_their_end_end_their_spans() {
    let path = "/demo.Traced/HalfRead";
    let server = serve(path, Kind::Stream);
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(path, ()).await.unwrap();
        requests.send(&raw(1)).await.unwrap();
        replies.message().await.unwrap();
        drop(replies);
        drop(requests);
        let mut upload: Upload<Raw, Raw> = channel.client_streaming(path, ()).await.unwrap();
        upload.send(&raw(1)).await.unwrap();
        drop(upload);
    });
    for span in recorder().ended("client", path, 2) {
        assert_eq!(span.fields.get("rpc.grpc.status_code"), "1");
    }
}

#[test]
fn blocking_calls_and_calls_on_one_thread_have_their_spans() {
    let path = "/demo.Traced/Blocking";
    let server = serve(path, Kind::Echo);
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap();
    channel.unary::<Raw, Raw>(path, raw(3)).unwrap();
    drop(server);
    channel.unary::<Raw, Raw>(path, raw(3)).unwrap_err();
    let spans = recorder().ended("client", path, 2);
    assert_eq!(spans[0].fields.get("rpc.grpc.status_code"), "0");
    assert_eq!(spans[1].fields.get("rpc.grpc.status_code"), "14");
    assert_eq!(recorder().messages(&spans[0]), (1, 1));
    recorder().ended("server", path, 1);

    let path = "/demo.Traced/Local";
    let server =
        Server::builder().add_service(Method { path, kind: Kind::Echo }).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    let user = tracing::info_span!(target: "test", "around the reactor");
    let _inside = user.enter();
    reactor.block_on(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        channel.unary::<Raw, Raw>(path, raw(1)).await.unwrap();
    });
    let client = recorder().ended("client", path, 1).remove(0);
    let server = recorder().ended("server", path, 1).remove(0);
    assert_eq!((client.parent, server.parent), (user.id().map(|id| id.into_u64()), None));
}

#[test]
fn calls_in_process_have_the_same_spans_whether_or_not_they_need_a_connection() {
    let codes_of = [
        (Kind::Echo, "0"),
        (Kind::Fail, "5"),
        (Kind::Panic, "2"),
        (Kind::Misencode, "13"),
        (Kind::SendTooMuch, "8"),
    ];
    for (number, (kind, code)) in codes_of.into_iter().enumerate() {
        let path = [
            "/demo.Traced/In0",
            "/demo.Traced/In1",
            "/demo.Traced/In2",
            "/demo.Traced/In3",
            "/demo.Traced/In4",
        ][number];
        let server = serve(path, kind);
        let channel = server.in_process();
        wait(async {
            // The first makes the connection, and takes it.
            for _ in 0..2 {
                assert_eq!(channel.unary::<Raw, Raw>(path, raw(5)).await.is_ok(), code == "0");
            }
        });
        for side in ["client", "server"] {
            let spans = recorder().ended(side, path, 2);
            let [first, second] = [&spans[0], &spans[1]];
            assert_eq!(first.fields.get("rpc.grpc.status_code"), code, "{side}");
            for field in [
                "otel.name",
                "rpc.grpc.status_code",
                "otel.status_code",
                "server.address",
                "network.peer.address",
            ] {
                assert_eq!(second.fields.get(field), first.fields.get(field), "{field} of {side} of {path}");
            }
            assert_eq!(recorder().messages(second), recorder().messages(first), "{side} of {path}");
        }
    }
}

#[test]
fn connections_are_told_of_on_both_sides() {
    let path = "/demo.Traced/Connected";
    let server = serve(path, Kind::Echo);
    let endpoint = server.endpoint();
    wait(async {
        let channel = Channel::connect(&endpoint).await.unwrap();
        channel.unary::<Raw, Raw>(path, raw(1)).await.unwrap();
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
    let events = recorder().events();
    let of = |side: &str, message: &str| {
        events.iter().any(|event| {
            event.target == "fulmar::connection"
                && event.fields.get("side") == side
                && event.fields.get("message") == message
                && (side == "server" || event.fields.get("peer") == endpoint)
        })
    };
    assert!(of("client", "connected") && of("server", "accepted") && of("server", "closed"));
}

#[test]
fn slow_polls_are_told_of_once_a_second_with_their_method() {
    let path = "/demo.Traced/Slow";
    let server = serve(path, Kind::Slow);
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for _ in 0..3 {
            channel.unary::<Raw, Raw>(path, raw(1)).await.unwrap();
        }
    });
    let events = recorder().events();
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.target == "fulmar::reactor" && event.fields.get("path") == path)
        .collect();
    // A machine that stands still for a second in between may make it two.
    assert!(matches!(told.len(), 1 | 2), "{told:?}");
    assert!(told[0].fields.get("took_ms").parse::<u64>().unwrap() >= 15);
}

#[test]
fn handlers_on_other_reactors_run_in_their_spans_too() {
    let (path, hang, stream) =
        ("/demo.Traced/Placed", "/demo.Traced/PlacedHang", "/demo.Traced/PlacedStream");
    recorder();
    let server = Server::builder()
        .reactors(3)
        .placement(Placement::Spread)
        .add_service(Method { path, kind: Kind::Echo })
        .add_service(Other("demo.Hanging", Method { path: hang, kind: Kind::Hang }))
        .add_service(Other("demo.Streaming", Method { path: stream, kind: Kind::Stream }));
    struct Other(&'static str, Method);
    impl Service for Other {
        fn name(&self) -> &'static str {
            self.0
        }
        fn register(&self, router: &mut Router) {
            self.1.register(router);
        }
    }
    let server = server.bind("127.0.0.1:0").unwrap().spawn().unwrap();
    wait(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for _ in 0..6 {
            channel.unary::<Raw, Raw>(path, raw(3)).await.unwrap();
            let Duplex { mut requests, mut replies } = channel.bidi::<Raw, Raw>(stream, ()).await.unwrap();
            for bytes in 0..4 {
                requests.send(&raw(bytes)).await.unwrap();
                replies.message().await.unwrap();
            }
            requests.finish();
            assert!(replies.message().await.unwrap().is_none());
        }
        let request = || Request::new(raw(1)).with_timeout(Duration::from_millis(800));
        let call = || channel.unary::<Raw, Raw>(hang, request());
        let (one, two, three) = tokio::join!(call(), call(), call());
        assert!(one.is_err() && two.is_err() && three.is_err());
    });
    for kind in ["client", "server"] {
        for span in recorder().ended(kind, path, 6) {
            assert_eq!(span.fields.get("rpc.grpc.status_code"), "0");
            assert_eq!(recorder().messages(&span), (1, 1), "{kind}");
            assert!(kind == "client" || span.enters >= 3, "started, polled twice, dropped: {span:?}");
        }
        for span in recorder().ended(kind, stream, 6) {
            assert_eq!(recorder().messages(&span), (4, 4), "{kind}");
        }
        for span in recorder().ended(kind, hang, 3) {
            assert!(matches!(span.fields.get("rpc.grpc.status_code"), "4" | "1"), "{span:?}");
        }
    }
    let told = recorder().events().into_iter().filter(|event| {
        let of_path =
            |span: &SpanRecord| Some(span.id) == event.parent && span.fields.get("otel.name") == &path[1..];
        event.fields.get("message") == "echoed" && recorder().spans().iter().any(of_path)
    });
    assert_eq!(told.count(), 6);
}
