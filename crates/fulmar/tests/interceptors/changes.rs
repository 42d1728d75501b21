//! What interceptors may change, refuse and break.

use std::sync::Arc;

use fulmar::{
    CallHead, CallInfo, Channel, Code, Duplex, Intercepted, Interceptor, MetadataMap, Raw, Replies, Request,
    Response, RunningServer, Server, Status, Streaming, blocking,
};

use crate::common::{Demo, PATH_CHAT, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, number};
use crate::{Failing, HOOKS, Hook, Log, Recorder, end};

/// Who calls, as found out by an interceptor.
#[derive(Debug)]
struct User(String);

/// Reads and writes metadata at every hook that has some.
struct Metadata;

impl Interceptor for Metadata {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let user = call.metadata().get("x-user").unwrap_or("nobody").to_owned();
        call.extensions_mut().insert(User(user));
        call.metadata_mut().remove("x-user");
        let text = call_text(call);
        call.metadata_mut().insert("x-seen", text).unwrap();
        Ok(())
    }

    fn on_response_metadata(&self, call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        let user = call.extensions().get::<User>().map_or("nobody", |user| &user.0);
        metadata.insert("x-served", user).unwrap();
        Ok(())
    }

    fn on_finish(&self, _: &CallInfo, status: &mut Status, trailers: &mut MetadataMap) {
        trailers.insert("x-code", &status.code().to_string()).unwrap();
    }
}

fn call_text(call: &CallInfo) -> &'static str {
    if call.time_left().is_some() { "limited" } else { "unlimited" }
}

/// Adds what a client's interceptor adds.
struct Token;

impl Interceptor for Token {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let user = call.extensions().get::<User>().map_or("token", |user| &user.0).to_owned();
        call.metadata_mut().insert("x-user", &user).unwrap();
        call.limit_time(std::time::Duration::from_secs(600));
        Ok(())
    }

    fn on_response_metadata(&self, _: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        metadata.insert("x-client", "saw it").unwrap();
        Ok(())
    }
}

/// Says what its request says.
async fn tell(mut request: Request<Streaming<Raw>>, mut replies: Replies<Raw>) -> Result<(), Status> {
    let user = request.extensions().get::<User>().map_or(String::new(), |user| user.0.clone());
    let seen = request.metadata().get("x-seen").unwrap_or_default().to_owned();
    assert_eq!(request.metadata().get("x-user"), None);
    while request.message().await?.is_some() {}
    if user == "villain" {
        return Err(Status::permission_denied("not you"));
    }
    replies.send(&Raw::from(format!("{user} {seen}").into_bytes())).await
}

fn serve_tell() -> RunningServer {
    let builder = Server::builder().reactors(1).unknown_methods(tell).intercept(Metadata);
    builder.bind("127.0.0.1:0").unwrap().spawn().unwrap()
}

#[test]
fn metadata_and_extensions_cross_interceptors_on_both_sides() {
    let server = serve_tell();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap().intercept(Token);
        let reply: Response<Raw> = channel.unary("/a.B/C", number(1)).await.unwrap();
        assert_eq!(reply.get_ref().as_ref(), b"token limited");
        assert_eq!(reply.metadata().get("x-served"), Some("token"));
        assert_eq!(reply.metadata().get("x-client"), Some("saw it"));
        assert_eq!(reply.trailers().get("x-code"), Some("OK"));

        let mut request = Request::new(());
        request.extensions_mut().insert(User("ada".to_owned()));
        let Duplex { requests, mut replies } = channel.bidi::<Raw, Raw>("/a.B/C", request).await.unwrap();
        requests.finish();
        assert_eq!(replies.metadata().await.unwrap().get("x-served"), Some("ada"));
        assert_eq!(replies.message().await.unwrap().unwrap().as_ref(), b"ada limited");
        assert_eq!(replies.message().await.unwrap(), None);
        assert_eq!(replies.trailers().get("x-code"), Some("OK"));

        let mut request = Request::new(number(1));
        request.extensions_mut().insert(User("villain".to_owned()));
        let status = channel.unary::<Raw, Raw>("/a.B/C", request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(status.metadata().get("x-code"), Some("PERMISSION_DENIED"));
    });
    let mut channel = blocking::Channel::connect(server.endpoint()).unwrap().intercept(Token);
    let replies = channel.server_streaming::<Raw, Raw>("/a.B/C", number(1)).unwrap();
    assert_eq!(replies.metadata().get("x-client"), Some("saw it"));
    drop(replies);
    drop(channel);
    end(server);
}

#[test]
fn handlers_of_every_kind_get_the_extensions() {
    let register = |router: &mut fulmar::Router| {
        let service = Arc::new(());
        let user = |extensions: &fulmar::Extensions| {
            Raw::from(extensions.get::<User>().unwrap().0.clone().into_bytes())
        };
        router.unary("/demo.One/Unary", &service, move |_, request: Request<Raw>| async move {
            Ok(Response::new(user(request.extensions())))
        });
        router.client_streaming(
            "/demo.One/Upload",
            &service,
            move |_, requests: Request<Streaming<Raw>>| async move {
                Ok(Response::new(user(requests.extensions())))
            },
        );
        router.server_streaming(
            "/demo.One/List",
            &service,
            move |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                replies.send(&user(request.extensions())).await
            },
        );
    };
    let service = Intercepted::new(crate::common::One { register }, Metadata);
    let server = Server::builder().add_service(service).without_listener().unwrap().spawn().unwrap();
    block_on(async {
        let channel = server.in_process();
        for path in ["/demo.One/Unary", "/demo.One/Upload", "/demo.One/List"] {
            let mut request = Request::new(number(1));
            request.metadata_mut().insert("x-user", "grace").unwrap();
            let reply: Response<Raw> = channel.unary(path, request).await.unwrap();
            assert_eq!(reply.get_ref().as_ref(), b"grace", "{path}");
            assert_eq!(reply.metadata().get("x-served"), Some("grace"), "{path}");
        }
    });
    end(server);
}

/// The code with which a call of each kind ends.
async fn codes(channel: &Channel) -> [Code; 4] {
    let code = |status: Option<Status>| status.map_or(Code::Ok, |status| status.code());
    let unary = channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.err();
    let listing = match channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(2)).await {
        Ok(replies) => read(replies.into_inner()).await,
        Err(status) => Some(status),
    };
    let upload = match channel.client_streaming::<Raw, Raw>(PATH_SUM, ()).await {
        Ok(mut upload) => match upload.send(&number(1)).await {
            Ok(()) => upload.finish().await.err(),
            Err(status) => Some(status),
        },
        Err(status) => Some(status),
    };
    let chat = match channel.bidi::<Raw, Raw>(PATH_CHAT, ()).await {
        Ok(Duplex { mut requests, replies }) => match requests.send(&number(1)).await {
            Ok(()) => {
                requests.finish();
                read(replies).await
            }
            Err(status) => Some(status),
        },
        Err(status) => Some(status),
    };
    [code(unary), code(listing), code(upload), code(chat)]
}

async fn read(mut replies: Streaming<Raw>) -> Option<Status> {
    loop {
        match replies.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

#[test]
fn a_servers_interceptor_that_refuses_or_panics_ends_its_call_and_nothing_else() {
    for (at, panics) in HOOKS.into_iter().flat_map(|hook| [(hook, false), (hook, true)]) {
        let failing = Failing { at, panics };
        let code = failing.code();
        let log = Log::default();
        let server = Server::builder()
            .reactors(1)
            .add_service(Intercepted::new(Demo::default(), failing))
            .intercept(Recorder::new("outer", &log))
            .unknown_methods(|_, mut replies| async move { replies.send(&number(1)).await })
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            assert_eq!(codes(&channel).await, [code; 4], "{at:?}, panics: {panics}");
            let seen: Vec<_> =
                log.take_after_ends(4).into_iter().filter(|line| line.contains("finish")).collect();
            assert_eq!(seen, vec![format!("outer finish {code}"); 4], "{at:?}, panics: {panics}");
            channel.unary::<Raw, Raw>("/not.There/Echo", number(1)).await.expect("the connection lives on");
        });
        end(server);
    }
}

#[test]
fn a_channels_interceptor_that_refuses_or_panics_ends_its_call_and_nothing_else() {
    let server = crate::common::serve();
    block_on(async {
        let plain = Channel::connect(server.endpoint()).await.unwrap();
        for (at, panics) in HOOKS.into_iter().flat_map(|hook| [(hook, false), (hook, true)]) {
            let failing = Failing { at, panics };
            let code = failing.code();
            let log = Log::default();
            let channel = plain.intercept(Recorder::new("outer", &log)).intercept(failing);
            assert_eq!(codes(&channel).await, [code; 4], "{at:?}, panics: {panics}");
            let told = log.take().into_iter().filter(|line| line.contains("finish")).count();
            assert_eq!(told, 4, "{at:?}, panics: {panics}");
            assert_eq!(codes(&plain).await, [Code::Ok; 4], "the connection lives on");
        }
    });
    end(server);
}

#[test]
fn a_blocking_channels_interceptor_that_refuses_or_panics_ends_its_call_and_nothing_else() {
    let server = crate::common::serve();
    for (at, panics) in HOOKS.into_iter().flat_map(|hook| [(hook, false), (hook, true)]) {
        let failing = Failing { at, panics };
        let code = failing.code();
        let mut channel = blocking::Channel::connect(server.endpoint()).unwrap().intercept(failing);
        assert_eq!(channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).unwrap_err().code(), code, "{at:?}");
        let listed = channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(2));
        let listed = listed.and_then(|replies| replies.into_inner().collect::<Result<Vec<_>, _>>());
        assert_eq!(listed.unwrap_err().code(), code, "{at:?}, panics: {panics}");
    }
    end(server);
}

#[test]
fn what_a_channel_refuses_never_reaches_the_server_and_inner_interceptors_are_not_asked() {
    let log = Log::default();
    let server = Server::builder()
        .reactors(1)
        .add_service(Demo::default())
        .intercept(Recorder::new("server", &log))
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint())
            .await
            .unwrap()
            .intercept(Recorder::new("outer", &log))
            .intercept(Failing { at: Hook::Call, panics: false })
            .intercept(Recorder::new("inner", &log));
        let status = channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await.unwrap_err();
        assert_eq!(status.message(), "refused at Call");
    });
    assert_eq!(log.take(), [format!("outer call {PATH_ECHO}"), "outer finish PERMISSION_DENIED".to_owned()]);
    end(server);
}

/// Makes failures of one kind a success, and the other way round.
struct Turning;

impl Interceptor for Turning {
    fn on_finish(&self, _: &CallInfo, status: &mut Status, trailers: &mut MetadataMap) {
        *status =
            if status.is_ok() { Status::data_loss("it only seemed to work") } else { Status::default() };
        trailers.insert("x-turned", "yes").unwrap();
    }
}

#[test]
fn the_status_of_a_call_may_be_changed_on_either_side() {
    let server = Server::builder()
        .reactors(1)
        .unknown_methods(|requests, mut replies| async move {
            replies.send(&number(1)).await?;
            if requests.path().ends_with("/Fail") { Err(Status::aborted("no")) } else { Ok(()) }
        })
        .intercept(Turning)
        .bind("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let reply: Response<Raw> = channel.unary("/a.B/Fail", number(1)).await.unwrap();
        assert_eq!(reply.trailers().get("x-turned"), Some("yes"));
        let status = channel.unary::<Raw, Raw>("/a.B/Work", number(1)).await.unwrap_err();
        assert_eq!((status.code(), status.metadata().get("x-turned")), (Code::DataLoss, Some("yes")));

        let channel = channel.intercept(Turning);
        let status = channel.unary::<Raw, Raw>("/a.B/Fail", number(1)).await.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss, "turned twice");
        let mut replies: Streaming<Raw> =
            channel.server_streaming("/a.B/Work", number(1)).await.unwrap().into_inner();
        assert_eq!(replies.message().await.unwrap(), Some(number(1)));
        assert_eq!(replies.message().await.unwrap(), None, "turned twice");
        assert_eq!(replies.trailers().get("x-turned"), Some("yes"));
    });
    end(server);
}
