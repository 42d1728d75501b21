//! The official interop client:
//! `cargo run --release -p fulmar-interop --bin interop_client -- --server_host=127.0.0.1 --server_port=10000 --test_case=large_unary`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use fulmar_interop::client::{self, CASES, Failure, Options, USAGE};

fn main() -> ExitCode {
    if std::env::args_os().any(|argument| argument == "--help") {
        print!("{USAGE}\nCases: {}\n", CASES.join(", "));
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(case) => {
            println!("{case}: passed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("interop_client: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Failure> {
    let options = Options::parse(std::env::args_os().skip(1))?;
    client::run(&options)?;
    Ok(options.test_case)
}
