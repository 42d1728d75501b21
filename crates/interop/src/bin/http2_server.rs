//! The server of a negative HTTP/2 case: `cargo run --release -p fulmar-interop --bin http2_server -- --test_case=goaway --port=8080`.
//!
//! Prints `listening on ADDRESS`, and a line that begins with `violation:` for whatever a client does that it must not do.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use fulmar_interop::negative::{Http2Server, Options};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http2_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args_os().skip(1))?;
    let server = Http2Server::start(options.case, (options.host.as_str(), options.port))?;
    println!("listening on {}", server.address());
    server.run();
    Ok(())
}
