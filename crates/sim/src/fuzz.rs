//! The bodies of the fuzz targets, here so that a test replays their corpora on every machine.
//!
//! Each takes any bytes, and panics if something that must hold does not.

use fulmar_hpack::{DecodeLimits, Decoder, Encoder, Field, FieldList};

/// Decodes header blocks of any content, under small limits.
///
/// The first three bytes choose the limits; then come blocks, each behind a byte that is its length, and 255 changes the size of the
/// table. What must hold: no panic; no list beyond the limits; no table beyond its size; and a list decoded in full, encoded
/// and decoded again, is the same list.
pub fn hpack_decode(data: &[u8]) {
    let Some((&[table, list, fields], mut rest)) = data.split_first_chunk() else { return };
    let mut table_bytes_max = usize::from(table) * 4;
    let limits = DecodeLimits {
        list_bytes_max: usize::from(list) * 16,
        fields_max: usize::from(fields),
        string_bytes_max: usize::from(list) * 8,
    };
    let mut decoder = Decoder::new(table_bytes_max);
    let mut decoded = FieldList::new();
    let (mut encoder, mut peer, mut again) = (Encoder::new(256), Decoder::new(256), FieldList::new());
    let mut block = Vec::new();
    while let Some((&len, behind)) = rest.split_first() {
        if len == 255 {
            table_bytes_max = usize::from(behind.first().copied().unwrap_or_default()) * 4;
            decoder.set_table_bytes_max(table_bytes_max);
            rest = behind.get(1..).unwrap_or_default();
            continue;
        }
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(len)));
        rest = behind;
        let result = decoder.decode(bytes, &limits, &mut decoded);
        check_limits(&decoded, &limits);
        if let Err(error) = result {
            assert!(error.offset <= bytes.len(), "the error lies outside the block");
            return;
        }
        assert!(
            decoder.table_bytes() <= usize::from(u8::MAX) * 4,
            "the table is beyond any size it was given"
        );
        if decoded.overflow().is_none() {
            block.clear();
            encoder.encode(&decoded, &mut block);
            peer.decode(&block, &DecodeLimits::default(), &mut again).expect("what we encode can be decoded");
            assert!(decoded.iter().map(parts).eq(again.iter().map(parts)), "encoding changed the list");
        }
    }
}

fn check_limits(list: &FieldList, limits: &DecodeLimits) {
    assert!(list.size() <= limits.list_bytes_max && list.len() <= limits.fields_max);
    let size: usize = list.iter().map(|field| field.name.len() + field.value.len() + 32).sum();
    assert_eq!(size, list.size(), "the list does not know its size");
    let longest = list.iter().map(|field| field.name.len().max(field.value.len())).max();
    assert!(longest.unwrap_or_default() <= limits.string_bytes_max);
}

fn parts(field: Field<'_>) -> (Vec<u8>, Vec<u8>) {
    (field.name.to_vec(), field.value.to_vec())
}
