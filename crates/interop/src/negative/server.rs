//! The servers.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use prost::Message;

use super::Case;
use super::connection::{Connection, Shape};
use super::frame::{DATA, END_STREAM, Frame, HEADERS, NO_ERROR, REFUSED_STREAM, RST_STREAM};
use crate::client::zeros;
use crate::proto::grpc::testing::{SimpleRequest, SimpleResponse};

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// The longest reply that a request may ask for, in bytes.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// gRPC's prefix of a message: a flag and four bytes of length.
const PREFIX_LEN: usize = 5;

/// A server that runs one case on each connection, in threads of its own, until it is dropped.
#[derive(Debug)]
pub struct Http2Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections tell.
#[derive(Debug)]
struct Shared {
    case: Case,
    violations: Mutex<Vec<String>>,
    connections: AtomicUsize,
    ended: AtomicBool,
}

impl Http2Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// The address is taken, or no thread can be had.
    pub fn start(case: Case, address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            case,
            violations: Mutex::default(),
            connections: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let thread = thread::Builder::new()
            .name("http2-server".to_owned())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients did that they must not do, so far.
    pub fn violations(&self) -> Vec<String> {
        self.shared.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections there were so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Serves until the process ends.
    pub fn run(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. Connections end with their clients.
        if let (Some(thread), Ok(_)) = (self.thread.take(), TcpStream::connect(self.address)) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(socket) = socket else { continue };
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = shared.clone();
        thread::spawn(move || {
            let served =
                Connection::accept(socket).and_then(|connection| Session::new(connection, &shared).serve());
            if let Err(error) = served {
                shared.violation(format!("a connection failed: {error}"));
            }
        });
    }
}

impl Shared {
    fn violation(&self, what: String) {
        println!("violation: {}: {what}", self.case);
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// The calls of a connection.
struct Session<'s> {
    connection: Connection,
    shared: &'s Shared,
    /// Bodies of requests that are not complete, by stream.
    requests: HashMap<u32, Vec<u8>>,
    /// The server has told the client to go.
    going: bool,
}

impl<'s> Session<'s> {
    fn new(connection: Connection, shared: &'s Shared) -> Self {
        Self { connection, shared, requests: HashMap::new(), going: false }
    }

    fn serve(mut self) -> io::Result<()> {
        if self.shared.case == Case::MaxStreams {
            self.connection.limit_streams(1)?;
        }
        while let Some(frame) = self.connection.next()? {
            match frame.kind {
                HEADERS => self.begin(&frame)?,
                DATA => self.receive(&frame)?,
                RST_STREAM => drop(self.requests.remove(&frame.stream)),
                _ => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, frame: &Frame) -> io::Result<()> {
        let stream = frame.stream;
        if self.going {
            self.shared.violation(format!("stream {stream} was opened after GOAWAY"));
        }
        // A client is bound by a limit once it has acknowledged it.
        let limited = self.shared.case == Case::MaxStreams && self.connection.settings_unacknowledged == 0;
        if limited && !self.requests.is_empty() {
            self.shared.violation(format!("stream {stream} was opened while another was open"));
            return self.connection.send_reset(stream, REFUSED_STREAM);
        }
        match self.shared.case {
            Case::RstAfterHeader => {
                self.connection.send_headers(stream)?;
                return self.connection.send_reset(stream, NO_ERROR);
            }
            Case::Ping => {
                self.connection.send_ping()?;
                self.connection.send_headers(stream)?;
                self.connection.send_ping()?;
            }
            _ => {}
        }
        self.requests.insert(stream, Vec::new());
        Ok(())
    }

    fn receive(&mut self, frame: &Frame) -> io::Result<()> {
        // What still comes for a stream that was reset is dropped.
        let Some(body) = self.requests.get_mut(&frame.stream) else { return Ok(()) };
        body.extend_from_slice(frame.content());
        if body.len() > REQUEST_BYTES_MAX {
            return Err(io::Error::other(format!("a request of more than {REQUEST_BYTES_MAX} bytes")));
        }
        if !frame.has(END_STREAM) {
            return Ok(());
        }
        let reply = reply_to(body)?;
        self.answer(frame.stream, &reply)?;
        self.requests.remove(&frame.stream);
        Ok(())
    }

    /// Answers as the case has it.
    fn answer(&mut self, stream: u32, reply: &[u8]) -> io::Result<()> {
        let connection = &mut self.connection;
        if self.shared.case != Case::Ping {
            connection.send_headers(stream)?;
        }
        match self.shared.case {
            Case::RstDuringData => {
                connection.send_data(stream, &reply[..reply.len() / 2], Shape::NORMAL)?;
                return connection.send_reset(stream, NO_ERROR);
            }
            Case::RstAfterData => {
                connection.send_data(stream, reply, Shape::NORMAL)?;
                return connection.send_reset(stream, NO_ERROR);
            }
            Case::Ping => {
                connection.send_ping()?;
                connection.send_data(stream, reply, Shape::NORMAL)?;
                connection.send_ping()?;
                // The call cannot end before, so no client leaves a PING without its acknowledgement by going away.
                if !connection.wait_for_pings()? {
                    self.shared.violation("a PING was not acknowledged".to_owned());
                    return Ok(());
                }
            }
            Case::DataFramePadding => {
                connection.send_data(stream, reply, Shape { content_bytes_max: 5, padding: Some(255) })?;
            }
            Case::NoDataFramePadding => {
                connection.send_data(stream, reply, Shape { content_bytes_max: 5, padding: None })?;
            }
            Case::GoAway | Case::MaxStreams | Case::RstAfterHeader => {
                connection.send_data(stream, reply, Shape::NORMAL)?;
            }
        }
        connection.send_trailers(stream)?;
        if self.shared.case == Case::GoAway {
            connection.send_go_away(stream, NO_ERROR)?;
            self.going = true;
        }
        Ok(())
    }
}

/// The reply with its prefix to a request with its prefix.
///
/// # Errors
/// The request is not complete, compressed, or none of the test service.
fn reply_to(request: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (prefix, message) = request
        .split_first_chunk::<PREFIX_LEN>()
        .ok_or_else(|| wrong(format!("a request of {} bytes", request.len())))?;
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 || u32::from_be_bytes(length) as usize != message.len() {
        return Err(wrong(format!("a prefix of {prefix:?} ahead of {} bytes", message.len())));
    }
    let request = SimpleRequest::decode(message).map_err(|error| wrong(error.to_string()))?;
    let bytes = usize::try_from(request.response_size).ok().filter(|bytes| *bytes <= REPLY_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| wrong(format!("a request for {} bytes", request.response_size)))?;
    let reply = SimpleResponse { payload: Some(zeros(bytes)), ..SimpleResponse::default() };
    let mut framed = vec![0];
    framed.extend_from_slice(&(reply.encoded_len() as u32).to_be_bytes());
    reply.encode_raw(&mut framed);
    Ok(framed)
}
