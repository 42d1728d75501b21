//! Hello world and the route guide through the proxy, which knows neither.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use fulmar::{
    Channel, Code, Duplex, LocalReactor, Raw, Replies, Request, Response, RunningServer, Server, Status,
    Streaming,
};
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::GreeterClient;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient as BlockingGreeter;
use fulmar_examples::helloworld::greeter_server::GreeterServer;
use fulmar_examples::routeguide::route_guide_client::RouteGuideClient;
use fulmar_examples::routeguide::route_guide_server::RouteGuideServer;
use fulmar_examples::routeguide::{Feature, Point, Rectangle, RouteNote};
use fulmar_examples::{Guide, Hello, features, forward};

type Outcome = Result<(), Box<dyn Error>>;

/// A proxy for `server`.
fn proxy_of(server: &RunningServer) -> RunningServer {
    let upstream = Channel::builder(server.endpoint()).build().expect("it is an endpoint");
    Server::builder()
        .reactors(1)
        .unknown_methods(move |requests, replies| forward(upstream.clone(), requests, replies))
        .bind("127.0.0.1:0")
        .and_then(Server::spawn)
        .expect("the system has a free port and threads")
}

fn spawned(builder: fulmar::ServerBuilder) -> RunningServer {
    builder
        .reactors(1)
        .bind("127.0.0.1:0")
        .and_then(Server::spawn)
        .expect("the system has a free port and threads")
}

fn services() -> RunningServer {
    spawned(
        Server::builder()
            .add_service(GreeterServer::new(Hello))
            .add_service(RouteGuideServer::new(Guide::new())),
    )
}

fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_secs(20), "did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_four_kinds_of_the_route_guide_go_through() -> Outcome {
    let server = services();
    let proxy = proxy_of(&server);
    LocalReactor::new()?.block_on(async {
        let guide = RouteGuideClient::connect(proxy.endpoint()).await?;
        let points: Vec<Point> = features().into_iter().filter_map(|feature| feature.location).collect();
        for feature in features() {
            let point = feature.location.expect("every feature has a location");
            assert_eq!(guide.get_feature(point).await?.into_inner(), feature);
        }

        let corner =
            |sign: i32| Some(Point { latitude: sign * 900_000_000, longitude: sign * 1_800_000_000 });
        let mut listed: Vec<Feature> = Vec::new();
        let mut stream = guide.list_features(Rectangle { lo: corner(-1), hi: corner(1) }).await?.into_inner();
        while let Some(feature) = stream.message().await? {
            listed.push(feature);
        }
        assert_eq!(listed, features());

        let mut upload = guide.record_route(()).await?;
        for point in &points {
            upload.send(point).await?;
        }
        assert_eq!(upload.finish().await?.into_inner().point_count, points.len() as i32);

        let note = |message: &str| RouteNote { location: Some(points[0]), message: message.to_owned() };
        let Duplex { mut requests, mut replies } = guide.route_chat(()).await?;
        requests.send(&note("first")).await?;
        requests.send(&note("second")).await?;
        assert_eq!(replies.message().await?, Some(note("first")));
        requests.finish();
        assert_eq!(replies.message().await?, None);
        Ok::<_, Box<dyn Error>>(())
    })?;
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn hello_world_and_its_refusal_go_through() -> Outcome {
    let server = services();
    let proxy = proxy_of(&server);
    let mut greeter = BlockingGreeter::connect(proxy.endpoint())?;
    let reply = greeter.say_hello(HelloRequest { name: "proxy".into() })?;
    assert_eq!(reply.into_inner().message, "Hello proxy!");
    let status = greeter.say_hello(HelloRequest::default()).expect_err("nobody is to be greeted");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "a greeting needs a name"));
    drop(greeter);
    let status = LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await.expect("the proxy listens");
        channel.unary::<Raw, Raw>("/no.Such/Method", Raw::default()).await.expect_err("nobody has it")
    });
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("/no.Such/Method"), "{status}");
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Counts the calls that it handles.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server behind a proxy whose handler is `handle`, and how many calls it has.
fn behind<Fut: Future<Output = Result<(), Status>> + 'static>(
    handle: impl Fn(Request<Streaming<Raw>>, Replies<Raw>) -> Fut + Send + Sync + 'static,
) -> (RunningServer, RunningServer, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = calls.clone();
    let server = spawned(Server::builder().unknown_methods(move |requests, replies| {
        counting.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(counting.clone());
        let handling = handle(requests, replies);
        async move {
            let _counted = counted;
            handling.await
        }
    }));
    let proxy = proxy_of(&server);
    (server, proxy, calls)
}

#[test]
fn metadata_status_details_and_trailers_go_through_both_ways() -> Outcome {
    let (server, proxy, _calls) = behind(|requests, mut replies| async move {
        let said = requests.metadata().get_bin("x-said-bin").unwrap_or_default();
        let all: Vec<String> = requests.metadata().get_all("x-many").map(str::to_owned).collect();
        assert_eq!(all, ["one", "two"]);
        replies.metadata(|metadata| metadata.insert_bin("x-heard-bin", &said)).expect("it is a name");
        replies.send(&Raw::from(vec![1, 2, 3])).await?;
        replies.trailers(|trailers| trailers.insert("x-end", "here")).expect("it is a name");
        match requests.path() {
            "/a.B/Fail" => {
                let mut status = Status::with_code_and_details(Code::DataLoss, "größer ☺", vec![7; 300]);
                status.metadata_mut().insert("x-of-status", "too").expect("it is a name");
                Err(status)
            }
            _ => Ok(()),
        }
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let request = || -> Result<Request<Raw>, Box<dyn Error>> {
            let mut request = Request::new(Raw::default());
            request.metadata_mut().insert_bin("x-said-bin", &[0, 255])?;
            request.metadata_mut().append("x-many", "one")?;
            request.metadata_mut().append("x-many", "two")?;
            Ok(request)
        };
        let reply: Response<Raw> = channel.unary("/a.B/Work", request()?).await?;
        assert_eq!(reply.get_ref().as_ref(), [1, 2, 3]);
        assert_eq!(reply.metadata().get_bin("x-heard-bin"), Some(vec![0, 255]));
        assert_eq!(reply.trailers().get("x-end"), Some("here"));

        let mut replies: Streaming<Raw> =
            channel.server_streaming("/a.B/Fail", request()?).await?.into_inner();
        assert!(replies.message().await?.is_some());
        let status = replies.message().await.expect_err("it fails");
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "größer ☺"));
        assert_eq!(status.details(), [7; 300]);
        assert_eq!(status.metadata().get("x-of-status"), Some("too"));
        assert_eq!(replies.trailers().get("x-end"), Some("here"));
        Ok::<_, Box<dyn Error>>(())
    })?;
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_cancelled_call_is_cancelled_behind_the_proxy() -> Outcome {
    let (server, proxy, calls) = behind(|mut requests, mut replies| async move {
        replies.send_metadata().await?;
        while requests.message().await?.is_some() {}
        std::future::pending().await
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let mut call = channel.bidi::<Raw, Raw>("/a.B/Hang", ()).await?;
        call.requests.send(&Raw::from(vec![1])).await?;
        call.replies.metadata().await?;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(call);
        Ok::<_, Box<dyn Error>>(())
    })?;
    eventually("the call is dropped behind the proxy", || calls.load(Ordering::SeqCst) == 0);
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_deadline_is_one_behind_the_proxy_too() -> Outcome {
    let (server, proxy, calls) = behind(|requests, mut replies| async move {
        assert!(requests.timeout().is_some_and(|timeout| timeout <= Duration::from_secs(30)));
        if requests.path() == "/a.B/Hang" {
            std::future::pending().await
        }
        replies.send(&Raw::default()).await
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let within = |timeout| Request::new(Raw::default()).with_timeout(timeout);
        let _reply: Response<Raw> = channel.unary("/a.B/Work", within(Duration::from_secs(30))).await?;
        let late = channel.unary::<Raw, Raw>("/a.B/Hang", within(Duration::from_millis(100))).await;
        assert_eq!(late.expect_err("it hangs").code(), Code::DeadlineExceeded);
        Ok::<_, Box<dyn Error>>(())
    })?;
    eventually("the call is over behind the proxy", || calls.load(Ordering::SeqCst) == 0);
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_slow_reader_stops_the_sender_behind_the_proxy() -> Outcome {
    let sent = Arc::new(AtomicUsize::new(0));
    let counting = sent.clone();
    const MESSAGES: usize = 4_000;
    let (server, proxy, _calls) = behind(move |_requests, mut replies| {
        let counting = counting.clone();
        async move {
            for _ in 0..MESSAGES {
                replies.send(&Raw::from(vec![7; 10_000])).await?;
                counting.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let mut replies: Streaming<Raw> =
            channel.server_streaming("/a.B/List", Raw::default()).await?.into_inner();
        assert!(replies.message().await?.is_some());
        // What two connections have windows and buffers for, and no more: 40 MB do not fit.
        std::thread::sleep(Duration::from_millis(200));
        assert!(sent.load(Ordering::SeqCst) < MESSAGES / 2, "{} were sent", sent.load(Ordering::SeqCst));
        let mut read = 1;
        while replies.message().await?.is_some() {
            read += 1;
        }
        assert_eq!(read, MESSAGES);
        Ok::<_, Box<dyn Error>>(())
    })?;
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_server_that_is_gone_is_unavailable_through_the_proxy() -> Outcome {
    let server = services();
    let proxy = proxy_of(&server);
    server.shutdown(Duration::ZERO)?;
    let status = LocalReactor::new()?.block_on(async {
        let greeter = GreeterClient::connect(proxy.endpoint()).await.expect("the proxy listens");
        greeter.say_hello(HelloRequest { name: "you".into() }).await.expect_err("nobody is there")
    });
    assert_eq!(status.code(), Code::Unavailable);
    proxy.shutdown(Duration::from_secs(5))?;
    Ok(())
}

/// Nothing of any call is left at a server.
fn is_at_rest(server: &RunningServer) -> bool {
    server.handle().counts().is_some_and(|counts| {
        (counts.handlers, counts.client_calls, counts.waiting_calls) == (0, 0, 0)
            && (counts.streams, counts.held_bytes, counts.blocks, counts.deadlines) == (0, 0, 0, 0)
    })
}

#[test]
fn a_server_that_dies_under_its_calls_is_unavailable_through_the_proxy_and_leaves_nothing() -> Outcome {
    let (server, proxy, calls) = behind(|_requests, mut replies| async move {
        replies.send(&Raw::from(vec![7; 10_000])).await?;
        std::future::pending().await
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let mut streams: Vec<Streaming<Raw>> = Vec::new();
        for _ in 0..50 {
            let mut replies =
                channel.server_streaming::<Raw, Raw>("/a.B/List", Raw::default()).await?.into_inner();
            assert!(replies.message().await?.is_some());
            streams.push(replies);
        }
        assert_eq!(calls.load(Ordering::SeqCst), 50);
        server.handle().shutdown(Duration::ZERO);
        for mut replies in streams {
            let status = replies.message().await.expect_err("its server is dead");
            assert_eq!(status.code(), Code::Unavailable, "{status}");
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    eventually("nothing is left", || is_at_rest(&proxy));
    proxy.shutdown(Duration::from_secs(5))?;
    Ok(())
}

#[test]
fn a_thousand_calls_at_once_go_through_and_leave_nothing() -> Outcome {
    let (server, proxy, calls) = behind(|mut requests, mut replies| async move {
        while let Some(message) = requests.message().await? {
            replies.send(&message).await?;
        }
        Ok(())
    });
    LocalReactor::new()?.block_on(async {
        let channel = Channel::connect(proxy.endpoint()).await?;
        let mut pending: Vec<_> = (0..1_000_usize)
            .map(|index| {
                let message = Raw::from(vec![index as u8; index * 10]);
                let channel = channel.clone();
                Box::pin(async move {
                    let reply: Response<Raw> = channel.unary("/a.B/Echo", message).await?;
                    assert_eq!(reply.get_ref().as_ref(), vec![index as u8; index * 10]);
                    Ok::<(), Status>(())
                })
            })
            .collect();
        let mut failed = None;
        std::future::poll_fn(|cx| {
            pending.retain_mut(|call| match call.as_mut().poll(cx) {
                Poll::Ready(done) => {
                    failed = failed.take().or_else(|| done.err());
                    false
                }
                Poll::Pending => true,
            });
            // Some are given up under way, wherever they are.
            if pending.len() > 500 {
                pending.pop();
            }
            if pending.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert!(failed.is_none(), "{failed:?}");
        Ok::<_, Box<dyn Error>>(())
    })?;
    eventually("all calls are over behind the proxy", || calls.load(Ordering::SeqCst) == 0);
    eventually("nothing is left in the proxy", || is_at_rest(&proxy));
    eventually("nothing is left behind it", || is_at_rest(&server));
    proxy.shutdown(Duration::from_secs(5))?;
    server.shutdown(Duration::from_secs(5))?;
    Ok(())
}
