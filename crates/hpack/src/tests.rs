//! Tests of decoder and encoder as a whole.

use crate::{Decoder, FieldList, Indexing};

mod rfc_examples;

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
