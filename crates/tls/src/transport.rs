use std::fmt;
use std::time::Duration;

use fulmar_base::{Block, Closed, Endpoint, Env, Instant, Output, TaskId, Transport};

use crate::config::{ALPN_HTTP2, TlsClientConfig, TlsConfigError, TlsServerConfig};
use crate::session::Session;

/// An endpoint on the wire behind TLS.
///
/// The endpoint sees plaintext only. The plaintext of all records of one [`receive`](Transport::receive) is given to it in one piece,
/// and what it leaves in its output is encrypted into the output of the wire as far as that has [room](Output::room): a peer that
/// does not read is felt by the endpoint just as without TLS.
///
/// Commands and wakes reach the endpoint during the handshake already; what it writes waits. Its `transmit` is first called when
/// the handshake is complete, so that its own deadlines do not count the handshake's time.
pub struct Tls<E> {
    endpoint: E,
    session: Session,
    phase: Phase,
    handshake_timeout: Duration,
    /// Plaintext that the endpoint has not consumed yet: at most one frame between two calls.
    plain_in: Block,
    /// What the endpoint has written and is not encrypted yet.
    plain_out: Output,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Phase {
    /// Nothing has happened. Time starts with the first call, for a transport may be made before its connection.
    New,
    Handshake {
        until: Instant,
    },
    Open,
    Closed,
}

impl<E: Endpoint> Tls<E> {
    /// The client's end of a connection to `host`, a DNS name or an IP address: the name the server's certificate must bear, unless
    /// the configuration names another.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn client(config: &TlsClientConfig, host: &str, endpoint: E) -> Result<Self, TlsConfigError> {
        Ok(Self::new(Session::client(config, host)?, config.handshake_timeout, endpoint))
    }

    /// The server's end of a connection.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn server(config: &TlsServerConfig, endpoint: E) -> Result<Self, TlsConfigError> {
        Ok(Self::new(Session::server(config)?, config.handshake_timeout, endpoint))
    }

    /// The endpoint behind TLS.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint behind TLS, to be changed.
    pub fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// Whether the handshake is still to be completed.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Handshake { .. })
    }

    fn new(session: Session, handshake_timeout: Duration, endpoint: E) -> Self {
        Self {
            endpoint,
            session,
            phase: Phase::New,
            handshake_timeout,
            plain_in: Block::default(),
            plain_out: Output::new(),
        }
    }

    /// Starts the handshake with the first call there is.
    fn start(&mut self, env: &mut Env<'_>) {
        if self.phase == Phase::New {
            self.phase = Phase::Handshake { until: env.now + self.handshake_timeout };
            self.session.flush(env.out);
        }
    }

    /// Goes on to the open phase, once the handshake is complete and the peer has agreed to speak HTTP/2.
    fn check_handshake(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        if !self.is_handshaking() || self.session.is_handshaking() {
            return Ok(());
        }
        if self.session.alpn_protocol() != Some(ALPN_HTTP2) {
            self.close(env);
            return Err(Closed::peer(
                "TLS: the peer did not agree to speak HTTP/2: it must use ALPN with \"h2\" (RFC 9113 §3.2)",
            ));
        }
        self.phase = Phase::Open;
        Ok(())
    }

    /// Lends the endpoint a place for its plaintext, lets it do one thing, and seals what it wrote. If the endpoint ends the connection,
    /// all it wrote goes to the wire, and `close_notify` behind it.
    fn poke<T>(
        &mut self,
        env: &mut Env<'_>,
        poke: impl FnOnce(&mut E, &mut Env<'_>) -> Result<T, Closed>,
    ) -> Result<T, Closed> {
        if self.plain_out.capacity() == 0 && self.plain_out.is_empty() {
            self.plain_out = env.pool.take_output();
        }
        let result = poke(&mut self.endpoint, &mut env.with_out(&mut self.plain_out));
        match result {
            Ok(value) => {
                self.seal(env)?;
                Ok(value)
            }
            Err(closed) => {
                self.close(env);
                Err(closed)
            }
        }
    }

    /// Encrypts what the endpoint wrote, while the wire has room.
    fn seal(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        while self.phase == Phase::Open && !self.plain_out.is_empty() && env.out.room() > 0 {
            self.session.seal(&mut self.plain_out, env.out)?;
        }
        if self.plain_out.is_empty() {
            env.pool.give_output(std::mem::take(&mut self.plain_out));
        }
        Ok(())
    }

    /// Sends everything there is to send, whatever room there is: nothing follows.
    fn close(&mut self, env: &mut Env<'_>) {
        if self.phase == Phase::Open {
            while !self.plain_out.is_empty() && self.session.seal(&mut self.plain_out, env.out).is_ok() {}
        }
        if self.phase != Phase::Closed {
            self.session.close(env.out);
        }
        self.phase = Phase::Closed;
        env.pool.give(std::mem::take(&mut self.plain_in));
        env.pool.give_output(std::mem::take(&mut self.plain_out));
    }

    /// Shows the endpoint all plaintext there is, once, and keeps what it does not consume.
    fn deliver(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        let mut plain = std::mem::take(&mut self.plain_in);
        let result = if plain.is_empty() {
            Ok(0)
        } else {
            self.poke(env, |endpoint, env| endpoint.receive(env, &plain))
        };
        match result {
            Ok(consumed) if consumed < plain.len() => {
                plain.consume(consumed);
                self.plain_in = plain;
                Ok(())
            }
            result => {
                env.pool.give(plain);
                result.map(|_| ())
            }
        }
    }
}

impl<E: Endpoint> Transport for Tls<E> {
    type Command = E::Command;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        self.start(env);
        if self.phase == Phase::Closed {
            return Ok(wire.len());
        }
        env.pool.reserve(&mut self.plain_in, wire.len());
        let opened = self.session.open(wire, self.plain_in.tail_mut());
        self.session.flush(env.out);
        let opened = opened.inspect_err(|_| self.close(env))?;
        self.check_handshake(env)?;
        self.deliver(env)?;
        self.seal(env)?;
        if opened.peer_has_closed {
            self.close(env);
            return Err(Closed::peer("TLS: the peer closed the connection (close_notify)"));
        }
        Ok(wire.len())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.start(env);
        if self.phase != Phase::Open {
            return Ok(());
        }
        self.seal(env)?;
        self.poke(env, E::transmit)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let handshake = match self.phase {
            Phase::Handshake { until } => Some(until),
            _ => None,
        };
        handshake.into_iter().chain(self.endpoint.next_deadline()).min()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.start(env);
        if let Phase::Handshake { until } = self.phase
            && until <= env.now
        {
            self.close(env);
            let timeout = self.handshake_timeout;
            return Err(Closed::peer(format!("TLS: the handshake was not completed within {timeout:?}")));
        }
        self.poke(env, E::on_deadline)
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: E::Command) -> Result<(), Closed> {
        self.start(env);
        self.poke(env, |endpoint, env| endpoint.on_command(env, command))
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        self.start(env);
        self.poke(env, |endpoint, env| endpoint.on_wake(env, task))
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        let mut closed = closed.clone();
        if self.is_handshaking() {
            closed.text = format!("during the TLS handshake: {}", closed.text).into();
        }
        self.endpoint.on_close(&mut env.with_out(&mut self.plain_out), &closed);
        self.close(env);
    }
}

impl<E: fmt::Debug> fmt::Debug for Tls<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::New => "new",
            Phase::Handshake { .. } => "handshake",
            Phase::Open => "open",
            Phase::Closed => "closed",
        };
        f.debug_struct("Tls").field("endpoint", &self.endpoint).field("phase", &phase).finish_non_exhaustive()
    }
}
