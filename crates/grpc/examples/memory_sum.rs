//! Prints the most memory that a connection comes to with the default configuration, part by part: the table in `docs/memory.md`.

use fulmar_grpc::Config;
use fulmar_http2::Sends;

fn main() {
    println!("{}", Config::default().memory_max(&Sends::default()));
}
