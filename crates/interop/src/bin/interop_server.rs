//! The official interop server: `cargo run --release -p fulmar-interop --bin interop_server -- --port=10000`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use fulmar_interop::server::{self, Options, USAGE};

fn main() -> ExitCode {
    if std::env::args_os().any(|argument| argument == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args_os().skip(1))?;
    let server = server::bind(&options)?;
    println!("listening on {}", server.local_addr()?);
    server.run()?;
    Ok(())
}
