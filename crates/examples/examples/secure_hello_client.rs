//! Calls hello world over TLS:
//! `cargo run --release --example secure_hello_client -- --server https://localhost:50051 --ca ca.pem`.
//!
//! Without `--ca` the authorities are trusted that Mozilla trusts. `--certificate FILE` and `--key FILE` are shown to a server that
//! asks for them; `--server-name NAME` is expected of its certificate instead of the name in the endpoint.

use std::error::Error;
use std::fs;

use fulmar::blocking::Channel;
use fulmar::tls::ClientTls;
use fulmar_examples::arguments;
use fulmar_examples::helloworld::HelloRequest;
use fulmar_examples::helloworld::greeter_client::blocking::GreeterClient;

fn main() -> Result<(), Box<dyn Error>> {
    let [server, name, ca, certificate, key, server_name] =
        arguments(["--server", "--name", "--ca", "--certificate", "--key", "--server-name"])?;
    let server = server.as_deref().unwrap_or("https://localhost:50051");

    let mut tls = match ca {
        Some(ca) => ClientTls::from_ca_pem(fs::read(ca)?)?,
        None => ClientTls::new()?,
    };
    if let (Some(certificate), Some(key)) = (certificate, key) {
        tls = tls.identity_pem(fs::read(certificate)?, fs::read(key)?)?;
    }
    if let Some(server_name) = server_name {
        tls = tls.server_name(&server_name)?;
    }

    let channel = Channel::with(Channel::builder(server).tls(tls))?;
    let mut greeter = GreeterClient::new(channel);
    let name = name.as_deref().unwrap_or("world").into();
    println!("{}", greeter.say_hello(HelloRequest { name })?.into_inner().message);
    Ok(())
}
