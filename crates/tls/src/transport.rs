use std::fmt;

use fulmar_base::{Block, Closed, Endpoint, Env, Instant, Output, TaskId, Transport};

use crate::session::{HANDSHAKE_TIMEOUT, Limit, TlsSession};

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
    /// Boxed: whoever keeps endpoints in one place, with TLS or without, spends a pointer on it and not its state.
    layer: Box<Layer>,
}

/// What TLS adds to an endpoint.
struct Layer {
    session: TlsSession,
    phase: Phase,
    /// When a handshake message that came behind the handshake, and of which a part is missing, must be whole: nothing can be sealed
    /// meanwhile.
    whole_by: Option<Instant>,
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
    Closed {
        /// The handshake had begun, and was not complete.
        in_handshake: bool,
    },
}

impl<E: Endpoint> Tls<E> {
    /// Puts `endpoint` behind `session`, which says whose end of the connection it is.
    pub fn new(session: TlsSession, endpoint: E) -> Self {
        let layer = Layer {
            session,
            phase: Phase::New,
            whole_by: None,
            plain_in: Block::default(),
            plain_out: Output::new(),
        };
        Self { endpoint, layer: Box::new(layer) }
    }

    /// The endpoint behind TLS.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The endpoint behind TLS, to be changed.
    pub fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// The endpoint, without TLS around it.
    pub fn into_endpoint(self) -> E {
        self.endpoint
    }

    /// Whether the handshake is still to be completed.
    pub fn is_handshaking(&self) -> bool {
        self.layer.is_handshaking()
    }

    /// Whether the handshake, which is complete, went on with what an earlier connection had agreed.
    pub fn is_resumed(&self) -> bool {
        self.layer.session.is_resumed()
    }

    /// What there is to say of the end of this connection: where it came within the handshake, that it did.
    pub fn explain(&self, closed: &Closed) -> Closed {
        let mut closed = closed.clone();
        let in_handshake =
            matches!(self.layer.phase, Phase::Handshake { .. } | Phase::Closed { in_handshake: true });
        if in_handshake && !closed.text.starts_with("TLS: ") {
            closed.text = format!("TLS: during the handshake: {}", closed.text).into();
        }
        closed
    }

    /// Lends the endpoint a place for its plaintext, and lets it do one thing. What it writes waits there for the
    /// [`transmit`](Transport::transmit) that follows (see the contract of [`Endpoint`]), so that what is written in one turn leaves in as
    /// few records as hold it. If the endpoint ends the connection, all it wrote goes to the wire, and `close_notify` behind it.
    fn poke<T>(
        &mut self,
        env: &mut Env<'_>,
        poke: impl FnOnce(&mut E, &mut Env<'_>) -> Result<T, Closed>,
    ) -> Result<T, Closed> {
        let layer = &mut *self.layer;
        if layer.plain_out.capacity() == 0 && layer.plain_out.is_empty() {
            layer.plain_out = env.pool.take_output();
        }
        let result = poke(&mut self.endpoint, &mut env.with_out(&mut layer.plain_out));
        result.inspect_err(|_| layer.close(env))
    }

    /// Shows the endpoint all plaintext there is, once, and keeps what it does not consume.
    fn deliver(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        let mut plain = std::mem::take(&mut self.layer.plain_in);
        let result = if plain.is_empty() {
            Ok(0)
        } else {
            self.poke(env, |endpoint, env| endpoint.receive(env, &plain))
        };
        match result {
            Ok(consumed) if consumed < plain.len() => {
                plain.consume(consumed);
                self.layer.plain_in = plain;
                Ok(())
            }
            result => {
                env.pool.give(plain);
                result.map(|_| ())
            }
        }
    }
}

impl Layer {
    fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Handshake { .. })
    }

    /// Starts the handshake with the first call there is.
    fn start(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        if self.phase == Phase::New {
            let until = match self.session.limit {
                Limit::After(timeout) => env.now + timeout,
                Limit::Until(until) => until,
            };
            self.phase = Phase::Handshake { until };
            self.session.begin(env.out)?;
        }
        Ok(())
    }

    /// Goes on to the open phase, once the handshake is complete and the peer has agreed to speak HTTP/2.
    fn check_handshake(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        if !self.is_handshaking() || self.session.is_handshaking() {
            return Ok(());
        }
        self.session.on_complete().inspect_err(|_| self.close(env))?;
        self.phase = Phase::Open;
        Ok(())
    }

    /// Encrypts what the endpoint wrote, while the wire has room.
    fn seal(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        while self.phase == Phase::Open && !self.plain_out.is_empty() && env.out.room() > 0 {
            if !self.session.seal(&mut self.plain_out, env.out)? {
                break;
            }
        }
        if self.plain_out.is_empty() {
            env.pool.give_output(std::mem::take(&mut self.plain_out));
        }
        Ok(())
    }

    /// Sends everything there is to send, whatever room there is: nothing follows.
    fn close(&mut self, env: &mut Env<'_>) {
        if self.phase == Phase::Open {
            while !self.plain_out.is_empty()
                && matches!(self.session.seal(&mut self.plain_out, env.out), Ok(true))
            {}
        }
        if !matches!(self.phase, Phase::Closed { .. }) {
            self.session.close(env.out);
            self.phase = Phase::Closed { in_handshake: matches!(self.phase, Phase::Handshake { .. }) };
        }
        env.pool.give(std::mem::take(&mut self.plain_in));
        env.pool.give_output(std::mem::take(&mut self.plain_out));
    }
}

impl<E: Endpoint> Transport for Tls<E> {
    type Command = E::Command;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        let layer = &mut *self.layer;
        layer.start(env)?;
        if matches!(layer.phase, Phase::Closed { .. }) {
            return Ok(wire.len());
        }
        env.pool.reserve(&mut layer.plain_in, wire.len());
        let opened = layer.session.open(wire, layer.plain_in.tail_mut(), env.out);
        let opened = opened.inspect_err(|_| layer.close(env))?;
        layer.check_handshake(env)?;
        layer.whole_by =
            layer.session.has_fragment().then(|| layer.whole_by.unwrap_or(env.now + HANDSHAKE_TIMEOUT));
        self.deliver(env)?;
        if opened.peer_has_closed {
            self.layer.close(env);
            return Err(Closed::peer("TLS: the peer closed the connection (close_notify)"));
        }
        Ok(opened.consumed)
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.layer.start(env)?;
        if self.layer.phase != Phase::Open {
            return Ok(());
        }
        if self.layer.plain_out.room() == 0 {
            self.layer.seal(env)?;
        }
        self.poke(env, E::transmit)?;
        self.layer.seal(env)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let handshake = match self.layer.phase {
            Phase::Handshake { until } => Some(until),
            Phase::Open => self.layer.whole_by,
            Phase::New | Phase::Closed { .. } => None,
        };
        handshake.into_iter().chain(self.endpoint.next_deadline()).min()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.layer.start(env)?;
        if let Phase::Handshake { until } = self.layer.phase
            && until <= env.now
        {
            let text = match self.layer.session.limit {
                Limit::After(timeout) => format!("TLS: the handshake was not completed within {timeout:?}"),
                Limit::Until(_) => "TLS: the handshake was not completed in time".to_owned(),
            };
            self.layer.close(env);
            return Err(Closed::peer(text));
        }
        if self.layer.phase == Phase::Open && self.layer.whole_by.is_some_and(|by| by <= env.now) {
            self.layer.close(env);
            return Err(Closed::peer("TLS: a handshake message was not completed in time"));
        }
        self.poke(env, E::on_deadline)
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: E::Command) -> Result<(), Closed> {
        self.layer.start(env)?;
        self.poke(env, |endpoint, env| endpoint.on_command(env, command))
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        self.layer.start(env)?;
        self.poke(env, |endpoint, env| endpoint.on_wake(env, task))
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        let closed = self.explain(closed);
        self.endpoint.on_close(&mut env.with_out(&mut self.layer.plain_out), &closed);
        self.layer.close(env);
    }

    fn has_work(&self, is_room: bool) -> bool {
        // Before the handshake is complete, and while a part of a message of it is missing, what is to be sent waits for the peer.
        let layer = &*self.layer;
        let can_seal = is_room && !layer.session.has_fragment();
        let waits = !layer.plain_out.is_empty();
        layer.phase == Phase::Open && ((can_seal && waits) || self.endpoint.has_work(can_seal && !waits))
    }
}

impl<E: fmt::Debug> fmt::Debug for Tls<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.layer.phase {
            Phase::New => "new",
            Phase::Handshake { .. } => "handshake",
            Phase::Open => "open",
            Phase::Closed { .. } => "closed",
        };
        f.debug_struct("Tls").field("endpoint", &self.endpoint).field("phase", &phase).finish_non_exhaustive()
    }
}
