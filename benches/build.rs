//! Generates the benchmark service for each peer from the one `proto/bench.proto`, without `protoc`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let (ours, theirs) = (folder.join("fulmar"), folder.join("tonic"));
    fs::create_dir_all(&ours)?;
    fs::create_dir_all(&theirs)?;
    // `bytes` fields become `Bytes`, the cheapest there is, for every peer alike: tonic's code is around the same messages.
    fulmar_build::configure().bytes(&["."]).out_dir(&ours).compile(&["proto/bench.proto"], &["proto"])?;
    fulmar_build::configure().bytes(&["."]).out_dir(&ours).compile(&["proto/contract.proto"], &["proto"])?;
    fulmar_build::configure().bytes(&["."]).out_dir(&ours).compile(&["proto/bulk.proto"], &["proto"])?;
    let descriptors = protox::compile(["proto/bench.proto", "proto/bulk.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .extern_path(".fulmar.bench", "crate::proto")
        .extern_path(".fulmar.bulk", "crate::proto::bulk")
        .out_dir(theirs)
        .compile_fds(descriptors)?;
    Ok(())
}
