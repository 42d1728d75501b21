//! Records of TLS in and out, by the interface of `rustls` that keeps no buffers of its own (docs/decisions/0017).

use fulmar_base::Output;
use rustls::Error;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

/// The longest plaintext of a record (RFC 8446 §5.1).
const PLAINTEXT_BYTES_MAX: usize = 1 << 14;

/// How much longer than its plaintext a record is at most, in the cipher suites of TLS 1.2 and 1.3 that there are: a head of 5 bytes,
/// a nonce of 8, a type of 1 and a tag of 16.
const RECORD_OVERHEAD_MAX: usize = 30;

/// How much plaintext is sealed by one call: four records.
const SEALED_BYTES_MAX: usize = 4 * PLAINTEXT_BYTES_MAX;

/// The head of a record: its type, a version, its length (RFC 8446 §5.1).
const HEAD_BYTES: usize = 5;

/// Types of records (RFC 8446 §5.1).
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// How long the two bytes of an alert are as a record of TLS 1.3, with their type and a tag. No handshake message is that short.
const SEALED_ALERT_BYTES: u8 = 2 + 1 + 16;

/// A connection of `rustls`, of either side.
pub(crate) trait Records {
    type Data;

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

/// What opening records told, besides their plaintext.
#[derive(Default)]
pub(crate) struct Opened {
    /// How many bytes of the wire are done with.
    pub(crate) consumed: usize,
    /// The peer said `close_notify`: nothing follows (RFC 8446 §6.1).
    pub(crate) peer_has_closed: bool,
}

/// Records that could not be opened.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// How many bytes of the wire were done with before.
    pub(crate) consumed: usize,
}

/// Opens all records of `wire` that are complete.
pub(crate) fn open<R: Records>(
    connection: &mut R,
    wire: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Output,
) -> Result<Opened, Failure> {
    let mut opened = Opened::default();
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process(&mut wire[opened.consumed..]);
        let mut is_done = false;
        let stepped = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                let mut stepped = Ok(());
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            plain.extend_from_slice(record.payload);
                            discard += record.discard;
                        }
                        Err(error) => stepped = Err(error),
                    }
                }
                stepped
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                append(out, 0, |buffer| data.encode(buffer).map_err(Unwritten::from))
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(())
            }
            Ok(ConnectionState::PeerClosed) => {
                opened.peer_has_closed = true;
                Ok(())
            }
            Ok(
                ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | ConnectionState::Closed,
            ) => {
                is_done = true;
                Ok(())
            }
            Ok(ConnectionState::ReadEarlyData(_)) => {
                Err(Error::General("early data, which nobody has allowed".to_owned()))
            }
            Ok(other) => Err(Error::General(format!("a state that is not known: {other:?}"))),
            Err(error) => Err(error),
        };
        opened.consumed += discard;
        if let Err(error) = stepped {
            say_alert(connection, &mut wire[opened.consumed..], out);
            return Err(Failure { error, consumed: opened.consumed });
        }
        if is_done {
            return Ok(opened);
        }
    }
}

/// Seals the front of `plain`, one piece of it. It must not be empty, and the handshake must be complete.
pub(crate) fn seal<R: Records>(
    connection: &mut R,
    plain: &mut Output,
    wire: &mut Output,
) -> Result<(), Error> {
    let piece = plain.first();
    let piece = &piece[..piece.len().min(SEALED_BYTES_MAX)];
    let sealed = piece.len();
    write(connection, wire, |mut traffic, wire| {
        let records = sealed.div_ceil(PLAINTEXT_BYTES_MAX);
        append(wire, sealed + records * RECORD_OVERHEAD_MAX, |buffer| {
            traffic.encrypt(piece, buffer).map_err(Unwritten::from)
        })
    })?;
    plain.advance(sealed);
    Ok(())
}

/// Says `close_notify`, where the handshake has come far enough.
pub(crate) fn close<R: Records>(connection: &mut R, wire: &mut Output) {
    // What cannot be said any more is not missed: the connection ends anyway.
    let _ = write(connection, wire, |mut traffic, wire| {
        append(wire, 0, |buffer| traffic.queue_close_notify(buffer).map_err(Unwritten::from))
    });
}

/// Whether the wire begins with a record that is all there.
pub(crate) fn begin_with_whole_one(wire: &[u8]) -> bool {
    wire.first_chunk::<HEAD_BYTES>()
        .is_some_and(|head| wire.len() - HEAD_BYTES >= usize::from(u16::from_be_bytes([head[3], head[4]])))
}

/// Whether a record has an alert in it, or what has the length of one where it is encrypted.
fn is_alert(record: &[u8]) -> bool {
    match record {
        [ALERT, ..] => true,
        [APPLICATION_DATA, _, _, 0, length, ..] => *length == SEALED_ALERT_BYTES,
        _ => false,
    }
}

/// Lets `write` write application data, once what the session itself has to say is said.
fn write<R: Records>(
    connection: &mut R,
    wire: &mut Output,
    write: impl FnOnce(WriteTraffic<'_, R::Data>, &mut Output) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        match connection.process(&mut []).state? {
            ConnectionState::WriteTraffic(traffic) => return write(traffic, wire),
            ConnectionState::EncodeTlsData(mut data) => {
                append(wire, 0, |buffer| data.encode(buffer).map_err(Unwritten::from))?;
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            // It is told once, and whoever opened the records was told.
            ConnectionState::PeerClosed => {}
            _ => return Err(Error::HandshakeNotComplete),
        }
    }
}

/// Moves what a session says about its failure to the wire: an alert, and what it had to say before that. Once the alert is said the
/// session is not asked for more, for it would look at the same records again, and must not fail twice.
fn say_alert<R: Records>(connection: &mut R, wire: &mut [u8], out: &mut Output) {
    while let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process(wire).state {
        let start = out.bytes_mut().len();
        let said = append(out, 0, |buffer| data.encode(buffer).map_err(Unwritten::from));
        if said.is_err() || out.bytes_mut().get(start..).is_none_or(is_alert) {
            return;
        }
    }
}

/// Why nothing was written into a buffer.
enum Unwritten {
    /// It must be at least so long.
    TooShort(usize),
    Failed(Error),
}

impl From<EncodeError> for Unwritten {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Self::TooShort(required_size)
            }
            EncodeError::AlreadyEncoded => Self::Failed(Error::General("encoded twice".to_owned())),
        }
    }
}

impl From<EncryptError> for Unwritten {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Self::TooShort(required_size)
            }
            EncryptError::EncryptExhausted => Self::Failed(Error::EncryptError),
        }
    }
}

/// Appends to `out` what `fill` writes, of which `guess` says how long it may be.
fn append(
    out: &mut Output,
    guess: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, Unwritten>,
) -> Result<(), Error> {
    let bytes = out.bytes_mut();
    let start = bytes.len();
    let mut room = guess;
    loop {
        bytes.resize(start + room, 0);
        match fill(&mut bytes[start..]) {
            Ok(written) => {
                bytes.truncate(start + written);
                return Ok(());
            }
            Err(Unwritten::TooShort(required)) if required > room => room = required,
            Err(Unwritten::TooShort(_)) => {
                bytes.truncate(start);
                return Err(Error::General("a buffer that is long enough is too short".to_owned()));
            }
            Err(Unwritten::Failed(error)) => {
                bytes.truncate(start);
                return Err(error);
            }
        }
    }
}
