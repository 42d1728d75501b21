//! Calls hello world with compressed messages:
//! `cargo run --release --example compressing_hello_world_client -- --server http://127.0.0.1:50051 --name world`.

use std::error::Error;

use fulmar::encoding::Gzip;
use fulmar::{Compression, Request, blocking};
use fulmar_examples::arguments;
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient;

fn main() -> Result<(), Box<dyn Error>> {
    let [server, name] = arguments(["--server", "--name"])?;
    let server = server.as_deref().unwrap_or("http://127.0.0.1:50051");
    let name = name.as_deref().unwrap_or("world");

    // The two directions are independent: what is accepted is offered to the server, which chooses.
    let settings = blocking::Channel::builder(server)
        .send_compressed(Gzip::default())
        .accept_compressed(Gzip::default());
    let mut greeter = GreeterClient::new(blocking::Channel::with(settings)?);

    // By default a message is compressed where that makes it smaller, as it does here.
    let reply = greeter.say_hello(HelloRequest { name: name.repeat(100) })?;
    println!("a reply of {} bytes", reply.get_ref().message.len());
    println!("it came compressed: {}", reply.was_compressed());

    // A call may choose for itself. One that asks for compression gets it even for a short name, which becomes longer by it.
    let mut request = Request::new(HelloRequest { name: name.into() });
    request.set_compression(Compression::On);
    println!("{}", greeter.say_hello(request)?.into_inner().message);
    Ok(())
}
