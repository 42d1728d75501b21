//! The two interfaces of rustls against each other: handshakes a second, records of 16 KiB and of 100 bytes a second, and resident
//! bytes a connection. `cargo bench -p fulmar-tls [--features aws-lc-rs]`; docs/decisions says what came of it.

use std::io::{BufRead, Write};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fulmar_tls::rustls::client::UnbufferedClientConnection;
use fulmar_tls::rustls::crypto::CryptoProvider;
use fulmar_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use fulmar_tls::rustls::server::UnbufferedServerConnection;
use fulmar_tls::rustls::unbuffered::ConnectionState;
use fulmar_tls::rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

const MEASURED: Duration = Duration::from_millis(700);
const CONNECTIONS: usize = 2_000;
/// Where the time of the processor cannot be had.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
const RECORD_BYTES: usize = 16_384;

fn main() {
    let setup = Setup::new();
    let (client, server) = setup.configs(false);
    if std::env::args().any(|argument| argument == "--buffered") {
        return println!(
            "{}",
            resident(|| {
                let (mut client, mut server) = Buffered::pair(&client, &server);
                exchange_buffered(&mut client, &mut server);
                (client, server)
            })
        );
    }
    if std::env::args().any(|argument| argument == "--unbuffered") {
        return println!(
            "{}",
            resident(|| {
                let (mut client, mut server) = Unbuffered::pair(&client, &server);
                exchange_unbuffered(&mut client, &mut server);
                (client, server)
            })
        );
    }
    println!("{:<22} {:>14} {:>14}", "", "buffered", "unbuffered");
    for (what, resumes) in [("handshakes/s", false), ("resumed/s", true)] {
        let (client, server) = setup.configs(resumes);
        row(
            what,
            per_second(|| drop(Buffered::pair(&client, &server))),
            per_second(|| {
                drop(Unbuffered::pair(&client, &server));
            }),
        );
    }
    for bytes in [RECORD_BYTES, 100] {
        let plain = vec![7; bytes];
        let (mut old_client, mut old_server) = Buffered::pair(&client, &server);
        let (mut new_client, mut new_server) = Unbuffered::pair(&client, &server);
        let (mut wire, mut opened) = (Vec::new(), Vec::new());
        // Sealing alone, then both: records have numbers, and cannot be opened twice.
        let old = per_second(|| {
            wire.clear();
            old_client.seal(&plain, &mut wire);
            opened.clear();
            old_server.open(&wire, &mut opened);
        });
        let new = per_second(|| {
            wire.clear();
            new_client.seal(&plain, &mut wire);
            opened.clear();
            new_server.open(&mut wire, &mut opened);
        });
        row(&format!("{bytes} B both ways/s"), old, new);
        let old = per_second(|| {
            wire.clear();
            old_client.seal(&plain, &mut wire);
        });
        let new = per_second(|| {
            wire.clear();
            new_client.seal(&plain, &mut wire);
        });
        row(&format!("{bytes} B sealed/s"), old, new);
    }
    // Each in a process of its own, which has given nothing back that could be taken again.
    let own = std::env::current_exe().expect("there is a program");
    let bytes = |which: &str| -> f64 {
        let output = std::process::Command::new(&own).arg(which).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0.0)
    };
    row("bytes a pair of ends", bytes("--buffered"), bytes("--unbuffered"));
}

fn row(what: &str, buffered: f64, unbuffered: f64) {
    println!("{what:<22} {buffered:>14.0} {unbuffered:>14.0}");
}

fn per_second(mut work: impl FnMut()) -> f64 {
    work();
    let (began, mut times) = (processor_time(), 0_u32);
    while processor_time() - began < MEASURED {
        // Asking for the time costs more than a record.
        for _ in 0..50 {
            work();
        }
        times += 50;
    }
    f64::from(times) / (processor_time() - began).as_secs_f64()
}

/// How long this program was on a processor, which does not count what others did meanwhile.
fn processor_time() -> Duration {
    let of_linux = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = of_linux.and_then(|text| text.split(' ').next().and_then(|first| first.parse().ok()));
    nanoseconds.map_or_else(|| STARTED.elapsed(), Duration::from_nanos)
}

/// Resident bytes for each of many things that live at once. 0 where the system does not tell.
fn resident<T>(make: impl Fn() -> T) -> f64 {
    let now = || -> f64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0.0) * 1024.0
    };
    let before = now();
    let things: Vec<T> = (0..CONNECTIONS).map(|_| make()).collect();
    (now() - before) / things.len() as f64
}

/// Certificates, and who trusts them.
struct Setup {
    provider: Arc<CryptoProvider>,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Setup {
    fn new() -> Self {
        #[cfg(feature = "aws-lc-rs")]
        let provider = fulmar_tls::rustls::crypto::aws_lc_rs::default_provider();
        #[cfg(not(feature = "aws-lc-rs"))]
        let provider = fulmar_tls::rustls::crypto::ring::default_provider();
        let own =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate is made");
        Self {
            provider: Arc::new(provider),
            certificate: own.cert.der().clone(),
            key: own.signing_key.serialize_der(),
        }
    }

    fn configs(&self, resumes: bool) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("it is a certificate");
        let mut client = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = PrivateKeyDer::try_from(self.key.clone()).expect("it is a key");
        let mut server = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .expect("the pair is one");
        if !resumes {
            client.resumption = fulmar_tls::rustls::client::Resumption::disabled();
            server.send_tls13_tickets = 0;
        }
        (Arc::new(client), Arc::new(server))
    }
}

fn name() -> ServerName<'static> {
    "localhost".try_into().expect("it is a name")
}

/// An end with buffers in it.
struct Buffered(Connection);

impl Buffered {
    fn pair(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> (Self, Self) {
        let client = ClientConnection::new(client.clone(), name()).expect("it serves");
        let server = ServerConnection::new(server.clone()).expect("it serves");
        let (mut client, mut server) = (Self(client.into()), Self(server.into()));
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        loop {
            client.flush(&mut wire);
            let is_still = wire.is_empty();
            server.open(&wire, &mut plain);
            wire.clear();
            server.flush(&mut wire);
            if wire.is_empty() && is_still {
                return (client, server);
            }
            client.open(&wire, &mut plain);
            wire.clear();
        }
    }

    fn flush(&mut self, wire: &mut Vec<u8>) {
        while self.0.wants_write() {
            self.0.write_tls(wire).expect("a Vec takes it");
        }
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        self.0.writer().write_all(plain).expect("it is taken");
        self.flush(wire);
    }

    fn open(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) {
        while !wire.is_empty() {
            self.0.read_tls(&mut wire).expect("a slice gives it");
            let mut left = self.0.process_new_packets().expect("it is TLS").plaintext_bytes_to_read();
            let mut reader = self.0.reader();
            while left > 0 {
                let chunk = reader.fill_buf().expect("there is plaintext");
                plain.extend_from_slice(chunk);
                let taken = chunk.len();
                left -= taken;
                reader.consume(taken);
            }
        }
    }
}

fn exchange_buffered(client: &mut Buffered, server: &mut Buffered) {
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    client.seal(&[1; 300], &mut wire);
    server.open(&wire, &mut plain);
    wire.clear();
    server.seal(&[2; 300], &mut wire);
    client.open(&wire, &mut plain);
}

/// An end without buffers.
struct Unbuffered<C>(C);

trait Process {
    fn process(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>, sealed: &[u8]) -> usize;
}

macro_rules! process {
    ($connection:ty) => {
        impl Process for $connection {
            fn process(
                &mut self,
                wire: &mut [u8],
                plain: &mut Vec<u8>,
                out: &mut Vec<u8>,
                sealed: &[u8],
            ) -> usize {
                let mut consumed = 0;
                loop {
                    let status = self.process_tls_records(&mut wire[consumed..]);
                    consumed += status.discard;
                    match status.state.expect("it is TLS") {
                        ConnectionState::ReadTraffic(mut traffic) => {
                            while let Some(record) = traffic.next_record() {
                                plain.extend_from_slice(record.expect("it is opened").payload);
                            }
                        }
                        ConnectionState::EncodeTlsData(mut data) => {
                            let start = out.len();
                            out.resize(start + 20_000, 0);
                            let written = data.encode(&mut out[start..]).expect("it fits");
                            out.truncate(start + written);
                        }
                        ConnectionState::TransmitTlsData(data) => data.done(),
                        ConnectionState::WriteTraffic(mut traffic) => {
                            if !sealed.is_empty() {
                                let start = out.len();
                                out.resize(start + sealed.len() + 30, 0);
                                let written = traffic.encrypt(sealed, &mut out[start..]).expect("it fits");
                                out.truncate(start + written);
                            }
                            return consumed;
                        }
                        _ => return consumed,
                    }
                }
            }
        }
    };
}

process!(UnbufferedClientConnection);
process!(UnbufferedServerConnection);

type UnbufferedPair =
    (Unbuffered<Box<UnbufferedClientConnection>>, Unbuffered<Box<UnbufferedServerConnection>>);

impl Unbuffered<()> {
    fn pair(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> UnbufferedPair {
        let client = UnbufferedClientConnection::new(client.clone(), name()).expect("it serves");
        let server = UnbufferedServerConnection::new(server.clone()).expect("it serves");
        let (mut client, mut server) = (Unbuffered(Box::new(client)), Unbuffered(Box::new(server)));
        let (mut there, mut back, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let consumed = client.0.process(&mut back, &mut plain, &mut there, &[]);
            back.drain(..consumed);
            let is_still = there.is_empty();
            let consumed = server.0.process(&mut there, &mut plain, &mut back, &[]);
            there.drain(..consumed);
            if back.is_empty() && is_still {
                return (client, server);
            }
        }
    }
}

impl<C: Process> Unbuffered<Box<C>> {
    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        self.0.process(&mut [], &mut Vec::new(), wire, plain);
    }

    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>) {
        self.0.process(wire, plain, &mut Vec::new(), &[]);
    }
}

fn exchange_unbuffered(
    client: &mut Unbuffered<Box<UnbufferedClientConnection>>,
    server: &mut Unbuffered<Box<UnbufferedServerConnection>>,
) {
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    client.seal(&[1; 300], &mut wire);
    server.open(&mut wire, &mut plain);
    wire.clear();
    server.seal(&[2; 300], &mut wire);
    client.open(&mut wire, &mut plain);
}
