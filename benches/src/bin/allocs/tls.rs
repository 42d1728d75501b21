//! Calls over TLS. `rustls` makes a `Vec` for each record that it seals and for each that it opens, which nobody can take from it; we
//! add none. A small message, with its head or its trailers, is one record.

use fulmar::tls::rustls::client::UnbufferedClientConnection;
use fulmar::tls::rustls::server::UnbufferedServerConnection;
use fulmar::tls::rustls::unbuffered::ConnectionState;
use fulmar_benches::proto::bench_client::blocking::BenchClient as BlockingClient;
use fulmar_benches::secured;

use crate::calls::{TICK, ticks};
use crate::servers::{blocking_secured, one_thread_secured};
use crate::streams::pairs;
use crate::{Counted, Line, Plan, line};

/// What `rustls` allocates for a record that is sealed at one end and opened at the other.
const OF_A_RECORD: u64 = 2;

/// Now and then a record more carries WINDOW_UPDATE or PING frames: one for each half megabyte that was taken. One call in a thousand
/// is over this.
const OTHER_RECORDS_MAX: u64 = 99;

const fn secured(what: &'static str, records: u64, count: fn(&Plan) -> Counted) -> Line {
    Line { strays_max: OTHER_RECORDS_MAX, ..line(what, records * OF_A_RECORD, count) }
}

pub(crate) const LINES: &[Line] = &[
    line("rustls alone, a record sealed and opened", OF_A_RECORD, rustls_alone),
    secured("unary call over TLS, one thread (2 records)", 2, |plan| {
        one_thread_secured(async |channel| ticks(plan, channel).await)
    }),
    secured("unary call over TLS, blocking client (2 records)", 2, |plan| {
        blocking_secured(|channel| {
            let mut client = BlockingClient::new(channel);
            plan.count(|| {
                client.tick(TICK)?;
                Ok(())
            })
        })
    }),
    secured("streamed message pair over TLS, one thread (2 records)", 2, |plan| {
        one_thread_secured(async |channel| pairs(plan, channel).await)
    }),
];

/// Lets a connection take what it was sent, say what it has to say, and seal a message.
macro_rules! step {
    ($connection:expr, $wire:expr, $out:expr, $message:expr) => {{
        let message: Option<&[u8]> = $message;
        let mut consumed = 0;
        loop {
            let status = $connection.process_tls_records(&mut $wire[consumed..]);
            consumed += status.discard;
            match status.state? {
                ConnectionState::ReadTraffic(mut traffic) => while traffic.next_record().is_some() {},
                ConnectionState::EncodeTlsData(mut data) => {
                    let start = $out.len();
                    $out.resize(start + RECORD_BYTES_MAX, 0);
                    let written = data.encode(&mut $out[start..])?;
                    $out.truncate(start + written);
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    if let Some(message) = message {
                        let start = $out.len();
                        $out.resize(start + message.len() + 100, 0);
                        let written = traffic.encrypt(message, &mut $out[start..])?;
                        $out.truncate(start + written);
                    }
                    break;
                }
                _ => break,
            }
        }
        $wire.drain(..consumed);
        Ok::<(), Box<dyn std::error::Error>>(())
    }};
}

/// The longest record with its head (RFC 8446 §5.2).
const RECORD_BYTES_MAX: usize = 5 + (1 << 14) + 256;

/// Two ends of `rustls` as we use them, with nothing of ours around.
fn rustls_alone(plan: &Plan) -> Counted {
    let (client, server) = secured::rustls();
    let mut client = UnbufferedClientConnection::new(client, "localhost".try_into()?)?;
    let mut server = UnbufferedServerConnection::new(server)?;
    let (mut there, mut back) = (Vec::new(), Vec::new());
    loop {
        step!(client, back, there, None)?;
        step!(server, there, back, None)?;
        if there.is_empty() && back.is_empty() {
            break;
        }
    }
    there.resize(1024, 0);
    plan.count(|| {
        there.clear();
        step!(client, back, there, Some(&[7; 100]))?;
        step!(server, there, back, None)
    })
}
