use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use prost_build::Module;

use crate::comments::Comments;
use crate::error::Error;
use crate::names::Names;
use crate::output::{Modules, file_name, include_file, write_if_changed};
use crate::schema::Schema;
use crate::service::{Generator, Sides};

/// Starts a [`Builder`] with its defaults.
///
/// ```no_run
/// fn main() -> Result<(), fulmar_build::Error> {
///     fulmar_build::configure()
///         .build_server(false)
///         .bytes(&[".storage.Chunk.data"])
///         .compile(&["proto/storage.proto"], &["proto"])
/// }
/// ```
pub fn configure() -> Builder {
    Builder {
        config: prost_build::Config::new(),
        sides: Sides { server: true, client: true, blocking: true },
        out_dir: None,
        include_file: None,
        file_descriptor_set_path: None,
        emit_rerun_if_changed: env::var_os("CARGO").is_some(),
    }
}

/// What to generate from `.proto` files, and how. Made by [`configure`].
///
/// Where a method takes a `path`, it is a name of the `.proto` with a dot before it, `.package.Message.field`; a prefix
/// of it, `.package`, stands for all below, `.` for everything, and without the dot before it, it matches any end of a name.
pub struct Builder {
    config: prost_build::Config,
    sides: Sides,
    out_dir: Option<PathBuf>,
    include_file: Option<PathBuf>,
    file_descriptor_set_path: Option<PathBuf>,
    emit_rerun_if_changed: bool,
}

impl Builder {
    /// Generates the code for `protos` and all that they import, and writes it to the output folder: one file for each
    /// package, named after it (`helloworld.rs`; `_.rs` for files without a package).
    ///
    /// `includes` are the folders that imports are looked up in; each file of `protos` must lie in one of them. The files
    /// of `google/protobuf/` are always there.
    ///
    /// # Errors
    ///
    /// When a file is missing, a `.proto` is wrong, or the output folder is not known or not writable.
    #[doc(alias = "compile_protos")]
    pub fn compile(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        let schema = Schema::read(protos, includes)?;
        let folder =
            self.out_dir.take().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from)).ok_or_else(|| {
                Error::new(
                    "no output folder: cargo sets OUT_DIR for a build script; elsewhere call `out_dir`",
                )
            })?;
        if self.emit_rerun_if_changed {
            for path in &schema.paths {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
        if let Some(path) = &self.file_descriptor_set_path {
            write_if_changed(path, &schema.encoded)?;
        }
        let include_path = self.include_file.take().map(|name| folder.join(name));
        let modules = self.generate(schema)?;
        for (module, code) in &modules {
            write_if_changed(&folder.join(file_name(module)), code.as_bytes())?;
        }
        if let Some(path) = include_path {
            let in_out_dir = env::var_os("OUT_DIR").is_some_and(|out_dir| folder == Path::new(&out_dir));
            write_if_changed(&path, include_file(modules.keys(), in_out_dir).as_bytes())?;
        }
        Ok(())
    }

    /// Generates as [`compile`](Self::compile) does, but writes nothing: the code of each file, by the file's name.
    ///
    /// For tests, and for comparing generated code that is kept under version control.
    ///
    /// # Errors
    ///
    /// When a file is missing or a `.proto` is wrong.
    pub fn generate_to_string(
        self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<BTreeMap<String, String>, Error> {
        let modules = self.generate(Schema::read(protos, includes)?)?;
        Ok(modules.into_iter().map(|(module, code)| (file_name(&module), code)).collect())
    }

    /// The folder to write to. Default: cargo's `OUT_DIR`.
    pub fn out_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.out_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Whether to generate the server side of services. Default: yes.
    pub fn build_server(mut self, yes: bool) -> Self {
        self.sides.server = yes;
        self
    }

    /// Whether to generate async clients. Default: yes.
    pub fn build_client(mut self, yes: bool) -> Self {
        self.sides.client = yes;
        self
    }

    /// Whether to generate blocking clients. Default: yes.
    pub fn build_blocking(mut self, yes: bool) -> Self {
        self.sides.blocking = yes;
        self
    }

    /// The fields of type `bytes` that become `bytes::Bytes` instead of `Vec<u8>`. Default: none.
    pub fn bytes(mut self, paths: &[impl AsRef<str>]) -> Self {
        self.config.bytes(paths.iter().map(AsRef::as_ref));
        self
    }

    /// The map fields that become `BTreeMap` instead of `HashMap`. Default: none.
    pub fn btree_map(mut self, paths: &[impl AsRef<str>]) -> Self {
        self.config.btree_map(paths.iter().map(AsRef::as_ref));
        self
    }

    /// Puts an attribute on the messages, enums and oneofs that `path` names, such as `#[derive(serde::Serialize)]`.
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.type_attribute(path, attribute);
        self
    }

    /// Puts an attribute on the fields that `path` names.
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        self.config.field_attribute(path, attribute);
        self
    }

    /// Uses the Rust type or module `rust_path` for the message, enum or package `proto_path`, instead of generating it.
    ///
    /// `rust_path` starts with `::` or `crate::`, so that it means the same in every module.
    pub fn extern_path(mut self, proto_path: impl Into<String>, rust_path: impl Into<String>) -> Self {
        self.config.extern_path(proto_path, rust_path);
        self
    }

    /// Generates the types of `google/protobuf/` too, instead of using those of the crate `prost-types`. Default: no.
    pub fn compile_well_known_types(mut self, yes: bool) -> Self {
        if yes {
            self.config.compile_well_known_types();
        }
        self
    }

    /// Implements [`prost::Name`](https://docs.rs/prost/latest/prost/trait.Name.html) for the messages: their names in the
    /// `.proto`, and the type URLs under which they are put into an `Any`. Default: no.
    pub fn enable_type_names(mut self, yes: bool) -> Self {
        if yes {
            self.config.enable_type_names();
        }
        self
    }

    /// Also writes a file of this name that includes all the others, each in the modules that its package names. Packages
    /// that use each other's types need that nest. Default: none.
    ///
    /// ```ignore
    /// pub mod proto {
    ///     include!(concat!(env!("OUT_DIR"), "/protos.rs"));
    /// }
    /// ```
    pub fn include_file(mut self, name: impl AsRef<Path>) -> Self {
        self.include_file = Some(name.as_ref().to_owned());
        self
    }

    /// Also writes the compiled descriptors, an encoded `google.protobuf.FileDescriptorSet` with imports and comments, to
    /// this file. Default: no.
    pub fn file_descriptor_set_path(mut self, path: impl AsRef<Path>) -> Self {
        self.file_descriptor_set_path = Some(path.as_ref().to_owned());
        self
    }

    /// Whether to tell cargo to run the build script again only when one of the `.proto` files changes. Default: when cargo
    /// runs the program.
    pub fn emit_rerun_if_changed(mut self, yes: bool) -> Self {
        self.emit_rerun_if_changed = yes;
        self
    }

    fn generate(mut self, schema: Schema) -> Result<Modules, Error> {
        let names = Names::new(&schema.files);
        self.config.service_generator(Box::new(Generator { sides: self.sides, names }));
        let mut comments = Comments::default();
        let requests = schema
            .files
            .into_iter()
            .map(|mut file| {
                comments.take(&mut file);
                (Module::from_protobuf_package_name(file.package()), file)
            })
            .collect();
        let generated =
            self.config.generate(requests).map_err(|error| Error::new(error.to_string()).caused_by(error))?;
        Ok(generated.into_iter().map(|(module, code)| (module, comments.restore(&code))).collect())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("sides", &self.sides)
            .field("out_dir", &self.out_dir)
            .field("include_file", &self.include_file)
            .field("file_descriptor_set_path", &self.file_descriptor_set_path)
            .field("emit_rerun_if_changed", &self.emit_rerun_if_changed)
            .finish()
    }
}
