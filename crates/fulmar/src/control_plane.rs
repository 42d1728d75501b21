//! Which codes may come from what decides about calls besides their server (gRFC A54).

use fulmar_grpc::{Code, Status};

/// The status with which something between a caller and its server, `whose`, ends a call.
///
/// Some codes say something about the request or about the server's data, which only a server can know; programs rely on that. Where
/// a resolver or a source of credentials says one of them, or OK for a failure, the caller gets `INTERNAL` with the original in the
/// text.
pub(crate) fn control_plane(status: Status, whose: &str) -> Status {
    match status.code() {
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::DataLoss => {
            let text = format!("{whose} gave a status that only a server may give: {status}");
            Status::internal(text).with_source(status)
        }
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::Unauthenticated => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wire rule 36.
    #[test]
    fn codes_of_servers_become_internal_with_the_original_in_the_text() {
        for code in Code::ALL {
            let status = control_plane(Status::new(code, "the reason"), "the resolver");
            let is_kept = [1, 2, 4, 7, 8, 12, 13, 14, 16].contains(&code.as_i32());
            if is_kept {
                assert_eq!((status.code(), status.message()), (code, "the reason"));
            } else {
                assert_eq!(status.code(), Code::Internal);
                for part in ["the resolver", code.name(), "the reason"] {
                    assert!(status.message().contains(part), "{status}");
                }
            }
        }
    }
}
