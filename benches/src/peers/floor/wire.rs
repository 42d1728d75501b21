//! The two sides of one connection: TCP, a Unix socket, or TLS 1.3 over TCP by `rustls` alone, its handshake done.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream as StdTcpStream};
use std::thread;

use fulmar::tls::rustls::{ClientConnection, Connection, ServerConnection};
use mio::net::TcpStream;

use crate::cell::Transport;
use crate::secured;

/// One side, whose socket blocks.
pub(super) struct Side {
    stream: StdTcpStream,
    tls: Option<Connection>,
}

/// The server's side and the client's.
pub(super) fn pair(transport: Transport) -> io::Result<(Side, Side)> {
    let (server, client) = match transport {
        #[cfg(unix)]
        Transport::Uds => unix_pair()?,
        _ => tcp_pair()?,
    };
    let (mut server, mut client) = (Side { stream: server, tls: None }, Side { stream: client, tls: None });
    if transport == Transport::Tls {
        let (of_clients, of_servers) = secured::rustls();
        let name = "localhost".try_into().expect("it is a name");
        client.tls = Some(ClientConnection::new(of_clients, name).map_err(io::Error::other)?.into());
        server.tls = Some(ServerConnection::new(of_servers).map_err(io::Error::other)?.into());
        thread::scope(|scope| {
            let serving = scope.spawn(|| server.shake_hands());
            client.shake_hands()?;
            serving.join().expect("a handshake does not panic")
        })?;
    }
    Ok((server, client))
}

/// Two sockets of TCP that are connected over loopback and do not block.
///
/// # Errors
/// The system gives no sockets.
pub fn unblocked_tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let (server, client) = tcp_pair()?;
    server.set_nonblocking(true)?;
    client.set_nonblocking(true)?;
    Ok((TcpStream::from_std(server), TcpStream::from_std(client)))
}

fn tcp_pair() -> io::Result<(StdTcpStream, StdTcpStream)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = StdTcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    Ok((server, client))
}

/// A Unix socket is used as one of TCP is.
#[cfg(unix)]
fn unix_pair() -> io::Result<(StdTcpStream, StdTcpStream)> {
    let (server, client) = std::os::unix::net::UnixStream::pair()?;
    let plain = |stream| StdTcpStream::from(std::os::fd::OwnedFd::from(stream));
    Ok((plain(server), plain(client)))
}

impl Side {
    fn shake_hands(&mut self) -> io::Result<()> {
        let tls = self.tls.as_mut().expect("only sides with TLS are asked to");
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut self.stream)?;
        }
        Ok(())
    }

    /// The same side, which blocks no more.
    pub(super) fn unblocked(self) -> io::Result<Wire> {
        self.stream.set_nonblocking(true)?;
        Ok(Wire { stream: TcpStream::from_std(self.stream), tls: self.tls })
    }

    /// Writes all of it, and waits until it can.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(bytes);
        };
        while !bytes.is_empty() {
            bytes = &bytes[tls.writer().write(bytes)?..];
            while tls.wants_write() {
                tls.write_tls(&mut self.stream)?;
            }
        }
        Ok(())
    }

    /// Fills `bytes`, and waits for them.
    pub(super) fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read_exact(bytes);
        };
        let mut filled = 0;
        while filled < bytes.len() {
            match tls.reader().read(&mut bytes[filled..]) {
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if tls.read_tls(&mut self.stream)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    tls.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// One side, whose socket does not block.
pub(super) struct Wire {
    /// For those who register it.
    pub(super) stream: TcpStream,
    tls: Option<Connection>,
}

impl Wire {
    /// How many of these bytes were taken, written as far as the socket takes them.
    ///
    /// # Errors
    /// `WouldBlock` when none were: [`flush`](Self::flush) comes first, once there is room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write(bytes);
        };
        if tls.wants_write() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = tls.writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// Writes records that the socket has not taken before.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is there by way of `scratch` and tells how many bytes of the other side's that were.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        let mut received = 0;
        loop {
            match self.stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    received += match &mut self.tls {
                        None => read,
                        Some(tls) => open(tls, &scratch[..read])?,
                    };
                    if read < scratch.len() {
                        return Ok(received); // a short read: there is no more
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens records, throws away what is in them, and tells how much that was.
fn open(tls: &mut Connection, mut wire: &[u8]) -> io::Result<usize> {
    let mut opened = 0;
    while !wire.is_empty() {
        tls.read_tls(&mut wire)?;
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        let mut left = state.plaintext_bytes_to_read();
        opened += left;
        while left > 0 {
            let mut sink = [0; 4096];
            left -= tls.reader().read(&mut sink)?;
        }
    }
    Ok(opened)
}
