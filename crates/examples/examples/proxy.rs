//! A proxy of any method of any service: `cargo run --release --example proxy -- --port 50052 --server http://127.0.0.1:50051`.
//!
//! It knows no schema and needs none. What is done for a call is in `src/proxy.rs`.

use std::error::Error;

use fulmar::{Channel, Server};
use fulmar_examples::{arguments, forward};

fn main() -> Result<(), Box<dyn Error>> {
    let [port, server] = arguments(["--port", "--server"])?;
    let port: u16 = port.as_deref().unwrap_or("50052").parse().map_err(|error| format!("--port: {error}"))?;

    // Each reactor has a connection of its own to the server, made by its first call: no call crosses threads here.
    let upstream = Channel::builder(server.as_deref().unwrap_or("http://127.0.0.1:50051")).build()?;
    let proxy = Server::builder()
        .unknown_methods(move |requests, replies| forward(upstream.clone(), requests, replies))
        .bind(format!("127.0.0.1:{port}"))?;
    println!("listening on {}", proxy.local_addr()?);
    proxy.run()?;
    Ok(())
}
