//! The floor: what the sockets themselves carry. One end writes as many bytes as the messages occupy, at most 256 KiB a write; the
//! other reads as much at a time; nobody looks at them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream as StdTcpStream};
use std::thread;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::{Carried, Ran, Rate, Setting};

const BUFFER_BYTES: usize = 256 * 1024;

pub(crate) fn download(setting: Setting<'_>) -> Ran<Carried> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = StdTcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    let prepare = |stream: StdTcpStream| -> Ran<TcpStream> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream))
    };
    let (server, client) = (prepare(server)?, prepare(client)?);
    // A message of less is one write.
    let piece = vec![7; setting.body_bytes.min(BUFFER_BYTES)];
    if setting.two_threads {
        let sender = thread::spawn(move || drop(drive(&mut Sender(server, piece), |sender| sender.write())));
        let rate = receive_alone(client, setting)?;
        sender.join().map_err(|_| "the sender panicked")?;
        return Ok(rate);
    }
    let mut both = (Sender(server, piece), Receiver::new(client, setting));
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    poll.registry().register(&mut both.0.0, Token(0), Interest::WRITABLE)?;
    poll.registry().register(&mut both.1.stream, Token(1), Interest::READABLE)?;
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == Token(0) {
                both.0.write()?;
            } else if !both.1.read()? {
                return Ok(both.1.rate.carried());
            }
        }
    }
}

struct Sender(TcpStream, Vec<u8>);

impl Sender {
    /// Writes until the socket is full. False once the other end is gone.
    fn write(&mut self) -> Ran<bool> {
        loop {
            match self.0.write(&self.1) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Ok(false),
            }
        }
    }
}

struct Receiver {
    stream: TcpStream,
    scratch: Vec<u8>,
    rate: Rate,
}

impl Receiver {
    fn new(stream: TcpStream, setting: Setting<'_>) -> Self {
        Self { stream, scratch: vec![0; BUFFER_BYTES], rate: Rate::new(setting.time) }
    }

    /// Reads until the socket is empty. False when the run is over.
    fn read(&mut self) -> Ran<bool> {
        loop {
            match self.stream.read(&mut self.scratch) {
                Ok(read) => {
                    if !self.rate.add(read) {
                        return Ok(false);
                    }
                    if read < BUFFER_BYTES {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn receive_alone(client: TcpStream, setting: Setting<'_>) -> Ran<Carried> {
    let mut receiver = Receiver::new(client, setting);
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    poll.registry().register(&mut receiver.stream, Token(0), Interest::READABLE)?;
    loop {
        poll.poll(&mut events, None)?;
        if !events.is_empty() && !receiver.read()? {
            return Ok(receiver.rate.carried());
        }
    }
}

fn drive(sender: &mut Sender, mut step: impl FnMut(&mut Sender) -> Ran<bool>) -> Ran<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    poll.registry().register(&mut sender.0, Token(0), Interest::WRITABLE)?;
    loop {
        poll.poll(&mut events, None)?;
        if !events.is_empty() && !step(sender)? {
            return Ok(());
        }
    }
}
