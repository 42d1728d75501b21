//! A server that answers as it likes, and ends its connections as it likes, on the thread of its client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use super::Random;
use crate::peer::{
    CANCEL, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, REFUSED_STREAM, data, go_away, headers,
    message, ping, reset_stream, response, settings, settings_ack, trailers_ok, window_update,
};

/// How a connection ends that the server ends.
#[derive(Clone, Copy)]
enum End {
    Fin,
    /// RST of TCP.
    Reset,
    Garbage,
}

pub(crate) struct Hostile {
    listener: TcpListener,
    connections: Vec<Connection>,
}

struct Connection {
    socket: TcpStream,
    unread: Vec<u8>,
    has_preface: bool,
    /// Streams that have begun, each with what of its answer was sent: 0 nothing, 1 headers.
    streams: Vec<(u32, u8)>,
}

impl Hostile {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, connections: Vec::new() }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    /// Takes what has come, and does something about it.
    pub(crate) fn act(&mut self, random: &mut Random) {
        while let Ok((socket, _)) = self.listener.accept() {
            if random.percent(5) {
                end(socket, [End::Fin, End::Reset, End::Garbage][random.below(3)]);
                continue;
            }
            socket.set_nonblocking(true).unwrap();
            socket.set_nodelay(true).unwrap();
            let mut connection =
                Connection { socket, unread: Vec::new(), has_preface: false, streams: Vec::new() };
            let limit = if random.percent(20) { random.below(4) as u32 } else { 100 };
            connection.send(&[settings(&[(crate::peer::MAX_CONCURRENT_STREAMS, limit)])]);
            self.connections.push(connection);
        }
        let mut index = 0;
        while index < self.connections.len() {
            let lives = self.connections[index].read() && self.connections[index].answer(random);
            if !lives || random.percent(2) {
                let connection = self.connections.swap_remove(index);
                end(connection.socket, [End::Fin, End::Reset, End::Garbage][random.below(3)]);
            } else {
                index += 1;
            }
        }
    }
}

fn end(mut socket: TcpStream, how: End) {
    match how {
        End::Fin => drop(socket.shutdown(Shutdown::Write)),
        End::Reset => drop(socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))),
        End::Garbage => drop(socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    }
}

impl Connection {
    fn send(&mut self, frames: &[Vec<u8>]) {
        // A client that has gone is found out by reading; one that does not read loses frames, which is hostile, too.
        let _ = self.socket.write_all(&frames.concat());
    }

    /// False at the end.
    fn read(&mut self) -> bool {
        let mut scratch = [0; 16 * 1024];
        loop {
            match self.socket.read(&mut scratch) {
                Ok(0) => return false,
                Ok(read) => self.unread.extend(&scratch[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        if !self.has_preface && self.unread.len() >= PREFACE.len() {
            self.unread.drain(..PREFACE.len());
            self.has_preface = true;
            self.send(&[settings_ack()]);
        }
        while self.has_preface && self.unread.len() >= 9 {
            let length = u32::from_be_bytes([0, self.unread[0], self.unread[1], self.unread[2]]) as usize;
            if self.unread.len() < 9 + length {
                break;
            }
            let kind = self.unread[3];
            let stream = u32::from_be_bytes(self.unread[5..9].try_into().unwrap());
            match kind {
                HEADERS => self.streams.push((stream, 0)),
                GOAWAY => return false,
                _ => {}
            }
            self.unread.drain(..9 + length);
        }
        true
    }

    /// Says something about one of the streams, or about all. False to end.
    fn answer(&mut self, random: &mut Random) -> bool {
        if self.streams.is_empty() {
            return true;
        }
        let index = random.below(self.streams.len());
        let (stream, stage) = self.streams[index];
        let head = if stage == 0 { headers(stream, END_HEADERS, &response()) } else { Vec::new() };
        let body = message(&vec![b'm'; random.below(300)]);
        let end = headers(stream, END_HEADERS | END_STREAM, &trailers_ok());
        let mut is_over = false;
        let frames = match random.below(13) {
            0 | 1 => vec![head, data(stream, 0, &body)],
            2 => {
                is_over = true;
                vec![head, data(stream, 0, &body), end]
            }
            3 => {
                is_over = true;
                vec![head, end]
            }
            // Half a message, whose rest never comes.
            4 => vec![head, data(stream, 0, &body[..body.len() / 2])],
            5 | 6 => {
                is_over = true;
                vec![reset_stream(stream, [0, 1, 2, CANCEL, REFUSED_STREAM, 11, 99][random.below(7)])]
            }
            7 => vec![go_away([0, stream, 0x7fff_ffff][random.below(3)], [0, 0, 2, 11][random.below(4)])],
            8 => vec![ping(*b"hostile!")],
            9 => vec![window_update([0, stream][random.below(2)], 1 + random.below(100_000) as u32)],
            10 if random.percent(20) => vec![data(stream + 2, 0, &body)],
            11 if random.percent(20) => return false,
            _ => return true,
        };
        self.streams[index].1 = 1;
        if is_over {
            self.streams.swap_remove(index);
        }
        self.send(&frames);
        true
    }
}
