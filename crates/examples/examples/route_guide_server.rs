//! Serves the route guide: `cargo run --release --example route_guide_server -- --port 50051`.
//!
//! The service itself, with a method of each of the four kinds, is in `src/guide.rs`.

use std::error::Error;

use fulmar::Server;
use fulmar_examples::routeguide::route_guide_server::RouteGuideServer;
use fulmar_examples::{Guide, arguments};

fn main() -> Result<(), Box<dyn Error>> {
    let [port, listen] = arguments(["--port", "--listen"])?;
    let port: u16 = port.as_deref().unwrap_or("50051").parse().map_err(|error| format!("--port: {error}"))?;
    // Elsewhere than on loopback, or on a Unix socket: `--listen unix:/run/greeter.sock`.
    let address = listen.unwrap_or_else(|| format!("127.0.0.1:{port}"));

    let server = Server::builder()
        .reactors(2) // two threads share the connections
        .add_service(RouteGuideServer::new(Guide::new()))
        .bind(address)?;
    for address in server.local_addresses() {
        println!("listening on {address}");
    }
    server.run()?;
    Ok(())
}
