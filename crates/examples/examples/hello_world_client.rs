//! Calls hello world: `cargo run --release --example hello_world_client -- --server http://127.0.0.1:50051 --name world`.

use std::error::Error;
use std::time::Duration;

use fulmar::{Code, Request};
use fulmar_examples::arguments;
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient;

fn main() -> Result<(), Box<dyn Error>> {
    let [server, name] = arguments(["--server", "--name"])?;
    let server = server.as_deref().unwrap_or("http://127.0.0.1:50051");
    let name = name.as_deref().unwrap_or("world");

    // The blocking client: this thread does the I/O itself while it waits.
    let mut greeter = GreeterClient::connect(server)?;

    // A plain message will do as a request.
    let reply = greeter.say_hello(HelloRequest { name: name.into() })?;
    println!("{}", reply.into_inner().message);

    // A `Request` has room for more: here, a deadline.
    let request = Request::new(HelloRequest { name: name.into() }).with_timeout(Duration::from_secs(5));
    let greetings = match greeter.say_hello_stream_reply(request) {
        Ok(response) => response.into_inner(),
        // Hello world of other implementations may lack this method. A failed call is a `Status`, with a code and a message.
        Err(status) if status.code() == Code::Unimplemented => return Ok(()),
        Err(status) => return Err(status.into()),
    };
    for greeting in greetings {
        println!("{}", greeting?.message);
    }
    Ok(())
}
