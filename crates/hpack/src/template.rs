/// A header list that is sent again and again, and the bytes that it became: while the dynamic table is as it was then, they are
/// copied instead of encoded. For [`Encoder::append_known`](crate::Encoder::append_known).
///
/// It belongs to one encoder and one list of fields. It costs no memory before its first use, and then a few bytes more than its
/// list has fields, once these are in the table.
#[derive(Debug, Default)]
pub struct Template {
    pub(crate) bytes: Vec<u8>,
    /// Of the encoder's table when `bytes` were made; 0 is no version.
    pub(crate) version: u64,
    /// The size of the list (RFC 9113 §6.5.2).
    list_bytes: Option<usize>,
}

/// Longer blocks are not kept: they are encoded each time.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 256;

impl Template {
    /// The most that [`memory_bytes`](Self::memory_bytes) comes to: a vector that grows takes up to twice what it needs.
    pub const MEMORY_BYTES_MAX: usize = 2 * TEMPLATE_BYTES_MAX;

    /// A template that no list was encoded with.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), version: 0, list_bytes: None }
    }

    /// The size of its list as SETTINGS_MAX_HEADER_LIST_SIZE counts it (RFC 9113 §6.5.2), which `measure` tells once.
    #[inline]
    pub fn list_bytes(&mut self, measure: impl FnOnce() -> usize) -> usize {
        *self.list_bytes.get_or_insert_with(measure)
    }

    /// Forgets what was encoded, and keeps the memory: for another encoder, or another list.
    pub fn forget(&mut self) {
        self.bytes.clear();
        (self.version, self.list_bytes) = (0, None);
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
