//! The client of a negative HTTP/2 case:
//! `cargo run --release -p fulmar-interop --bin http2_client -- --server_host=127.0.0.1 --server_port=8080 --test_case=goaway`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use fulmar_interop::client::Outcome;
use fulmar_interop::negative::{self, Options};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("http2_client: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let options = Options::parse(std::env::args_os().skip(1))?;
    negative::run(&options)?;
    println!("{}: passed", options.case);
    Ok(())
}
