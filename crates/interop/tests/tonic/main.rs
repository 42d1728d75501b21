//! Fulmar and tonic 0.14 in one room: tonic's client calls our server, our clients call tonic's server.
//!
//! Both servers offer the same service, `proto/lab.proto`, which does what the request tells it to. Every test has a limit in
//! time, so that a hang fails with the name of the test.

mod async_client;
mod bad_input;
mod blocking_client;
#[path = "../common/certificates.rs"]
mod certificates;
mod compression;
mod details;
mod fulmar_lab;
mod journal;
mod secured;
mod tonic_client;
mod tonic_lab;
mod within;

/// What is generated from `proto/lab.proto`: the messages, our clients and server, and tonic's around the same messages.
mod proto {
    #![allow(missing_docs, unreachable_pub, rust_2018_idioms, clippy::all)] // generated
    include!(concat!(env!("OUT_DIR"), "/fulmar/fulmar.lab.rs"));

    pub(crate) mod tonic {
        include!(concat!(env!("OUT_DIR"), "/tonic/fulmar.lab.rs"));
    }
}
