//! Tests of decoder and encoder as a whole.

use crate::{Decoder, FieldList, Indexing};

mod decoding;
mod differential;
mod encoding;
mod rfc_examples;
mod stories;

/// A seeded generator (xorshift64*): the same seed gives the same test.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Fewer than `length_end` random octets.
    pub(crate) fn bytes(&mut self, length_end: usize) -> Vec<u8> {
        let length = self.below(length_end);
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Bytes written as hexadecimal digits, blanks between them allowed.
fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// The fields as text, for comparing.
fn texts(fields: &FieldList) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|field| (text(field.name), text(field.value))).collect()
}

/// The entries of a decoder's dynamic table, newest first, read by decoding their indices.
fn table_of(decoder: &mut Decoder) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let mut fields = FieldList::new();
    for index in 62.. {
        let mut block = Vec::new();
        crate::integer::encode(index, 7, 0x80, &mut block);
        if decoder.decode(&block, &crate::DecodeLimits::default(), &mut fields).is_err() {
            break;
        }
        assert_eq!(fields.iter().next().map(|field| field.indexing), Some(Indexing::Incremental));
        entries.extend(texts(&fields));
    }
    entries
}
