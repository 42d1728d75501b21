//! Which names metadata may have.

use super::MetadataError;

/// Longer than any name one would choose; a bound on what error messages repeat.
const NAME_BYTES_MAX: usize = 1024;

/// Names that HTTP or gRPC uses, and what for.
const RESERVED: [(&str, &str); 13] = [
    ("connection", CONNECTION_SPECIFIC),
    (
        "content-length",
        "HTTP/2 checks it against the bytes of the messages, which a call does not know beforehand",
    ),
    ("content-type", "gRPC sends it with each call"),
    ("host", "the authority of the endpoint is sent as :authority"),
    ("http2-settings", CONNECTION_SPECIFIC),
    ("keep-alive", CONNECTION_SPECIFIC),
    ("proxy-connection", CONNECTION_SPECIFIC),
    ("te", "gRPC sends it with each call"),
    ("trailer", "HTTP would announce trailers with it; gRPC always sends them"),
    ("transfer-encoding", CONNECTION_SPECIFIC),
    ("upgrade", CONNECTION_SPECIFIC),
    ("user-agent", "the channel sends its own; set that with the channel's user agent"),
    ("content-encoding", "gRPC compresses messages, not bodies: see grpc-encoding"),
];

const CONNECTION_SPECIFIC: &str = "HTTP/2 has no connection-specific fields (RFC 9113 §8.2.2)";

/// Names that begin with `grpc-` and are metadata all the same (gRFC A6).
const RETRY_NAMES: [&str; 2] = ["grpc-previous-rpc-attempts", "grpc-retry-pushback-ms"];

/// Whether gRPC or HTTP uses this name itself, so that it is no metadata: `grpc-…` (except
/// `grpc-previous-rpc-attempts` and `grpc-retry-pushback-ms`), pseudo-header fields (`:…`), `te`, `content-type`,
/// `content-length`, `content-encoding`, `user-agent`, `host`, `trailer`, and the connection-specific fields of
/// RFC 9113 §8.2.2.
///
/// Engines leave such fields out of the metadata that they hand over, with the exception of `user-agent` and `:authority` (or the
/// `host` that stands for it), which a server may want to see, and out of the metadata that they send.
pub fn is_reserved(name: &[u8]) -> bool {
    reservation(name).is_some()
}

/// Whether values of this name are binary.
pub(super) fn is_binary(name: &[u8]) -> bool {
    const SUFFIX: &[u8] = b"-bin";
    name.len().checked_sub(SUFFIX.len()).is_some_and(|start| name[start..].eq_ignore_ascii_case(SUFFIX))
}

/// Checks a name that a user gives.
pub(super) fn check(name: &str) -> Result<(), MetadataError> {
    if let Some(reason) = reservation(name.as_bytes()) {
        return Err(MetadataError::Reserved { name: told(name), reason });
    }
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_legal) {
        return Err(MetadataError::Name(told(name)));
    }
    Ok(())
}

/// What a reserved name is used for.
fn reservation(name: &[u8]) -> Option<&'static str> {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match name.first()? {
        b':' => Some("it is a pseudo-header field of HTTP/2"),
        b'g' | b'G' => {
            let is_grpc = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"grpc-"));
            (is_grpc && !RETRY_NAMES.into_iter().any(is))
                .then_some("names that begin with \"grpc-\" belong to gRPC")
        }
        _ => RESERVED.iter().find(|(known, _)| is(known)).map(|(_, reason)| *reason),
    }
}

/// The name as an error tells it: cut, as it may be anything.
fn told(name: &str) -> String {
    name.chars().take(NAME_BYTES_MAX / 8).collect()
}
