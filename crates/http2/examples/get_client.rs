//! A plain HTTP/2 client: makes one GET, prints what comes back, and ends within two seconds whatever the server does.
//!
//! ```text
//! cargo run --release -p fulmar-http2 --example get_client -- http://127.0.0.1:8080/
//! ```
//!
//! Exits with 0 if a whole response arrived.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the engine knows no sockets, its examples do"
)]

use std::error::Error;
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::time::Duration;

use fulmar_base::{Closed, Endpoint, Env, Input, Instant, Plain, TaskId};
use fulmar_http2::{Config, Connection, ErrorCode, Event, Field, Role};
use fulmar_reactor::{Lone, clock};

/// How long the exchange may take. What is missing to two seconds is for saying good-bye.
const PATIENCE: Duration = Duration::from_millis(900);

/// How long the server is listened to when its response is there.
const AFTERWARDS: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    match get() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn get() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("the argument is a URL: http://host:port/path")?;
    let rest = url.strip_prefix("http://").ok_or("the URL has to begin with http://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let with_port = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let address = with_port.to_socket_addrs()?.next().ok_or("the host has no address")?;

    let deadline = clock() + PATIENCE;
    let end = GetEnd::new(authority, path);
    let mut lone = Lone::connect(address, Some(PATIENCE), || Plain(end))?;
    while !lone.transport().0.ended {
        if clock() >= deadline {
            return Err(format!("no whole response within {PATIENCE:?}").into());
        }
        lone.turn(Some(deadline))?;
    }
    // What the server sends right behind its response, such as a PING, still gets its answer.
    let goodbye = (clock() + AFTERWARDS).min(deadline);
    let mut is_open = true;
    while is_open && clock() < goodbye {
        is_open = lone.turn(Some(goodbye)).is_ok();
    }
    if is_open {
        lone.poke(|Plain(end), env| {
            end.connection.go_away(env, ErrorCode::NoError, b"");
            Ok(())
        })?;
        lone.flush()?;
        lone.close(&Closed::local("the response is there"));
    }
    lone.transport().0.failure.take().map_or(Ok(()), |failure| Err(failure.into()))
}

/// The client end of one connection with one request.
struct GetEnd {
    connection: Connection,
    authority: String,
    path: String,
    asked: bool,
    ended: bool,
    failure: Option<String>,
}

impl GetEnd {
    fn new(authority: &str, path: &str) -> Self {
        Self {
            connection: Connection::new(Role::Client, Config::default()),
            authority: authority.to_owned(),
            path: path.to_owned(),
            asked: false,
            ended: false,
            failure: None,
        }
    }

    fn ask(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.asked = true;
        let fields = [
            Field::new(b":method", b"GET"),
            Field::new(b":scheme", b"http"),
            Field::new(b":path", self.path.as_bytes()),
            Field::new(b":authority", self.authority.as_bytes()),
        ];
        let opened = self.connection.open(env, fields, true);
        opened.map(|_| ()).map_err(|error| Closed::peer(error.to_string()))
    }

    fn run(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        loop {
            while let Some(event) = self.connection.next_event(env, input)? {
                self.on_event(env, &event)?;
            }
            self.connection.transmit(env);
            if !self.connection.has_events() {
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: &Event<'_>) -> Result<(), Closed> {
        match *event {
            Event::Ready if !self.asked => self.ask(env)?,
            Event::Headers { .. } => {
                for Field { name, value, .. } in self.connection.fields() {
                    println!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                }
            }
            Event::Data { stream, bytes, .. } => {
                print!("{}", String::from_utf8_lossy(bytes));
                self.connection.release(env, stream, bytes.len());
            }
            Event::Closed { .. } => self.ended = true,
            Event::Reset { code, ref text, .. } => {
                self.ended = true;
                self.failure = Some(format!("{code}: {text}"));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Endpoint for GetEnd {
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
