use crate::dynamic_table::{DynamicTable, entries_max};
use crate::hash::{combine, hash};

/// Finds entries of an encoder's dynamic table by hash: the newest one with a name and value, and the newest one with a name.
///
/// Each bucket names the newest entry of its chain, and each entry the next older one, by their numbers in the order of
/// insertion. An entry that was evicted is recognised by its number, so eviction needs no work here. A number can come up
/// again after 2^32 insertions; then a search may follow a wrong chain for a few steps, and the comparison of the bytes refuses
/// what it finds there.
#[derive(Default)]
pub(crate) struct MatchIndex {
    /// As many as `links`: a power of two, or none.
    buckets: Vec<Bucket>,
    /// Of the entry with number `n` at position `n` modulo their count.
    links: Vec<Link>,
    /// The number of the newest entry.
    newest: u32,
}

/// The hashes of a field.
#[derive(Copy, Clone, Default)]
pub(crate) struct FieldHash {
    /// Of name and value.
    pub(crate) field: u32,
    /// Of the name.
    pub(crate) name: u32,
}

impl FieldHash {
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Self {
        Self::with_name(hash(name), value)
    }

    /// Of a field whose name has this hash.
    #[inline]
    pub(crate) fn with_name(name_hash: u64, value: &[u8]) -> Self {
        Self { field: combine(name_hash, hash(value)) as u32, name: name_hash as u32 }
    }
}

/// Number of the newest entry in each of the two chains.
#[derive(Copy, Clone, Default)]
struct Bucket {
    by_field: u32,
    by_name: u32,
}

#[derive(Copy, Clone, Default)]
struct Link {
    hash: FieldHash,
    /// What the buckets held before this entry.
    older: Bucket,
}

/// Buckets that the first entry takes memory for.
const BUCKETS_MIN: usize = 4;

/// Entries that a search looks at before it gives up: a peer that makes hashes collide costs compression, not time.
const SEARCH_STEPS_MAX: u32 = 16;

impl MatchIndex {
    /// The age in `table` of the newest entry with this name and value.
    #[inline]
    pub(crate) fn find_field(
        &self,
        table: &DynamicTable,
        hash: FieldHash,
        name: &[u8],
        value: &[u8],
    ) -> Option<usize> {
        let first = self.buckets.get(self.slot(hash.field))?.by_field;
        self.search(
            table,
            first,
            |link| link.older.by_field,
            |link, age| {
                link.hash.field == hash.field && table.get(age).is_some_and(|entry| entry.is(name, value))
            },
        )
    }

    /// The age in `table` of the newest entry with this name.
    pub(crate) fn find_name(&self, table: &DynamicTable, hash: FieldHash, name: &[u8]) -> Option<usize> {
        let first = self.buckets.get(self.slot(hash.name))?.by_name;
        self.search(
            table,
            first,
            |link| link.older.by_name,
            |link, age| {
                link.hash.name == hash.name && table.get(age).is_some_and(|entry| entry.has_name(name))
            },
        )
    }

    /// Notes the entry that has just been inserted in `table`.
    pub(crate) fn on_insert(&mut self, table: &DynamicTable, hash: FieldHash) {
        self.newest = self.newest.wrapping_add(1);
        if table.len() > self.links.len() {
            self.grow(table.len());
        }
        self.link(self.newest, hash);
    }

    /// Gives the memory back; the table is empty.
    pub(crate) fn clear(&mut self) {
        self.buckets = Vec::new();
        self.links = Vec::new();
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>() + self.links.capacity() * size_of::<Link>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to for a table of at most this size.
    pub(crate) fn memory_bytes_max(size_max: usize) -> usize {
        let count = entries_max(size_max).next_power_of_two().max(BUCKETS_MIN);
        count * (size_of::<Bucket>() + size_of::<Link>())
    }

    #[inline]
    fn search(
        &self,
        table: &DynamicTable,
        first: u32,
        older: impl Fn(&Link) -> u32,
        matches: impl Fn(&Link, usize) -> bool,
    ) -> Option<usize> {
        let mut number = first;
        for _ in 0..SEARCH_STEPS_MAX {
            let age = self.newest.wrapping_sub(number) as usize;
            if age >= table.len() {
                return None;
            }
            let link = self.links.get(self.slot(number))?;
            if matches(link, age) {
                return Some(age);
            }
            number = older(link);
        }
        None
    }

    /// Puts an entry at the head of its chains.
    fn link(&mut self, number: u32, hash: FieldHash) {
        let (by_field, by_name) = (self.slot(hash.field), self.slot(hash.name));
        let older = Bucket {
            by_field: std::mem::replace(&mut self.buckets[by_field].by_field, number),
            by_name: std::mem::replace(&mut self.buckets[by_name].by_name, number),
        };
        let position = self.slot(number);
        self.links[position] = Link { hash, older };
    }

    /// Makes room for `entries` entries, and links those of the table again, save the newest one.
    #[cold]
    fn grow(&mut self, entries: usize) {
        let count = entries.next_power_of_two().max(BUCKETS_MIN);
        let links = std::mem::replace(&mut self.links, vec![Link::default(); count]);
        // A number older than every entry.
        let none = self.newest.wrapping_sub(u32::MAX / 2);
        self.buckets = vec![Bucket { by_field: none, by_name: none }; count];
        for age in (1..entries as u32).rev() {
            let number = self.newest.wrapping_sub(age);
            let hash = links[number as usize & (links.len() - 1)].hash;
            self.link(number, hash);
        }
    }

    fn slot(&self, hash_or_number: u32) -> usize {
        hash_or_number as usize & self.links.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests;
