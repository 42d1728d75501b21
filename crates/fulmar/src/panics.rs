//! Where code of the user's is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulmar_grpc::Status;

/// Runs code of the user's, which `whose` names. A panic becomes `UNKNOWN` (wire rule 36), and the connection lives on.
pub(crate) fn caught<R>(whose: &str, code: impl FnOnce() -> R) -> Result<R, Status> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Status::unknown(format!("{whose} panicked: {reason}"))
    })
}
