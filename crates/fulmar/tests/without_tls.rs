//! R72, without the feature `tls`: `cargo test -p fulmar --no-default-features --test without_tls`.
#![cfg(not(feature = "_tls"))]

use fulmar::{Channel, blocking};

#[test]
fn field_case_r72_an_endpoint_that_needs_tls_is_refused_when_the_channel_is_built() {
    let endpoint = "https://localhost:50051";
    let errors = [
        Channel::builder(endpoint).build().map(drop).unwrap_err(),
        blocking::Channel::connect(endpoint).map(drop).unwrap_err(),
        blocking::Channel::lazy(blocking::Channel::builder(endpoint)).map(drop).unwrap_err(),
    ];
    for error in errors {
        let said = error.to_string();
        for part in [endpoint, "needs TLS", "feature `tls`"] {
            assert!(said.contains(part), "{part} in: {said}");
        }
    }
    assert!(Channel::builder("http://localhost:50051").build().is_ok());
}
