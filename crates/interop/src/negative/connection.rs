//! One connection of a negative server: frames in, frames out, and the windows that bound what goes out.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::frame::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEAD_LEN, HEADERS, PADDED, PAYLOAD_BYTES_MAX, PING,
    PREFACE, RST_STREAM, SETTINGS, SETTINGS_INITIAL_WINDOW_SIZE, SETTINGS_MAX_CONCURRENT_STREAMS,
    WINDOW_UPDATE, block, put, put_settings,
};

/// How long a client may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest window there is (RFC 9113 §6.9.1): what clients may send here, so that nothing needs to be credited.
const WINDOW_MAX: u32 = 0x7fff_ffff;

/// The window at the start (RFC 9113 §6.9.2).
const WINDOW_INITIAL: u32 = 65_535;

/// How much is gathered before it is written.
const WRITE_BYTES: usize = 256 * 1024;

/// A frame in which a part of a reply is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The longest content, in bytes.
    pub(super) content_bytes_max: usize,
    /// Bytes of padding; None for a frame that is not padded.
    pub(super) padding: Option<u8>,
}

impl Shape {
    /// Frames as large as a peer takes.
    pub(super) const NORMAL: Self = Self { content_bytes_max: PAYLOAD_BYTES_MAX, padding: None };
}

/// A server's end of a connection.
pub(super) struct Connection {
    socket: TcpStream,
    unread: Vec<u8>,
    /// Read while credit was waited for.
    put_aside: VecDeque<Frame>,
    out: Vec<u8>,
    /// What may be sent: the connection's window, and the windows of its streams.
    window: i64,
    stream_windows: HashMap<u32, i64>,
    stream_window_initial: i64,
    /// SETTINGS and PINGs of ours that were not acknowledged yet.
    pub(super) settings_unacknowledged: usize,
    pub(super) pings_unacknowledged: usize,
}

impl Connection {
    /// Takes the preface and sends SETTINGS.
    ///
    /// # Errors
    /// The socket fails, or the client does not speak HTTP/2.
    pub(super) fn accept(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self {
            socket,
            unread: Vec::new(),
            put_aside: VecDeque::new(),
            out: Vec::new(),
            window: WINDOW_INITIAL.into(),
            stream_windows: HashMap::new(),
            stream_window_initial: WINDOW_INITIAL.into(),
            settings_unacknowledged: 0,
            pings_unacknowledged: 0,
        };
        if !connection.fill(PREFACE.len())? || !connection.unread.starts_with(PREFACE) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the client does not begin with the preface"));
        }
        connection.unread.drain(..PREFACE.len());
        connection.send_settings(&[(SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_MAX)])?;
        put(&mut connection.out, WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW_INITIAL).to_be_bytes());
        connection.flush()?;
        Ok(connection)
    }

    /// The next frame that is about a call; None when the client has closed the connection. What belongs to the connection is taken
    /// care of: SETTINGS and PINGs are acknowledged, windows are counted.
    ///
    /// # Errors
    /// The socket fails, or the client says nothing for too long.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame>> {
        match self.put_aside.pop_front() {
            Some(frame) => Ok(Some(frame)),
            None => self.next_unread(),
        }
    }

    fn next_unread(&mut self) -> io::Result<Option<Frame>> {
        while let Some(frame) = self.read()? {
            match frame.kind {
                HEADERS | DATA | RST_STREAM => return Ok(Some(frame)),
                GOAWAY => return Ok(None),
                _ => self.take_care(&frame)?,
            }
        }
        Ok(None)
    }

    fn take_care(&mut self, frame: &Frame) -> io::Result<()> {
        match frame.kind {
            SETTINGS if frame.has(ACK) => {
                self.settings_unacknowledged = self.settings_unacknowledged.saturating_sub(1)
            }
            SETTINGS => {
                if let Some(window) = frame.setting(SETTINGS_INITIAL_WINDOW_SIZE) {
                    let change = i64::from(window) - self.stream_window_initial;
                    self.stream_window_initial += change;
                    self.stream_windows.values_mut().for_each(|window| *window += change);
                }
                put(&mut self.out, SETTINGS, ACK, 0, &[]);
                self.flush()?;
            }
            PING if frame.has(ACK) => self.pings_unacknowledged = self.pings_unacknowledged.saturating_sub(1),
            PING => {
                put(&mut self.out, PING, ACK, 0, &frame.payload);
                self.flush()?;
            }
            WINDOW_UPDATE if frame.stream == 0 => self.window += i64::from(frame.number()),
            WINDOW_UPDATE => *self.stream_window(frame.stream) += i64::from(frame.number()),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn send_settings(&mut self, entries: &[(u16, u32)]) -> io::Result<()> {
        put_settings(&mut self.out, entries);
        self.settings_unacknowledged += 1;
        self.flush()
    }

    /// Allows so many streams at a time.
    pub(super) fn limit_streams(&mut self, streams: u32) -> io::Result<()> {
        self.send_settings(&[(SETTINGS_MAX_CONCURRENT_STREAMS, streams)])
    }

    pub(super) fn send_ping(&mut self) -> io::Result<()> {
        put(&mut self.out, PING, 0, 0, b"negative");
        self.pings_unacknowledged += 1;
        self.flush()
    }

    /// Waits until each PING was acknowledged; false when the client closes first.
    pub(super) fn wait_for_pings(&mut self) -> io::Result<bool> {
        while self.pings_unacknowledged > 0 {
            match self.read()? {
                Some(frame) if matches!(frame.kind, HEADERS | DATA | RST_STREAM) => {
                    self.put_aside.push_back(frame)
                }
                Some(frame) => self.take_care(&frame)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    pub(super) fn send_reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.stream_windows.remove(&stream);
        put(&mut self.out, RST_STREAM, 0, stream, &code.to_be_bytes());
        self.flush()
    }

    pub(super) fn send_go_away(&mut self, last_stream: u32, code: u32) -> io::Result<()> {
        put(&mut self.out, GOAWAY, 0, 0, &[last_stream.to_be_bytes(), code.to_be_bytes()].concat());
        self.flush()
    }

    /// What stands ahead of a reply.
    pub(super) fn send_headers(&mut self, stream: u32) -> io::Result<()> {
        let fields = block(&[(":status", "200"), ("content-type", "application/grpc")]);
        put(&mut self.out, HEADERS, END_HEADERS, stream, &fields);
        self.flush()
    }

    /// What ends a reply.
    pub(super) fn send_trailers(&mut self, stream: u32) -> io::Result<()> {
        self.stream_windows.remove(&stream);
        put(&mut self.out, HEADERS, END_HEADERS | END_STREAM, stream, &block(&[("grpc-status", "0")]));
        self.flush()
    }

    /// A part of a reply, as the windows allow.
    pub(super) fn send_data(&mut self, stream: u32, content: &[u8], shape: Shape) -> io::Result<()> {
        for piece in content.chunks(shape.content_bytes_max) {
            let (flags, payload) = match shape.padding {
                None => (0, piece.to_vec()),
                Some(padding) => (PADDED, [&[padding], piece, &vec![0; padding.into()][..]].concat()),
            };
            let bytes = payload.len() as i64;
            self.wait_for_credit(stream, bytes)?;
            self.window -= bytes;
            *self.stream_window(stream) -= bytes;
            put(&mut self.out, DATA, flags, stream, &payload);
            if self.out.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        self.flush()
    }

    fn wait_for_credit(&mut self, stream: u32, bytes: i64) -> io::Result<()> {
        while self.window.min(*self.stream_window(stream)) < bytes {
            self.flush()?;
            match self.read()? {
                Some(frame) if frame.kind == RST_STREAM && frame.stream == stream => {
                    return Err(io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the client has reset the stream",
                    ));
                }
                Some(frame) if matches!(frame.kind, HEADERS | DATA | RST_STREAM) => {
                    self.put_aside.push_back(frame)
                }
                Some(frame) => self.take_care(&frame)?,
                None => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the client closed during a reply"));
                }
            }
        }
        Ok(())
    }

    fn stream_window(&mut self, stream: u32) -> &mut i64 {
        self.stream_windows.entry(stream).or_insert(self.stream_window_initial)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<Frame>> {
        if !self.fill(HEAD_LEN)? {
            return Ok(None);
        }
        let [a, b, c, kind, flags, stream @ ..] =
            *self.unread.first_chunk::<HEAD_LEN>().expect("filled up to it");
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > PAYLOAD_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("the client sent a frame of {length} bytes"),
            ));
        }
        if !self.fill(HEAD_LEN + length)? {
            return Ok(None);
        }
        let payload = self.unread.drain(..HEAD_LEN + length).skip(HEAD_LEN).collect();
        Ok(Some(Frame { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload }))
    }

    /// Reads until so many bytes are there; false when the client has closed.
    fn fill(&mut self, length: usize) -> io::Result<bool> {
        let mut scratch = [0; 16 * 1024];
        while self.unread.len() < length {
            match self.socket.read(&mut scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => self.unread.extend_from_slice(&scratch[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
