//! Arithmetic of windows (RFC 9113 §5.2, §6.9). A window is signed: SETTINGS can make one negative.

/// The largest window (RFC 9113 §6.9.1).
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Every window before SETTINGS and WINDOW_UPDATE change it (RFC 9113 §6.9.2).
pub(crate) const WINDOW_INITIAL: u32 = 65_535;

/// A window was raised above [`WINDOW_MAX`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WindowOverflow;

/// The peer sent more than a window allows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WindowExceeded;

/// How many bytes of DATA this end may send, on a stream or on the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    /// `initial` is at most [`WINDOW_MAX`].
    pub(crate) fn new(initial: u32) -> Self {
        Self(initial.min(WINDOW_MAX) as i32)
    }

    /// How many bytes may be sent; 0 also for a negative window.
    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Bytes were sent, at most [`available`](Self::available).
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available(), "sent beyond the window");
        self.0 -= bytes as i32;
    }

    /// A WINDOW_UPDATE arrived.
    pub(crate) fn credit(&mut self, increment: u32) -> Result<(), WindowOverflow> {
        self.shift(i64::from(increment))
    }

    /// The peer changed SETTINGS_INITIAL_WINDOW_SIZE by `delta`.
    pub(crate) fn shift(&mut self, delta: i64) -> Result<(), WindowOverflow> {
        let shifted = i32::try_from(i64::from(self.0) + delta);
        self.0 = shifted.map_err(|_| WindowOverflow)?;
        Ok(())
    }
}

/// How many bytes of DATA the peer may send, on a stream or on the connection, and how many of them wait to be credited again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReceiveWindow {
    available: i32,
    size: u32,
    /// Taken, and not credited yet.
    released: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        let size = size.min(WINDOW_MAX);
        Self { available: size as i32, size, released: 0 }
    }

    /// DATA of so many bytes arrived, padding included.
    pub(crate) fn receive(&mut self, bytes: usize) -> Result<(), WindowExceeded> {
        let left = i64::from(self.available) - bytes as i64;
        if left < 0 && bytes > 0 {
            return Err(WindowExceeded);
        }
        self.available = left as i32;
        Ok(())
    }

    /// Whether so many bytes fit.
    #[inline]
    pub(crate) const fn has_room_for(&self, bytes: u32) -> bool {
        self.available as i64 >= bytes as i64
    }

    /// So many bytes have arrived, for which there [is room](Self::has_room_for).
    #[inline]
    pub(crate) const fn take(&mut self, bytes: u32) {
        self.available -= bytes as i32;
    }

    /// Whether so many bytes fit, and no update is due when they are taken at once.
    #[inline]
    pub(crate) const fn passes(&self, bytes: u32) -> bool {
        self.has_room_for(bytes) && self.released as u64 + (bytes as u64) < self.size as u64 / 4
    }

    /// So many bytes, which [pass](Self::passes), have arrived and are taken.
    #[inline]
    pub(crate) const fn pass(&mut self, bytes: u32) {
        self.take(bytes);
        self.released += bytes;
    }

    /// Whether no more than so many bytes fit.
    pub(crate) fn is_used_up_by(&self, bytes: usize) -> bool {
        i64::from(self.available) <= bytes as i64
    }

    /// So many of the received bytes are taken.
    pub(crate) fn release(&mut self, bytes: u32) {
        self.released = self.released.saturating_add(bytes);
    }

    /// How large the window is when nothing of it is used.
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// The increment of the WINDOW_UPDATE that is due: one at a quarter of the window, so that the peer need not read an update for
    /// each frame, and is never stopped by more than that quarter. (At a half, a peer whose frames do not fit the halves would
    /// get little more than half a window through in a round trip.) The credit is given with it.
    pub(crate) fn take_update(&mut self) -> Option<u32> {
        if self.released == 0 || self.released < self.size / 4 {
            return None;
        }
        let increment = self.released;
        self.released = 0;
        self.available = self.available.saturating_add_unsigned(increment);
        Some(increment)
    }

    /// Makes a smaller window of it: the peer has acknowledged the SETTINGS that say so.
    pub(crate) fn shrink(&mut self, by: u32) {
        self.size = self.size.saturating_sub(by);
        self.available = self.available.saturating_sub_unsigned(by);
    }

    /// Makes a larger window of it, and returns the increment that tells the peer.
    pub(crate) fn grow(&mut self, to: u32) -> Option<u32> {
        let increment = to.min(WINDOW_MAX).checked_sub(self.size).filter(|&increment| increment > 0)?;
        self.size += increment;
        self.available = self.available.saturating_add_unsigned(increment);
        Some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_go_negative_and_sends_nothing_until_it_is_positive() {
        let mut window = SendWindow::new(65_535);
        window.consume(65_535);
        window.shift(10 - 65_535).unwrap();
        assert_eq!(window.available(), 0);
        window.credit(65_525).unwrap();
        assert_eq!(window.available(), 0);
        window.credit(1).unwrap();
        assert_eq!(window.available(), 1);
    }

    #[test]
    fn a_send_window_above_the_largest_overflows_and_stays_as_it_was() {
        let mut window = SendWindow::new(1);
        window.credit(WINDOW_MAX - 1).unwrap();
        assert_eq!(window.credit(1), Err(WindowOverflow));
        assert_eq!(window.available(), WINDOW_MAX as usize);
    }

    #[test]
    fn the_lowest_window_that_settings_can_make_is_legal() {
        let mut window = SendWindow::new(WINDOW_MAX);
        window.consume(WINDOW_MAX as usize);
        window.shift(-i64::from(WINDOW_MAX)).unwrap();
        assert_eq!(window.available(), 0);
    }

    #[test]
    fn a_receive_window_counts_every_byte_and_refuses_the_first_beyond() {
        let mut window = ReceiveWindow::new(10);
        window.receive(10).unwrap();
        window.receive(0).unwrap();
        assert_eq!(window.receive(1), Err(WindowExceeded));
    }

    #[test]
    fn credit_is_given_at_a_quarter_of_a_window_and_not_before() {
        let mut window = ReceiveWindow::new(100);
        window.receive(100).unwrap();
        window.release(24);
        assert_eq!(window.take_update(), None);
        window.release(1);
        assert_eq!(window.take_update(), Some(25));
        assert_eq!(window.take_update(), None);
        window.release(75);
        assert_eq!(window.take_update(), Some(75));
        window.receive(100).unwrap();
        assert_eq!(window.receive(1), Err(WindowExceeded));
    }

    #[test]
    fn a_window_of_one_byte_is_credited_byte_by_byte() {
        let mut window = ReceiveWindow::new(1);
        for _ in 0..3 {
            window.receive(1).unwrap();
            window.release(1);
            assert_eq!(window.take_update(), Some(1));
        }
    }

    #[test]
    fn a_window_that_shrinks_below_what_is_in_flight_takes_nothing_until_it_is_credited() {
        let mut window = ReceiveWindow::new(65_535);
        window.receive(1_000).unwrap();
        window.shrink(65_435);
        assert_eq!(window.receive(1), Err(WindowExceeded));
        window.release(1_000);
        assert_eq!(window.take_update(), Some(1_000));
        window.receive(100).unwrap();
        assert_eq!(window.receive(1), Err(WindowExceeded));
    }
}
