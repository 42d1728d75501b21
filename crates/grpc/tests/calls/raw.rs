//! A bare HTTP/2 connection at one end, which says what no well-behaved gRPC end would say.

use std::sync::Arc;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_grpc::{Config, Server};
use fulmar_http2::{Connection, ErrorCode, Event, Field, Role, StreamKey};

use crate::support::{End, Side, new_client, routes};

mod client;
mod server;

/// An HTTP/2 connection with the world around it.
struct Raw {
    connection: Connection,
    pool: Pool,
    out: Output,
    unread: Vec<u8>,
    log: Vec<Seen>,
    streams: Vec<StreamKey>,
}

/// What a bare connection sees of its peer.
#[derive(Clone, PartialEq, Debug)]
enum Seen {
    Headers { fields: Vec<(String, Vec<u8>)>, end: bool },
    Data { bytes: Vec<u8>, end: bool },
    Reset(ErrorCode),
}

impl Raw {
    fn new(role: Role) -> Self {
        Self {
            connection: Connection::new(role, fulmar_http2::Config::default()),
            pool: Pool::new(),
            out: Output::new(),
            unread: Vec::new(),
            log: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Connection, &mut Env<'_>) -> R) -> R {
        let now = Instant::from_nanos(1_000_000_000);
        let mut env = Env::new(now, &mut self.pool, &mut self.out);
        let result = act(&mut self.connection, &mut env);
        self.connection.transmit(&mut env);
        result
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        let now = Instant::from_nanos(1_000_000_000);
        let mut env = Env::new(now, &mut self.pool, &mut self.out);
        while let Some(event) = self.connection.next_event(&mut env, &input).expect("the peer speaks HTTP/2")
        {
            match event {
                Event::Headers { stream, end } => {
                    let owned = |field: Field<'_>| {
                        (String::from_utf8_lossy(field.name).into_owned(), field.value.to_vec())
                    };
                    let fields = self.connection.fields().map(owned).collect();
                    self.log.push(Seen::Headers { fields, end });
                    if !self.streams.contains(&stream) {
                        self.streams.push(stream);
                    }
                }
                Event::Data { stream, bytes, end } => {
                    self.connection.release(&mut env, stream, bytes.len());
                    self.log.push(Seen::Data { bytes: bytes.to_vec(), end });
                }
                Event::Reset { code, .. } => self.log.push(Seen::Reset(code)),
                _ => {}
            }
        }
        self.connection.transmit(&mut env);
        self.unread = unread[input.consumed()..].to_vec();
    }

    /// Carries bytes between this connection and a gRPC end until both are silent.
    fn run<E: End>(&mut self, side: &mut Side<E>) {
        loop {
            let mut bytes = Vec::new();
            self.out.move_to(&mut bytes);
            let mut answer = Vec::new();
            if !bytes.is_empty() {
                side.receive(&bytes);
            }
            side.out.move_to(&mut answer);
            if bytes.is_empty() && answer.is_empty() {
                return;
            }
            if !answer.is_empty() {
                self.receive(&answer);
            }
        }
    }
}

/// A bare client and a server, which know each other's settings.
fn raw_client(config: Config) -> (Raw, Side<Server>) {
    let mut raw = Raw::new(Role::Client);
    let mut server = Side::new(Server::new(config, Arc::new(routes())));
    raw.act(|_, _| ());
    server.act(|_, _| ());
    raw.run(&mut server);
    (raw, server)
}

/// A bare server and a client, which know each other's settings.
fn raw_server(config: Config) -> (Raw, Side<fulmar_grpc::Client>) {
    let mut raw = Raw::new(Role::Server);
    let mut client = Side::new(new_client(config));
    raw.act(|_, _| ());
    client.act(|_, _| ());
    raw.run(&mut client);
    client.log.clear();
    (raw, client)
}

fn fields<'f>(list: &'f [(&'f str, &'f [u8])]) -> impl Iterator<Item = Field<'f>> + Clone {
    list.iter().map(|(name, value)| Field::new(name.as_bytes(), value))
}
