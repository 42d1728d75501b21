use fulmar_base::Closed;
use rustls::{AlertDescription, CertificateError, Error};

/// Which end of the connection this is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    /// What this end calls the other one.
    fn peer(self) -> &'static str {
        match self {
            Self::Client => "server",
            Self::Server => "client",
        }
    }
}

/// The handshake is complete, and the peer has not agreed to speak HTTP/2.
pub(crate) fn no_http2(side: Side) -> Closed {
    let (peer, configuration) = match side {
        Side::Client => ("server", "ClientTls"),
        Side::Server => ("client", "ServerTls"),
    };
    Closed::peer(format!(
        "TLS: the {peer} did not agree to speak HTTP/2: it must use ALPN with \"h2\" (RFC 9113 §3.2); \
         if it speaks HTTP/2 all the same, {configuration}::assume_http2 lets it"
    ))
}

/// Says whose fault an error is, and what to do about the common ones. `wire` has the first bytes that the peer sent, where the error
/// is about them.
pub(crate) fn failed(error: Error, side: Side, wire: &[u8]) -> Closed {
    let peer = side.peer();
    match error {
        Error::InvalidCertificate(error) => bad_certificate(&error, side),
        Error::NoApplicationProtocol => Closed::peer(format!(
            "TLS: the {peer} does not speak HTTP/2: its ALPN protocols do not have \"h2\" (RFC 9113 §3.2)"
        )),
        Error::NoCertificatesPresented => Closed::peer(
            "TLS: the client showed no certificate, and this server requires one (ServerTls::require_client_certificates)",
        ),
        Error::AlertReceived(alert) => refused_by_peer(alert, side),
        Error::InvalidMessage(error) => match not_tls(wire) {
            Some(what) => Closed::peer(format!("TLS: the {peer} sent something that is not TLS: {what}")),
            None => Closed::peer(format!("TLS: the {peer} sent something that is not TLS: {error:?}")),
        },
        Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes | Error::General(_) => {
            Closed::local(format!("TLS: {error}"))
        }
        error => Closed::peer(format!("TLS: {error}")),
    }
}

fn bad_certificate(error: &CertificateError, side: Side) -> Closed {
    let peer = side.peer();
    let advice = match (error, side) {
        (CertificateError::UnknownIssuer, Side::Client) => {
            return Closed::peer(
                "TLS: the server's certificate is not signed by an authority this client trusts; \
                 if it is one of your own, pass the authority to ClientTls::from_ca_pem",
            );
        }
        (CertificateError::UnknownIssuer, Side::Server) => {
            return Closed::peer(
                "TLS: the client's certificate is not signed by an authority this server asks for; \
                 if it is one of your own, pass the authority to ServerTls::require_client_certificates",
            );
        }
        (CertificateError::Expired | CertificateError::ExpiredContext { .. }, _) => {
            "; it has to be renewed, or the clock of this machine is wrong"
        }
        (CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }, _) => {
            "; perhaps the clock of this machine is wrong"
        }
        (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }, _) => {
            "; if the server is known by that name there, ask for it with ClientTls::server_name"
        }
        _ => "",
    };
    Closed::peer(format!("TLS: the {peer}'s certificate is not valid: {error}{advice}"))
}

fn refused_by_peer(alert: AlertDescription, side: Side) -> Closed {
    let peer = side.peer();
    let meaning = match (alert, side) {
        (AlertDescription::CertificateRequired, _) => {
            "it requires a certificate of the client; give it one with ClientTls::identity_pem"
        }
        (AlertDescription::NoApplicationProtocol, _) => {
            "it does not speak HTTP/2: no protocol in common (ALPN \"h2\", RFC 9113 §3.2)"
        }
        (AlertDescription::UnknownCA, _) => {
            "it does not trust the authority that signed this end's certificate"
        }
        (AlertDescription::BadCertificate | AlertDescription::CertificateUnknown, Side::Client) => {
            "it takes no such certificate of a client; one it trusts is given with ClientTls::identity_pem"
        }
        (AlertDescription::BadCertificate | AlertDescription::CertificateUnknown, Side::Server) => {
            "it does not accept this server's certificate"
        }
        (AlertDescription::CertificateExpired, _) => "this end's certificate has expired there",
        (AlertDescription::ProtocolVersion, _) => "it speaks neither TLS 1.2 nor 1.3, or no TLS at all",
        (AlertDescription::HandshakeFailure, _) => {
            "there is no way to do the handshake that both ends know: versions, cipher suites, or a certificate that is missing"
        }
        (AlertDescription::UnrecognisedName, _) => "it has no certificate for the name that was asked for",
        _ => return Closed::peer(format!("TLS: the {peer} refuses to go on: alert {alert:?}")),
    };
    Closed::peer(format!("TLS: the {peer} refuses to go on: {meaning} (alert {alert:?})"))
}

/// What a peer speaks that does not speak TLS, by its first bytes.
fn not_tls(wire: &[u8]) -> Option<&'static str> {
    if wire.starts_with(b"PRI * HTTP/2") {
        Some("it is HTTP/2 in plain text; an endpoint of this server begins with https://")
    } else if wire.get(3) == Some(&0x04) && wire.first() == Some(&0) {
        // The first frame of a server is SETTINGS (RFC 9113 §3.4): three bytes of length, and the type 4.
        Some("it is HTTP/2 in plain text (SETTINGS); an endpoint of it begins with http://")
    } else if wire.starts_with(b"HTTP/1") {
        Some("it is HTTP/1 in plain text")
    } else {
        None
    }
}
