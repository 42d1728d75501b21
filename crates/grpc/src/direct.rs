//! Calls between two ends of one process, which need no connection: what one end would read of what the other one writes.
//!
//! Everything here says what the two engines do with a header section, without writing or reading one, for who carries a call from the
//! one end to the other by hand.

use fulmar_http2::{Config as Http2Config, ErrorCode, FIELD_OVERHEAD_BYTES, Field};

use crate::code::Code;
use crate::config::Config;
use crate::encoding::Encodings;
use crate::end::TooLong;
use crate::framing::FramingError;
use crate::headers::{self, StatusText};
use crate::metadata::{MetadataError, MetadataMap, is_reserved};
use crate::server::{SHORTENED_MESSAGE_BYTES_MAX, status_fields, too_large};
use crate::status::Status;

/// More than the fields take, but for path and authority, that are not metadata; in bytes as a header list counts them.
const HEAD_BYTES_MAX: usize = 1_024;

/// More fields than those.
const HEAD_FIELDS_MAX: usize = 16;

/// Whether a request, or an answer, with this metadata is surely accepted by an end with this configuration. `texts` is how many bytes
/// path, authority and names of the ends have together.
pub fn surely_fits(metadata: &MetadataMap, texts: usize, config: &Http2Config) -> bool {
    let bytes_max = config.header_list_bytes_max.min(config.header_block_bytes_max) as usize;
    metadata.list_bytes() + texts + HEAD_BYTES_MAX <= bytes_max
        && metadata.len() + HEAD_FIELDS_MAX <= config.header_fields_max as usize
}

/// The metadata that a server finds in a request of a client that calls itself `user_agent`, whose user has `sent` this.
///
/// # Errors
///
/// [`MetadataError`], as for a request that a server refuses for that.
pub fn received_request(
    user_agent: &str,
    authority: &str,
    sent: &MetadataMap,
    received: &mut MetadataMap,
) -> Result<(), MetadataError> {
    if !user_agent.is_empty() {
        received.append_received(b"user-agent", user_agent.as_bytes(), false)?;
    }
    for (name, value, sensitive) in sent.raw_iter() {
        if !is_reserved(name) {
            received.append_received(name, value, sensitive)?;
        }
    }
    if !authority.is_empty() {
        received.append_received(b":authority", authority.as_bytes(), false)?;
    }
    Ok(())
}

/// What a client gets of an answer's headers: none, and the status that the call ends with, where the metadata is larger than the
/// `client` accepts.
///
/// # Errors
///
/// That status.
pub fn answer_metadata(
    sent: &MetadataMap,
    server: &Config,
    client: &Config,
    received: &mut MetadataMap,
) -> Result<(), Status> {
    if sent.is_empty() {
        return Ok(());
    }
    if !surely_fits(sent, 0, &client.http2) {
        let fields = || headers::response_head(&server.encodings).chain(headers::metadata_fields(sent));
        let (size, limit) = (list_bytes(fields()), client.http2.header_list_bytes_max as usize);
        if size > limit {
            return Err(too_large("metadata", size, limit));
        }
        check_fields(fields().count(), &client.http2)?;
    }
    receive(sent, received);
    Ok(())
}

/// What a client gets of the end of an answer: the status, and the trailers, which are those of the status and those given, as far as
/// it accepts them. `is_whole`: nothing went before.
pub fn answer_end(
    status: &Status,
    trailers: &MetadataMap,
    is_whole: bool,
    (server, client): (&Config, &Config),
    received: &mut MetadataMap,
) -> Status {
    if status.is_plain() && trailers.is_empty() {
        return Status::new(status.code(), "");
    }
    let texts = 3 * status.message().len() + 2 * status.details().len() + trailers.list_bytes();
    let fields = trailers.len();
    let fits = surely_fits(status.metadata(), texts + 32 * fields, &client.http2)
        && status.metadata().len() + fields + HEAD_FIELDS_MAX <= client.http2.header_fields_max as usize;
    if !fits && let Some(shortened) = shortened(status, trailers, is_whole, &server.encodings, client) {
        return shortened;
    }
    receive(status.metadata(), received);
    receive(trailers, received);
    of_wire(status)
}

/// Whether a message of `length` bytes may be sent by an end with this configuration.
///
/// # Errors
///
/// The status that its call ends with.
pub fn check_sent(length: usize, config: &Config) -> Result<(), Status> {
    let length_max = config.send_message_bytes_max.min(u32::MAX as usize);
    if length <= length_max { Ok(()) } else { Err(TooLong { length, length_max }.status()) }
}

/// Whether a message of `length` bytes is taken by an end with this configuration.
///
/// # Errors
///
/// The status that its call ends with.
pub fn check_received(length: usize, config: &Config) -> Result<(), Status> {
    let length_max = config.receive_message_bytes_max;
    if length <= length_max { Ok(()) } else { Err(FramingError::TooLong { length, length_max }.status()) }
}

/// How a call ends for a client whose server could not write the message that it had begun.
pub fn reset_by_server() -> Status {
    let code = ErrorCode::InternalError;
    Status::new(Code::from_http2_error(code.as_u32()), format!("the peer reset the stream ({code})"))
}

/// How a call ends for a client whose deadline has passed.
pub fn deadline_exceeded() -> Status {
    crate::client::deadline_exceeded()
}

/// The status that is left of one whose trailers are larger than the client accepts.
#[cold]
fn shortened(
    status: &Status,
    trailers: &MetadataMap,
    is_whole: bool,
    encodings: &Encodings,
    client: &Config,
) -> Option<Status> {
    let mut text = StatusText::default();
    text.encode(status);
    let metadata = headers::metadata_fields(status.metadata()).chain(headers::metadata_fields(trailers));
    let fields = status_fields(status.code(), &text, encodings, is_whole, metadata);
    let (size, limit) = (list_bytes(fields.clone()), client.http2.header_list_bytes_max as usize);
    if size <= limit {
        return check_fields(fields.count(), &client.http2).err();
    }
    if status.is_ok() {
        return Some(too_large("trailers", size, limit));
    }
    let beginning = StatusText::default().encode_beginning(status, SHORTENED_MESSAGE_BYTES_MAX);
    Some(Status::new(status.code(), status.message()[..beginning].to_owned()))
}

/// Whether a client takes a header list of so many fields. It resets the stream of one that has more.
///
/// # Errors
///
/// The status that its call ends with.
fn check_fields(fields: usize, client: &Http2Config) -> Result<(), Status> {
    if fields <= client.header_fields_max as usize {
        return Ok(());
    }
    let code = ErrorCode::EnhanceYourCalm;
    let text =
        format!("a header list of more than {} fields: header_fields_max ({code})", client.header_fields_max);
    Err(Status::new(Code::from_http2_error(code.as_u32()), text))
}

/// A status as the other end has it: without what does not cross the wire.
fn of_wire(status: &Status) -> Status {
    status.without_what_stays_here()
}

/// The metadata of an answer as a client gets it.
fn receive(sent: &MetadataMap, received: &mut MetadataMap) {
    for (name, value, sensitive) in sent.raw_iter().filter(|(name, ..)| !is_reserved(name)) {
        // Only what a map would not have can fail here, and as much as no map holds.
        let _ = received.append_received(name, value, sensitive);
    }
}

/// The size of a header list (RFC 9113 §6.5.2).
fn list_bytes<'f>(fields: impl Iterator<Item = Field<'f>>) -> usize {
    fields.map(|field| field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES).sum()
}
