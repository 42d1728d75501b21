//! The static table (RFC 7541 Appendix A).

use crate::Field;
use crate::hash::hash;

/// Number of entries; the dynamic table's indices begin behind it (RFC 7541 §2.3.3).
pub(crate) const STATIC_COUNT: usize = 61;

/// A name that the static table has, in one entry or in several that follow one another.
#[derive(Copy, Clone)]
pub(crate) struct StaticName {
    /// Index of the first entry; 0 in an empty slot.
    first: u8,
    /// Number of entries.
    count: u8,
}

/// The entry with this index, counted from 1.
#[inline]
pub(crate) fn get(index: usize) -> Option<&'static Field<'static>> {
    ENTRIES.get(index.wrapping_sub(1))
}

/// Finds a name by its [`hash`].
#[inline]
pub(crate) fn find_name(name: &[u8], name_hash: u64) -> Option<StaticName> {
    let mut slot = name_hash as usize % SLOT_COUNT;
    loop {
        let found = SLOTS[slot];
        // More than half of the slots are empty, so the search ends.
        if get(found.index())?.name == name {
            return Some(found);
        }
        slot = (slot + 1) % SLOT_COUNT;
    }
}

impl StaticName {
    /// The index of the first entry with this name.
    pub(crate) fn index(self) -> usize {
        self.first.into()
    }

    /// The index of the entry with this name and `value`.
    #[inline]
    pub(crate) fn with_value(self, value: &[u8]) -> Option<usize> {
        let first = self.index();
        (first..first + usize::from(self.count))
            .find(|index| get(*index).is_some_and(|entry| entry.value == value))
    }
}

/// Slots of the index by name; a power of two, at least twice the number of names.
const SLOT_COUNT: usize = 128;

/// Open addressing by the hash of the name.
static SLOTS: [StaticName; SLOT_COUNT] = slots();

const fn slots() -> [StaticName; SLOT_COUNT] {
    let mut slots = [StaticName { first: 0, count: 0 }; SLOT_COUNT];
    let mut position = 0;
    let mut slot = 0;
    while position < STATIC_COUNT {
        let name = ENTRIES[position].name;
        if position == 0 || !equal(ENTRIES[position - 1].name, name) {
            slot = hash(name) as usize % SLOT_COUNT;
            while slots[slot].count != 0 {
                slot = (slot + 1) % SLOT_COUNT;
            }
            slots[slot].first = position as u8 + 1;
        }
        slots[slot].count += 1;
        position += 1;
    }
    slots
}

/// `==` for slices in a `const fn`.
const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut position = 0;
    while position < a.len() {
        if a[position] != b[position] {
            return false;
        }
        position += 1;
    }
    true
}

static ENTRIES: [Field<'static>; STATIC_COUNT] = [
    Field::new(b":authority", b""),
    Field::new(b":method", b"GET"),
    Field::new(b":method", b"POST"),
    Field::new(b":path", b"/"),
    Field::new(b":path", b"/index.html"),
    Field::new(b":scheme", b"http"),
    Field::new(b":scheme", b"https"),
    Field::new(b":status", b"200"),
    Field::new(b":status", b"204"),
    Field::new(b":status", b"206"),
    Field::new(b":status", b"304"),
    Field::new(b":status", b"400"),
    Field::new(b":status", b"404"),
    Field::new(b":status", b"500"),
    Field::new(b"accept-charset", b""),
    Field::new(b"accept-encoding", b"gzip, deflate"),
    Field::new(b"accept-language", b""),
    Field::new(b"accept-ranges", b""),
    Field::new(b"accept", b""),
    Field::new(b"access-control-allow-origin", b""),
    Field::new(b"age", b""),
    Field::new(b"allow", b""),
    Field::new(b"authorization", b""),
    Field::new(b"cache-control", b""),
    Field::new(b"content-disposition", b""),
    Field::new(b"content-encoding", b""),
    Field::new(b"content-language", b""),
    Field::new(b"content-length", b""),
    Field::new(b"content-location", b""),
    Field::new(b"content-range", b""),
    Field::new(b"content-type", b""),
    Field::new(b"cookie", b""),
    Field::new(b"date", b""),
    Field::new(b"etag", b""),
    Field::new(b"expect", b""),
    Field::new(b"expires", b""),
    Field::new(b"from", b""),
    Field::new(b"host", b""),
    Field::new(b"if-match", b""),
    Field::new(b"if-modified-since", b""),
    Field::new(b"if-none-match", b""),
    Field::new(b"if-range", b""),
    Field::new(b"if-unmodified-since", b""),
    Field::new(b"last-modified", b""),
    Field::new(b"link", b""),
    Field::new(b"location", b""),
    Field::new(b"max-forwards", b""),
    Field::new(b"proxy-authenticate", b""),
    Field::new(b"proxy-authorization", b""),
    Field::new(b"range", b""),
    Field::new(b"referer", b""),
    Field::new(b"refresh", b""),
    Field::new(b"retry-after", b""),
    Field::new(b"server", b""),
    Field::new(b"set-cookie", b""),
    Field::new(b"strict-transport-security", b""),
    Field::new(b"transfer-encoding", b""),
    Field::new(b"user-agent", b""),
    Field::new(b"vary", b""),
    Field::new(b"via", b""),
    Field::new(b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::{ENTRIES, find_name, get};
    use crate::hash::hash;

    #[test]
    fn every_entry_is_found_by_name_and_value() {
        for (position, entry) in ENTRIES.iter().enumerate() {
            let index = position + 1;
            assert_eq!(get(index), Some(entry));
            let name = find_name(entry.name, hash(entry.name)).unwrap();
            assert_eq!(get(name.index()).map(|first| first.name), Some(entry.name));
            assert!(name.index() == 1 || get(name.index() - 1).map(|before| before.name) != Some(entry.name));
            assert_eq!(name.with_value(entry.value), Some(index));
            assert_eq!(name.with_value(b"another value"), None);
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_not_found() {
        assert_eq!((get(0), get(62), get(usize::MAX)), (None, None, None));
        for name in [&b""[..], b"te", b":statu", b":status2", b"grpc-timeout"] {
            assert!(find_name(name, hash(name)).is_none());
            // Whatever the hash says.
            assert!((0..128).all(|slot| find_name(name, slot).is_none()));
        }
    }
}
