use crate::{DecodeLimits, FIELD_OVERHEAD_BYTES, Field, Indexing};
use std::fmt;

/// A list of fields in one flat arena: all names and values in one vector, one small entry a field. Meant to be reused: after
/// warm-up neither decoding into it nor pushing allocates.
#[derive(Clone, Default)]
pub struct FieldList {
    /// Name and value of each entry in turn; while a decoder works, behind them the strings of the field in hand.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    size: usize,
    /// What fields that were cut off had of the size.
    cut_bytes: usize,
    overflow: Option<Overflow>,
}

/// A limit of [`DecodeLimits`] that a header list has crossed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// [`DecodeLimits::list_bytes_max`].
    ListBytes,
    /// [`DecodeLimits::fields_max`].
    Fields,
    /// [`DecodeLimits::string_bytes_max`].
    String,
}

/// The largest list, whatever the limits: entries address the arena with 32 bits.
const SIZE_MAX: usize = u32::MAX as usize;

#[derive(Copy, Clone)]
struct Entry {
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
    indexing: Indexing,
}

impl FieldList {
    /// An empty list without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.size = 0;
        self.cut_bytes = 0;
        self.overflow = None;
    }

    /// Appends a copy of `field`. A list of more than 4 GiB is cut: the field is left out and
    /// [`overflow`](Self::overflow) is set.
    pub fn push(&mut self, field: Field<'_>) {
        let limits =
            DecodeLimits { list_bytes_max: usize::MAX, fields_max: usize::MAX, string_bytes_max: usize::MAX };
        if self.admits(field.name.len(), field.value.len(), &limits) {
            self.bytes.extend_from_slice(field.name);
            self.bytes.extend_from_slice(field.value);
            self.commit(field.name.len(), field.indexing);
        }
    }

    /// The fields in order.
    pub fn iter(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes, entries: self.entries.iter() }
    }

    /// The field at `position`, counted from 0.
    pub fn get(&self, position: usize) -> Option<Field<'_>> {
        self.entries.get(position).map(|entry| entry.field(&self.bytes))
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Size of the list as SETTINGS_MAX_HEADER_LIST_SIZE counts it: names, values and 32 bytes a field (RFC 9113 §6.5.2).
    /// Fields cut off by an overflow are not in it.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Size of the list with the fields that an overflow has cut off; of a string that is longer than
    /// [`DecodeLimits::string_bytes_max`] only so much and a byte is counted.
    pub fn whole_size(&self) -> usize {
        self.size.saturating_add(self.cut_bytes)
    }

    /// The first limit that the list has crossed while it was decoded. If there is one the list is cut before the field that
    /// crossed it.
    pub fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to in a list that is only decoded into, under these limits and
    /// with a table of at most `table_bytes_max` bytes.
    pub fn memory_bytes_max(limits: &DecodeLimits, table_bytes_max: usize) -> usize {
        // Behind the list lie the name and value in hand. A vector that grows takes up to twice what it needs, and room for four
        // entries from the first one on.
        let strings = limits.string_bytes_max.max(table_bytes_max).saturating_add(1).saturating_mul(2);
        let bytes = limits.list_bytes_max.saturating_add(strings).saturating_mul(2);
        let fields = limits.fields_max.min(limits.list_bytes_max / FIELD_OVERHEAD_BYTES);
        bytes.saturating_add((2 * fields).max(4) * size_of::<Entry>())
    }

    /// Empties the list and gives its memory back if it is more than `memory_bytes`, so that a rare large list is not paid
    /// for ever after.
    pub fn clear_down_to(&mut self, memory_bytes: usize) {
        self.clear();
        if self.memory_bytes() > memory_bytes {
            *self = Self::new();
        }
    }

    /// Whether a further field with strings of so many bytes stays within `limits`; if not, sets the overflow.
    #[inline]
    pub(crate) fn admits(&mut self, name_bytes: usize, value_bytes: usize, limits: &DecodeLimits) -> bool {
        if self.overflow.is_some() {
            return self.cut(name_bytes.saturating_add(value_bytes));
        }
        let size = name_bytes.saturating_add(value_bytes).saturating_add(self.size + FIELD_OVERHEAD_BYTES);
        if name_bytes.max(value_bytes) > limits.string_bytes_max {
            self.overflow = Some(Overflow::String);
        } else if self.entries.len() >= limits.fields_max {
            self.overflow = Some(Overflow::Fields);
        } else if size > limits.list_bytes_max.min(SIZE_MAX) {
            self.overflow = Some(Overflow::ListBytes);
        }
        self.overflow.is_none() || self.cut(name_bytes.saturating_add(value_bytes))
    }

    /// A field has a string that is longer than allowed, and so many bytes at least.
    pub(crate) fn cut_long_string(&mut self, bytes_min: usize) {
        self.overflow.get_or_insert(Overflow::String);
        self.cut(bytes_min);
    }

    /// Counts a field that is not kept; false, as it is not.
    fn cut(&mut self, string_bytes: usize) -> bool {
        self.cut_bytes = self.cut_bytes.saturating_add(string_bytes).saturating_add(FIELD_OVERHEAD_BYTES);
        false
    }

    /// Where the strings of the next field are appended before [`commit`](Self::commit).
    pub(crate) fn tail_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes appended since the last field.
    pub(crate) fn tail(&self) -> &[u8] {
        self.bytes.get(self.committed()..).unwrap_or_default()
    }

    pub(crate) fn discard_tail(&mut self) {
        self.bytes.truncate(self.committed());
    }

    /// Makes a field of the tail, whose first `name_bytes` are the name. The caller has asked [`admits`](Self::admits).
    #[inline]
    pub(crate) fn commit(&mut self, name_bytes: usize, indexing: Indexing) {
        let start = self.committed();
        let value_bytes = self.bytes.len() - start - name_bytes;
        self.size += name_bytes + value_bytes + FIELD_OVERHEAD_BYTES;
        self.entries.push(Entry {
            start: start as u32,
            name_bytes: name_bytes as u32,
            value_bytes: value_bytes as u32,
            indexing,
        });
    }

    /// End of the last field in the arena.
    fn committed(&self) -> usize {
        self.size - self.entries.len() * FIELD_OVERHEAD_BYTES
    }
}

impl fmt::Debug for FieldList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a FieldList {
    type Item = Field<'a>;
    type IntoIter = Fields<'a>;

    fn into_iter(self) -> Fields<'a> {
        self.iter()
    }
}

impl<'a> Extend<Field<'a>> for FieldList {
    fn extend<T: IntoIterator<Item = Field<'a>>>(&mut self, fields: T) {
        fields.into_iter().for_each(|field| self.push(field));
    }
}

/// Iterator over the fields of a [`FieldList`].
#[derive(Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    entries: std::slice::Iter<'a, Entry>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        self.entries.next().map(|entry| entry.field(self.bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_> {}

impl Entry {
    fn field<'a>(&self, bytes: &'a [u8]) -> Field<'a> {
        let strings = bytes.get(self.start as usize..).unwrap_or_default();
        let (name, rest) = strings.split_at(self.name_bytes as usize);
        Field { name, value: &rest[..self.value_bytes as usize], indexing: self.indexing }
    }
}
