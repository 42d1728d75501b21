//! From `.proto` files to their descriptors.

use std::path::{Path, PathBuf};

use prost_types::FileDescriptorProto;

use crate::error::Error;

/// A set of `.proto` files with all that they import, checked.
pub(crate) struct Schema {
    /// Imported files come before those that import them.
    pub(crate) files: Vec<FileDescriptorProto>,
    /// The files read from disk.
    pub(crate) paths: Vec<PathBuf>,
    /// The encoded `google.protobuf.FileDescriptorSet`.
    pub(crate) encoded: Vec<u8>,
}

impl Schema {
    pub(crate) fn read(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<Self, Error> {
        let includes: Vec<PathBuf> = includes.iter().map(|include| include.as_ref().to_owned()).collect();
        let from_protox = |error| Error::from_protox(error, &includes);
        let mut compiler = protox::Compiler::new(&includes).map_err(from_protox)?;
        compiler.include_imports(true).include_source_info(true);
        for proto in protos {
            let proto = proto.as_ref();
            check_present(proto, &includes)?;
            compiler.open_file(proto).map_err(from_protox)?;
        }
        Ok(Self {
            files: compiler.file_descriptor_set().file,
            paths: compiler.files().filter_map(|file| file.path()).map(Path::to_owned).collect(),
            encoded: compiler.encode_file_descriptor_set(),
        })
    }
}

/// protox would say of a missing file that it is in no include path.
fn check_present(proto: &Path, includes: &[PathBuf]) -> Result<(), Error> {
    if includes.is_empty() {
        return Err(Error::in_file(
            proto,
            "no include path is given: name the file's folder, or one above it",
        ));
    }
    if proto.exists() || includes.iter().any(|include| include.join(proto).exists()) {
        return Ok(());
    }
    let folders: Vec<String> = includes.iter().map(|include| format!("`{}`", include.display())).collect();
    let reason = format!("no such file, neither here nor in the include paths ({})", folders.join(", "));
    Err(Error::in_file(proto, reason))
}
