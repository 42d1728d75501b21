//! Generates the benchmark service for each peer from the one `proto/bench.proto`, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/bench.proto");
    let descriptors = protox::compile(["proto/bench.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    // The cheapest representation prost has, for every peer alike.
    config.bytes(["."]);
    tonic_prost_build::configure().compile_fds_with_config(descriptors, config)?;
    Ok(())
}
