//! A server's end of a connection, frame by frame (RFC 9113), for servers that do what ours never would.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[allow(unused_imports, reason = "a vocabulary, of which a test uses what it needs")]
pub(crate) use wire::{
    ACK, CANCEL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, MAX_CONCURRENT_STREAMS, PING,
    REFUSED_STREAM, RST_STREAM, SETTINGS, frame,
};

#[path = "../field_cases/wire.rs"]
pub(crate) mod wire;

/// `:status: 200`, `content-type: application/grpc`, by the static table (RFC 7541 appendix A).
const ANSWER: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// `grpc-status: 0` as a literal without indexing.
const OK: &[u8] = b"\x00\x0bgrpc-status\x010";

/// One frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// One connection that a client has made.
pub struct RawPeer {
    stream: TcpStream,
}

impl RawPeer {
    /// Takes a connection, and sends SETTINGS with these entries.
    pub fn accept(listener: &TcpListener, settings: &[(u16, u32)]) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).unwrap();
        let mut peer = Self { stream };
        peer.settings(settings);
        peer
    }

    pub fn settings(&mut self, settings: &[(u16, u32)]) {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes()))
            .collect();
        self.send(SETTINGS, 0, 0, &payload);
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        // A client that has gone is found out by reading.
        let _ = self.stream.write_all(&frame(kind, flags, stream, payload));
    }

    /// The next frame that is about a stream, or GOAWAY; SETTINGS and PING are answered. None at the end.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match frame.kind {
                SETTINGS | PING if frame.flags & ACK != 0 => {}
                SETTINGS => self.send(SETTINGS, ACK, 0, &[]),
                PING => self.send(PING, ACK, 0, &frame.payload),
                _ if stream != 0 || frame.kind == GOAWAY => return Some(frame),
                _ => {}
            }
        }
    }

    /// The stream of the next request; frames before it are dropped. None at the end.
    pub fn next_request(&mut self) -> Option<u32> {
        loop {
            let frame = self.next()?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    /// The error code of the next RST_STREAM of a stream. None at the end.
    pub fn next_reset(&mut self, stream: u32) -> Option<u32> {
        loop {
            let frame = self.next()?;
            if frame.kind == RST_STREAM && frame.stream == stream {
                return Some(u32::from_be_bytes(frame.payload.try_into().unwrap()));
            }
        }
    }

    /// Answers a request with one message and OK.
    pub fn reply(&mut self, stream: u32, message: &[u8]) {
        self.send(HEADERS, END_HEADERS, stream, ANSWER);
        self.message(stream, message);
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, OK);
    }

    /// Begins an answer.
    pub fn begin(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS, stream, ANSWER);
    }

    pub fn message(&mut self, stream: u32, message: &[u8]) {
        let mut data = vec![0];
        data.extend((message.len() as u32).to_be_bytes());
        data.extend(message);
        self.send(DATA, 0, stream, &data);
    }

    pub fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    pub fn go_away(&mut self, last_stream: u32) {
        let mut payload = last_stream.to_be_bytes().to_vec();
        payload.extend(0_u32.to_be_bytes());
        self.send(GOAWAY, 0, 0, &payload);
    }
}

/// Runs `serve` with a listener on a thread. Returns what clients connect to.
pub fn raw_server<R: Send + 'static>(
    serve: impl FnOnce(TcpListener) -> R + Send + 'static,
) -> (String, JoinHandle<R>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (endpoint, thread::spawn(move || serve(listener)))
}
