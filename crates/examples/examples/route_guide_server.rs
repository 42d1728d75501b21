//! Serves the route guide: `cargo run --release --example route_guide_server -- --port 50051`.
//!
//! The service itself, with a method of each of the four kinds, is in `src/guide.rs`.

use std::error::Error;

use fulmar::Server;
use fulmar_examples::routeguide::route_guide_server::RouteGuideServer;
use fulmar_examples::{Guide, arguments};

fn main() -> Result<(), Box<dyn Error>> {
    let [port] = arguments(["--port"])?;
    let port: u16 = port.as_deref().unwrap_or("50051").parse().map_err(|error| format!("--port: {error}"))?;

    let server = Server::builder()
        .reactors(2) // two threads share the connections
        .add_service(RouteGuideServer::new(Guide::new()))
        .bind(format!("127.0.0.1:{port}"))?;
    println!("listening on {}", server.local_addr()?);
    server.run()?;
    Ok(())
}
