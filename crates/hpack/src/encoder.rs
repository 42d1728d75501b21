use crate::dynamic_table::DynamicTable;
use crate::hash::hash;
use crate::match_index::{FieldHash, MatchIndex};
use crate::static_table::{self, STATIC_COUNT, StaticName};
use crate::template::TEMPLATE_BYTES_MAX;
use crate::{Field, Indexing, TABLE_BYTES_INITIAL, TABLE_BYTES_MAX, Template, huffman, integer};

/// Encodes the header blocks that leave on one connection, in their order.
///
/// A field that is in a table is sent as its index; else its name is, if that is in a table. Strings are Huffman encoded where
/// that makes them shorter. A field larger than the dynamic table does not enter it.
///
/// Memory grows with what the table holds, up to [`memory_bytes_max`](Self::memory_bytes_max).
pub struct Encoder {
    pub(crate) table: DynamicTable,
    pub(crate) index: MatchIndex,
    /// What this end wants to spend on the table, in bytes.
    pub(crate) table_bytes_max: usize,
    /// What the peer allows the table to be, in bytes.
    pub(crate) peer_table_bytes_max: usize,
    /// The least that the table was allowed to be since the last block, where that is below what the peer believes.
    pub(crate) smallest_pending: Option<usize>,
    /// Counts the changes of the table, from 1 on: what was encoded under a version is the same bytes as long as it lasts.
    pub(crate) version: u64,
}

impl Encoder {
    /// An encoder whose table has at most `table_bytes_max` bytes, and before the peer's SETTINGS arrive at most
    /// [`TABLE_BYTES_INITIAL`].
    pub fn new(table_bytes_max: usize) -> Self {
        let mut encoder = Self {
            table: DynamicTable::new(TABLE_BYTES_INITIAL),
            index: MatchIndex::default(),
            table_bytes_max: table_bytes_max.min(TABLE_BYTES_MAX),
            peer_table_bytes_max: TABLE_BYTES_INITIAL,
            smallest_pending: None,
            version: 1,
        };
        encoder.note_smallest();
        encoder
    }

    /// Takes over the SETTINGS_HEADER_TABLE_SIZE that the peer has sent, in bytes. The next block tells the peer what
    /// changes (RFC 7541 §4.2).
    pub fn set_peer_table_bytes_max(&mut self, peer_table_bytes_max: usize) {
        self.peer_table_bytes_max = peer_table_bytes_max;
        self.note_smallest();
    }

    /// Appends one whole header block to `out`. The blocks have to reach the peer in the order in which they were encoded,
    /// and all of them, because each may depend on the ones before.
    ///
    /// The same as [`begin_block`](Self::begin_block) and [`append`](Self::append).
    pub fn encode<'f>(&mut self, fields: impl IntoIterator<Item = Field<'f>>, out: &mut Vec<u8>) {
        self.begin_block(out);
        self.append(fields, out);
    }

    /// Begins a header block whose fields follow in parts.
    #[inline]
    pub fn begin_block(&mut self, out: &mut Vec<u8>) {
        let size_max = self.allowed_size();
        if self.smallest_pending.is_some() || size_max != self.table.size_max() {
            self.encode_size_updates(size_max, out);
        }
    }

    /// Appends fields to the block in hand.
    pub fn append<'f>(&mut self, fields: impl IntoIterator<Item = Field<'f>>, out: &mut Vec<u8>) {
        for field in fields {
            self.encode_field(field, out);
        }
    }

    /// Appends fields to the block in hand that `template` stands for: always the same ones, on this encoder only.
    ///
    /// ```
    /// use fulmar_hpack::{Encoder, Field, Template, TABLE_BYTES_INITIAL};
    ///
    /// let mut encoder = Encoder::new(TABLE_BYTES_INITIAL);
    /// let mut request = Template::new();
    /// let mut block = Vec::new();
    /// for _ in 0..3 {
    ///     block.clear();
    ///     encoder.begin_block(&mut block);
    ///     encoder.append_known(&mut request, || [Field::new(b":method", b"POST"), Field::new(b"te", b"trailers")], &mut block);
    /// }
    /// assert_eq!(block, [0x83, 0xbe]); // the third time, nothing was looked up
    /// ```
    #[inline]
    pub fn append_known<'f, I>(
        &mut self,
        template: &mut Template,
        fields: impl FnOnce() -> I,
        out: &mut Vec<u8>,
    ) where
        I: IntoIterator<Item = Field<'f>>,
    {
        if template.version == self.version {
            return out.extend_from_slice(&template.bytes);
        }
        let (start, version) = (out.len(), self.version);
        self.append(fields(), out);
        let encoded = &out[start..];
        if self.version == version && encoded.len() <= TEMPLATE_BYTES_MAX {
            template.bytes.clear();
            template.bytes.extend_from_slice(encoded);
            template.version = version;
        }
    }

    /// The dynamic table's size in bytes (RFC 7541 §4.1).
    pub fn table_bytes(&self) -> usize {
        self.table.size()
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.index.memory_bytes()
    }

    /// The most that [`packed_bytes`](Self::packed_bytes) comes to for a table of `table_bytes_max` bytes.
    pub const fn packed_bytes_max(table_bytes_max: usize) -> usize {
        DynamicTable::packed_bytes_max(table_bytes_max)
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to for a table of `table_bytes_max` bytes: 10 KiB for one of
    /// 4 KiB.
    pub fn memory_bytes_max(table_bytes_max: usize) -> usize {
        DynamicTable::memory_bytes_max(table_bytes_max) + MatchIndex::memory_bytes_max(table_bytes_max)
    }

    #[inline]
    fn encode_field(&mut self, field: Field<'_>, out: &mut Vec<u8>) {
        let name_hash = hash(field.name);
        let static_name = static_table::find_name(field.name, name_hash);
        if field.indexing == Indexing::Never {
            let hash = FieldHash { field: 0, name: name_hash as u32 };
            return self.encode_literal(field, static_name.map(StaticName::index), hash, out);
        }
        if let Some(index) = static_name.and_then(|name| name.with_value(field.value)) {
            return integer::encode(index, 7, 0x80, out);
        }
        let hash = FieldHash::with_name(name_hash, field.value);
        if let Some(age) = self.index.find_field(&self.table, hash, field.name, field.value) {
            return integer::encode(STATIC_COUNT + 1 + age, 7, 0x80, out);
        }
        self.encode_literal(field, static_name.map(StaticName::index), hash, out);
    }

    fn encode_literal(
        &mut self,
        field: Field<'_>,
        static_index: Option<usize>,
        hash: FieldHash,
        out: &mut Vec<u8>,
    ) {
        let name_index = static_index.or_else(|| {
            let age = self.index.find_name(&self.table, hash, field.name)?;
            Some(STATIC_COUNT + 1 + age)
        });
        let inserts =
            field.indexing == Indexing::Incremental && self.table.has_room_for(field.name, field.value);
        let (prefix_bits, pattern) = match field.indexing {
            _ if inserts => (6, 0x40),
            Indexing::Never => (4, 0x10),
            Indexing::Incremental | Indexing::Without => (4, 0),
        };
        integer::encode(name_index.unwrap_or(0), prefix_bits, pattern, out);
        if name_index.is_none() {
            encode_string(field.name, out);
        }
        encode_string(field.value, out);
        if inserts {
            self.table.insert(field.name, field.value);
            self.index.on_insert(&self.table, hash);
            self.version += 1;
        }
    }

    /// Tells the peer how small the table was, and how large it is (RFC 7541 §4.2, §6.3).
    #[cold]
    fn encode_size_updates(&mut self, size_max: usize, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest_pending.take() {
            self.set_table_size(smallest, out);
        }
        if size_max != self.table.size_max() {
            self.set_table_size(size_max, out);
        }
    }

    fn set_table_size(&mut self, size: usize, out: &mut Vec<u8>) {
        integer::encode(size, 5, 0x20, out);
        self.table.set_size_max(size);
        self.version += 1;
        if self.table.len() == 0 {
            self.index.clear();
        }
    }

    fn note_smallest(&mut self) {
        let allowed = self.allowed_size();
        if allowed < self.smallest_pending.unwrap_or_else(|| self.table.size_max()) {
            self.smallest_pending = Some(allowed);
        }
    }

    #[inline]
    fn allowed_size(&self) -> usize {
        self.table_bytes_max.min(self.peer_table_bytes_max)
    }
}

/// Appends a string literal, in the shorter of the two forms (RFC 7541 §5.2).
fn encode_string(string: &[u8], out: &mut Vec<u8>) {
    let huffman_bytes = huffman::encoded_len(string);
    if huffman_bytes < string.len() {
        integer::encode(huffman_bytes, 7, 0x80, out);
        huffman::encode(string, out);
    } else {
        integer::encode(string.len(), 7, 0, out);
        out.extend_from_slice(string);
    }
}
