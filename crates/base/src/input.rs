use std::cell::Cell;

/// A cursor over the bytes just received.
///
/// The position lies in a `Cell`, so that every layer takes the cursor by shared reference, and what it takes off the front borrows
/// the bytes (`'i`) and not the cursor: an event may be held while the connection that made it is acted upon.
///
/// ```
/// use fulmar_base::Input;
///
/// let input = Input::new(b"headbody");
/// let head = input.take(4).expect("eight bytes are there");
/// assert_eq!((head, input.remaining()), (&b"head"[..], &b"body"[..]));
/// assert_eq!(input.take(5), None);
/// assert_eq!(input.consumed(), 4);
/// ```
#[derive(Debug)]
pub struct Input<'i> {
    bytes: &'i [u8],
    position: Cell<usize>,
    aside: Cell<&'i [u8]>,
}

impl<'i> Input<'i> {
    /// A cursor at the front of `bytes`.
    pub fn new(bytes: &'i [u8]) -> Self {
        Self { bytes, position: Cell::new(0), aside: Cell::new(&[]) }
    }

    /// The bytes not consumed yet.
    #[inline]
    pub fn remaining(&self) -> &'i [u8] {
        self.bytes.get(self.position.get()..).unwrap_or_default()
    }

    /// Consumes `n` bytes, at most all that remain.
    #[inline]
    pub fn advance(&self, n: usize) {
        self.position.set(self.position.get().saturating_add(n).min(self.bytes.len()));
    }

    /// Takes `n` bytes off the front; `None`, with nothing consumed, if fewer remain.
    #[inline]
    pub fn take(&self, n: usize) -> Option<&'i [u8]> {
        let taken = self.remaining().get(..n)?;
        self.advance(n);
        Some(taken)
    }

    /// Keeps bytes that were consumed and not used yet for [`take_aside`](Self::take_aside): a layer that was lent a frame with
    /// several messages in it hands them out one at a time. What lay aside before is forgotten.
    #[inline]
    pub fn set_aside(&self, rest: &'i [u8]) {
        self.aside.set(rest);
    }

    /// What was set aside, once; empty if nothing was.
    #[inline]
    pub fn take_aside(&self) -> &'i [u8] {
        self.aside.take()
    }

    /// Whether nothing lies aside.
    #[inline]
    pub fn is_aside_empty(&self) -> bool {
        self.aside.get().is_empty()
    }

    /// How many bytes have been consumed: what [`Endpoint::receive`](crate::Endpoint::receive) returns.
    pub fn consumed(&self) -> usize {
        self.position.get()
    }

    /// Whether nothing remains.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.remaining().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_outlives_the_cursor() {
        let bytes = *b"abc";
        let taken = {
            let input = Input::new(&bytes);
            input.take(2)
        };
        assert_eq!(taken, Some(&b"ab"[..]));
    }

    #[test]
    fn taking_more_than_remains_consumes_nothing() {
        let input = Input::new(b"abc");
        assert_eq!(input.take(4), None);
        assert_eq!(input.consumed(), 0);
        assert_eq!(input.take(3), Some(&b"abc"[..]));
        assert_eq!(input.take(0), Some(&b""[..]));
        assert!(input.is_empty());
    }

    #[test]
    fn bytes_set_aside_are_there_once_and_are_not_the_rest_of_the_input() {
        let input = Input::new(b"abcd");
        assert_eq!(input.take_aside(), b"");
        let frame = input.take(3).expect("four bytes are there");
        assert!(input.is_aside_empty());
        input.set_aside(&frame[1..]);
        assert!(!input.is_aside_empty());
        assert_eq!((input.remaining(), input.consumed()), (&b"d"[..], 3));
        assert_eq!(input.take_aside(), b"bc");
        assert_eq!(input.take_aside(), b"");
    }

    #[test]
    fn advancing_too_far_stops_at_the_end() {
        let input = Input::new(b"abc");
        input.advance(2);
        assert_eq!(input.remaining(), b"c");
        input.advance(usize::MAX);
        assert_eq!((input.consumed(), input.remaining()), (3, &b""[..]));
    }
}
