//! Where code of the user's is called.

use std::any::Any;
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
        let status = Status::unknown(format!("{whose} panicked: {reason}"));
        forget_panic(panic);
        status
    })
}

/// Runs code of the user's whose failure nobody has to be told of.
pub(crate) fn contained(code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        forget_panic(panic);
    }
}

/// What a panic carries may panic in its turn when it is dropped. What that one carries is leaked.
fn forget_panic(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_panics_when_it_is_dropped_ends_here_too() {
        struct Twice(u32);
        impl Drop for Twice {
            fn drop(&mut self) {
                if let Some(left) = self.0.checked_sub(1) {
                    std::panic::panic_any(Self(left));
                }
            }
        }

        let status = caught("the handler", || std::panic::panic_any(Twice(2))).unwrap_err();
        assert_eq!(status.message(), "the handler panicked: no message");
        contained(|| std::panic::panic_any(Twice(2)));
    }
}
