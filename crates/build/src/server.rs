use crate::service::{Kind, MODULE_ATTRIBUTES, Rpc, Service};
use crate::source::Source;

/// How deep in the package the code of this file lies.
const DEPTH: usize = 1;

/// Writes the module of a service's server side: the trait to implement, and what hands an implementation to a server.
pub(crate) fn write(source: &mut Source, service: &Service, module: &str) {
    source.docs(&format!("Server side of the service `{}`.", service.full_name));
    source.block(&format!("pub mod {module}"), |source| {
        source.lines(MODULE_ATTRIBUTES);
        source.blank();
        write_trait(source, service);
        source.blank();
        write_server(source, service);
        source.blank();
        write_registration(source, service);
    });
}

fn write_trait(source: &mut Source, service: &Service) {
    let (name, server) = (&service.name, service.type_name("Server"));
    source.docs(&service.docs());
    source.docs(&format!(
        "
Implement each method as a plain `async fn` and hand the implementation to [`{server}`]. The
futures need not be `Send`: a call stays on the thread that it started on."
    ));
    write_deprecated(source, service.deprecated);
    let head = format!("pub trait {name}: ::core::marker::Send + ::core::marker::Sync + 'static");
    source.block(&head, |source| {
        for (index, rpc) in service.rpcs.iter().enumerate() {
            if index > 0 {
                source.blank();
            }
            source.docs(&rpc.docs());
            write_deprecated(source, rpc.deprecated);
            write_method(source, rpc);
        }
    });
}

fn write_method(source: &mut Source, rpc: &Rpc) {
    let (name, request, reply) = (&rpc.name, rpc.request(DEPTH), rpc.reply(DEPTH));
    let (arguments, output) = match rpc.kind {
        Kind::Unary => {
            (format!("request: ::fulmar::Request<{request}>,"), format!("::fulmar::Response<{reply}>"))
        }
        Kind::ClientStreaming => (
            format!("requests: ::fulmar::Request<::fulmar::Streaming<{request}>>,"),
            format!("::fulmar::Response<{reply}>"),
        ),
        Kind::ServerStreaming => (
            format!("request: ::fulmar::Request<{request}>,\n    replies: &mut ::fulmar::Replies<{reply}>,"),
            "()".to_owned(),
        ),
        Kind::Bidi => (
            format!(
                "requests: ::fulmar::Request<::fulmar::Streaming<{request}>>,\n    replies: &mut ::fulmar::Replies<{reply}>,"
            ),
            "()".to_owned(),
        ),
    };
    source.lines(&format!(
        "fn {name}(
    &self,
    {arguments}
) -> impl ::core::future::Future<
    Output = ::core::result::Result<{output}, ::fulmar::Status>,
>;"
    ));
}

fn write_server(source: &mut Source, service: &Service) {
    let (name, server) = (&service.name, service.type_name("Server"));
    let (full_name, parameter) = (&service.full_name, service.type_parameter());
    source.lines(&format!(
        "/// Hands an implementation of [`{name}`] to a [`Server`](::fulmar::Server), by its `add_service`.
///
/// Clones share the implementation."
    ));
    write_deprecated(source, service.deprecated);
    source.lines(&format!(
        "pub struct {server}<{parameter}> {{
    service: ::std::sync::Arc<{parameter}>,
}}

impl<{parameter}> {server}<{parameter}> {{
    /// The name of the service on the wire.
    pub const NAME: &'static str = \"{full_name}\";

    /// Wraps an implementation.
    pub fn new(service: {parameter}) -> Self {{
        Self::from_arc(::std::sync::Arc::new(service))
    }}

    /// Wraps an implementation that is also used elsewhere.
    pub fn from_arc(service: ::std::sync::Arc<{parameter}>) -> Self {{
        Self {{ service }}
    }}
}}

impl<{parameter}: {name}> {server}<{parameter}> {{
    /// Puts an interceptor around all methods. More may follow; the first is the outermost.
    pub fn intercept(
        self,
        interceptor: impl ::fulmar::Interceptor,
    ) -> ::fulmar::Intercepted<Self> {{
        ::fulmar::Intercepted::new(self, interceptor)
    }}
}}

impl<{parameter}> ::core::clone::Clone for {server}<{parameter}> {{
    fn clone(&self) -> Self {{
        Self::from_arc(::std::sync::Arc::clone(&self.service))
    }}
}}

impl<{parameter}> ::core::fmt::Debug for {server}<{parameter}> {{
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
        f.debug_struct(\"{server}\").finish_non_exhaustive()
    }}
}}"
    ));
}

fn write_registration(source: &mut Source, service: &Service) {
    let (name, server) = (&service.name, service.type_name("Server"));
    let parameter = service.type_parameter();
    let head = format!("impl<{parameter}: {name}> ::fulmar::Service for {server}<{parameter}>");
    source.block(&head, |source| {
        source.lines(
            "fn name(&self) -> &'static str {
    Self::NAME
}",
        );
        source.blank();
        let router = if service.rpcs.is_empty() { "_router" } else { "router" };
        source.block(&format!("fn register(&self, {router}: &mut ::fulmar::Router)"), |source| {
            for rpc in &service.rpcs {
                write_route(source, service, rpc);
            }
        });
    });
}

/// The method is called by its full path: the implementation sits in an `Arc`, which has methods of its own.
fn write_route(source: &mut Source, service: &Service, rpc: &Rpc) {
    let (add, binding, argument) = match rpc.kind {
        Kind::Unary => ("unary", "request", "request"),
        Kind::ClientStreaming => ("client_streaming", "requests", "requests"),
        Kind::ServerStreaming => ("server_streaming", "request, mut replies", "request, &mut replies"),
        Kind::Bidi => ("bidi", "requests, mut replies", "requests, &mut replies"),
    };
    let (path, method, parameter, name) = (&rpc.path, &rpc.name, service.type_parameter(), &service.name);
    source.lines(&format!(
        "router.{add}(
    \"{path}\",
    &self.service,
    |service, {binding}| async move {{ <{parameter} as {name}>::{method}(&service, {argument}).await }},
);"
    ));
}

fn write_deprecated(source: &mut Source, deprecated: bool) {
    if deprecated {
        source.lines("#[deprecated]");
    }
}
