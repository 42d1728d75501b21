//! What was made of header sections that a peer sends again and again.

use std::sync::Arc;

use fulmar_http2::KnownSection;

use crate::metadata::MetadataMap;

/// For each header section that the connection knows, what was read from it, so that it need not be read again.
#[derive(Debug)]
pub(crate) struct Readings<T> {
    slots: Vec<Option<Reading<T>>>,
}

/// Sections whose metadata takes more are read each time: values may be split into many when they are read.
const METADATA_BYTES_MAX: usize = 2 * KnownSection::LIST_BYTES_MAX;

#[derive(Debug)]
struct Reading<T> {
    serial: u64,
    said: T,
    /// Calls that begin with it share it.
    metadata: Arc<MetadataMap>,
}

impl<T> Readings<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    /// What the section says, if it was read before; its metadata is copied into `metadata`.
    #[inline]
    pub(crate) fn get(&self, section: KnownSection, metadata: &mut MetadataMap) -> Option<&T> {
        let reading = self.slots.get(section.slot)?.as_ref()?;
        if reading.serial != section.serial {
            return None;
        }
        metadata.copy_from(&reading.metadata);
        Some(&reading.said)
    }

    /// What the section says and its metadata, if it was read before.
    #[inline]
    pub(crate) fn share(&self, section: KnownSection) -> Option<(&T, &Arc<MetadataMap>)> {
        let reading = self.slots.get(section.slot)?.as_ref()?;
        (reading.serial == section.serial).then_some((&reading.said, &reading.metadata))
    }

    /// What the section says, if it was read before and has no metadata.
    #[inline]
    pub(crate) fn peek(&self, section: KnownSection) -> Option<&T> {
        let reading = self.slots.get(section.slot)?.as_ref()?;
        (reading.serial == section.serial && reading.metadata.is_empty()).then_some(&reading.said)
    }

    /// Keeps what was read from a section.
    pub(crate) fn keep(&mut self, section: KnownSection, said: T, metadata: &MetadataMap) {
        if metadata.list_bytes() > METADATA_BYTES_MAX {
            return;
        }
        if self.slots.len() <= section.slot {
            self.slots.resize_with(section.slot + 1, || None);
        }
        let Some(slot) = self.slots.get_mut(section.slot) else { return };
        let mut copy = slot.take().map(|reading| reading.metadata).unwrap_or_default();
        match Arc::get_mut(&mut copy) {
            Some(copy) => copy.copy_from(metadata),
            None => copy = Arc::new(metadata.clone()),
        }
        *slot = Some(Reading { serial: section.serial, said, metadata: copy });
    }

    /// Bytes of memory held, without texts in `T`, which are a part of the section.
    pub(crate) fn memory_bytes(&self) -> usize {
        let each = |reading: &Reading<T>| size_of::<MetadataMap>() + reading.metadata.memory_bytes();
        self.slots.capacity() * size_of::<Option<Reading<T>>>()
            + self.slots.iter().flatten().map(each).sum::<usize>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to.
    pub(crate) fn memory_bytes_max() -> usize {
        // Twice, since memory that grows takes up to twice what it needs. An entry takes less than it counts in a list.
        let each = size_of::<Option<Reading<T>>>()
            + size_of::<MetadataMap>()
            + METADATA_BYTES_MAX
            + KnownSection::LIST_BYTES_MAX;
        2 * KnownSection::SLOTS * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_answers_to_its_serial_only_and_brings_its_metadata() {
        let mut readings = Readings::new();
        let mut metadata = MetadataMap::new();
        metadata.append("x", "1").expect("legal");
        let section = KnownSection { slot: 3, serial: 9 };
        readings.keep(section, "nine", &metadata);

        let mut into = MetadataMap::new();
        assert_eq!(readings.get(section, &mut into), Some(&"nine"));
        let shared = readings.share(section).map(|(said, metadata)| (*said, metadata.get("x")));
        assert_eq!(shared, Some(("nine", Some("1"))));
        assert!(readings.share(KnownSection { slot: 3, serial: 10 }).is_none());
        assert_eq!(into.get("x"), Some("1"));
        assert_eq!(readings.peek(section), None, "it has metadata");
        let bare = KnownSection { slot: 1, serial: 11 };
        readings.keep(bare, "eleven", MetadataMap::EMPTY);
        assert_eq!(readings.peek(bare), Some(&"eleven"));
        assert_eq!(readings.peek(KnownSection { slot: 1, serial: 12 }), None);
        assert_eq!(readings.get(KnownSection { slot: 3, serial: 10 }, &mut into), None);
        assert_eq!(readings.get(KnownSection { slot: 2, serial: 9 }, &mut into), None);
        assert_eq!(readings.get(KnownSection { slot: 4, serial: 9 }, &mut into), None);
        assert!(readings.memory_bytes() <= Readings::<&str>::memory_bytes_max());
    }
}
