//! The field lists of gRPC: what goes in front of messages and behind them, read and written.

use std::borrow::Cow;
use std::time::Duration;

use fulmar_http2::{Field, Indexing};

use crate::code::Code;
use crate::encoding::{EncodingId, Encodings, PeerAccepts};
use crate::metadata::{MetadataError, MetadataMap, is_reserved};
use crate::routes::{MethodId, Routes};
use crate::status::Status;
use crate::{base64, percent, timeout};

/// The media type of gRPC, of which a subtype may name the format of the messages.
const CONTENT_TYPE: &[u8] = b"application/grpc";

/// The encoding of messages that are not compressed.
const IDENTITY: &[u8] = b"identity";

/// A serialized `google.rpc.Status`.
const STATUS_DETAILS: &[u8] = b"grpc-status-details-bin";

/// The message of a status.
pub(crate) const MESSAGE: &[u8] = b"grpc-message";

/// Whom a request is for.
const AUTHORITY: &[u8] = b":authority";

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) method: MethodId,
    pub(crate) timeout: Option<Duration>,
    /// What its messages are compressed with.
    pub(crate) encoding: Option<EncodingId>,
    pub(crate) peer_accepts: PeerAccepts,
}

/// Why a request is answered at once.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is not gRPC: HTTP status 415.
    NotGrpc,
    /// It is not a POST: HTTP status 405.
    NotPost,
    /// It is a call that ends before it begins.
    Status(Status),
}

/// Reads the field list of a request; the metadata in it is added to `metadata`.
pub(crate) fn read_request<'f>(
    fields: impl Iterator<Item = Field<'f>>,
    routes: &Routes,
    content_subtype: &str,
    encodings: &Encodings,
    metadata: &mut MetadataMap,
) -> Result<Request, Refusal> {
    let mut is_post = false;
    let mut path = &b""[..];
    let mut subtype = None;
    let mut encoding = IDENTITY;
    let mut peer_accepts = PeerAccepts::default();
    let mut timeout = None;
    let mut faulty = None;
    let (mut authority, mut host) = (None, None);
    for Field { name, value, indexing } in fields {
        match name {
            b":authority" => authority = Some(value),
            b"host" => host = Some(value),
            b":method" => is_post = value == b"POST",
            b":path" => path = value,
            b"content-type" => subtype = read_content_type(value),
            b"grpc-encoding" => encoding = value,
            b"grpc-accept-encoding" => peer_accepts.add(value, encodings),
            b"grpc-timeout" => timeout = Some(value),
            _ if is_reserved(name) && name != b"user-agent" => {}
            _ => {
                if let Err(error) = metadata.append_received(name, value, indexing == Indexing::Never) {
                    faulty = Some((name, error));
                }
            }
        }
    }
    // A request that an HTTP/1.1 client or proxy began may have the one instead of the other (RFC 9113 §8.3.1).
    if let Some(authority) = authority.or(host).filter(|authority| !authority.is_empty())
        && let Err(error) = metadata.append_received(AUTHORITY, authority, false)
    {
        faulty = Some((AUTHORITY, error));
    }
    let Some(subtype) = subtype else { return Err(Refusal::NotGrpc) };
    if !is_post {
        return Err(Refusal::NotPost);
    }
    if !subtype.is_empty() && !subtype.eq_ignore_ascii_case(content_subtype.as_bytes()) {
        let subtype = subtype.escape_ascii();
        return refuse(
            Code::Unimplemented,
            format!("messages in format {subtype} are not supported: this server speaks {content_subtype}"),
        );
    }
    let Some(method) = routes.resolve(path) else {
        return refuse(Code::Unimplemented, format!("unknown method {}", path.escape_ascii()));
    };
    let encoding = match encoding {
        IDENTITY => None,
        name => match encodings.accepted(name) {
            Some(encoding) => Some(encoding),
            None => {
                let text = format!("grpc-encoding {} is not supported", quote(name));
                return refuse(Code::Unimplemented, text);
            }
        },
    };
    if let Some((name, error)) = faulty {
        let (code, text) = metadata_fault(name, &error);
        return refuse(code, text);
    }
    let timeout = match timeout {
        None => None,
        Some(value) => match timeout::decode(value) {
            Some(Duration::ZERO) => {
                return refuse(Code::DeadlineExceeded, "deadline had passed when the call arrived");
            }
            Some(timeout) => Some(timeout),
            None => {
                let text = format!("grpc-timeout {:?} is malformed", value.escape_ascii().to_string());
                return refuse(Code::Internal, text);
            }
        },
    };
    Ok(Request { method, timeout, encoding, peer_accepts })
}

fn refuse(code: Code, message: impl Into<Cow<'static, str>>) -> Result<Request, Refusal> {
    Err(Refusal::Status(Status::new(code, message)))
}

/// What the head of a request says besides its metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'f> {
    pub(crate) scheme: &'f str,
    pub(crate) authority: &'f str,
    pub(crate) path: &'f str,
    pub(crate) user_agent: &'f str,
    pub(crate) content_type: &'f str,
    pub(crate) accept_encoding: &'f str,
}

/// How a request begins, in the order that `PROTOCOL-HTTP2.md` gives. What belongs to one call comes behind it: the timeout; then
/// [`request_rest`], then metadata.
pub(crate) fn request_head(head: RequestHead<'_>) -> impl Iterator<Item = Field<'_>> + Clone {
    let authority = Field::new(AUTHORITY, head.authority.as_bytes());
    [Field::new(b":method", b"POST"), Field::new(b":scheme", head.scheme.as_bytes())]
        .into_iter()
        .chain([Field::new(b":path", head.path.as_bytes())])
        .chain((!head.authority.is_empty()).then_some(authority))
        .chain([Field::new(b"te", b"trailers")])
}

/// The timeout of a request, if it has one.
pub(crate) fn request_timeout(timeout: &[u8]) -> impl Iterator<Item = Field<'_>> + Clone {
    let field = Field::new(b"grpc-timeout", timeout).without_indexing();
    (!timeout.is_empty()).then_some(field).into_iter()
}

/// What messages are compressed with, if they are.
pub(crate) fn encoding_field(encoding: Option<&str>) -> Option<Field<'_>> {
    encoding.map(|name| Field::new(b"grpc-encoding", name.as_bytes()))
}

fn accept_field(encodings: &Encodings) -> Field<'_> {
    Field::new(b"grpc-accept-encoding", encodings.accept_value().as_bytes())
}

/// What all requests of a client say.
pub(crate) fn request_rest(head: RequestHead<'_>) -> impl Iterator<Item = Field<'_>> + Clone {
    [
        Field::new(b"content-type", head.content_type.as_bytes()),
        Field::new(b"grpc-accept-encoding", head.accept_encoding.as_bytes()),
        Field::new(b"user-agent", head.user_agent.as_bytes()),
    ]
    .into_iter()
}

/// What opens an answer. A client learns what it may compress with itself, unless that is nothing. The encoding of the messages and
/// metadata come behind it.
pub(crate) fn response_head(encodings: &Encodings) -> impl Iterator<Item = Field<'_>> + Clone {
    RESPONSE_HEAD.iter().copied().chain(encodings.accepts_any().then(|| accept_field(encodings)))
}

const RESPONSE_HEAD: &[Field<'static>] =
    &[Field::new(b":status", b"200"), Field::new(b"content-type", CONTENT_TYPE)];

/// An answer to what is not gRPC. It names what would be.
pub(crate) const NOT_GRPC: [Field<'static>; 2] =
    [Field::new(b":status", b"415"), Field::new(b"accept", CONTENT_TYPE)];

/// An answer to another HTTP method.
pub(crate) const NOT_POST: [Field<'static>; 5] = [
    Field::new(b":status", b"405"),
    Field::new(b"allow", b"POST"),
    Field::new(b"content-type", CONTENT_TYPE),
    Field::new(b"grpc-status", b"13"),
    Field::new(MESSAGE, b"a gRPC call is a POST"),
];

/// An answer to a request whose header list is over a limit of the HTTP/2 connection, which says why in [`MESSAGE`], for HTTP clients and for gRPC ones: to
/// these the status counts and not what HTTP says.
pub(crate) const TOO_LARGE: &[Field<'static>] = &[
    Field::new(b":status", b"431"),
    Field::new(b"content-type", CONTENT_TYPE),
    Field::new(b"grpc-status", b"8"),
];

/// A status as it goes over the wire: its encoded parts lie in memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct StatusText {
    bytes: Vec<u8>,
    message_len: usize,
}

impl StatusText {
    /// Encodes message and details of a status.
    pub(crate) fn encode(&mut self, status: &Status) {
        self.bytes.clear();
        percent::encode(status.message(), &mut self.bytes);
        self.message_len = self.bytes.len();
        base64::encode(status.details(), &mut self.bytes);
    }

    /// Encodes so much of the message as takes at most `bytes_max`, in whole characters, and no details. Returns how many bytes of it
    /// that are.
    pub(crate) fn encode_beginning(&mut self, status: &Status, bytes_max: usize) -> usize {
        let mut bytes = 0;
        let fits = |character: &char| {
            // A space counts as if it came last, where it is encoded.
            let is_plain = character.is_ascii_graphic() && *character != '%';
            bytes += if is_plain { 1 } else { 3 * character.len_utf8() };
            bytes <= bytes_max
        };
        let beginning: usize = status.message().chars().take_while(fits).map(char::len_utf8).sum();
        self.bytes.clear();
        percent::encode(&status.message()[..beginning], &mut self.bytes);
        self.message_len = self.bytes.len();
        beginning
    }

    /// The fields of the status encoded last, which has this code.
    pub(crate) fn fields(&self, code: Code) -> impl Iterator<Item = Field<'_>> + Clone {
        let (message, details) = self.bytes.split_at(self.message_len);
        let message = Field::new(MESSAGE, message).without_indexing();
        let details = Field::new(STATUS_DETAILS, details).without_indexing();
        std::iter::once(Field::new(b"grpc-status", code.as_wire().as_bytes()))
            .chain((!message.value.is_empty()).then_some(message))
            .chain((!details.value.is_empty()).then_some(details))
    }
}

/// The trailers of an answer that ended well, without message and metadata.
pub(crate) fn ok() -> impl Iterator<Item = Field<'static>> + Clone {
    const FIELDS: &[Field<'static>] = &[Field::new(b"grpc-status", b"0")];
    FIELDS.iter().copied()
}

/// What goes in front of a status that is the whole answer.
pub(crate) fn trailers_only_head(
    code: Code,
    encodings: &Encodings,
) -> impl Iterator<Item = Field<'_>> + Clone {
    // The client may have failed to see what this server decodes (compression.md).
    RESPONSE_HEAD.iter().copied().chain((code == Code::Unimplemented).then(|| accept_field(encodings)))
}

/// Metadata on its way out, without what is not its to say.
pub(crate) fn metadata_fields(metadata: &MetadataMap) -> impl Iterator<Item = Field<'_>> + Clone {
    metadata.raw_iter().filter(|(name, ..)| !is_reserved(name)).map(|(name, value, sensitive)| {
        if sensitive { Field::sensitive(name, value) } else { Field::new(name, value) }
    })
}

/// What a field list of an answer says, headers and trailers alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// 0 for none, or one that is no number of three digits.
    pub(crate) http_status: u16,
    pub(crate) is_grpc: bool,
    /// The start of a content-type that is not gRPC.
    pub(crate) content_type: String,
    /// What its messages are compressed with.
    pub(crate) encoding: Option<EncodingId>,
    /// An encoding of messages that this end cannot undo.
    pub(crate) unknown_encoding: Option<String>,
    /// The status in it; what it means depends on where the list stands.
    pub(crate) status: Option<Status>,
    /// Metadata that is not what its name says.
    pub(crate) fault: Option<Status>,
}

/// What most answers say, and nothing besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usual {
    /// Messages in this encoding follow.
    Headers { encoding: Option<EncodingId> },
    /// All is well.
    Ok,
}

impl Answer {
    /// What it says, if that is usual.
    #[inline]
    pub(crate) fn usual(&self) -> Option<Usual> {
        if self.fault.is_some() || self.unknown_encoding.is_some() {
            return None;
        }
        match &self.status {
            None if self.http_status == 200 && self.is_grpc => {
                Some(Usual::Headers { encoding: self.encoding })
            }
            Some(status) if status.is_ok() && status.is_plain() && self.http_status == 0 => Some(Usual::Ok),
            _ => None,
        }
    }
}

/// Reads a field list of an answer; the metadata in it is added to `metadata`.
pub(crate) fn read_answer<'f>(
    fields: impl Iterator<Item = Field<'f>>,
    encodings: &Encodings,
    metadata: &mut MetadataMap,
) -> Answer {
    let mut answer = Answer::default();
    let mut code = None;
    let (mut message, mut details) = (&b""[..], &b""[..]);
    for Field { name, value, indexing } in fields {
        match name {
            b":status" => answer.http_status = read_http_status(value),
            b"content-type" => match read_content_type(value) {
                Some(_) => answer.is_grpc = true,
                None => answer.content_type = quote(value),
            },
            b"grpc-status" => code = Some(Code::from_wire(value)),
            MESSAGE => message = value,
            STATUS_DETAILS => details = value,
            b"grpc-encoding" if value != IDENTITY => {
                answer.encoding = encodings.accepted(value);
                answer.unknown_encoding = answer.encoding.is_none().then(|| quote(value));
            }
            _ if is_reserved(name) => {}
            _ => {
                if let Err(error) = metadata.append_received(name, value, indexing == Indexing::Never) {
                    let (code, text) = metadata_fault(name, &error);
                    answer.fault = Some(Status::new(code, text));
                }
            }
        }
    }
    answer.status = code.map(|code| read_status(code, message, details));
    answer
}

/// How a call ends whose metadata cannot be kept.
fn metadata_fault(name: &[u8], error: &MetadataError) -> (Code, String) {
    let name = name.escape_ascii();
    match error {
        MetadataError::Full => {
            let text = format!(
                "metadata {name} has too many values: they would take over {} bytes more than on the wire",
                MetadataMap::SPLIT_BYTES_MAX
            );
            (Code::ResourceExhausted, text)
        }
        _ => (Code::Internal, format!("value of metadata {name} is not base64")),
    }
}

/// A status off the wire. Details that are not base64 are left out: they must not hide the status.
fn read_status(code: Code, message: &[u8], details: &[u8]) -> Status {
    let message = if message.is_empty() { Cow::Borrowed("") } else { Cow::Owned(percent::decode(message)) };
    let status = Status::new(code, message);
    let mut decoded = Vec::new();
    if details.is_empty() || base64::decode(details, &mut decoded).is_err() {
        return status;
    }
    status.with_details(decoded)
}

/// The status of an answer that has none of its own.
pub(crate) fn foreign_status(answer: &Answer) -> Status {
    let http = match answer.http_status {
        0 => return Status::new(Code::Unknown, "answer has no valid HTTP status"),
        200 if answer.is_grpc => return Status::new(Code::Unknown, "answer has no grpc-status"),
        http => http,
    };
    let content_type = match answer.content_type.as_str() {
        "" if answer.is_grpc => {
            return Status::new(
                Code::from_http_status(http),
                format!("answer has HTTP status {http} and no grpc-status"),
            );
        }
        "" => "no content-type".to_owned(),
        content_type => format!("content-type {content_type}"),
    };
    let text = format!("answer is not gRPC but has HTTP status {http} and {content_type}");
    Status::new(Code::from_http_status(http), text)
}

/// The subtype of a gRPC content-type, empty for none; `None` if it is not gRPC. What merely begins with
/// `application/grpc`, such as `application/grpc-web`, is not.
fn read_content_type(value: &[u8]) -> Option<&[u8]> {
    let (media_type, rest) = value.split_at_checked(CONTENT_TYPE.len())?;
    if !media_type.eq_ignore_ascii_case(CONTENT_TYPE) {
        return None;
    }
    match rest.split_first() {
        None | Some((b';', _)) => Some(b""),
        Some((b'+', subtype)) => {
            Some(subtype.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end())
        }
        Some(_) => None,
    }
}

/// An HTTP status (RFC 9110 §15): three digits; 0 for anything else.
fn read_http_status(value: &[u8]) -> u16 {
    if value.len() != 3 || !value.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    value.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'))
}

/// The start of a value, fit for the message of a status.
fn quote(value: &[u8]) -> String {
    const QUOTED_BYTES_MAX: usize = 100;
    value[..value.len().min(QUOTED_BYTES_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
