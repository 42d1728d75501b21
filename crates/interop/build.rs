//! Generates the services of the interop programs, and the test service of `tests/tonic` for both sides from one schema: ours with
//! the messages, and tonic's around the same messages.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let (official, ours, theirs) = (folder.join("official"), folder.join("fulmar"), folder.join("tonic"));
    for folder in [&official, &ours, &theirs] {
        fs::create_dir_all(folder)?;
    }
    fulmar_build::configure()
        .build_blocking(false)
        .out_dir(official)
        .include_file("packages.rs")
        .compile(&["proto/grpc/testing/test.proto", "proto/xds/service/orca/v3/orca.proto"], &["proto"])?;

    fulmar_build::configure().out_dir(ours).compile(&["proto/lab.proto"], &["proto"])?;
    let descriptors = protox::compile(["proto/lab.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .extern_path(".fulmar.lab", "crate::proto")
        .out_dir(theirs)
        .compile_fds(descriptors)?;
    Ok(())
}
