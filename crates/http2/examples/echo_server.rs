//! A plain HTTP/2 server: answers every GET, POST and HEAD with status 200 and a few words, once the request has ended.
//!
//! ```text
//! cargo run --release -p fulmar-http2 --example echo_server -- --port 8080 [--tls]
//! ```
//!
//! `--port 0` lets the system pick one; the address is printed. With `--tls` it makes a certificate of its own, for `localhost`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the engine knows no sockets, its examples do"
)]

use std::error::Error;
use std::net::TcpListener;

use fulmar_base::{Closed, Endpoint, Env, Input, Instant, Plain, TaskId, Transport};
use fulmar_http2::{Config, Connection, Event, Field, Role, SendError, StreamKey};
use fulmar_reactor::{ConnectionKey, Core, Host, ListenerKey, Reactor, ReactorConfig, Socket};
use fulmar_tls::{ServerTls, Tls};

const BODY: &[u8] =
    b"The fulmar glides for hours without a wing beat; this server answers everything alike.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { port, tls } = Arguments::read()?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("listening on {}", listener.local_addr()?);
    if tls {
        let config = own_certificate()?;
        serve(listener, move || Ok(Tls::new(config.session(), EchoEnd::new())))
    } else {
        serve(listener, || Ok(Plain(EchoEnd::new())))
    }
}

struct Arguments {
    port: u16,
    tls: bool,
}

impl Arguments {
    fn read() -> Result<Self, Box<dyn Error>> {
        let mut read = Self { port: 8080, tls: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--port" => read.port = arguments.next().ok_or("--port needs a number")?.parse()?,
                "--tls" => read.tls = true,
                other => return Err(format!("{other}: the arguments are --port N and --tls").into()),
            }
        }
        Ok(read)
    }
}

fn own_certificate() -> Result<ServerTls, Box<dyn Error>> {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    Ok(ServerTls::from_pem(own.cert.pem().as_bytes(), own.signing_key.serialize_pem().as_bytes())?)
}

/// Serves for ever.
fn serve<T, M>(listener: TcpListener, make: M) -> Result<(), Box<dyn Error>>
where
    T: Transport,
    M: Fn() -> Result<T, Box<dyn Error>>,
{
    let mut listening = Ok(());
    let mut reactor = Reactor::new(ReactorConfig::default(), |core| {
        listening = core.listen(listener).map(|_| ());
        EchoHost { make }
    })?;
    listening?;
    Ok(reactor.run()?)
}

/// Gives each connection a server end.
struct EchoHost<M> {
    make: M,
}

impl<T, M> Host for EchoHost<M>
where
    T: Transport,
    M: Fn() -> Result<T, Box<dyn Error>>,
{
    type Transport = T;
    type Letter = ();

    fn on_accept(&mut self, core: &mut Core<T, ()>, _: ListenerKey, socket: Socket) {
        match (self.make)() {
            Ok(transport) => {
                core.adopt(socket, |_| transport);
            }
            Err(error) => eprintln!("{}: {error}", socket.peer()),
        }
    }

    fn on_letter(&mut self, _: &mut Core<T, ()>, (): ()) {}

    fn on_connected(&mut self, _: &mut Core<T, ()>, _: ConnectionKey) {}

    fn on_closed(&mut self, _: &mut Core<T, ()>, _: ConnectionKey, _: T, closed: &Closed) {
        eprintln!("{closed}");
    }
}

/// What the server knows of a stream, kept as its user number.
const NEW: u64 = 0;
const WITH_BODY: u64 = 1;
const HEAD: u64 = 2;

/// The server end of one connection.
struct EchoEnd {
    connection: Connection,
}

impl EchoEnd {
    fn new() -> Self {
        Self { connection: Connection::new(Role::Server, Config::default()) }
    }

    fn run(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        loop {
            while let Some(event) = self.connection.next_event(env, input)? {
                self.on_event(env, &event);
            }
            self.connection.transmit(env);
            if !self.connection.has_events() {
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: &Event<'_>) {
        let ended = match *event {
            Event::Headers { stream, end } => {
                if self.connection.user(stream) == Some(NEW) {
                    let mut fields = self.connection.fields();
                    let head = fields.any(|field| field.name == b":method" && field.value == b"HEAD");
                    self.connection.set_user(stream, if head { HEAD } else { WITH_BODY });
                }
                end.then_some(stream)
            }
            Event::Data { stream, bytes, end } => {
                self.connection.release(env, stream, bytes.len());
                end.then_some(stream)
            }
            _ => None,
        };
        // A stream that has gone in the meantime needs no answer.
        let _: Option<Result<(), SendError>> = ended.map(|stream| self.answer(env, stream));
    }

    fn answer(&mut self, env: &mut Env<'_>, stream: StreamKey) -> Result<(), SendError> {
        let length = BODY.len().to_string();
        let fields = [
            Field::new(b":status", b"200"),
            Field::new(b"content-type", b"text/plain; charset=utf-8"),
            Field::new(b"content-length", length.as_bytes()),
        ];
        let head = self.connection.user(stream) == Some(HEAD);
        self.connection.send_headers(env, stream, fields, head)?;
        if head { Ok(()) } else { self.connection.send_data(env, stream, BODY, true) }
    }
}

impl Endpoint for EchoEnd {
    type Command = ();

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        let input = Input::new(bytes);
        self.run(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.run(env, &Input::new(&[]))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.connection.next_deadline()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        Ok(self.connection.on_deadline(env)?)
    }

    fn on_command(&mut self, _: &mut Env<'_>, (): ()) -> Result<(), Closed> {
        Ok(())
    }

    fn on_wake(&mut self, _: &mut Env<'_>, _: TaskId) -> Result<(), Closed> {
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, _: &Closed) {
        self.connection.close(env);
    }
}
