//! How an endpoint is put on the wire: as it is, or behind TLS.

use fulmar_base::{Closed, Endpoint, Env, Instant, Plain, TaskId, Transport};
#[cfg(feature = "_tls")]
use fulmar_tls::{ClientTls, ServerTls, Tls, TlsName, TlsSession};

use crate::peer::Peer;

/// An endpoint on the wire. Behind TLS it has the size of one in plain text: the state of TLS is in a box.
pub(crate) enum Wire<E> {
    Plain(Plain<E>),
    #[cfg(feature = "_tls")]
    Tls(Tls<E>),
}

/// What secures the connections of a server.
#[derive(Clone, Debug, Default)]
pub(crate) enum ServerSecurity {
    /// Nothing does.
    #[default]
    None,
    #[cfg(feature = "_tls")]
    Tls(ServerTls),
}

/// What secures the connections of a channel.
#[derive(Clone, Debug, Default)]
pub(crate) enum ClientSecurity {
    /// Nothing does.
    #[default]
    None,
    #[cfg(feature = "_tls")]
    Tls {
        tls: ClientTls,
        /// Whose certificate is asked for.
        name: TlsName,
    },
}

/// What the user of a channel has asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecurityChoice {
    #[cfg(feature = "_tls")]
    pub(crate) tls: Option<ClientTls>,
}

/// How the next connection is put on the wire.
pub(crate) enum Wiring {
    Plain,
    #[cfg(feature = "_tls")]
    Tls(TlsSession),
}

/// What there is to say of a server that has accepted a connection, and not more, where TLS is spoken.
pub(crate) const NO_HANDSHAKE: &str = "TLS: the handshake was not completed in time";

impl ServerSecurity {
    /// What an endpoint of the server begins with.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::None => "http",
            #[cfg(feature = "_tls")]
            Self::Tls(_) => "https",
        }
    }

    /// Whether clients may show certificates.
    #[cfg(feature = "_tls")]
    pub(crate) fn asks_for_certificates(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.asks_for_certificates())
    }

    /// For a connection of `peer`, which is told of its certificates.
    #[cfg_attr(
        not(feature = "_tls"),
        expect(unused_variables, reason = "without TLS there are no certificates")
    )]
    pub(crate) fn wiring(&self, peer: &Peer) -> Wiring {
        match self {
            Self::None => Wiring::Plain,
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => match peer.wanted_certificates() {
                Some(certificates) => Wiring::Tls(tls.session().tell_certificates(certificates)),
                None => Wiring::Tls(tls.session()),
            },
        }
    }
}

impl ClientSecurity {
    /// `ready_by` bounds the handshake.
    #[cfg_attr(not(feature = "_tls"), expect(unused_variables, reason = "without TLS there is no handshake"))]
    pub(crate) fn wiring(&self, ready_by: Instant) -> Wiring {
        match self {
            Self::None => Wiring::Plain,
            #[cfg(feature = "_tls")]
            Self::Tls { tls, name } => Wiring::Tls(tls.session(name).complete_by(ready_by)),
        }
    }

    /// What `:scheme` says.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::None => "http",
            #[cfg(feature = "_tls")]
            Self::Tls { .. } => "https",
        }
    }
}

impl SecurityChoice {
    /// What an endpoint at `host` gets, whose scheme asks for TLS or forbids it, or leaves it open.
    ///
    /// # Errors
    /// The two contradict each other, TLS is not there, or the host has no name that a certificate could bear.
    #[cfg(feature = "_tls")]
    pub(crate) fn resolve(self, is_secure: Option<bool>, host: &str) -> Result<ClientSecurity, String> {
        let tls = match (is_secure, self.tls) {
            (Some(false) | None, None) => return Ok(ClientSecurity::None),
            (Some(false), Some(_)) => {
                return Err("TLS is set, and \"http\" is without it: use \"https\"".to_owned());
            }
            (Some(true), None) => ClientTls::new().map_err(|error| error.to_string())?,
            (Some(true) | None, Some(tls)) => tls,
        };
        let name = tls.name_for(host).map_err(|error| error.to_string())?;
        Ok(ClientSecurity::Tls { tls, name })
    }

    #[cfg(not(feature = "_tls"))]
    pub(crate) fn resolve(self, is_secure: Option<bool>, _host: &str) -> Result<ClientSecurity, String> {
        if is_secure == Some(true) {
            return Err("\"https\" needs TLS, and fulmar was built without its feature `tls`".to_owned());
        }
        Ok(ClientSecurity::None)
    }
}

impl Wiring {
    pub(crate) fn wire<E: Endpoint>(self, endpoint: E) -> Wire<E> {
        match self {
            Self::Plain => Wire::Plain(Plain(endpoint)),
            #[cfg(feature = "_tls")]
            Self::Tls(session) => Wire::Tls(Tls::new(session, endpoint)),
        }
    }
}

impl<E: Endpoint> Wire<E> {
    pub(crate) fn endpoint(&self) -> &E {
        match self {
            Self::Plain(Plain(endpoint)) => endpoint,
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => tls.endpoint(),
        }
    }

    pub(crate) fn endpoint_mut(&mut self) -> &mut E {
        match self {
            Self::Plain(Plain(endpoint)) => endpoint,
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => tls.endpoint_mut(),
        }
    }

    pub(crate) fn into_endpoint(self) -> E {
        match self {
            Self::Plain(Plain(endpoint)) => endpoint,
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => tls.into_endpoint(),
        }
    }

    /// What there is to say of the end of this connection.
    pub(crate) fn explain(&self, closed: &Closed) -> Closed {
        match self {
            Self::Plain(_) => closed.clone(),
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => tls.explain(closed),
        }
    }

    /// Whether TLS is still being agreed upon.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            #[cfg(feature = "_tls")]
            Self::Tls(tls) => tls.is_handshaking(),
        }
    }
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($wire:expr, $transport:ident => $call:expr) => {
        match $wire {
            Wire::Plain($transport) => $call,
            #[cfg(feature = "_tls")]
            Wire::Tls($transport) => $call,
        }
    };
}

impl<E: Endpoint> Transport for Wire<E> {
    type Command = E::Command;

    fn receive(&mut self, env: &mut Env<'_>, wire: &mut [u8]) -> Result<usize, Closed> {
        either!(self, transport => transport.receive(env, wire))
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        either!(self, transport => transport.transmit(env))
    }

    fn has_work(&self, is_room: bool) -> bool {
        either!(self, transport => transport.has_work(is_room))
    }

    fn next_deadline(&self) -> Option<Instant> {
        either!(self, transport => transport.next_deadline())
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        either!(self, transport => transport.on_deadline(env))
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: E::Command) -> Result<(), Closed> {
        either!(self, transport => transport.on_command(env, command))
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        either!(self, transport => transport.on_wake(env, task))
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        either!(self, transport => transport.on_close(env, closed));
    }
}
