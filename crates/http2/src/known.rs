//! Header sections that the peer sends again and again, byte for byte. While the compression table does not change, equal blocks
//! are equal sections, so that those are neither decoded nor checked again.

use fulmar_hpack::FieldList;

/// How many sections are kept.
const SECTIONS_MAX: usize = 16;

/// What is kept of one at most: its block, its fields, and their number.
const BLOCK_BYTES_MAX: usize = 128;
const LIST_BYTES_MAX: usize = 1024;

/// Which of the known sections the section in hand is, for an upper layer that keeps what it made of it: the same number means the
/// same fields.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct KnownSection {
    /// Less than [`KnownSection::SLOTS`].
    pub slot: usize,
    /// Never the same for different sections of a connection.
    pub serial: u64,
}

impl KnownSection {
    /// How many sections are known at a time, at most.
    pub const SLOTS: usize = SECTIONS_MAX;

    /// The largest list of a known section, in bytes (RFC 9113 §6.5.2).
    pub const LIST_BYTES_MAX: usize = LIST_BYTES_MAX;
}

/// What a section was found to be when it was checked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Request,
    /// The headers of a final response with content and without content-length.
    Response,
    Trailers,
}

/// The sections, and which blocks were seen once.
#[derive(Default)]
pub(crate) struct KnownSections {
    slots: Vec<Slot>,
    /// The slot of the section of each kind that came last: mostly the next one is the same.
    recent: [u8; 3],
    /// The slot to be used next when all are in use.
    next: u8,
    serial: u64,
    /// Of blocks that were seen once, the latest for each of some places: what is sent once is not kept.
    seen: [(u32, u64); 8],
}

struct Slot {
    hash: u32,
    kind: Kind,
    /// Of the decoder's table when the block was decoded.
    version: u64,
    serial: u64,
    /// What a request announces.
    content_length: Option<u64>,
    block: Vec<u8>,
    fields: FieldList,
}

impl Slot {
    #[inline]
    fn is(&self, block: &[u8], version: u64, kind: Kind) -> bool {
        self.version == version && self.kind == kind && self.block == block
    }
}

impl KnownSections {
    /// The section that this block is, if it is known under this version of the table as one of this kind.
    #[inline(always)]
    pub(crate) fn find(&mut self, block: &[u8], version: u64, kind: Kind) -> Option<KnownSection> {
        let slot = usize::from(self.recent[kind as usize]);
        match self.slots.get(slot) {
            Some(recent) if recent.is(block, version, kind) => {
                Some(KnownSection { slot, serial: recent.serial })
            }
            _ => self.search(block, version, kind),
        }
    }

    #[inline(never)]
    fn search(&mut self, block: &[u8], version: u64, kind: Kind) -> Option<KnownSection> {
        // Longer ones are never kept.
        if block.len() > BLOCK_BYTES_MAX {
            return None;
        }
        let hash = hash(block);
        let slot = self.slots.iter().position(|slot| slot.hash == hash && slot.is(block, version, kind))?;
        self.recent[kind as usize] = slot as u8;
        Some(KnownSection { slot, serial: self.slots[slot].serial })
    }

    pub(crate) fn fields(&self, known: KnownSection) -> Option<&FieldList> {
        self.slots.get(known.slot).map(|slot| &slot.fields)
    }

    /// How much content a known request announces.
    #[inline]
    pub(crate) fn content_length(&self, known: KnownSection) -> Option<u64> {
        self.slots.get(known.slot)?.content_length
    }

    /// Whether a section that was decoded is worth keeping: it is small, and its block was seen under this version before. Takes note
    /// that it was seen now.
    pub(crate) fn comes_again(&mut self, block: &[u8], version: u64, fields: &FieldList) -> bool {
        if block.len() > BLOCK_BYTES_MAX || fields.size() > LIST_BYTES_MAX || fields.overflow().is_some() {
            return false;
        }
        let hash = hash(block);
        let seen = &mut self.seen[hash as usize % 8];
        std::mem::replace(seen, (hash, version)) == (hash, version)
    }

    /// Keeps a section that [`comes_again`](Self::comes_again), and was found to be of this kind; `content_length` is of a request.
    pub(crate) fn keep(
        &mut self,
        block: &[u8],
        version: u64,
        (kind, content_length): (Kind, Option<u64>),
        fields: &FieldList,
    ) {
        let hash = hash(block);
        let slot = self.vacant(version);
        self.serial += 1;
        let slot = &mut self.slots[slot];
        slot.block.clear();
        slot.block.extend_from_slice(block);
        slot.fields.clear();
        slot.fields.extend(fields.iter());
        (slot.hash, slot.kind, slot.version, slot.serial) = (hash, kind, version, self.serial);
        slot.content_length = content_length;
    }

    /// Knows no section any more, and keeps the memory for those of another connection. Serials go on.
    pub(crate) fn forget(&mut self) {
        // No version of a decoder's table.
        self.slots.iter_mut().for_each(|slot| slot.version = 0);
        self.seen = Default::default();
    }

    /// Forgets all of it, and gives the memory back.
    pub(crate) fn clear(&mut self) {
        self.slots = Vec::new();
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let each = |slot: &Slot| slot.block.capacity() + slot.fields.memory_bytes();
        self.slots.capacity() * size_of::<Slot>() + self.slots.iter().map(each).sum::<usize>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to: vectors that grow take up to twice what they need.
    pub(crate) fn memory_bytes_max() -> usize {
        let limits = fulmar_hpack::DecodeLimits {
            list_bytes_max: LIST_BYTES_MAX,
            fields_max: LIST_BYTES_MAX / fulmar_hpack::FIELD_OVERHEAD_BYTES,
            string_bytes_max: 0,
        };
        let each = 2 * BLOCK_BYTES_MAX + FieldList::memory_bytes_max(&limits, 0);
        SECTIONS_MAX * (2 * size_of::<Slot>() + each)
    }

    /// A slot for another section: a new one, one whose version is gone, or each in turn.
    fn vacant(&mut self, version: u64) -> usize {
        if let Some(slot) = self.slots.iter().position(|slot| slot.version != version) {
            return slot;
        }
        if self.slots.len() < SECTIONS_MAX {
            self.slots.push(Slot {
                hash: 0,
                kind: Kind::Trailers,
                version: 0,
                serial: 0,
                content_length: None,
                block: Vec::new(),
                fields: FieldList::new(),
            });
            return self.slots.len() - 1;
        }
        self.next = (self.next + 1) % SECTIONS_MAX as u8;
        self.next.into()
    }
}

/// Tells most blocks apart; they are compared all the same.
#[inline]
fn hash(block: &[u8]) -> u32 {
    let mut hash = block.len() as u32;
    let (chunks, rest) = block.as_chunks::<4>();
    for chunk in chunks {
        hash = (hash ^ u32::from_le_bytes(*chunk)).wrapping_mul(0x9e37_79b1).rotate_left(13);
    }
    for &byte in rest {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x9e37_79b1).rotate_left(13);
    }
    hash
}

#[cfg(test)]
mod tests {
    use fulmar_hpack::Field;

    use super::*;

    /// What the connection does with each section that is not known.
    fn note(known: &mut KnownSections, block: &[u8], version: u64, kind: Kind, fields: &FieldList) {
        if known.comes_again(block, version, fields) {
            known.keep(block, version, (kind, None), fields);
        }
    }

    fn list(value: &[u8]) -> FieldList {
        let mut list = FieldList::new();
        list.push(Field::new(b"x", value));
        list
    }

    #[test]
    fn a_section_is_known_from_its_second_time_on_while_the_table_stays() {
        let mut known = KnownSections::default();
        let fields = list(b"1");
        note(&mut known, &[0xbe], 7, Kind::Request, &fields);
        assert_eq!(known.find(&[0xbe], 7, Kind::Request), None);
        note(&mut known, &[0xbe], 7, Kind::Request, &fields);
        let found = known.find(&[0xbe], 7, Kind::Request).expect("seen twice");
        assert_eq!(
            known.fields(found).and_then(|fields| fields.get(0)).map(|field| field.value),
            Some(&b"1"[..])
        );
        assert_eq!(known.find(&[0xbe], 8, Kind::Request), None, "the table has changed");
        assert_eq!(known.find(&[0xbe], 7, Kind::Trailers), None, "it was not checked as trailers");
        assert_eq!(known.find(&[0xbf], 7, Kind::Request), None);
    }

    #[test]
    fn what_takes_much_memory_is_not_kept_and_serials_never_come_again() {
        let mut known = KnownSections::default();
        let mut serials = Vec::new();
        for round in 0..2_000u32 {
            let block = round.to_be_bytes();
            for _ in 0..2 {
                note(&mut known, &block, 1, Kind::Request, &list(&[b'v'; 900]));
            }
            serials.extend(known.find(&block, 1, Kind::Request).map(|found| found.serial));
            note(&mut known, &[7; 129], 1, Kind::Request, &list(b"1"));
            note(&mut known, &[7; 100], 1, Kind::Request, &list(&[b'v'; 1_000]));
        }
        assert_eq!(known.find(&[7; 129], 1, Kind::Request), None);
        assert_eq!(known.find(&[7; 100], 1, Kind::Request), None);
        assert_eq!(serials.len(), 2_000);
        assert!(serials.is_sorted_by(|a, b| a < b));
        assert!(known.memory_bytes() <= KnownSections::memory_bytes_max(), "{}", known.memory_bytes());
        let kept = known.memory_bytes();
        assert!(kept > 16 * 900, "all slots are in use: {kept}");
    }
}
