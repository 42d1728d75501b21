//! What is generated from `proto/bench.proto`: the messages, Fulmar's clients and server, and tonic's around the same messages;
//! and Fulmar's alone from `proto/contract.proto`.

#![allow(missing_docs, unreachable_pub, rust_2018_idioms, clippy::all)] // generated

include!(concat!(env!("OUT_DIR"), "/fulmar/fulmar.bench.rs"));

/// tonic's client and server.
pub mod tonic {
    include!(concat!(env!("OUT_DIR"), "/tonic/fulmar.bench.rs"));

    /// The same for `proto/bulk.proto`.
    pub mod bulk {
        include!(concat!(env!("OUT_DIR"), "/tonic/fulmar.bulk.rs"));
    }
}

/// Large messages, and small ones beside them.
pub mod bulk {
    include!(concat!(env!("OUT_DIR"), "/fulmar/fulmar.bulk.rs"));
}

/// What the allocation contract calls besides.
pub mod contract {
    include!(concat!(env!("OUT_DIR"), "/fulmar/fulmar.contract.rs"));
}
