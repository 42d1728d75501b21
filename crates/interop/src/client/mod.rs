//! The official test cases, as a client.
//!
//! Each case is one function, in a file for its group. What they share is a [`Tester`]: the channel, and the generated client on it.

mod additional_metadata;
mod cancellation;
mod compression;
mod failure;
mod load_reports;
mod metadata;
mod options;
mod soak;
mod status;
mod streaming;
mod tester;
mod unary;

pub(crate) use failure::expect_code;
pub use failure::{Failure, Outcome};
pub use options::{Options, SoakOptions, USAGE};
pub use tester::Tester;
pub(crate) use tester::zeros;
pub(crate) use unary::{large_request, large_unary};

/// The cases that need neither credentials nor more than one server, by their official names.
pub const CASES: [&str; 27] = [
    "empty_unary",
    "cacheable_unary",
    "large_unary",
    "very_large_request",
    "pick_first_unary",
    "client_compressed_unary",
    "client_compressed_unary_noprobe",
    "server_compressed_unary",
    "client_streaming",
    "client_compressed_streaming",
    "client_compressed_streaming_noprobe",
    "server_streaming",
    "server_compressed_streaming",
    "ping_pong",
    "empty_stream",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "orca_per_rpc",
    "orca_oob",
    "rpc_soak",
    "channel_soak",
];

/// Official cases that log in at Google with credentials, over TLS.
const CREDENTIAL_CASES: [&str; 7] = [
    "compute_engine_creds",
    "compute_engine_channel_credentials",
    "service_account_creds",
    "jwt_token_creds",
    "oauth2_auth_token",
    "per_rpc_creds",
    "google_default_credentials",
];

/// Runs the case that the options name, as often as they say. Waits for it: not to be called on a reactor's thread.
///
/// # Errors
/// What was not as the case expects; a name that no case has; options that ask for what is not supported.
pub fn run(options: &Options) -> Outcome {
    options.check()?;
    // Connections live on the process's client reactor thread; this one waits, and may sleep.
    futures::executor::block_on(async {
        let tester = Tester::connect(options).await?;
        for _ in 0..options.times {
            run_once(&tester, options).await?;
        }
        Ok(())
    })
}

async fn run_once(tester: &Tester, options: &Options) -> Outcome {
    match options.test_case.as_str() {
        "empty_unary" => unary::empty_unary(tester).await,
        "cacheable_unary" => unary::cacheable_unary(tester).await,
        "large_unary" => unary::large_unary(tester).await,
        "very_large_request" => unary::very_large_request(tester).await,
        "pick_first_unary" => unary::pick_first_unary(tester).await,
        "client_compressed_unary" => compression::client_compressed_unary(tester).await,
        "client_compressed_unary_noprobe" => compression::client_compressed_unary_noprobe(tester).await,
        "server_compressed_unary" => compression::server_compressed_unary(tester).await,
        "client_compressed_streaming" => compression::client_compressed_streaming(tester).await,
        "client_compressed_streaming_noprobe" => {
            compression::client_compressed_streaming_noprobe(tester).await
        }
        "server_compressed_streaming" => compression::server_compressed_streaming(tester).await,
        "client_streaming" => streaming::client_streaming(tester).await,
        "server_streaming" => streaming::server_streaming(tester).await,
        "ping_pong" => streaming::ping_pong(tester).await,
        "empty_stream" => streaming::empty_stream(tester).await,
        "custom_metadata" => metadata::custom_metadata(tester).await,
        "status_code_and_message" => status::status_code_and_message(tester).await,
        "special_status_message" => status::special_status_message(tester).await,
        "unimplemented_method" => status::unimplemented_method(tester).await,
        "unimplemented_service" => status::unimplemented_service(tester).await,
        "cancel_after_begin" => cancellation::cancel_after_begin(tester).await,
        "cancel_after_first_response" => cancellation::cancel_after_first_response(tester).await,
        "timeout_on_sleeping_server" => cancellation::timeout_on_sleeping_server(tester).await,
        "orca_per_rpc" => load_reports::orca_per_rpc(tester).await,
        "orca_oob" => load_reports::orca_oob(tester).await,
        "rpc_soak" => soak::rpc_soak(tester, options),
        "channel_soak" => soak::channel_soak(options),
        case if CREDENTIAL_CASES.contains(&case) => Err(Failure::new(format!(
            "{case} needs Google's credentials, which this client does not support"
        ))),
        case => Err(Failure::new(format!("there is no case {case}; there are {}", CASES.join(", ")))),
    }
}
