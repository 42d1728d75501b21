use fulmar_hpack::{DecodeErrorKind, DecodeLimits, Decoder, Encoder, Field, FieldList, TABLE_BYTES_INITIAL};

use super::bytes::Bytes;

/// Decodes header blocks of any content, under limits chosen by the first three bytes.
///
/// Then come the steps of one connection: a byte up to 253 is the length of a block, 254 is followed by a length of two bytes,
/// and 255 by a byte for the table's size. What must hold, until a block is refused:
///
/// - the list stays within the limits, and knows its size; the table stays within its size;
/// - a decoder with wide limits sees the same fields and more, and its table is in step;
/// - a list sent on is the same list at the next hop, and what was never indexed stays so.
pub fn hpack_decode(data: &[u8]) {
    let mut input = Bytes::new(data);
    let limits = DecodeLimits {
        list_bytes_max: input.byte() * 16,
        fields_max: input.byte(),
        string_bytes_max: input.byte() * 8,
    };
    let mut hop = Hop::new(limits);
    while !input.is_empty() {
        let length = match input.byte() {
            255 => {
                hop.set_table_bytes_max(input.byte() * 32);
                continue;
            }
            254 => input.byte() << 8 | input.byte(),
            length => length,
        };
        if hop.receive(input.take(length)).is_err() {
            return;
        }
    }
}

/// Encodes lists of fields that the data describes, and decodes them with our decoder and with the crate `hpack`, an
/// independent one: both must give back the list.
pub fn hpack_roundtrip(data: &[u8]) {
    let mut input = Bytes::new(data);
    let (mut encoder, mut decoder) = (Encoder::new(input.byte() * 32), Decoder::new(TABLE_BYTES_INITIAL));
    let mut oracle = ::hpack::Decoder::new();
    let (mut fields, mut decoded, mut block) = (FieldList::new(), FieldList::new(), Vec::new());
    while !input.is_empty() {
        fields.clear();
        for _ in 0..input.byte() % 8 {
            match input.byte() {
                0 => {
                    let limit = (input.byte() * 32).min(TABLE_BYTES_INITIAL);
                    encoder.set_peer_table_bytes_max(limit);
                    decoder.set_table_bytes_max(limit);
                }
                shape => push_field(shape, &mut input, &mut fields),
            }
        }
        block.clear();
        encoder.encode(&fields, &mut block);
        decoder
            .decode(&block, &wide_limits(), &mut decoded)
            .expect("our decoder takes what our encoder gives");
        assert!(decoded.iter().map(strings).eq(fields.iter().map(strings)), "not the same list");
        assert_eq!(decoder.table_bytes(), encoder.table_bytes(), "the tables are out of step");
        let theirs = oracle.decode(&block).expect("the oracle takes what our encoder gives");
        let theirs = theirs.iter().map(|(name, value)| (&name[..], &value[..]));
        assert!(theirs.eq(fields.iter().map(strings)), "not the same list for the oracle");
    }
}

/// A decoder under test, one with wide limits beside it, and an encoder that sends on to a next decoder.
struct Hop {
    limits: DecodeLimits,
    decoder: Decoder,
    fields: FieldList,
    wide: Decoder,
    wide_fields: FieldList,
    table_bytes_max: usize,
    encoder: Encoder,
    next: Decoder,
    next_fields: FieldList,
    block: Vec<u8>,
}

impl Hop {
    fn new(limits: DecodeLimits) -> Self {
        Self {
            limits,
            decoder: Decoder::new(TABLE_BYTES_INITIAL),
            fields: FieldList::new(),
            wide: Decoder::new(TABLE_BYTES_INITIAL),
            wide_fields: FieldList::new(),
            table_bytes_max: TABLE_BYTES_INITIAL,
            encoder: Encoder::new(TABLE_BYTES_INITIAL),
            next: Decoder::new(TABLE_BYTES_INITIAL),
            next_fields: FieldList::new(),
            block: Vec::new(),
        }
    }

    fn set_table_bytes_max(&mut self, bytes: usize) {
        // The table keeps its size until the peer's update, and then has no more than the limit.
        self.table_bytes_max = self.table_bytes_max.max(bytes);
        self.decoder.set_table_bytes_max(bytes);
        self.wide.set_table_bytes_max(bytes);
        self.encoder.set_peer_table_bytes_max(bytes);
        self.next.set_table_bytes_max(bytes);
    }

    fn receive(&mut self, block: &[u8]) -> Result<(), DecodeErrorKind> {
        let outcome = self.decoder.decode(block, &self.limits, &mut self.fields);
        let wide = self.wide.decode(block, &wide_limits(), &mut self.wide_fields);
        self.check_limits();
        if let Err(error) = outcome {
            assert!(error.offset <= block.len(), "the error lies outside the block");
            // Not the other way round, and perhaps for a mistake further on: a string that is too long for list and table is not
            // decoded to its end.
            assert!(wide.is_err(), "limits make a good block bad: {error}");
        }
        outcome.and(wide).map_err(|error| error.kind)?;
        assert_eq!(self.decoder.table_bytes(), self.wide.table_bytes(), "limits put the table out of step");
        self.check_cut();
        self.send_on();
        Ok(())
    }

    fn check_limits(&self) {
        let size: usize = self.fields.iter().map(|field| field.name.len() + field.value.len() + 32).sum();
        assert_eq!(size, self.fields.size(), "the list does not know its size");
        assert!(size <= self.limits.list_bytes_max && self.fields.len() <= self.limits.fields_max);
        let longest = self.fields.iter().map(|field| field.name.len().max(field.value.len())).max();
        assert!(longest.unwrap_or_default() <= self.limits.string_bytes_max);
        assert!(self.decoder.table_bytes() <= self.table_bytes_max);
    }

    /// A list is whole, or cut in front of a field that would cross a limit.
    fn check_cut(&self) {
        let mut all = self.wide_fields.iter();
        assert!(self.fields.iter().eq(all.by_ref().take(self.fields.len())), "not the fields of the block");
        let Some(cut) = all.next() else {
            return assert_eq!(self.fields.overflow(), self.wide_fields.overflow());
        };
        assert!(self.fields.overflow().is_some(), "cut and not said so");
        let size = self.fields.size() + cut.name.len() + cut.value.len() + 32;
        assert!(
            self.fields.len() == self.limits.fields_max
                || size > self.limits.list_bytes_max
                || cut.name.len().max(cut.value.len()) > self.limits.string_bytes_max,
            "cut without need"
        );
    }

    fn send_on(&mut self) {
        self.block.clear();
        self.encoder.encode(&self.fields, &mut self.block);
        self.next
            .decode(&self.block, &wide_limits(), &mut self.next_fields)
            .expect("our decoder takes what our encoder gives");
        assert!(
            self.next_fields.iter().map(strings).eq(self.fields.iter().map(strings)),
            "not the same list"
        );
        for (sent, received) in self.fields.iter().zip(&self.next_fields) {
            let never = |field: Field<'_>| field.indexing == fulmar_hpack::Indexing::Never;
            assert_eq!(
                never(sent),
                never(received),
                "a sensitive field was exposed, or another one made sensitive"
            );
        }
        assert_eq!(self.next.table_bytes(), self.encoder.table_bytes(), "the tables are out of step");
    }
}

/// Wider than any limits that one byte can choose.
fn wide_limits() -> DecodeLimits {
    DecodeLimits { list_bytes_max: 1 << 20, fields_max: 1 << 12, string_bytes_max: 1 << 20 }
}

fn strings<'a>(field: Field<'a>) -> (&'a [u8], &'a [u8]) {
    (field.name, field.value)
}

/// A field whose name and value are the data's own bytes, or common ones, so that fields repeat.
fn push_field(shape: usize, input: &mut Bytes<'_>, fields: &mut FieldList) {
    const NAMES: [&[u8]; 4] = [b":path", b"te", b":status", b"x-request-id"];
    let name = if shape & 0x04 != 0 { NAMES[shape >> 6] } else { input.string() };
    let field = Field::new(name, input.string());
    fields.push(match shape & 0x03 {
        0 => field.without_indexing(),
        1 => Field::sensitive(field.name, field.value),
        _ => field,
    });
}
