//! Sending small messages: each thread encodes them in a place of its own, before it has the lock of their cell.

use std::cell::{Cell, RefCell};

use super::CallCell;
use crate::payload::{PREFIX_LEN, Payload, encode_framed};

/// Messages up to this size are encoded here and then copied into the buffer of their call. That spares some 90 instructions a message:
/// to take the buffer out of the cell, and to bring it back under a second lock. From a kilobyte on, the copy costs more.
const STAGED_MAX: usize = 512;

/// What a thread holds on to once it has sent a small message.
const KEPT_BYTES: usize = PREFIX_LEN + STAGED_MAX;

thread_local! {
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static IS_AVOIDED: Cell<bool> = const { Cell::new(false) };
}

impl CallCell {
    /// Sends a small `message` if nothing stands in its way, under one lock. False, and nothing sent, if anything does.
    pub(super) fn send_staged<P: Payload>(&self, message: &P, bytes_max: usize) -> bool {
        let sent = with_staged(message, bytes_max, |framed| {
            let mut state = self.lock();
            let is_plain = state.is_plain();
            if !is_plain || !state.has_room() {
                drop(state);
                avoid(!is_plain);
                return None;
            }
            state.outbound.append_framed(framed);
            state.room = state.room.saturating_sub(framed.len());
            Some((state.link.clone(), state.knock(), framed.len()))
        });
        // Both may run code of the user's.
        let Some((link, door, length)) = sent else { return false };
        link.sent(length.saturating_sub(PREFIX_LEN));
        if let Some(door) = door {
            crate::wake(door);
        }
        true
    }
}

/// Encodes `message` with its prefix and shows it to `publish`. None, and perhaps nothing shown, where it has to be sent in another
/// way: it is large, cannot be encoded, or `publish` has no use for it.
fn with_staged<P: Payload, R>(
    message: &P,
    bytes_max: usize,
    publish: impl FnOnce(&[u8]) -> Option<R>,
) -> Option<R> {
    let length = message.encoded_len();
    if length > STAGED_MAX || IS_AVOIDED.get() {
        return None;
    }
    let staged = |bytes: &RefCell<Vec<u8>>| {
        // Taken while another message is encoded on this thread, from within its code.
        let mut bytes = bytes.try_borrow_mut().ok()?;
        if bytes.capacity() != KEPT_BYTES {
            // Not used before; or a message was longer than it had announced.
            *bytes = Vec::with_capacity(KEPT_BYTES);
        }
        bytes.clear();
        encode_framed(message, length, bytes_max, &mut bytes).ok()?;
        publish(&bytes)
    };
    // Gone where a thread that ends drops what sends a message.
    BYTES.try_with(staged).ok().flatten()
}

/// Whether this thread's next messages are likely to be compressed or shown to interceptors, as its last one was or was not: those
/// would be encoded here in vain.
pub(super) fn avoid(is_avoided: bool) {
    IS_AVOIDED.set(is_avoided);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Raw;

    fn framed(message: &Raw) -> Option<Vec<u8>> {
        with_staged(message, usize::MAX, |bytes| Some(bytes.to_vec()))
    }

    #[test]
    fn small_messages_are_staged_one_at_a_time_and_large_ones_are_not() {
        assert_eq!(framed(&Raw::from(b"ab".to_vec())), Some(b"\0\0\0\0\x02ab".to_vec()));
        assert_eq!(framed(&Raw::default()), Some(vec![0; PREFIX_LEN]));
        let longest = framed(&Raw::from(vec![7; STAGED_MAX])).map(|bytes| bytes.len());
        assert_eq!(longest, Some(KEPT_BYTES));
        assert_eq!(framed(&Raw::from(vec![7; STAGED_MAX + 1])), None);
        assert_eq!(with_staged(&Raw::from(vec![7; 9]), 8, |_| Some(())), None, "over the limit");
    }

    #[test]
    fn a_message_within_a_message_is_sent_in_another_way() {
        let within = |_: &[u8]| Some(framed(&Raw::default()));
        assert_eq!(with_staged(&Raw::default(), usize::MAX, within), Some(None));
        assert!(framed(&Raw::default()).is_some());
    }

    #[test]
    fn nothing_is_staged_while_it_was_in_vain() {
        avoid(true);
        assert_eq!(framed(&Raw::default()), None);
        avoid(false);
        assert!(framed(&Raw::default()).is_some());
    }
}
