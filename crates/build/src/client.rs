use crate::service::{Kind, MODULE_ATTRIBUTES, Rpc, Service, Sides};
use crate::source::Source;

/// Writes the module of a service's clients: the async one, and the blocking one in a module of its own.
pub(crate) fn write(source: &mut Source, service: &Service, module: &str, sides: Sides) {
    source.docs(&format!("Clients of the service `{}`.", service.full_name));
    source.block(&format!("pub mod {module}"), |source| {
        source.lines(MODULE_ATTRIBUTES);
        if sides.client {
            source.blank();
            write_client(source, service, &ASYNC);
        }
        if sides.blocking {
            source.blank();
            source.docs("The client whose calling thread does the I/O itself while it waits.");
            source.block("pub mod blocking", |source| write_client(source, service, &BLOCKING));
        }
    });
}

/// In what the two clients differ.
struct Flavour {
    /// How deep in the package the code lies.
    depth: usize,
    /// Where the client's own types lie.
    library: &'static str,
    /// Before `fn`.
    asynchronous: &'static str,
    /// Behind a call.
    wait: &'static str,
    receiver: &'static str,
    /// The lifetime with which the streams of a call borrow the client, as first type argument.
    borrow: &'static str,
    about: &'static str,
    /// Whether clients can be cloned.
    is_clone: bool,
}

const ASYNC: Flavour = Flavour {
    depth: 1,
    library: "::fulmar",
    asynchronous: "async ",
    wait: ".await",
    receiver: "&self",
    borrow: "",
    about: "Its futures run on any executor. Clones share the channel.",
    is_clone: true,
};

const BLOCKING: Flavour = Flavour {
    depth: 2,
    library: "::fulmar::blocking",
    asynchronous: "",
    wait: "",
    receiver: "&mut self",
    borrow: "'_, ",
    about: "The calling thread does the I/O itself while it waits; a client makes one call at a time.",
    is_clone: false,
};

fn write_client(source: &mut Source, service: &Service, flavour: &Flavour) {
    let client = service.type_name("Client");
    source.docs(&service.docs());
    source.docs(&format!("\n{}", flavour.about));
    if service.deprecated {
        source.lines("#[deprecated]");
    }
    if flavour.is_clone {
        source.lines("#[derive(::core::clone::Clone)]");
    }
    source.lines(&format!(
        "pub struct {client} {{
    channel: {library}::Channel,
}}",
        library = flavour.library
    ));
    source.blank();
    source.block(&format!("impl {client}"), |source| {
        write_constructors(source, flavour);
        for rpc in &service.rpcs {
            source.blank();
            write_method(source, rpc, flavour);
        }
    });
    source.blank();
    source.lines(&format!(
        "impl ::core::fmt::Debug for {client} {{
    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
        f.debug_struct(\"{client}\").finish_non_exhaustive()
    }}
}}"
    ));
}

fn write_constructors(source: &mut Source, flavour: &Flavour) {
    let Flavour { library, asynchronous, wait, .. } = flavour;
    source.lines(&format!(
        "/// Connects to `endpoint`, such as `http://127.0.0.1:50051`.
///
/// # Errors
///
/// When `endpoint` is no address of a server, or the server cannot be reached.
pub {asynchronous}fn connect(
    endpoint: impl ::core::convert::AsRef<str>,
) -> ::core::result::Result<Self, ::fulmar::ConnectError> {{
    Ok(Self::new({library}::Channel::connect(endpoint){wait}?))
}}

/// A client on a channel that is there already.
pub fn new(channel: {library}::Channel) -> Self {{
    Self {{ channel }}
}}"
    ));
}

fn write_method(source: &mut Source, rpc: &Rpc, flavour: &Flavour) {
    let Flavour { library, asynchronous, wait, receiver, borrow, .. } = flavour;
    let (name, path) = (&rpc.client_name, &rpc.path);
    let (request, reply) = (rpc.request(flavour.depth), rpc.reply(flavour.depth));
    let (call, argument, output) = match rpc.kind {
        Kind::Unary => ("unary", request.as_str(), format!("::fulmar::Response<{reply}>")),
        Kind::ServerStreaming => (
            "server_streaming",
            request.as_str(),
            format!("::fulmar::Response<{library}::Streaming<{borrow}{reply}>>"),
        ),
        Kind::ClientStreaming => {
            ("client_streaming", "()", format!("{library}::Upload<{borrow}{request}, {reply}>"))
        }
        Kind::Bidi => ("bidi", "()", format!("{library}::Duplex<{borrow}{request}, {reply}>")),
    };
    source.docs(&rpc.docs());
    if rpc.client_name != rpc.name {
        source.docs(&format!("\nCalls `{}`.", rpc.full_name));
    }
    if rpc.deprecated {
        source.lines("#[deprecated]");
    }
    source.lines(&format!(
        "pub {asynchronous}fn {name}(
    {receiver},
    request: impl ::fulmar::IntoRequest<{argument}>,
) -> ::core::result::Result<
    {output},
    ::fulmar::Status,
> {{
    self.channel.{call}(\"{path}\", request){wait}
}}"
    ));
}
