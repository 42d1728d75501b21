//! Tables of connections on which nothing happens, in as few bytes as they can be told in.
//!
//! A table that works has rings with room for what comes, and an index. At rest only what is in it matters: numbers of mostly one
//! byte, and the names and values one behind the other.

use crate::dynamic_table::DynamicTable;
use crate::integer;
use crate::match_index::FieldHash;
use crate::{Decoder, Encoder};

/// Numbers take a byte each up to 254, and more above.
const PREFIX_BITS: u32 = 8;

impl Encoder {
    /// Appends what only this encoder knows to `out`: what is in its table, and what its sizes are. That is
    /// [`packed_bytes`](Self::packed_bytes) bytes.
    ///
    /// ```
    /// use fulmar_hpack::{Encoder, Field, TABLE_BYTES_INITIAL};
    ///
    /// let agent = [Field::new(b"user-agent", b"example/1.0")];
    /// let (mut one, mut block, mut packed) = (Encoder::new(TABLE_BYTES_INITIAL), Vec::new(), Vec::new());
    /// one.encode(agent, &mut block);
    /// one.pack(&mut packed);
    /// assert_eq!(packed.len(), one.packed_bytes());
    ///
    /// let mut other = Encoder::new(TABLE_BYTES_INITIAL);
    /// other.unpack(&mut &packed[..]);
    /// block.clear();
    /// other.encode(agent, &mut block);
    /// assert_eq!(block, [0xbe]); // it is in the table
    /// ```
    pub fn pack(&self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| pack_number(number, out));
        self.table.pack(out);
    }

    /// How many bytes [`pack`](Self::pack) appends.
    pub fn packed_bytes(&self) -> usize {
        self.numbers().into_iter().map(packed_number_bytes).sum::<usize>() + self.table.packed_bytes()
    }

    /// Makes this the encoder that was packed, and takes its bytes off the front of `packed`. The memory is used again; what was encoded
    /// before is no [known](Self::append_known) block any more.
    ///
    /// # Panics
    /// With bytes that [`pack`](Self::pack) has not written.
    pub fn unpack(&mut self, packed: &mut &[u8]) {
        let [table_bytes_max, peer_table_bytes_max, smallest_pending] =
            [(); 3].map(|()| unpack_number(packed));
        (self.table_bytes_max, self.peer_table_bytes_max) = (table_bytes_max, peer_table_bytes_max);
        self.smallest_pending = smallest_pending.checked_sub(1);
        // What the index knows of entries of another table counts as evicted: numbers go on.
        let index = &mut self.index;
        self.table.unpack(packed, |table, name, value| index.on_insert(table, FieldHash::of(name, value)));
        self.version += 1;
    }

    fn numbers(&self) -> [usize; 3] {
        // A size is far below the largest number there is.
        [self.table_bytes_max, self.peer_table_bytes_max, self.smallest_pending.map_or(0, |size| size + 1)]
    }
}

impl Decoder {
    /// Appends what only this decoder knows to `out`, as [`Encoder::pack`] does.
    pub fn pack(&self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| pack_number(number, out));
        self.table.pack(out);
    }

    /// How many bytes [`pack`](Self::pack) appends.
    pub fn packed_bytes(&self) -> usize {
        self.numbers().into_iter().map(packed_number_bytes).sum::<usize>() + self.table.packed_bytes()
    }

    /// Makes this the decoder that was packed, and takes its bytes off the front of `packed`. The memory is used again; the
    /// [version](Self::version) is none that there was.
    ///
    /// # Panics
    /// With bytes that [`pack`](Self::pack) has not written.
    pub fn unpack(&mut self, packed: &mut &[u8]) {
        let [table_bytes_max, update_owed] = [(); 2].map(|()| unpack_number(packed));
        self.table_bytes_max = table_bytes_max;
        self.update_owed = update_owed.checked_sub(1);
        self.table.unpack(packed, |_, _, _| ());
        self.version += 1;
    }

    fn numbers(&self) -> [usize; 2] {
        [self.table_bytes_max, self.update_owed.map_or(0, |size| size + 1)]
    }
}

impl DynamicTable {
    /// The most that a table of this maximum size packs to, with the numbers of its encoder or decoder.
    pub(crate) const fn packed_bytes_max(size_max: usize) -> usize {
        // Two numbers of an entry take no more than what it counts for besides its strings.
        const NUMBERS_BYTES_MAX: usize = 5 * 6;
        size_max + NUMBERS_BYTES_MAX
    }

    fn pack(&self, out: &mut Vec<u8>) {
        pack_number(self.size_max(), out);
        pack_number(self.len(), out);
        for entry in self.oldest_first() {
            pack_number(entry.name_bytes(), out);
            pack_number(entry.value_bytes(), out);
            entry.append_to(out);
        }
    }

    fn packed_bytes(&self) -> usize {
        let entries = self.oldest_first().map(|entry| {
            let (name, value) = (entry.name_bytes(), entry.value_bytes());
            packed_number_bytes(name) + packed_number_bytes(value) + name + value
        });
        packed_number_bytes(self.size_max()) + packed_number_bytes(self.len()) + entries.sum::<usize>()
    }

    /// Tells `on_insert` of each entry, the oldest first, when it is in the table.
    fn unpack(&mut self, packed: &mut &[u8], mut on_insert: impl FnMut(&Self, &[u8], &[u8])) {
        self.clear();
        self.set_size_max(unpack_number(packed));
        for _ in 0..unpack_number(packed) {
            let (name_bytes, value_bytes) = (unpack_number(packed), unpack_number(packed));
            let (name, rest) = packed.split_at(name_bytes);
            let (value, rest) = rest.split_at(value_bytes);
            self.insert(name, value);
            on_insert(self, name, value);
            *packed = rest;
        }
    }
}

fn pack_number(number: usize, out: &mut Vec<u8>) {
    integer::encode(number, PREFIX_BITS, 0, out);
}

fn packed_number_bytes(number: usize) -> usize {
    integer::encoded_bytes(number, PREFIX_BITS)
}

fn unpack_number(packed: &mut &[u8]) -> usize {
    integer::decode(packed, PREFIX_BITS).expect("packed tables are unpacked as they were packed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeLimits, Field, FieldList, TABLE_BYTES_INITIAL};

    fn unpacked(encoder: &Encoder, decoder: &Decoder, into: (&mut Encoder, &mut Decoder)) -> usize {
        let mut packed = Vec::new();
        encoder.pack(&mut packed);
        assert_eq!(packed.len(), encoder.packed_bytes());
        decoder.pack(&mut packed);
        assert_eq!(packed.len(), encoder.packed_bytes() + decoder.packed_bytes());
        let mut rest = &packed[..];
        into.0.unpack(&mut rest);
        into.1.unpack(&mut rest);
        assert!(rest.is_empty());
        packed.len()
    }

    /// It goes on as a pair does that never was packed, each time in a body where another table was.
    #[test]
    fn an_encoder_and_a_decoder_go_on_where_they_were_packed_in_whichever_body() {
        let new = || (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new(TABLE_BYTES_INITIAL));
        let (mut one, mut other, mut awake) = (new(), new(), new());
        let (mut fields, mut block, mut expected) = (FieldList::new(), Vec::new(), Vec::new());
        for round in 0..300_u32 {
            if round == 100 {
                // The tables shrink, and that is still to be told when it is packed.
                for (encoder, decoder) in [&mut one, &mut awake] {
                    encoder.set_peer_table_bytes_max(512);
                    decoder.set_table_bytes_max(512);
                }
            }
            other.0.encode([Field::new(b"x-other", round.to_string().as_bytes())], &mut Vec::new());
            unpacked(&one.0, &one.1, (&mut other.0, &mut other.1));
            std::mem::swap(&mut one, &mut other);
            let value = "v".repeat(round as usize % 70);
            let name = format!("x-name-{}", round % 7);
            let sent =
                [Field::new(name.as_bytes(), value.as_bytes()), Field::new(b"user-agent", b"example/1.0")];
            block.clear();
            one.0.encode(sent, &mut block);
            expected.clear();
            awake.0.encode(sent, &mut expected);
            assert_eq!(block, expected, "round {round}");
            one.1.decode(&block, &DecodeLimits::default(), &mut fields).unwrap();
            let values: Vec<_> = fields.iter().map(|field| field.value.to_vec()).collect();
            assert_eq!(values, [value.as_bytes(), b"example/1.0"], "round {round}");
            assert_eq!(
                (one.0.table_bytes(), one.1.table_bytes()),
                (awake.0.table_bytes(), one.0.table_bytes())
            );
        }
    }

    #[test]
    fn what_is_packed_takes_little_more_than_the_strings_and_no_more_than_was_promised() {
        let (mut encoder, decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new(TABLE_BYTES_INITIAL));
        let mut body = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new(TABLE_BYTES_INITIAL));
        encoder.encode([Field::new(b"x-name", b"value")], &mut Vec::new());
        let bytes = unpacked(&encoder, &decoder, (&mut body.0, &mut body.1));
        assert!(bytes <= b"x-namevalue".len() + 40, "{bytes}");
        for index in 0..10_000_u32 {
            encoder.encode([Field::new(index.to_string().as_bytes(), b"")], &mut Vec::new());
        }
        assert!(encoder.packed_bytes() <= Encoder::packed_bytes_max(TABLE_BYTES_INITIAL));
        unpacked(&encoder, &decoder, (&mut body.0, &mut body.1));
        let held = body.0.memory_bytes();
        for _ in 0..10 {
            unpacked(&encoder, &decoder, (&mut body.0, &mut body.1));
        }
        assert_eq!(body.0.memory_bytes(), held);
    }

    #[test]
    fn what_was_known_of_another_table_is_known_no_more() {
        let mut encoder = Encoder::new(TABLE_BYTES_INITIAL);
        let (mut template, mut block) = (crate::Template::new(), Vec::new());
        let fields = || [Field::new(b"x-name", b"value")];
        for _ in 0..2 {
            encoder.append_known(&mut template, fields, &mut block);
        }
        let mut packed = Vec::new();
        Encoder::new(TABLE_BYTES_INITIAL).pack(&mut packed);
        encoder.unpack(&mut &packed[..]);
        block.clear();
        encoder.append_known(&mut template, fields, &mut block);
        assert!(block.len() > 1, "it is not in the table: {block:?}");
    }
}
