//! Serves hello world: `cargo run --release --example hello_world_server -- --port 50051`.

use std::error::Error;

use fulmar::encoding::Gzip;
use fulmar::{Replies, Request, Response, Server, Status};
use fulmar_examples::arguments;
use fulmar_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use fulmar_examples::helloworld::{HelloReply, HelloRequest};

struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        println!("greeting {name}");
        Ok(Response::new(HelloReply { message: format!("Hello {name}") }))
    }

    async fn say_hello_stream_reply(
        &self,
        request: Request<HelloRequest>,
        replies: &mut Replies<HelloReply>,
    ) -> Result<(), Status> {
        let name = request.into_inner().name;
        for greeting in ["Hello", "Hello again", "Goodbye"] {
            replies.send(&HelloReply { message: format!("{greeting} {name}") }).await?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [port, listen] = arguments(["--port", "--listen"])?;
    let port: u16 = port.as_deref().unwrap_or("50051").parse().map_err(|error| format!("--port: {error}"))?;
    // Elsewhere than on loopback, or on a Unix socket: `--listen unix:/run/greeter.sock`.
    let address = listen.unwrap_or_else(|| format!("127.0.0.1:{port}"));

    let server = Server::builder()
        // For `compressing_hello_world_client`; others get plain messages.
        .accept_compressed(Gzip::default())
        .send_compressed(Gzip::default())
        .add_service(GreeterServer::new(MyGreeter))
        .bind(address)?;
    for address in server.local_addresses() {
        println!("listening on {address}");
    }

    // Until the process ends. `server.handle().shutdown(grace)`, from any thread, would end it in good order.
    server.run()?;
    Ok(())
}
