//! Names that the generated code must not use twice.

use std::collections::{HashMap, HashSet};

use prost_build::Module;
use prost_types::{DescriptorProto, FileDescriptorProto};

/// What each package's Rust module has in it before its services are written.
#[derive(Default)]
pub(crate) struct Names {
    modules: HashMap<String, HashSet<String>>,
}

impl Names {
    pub(crate) fn new(files: &[FileDescriptorProto]) -> Self {
        let mut names = Self::default();
        for file in files {
            let package = file.package();
            for message in file.message_type.iter().filter(|message| has_module(message)) {
                names.reserve(package, snake(message.name()));
            }
            let mut parent = package;
            while let Some((above, child)) = parent.rsplit_once('.') {
                names.reserve(above, snake(child));
                parent = above;
            }
        }
        names
    }

    /// A module name for `wanted` that nothing else in `package` has; taken from here on.
    pub(crate) fn module(&mut self, package: &str, wanted: &str) -> String {
        unique(self.modules.entry(package.to_owned()).or_default(), wanted)
    }

    fn reserve(&mut self, package: &str, module: String) {
        self.modules.entry(package.to_owned()).or_default().insert(module);
    }
}

/// `wanted`, with as many underscores behind it as it takes to be new to `taken`.
pub(crate) fn unique(taken: &mut HashSet<String>, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// The `lower_snake` form of `name`, as prost-build makes it for modules.
pub(crate) fn snake(name: &str) -> String {
    Module::from_protobuf_package_name(name).to_string()
}

/// prost-build gives a message a module for what is nested in it.
fn has_module(message: &DescriptorProto) -> bool {
    let is_map_entry =
        |nested: &DescriptorProto| nested.options.as_ref().is_some_and(|options| options.map_entry());
    let has_oneof = message.field.iter().any(|field| field.oneof_index.is_some() && !field.proto3_optional());
    let has_message = message.nested_type.iter().any(|nested| !is_map_entry(nested));
    has_oneof || has_message || !message.enum_type.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_agrees_with_prost() {
        assert_eq!(snake("GreeterServer"), "greeter_server");
        assert_eq!(snake("Async"), "r#async");
        assert_eq!(snake("Self"), "self_");
    }

    #[test]
    fn taken_names_get_underscores() {
        let mut names = Names::default();
        names.reserve("p", "greeter_server".into());
        assert_eq!(names.module("p", "greeter_server"), "greeter_server_");
        assert_eq!(names.module("p", "greeter_server"), "greeter_server__");
        assert_eq!(names.module("q", "greeter_server"), "greeter_server");
    }

    #[test]
    fn packages_are_modules_of_the_package_above() {
        let file = FileDescriptorProto { package: Some("a.greeter_server.v1".into()), ..Default::default() };
        let mut names = Names::new(&[file]);
        assert_eq!(names.module("a", "greeter_server"), "greeter_server_");
        assert_eq!(names.module("a.greeter_server", "v1"), "v1_");
    }
}
