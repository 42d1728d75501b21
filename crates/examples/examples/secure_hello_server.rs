//! Serves hello world over TLS:
//! `cargo run --release --example secure_hello_server -- --port 50051 --certificate server.pem --key server.key`.
//!
//! With `--client-ca ca.pem` only clients are let in that show a certificate signed by that authority (mutual TLS).

use std::error::Error;
use std::fs;

use fulmar::tls::ServerTls;
use fulmar::{Replies, Request, Response, Server, Status};
use fulmar_examples::arguments;
use fulmar_examples::helloworld::greeter_server::{Greeter, GreeterServer};
use fulmar_examples::helloworld::{HelloReply, HelloRequest};

struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let mut message = format!("Hello {}", request.get_ref().name);
        // The client's own certificate, where one is asked for. Whom it names, a crate for X.509 reads from the DER.
        if let Some([own, ..]) = request.peer().certificates() {
            message += &format!(" by a certificate of {} bytes", own.as_der().len());
        }
        println!("{message}");
        Ok(Response::new(HelloReply { message }))
    }

    async fn say_hello_stream_reply(
        &self,
        request: Request<HelloRequest>,
        replies: &mut Replies<HelloReply>,
    ) -> Result<(), Status> {
        let name = request.into_inner().name;
        for greeting in ["Hello", "Hello again", "Goodbye"] {
            replies.send(&HelloReply { message: format!("{greeting} {name}") }).await?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [port, certificate, key, client_ca] = arguments(["--port", "--certificate", "--key", "--client-ca"])?;
    let port: u16 = port.as_deref().unwrap_or("50051").parse().map_err(|error| format!("--port: {error}"))?;
    let certificate = certificate.ok_or("--certificate FILE is missing: the server's certificate, PEM")?;
    let key = key.ok_or("--key FILE is missing: the certificate's key, PEM")?;

    let mut tls = ServerTls::from_pem(fs::read(certificate)?, fs::read(key)?)?;
    if let Some(client_ca) = client_ca {
        tls = tls.require_client_certificates(fs::read(client_ca)?)?;
    }
    // A clone of `tls` would do `reload` while the server runs: connections that come later see another certificate.
    let server =
        Server::builder().tls(tls).add_service(GreeterServer::new(MyGreeter)).bind(("127.0.0.1", port))?;
    println!("listening on {}", server.local_addr()?);
    server.run()?;
    Ok(())
}
