//! Interceptors on both sides of a call: `cargo run --release --example interceptor`.
//!
//! The client's fetches a token before each call; the server's lets nobody in without one, tells its handler who calls, and
//! writes down how calls end.

use std::error::Error;
use std::time::{Duration, Instant};

use fulmar::{
    CallHead, CallInfo, Channel, Code, Interceptor, LocalReactor, MetadataMap, Replies, Request, Response,
    Server, Status,
};
use fulmar_examples::helloworld::greeter_client::GreeterClient;
use fulmar_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use fulmar_examples::helloworld::{HelloReply, HelloRequest};

/// Client: goes with every call of a channel.
struct Token {
    token: &'static str,
}

impl Interceptor for Token {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        // A real one would ask somebody for a fresh token here, and wait for it. The deadline of the call covers that.
        call.limit_time(Duration::from_secs(10));
        let bearer = format!("Bearer {}", self.token);
        call.metadata_mut()
            .insert_sensitive("authorization", &bearer)
            .map_err(|error| Status::unauthenticated(error.to_string()))
    }
}

/// Server: who calls.
struct User(&'static str);

struct Guard;

impl Interceptor for Guard {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        match call.metadata().get("authorization") {
            Some("Bearer secret") => call.extensions_mut().insert(User("ada")),
            _ => return Err(Status::unauthenticated("a token is missing")),
        }
        Ok(())
    }
}

/// Server: one line for each call.
struct Log;

/// When a call began.
struct Begun(Instant);

impl Interceptor for Log {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        call.extensions_mut().insert(Begun(Instant::now()));
        Ok(())
    }

    fn on_response_message(&self, call: &CallInfo, message: &[u8]) -> Result<(), Status> {
        println!("  {} answers {} bytes", call.method(), message.len());
        Ok(())
    }

    fn on_finish(&self, call: &CallInfo, status: &mut Status, _trailers: &mut MetadataMap) {
        let took = call.extensions().get::<Begun>().map_or(Duration::ZERO, |begun| begun.0.elapsed());
        println!("  {} of {} ended after {took:?}: {status}", call.method(), call.service());
    }
}

struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let user = request.extensions().get::<User>().map_or("nobody", |user| user.0);
        let message = format!("Hello {}, says {user}", request.get_ref().name);
        Ok(Response::new(HelloReply { message }))
    }

    async fn say_hello_stream_reply(
        &self,
        request: Request<HelloRequest>,
        replies: &mut Replies<HelloReply>,
    ) -> Result<(), Status> {
        for greeting in ["Hello", "Goodbye"] {
            replies.send(&HelloReply { message: format!("{greeting} {}", request.get_ref().name) }).await?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The log is around the guard, and so sees whom it turns away.
    let server = Server::builder()
        .intercept(Log)
        .add_service(GreeterServer::new(MyGreeter).intercept(Guard))
        .bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    reactor.serve(server)?;

    reactor.block_on(async {
        let channel = Channel::connect(endpoint).await?;
        let hello = HelloRequest { name: "world".into() };

        println!("with a token:");
        let greeter = GreeterClient::new(channel.intercept(Token { token: "secret" }));
        println!("  {}", greeter.say_hello(hello.clone()).await?.into_inner().message);
        let mut replies = greeter.say_hello_stream_reply(hello.clone()).await?.into_inner();
        while let Some(reply) = replies.message().await? {
            println!("  {}", reply.message);
        }

        println!("without one:");
        match GreeterClient::new(channel).say_hello(hello).await {
            Err(status) if status.code() == Code::Unauthenticated => println!("  {status}"),
            other => return Err(format!("expected to be turned away, and got {other:?}").into()),
        }
        Ok(())
    })
}
