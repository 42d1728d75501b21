use fulmar::{Replies, Request, Response, Status};

use crate::helloworld::greeter_server::Greeter;
use crate::helloworld::{HelloReply, HelloRequest};

/// Greets whoever calls.
#[derive(Copy, Clone, Debug, Default)]
pub struct Hello;

impl Greeter for Hello {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(Response::new(HelloReply { message: format!("Hello {name}!") }))
    }

    async fn say_hello_stream_reply(
        &self,
        request: Request<HelloRequest>,
        replies: &mut Replies<HelloReply>,
    ) -> Result<(), Status> {
        let name = request.into_inner().name;
        for greeting in ["Good morning", "Good day", "Good evening"] {
            // Waits while the caller is slower than we are.
            replies.send(&HelloReply { message: format!("{greeting} {name}!") }).await?;
        }
        Ok(())
    }
}
