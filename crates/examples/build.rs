//! Compiles the `.proto` files of the examples, and the corpus of clashing names for `tests/clashes.rs`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // All that a user's build.rs needs.
    fulmar_build::compile_protos(
        &["../../proto/helloworld.proto", "../../proto/route_guide.proto"],
        &["../../proto"],
    )?;

    compile_corpus(Path::new("../build/tests/protos/clashes"))
}

fn compile_corpus(folder: &Path) -> Result<(), Box<dyn Error>> {
    let out_dir = PathBuf::from(env::var("OUT_DIR")?).join("clashes");
    fs::create_dir_all(&out_dir)?;
    let mut protos = Vec::new();
    for entry in fs::read_dir(folder)? {
        protos.push(entry?.path());
    }
    protos.sort();
    fulmar_build::configure().out_dir(out_dir).include_file("mod.rs").compile(&protos, &[folder])?;
    println!("cargo:rerun-if-changed={}", folder.display());
    Ok(())
}
