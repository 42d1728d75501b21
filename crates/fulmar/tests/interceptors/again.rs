//! Interceptors that use what they are around, and that add more than a call can carry.

use std::sync::OnceLock;

use fulmar::{
    CallHead, CallInfo, Channel, Code, Interceptor, MetadataMap, Raw, Request, Response, Server, Status,
};

use crate::common::{Demo, PATH_COUNT, PATH_ECHO, PATH_SUM, block_on, eventually, number, value};
use crate::{Log, Recorder, end};

/// Makes a call of its own before each call, and begins one at each end, through the channel that it is on.
#[derive(Default)]
struct Nested {
    channel: OnceLock<Channel>,
}

struct Shared(std::sync::Arc<Nested>);

impl Interceptor for Shared {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let Some(channel) = self.0.channel.get().filter(|_| call.path() != PATH_SUM) else { return Ok(()) };
        let reply: Response<Raw> = channel.unary(PATH_SUM, number(40)).await?;
        call.metadata_mut().insert("x-echo", &value(reply.get_ref()).to_string()).expect("it is text");
        Ok(())
    }

    fn on_finish(&self, call: &CallInfo, _: &mut Status, _: &mut MetadataMap) {
        let Some(channel) = self.0.channel.get().filter(|_| call.path() != PATH_SUM) else { return };
        // Begun and given up: nothing may be locked here.
        let mut begun = Box::pin(channel.unary::<Raw, Raw>(PATH_SUM, number(1)));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::future::Future::poll(begun.as_mut(), &mut cx);
    }
}

#[test]
fn interceptors_make_calls_through_the_channel_that_they_are_on() {
    let server = crate::common::serve();
    let nested = std::sync::Arc::new(Nested::default());
    let plain = block_on(Channel::connect(server.endpoint())).unwrap();
    let channel = plain.intercept(Shared(nested.clone()));
    assert!(nested.channel.set(channel.clone()).is_ok());
    block_on(async {
        for _ in 0..20 {
            let reply: Response<Raw> = channel.unary(PATH_ECHO, number(2)).await.unwrap();
            assert_eq!(reply.metadata().get("x-echo"), Some("40"));
            let mut counted = channel.server_streaming::<Raw, Raw>(PATH_COUNT, number(3)).await.unwrap();
            assert!(counted.get_mut().message().await.unwrap().is_some());
            drop(counted);
            let status = channel.unary::<Raw, Raw>("/demo.Demo/Nothing", number(1)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented);
        }
    });
    eventually("nothing is left", || channel.counts() == fulmar::ChannelCounts::default());
    end(server);
}

/// Adds more metadata than any header list may have, in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    Request,
    Response,
    Trailers,
}

impl Flood {
    fn pour(self, here: Self, metadata: &mut MetadataMap) {
        if self == here {
            for _ in 0..200 {
                metadata.append("x-flood", &"f".repeat(1_000)).expect("it is text");
            }
        }
    }
}

impl Interceptor for Flood {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        self.pour(Self::Request, call.metadata_mut());
        Ok(())
    }

    fn on_response_metadata(&self, _: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
        self.pour(Self::Response, metadata);
        Ok(())
    }

    fn on_finish(&self, _: &CallInfo, _: &mut Status, trailers: &mut MetadataMap) {
        self.pour(Self::Trailers, trailers);
    }
}

/// How calls of two kinds end.
async fn codes(channel: &Channel) -> [Code; 2] {
    let unary = channel.unary::<Raw, Raw>(PATH_ECHO, number(1)).await;
    let mut listed = Ok(());
    match channel.server_streaming::<Raw, Raw>(PATH_COUNT, Request::new(number(2))).await {
        Ok(mut replies) => loop {
            match replies.get_mut().message().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(status) => {
                    listed = Err(status);
                    break;
                }
            }
        },
        Err(status) => listed = Err(status),
    }
    [unary.map(drop), listed].map(|end| end.map_or_else(|status| status.code(), |()| Code::Ok))
}

#[test]
fn metadata_of_an_interceptor_that_no_peer_takes_ends_its_call_and_nothing_else() {
    let plain = crate::common::serve();
    block_on(async {
        let channel = Channel::connect(plain.endpoint()).await.unwrap();
        let log = Log::default();
        let flooded = channel.intercept(Recorder::new("outer", &log)).intercept(Flood::Request);
        assert_eq!(codes(&flooded).await, [Code::ResourceExhausted; 2]);
        assert_eq!(log.take_after_ends(2).iter().filter(|line| line.contains("finish RESOURCE")).count(), 2);
        assert_eq!(codes(&channel).await, [Code::Ok; 2], "the connection lives on");
    });
    end(plain);
    for flood in [Flood::Response, Flood::Trailers] {
        let server = Server::builder()
            .reactors(1)
            .add_service(Demo::default())
            .intercept(flood)
            .bind("127.0.0.1:0")
            .unwrap()
            .spawn()
            .unwrap();
        block_on(async {
            let channel = Channel::connect(server.endpoint()).await.unwrap();
            for _ in 0..3 {
                assert_eq!(codes(&channel).await, [Code::ResourceExhausted; 2], "{flood:?}");
            }
        });
        eventually("nothing is left", || server.handle().counts().unwrap().handlers == 0);
        end(server);
    }
}
