//! One handler for all methods that no service has, and what a handler knows of the method that was called.

mod common;

use std::time::Duration;

use common::{PATH_ECHO, block_on, number, serve_one, value};
use fulmar::{Channel, Code, Duplex, Raw, Replies, Request, Response, Server, Status, Streaming};

/// Answers with the path, then with the messages as they come; fails, with trailers, where the path says so.
async fn mirror(mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>) -> Result<(), Status> {
    let path = requests.path().to_owned();
    let echo = requests.metadata().get("x-echo").map(str::to_owned);
    replies.metadata(|metadata| metadata.insert("x-path", &path)).unwrap();
    if let Some(echo) = echo {
        replies.metadata(|metadata| metadata.insert("x-echo", &echo)).unwrap();
    }
    while let Some(message) = requests.message().await? {
        replies.send(&message).await?;
    }
    replies.trailers(|trailers| trailers.insert("x-end", "here")).unwrap();
    if path.ends_with("/Fail") {
        return Err(Status::with_code_and_details(Code::DataLoss, "as asked", vec![1, 2, 3]));
    }
    Ok(())
}

fn serve() -> fulmar::RunningServer {
    let builder = Server::builder().reactors(1).add_service(common::Demo::default());
    builder.unknown_methods(mirror).bind("127.0.0.1:0").unwrap().spawn().unwrap()
}

#[test]
fn unknown_methods_of_all_kinds_reach_the_handler_with_path_and_metadata() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();

        let mut request = Request::new(number(7));
        request.metadata_mut().insert("x-echo", "hello").unwrap();
        let reply: Response<Raw> = channel.unary("/not.There/Unary", request).await.unwrap();
        assert_eq!(value(reply.get_ref()), 7);
        assert_eq!(reply.metadata().get("x-path"), Some("/not.There/Unary"));
        assert_eq!(reply.metadata().get("x-echo"), Some("hello"));
        assert_eq!(reply.trailers().get("x-end"), Some("here"));

        let replies: Response<Streaming<Raw>> =
            channel.server_streaming("/not.There/Count", number(8)).await.unwrap();
        assert_eq!(replies.metadata().get("x-path"), Some("/not.There/Count"));
        let mut replies = replies.into_inner();
        assert_eq!(replies.message().await.unwrap(), Some(number(8)));
        assert_eq!(replies.message().await.unwrap(), None);

        let mut upload = channel.client_streaming::<Raw, Raw>("/not.There/Sum", ()).await.unwrap();
        upload.send(&number(9)).await.unwrap();
        assert_eq!(value(upload.finish().await.unwrap().get_ref()), 9);

        let call = channel.bidi::<Raw, Raw>("/not.There/Chat", ()).await.unwrap();
        let Duplex { mut requests, mut replies } = call;
        for turn in 0..10 {
            requests.send(&number(turn)).await.unwrap();
            assert_eq!(replies.message().await.unwrap(), Some(number(turn)));
        }
        requests.finish();
        assert_eq!(replies.message().await.unwrap(), None);
        assert_eq!(replies.trailers().get("x-end"), Some("here"));
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn calls_that_come_again_have_the_path_that_each_of_them_has() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for turn in 0..60 {
            let path = ["/not.There/First", "/not.There/Second", "/other.Service/First"][turn % 3];
            let reply: Response<Raw> = channel.unary(path, number(7)).await.unwrap();
            assert_eq!(reply.metadata().get("x-path"), Some(path));
        }
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn known_methods_are_not_the_handlers_and_other_paths_are_no_methods() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let reply: Response<Raw> = channel.unary(PATH_ECHO, number(7)).await.unwrap();
        assert_eq!(reply.metadata().get("x-path"), None);
        for path in ["/", "/not.There", "/not.There/"] {
            let status = channel.unary::<Raw, Raw>(path, number(7)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}");
        }
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_failure_of_the_handler_carries_details_and_trailers() {
    let server = serve();
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        let status = channel.unary::<Raw, Raw>("/not.There/Fail", number(7)).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::DataLoss, "as asked", &[1, 2, 3][..])
        );
        assert_eq!(status.metadata().get("x-end"), Some("here"));
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_second_handler_of_unknown_methods_is_an_error_of_the_server() {
    let builder = Server::builder().unknown_methods(mirror).unknown_methods(mirror);
    assert!(builder.without_listener().unwrap_err().to_string().contains("unknown"));
}

#[test]
fn handlers_of_every_kind_know_their_path() {
    let server = serve_one(|router| {
        let service = std::sync::Arc::default();
        let path_of = |path: &str| Raw::from(path.as_bytes().to_vec());
        router.unary(
            "/demo.One/Unary",
            &service,
            move |_: std::sync::Arc<()>, request: Request<Raw>| async move {
                Ok(Response::new(path_of(request.path())))
            },
        );
        router.client_streaming("/demo.One/Upload", &service, move |_, requests: Request<Streaming<Raw>>| async move {
            Ok(Response::new(path_of(requests.path())))
        });
        router.server_streaming(
            "/demo.One/List",
            &service,
            move |_, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                replies.send(&path_of(request.path())).await
            },
        );
        router.bidi(
            "/demo.One/Chat",
            &service,
            move |_, requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                replies.send(&path_of(requests.path())).await
            },
        );
    });
    block_on(async {
        let channel = Channel::connect(server.endpoint()).await.unwrap();
        for path in ["/demo.One/Unary", "/demo.One/Upload", "/demo.One/List", "/demo.One/Chat"] {
            let reply: Response<Raw> = channel.unary(path, number(1)).await.unwrap();
            assert_eq!(reply.get_ref().as_ref(), path.as_bytes());
        }
    });
    server.shutdown(Duration::from_secs(5)).unwrap();
}
