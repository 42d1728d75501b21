use crate::dynamic_table::DynamicTable;
use crate::huffman::{self, Decoded};
use crate::static_table::{self, STATIC_COUNT};
use crate::{DecodeError, DecodeErrorKind, FieldList, Indexing, TABLE_BYTES_MAX, integer};

/// Decodes the header blocks that arrive on one connection, in their order.
///
/// Memory grows with what the table holds, up to [`memory_bytes_max`](Self::memory_bytes_max).
pub struct Decoder {
    pub(crate) table: DynamicTable,
    /// What this end allows the table to be, in bytes.
    pub(crate) table_bytes_max: usize,
    /// Set while the next block has to begin with a size update, to no more than this (RFC 7541 §4.2).
    pub(crate) update_owed: Option<usize>,
    /// Counts the changes of the table.
    pub(crate) version: u64,
}

/// How much of one header block is kept. A block that crosses one of these limits is decoded to its end, to keep the dynamic
/// table in step, but the [`FieldList`] is cut and says so in [`FieldList::overflow`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DecodeLimits {
    /// Bytes of the list: names, values and 32 for each field (RFC 9113 §6.5.2). 16 KiB by default.
    pub list_bytes_max: usize,
    /// Number of fields. 256 by default.
    pub fields_max: usize,
    /// Bytes of one name or value, once decoded. 16 KiB by default.
    pub string_bytes_max: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { list_bytes_max: 16 * 1024, fields_max: 256, string_bytes_max: 16 * 1024 }
    }
}

impl Decoder {
    /// A decoder whose table may have `table_bytes_max` bytes, from the first block on, without an update.
    ///
    /// In HTTP/2 that is [`TABLE_BYTES_INITIAL`](crate::TABLE_BYTES_INITIAL), whatever is advertised; what is advertised
    /// follows by [`set_table_bytes_max`](Self::set_table_bytes_max) when the peer has acknowledged it.
    pub fn new(table_bytes_max: usize) -> Self {
        let table = DynamicTable::new(table_bytes_max);
        Self { table_bytes_max: table.size_max(), table, update_owed: None, version: 1 }
    }

    /// Puts the SETTINGS_HEADER_TABLE_SIZE in force that this end has sent and the peer has acknowledged. At most
    /// [`TABLE_BYTES_MAX`].
    ///
    /// If the table is larger, the next block has to begin with a size update, else it is refused (RFC 7541 §4.2).
    pub fn set_table_bytes_max(&mut self, table_bytes_max: usize) {
        self.table_bytes_max = table_bytes_max.min(TABLE_BYTES_MAX);
        let smallest = self.update_owed.unwrap_or_else(|| self.table.size_max());
        if self.table_bytes_max < smallest {
            self.update_owed = Some(self.table_bytes_max);
        }
    }

    /// Decodes a whole header block into `into`, which is emptied first.
    ///
    /// A list that crosses one of `limits` is no error: see [`DecodeLimits`]. After an error the table is out of step and the
    /// connection has to end; what `into` then holds is the fields before the error.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &DecodeLimits,
        into: &mut FieldList,
    ) -> Result<(), DecodeError> {
        into.clear();
        let mut rest = self.decode_size_updates(block)?;
        while let Some(&first) = rest.first() {
            let offset = block.len() - rest.len();
            let outcome = if first & 0x80 != 0 {
                self.decode_indexed(&mut rest, limits, into)
            } else if first & 0x40 != 0 {
                self.decode_literal(&mut rest, 6, Indexing::Incremental, limits, into)
            } else if first & 0x20 != 0 {
                Err(DecodeErrorKind::SizeUpdateMisplaced)
            } else if first & 0x10 != 0 {
                self.decode_literal(&mut rest, 4, Indexing::Never, limits, into)
            } else {
                self.decode_literal(&mut rest, 4, Indexing::Without, limits, into)
            };
            if let Err(kind) = outcome {
                into.discard_tail();
                return Err(kind.at(offset));
            }
        }
        Ok(())
    }

    /// Tells states of the dynamic table apart: a block that was decoded without changing this number decodes to the same fields
    /// again for as long as the number stays. `None` while the next block has to begin with a size update.
    pub fn version(&self) -> Option<u64> {
        self.update_owed.is_none().then_some(self.version)
    }

    /// The dynamic table's size in bytes (RFC 7541 §4.1).
    pub fn table_bytes(&self) -> usize {
        self.table.size()
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// The most that [`packed_bytes`](Self::packed_bytes) comes to for a table of `table_bytes_max` bytes.
    pub const fn packed_bytes_max(table_bytes_max: usize) -> usize {
        DynamicTable::packed_bytes_max(table_bytes_max)
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to for a table of `table_bytes_max` bytes: 7 KiB for one of
    /// 4 KiB.
    pub fn memory_bytes_max(table_bytes_max: usize) -> usize {
        DynamicTable::memory_bytes_max(table_bytes_max)
    }

    /// Takes the size updates off the start of a block (RFC 7541 §6.3).
    fn decode_size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], DecodeError> {
        let mut rest = block;
        while let Some(0x20..=0x3f) = rest.first() {
            let offset = block.len() - rest.len();
            let size = integer::decode(&mut rest, 5).map_err(|kind| kind.at(offset))?;
            // The first update after the limit was lowered, and raised again, has to reach down to the lowest one.
            let limit = self.update_owed.take().unwrap_or(self.table_bytes_max);
            if size > limit {
                return Err(DecodeErrorKind::SizeUpdateTooLarge { size, limit }.at(offset));
            }
            self.table.set_size_max(size);
            self.version += 1;
        }
        match self.update_owed {
            Some(_) => Err(DecodeErrorKind::SizeUpdateMissing.at(0)),
            None => Ok(rest),
        }
    }

    #[inline]
    fn decode_indexed(
        &self,
        rest: &mut &[u8],
        limits: &DecodeLimits,
        into: &mut FieldList,
    ) -> Result<(), DecodeErrorKind> {
        let index = integer::decode(rest, 7)?;
        if let Some(field) = static_table::get(index) {
            if into.admits(field.name.len(), field.value.len(), limits) {
                into.tail_mut().extend_from_slice(field.name);
                into.tail_mut().extend_from_slice(field.value);
                into.commit(field.name.len(), Indexing::Incremental);
            }
            return Ok(());
        }
        let age = index.checked_sub(STATIC_COUNT + 1).ok_or(DecodeErrorKind::IndexInvalid { index })?;
        let entry = self.table.get(age).ok_or(DecodeErrorKind::IndexInvalid { index })?;
        if into.admits(entry.name_bytes(), entry.value_bytes(), limits) {
            entry.append_to(into.tail_mut());
            into.commit(entry.name_bytes(), Indexing::Incremental);
        }
        Ok(())
    }

    /// The strings are put in the list's arena also where the list is cut, if only for a moment: that is where the table takes
    /// them from, so that an entry may evict the one whose name it has (RFC 7541 §4.4).
    fn decode_literal(
        &mut self,
        rest: &mut &[u8],
        prefix_bits: u32,
        indexing: Indexing,
        limits: &DecodeLimits,
        into: &mut FieldList,
    ) -> Result<(), DecodeErrorKind> {
        // A string longer than this fits neither the list nor the table.
        let string_bytes_max = limits.string_bytes_max.max(self.table.size_max());
        let index = integer::decode(rest, prefix_bits)?;
        let name = if index == 0 {
            decode_string(rest, string_bytes_max, into.tail_mut())?
        } else {
            self.append_name(index, into.tail_mut())?;
            Decoded::Whole
        };
        let name_bytes = into.tail().len();
        let value = decode_string(rest, string_bytes_max, into.tail_mut())?;
        if (name, value) != (Decoded::Whole, Decoded::Whole) {
            into.cut_long_string(limits.string_bytes_max.saturating_add(1));
            if indexing == Indexing::Incremental {
                self.version += 1;
                self.table.clear();
            }
        } else {
            let (name, value) = into.tail().split_at(name_bytes);
            if indexing == Indexing::Incremental {
                self.version += 1;
                self.table.insert(name, value);
            }
            if into.admits(name_bytes, into.tail().len() - name_bytes, limits) {
                into.commit(name_bytes, indexing);
                return Ok(());
            }
        }
        into.discard_tail();
        Ok(())
    }

    fn append_name(&self, index: usize, out: &mut Vec<u8>) -> Result<(), DecodeErrorKind> {
        if let Some(field) = static_table::get(index) {
            out.extend_from_slice(field.name);
            return Ok(());
        }
        let age = index.checked_sub(STATIC_COUNT + 1).ok_or(DecodeErrorKind::IndexInvalid { index })?;
        self.table.get(age).ok_or(DecodeErrorKind::IndexInvalid { index })?.append_name_to(out);
        Ok(())
    }
}

/// Takes a string literal off the front of `rest` and appends it to `out`, unless it is too long (RFC 7541 §5.2).
fn decode_string(rest: &mut &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<Decoded, DecodeErrorKind> {
    let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer::decode(rest, 7)?;
    let (string, behind) = rest.split_at_checked(length).ok_or(DecodeErrorKind::Truncated)?;
    *rest = behind;
    if is_huffman {
        return huffman::decode(string, bytes_max, out);
    }
    if length > bytes_max {
        return Ok(Decoded::TooLong);
    }
    out.extend_from_slice(string);
    Ok(Decoded::Whole)
}
