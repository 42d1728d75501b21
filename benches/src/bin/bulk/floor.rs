//! The floor: what the sockets themselves carry. One end writes as many bytes as the messages occupy, at most 256 KiB a write; the
//! other reads as much at a time; nobody looks at them.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use fulmar_benches::peers::floor::{BUFFER_BYTES, unblocked_tcp_pair};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::plan::Threads;
use crate::{Carried, Ran, Rate, Setting};

pub(crate) fn download(setting: Setting) -> Ran<Carried> {
    let (server, client) = unblocked_tcp_pair()?;
    // A message of less is one write.
    let piece = vec![7; setting.body_bytes.min(BUFFER_BYTES)];
    if setting.threads == Threads::Two {
        let mut sender = Sender(server, piece);
        let sender = thread::spawn(move || {
            drop(drive(&mut sender, |end| &mut end.0, Interest::WRITABLE, Sender::write))
        });
        let mut receiver = Receiver::new(client, setting);
        drive(&mut receiver, |end| &mut end.stream, Interest::READABLE, Receiver::read)?;
        let carried = receiver.rate.carried();
        drop(receiver);
        sender.join().map_err(|_| "the sender panicked")?;
        return Ok(carried);
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
    fn new(stream: TcpStream, setting: Setting) -> Self {
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

/// Takes a step of one end whenever its socket is ready, until a step says that it was the last.
fn drive<T>(
    end: &mut T,
    stream: fn(&mut T) -> &mut TcpStream,
    interest: Interest,
    step: fn(&mut T) -> Ran<bool>,
) -> Ran<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    poll.registry().register(stream(end), Token(0), interest)?;
    loop {
        poll.poll(&mut events, None)?;
        if !events.is_empty() && !step(end)? {
            return Ok(());
        }
    }
}
