/// What is left of a fuzzer's data. Numbers come off the front and never fail, so that any data are an input, and a change in
/// one place of them leaves what stands elsewhere.
pub(super) struct Bytes<'d>(&'d [u8]);

impl<'d> Bytes<'d> {
    pub(super) fn new(data: &'d [u8]) -> Self {
        Self(data)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, 0 at the end.
    pub(super) fn byte(&mut self) -> usize {
        self.take(1).first().copied().unwrap_or_default().into()
    }

    /// The next bytes, fewer at the end.
    pub(super) fn take(&mut self, count: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A byte that is the length, and the bytes.
    pub(super) fn string(&mut self) -> &'d [u8] {
        let length = self.byte();
        self.take(length)
    }
}
