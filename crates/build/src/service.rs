use std::collections::HashSet;

use prost_build::{Comments, Method, ServiceGenerator};

use crate::names::{Names, snake, unique};
use crate::source::Source;
use crate::{client, server};

/// Which sides of a service are generated.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sides {
    pub(crate) server: bool,
    pub(crate) client: bool,
    pub(crate) blocking: bool,
}

/// Writes each service behind the messages of its package.
pub(crate) struct Generator {
    pub(crate) sides: Sides,
    pub(crate) names: Names,
}

impl ServiceGenerator for Generator {
    fn generate(&mut self, service: prost_build::Service, buf: &mut String) {
        let service = Service::new(service);
        let mut source = Source::default();
        if self.sides.server {
            let module = self.names.module(&service.package, &format!("{}_server", service.module_stem));
            server::write(&mut source, &service, &module);
        }
        if self.sides.client || self.sides.blocking {
            let module = self.names.module(&service.package, &format!("{}_client", service.module_stem));
            client::write(&mut source, &service, &module, self.sides);
        }
        buf.push_str(&source.into_text());
    }
}

/// A service, with its names in Rust.
pub(crate) struct Service {
    /// In `UpperCamel`.
    pub(crate) name: String,
    /// With its package, as on the wire.
    pub(crate) full_name: String,
    pub(crate) docs: Option<String>,
    pub(crate) deprecated: bool,
    pub(crate) rpcs: Vec<Rpc>,
    package: String,
    /// In `lower_snake`, to be followed by `_server` or `_client`.
    module_stem: String,
}

/// One method of a service, with its names and types in Rust.
pub(crate) struct Rpc {
    /// In the server's trait.
    pub(crate) name: String,
    /// In the clients, where constructors have names too.
    pub(crate) client_name: String,
    /// As in the `.proto`, with service and package.
    pub(crate) full_name: String,
    /// As in `:path`.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) docs: Option<String>,
    pub(crate) deprecated: bool,
    request: String,
    reply: String,
}

/// Which side of a call is a stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    ClientStreaming,
    ServerStreaming,
    Bidi,
}

impl Service {
    fn new(service: prost_build::Service) -> Self {
        let prost_build::Service { name, proto_name, package, comments, methods, options } = service;
        let full_name =
            if package.is_empty() { proto_name.clone() } else { format!("{package}.{proto_name}") };
        let mut names = HashSet::new();
        let mut client_names = HashSet::from(RESERVED_IN_CLIENTS.map(str::to_owned));
        let rpcs = methods
            .into_iter()
            .map(|method| Rpc::new(method, &full_name, &mut names, &mut client_names))
            .collect();
        let module = snake(&proto_name);
        Self {
            module_stem: module.trim_start_matches("r#").trim_end_matches('_').to_owned(),
            docs: docs_of(comments),
            deprecated: options.deprecated(),
            name,
            full_name,
            rpcs,
            package,
        }
    }

    /// The name of a type made for the service: `GreeterServer` for `Server`, `SelfServer` for a service `Self_`.
    pub(crate) fn type_name(&self, role: &str) -> String {
        format!("{}{role}", self.name.trim_end_matches('_'))
    }

    /// A name for the type that implements the service; no trait of the same module has it.
    pub(crate) fn type_parameter(&self) -> &'static str {
        if self.name == "S" { "T" } else { "S" }
    }

    /// The comment of the service, or a line that stands in for it.
    pub(crate) fn docs(&self) -> String {
        self.docs.clone().unwrap_or_else(|| format!("The service `{}`.", self.full_name))
    }
}

/// What every client has, and what a method of the same name would hide.
const RESERVED_IN_CLIENTS: [&str; 3] = ["new", "connect", "clone"];

impl Rpc {
    fn new(
        method: Method,
        service: &str,
        names: &mut HashSet<String>,
        client_names: &mut HashSet<String>,
    ) -> Self {
        let name = unique(names, &method.name);
        let client_name = if RESERVED_IN_CLIENTS.contains(&name.as_str()) {
            unique(client_names, &format!("call_{name}"))
        } else {
            unique(client_names, &name)
        };
        Self {
            name,
            client_name,
            full_name: format!("{service}.{}", method.proto_name),
            path: format!("/{service}/{}", method.proto_name),
            kind: match (method.client_streaming, method.server_streaming) {
                (false, false) => Kind::Unary,
                (true, false) => Kind::ClientStreaming,
                (false, true) => Kind::ServerStreaming,
                (true, true) => Kind::Bidi,
            },
            docs: docs_of(method.comments),
            deprecated: method.options.deprecated(),
            request: method.input_type,
            reply: method.output_type,
        }
    }

    /// The type of a request, as seen from `depth` modules below the package.
    pub(crate) fn request(&self, depth: usize) -> String {
        seen_from(depth, &self.request)
    }

    /// The type of a reply, as seen from `depth` modules below the package.
    pub(crate) fn reply(&self, depth: usize) -> String {
        seen_from(depth, &self.reply)
    }

    /// The comment of the rpc, or a line that stands in for it.
    pub(crate) fn docs(&self) -> String {
        self.docs.clone().unwrap_or_else(|| format!("The rpc `{}`.", self.full_name))
    }
}

fn docs_of(comments: Comments) -> Option<String> {
    let lines: Vec<&str> = comments.leading.iter().map(|line| line.trim()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// prost-build names types as seen from the package's module, or absolutely, or by what they are in Rust
/// (`google.protobuf.Empty` is `()`, `google.protobuf.BoolValue` is `bool`).
fn seen_from(depth: usize, path: &str) -> String {
    const BUILT_IN: [&str; 8] = ["()", "bool", "f32", "f64", "i32", "i64", "u32", "u64"];
    if BUILT_IN.contains(&path) || path.starts_with("::") || path.starts_with("crate::") {
        path.to_owned()
    } else {
        format!("{}{path}", "super::".repeat(depth))
    }
}

/// On every generated module: what is written there follows the `.proto`, not the taste of the crate that includes it.
pub(crate) const MODULE_ATTRIBUTES: &str = "\
#![allow(dead_code, deprecated, missing_docs, unreachable_pub)]
#![allow(clippy::all, clippy::pedantic, clippy::nursery)]";

#[cfg(test)]
mod tests {
    use super::*;

    fn method(proto_name: &str) -> Method {
        Method {
            name: snake(proto_name),
            proto_name: proto_name.into(),
            comments: Comments::default(),
            input_type: "Request".into(),
            output_type: "()".into(),
            input_proto_type: ".p.Request".into(),
            output_proto_type: ".google.protobuf.Empty".into(),
            options: Default::default(),
            client_streaming: false,
            server_streaming: false,
        }
    }

    fn rpcs(proto_names: &[&str]) -> Vec<(String, String)> {
        let service = Service::new(prost_build::Service {
            name: "Probe".into(),
            proto_name: "Probe".into(),
            package: "p".into(),
            comments: Comments::default(),
            methods: proto_names.iter().map(|name| method(name)).collect(),
            options: Default::default(),
        });
        service.rpcs.into_iter().map(|rpc| (rpc.name, rpc.client_name)).collect()
    }

    #[test]
    fn client_methods_leave_the_constructors_alone() {
        let pairs = rpcs(&["New", "Connect", "Clone", "Drop", "CallNew"]);
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("new", "call_new"),
                ("connect", "call_connect"),
                ("clone", "call_clone"),
                ("drop", "drop"),
                ("call_new", "call_new_")
            ]
        );
    }

    #[test]
    fn rpcs_that_differ_by_case_only_get_two_names() {
        let pairs = rpcs(&["GetFeature", "get_feature"]);
        assert_eq!(pairs[0].0, "get_feature");
        assert_eq!(pairs[1].0, "get_feature_");
        assert_eq!(pairs[1].1, "get_feature_");
    }

    #[test]
    fn types_are_reached_from_inside_the_service_module() {
        assert_eq!(seen_from(1, "Point"), "super::Point");
        assert_eq!(seen_from(2, "super::b::Point"), "super::super::super::b::Point");
        assert_eq!(seen_from(2, "()"), "()");
        assert_eq!(seen_from(1, "::prost_types::Timestamp"), "::prost_types::Timestamp");
        assert_eq!(seen_from(1, "crate::Point"), "crate::Point");
    }
}
