//! Wire rule 36: a handler that panics, wherever it does, ends its call with UNKNOWN and nothing else.

mod common;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{block_on, eventually, serve_one};
use fulmar::{
    CallHead, Channel, Code, Duplex, Interceptor, Raw, Replies, Request, Response, Router, RunningServer,
    Status, Streaming, Upload,
};

/// Where a handler panics.
const PLACES: [&str; 6] =
    ["in the handler itself", "at once", "midway", "on the way out", "later", "not at all"];
const KINDS: [&str; 4] = ["Unary", "Upload", "Download", "Chat"];

/// Panics without a word on standard error.
fn panic_with(text: &'static str) -> ! {
    resume_unwind(Box::new(text))
}

/// Panics at this place if the request names it.
fn maybe(named: &str, place: &str) {
    if named == place {
        panic_with("had enough");
    }
}

/// Panics when it is dropped.
struct Grenade(bool);

impl Drop for Grenade {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            panic_with("had enough when it was dropped");
        }
    }
}

/// Waits until it is polled again.
async fn a_turn() {
    let mut turned = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut turned, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

fn place_of<T>(request: &Request<T>) -> String {
    request.metadata().get("place").unwrap_or_default().to_owned()
}

fn register(router: &mut Router) {
    let service = Arc::new(());
    router.unary("/demo.One/Unary", &service, |_, request: Request<Raw>| {
        let place = place_of(&request);
        maybe(&place, "in the handler itself");
        async move {
            let _grenade = Grenade(place == "on the way out");
            maybe(&place, "at once");
            maybe(&place, "midway");
            a_turn().await;
            maybe(&place, "later");
            Ok(Response::new(request.into_inner()))
        }
    });
    router.client_streaming("/demo.One/Upload", &service, |_, mut requests: Request<Streaming<Raw>>| {
        let place = place_of(&requests);
        maybe(&place, "in the handler itself");
        async move {
            let _grenade = Grenade(place == "on the way out");
            maybe(&place, "at once");
            let first = requests.message().await?.unwrap_or_default();
            maybe(&place, "midway");
            while requests.message().await?.is_some() {}
            a_turn().await;
            maybe(&place, "later");
            Ok(Response::new(first))
        }
    });
    router.server_streaming(
        "/demo.One/Download",
        &service,
        |_, request: Request<Raw>, mut replies: Replies<Raw>| {
            let place = place_of(&request);
            maybe(&place, "in the handler itself");
            async move {
                let _grenade = Grenade(place == "on the way out");
                maybe(&place, "at once");
                replies.send(request.get_ref()).await?;
                maybe(&place, "midway");
                a_turn().await;
                maybe(&place, "later");
                Ok(())
            }
        },
    );
    router.bidi(
        "/demo.One/Chat",
        &service,
        |_, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| {
            let place = place_of(&requests);
            maybe(&place, "in the handler itself");
            async move {
                let _grenade = Grenade(place == "on the way out");
                maybe(&place, "at once");
                while let Some(message) = requests.message().await? {
                    replies.send(&message).await?;
                    maybe(&place, "midway");
                }
                a_turn().await;
                maybe(&place, "later");
                Ok(())
            }
        },
    );
    router.unary("/demo.One/Peer", &service, |_, request: Request<Raw>| async move {
        let peer = request.peer().address().map(|address| address.to_string());
        Ok(Response::new(Raw::from(peer.unwrap_or_default().into_bytes())))
    });
}

fn channel_to(server: &RunningServer) -> Channel {
    Channel::builder(format!("http://{}", server.local_addr().unwrap())).build().unwrap()
}

fn named<T>(message: T, place: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("place", place).unwrap();
    request
}

/// Makes a call of a kind with two messages at most; how many came back before it ended, and how it ended.
async fn call(channel: &Channel, kind: &str, place: &str) -> (usize, Result<(), Status>) {
    let path = format!("/demo.One/{kind}");
    let message = Raw::from(b"message".to_vec());
    match kind {
        "Unary" => {
            let answer = channel.unary::<Raw, Raw>(&path, named(message, place)).await;
            (usize::from(answer.is_ok()), answer.map(drop))
        }
        "Upload" => {
            let upload = async {
                let mut upload: Upload<Raw, Raw> = channel.client_streaming(&path, named((), place)).await?;
                let _ = upload.send(&message).await;
                let _ = upload.send(&message).await;
                upload.finish().await
            };
            let answer = upload.await;
            (usize::from(answer.is_ok()), answer.map(drop))
        }
        "Download" => match channel.server_streaming::<Raw, Raw>(&path, named(message, place)).await {
            Ok(replies) => count(replies.into_inner()).await,
            Err(status) => (0, Err(status)),
        },
        _ => {
            let Duplex { mut requests, replies } =
                match channel.bidi::<Raw, Raw>(&path, named((), place)).await {
                    Ok(duplex) => duplex,
                    Err(status) => return (0, Err(status)),
                };
            let _ = requests.send(&message).await;
            let _ = requests.send(&message).await;
            requests.finish();
            count(replies).await
        }
    }
}

async fn count(mut replies: Streaming<Raw>) -> (usize, Result<(), Status>) {
    let mut number = 0;
    loop {
        match replies.message().await {
            Ok(Some(_)) => number += 1,
            Ok(None) => return (number, Ok(())),
            Err(status) => return (number, Err(status)),
        }
    }
}

#[test]
fn a_handler_of_any_kind_that_panics_anywhere_gives_unknown_and_its_connection_survives() {
    let server = serve_one(register);
    let channel = channel_to(&server);
    let peer = || {
        let peer = block_on(channel.unary::<Raw, Raw>("/demo.One/Peer", Raw::default()));
        peer.expect("the connection is well").into_inner()
    };
    let before = peer();
    for kind in KINDS {
        for place in PLACES {
            let (messages, end) = block_on(call(&channel, kind, place));
            if place == "not at all" {
                assert!(end.is_ok(), "{kind}: {end:?}");
                assert_eq!(messages, if kind == "Chat" { 2 } else { 1 }, "{kind}");
                continue;
            }
            let status = end.expect_err("the handler panics");
            assert_eq!(status.code(), Code::Unknown, "{kind} {place}: {status}");
            assert!(status.message().contains("had enough"), "{kind} {place}: {status}");
            let expected = match (kind, place) {
                ("Unary" | "Upload", _) | (_, "in the handler itself" | "at once") => 0,
                ("Download", _) | (_, "midway") => 1,
                _ => 2,
            };
            assert_eq!(messages, expected, "{kind} {place}: what was sent before it arrives");
            assert_eq!(peer(), before, "{kind} {place}: it is the same connection");
        }
    }
}

/// What is dropped because the call was cancelled may panic too; nobody waits for the status then.
#[test]
fn a_handler_that_panics_when_it_is_cancelled_harms_nobody() {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic_with("had enough when it was dropped");
        }
    }
    let bombs = dropped.clone();
    let server = serve_one(move |router| {
        register(router);
        router.bidi(
            "/demo.One/Hang",
            &bombs,
            |bombs, _: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                let _bomb = Bomb(bombs);
                replies.send_metadata().await?;
                std::future::pending().await
            },
        );
    });
    let channel = channel_to(&server);
    for number in 1..=3 {
        block_on(async {
            let mut hanging = channel.bidi::<Raw, Raw>("/demo.One/Hang", ()).await.unwrap();
            hanging.replies.metadata().await.unwrap();
        });
        eventually("the handler is dropped", || dropped.load(Ordering::SeqCst) == number);
        assert!(block_on(call(&channel, "Unary", "not at all")).1.is_ok());
    }
}

/// Panics in everything that is dropped for it: what waits while a call is asked about, and what it leaves with the call.
struct Messy;

impl Interceptor for Messy {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let places = call.metadata().get("place").unwrap_or_default().to_owned();
        call.extensions_mut().insert(Grenade(places.contains("extension")));
        let _grenade = Grenade(places.contains("future"));
        a_turn().await;
        if places.contains("never") {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[test]
fn what_panics_when_it_is_dropped_for_an_interceptor_of_a_server_ends_its_call_at_most() {
    let server = fulmar::Server::builder().reactors(1).intercept(Messy);
    let server = server.add_service(common::One { register }).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let channel = channel_to(&server);
    for kind in KINDS {
        for (place, code) in [
            ("nothing", Code::Ok),
            ("extension", Code::Ok),
            ("future", Code::Unknown),
            ("future, extension", Code::Unknown),
            ("never, future, extension", Code::DeadlineExceeded),
        ] {
            let path = format!("/demo.One/{kind}");
            let mut request = named((), place);
            if code == Code::DeadlineExceeded {
                request.set_timeout(std::time::Duration::from_millis(50));
            }
            let end = block_on(async {
                let Duplex { mut requests, replies } =
                    channel.bidi::<Raw, Raw>(&path, request).await.unwrap();
                let _ = requests.send(&Raw::from(b"message".to_vec())).await;
                requests.finish();
                count(replies).await.1
            });
            assert_eq!(
                end.as_ref().map_or_else(Status::code, |()| Code::Ok),
                code,
                "{kind}: {place}: {end:?}"
            );
        }
        eventually("all is over", || server.handle().counts().expect("the reactor lives").handlers == 0);
    }
}
