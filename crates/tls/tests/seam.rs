//! TLS as the driver of connections sees it: two ends, or one end and something else, over memory and with given time.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fulmar_base::{Buffer, Closed, Endpoint, Env, Fault, Instant, Output, Pool, TaskId, Transport};
use fulmar_tls::{ClientTls, PeerCertificates, ServerTls, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

// ---- What is driven ----

/// Takes lines (ended by '\n', "frames"). One that echoes sends them back, and ends the connection at the line "quit".
#[derive(Default)]
struct Lines {
    echoes: bool,
    received: Vec<u8>,
    /// The lengths of what `receive` was shown.
    shown: Vec<usize>,
    waiting: Vec<u8>,
    deadline: Option<Instant>,
    transmits: usize,
    closed: Vec<Closed>,
}

enum Command {
    Say(Vec<u8>),
    SayShared(Bytes),
    /// Says so much as DATA: only while there is room.
    Pour(usize),
}

impl Endpoint for Lines {
    type Command = Command;

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        self.shown.push(bytes.len());
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.received.extend_from_slice(&bytes[..whole]);
        if self.echoes {
            env.out.extend_from_slice(&bytes[..whole]);
        }
        if self.echoes && bytes.starts_with(b"quit\n") {
            env.out.extend_from_slice(b"last words\n");
            return Err(Closed::peer("it said quit"));
        }
        Ok(whole)
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.transmits += 1;
        let fits = env.out.room().min(self.waiting.len());
        env.out.bytes_mut().extend(self.waiting.drain(..fits));
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        if self.deadline.is_some_and(|at| at <= env.now) {
            self.deadline = None;
            env.out.extend_from_slice(b"late\n");
        }
        Ok(())
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: Command) -> Result<(), Closed> {
        match command {
            Command::Say(bytes) => env.out.extend_from_slice(&bytes),
            Command::SayShared(bytes) => env.out.push_shared(bytes),
            Command::Pour(bytes) => self.waiting.resize(self.waiting.len() + bytes, b'x'),
        }
        Ok(())
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        env.out.extend_from_slice(format!("woken {}\n", task.0).as_bytes());
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        env.out.extend_from_slice(b"bye\n");
        self.closed.push(closed.clone());
    }
}

/// One end with what its driver keeps for it.
struct End {
    tls: Tls<Lines>,
    pool: Pool,
    out: Output,
    unread: Buffer,
    now: Instant,
}

impl End {
    fn new(tls: Tls<Lines>) -> Self {
        Self { tls, pool: Pool::new(), out: Output::new(), unread: Buffer::new(), now: Instant::ZERO }
    }

    fn poke<T>(&mut self, poke: impl FnOnce(&mut Tls<Lines>, &mut Env<'_>) -> T) -> T {
        poke(&mut self.tls, &mut Env::new(self.now, &mut self.pool, &mut self.out))
    }

    fn receive(&mut self, wire: &[u8]) -> Result<(), Closed> {
        self.unread.extend_from_slice(wire);
        let mut env = Env::new(self.now, &mut self.pool, &mut self.out);
        let consumed = self.tls.receive(&mut env, self.unread.as_mut_slice())?;
        self.unread.consume(consumed);
        self.transmit()
    }

    fn transmit(&mut self) -> Result<(), Closed> {
        self.poke(|tls, env| tls.transmit(env))
    }

    fn command(&mut self, command: Command) {
        self.poke(|tls, env| tls.on_command(env, command)).expect("the end goes on");
        self.transmit().expect("the end goes on");
    }

    fn say(&mut self, text: &str) {
        self.command(Command::Say(text.as_bytes().to_vec()));
    }

    fn wire(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        self.out.move_to(&mut wire);
        wire
    }

    fn close(&mut self, closed: &Closed) {
        self.poke(|tls, env| tls.on_close(env, closed));
        assert_eq!(self.pool.outstanding(), 0, "a block was not given back");
    }

    fn received(&self) -> &[u8] {
        &self.tls.endpoint().received
    }
}

// ---- Who drives it ----

/// Carries bytes both ways, so many at a time, until nothing moves. Ends with the error of either end.
fn settle(client: &mut End, server: &mut End, chunk: usize) -> Result<(), Closed> {
    client.transmit()?;
    server.transmit()?;
    loop {
        let (there, back) = (client.wire(), server.wire());
        if there.is_empty() && back.is_empty() {
            return Ok(());
        }
        there.chunks(chunk).try_for_each(|bytes| server.receive(bytes))?;
        back.chunks(chunk).try_for_each(|bytes| client.receive(bytes))?;
        client.transmit()?;
        server.transmit()?;
    }
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are fine names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("an authority signs itself") }
    }

    /// Certificate and key of `name`, as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("keys can be made");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("the name is one");
        let certificate = params.signed_by(&key, &self.issuer).expect("an authority signs");
        (certificate.pem(), key.serialize_pem())
    }

    fn server(&self, name: &str) -> ServerTls {
        let (certificate, key) = self.issue(name);
        ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).expect("the pair is one")
    }

    fn client(&self) -> ClientTls {
        ClientTls::from_ca_pem(self.issuer.pem().as_bytes()).expect("it is an authority")
    }
}

fn client_end(config: &ClientTls, host: &str) -> End {
    let name = config.name_for(host).expect("the host has a name");
    End::new(Tls::new(config.session(&name), Lines::default()))
}

fn server_end(config: &ServerTls) -> End {
    End::new(Tls::new(config.session(), Lines { echoes: true, ..Lines::default() }))
}

fn pair() -> (End, End) {
    let authority = Authority::new();
    (client_end(&authority.client(), "localhost"), server_end(&authority.server("localhost")))
}

fn open_pair() -> (End, End) {
    let (mut client, mut server) = pair();
    settle(&mut client, &mut server, usize::MAX).expect("the handshake succeeds");
    assert!(!client.tls.is_handshaking() && !server.tls.is_handshaking());
    (client, server)
}

// ---- What must hold ----

#[test]
fn an_echo_goes_through_whole_and_one_byte_at_a_time() {
    for chunk in [usize::MAX, 1000, 1] {
        let (mut client, mut server) = pair();
        client.say("hello\n");
        settle(&mut client, &mut server, chunk).expect("both ends go on");
        client.say("again\n");
        settle(&mut client, &mut server, chunk).expect("both ends go on");
        assert_eq!(server.received(), b"hello\nagain\n", "in chunks of {chunk}");
        assert_eq!(client.received(), b"hello\nagain\n", "in chunks of {chunk}");
        assert_eq!(
            (client.pool.outstanding(), server.pool.outstanding()),
            (0, 0),
            "a quiet end holds no block"
        );
    }
}

#[test]
fn nothing_of_the_endpoint_is_on_the_wire_in_plain_text() {
    let (mut client, mut server) = pair();
    client.say("a secret\n");
    settle(&mut client, &mut server, usize::MAX).expect("both ends go on");
    client.say("a secret\n");
    let wire = client.wire();
    assert!(!wire.is_empty());
    assert!(!wire.windows(8).any(|bytes| bytes == b"a secret"));
}

#[test]
fn the_records_of_one_receive_are_shown_to_the_endpoint_once() {
    let (mut client, mut server) = open_pair();
    for _ in 0..5 {
        client.say("line\n");
    }
    let wire = client.wire();
    server.receive(&wire).expect("the server goes on");
    assert_eq!(server.tls.endpoint().shown, [25]);
}

#[test]
fn what_is_written_in_one_turn_leaves_in_one_record() {
    let (mut client, mut server) = open_pair();
    let shown = server.tls.endpoint().shown.len();
    for line in 0..64 {
        let command = Command::Say(format!("line {line}\n").into_bytes());
        client.poke(|tls, env| tls.on_command(env, command)).unwrap();
        client.poke(|tls, env| tls.on_wake(env, TaskId(line))).unwrap();
    }
    assert!(client.out.is_empty(), "it waits for the end of the turn");
    client.transmit().unwrap();
    let wire = client.wire();
    let (head, body) = wire.split_at(5);
    assert_eq!(usize::from(u16::from_be_bytes([head[3], head[4]])), body.len(), "one record");
    server.receive(&wire).unwrap();
    assert_eq!(server.tls.endpoint().shown.len(), shown + 1);
    assert!(server.received().ends_with(b"line 63\nwoken 63\n"));
}

#[test]
fn plaintext_the_endpoint_did_not_consume_is_shown_again_before_the_next() {
    let (mut client, mut server) = open_pair();
    for text in ["one\ntw", "o\nthr", "ee\n"] {
        client.say(text);
        let wire = client.wire();
        server.receive(&wire).expect("the server goes on");
    }
    assert_eq!(server.received(), b"one\ntwo\nthree\n");
    assert_eq!(server.tls.endpoint().shown, [6, 7, 6]);
}

#[test]
fn the_endpoint_is_first_asked_to_transmit_after_the_handshake() {
    let (mut client, mut server) = pair();
    client.transmit().expect("the client starts");
    let hello = client.wire();
    assert!(!hello.is_empty());
    server.receive(&hello).expect("the server answers");
    assert_eq!((client.tls.endpoint().transmits, server.tls.endpoint().transmits), (0, 0));
    let flight = server.wire();
    client.receive(&flight).expect("the client goes on");
    assert_eq!(client.tls.endpoint().transmits, 1);
}

#[test]
fn large_bytes_arrive_in_order_between_small_ones() {
    let (mut client, mut server) = open_pair();
    let body = Bytes::from((0..300_000u32).map(|n| b'a' + (n % 26) as u8).collect::<Vec<_>>());
    client.say("head ");
    client.command(Command::SayShared(body.clone()));
    client.say(" tail\n");
    settle(&mut client, &mut server, 10_000).expect("both ends go on");
    assert_eq!(server.received(), [b"head ", &body[..], b" tail\n"].concat());
}

#[test]
fn a_peer_that_does_not_read_is_felt_by_the_endpoint() {
    let (mut client, _server) = open_pair();
    client.command(Command::Pour(10_000_000));
    for _ in 0..50 {
        client.transmit().expect("the client goes on");
    }
    let left = client.tls.endpoint().waiting.len();
    // What has left: the wire's room, as much behind it in plain text, and the records' heads and tags.
    assert!(client.out.len() < Output::SOFT_LIMIT + 70_000, "{} bytes on the wire", client.out.len());
    assert!(left > 10_000_000 - 2 * Output::SOFT_LIMIT - 70_000, "{left} bytes left");
    client.out.clear();
    client.transmit().expect("the client goes on");
    assert!(client.tls.endpoint().waiting.len() < left, "it goes on once the wire has room");
}

#[test]
fn wakes_and_deadlines_reach_the_endpoint() {
    let (mut client, mut server) = open_pair();
    client.poke(|tls, env| tls.on_wake(env, TaskId(7))).expect("the client goes on");
    let at = Instant::ZERO + Duration::from_secs(3);
    client.tls.endpoint_mut().deadline = Some(at);
    assert_eq!(client.tls.next_deadline(), Some(at));
    client.now = at;
    client.poke(|tls, env| tls.on_deadline(env)).expect("the client goes on");
    settle(&mut client, &mut server, usize::MAX).expect("both ends go on");
    assert_eq!(server.received(), b"woken 7\nlate\n");
    assert_eq!(client.tls.next_deadline(), None, "the handshake's deadline is gone");
}

#[test]
fn a_handshake_not_completed_within_ten_seconds_ends_the_connection() {
    let (client, server) = pair();
    for mut end in [client, server] {
        end.now = Instant::from_nanos(5_000_000_000);
        end.transmit().expect("the end starts");
        let until = end.now + Duration::from_secs(10);
        assert_eq!(end.tls.next_deadline(), Some(until));
        end.now = Instant::from_nanos(until.as_nanos() - 1);
        end.poke(|tls, env| tls.on_deadline(env)).expect("there is a nanosecond left");
        end.now = until;
        let closed = end.poke(|tls, env| tls.on_deadline(env)).expect_err("the time is up");
        assert_eq!(closed, Closed::peer("TLS: the handshake was not completed within 10s"));
        end.close(&closed);
    }
}

#[test]
fn an_endpoint_that_ends_is_flushed_and_the_peer_told() {
    let (mut client, mut server) = open_pair();
    client.say("quit\n");
    let wire = client.wire();
    let closed = server.receive(&wire).expect_err("it quits");
    assert_eq!(closed, Closed::peer("it said quit"));
    server.close(&closed);
    let wire = server.wire();
    let closed = client.receive(&wire).expect_err("the peer is gone");
    assert_eq!(closed, Closed::peer("TLS: the peer closed the connection (close_notify)"));
    assert_eq!(client.received(), b"quit\nlast words\n", "what came before the end was delivered");
    client.close(&closed);
    assert_eq!(client.tls.endpoint().closed, [closed]);
    assert_eq!(client.receive(&wire), Ok(()), "a closed end ignores what comes");
}

#[test]
fn what_an_endpoint_says_when_closed_from_outside_goes_out_with_close_notify() {
    let (mut client, mut server) = open_pair();
    client.close(&Closed::caller("shutdown"));
    let wire = client.wire();
    let closed = server.receive(&wire).expect_err("the peer is gone");
    assert_eq!(server.received(), b"bye\n");
    server.close(&closed);
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused_and_both_ends_know_why() {
    let mut client = client_end(&Authority::named("known").client(), "localhost");
    let mut server = server_end(&Authority::named("unknown").server("localhost"));
    let closed = settle(&mut client, &mut server, usize::MAX).expect_err("the client refuses");
    assert_eq!(closed.fault, Fault::Peer);
    assert!(closed.text.contains("not signed by an authority this client trusts"), "{closed}");
    client.close(&closed);
    let alert = client.wire();
    let closed = server.receive(&alert).expect_err("the server is told");
    assert!(closed.text.contains("UnknownCA"), "{closed}");
    server.close(&closed);
    assert!(server.received().is_empty());
}

#[test]
fn a_certificate_of_another_name_is_refused_unless_that_name_is_asked_for() {
    let authority = Authority::new();
    let mut client = client_end(&authority.client(), "localhost");
    let mut server = server_end(&authority.server("other.example"));
    let closed = settle(&mut client, &mut server, usize::MAX).expect_err("the client refuses");
    assert!(closed.text.contains("not valid for name \"localhost\""), "{closed}");

    let asking = authority.client().server_name("other.example").expect("it is a name");
    let (mut client, mut server) =
        (client_end(&asking, "127.0.0.1"), server_end(&authority.server("other.example")));
    settle(&mut client, &mut server, usize::MAX).expect("the handshake succeeds");
    assert!(!client.tls.is_handshaking());
}

#[test]
fn addresses_are_names_too() {
    let authority = Authority::new();
    for (host, certified) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
        let (mut client, mut server) =
            (client_end(&authority.client(), host), server_end(&authority.server(certified)));
        settle(&mut client, &mut server, usize::MAX).expect("the handshake succeeds");
        assert!(!client.tls.is_handshaking());
    }
}

#[test]
fn the_public_authorities_do_not_vouch_for_ours() {
    let mut client = client_end(&ClientTls::new().expect("the defaults serve"), "localhost");
    let mut server = server_end(&Authority::new().server("localhost"));
    let closed = settle(&mut client, &mut server, usize::MAX).expect_err("the client refuses");
    assert!(closed.text.contains("not signed by an authority"), "{closed}");
}

#[test]
fn garbage_ends_either_end_and_is_called_so() {
    for garbage in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xFF; 2000]] {
        let (client, server) = pair();
        for mut end in [client, server] {
            end.transmit().expect("the end starts");
            let closed = end.receive(garbage).expect_err("garbage");
            assert_eq!(closed.fault, Fault::Peer);
            assert!(closed.text.contains("not TLS"), "{closed}");
            end.close(&closed);
            assert!(end.tls.endpoint().shown.is_empty());
        }
    }
}

#[test]
fn a_changed_byte_ends_the_connection_and_is_never_delivered() {
    let (mut client, mut server) = open_pair();
    client.say("hello\n");
    let mut wire = client.wire();
    let last = wire.len() - 1;
    wire[last] ^= 1;
    let closed = server.receive(&wire).expect_err("the record is forged");
    assert_eq!(closed.fault, Fault::Peer);
    assert!(server.received().is_empty());
    server.close(&closed);
}

#[test]
fn an_end_of_file_within_the_handshake_is_called_so() {
    let (mut client, mut server) = pair();
    client.transmit().expect("the client starts");
    let hello = client.wire();
    server.receive(&hello[..hello.len() / 2]).expect("half a message is no error");
    server.close(&Closed::peer("end of file"));
    assert_eq!(server.tls.endpoint().closed, [Closed::peer("TLS: during the handshake: end of file")]);
    client.close(&Closed::peer("end of file"));
    assert_eq!(client.tls.endpoint().closed, [Closed::peer("TLS: during the handshake: end of file")]);
}

#[test]
fn a_peer_that_does_not_agree_on_http2_is_refused() {
    let authority = Authority::new();
    for (alpn, versions) in [(None, TLS13), (None, TLS12), (Some("http/1.1"), TLS13)] {
        let mut server = server_end(&authority.server("localhost"));
        let mut peer: rustls::Connection = raw_client(&authority, alpn, versions).into();
        let closed = settle_raw(&mut server, &mut peer).expect_err("the server refuses");
        assert!(closed.text.contains("HTTP/2"), "{closed}");
        server.close(&closed);
        assert!(server.tls.endpoint().shown.is_empty());
        let wire = server.wire();
        peer.read_tls(&mut &wire[..]).expect("a slice gives it");
        match peer.process_new_packets() {
            Ok(state) => {
                assert!(alpn.is_none() && state.peer_has_closed(), "it is told that nothing follows")
            }
            Err(error) => assert!(alpn.is_some(), "{error}"),
        }
    }
    for alpn in [None, Some("http/1.1")] {
        let mut client = client_end(&authority.client(), "localhost");
        let mut peer: rustls::Connection = raw_server(&authority, alpn).into();
        let closed = settle_raw(&mut client, &mut peer).expect_err("the client refuses");
        assert!(closed.text.contains("HTTP/2"), "{closed}");
        client.close(&closed);
    }
}

#[test]
fn a_peer_of_tls_1_2_is_served() {
    let authority = Authority::new();
    let mut server = server_end(&authority.server("localhost"));
    let mut peer: rustls::Connection = raw_client(&authority, Some("h2"), TLS12).into();
    settle_raw(&mut server, &mut peer).expect("the handshake succeeds");
    peer.writer().write_all(b"hello\n").expect("it fits");
    settle_raw(&mut server, &mut peer).expect("both go on");
    let mut echo = [0; 6];
    peer.reader().read_exact(&mut echo).expect("the echo is there");
    assert_eq!(&echo, b"hello\n");
}

#[test]
fn configurations_that_cannot_be_say_why() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("localhost");
    let (other, _) = authority.issue("localhost");
    let text = |certificate: &str, key: &str| {
        ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).expect_err("it cannot be").to_string()
    };
    assert!(text("", &key).contains("no certificate"));
    assert!(text(&certificate, "nothing").contains("no private key"));
    assert!(text(&certificate, &certificate).contains("no private key"));
    assert!(text(&other, &key).contains("certificate and key do not serve"));
    assert!(
        text("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &key).contains("cannot be read")
    );
    assert!(ClientTls::from_ca_pem(b"").expect_err("empty").to_string().contains("no certificate"));
    let no_name = authority.client().name_for("not a name").expect_err("no name");
    assert!(no_name.to_string().contains("\"not a name\" is neither"), "{no_name}");
    assert!(authority.client().server_name("").is_err());
}

// ---- Peers that are not ours ----

type Versions = &'static [&'static rustls::SupportedProtocolVersion];
const TLS12: Versions = &[&rustls::version::TLS12];
const TLS13: Versions = &[&rustls::version::TLS13];

fn alpn_protocols(alpn: Option<&str>) -> Vec<Vec<u8>> {
    alpn.into_iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn raw_client(authority: &Authority, alpn: Option<&str>, versions: Versions) -> rustls::ClientConnection {
    let config = raw_client_config(authority, alpn, versions);
    let name = "localhost".try_into().expect("it is a name");
    rustls::ClientConnection::new(Arc::new(config), name).expect("the configuration serves")
}

fn raw_client_config(authority: &Authority, alpn: Option<&str>, versions: Versions) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).expect("it is an authority");
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("the provider has the version")
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = alpn_protocols(alpn);
    config
}

fn raw_server(authority: &Authority, alpn: Option<&str>) -> rustls::ServerConnection {
    let config = raw_server_config(authority, alpn);
    rustls::ServerConnection::new(Arc::new(config)).expect("the configuration serves")
}

fn raw_server_config(authority: &Authority, alpn: Option<&str>) -> rustls::ServerConfig {
    let key = KeyPair::generate().expect("keys can be made");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("the name is one");
    let certificate = params.signed_by(&key, &authority.issuer).expect("an authority signs");
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("the pair is one");
    config.alpn_protocols = alpn_protocols(alpn);
    config
}

/// Carries bytes between our end and a peer of plain rustls until nothing moves. The peer's own errors are its own business.
fn settle_raw(end: &mut End, peer: &mut rustls::Connection) -> Result<(), Closed> {
    end.transmit()?;
    loop {
        let (mut there, mut back) = (end.wire(), Vec::new());
        while peer.wants_write() {
            peer.write_tls(&mut back).expect("writing to a Vec cannot fail");
        }
        if there.is_empty() && back.is_empty() {
            return Ok(());
        }
        let mut wire = there.as_slice();
        while !wire.is_empty() && peer.read_tls(&mut wire).is_ok_and(|n| n > 0) {
            if peer.process_new_packets().is_err() {
                break;
            }
        }
        there.clear();
        if !back.is_empty() {
            end.receive(&back)?;
        }
    }
}

// ---- Handshakes that stop, come in pieces, or come all at once (field case R54) ----

/// What either end of a whole handshake, and an echo behind it, put on the wire: the client's bytes and the server's, by turns.
fn recorded_turns(client: &mut End, server: &mut End) -> Vec<(Vec<u8>, Vec<u8>)> {
    client.say("hello\n");
    let mut turns = Vec::new();
    loop {
        let there = client.wire();
        if !there.is_empty() {
            server.receive(&there).expect("the server goes on");
        }
        let back = server.wire();
        if !back.is_empty() {
            client.receive(&back).expect("the client goes on");
        }
        if there.is_empty() && back.is_empty() {
            return turns;
        }
        turns.push((there, back));
    }
}

#[test]
fn field_case_r54_an_end_of_file_at_every_byte_of_a_handshake_ends_either_end_once() {
    let authority = Authority::new();
    let (client_config, server_config) = (authority.client(), authority.server("localhost"));
    let turns = recorded_turns(&mut client_end(&client_config, "localhost"), &mut server_end(&server_config));
    let (to_server, to_client) = (turns[0].0.len(), turns[0].1.len());
    assert!(to_server > 100 && to_client > 500, "a hello and a flight: {to_server}, {to_client}");
    // Every handshake has other keys, and the same shape.
    for bytes in 0..to_server {
        let (mut client, mut server) = (client_end(&client_config, "localhost"), server_end(&server_config));
        client.transmit().expect("the client starts");
        let hello = client.wire();
        server.receive(&hello[..bytes.min(hello.len() - 1)]).expect("half a hello is no error");
        assert!(server.wire().is_empty(), "there is nothing to answer yet");
        close_waiting(&mut server);
    }
    for bytes in 0..to_client {
        let (mut client, mut server) = (client_end(&client_config, "localhost"), server_end(&server_config));
        client.transmit().expect("the client starts");
        let hello = client.wire();
        server.receive(&hello).expect("the server answers");
        let flight = server.wire();
        client.receive(&flight[..bytes.min(flight.len() - 1)]).expect("half a flight is no error");
        close_waiting(&mut client);
        close_waiting(&mut server);
    }
}

/// The wire of an end whose handshake is not complete ends.
fn close_waiting(end: &mut End) {
    assert!(end.tls.is_handshaking());
    assert!(!end.tls.has_work(true), "an end that waits for its peer has nothing to do");
    end.close(&Closed::peer("end of file"));
    assert_eq!(end.tls.endpoint().closed.len(), 1);
    assert!(end.tls.endpoint().shown.is_empty());
}

#[test]
fn field_case_r54_what_comes_with_the_end_of_the_handshake_is_answered_without_further_input() {
    let (mut client, mut server) = pair();
    client.transmit().expect("the client starts");
    let hello = client.wire();
    server.receive(&hello).expect("the server answers");
    let flight = server.wire();
    client.receive(&flight).expect("the client goes on");
    client.say("one\ntwo\n");
    client.say("three\n");
    // The client's Finished and two records of application data, in one piece.
    server.receive(&client.wire()).expect("the server goes on");
    assert_eq!(server.received(), b"one\ntwo\nthree\n");
    client.receive(&server.wire()).expect("the client goes on");
    assert_eq!(client.received(), b"one\ntwo\nthree\n", "and it was answered");
}

/// Both ends must bear that the other one cuts its handshake messages, also those after the handshake, into records of so many bytes.
fn with_fragments(bytes: usize, authority: &Authority) -> (ClientTls, ServerTls) {
    let mut client = raw_client_config(authority, Some("h2"), TLS13);
    let mut server = raw_server_config(authority, Some("h2"));
    client.max_fragment_size = Some(bytes);
    server.max_fragment_size = Some(bytes);
    (
        ClientTls::from_rustls(client).expect("the configuration serves"),
        ServerTls::from_rustls(server).expect("the configuration serves"),
    )
}

#[test]
fn handshake_messages_in_pieces_are_put_together_while_either_end_writes() {
    let authority = Authority::new();
    // The smallest records that rustls makes.
    let (client_config, server_config) = with_fragments(32, &authority);
    for chunk in [1, 7, 40, usize::MAX] {
        let (mut client, mut server) = (client_end(&client_config, "localhost"), server_end(&server_config));
        client.transmit().expect("the client starts");
        let mut said = 0;
        loop {
            let (there, back) = (client.wire(), server.wire());
            if there.is_empty() && back.is_empty() && said > 20 {
                break;
            }
            for bytes in there.chunks(chunk) {
                server.receive(bytes).expect("the server goes on");
            }
            // The server's tickets come here, each in several records, and the client writes between them.
            for bytes in back.chunks(chunk) {
                client.receive(bytes).expect("the client goes on");
                if said <= 20 && !client.tls.is_handshaking() {
                    client.say("line\n");
                    said += 1;
                }
            }
            if said <= 20 && !client.tls.is_handshaking() {
                client.say("line\n");
                said += 1;
            }
        }
        assert_eq!(client.received().len(), 5 * said, "in chunks of {chunk}");
        client.close(&Closed::caller("done"));
        let closed = server.receive(&client.wire()).expect_err("the peer is gone");
        server.close(&closed);
    }
}

#[test]
fn a_message_behind_the_handshake_that_is_never_completed_ends_the_connection_in_time() {
    let authority = Authority::new();
    let (client_config, server_config) = with_fragments(32, &authority);
    let (mut client, mut server) = (client_end(&client_config, "localhost"), server_end(&server_config));
    client.transmit().expect("the client starts");
    while server.tls.is_handshaking() {
        let there = client.wire();
        server.receive(&there).expect("the server goes on");
        if server.tls.is_handshaking() {
            let back = server.wire();
            client.receive(&back).expect("the client goes on");
        }
    }
    // The server's tickets, in several records each: the first record alone.
    let tickets = server.wire();
    let record = 5 + usize::from(u16::from_be_bytes([tickets[3], tickets[4]]));
    assert!(tickets.len() > 2 * record, "there are more");
    client.receive(&tickets[..record]).expect("a part is no error");
    client.say("waits\n");
    assert!(client.wire().is_empty(), "nothing can be sealed");
    assert!(!client.tls.has_work(true), "and nothing can be done about it");
    let by = Instant::ZERO + Duration::from_secs(10);
    assert_eq!(client.tls.next_deadline(), Some(by));
    client.now = by;
    let closed = client.poke(|tls, env| tls.on_deadline(env)).expect_err("the time is up");
    assert!(closed.text.contains("a handshake message was not completed"), "{closed}");
    client.close(&closed);
}

#[test]
fn an_end_that_is_closed_within_a_handshake_message_closes_quietly() {
    let authority = Authority::new();
    let (client_config, server_config) = with_fragments(32, &authority);
    let mut client = client_end(&client_config, "localhost");
    client.transmit().expect("the client starts");
    let hello = client.wire();
    for bytes in 1..hello.len() {
        let mut server = server_end(&server_config);
        server.receive(&hello[..bytes]).expect("half a hello is no error");
        server.close(&Closed::local("shutdown"));
    }
    for garbage in 1..hello.len() {
        let mut server = server_end(&server_config);
        server.receive(&hello[..garbage]).expect("half a hello is no error");
        let closed = (0..2).find_map(|_| server.receive(&[0xEE; 20_000]).err()).expect("garbage");
        server.close(&closed);
    }
}

// ---- Sessions, certificates ----

#[test]
fn a_second_connection_resumes_the_session_of_the_first() {
    let authority = Authority::new();
    let (client_config, server_config) = (authority.client(), authority.server("localhost"));
    for resumed in [false, true, true] {
        let (mut client, mut server) = (client_end(&client_config, "localhost"), server_end(&server_config));
        client.say("hello\n");
        settle(&mut client, &mut server, usize::MAX).expect("both ends go on");
        assert_eq!((client.tls.is_resumed(), server.tls.is_resumed()), (resumed, resumed));
        assert_eq!(client.received(), b"hello\n");
    }
    let mut stranger = client_end(&authority.client(), "localhost");
    let mut server = server_end(&server_config);
    settle(&mut stranger, &mut server, usize::MAX).expect("both ends go on");
    assert!(!server.tls.is_resumed(), "another client has no tickets");
}

#[test]
fn a_certificate_that_is_reloaded_is_shown_to_connections_that_come_later() {
    let (old, new) = (Authority::named("old"), Authority::named("new"));
    let server_config = old.server("localhost");
    let (mut client, mut server) = (client_end(&old.client(), "localhost"), server_end(&server_config));
    settle(&mut client, &mut server, usize::MAX).expect("the old one is shown");

    let (certificate, key) = new.issue("localhost");
    let reloading = server_config.clone();
    std::thread::spawn(move || reloading.reload(certificate, key).expect("the pair is one"))
        .join()
        .expect("from any thread");
    let (mut second, mut second_server) =
        (client_end(&new.client(), "localhost"), server_end(&server_config));
    settle(&mut second, &mut second_server, usize::MAX).expect("the new one is shown");
    client.say("still here\n");
    settle(&mut client, &mut server, usize::MAX).expect("the connection that was open goes on");
    assert_eq!(client.received(), b"still here\n");

    let (certificate, _) = new.issue("localhost");
    let (_, key) = new.issue("localhost");
    server_config.reload(certificate, key).expect_err("they are no pair");
    let (mut third, mut third_server) = (client_end(&new.client(), "localhost"), server_end(&server_config));
    settle(&mut third, &mut third_server, usize::MAX).expect("what served goes on serving");
    let of_rustls = ServerTls::from_rustls(raw_server_config(&new, Some("h2"))).expect("it serves");
    let (certificate, key) = new.issue("localhost");
    assert!(
        of_rustls.reload(certificate, key).expect_err("its own business").to_string().contains("resolver")
    );
}

#[test]
fn a_client_shows_its_certificate_to_a_server_that_requires_one() {
    let authority = Authority::new();
    let (certificate_pem, key) = authority.issue("a client");
    let identified = authority.client().identity_pem(&certificate_pem, &key).expect("the pair is one");
    let server_config = authority.server("localhost");
    let requiring =
        server_config.clone().require_client_certificates(authority.issuer.pem()).expect("an authority");
    let requesting = server_config.request_client_certificates(authority.issuer.pem()).expect("an authority");
    assert!(requiring.asks_for_certificates() && requesting.asks_for_certificates());

    for (server_config, client_config, shown) in
        [(&requiring, &identified, 1), (&requesting, &identified, 1), (&requesting, &authority.client(), 0)]
    {
        // The second connection resumes the first, and knows the same of its peer.
        for _ in 0..2 {
            let certificates = PeerCertificates::default();
            let session = server_config.session().tell_certificates(certificates.clone());
            let mut server = End::new(Tls::new(session, Lines { echoes: true, ..Lines::default() }));
            let mut client = client_end(client_config, "localhost");
            client.say("hello\n");
            settle(&mut client, &mut server, usize::MAX).expect("both ends go on");
            assert_eq!(client.received(), b"hello\n");
            assert_eq!(certificates.chain().len(), shown);
            for certificate in certificates.chain() {
                assert_eq!(certificate.as_der(), der(&certificate_pem));
            }
        }
    }

    let mut server = server_end(&requiring);
    let mut client = client_end(&authority.client(), "localhost");
    let closed = settle(&mut client, &mut server, usize::MAX).expect_err("the server refuses");
    assert!(closed.text.contains("the client showed no certificate"), "{closed}");
    server.close(&closed);
    let closed = client.receive(&server.wire()).expect_err("the client is told");
    assert!(closed.text.contains("ClientTls::identity_pem"), "{closed}");
    client.close(&closed);

    let stranger = Authority::named("stranger");
    let (certificate, key) = stranger.issue("a client");
    let strange = authority.client().identity_pem(certificate, key).expect("the pair is one");
    let (mut client, mut server) = (client_end(&strange, "localhost"), server_end(&requiring));
    let closed = settle(&mut client, &mut server, usize::MAX).expect_err("the server refuses");
    assert!(closed.text.contains("not signed by an authority this server asks for"), "{closed}");
}

#[test]
fn a_client_certificate_that_is_reloaded_is_the_one_servers_see_from_then_on() {
    let authority = Authority::new();
    let server = authority
        .server("localhost")
        .require_client_certificates(authority.issuer.pem())
        .expect("an authority");
    for versions in [TLS13, TLS12] {
        let (old, old_key) = authority.issue("old");
        let (new, new_key) = authority.issue("new");
        let raw = raw_client_config(&authority, Some("h2"), versions);
        let client = ClientTls::from_rustls(raw)
            .and_then(|client| client.identity_pem(&old, &old_key))
            .expect("the pair is one");
        let sharing = client.clone();
        assert_eq!(shown_by(&client, &server), (der(&old), false));
        assert_eq!(shown_by(&sharing, &server), (der(&old), true), "clones share their sessions");

        sharing.reload_identity(&new, &old_key).expect_err("they are no pair");
        assert_eq!(shown_by(&client, &server), (der(&old), true), "what served goes on serving");

        let reloading = client.clone();
        let reloaded = new.clone();
        std::thread::spawn(move || reloading.reload_identity(reloaded, new_key).expect("the pair is one"))
            .join()
            .expect("from any thread");
        // A session that was resumed would have the server take the client for whom it was.
        assert_eq!(shown_by(&client, &server), (der(&new), false));
        assert_eq!(shown_by(&sharing, &server), (der(&new), true), "and is resumed from then on");
    }
    let (certificate, key) = authority.issue("a client");
    let nobody = authority.client().reload_identity(certificate, key).expect_err("it shows nothing");
    assert!(nobody.to_string().contains("identity_pem"), "{nobody}");
}

#[test]
fn a_client_certificate_that_is_reloaded_leaves_configurations_made_before_it_was_given() {
    let authority = Authority::new();
    let server = authority
        .server("localhost")
        .require_client_certificates(authority.issuer.pem())
        .expect("an authority");
    let issued: Vec<_> = (0..3).map(|_| authority.issue("a client")).collect();
    let identified = |base: ClientTls, (certificate, key): &(String, String)| {
        base.identity_pem(certificate, key).expect("the pair is one")
    };
    let first = identified(authority.client(), &issued[0]);
    let second = identified(first.clone(), &issued[1]);
    second.reload_identity(&issued[2].0, &issued[2].1).expect("the pair is one");
    assert_eq!(shown_by(&first, &server).0, der(&issued[0].0));
    assert_eq!(shown_by(&second, &server).0, der(&issued[2].0));
}

/// The certificate that `server` sees of `client` in a connection, and whether the server has resumed a session.
fn shown_by(client: &ClientTls, server: &ServerTls) -> (Vec<u8>, bool) {
    let certificates = PeerCertificates::default();
    let session = server.session().tell_certificates(certificates.clone());
    let mut server = End::new(Tls::new(session, Lines { echoes: true, ..Lines::default() }));
    let mut client = client_end(client, "localhost");
    client.say("hello\n");
    settle(&mut client, &mut server, usize::MAX).expect("both ends go on");
    assert_eq!(client.received(), b"hello\n");
    let [certificate] = certificates.chain() else { panic!("the chain is one certificate") };
    (certificate.as_der().to_vec(), server.tls.is_resumed())
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is a certificate").to_vec()
}

#[test]
fn protocols_are_assumed_where_that_is_allowed_and_never_where_another_one_is_agreed() {
    let authority = Authority::new();
    let mut server = server_end(&authority.server("localhost").assume_http2());
    let mut peer: rustls::Connection = raw_client(&authority, None, TLS13).into();
    settle_raw(&mut server, &mut peer).expect("HTTP/2 is assumed");
    let mut server = server_end(&authority.server("localhost").assume_http2());
    let mut peer: rustls::Connection = raw_client(&authority, Some("http/1.1"), TLS13).into();
    settle_raw(&mut server, &mut peer).expect_err("it says that it speaks something else");
    let mut client = client_end(&authority.client().assume_http2(), "localhost");
    let mut peer: rustls::Connection = raw_server(&authority, None).into();
    settle_raw(&mut client, &mut peer).expect("HTTP/2 is assumed");
    assert!(!client.tls.is_handshaking());

    let other = raw_server_config(&authority, Some("http/1.1"));
    assert!(ServerTls::from_rustls(other).expect_err("no h2").to_string().contains("\"h2\""));
    let other = raw_client_config(&authority, Some("http/1.1"), TLS13);
    assert!(ClientTls::from_rustls(other).expect_err("no h2").to_string().contains("\"h2\""));
    let mut early = raw_server_config(&authority, Some("h2"));
    early.max_early_data_size = 1000;
    assert!(ServerTls::from_rustls(early).expect_err("early data").to_string().contains("early data"));
}

#[test]
fn no_cipher_suite_that_http2_blocks_is_offered() {
    // RFC 9113 appendix A blocks whatever has no ephemeral key exchange, or is no AEAD.
    let provider = rustls::crypto::ring::default_provider();
    let of_tls12: Vec<_> = provider
        .cipher_suites
        .iter()
        .filter(|suite| suite.version().version == rustls::ProtocolVersion::TLSv1_2)
        .map(|suite| format!("{:?}", suite.suite()))
        .collect();
    assert!(!of_tls12.is_empty());
    for suite in of_tls12 {
        let is_ephemeral = suite.starts_with("TLS_ECDHE_");
        let is_aead =
            ["_GCM_SHA256", "_GCM_SHA384", "_POLY1305_SHA256"].iter().any(|end| suite.ends_with(end));
        assert!(is_ephemeral && is_aead, "{suite}");
    }
}
