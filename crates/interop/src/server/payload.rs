//! What a request asks its answer to be.

use fulmar::{Code, MetadataError, MetadataMap, Status};

use crate::proto::grpc::testing::{EchoStatus, Payload, PayloadType};

/// The largest payload that a client may ask for, in bytes. The largest of the official cases has 314,159.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Comes back in the metadata ahead of the reply.
pub(super) const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";

/// Comes back in the trailers.
pub(super) const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// A payload of zeros.
///
/// # Errors
/// `INVALID_ARGUMENT` for a type that there is not, and for a size that is negative or beyond the limit.
pub(super) fn payload(kind: i32, size: i32) -> Result<Payload, Status> {
    let kind = PayloadType::try_from(kind)
        .map_err(|_| Status::invalid_argument(format!("there is no payload type {kind}")))?;
    let bytes = usize::try_from(size).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX).ok_or_else(|| {
        Status::invalid_argument(format!("a payload has 0 to {PAYLOAD_BYTES_MAX} bytes, not {size}"))
    })?;
    Ok(Payload { r#type: kind.into(), body: vec![0; bytes] })
}

/// Ends the call as the request asks.
///
/// # Errors
/// The status that was asked for, with the trailers that were asked for; the code 0 asks for none.
pub(super) fn end_if_asked(asked: Option<&EchoStatus>, metadata: &MetadataMap) -> Result<(), Status> {
    let Some(asked) = asked.filter(|asked| asked.code != 0) else { return Ok(()) };
    let mut trailers = MetadataMap::new();
    echo(metadata, ECHO_TRAILING, &mut trailers)?;
    Err(Status::new(Code::from_i32(asked.code), asked.message.clone()).with_metadata(trailers))
}

/// Copies every value of `name`.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that may arrive and must not be sent.
pub(super) fn echo(from: &MetadataMap, name: &str, into: &mut MetadataMap) -> Result<(), Status> {
    for value in from.get_all_values(name) {
        into.append_value(name, value)
            .map_err(|error: MetadataError| Status::invalid_argument(format!("{name}: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_zeros_of_the_size_that_was_asked_for() {
        assert_eq!(payload(0, 3).unwrap().body, [0; 3]);
        for (kind, size) in [(0, -1), (0, i32::MAX), (1, 3), (-1, 3)] {
            assert_eq!(payload(kind, size).unwrap_err().code(), Code::InvalidArgument, "{kind} {size}");
        }
    }

    #[test]
    fn any_code_but_zero_ends_the_call_with_the_trailers_that_were_asked_for() {
        let mut metadata = MetadataMap::new();
        metadata.append_bin(ECHO_TRAILING, &[0xab]).unwrap();
        let asked = |code| EchoStatus { code, message: "so".to_owned() };
        assert!(end_if_asked(None, &metadata).is_ok());
        assert!(end_if_asked(Some(&asked(0)), &metadata).is_ok());
        for (code, expected) in
            [(2, Code::Unknown), (16, Code::Unauthenticated), (17, Code::Unknown), (-1, Code::Unknown)]
        {
            let status = end_if_asked(Some(&asked(code)), &metadata).unwrap_err();
            assert_eq!((status.code(), status.message()), (expected, "so"));
            assert_eq!(status.metadata().get_bin(ECHO_TRAILING), Some(vec![0xab]));
        }
    }
}
