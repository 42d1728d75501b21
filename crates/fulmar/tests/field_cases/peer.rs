//! A raw peer: a TCP socket, frames made by hand ([`wire`](crate::wire)), and checks on what comes back.
//!
//! What one sends are byte strings, so that scripts can also say what is wrong: `peer.send(&[headers(1, END_HEADERS, &block),
//! data(1, 0, b"…")])`. What arrives is read frame by frame; nothing is answered by itself. A peer waits for [`PATIENCE`] at most.
#![allow(dead_code, reason = "a vocabulary, of which a case uses what it needs")]

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use fulmar_hpack::{DecodeLimits, Decoder, FieldList};

pub(crate) use crate::wire::*;

/// How long a peer waits for a frame before its test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A frame that has arrived. CONTINUATION frames are part of their HEADERS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
    /// HEADERS: the decoded block.
    pub(crate) fields: Vec<(String, String)>,
}

impl Frame {
    pub(crate) fn is(&self, kind: u8, stream: u32) -> bool {
        self.kind == kind && self.stream == stream
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }

    /// The 32 bits at `position` of the payload.
    pub(crate) fn u32_at(&self, position: usize) -> u32 {
        let bytes = self.payload.get(position..position + 4).expect("the payload has so many bytes");
        u32::from_be_bytes(bytes.try_into().expect("four bytes"))
    }

    /// What a stream may send more because of this frame; 0 if it is no WINDOW_UPDATE of that stream.
    pub(crate) fn credit(&self, stream: u32) -> u64 {
        if self.is(WINDOW_UPDATE, stream) { u64::from(self.u32_at(0)) } else { 0 }
    }
}

/// How many bytes of DATA of a stream are in these frames.
pub(crate) fn data_bytes(frames: &[Frame], stream: u32) -> usize {
    frames.iter().filter(|frame| frame.is(DATA, stream)).map(|frame| frame.payload.len()).sum()
}

/// What came back for a call.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The fields in front of the content; empty in a Trailers-Only answer.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.iter().find(|field| field.0 == name).map(|field| field.1.as_str())
    }
}

/// One end of a connection, driven by hand.
pub(crate) struct Peer {
    socket: TcpStream,
    /// Read and not yet taken apart.
    unread: Vec<u8>,
    /// Taken apart while something else was waited for.
    put_aside: VecDeque<Frame>,
    /// What WINDOW_UPDATE frames have given in all, by stream; 0 is the connection.
    credited: HashMap<u32, u64>,
    /// What [`send_content`](Peer::send_content) has used of it.
    spent: HashMap<u32, u64>,
    /// The connection ended with a reset (RST of TCP), which may have cost bytes that the other side had sent.
    was_reset: bool,
    decoder: Decoder,
    /// The SETTINGS that the other side began with.
    pub(crate) settings: Vec<(u16, u32)>,
    /// The id of the next stream of a client.
    pub(crate) next_stream: u32,
}

impl Peer {
    /// A client that has exchanged preface and empty SETTINGS with the server.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[])
    }

    /// The same with SETTINGS.
    pub(crate) fn connect_with(address: SocketAddr, entries: &[(u16, u32)]) -> Self {
        let mut peer = Self::open(address);
        peer.send(&[PREFACE.to_vec(), settings(entries)]);
        peer.exchange_settings();
        peer
    }

    /// A client that has said nothing.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).expect("the server accepts"))
    }

    /// One end of a connection that stands.
    pub(crate) fn new(socket: TcpStream) -> Self {
        // A Unix socket has no such option, and needs none.
        let _ = socket.set_nodelay(true);
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Self {
            socket,
            unread: Vec::new(),
            put_aside: VecDeque::new(),
            credited: HashMap::new(),
            spent: HashMap::new(),
            was_reset: false,
            decoder: Decoder::new(4_096),
            settings: Vec::new(),
            next_stream: 1,
        }
    }

    /// Takes the SETTINGS of the other side, acknowledges them, and takes the acknowledgement of ours.
    pub(crate) fn exchange_settings(&mut self) {
        let theirs = self.next();
        assert!(theirs.kind == SETTINGS && !theirs.has(ACK), "the first frame is SETTINGS: {theirs:?}");
        let entry = |bytes: &[u8]| {
            let (id, value) = bytes.split_at(2);
            let id = u16::from_be_bytes(id.try_into().expect("two bytes"));
            (id, u32::from_be_bytes(value.try_into().expect("four bytes")))
        };
        self.settings = theirs.payload.chunks(6).map(entry).collect();
        self.send(&[settings_ack()]);
        self.until(|frame| frame.kind == SETTINGS && frame.has(ACK));
    }

    /// What the other side has set, if it has.
    pub(crate) fn setting(&self, id: u16) -> Option<u32> {
        self.settings.iter().find(|setting| setting.0 == id).map(|setting| setting.1)
    }

    /// Writes byte strings in one go.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        self.try_send(frames).expect("the other side reads");
    }

    /// The same where the other side may have closed already.
    pub(crate) fn try_send(&mut self, frames: &[Vec<u8>]) -> std::io::Result<()> {
        self.socket.write_all(&frames.concat())
    }

    /// Sends content in DATA frames as the windows of stream and connection allow, waiting for credit where they do not.
    pub(crate) fn send_content(&mut self, stream: u32, mut content: &[u8], end: bool) {
        while !content.is_empty() {
            let length = self.wait_for_credit(stream, 1).min(content.len()).min(16_384);
            let (piece, rest) = content.split_at(length);
            content = rest;
            let flags = if end && rest.is_empty() { END_STREAM } else { 0 };
            self.send(&[data(stream, flags, piece)]);
            self.spend(stream, length);
        }
    }

    /// Sends content in one DATA frame with padding, as soon as the windows allow.
    pub(crate) fn send_padded(&mut self, stream: u32, content: &[u8], padding: u8) {
        let payload = [&[padding], content, &vec![0; usize::from(padding)][..]].concat();
        self.wait_for_credit(stream, payload.len());
        self.send(&[data(stream, PADDED, &payload)]);
        self.spend(stream, payload.len());
    }

    /// Waits until so many bytes may be sent, and returns how many may.
    fn wait_for_credit(&mut self, stream: u32, bytes: usize) -> usize {
        loop {
            let window = usize::try_from(self.window(stream).min(self.window(0))).unwrap_or(0);
            if window >= bytes {
                return window;
            }
            let frame = self.read_frame().expect("credit, and not the end");
            self.put_aside.push_back(frame);
        }
    }

    fn spend(&mut self, stream: u32, bytes: usize) {
        for window in [stream, 0] {
            *self.spent.entry(window).or_default() += bytes as u64;
        }
    }

    /// What may still be sent on a stream, or with 0 on the connection.
    fn window(&self, stream: u32) -> i64 {
        let initial = if stream == 0 { None } else { self.setting(INITIAL_WINDOW_SIZE) };
        let credited = self.credited(stream) as i64 - self.spent(stream) as i64;
        i64::from(initial.unwrap_or(65_535)) + credited
    }

    /// What the other side has credited so far to a stream, or with 0 to the connection.
    pub(crate) fn credited(&self, stream: u32) -> u64 {
        self.credited.get(&stream).copied().unwrap_or(0)
    }

    /// What [`send_content`](Self::send_content) has sent on a stream, or with 0 on the connection.
    pub(crate) fn spent(&self, stream: u32) -> u64 {
        self.spent.get(&stream).copied().unwrap_or(0)
    }

    /// Writes no more.
    pub(crate) fn half_close(&mut self) {
        self.socket.shutdown(Shutdown::Write).expect("still open");
    }

    /// The next frame.
    pub(crate) fn next(&mut self) -> Frame {
        self.try_next().expect("a frame, and not the end")
    }

    /// The next frame, or None when the other side has closed. A frame that does not come is a failure.
    pub(crate) fn try_next(&mut self) -> Option<Frame> {
        match self.put_aside.pop_front() {
            Some(frame) => Some(frame),
            None => self.read_frame(),
        }
    }

    fn read_frame(&mut self) -> Option<Frame> {
        let mut frame = self.take_frame()?;
        if frame.kind == WINDOW_UPDATE {
            *self.credited.entry(frame.stream).or_default() += frame.credit(frame.stream);
        }
        if frame.kind == HEADERS {
            while !frame.has(END_HEADERS) {
                let more = self.take_frame()?;
                assert!(more.is(CONTINUATION, frame.stream), "a header block goes on: {more:?}");
                frame.payload.extend(&more.payload);
                frame.flags |= more.flags & END_HEADERS;
            }
            frame.fields = self.decode(&frame.payload);
        }
        Some(frame)
    }

    /// Skips to the first frame that is looked for.
    pub(crate) fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.next();
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// The frames up to the first that is looked for, which is the last of them.
    pub(crate) fn all_until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next();
            let last = wanted(&frame);
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// Everything that the other side has to say to what it got so far, without waiting for it to say nothing: after two PINGs
    /// it has seen all and has had its turn to write. (A user of the other side that runs on a thread of its own is not in it.)
    pub(crate) fn settle(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        for payload in [*b"settle-1", *b"settle-2"] {
            self.send(&[ping(payload)]);
            frames.extend(self.all_until(|frame| frame.kind == PING && frame.payload == payload));
            frames.pop();
        }
        frames
    }

    /// So many bytes of DATA arrive on a stream, and not one more.
    pub(crate) fn expect_content(&mut self, stream: u32, bytes: usize) {
        let mut arrived = 0;
        while arrived < bytes {
            arrived += self.until(|frame| frame.is(DATA, stream)).payload.len();
        }
        arrived += data_bytes(&self.settle(), stream);
        assert_eq!(arrived, bytes, "bytes of DATA on stream {stream}");
    }

    /// Skips to a GOAWAY: the last stream, the code, the debug text.
    pub(crate) fn expect_go_away(&mut self) -> (u32, u32, String) {
        let frame = self.until(|frame| frame.kind == GOAWAY);
        let text = String::from_utf8_lossy(&frame.payload[8..]).into_owned();
        (frame.u32_at(0), frame.u32_at(4), text)
    }

    /// Skips to a GOAWAY with this code, and to the end of the connection behind it. Returns the debug text.
    pub(crate) fn expect_failure(&mut self, code: u32) -> String {
        let (_, sent, text) = self.expect_go_away();
        assert_eq!(sent, code, "{text}");
        self.expect_end();
        text
    }

    /// Skips to the RST_STREAM of a stream and returns its code.
    pub(crate) fn expect_reset(&mut self, stream: u32) -> u32 {
        self.until(|frame| frame.is(RST_STREAM, stream)).u32_at(0)
    }

    /// Skips to the end of the connection.
    pub(crate) fn expect_end(&mut self) {
        while self.try_next().is_some() {}
    }

    /// The same, and the other side has closed in order (FIN of TCP), so that nothing was lost.
    pub(crate) fn expect_orderly_end(&mut self) {
        self.expect_end();
        assert!(!self.was_reset, "the connection was reset");
    }

    /// The socket, for what frames cannot say.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Takes the id of a new stream.
    pub(crate) fn take_stream(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Makes a unary call and waits for the whole answer.
    pub(crate) fn call(&mut self, path: &str, body: &[u8]) -> Answer {
        self.call_with(&request(path), body)
    }

    /// The same with a header block of one's own.
    pub(crate) fn call_with(&mut self, block: &[u8], body: &[u8]) -> Answer {
        let stream = self.take_stream();
        self.send(&[headers(stream, END_HEADERS, block), data(stream, END_STREAM, &message(body))]);
        self.answer(stream)
    }

    /// Waits for the whole answer to a call.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        let mut answer = Answer { headers: Vec::new(), content: Vec::new(), trailers: Vec::new() };
        loop {
            let frame = self.until(|frame| frame.stream == stream && frame.kind != WINDOW_UPDATE);
            match frame.kind {
                HEADERS if frame.has(END_STREAM) => {
                    answer.trailers = frame.fields;
                    return answer;
                }
                HEADERS => answer.headers = frame.fields,
                DATA => answer.content.extend(&frame.payload),
                _ => panic!("the call was not answered: {frame:?}"),
            }
        }
    }

    /// A normal unary call on the connection still succeeds.
    pub(crate) fn assert_alive(&mut self) {
        let answer = self.call(crate::service::U, b"still there?");
        assert_eq!(answer.content, message(b"still there?"));
        assert_eq!(answer.trailer("grpc-status"), Some("0"), "{answer:?}");
    }

    fn take_frame(&mut self) -> Option<Frame> {
        if !self.fill(9) {
            return None;
        }
        let length = u32::from_be_bytes([0, self.unread[0], self.unread[1], self.unread[2]]) as usize;
        if !self.fill(9 + length) {
            return None;
        }
        let payload = self.unread[9..9 + length].to_vec();
        let id = self.unread[5..9].try_into().expect("four bytes");
        let frame = Frame {
            kind: self.unread[3],
            flags: self.unread[4],
            stream: u32::from_be_bytes(id) & !(1 << 31),
            payload,
            fields: Vec::new(),
        };
        self.unread.drain(..9 + length);
        Some(frame)
    }

    /// Reads until so many bytes are there. False when the other side has closed.
    fn fill(&mut self, length: usize) -> bool {
        let mut scratch = [0; 64 * 1024];
        while self.unread.len() < length {
            match self.socket.read(&mut scratch) {
                Ok(0) => return false,
                Ok(read) => self.unread.extend(&scratch[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.was_reset = true;
                    return false;
                }
                Err(error) => panic!("nothing came for {PATIENCE:?}: {error}"),
            }
        }
        true
    }

    fn decode(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let limits = DecodeLimits { list_bytes_max: 1 << 24, fields_max: 1 << 20, string_bytes_max: 1 << 24 };
        let mut list = FieldList::new();
        self.decoder.decode(block, &limits, &mut list).expect("a header block that can be decoded");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        list.iter().map(|field| (text(field.name), text(field.value))).collect()
    }
}

/// A server that is played by hand.
pub(crate) struct RawServer {
    listener: TcpListener,
}

impl RawServer {
    pub(crate) fn bind() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").expect("a free port") }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.listener.local_addr().expect("bound"))
    }

    /// Takes a connection and exchanges preface and SETTINGS on it.
    pub(crate) fn accept(&self, entries: &[(u16, u32)]) -> Peer {
        let mut peer = self.accept_silently();
        peer.expect_preface();
        peer.send(&[settings(entries)]);
        peer.exchange_settings();
        peer
    }

    /// Takes a connection and says nothing on it.
    pub(crate) fn accept_silently(&self) -> Peer {
        self.listener.set_nonblocking(true).expect("it takes the mode");
        let begun = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false).expect("it takes the mode");
                    return Peer::new(socket);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("no client has connected: {error}"),
            }
        }
    }
}

impl Peer {
    /// Takes the preface of a client.
    pub(crate) fn expect_preface(&mut self) {
        assert!(self.fill(PREFACE.len()), "the client has closed");
        assert_eq!(&self.unread[..PREFACE.len()], PREFACE);
        self.unread.drain(..PREFACE.len());
    }

    /// Skips to the request that opens the next stream of a client, and returns the stream.
    pub(crate) fn expect_request(&mut self) -> u32 {
        self.until(|frame| frame.kind == HEADERS).stream
    }

    /// Answers a unary call.
    pub(crate) fn reply(&mut self, stream: u32, body: &[u8]) {
        self.send(&[
            headers(stream, END_HEADERS, &response()),
            data(stream, 0, &message(body)),
            headers(stream, END_HEADERS | END_STREAM, &trailers_ok()),
        ]);
    }
}
