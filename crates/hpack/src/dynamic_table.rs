use crate::{FIELD_OVERHEAD_BYTES, TABLE_BYTES_MAX};
use std::collections::VecDeque;

/// Bytes that the first entry of a table takes memory for.
const CAPACITY_MIN: usize = 64;

/// A dynamic table (RFC 7541 §2.3.2): a ring of bytes with the names and values, oldest first, and a ring of their lengths.
///
/// Both grow with what they hold, up to the maximum size rounded up to a power of two; an unused table has no memory.
#[derive(Default)]
pub(crate) struct DynamicTable {
    /// The length is zero or a power of two.
    ring: Vec<u8>,
    /// Where the oldest entry begins in the ring.
    head: usize,
    /// Bytes of the ring in use.
    used: usize,
    /// Oldest first.
    entries: VecDeque<Entry>,
    size_max: usize,
}

#[derive(Copy, Clone)]
struct Entry {
    /// Position in the ring; name and value follow one another, and may go on at the ring's start.
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
}

/// An entry of a table, as it lies in the ring.
#[derive(Copy, Clone)]
pub(crate) struct EntryView<'t> {
    ring: &'t [u8],
    entry: Entry,
}

impl DynamicTable {
    pub(crate) fn new(size_max: usize) -> Self {
        Self { size_max: size_max.min(TABLE_BYTES_MAX), ..Self::default() }
    }

    /// The maximum size in bytes (RFC 7541 §4.2).
    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// The size in bytes, the overhead of each entry included (RFC 7541 §4.1).
    pub(crate) fn size(&self) -> usize {
        self.used + self.entries.len() * FIELD_OVERHEAD_BYTES
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes the maximum size and evicts what does not fit (RFC 7541 §4.3).
    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        let lowered = size_max < self.size_max;
        self.size_max = size_max.min(TABLE_BYTES_MAX);
        self.evict_down_to(self.size_max);
        if lowered && self.ring.len() > ring_bytes_max(self.size_max) {
            self.move_to_ring_of(ring_bytes_max(self.size_max));
            self.entries.shrink_to_fit();
        }
    }

    /// The entry of this age: 0 is the newest, which has index 62 on the wire.
    #[inline]
    pub(crate) fn get(&self, age: usize) -> Option<EntryView<'_>> {
        let position = self.entries.len().checked_sub(1)?.checked_sub(age)?;
        Some(EntryView { ring: &self.ring, entry: *self.entries.get(position)? })
    }

    /// All entries.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = EntryView<'_>> {
        self.entries.iter().map(|&entry| EntryView { ring: &self.ring, entry })
    }

    /// Whether an entry of this size can be in the table at all.
    pub(crate) fn has_room_for(&self, name: &[u8], value: &[u8]) -> bool {
        name.len().saturating_add(value.len()).saturating_add(FIELD_OVERHEAD_BYTES) <= self.size_max
    }

    /// Adds an entry, and evicts old ones to make room for it; one that is larger than the table just empties it
    /// (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len().saturating_add(value.len());
        let Some(size_left) = self.size_max.checked_sub(bytes.saturating_add(FIELD_OVERHEAD_BYTES)) else {
            return self.clear();
        };
        self.evict_down_to(size_left);
        if self.used + bytes > self.ring.len() {
            self.move_to_ring_of((self.used + bytes).next_power_of_two().max(CAPACITY_MIN));
        }
        let start = self.wrap(self.head + self.used);
        self.write(start, name);
        self.write(self.wrap(start + name.len()), value);
        self.used += bytes;
        self.entries.push_back(Entry {
            start: start as u32,
            name_bytes: name.len() as u32,
            value_bytes: value.len() as u32,
        });
    }

    /// Evicts every entry.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.used = 0;
    }

    /// Bytes of memory held, used or not.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to while the maximum size is at most `size_max`.
    pub(crate) fn memory_bytes_max(size_max: usize) -> usize {
        // A vector that grows takes up to twice what it needs, and room for four from the first one on.
        let entries = match entries_max(size_max) {
            0 => 0,
            entries => (2 * entries).max(4),
        };
        ring_bytes_max(size_max) + entries * size_of::<Entry>()
    }

    fn evict_down_to(&mut self, size: usize) {
        while self.size() > size {
            let Some(oldest) = self.entries.pop_front() else { return };
            let bytes = oldest.name_bytes as usize + oldest.value_bytes as usize;
            self.head = self.wrap(self.head + bytes);
            self.used -= bytes;
        }
    }

    /// Moves everything to the start of a new ring, of a power of two of bytes or none.
    fn move_to_ring_of(&mut self, capacity: usize) {
        let mut ring = Vec::with_capacity(capacity);
        let (first, second) = parts(&self.ring, self.head, self.used);
        ring.extend_from_slice(first);
        ring.extend_from_slice(second);
        ring.resize(capacity, 0);
        self.ring = ring;
        self.head = 0;
        let mut start = 0;
        for entry in &mut self.entries {
            entry.start = start;
            start += entry.name_bytes + entry.value_bytes;
        }
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        let (first, second) = bytes.split_at(bytes.len().min(self.ring.len() - start));
        self.ring[start..start + first.len()].copy_from_slice(first);
        self.ring[..second.len()].copy_from_slice(second);
    }

    fn wrap(&self, position: usize) -> usize {
        position & self.ring.len().wrapping_sub(1)
    }
}

impl EntryView<'_> {
    pub(crate) fn name_bytes(&self) -> usize {
        self.entry.name_bytes as usize
    }

    pub(crate) fn value_bytes(&self) -> usize {
        self.entry.value_bytes as usize
    }

    pub(crate) fn append_name_to(&self, out: &mut Vec<u8>) {
        self.append_first_to(self.name_bytes(), out);
    }

    /// Name and value, one behind the other.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        self.append_first_to(self.name_bytes() + self.value_bytes(), out);
    }

    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        name.len() == self.name_bytes() && self.equals_at(0, name)
    }

    /// Whether these are its name and value.
    #[inline]
    pub(crate) fn is(&self, name: &[u8], value: &[u8]) -> bool {
        if name.len() != self.name_bytes() || value.len() != self.value_bytes() {
            return false;
        }
        let start = self.entry.start as usize;
        match self.ring.get(start..start + name.len() + value.len()) {
            Some(strings) => {
                let (own_name, own_value) = strings.split_at(name.len());
                own_name == name && own_value == value
            }
            None => self.equals_at(0, name) && self.equals_at(name.len(), value),
        }
    }

    #[inline]
    fn append_first_to(&self, bytes: usize, out: &mut Vec<u8>) {
        let (first, second) = parts(self.ring, self.entry.start as usize, bytes);
        out.extend_from_slice(first);
        if !second.is_empty() {
            out.extend_from_slice(second);
        }
    }

    fn equals_at(&self, offset: usize, bytes: &[u8]) -> bool {
        let start = (self.entry.start as usize + offset) & self.ring.len().wrapping_sub(1);
        let (first, second) = parts(self.ring, start, bytes.len());
        let (head, tail) = bytes.split_at(first.len());
        head == first && tail == second
    }
}

/// The largest number of entries in a table of this maximum size.
pub(crate) fn entries_max(size_max: usize) -> usize {
    size_max.min(TABLE_BYTES_MAX) / FIELD_OVERHEAD_BYTES
}

/// The most memory that the ring of a table of this maximum size needs.
fn ring_bytes_max(size_max: usize) -> usize {
    match size_max.min(TABLE_BYTES_MAX) {
        0..=FIELD_OVERHEAD_BYTES => 0,
        size_max => size_max.next_power_of_two().max(CAPACITY_MIN),
    }
}

/// The `bytes` bytes of the ring from `start` on: up to its end, and those that go on at its start.
fn parts(ring: &[u8], start: usize, bytes: usize) -> (&[u8], &[u8]) {
    let first = bytes.min(ring.len() - start);
    (&ring[start..start + first], &ring[..bytes - first])
}

#[cfg(test)]
mod tests;
