//! Generates the test service for both sides from one schema: ours with the messages, and tonic's around the same messages.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let (ours, theirs) = (folder.join("fulmar"), folder.join("tonic"));
    fs::create_dir_all(&ours)?;
    fs::create_dir_all(&theirs)?;
    fulmar_build::configure().out_dir(ours).compile(&["proto/lab.proto"], &["proto"])?;
    let descriptors = protox::compile(["proto/lab.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .extern_path(".fulmar.lab", "crate::proto")
        .out_dir(theirs)
        .compile_fds(descriptors)?;
    Ok(())
}
