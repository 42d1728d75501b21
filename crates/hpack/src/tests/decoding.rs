//! What the decoder takes, cuts and refuses.

use super::{bytes_of_hex, table_of, texts};
use crate::DecodeErrorKind::{
    HuffmanEos, HuffmanPaddingInvalid, IndexInvalid, IntegerTooLarge, SizeUpdateMisplaced, SizeUpdateMissing,
    SizeUpdateTooLarge, Truncated,
};
use crate::{
    DecodeError, DecodeErrorKind, DecodeLimits, Decoder, Encoder, Field, FieldList, Indexing, Overflow,
};

fn decode(decoder: &mut Decoder, hex: &str) -> Result<Vec<(String, String)>, DecodeError> {
    let mut fields = FieldList::new();
    decoder.decode(&bytes_of_hex(hex), &DecodeLimits::default(), &mut fields).map(|()| texts(&fields))
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn bad_blocks_are_refused_with_what_is_wrong_and_where() {
    let cases: &[(&str, DecodeErrorKind, usize)] = &[
        ("80", IndexInvalid { index: 0 }, 0),
        ("82 80", IndexInvalid { index: 0 }, 1),
        ("82 be", IndexInvalid { index: 62 }, 1),
        ("ff ffffff7f", IndexInvalid { index: 127 + 0xfff_ffff }, 0),
        ("4001 6101 62 be bf", IndexInvalid { index: 63 }, 6),
        ("7f00 01 61", IndexInvalid { index: 63 }, 0),
        ("0f2f 01 61", IndexInvalid { index: 62 }, 0),
        ("1f2f 01 61", IndexInvalid { index: 62 }, 0),
        ("ff", Truncated, 0),
        ("ff80", Truncated, 0),
        ("82 40", Truncated, 1),
        ("40 03 6162", Truncated, 0),
        ("40 01 61", Truncated, 0),
        ("40 01 61 02 62", Truncated, 0),
        ("41 8c f1e3", Truncated, 0),
        ("41 ff", Truncated, 0),
        ("0f", Truncated, 0),
        ("10", Truncated, 0),
        ("3f", Truncated, 0),
        ("ff ffffff ffff", IntegerTooLarge, 0),
        ("ff 8080808080 00", IntegerTooLarge, 0),
        ("40 7f ffffffffff 01", IntegerTooLarge, 0),
        ("3f ffffffffff", IntegerTooLarge, 0),
        ("82 20", SizeUpdateMisplaced, 1),
        ("20 82 20", SizeUpdateMisplaced, 2),
        ("3f e21f", SizeUpdateTooLarge { size: 4097, limit: 4096 }, 0),
        ("20 3f e21f", SizeUpdateTooLarge { size: 4097, limit: 4096 }, 1),
        ("41 81 ff", HuffmanPaddingInvalid, 0),
        ("41 81 00", HuffmanPaddingInvalid, 0),
        ("40 84 ffffffff 01 61", HuffmanEos, 0),
        ("82 41 84 ffffffff", HuffmanEos, 1),
    ];
    for &(hex, kind, offset) in cases {
        let outcome = decode(&mut Decoder::new(4096), hex);
        assert_eq!(outcome, Err(DecodeError { kind, offset }), "{hex}");
    }
}

#[test]
fn an_error_leaves_the_fields_before_it_and_nothing_of_its_own() {
    let mut fields = FieldList::new();
    let block = bytes_of_hex("82 40 0161 8200 00");
    assert!(Decoder::new(4096).decode(&block, &DecodeLimits::default(), &mut fields).is_err());
    assert_eq!(texts(&fields), [pair(":method", "GET")]);
    fields.push(Field::new(b"te", b"trailers"));
    assert_eq!(texts(&fields), [pair(":method", "GET"), pair("te", "trailers")]);
}

#[test]
fn every_prefix_of_a_block_is_decoded_or_truncated_and_never_panics() {
    let block = bytes_of_hex(
        "3fe11f 8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff 1008 7061 7373 776f 7264 0673 6563 7265 74
         4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf 048c 6220 0f2f 0161",
    );
    for length in 0..block.len() {
        match Decoder::new(4096).decode(&block[..length], &DecodeLimits::default(), &mut FieldList::new()) {
            Ok(()) => {}
            Err(error) => assert!(matches!(error.kind, Truncated), "{length}: {error}"),
        }
    }
}

#[test]
fn errors_read_as_sentences() {
    let error = decode(&mut Decoder::new(4096), "82be").unwrap_err();
    assert_eq!(
        error.to_string(),
        "HPACK: index 62 names no field of the tables, at byte 1 of the header block"
    );
}

#[test]
fn an_empty_block_is_an_empty_list() {
    assert_eq!(decode(&mut Decoder::new(4096), ""), Ok(Vec::new()));
}

#[test]
fn how_a_field_was_indexed_is_kept() {
    let mut fields = FieldList::new();
    let block = bytes_of_hex("82 4001610162 0001610162 1001610162 be");
    Decoder::new(4096).decode(&block, &DecodeLimits::default(), &mut fields).unwrap();
    let indexing: Vec<Indexing> = fields.iter().map(|field| field.indexing).collect();
    assert_eq!(
        indexing,
        [
            Indexing::Incremental,
            Indexing::Incremental,
            Indexing::Without,
            Indexing::Never,
            Indexing::Incremental
        ]
    );
}

#[test]
fn a_field_may_evict_the_entry_that_it_takes_its_name_from() {
    let mut decoder = Decoder::new(64);
    decode(&mut decoder, "40 0a 6e616d652d6e616d652d 02 7631").unwrap();
    assert_eq!(decode(&mut decoder, "7e 03 763232"), Ok(vec![pair("name-name-", "v22")]));
    assert_eq!(table_of(&mut decoder), [pair("name-name-", "v22")]);
}

#[test]
fn a_literal_larger_than_the_table_empties_it_and_is_no_error() {
    let mut decoder = Decoder::new(40);
    decode(&mut decoder, "40 0161 0162").unwrap();
    assert_eq!(decoder.table_bytes(), 34);
    assert_eq!(decode(&mut decoder, "40 0161 08 6262626262626262"), Ok(vec![pair("a", "bbbbbbbb")]));
    assert_eq!(decoder.table_bytes(), 0);
}

mod size_updates {
    use super::*;

    #[test]
    fn an_update_evicts_and_one_up_to_the_limit_is_taken() {
        let mut decoder = Decoder::new(4096);
        decode(&mut decoder, "40 0161 0162").unwrap();
        assert_eq!(decode(&mut decoder, "3fe11f be"), Ok(vec![pair("a", "b")]));
        assert_eq!(decode(&mut decoder, "3f03 be"), Ok(vec![pair("a", "b")]));
        assert_eq!(decode(&mut decoder, "3f02 82"), Ok(vec![pair(":method", "GET")]));
        assert_eq!(decoder.table_bytes(), 0);
        assert_eq!(decode(&mut decoder, "20 3fe11f 40 0161 0162 be").map(|fields| fields.len()), Ok(2));
    }

    #[test]
    fn a_raised_limit_takes_effect_when_the_peer_uses_it() {
        let mut decoder = Decoder::new(34);
        decoder.set_table_bytes_max(68);
        decode(&mut decoder, "40 0161 0162 40 0163 0164").unwrap();
        assert_eq!(table_of(&mut decoder), [pair("c", "d")]);
        decode(&mut decoder, "3f25 40 0161 0162").unwrap();
        assert_eq!(table_of(&mut decoder), [pair("a", "b"), pair("c", "d")]);
    }

    #[test]
    fn after_the_limit_is_lowered_the_next_block_must_begin_with_an_update_to_it() {
        for (hex, expected) in [
            ("82", Err(SizeUpdateMissing)),
            ("", Err(SizeUpdateMissing)),
            ("3f45 82", Err(SizeUpdateTooLarge { size: 100, limit: 99 })),
            ("3f44 82", Ok(1)),
            ("20 3f44 82", Ok(1)),
            ("20 3f45 82", Err(SizeUpdateTooLarge { size: 100, limit: 99 })),
        ] {
            let mut decoder = Decoder::new(4096);
            decoder.set_table_bytes_max(99);
            let outcome = decode(&mut decoder, hex).map(|fields| fields.len()).map_err(|error| error.kind);
            assert_eq!(outcome, expected, "{hex}");
        }
    }

    #[test]
    fn once_it_has_come_no_further_update_is_due() {
        let mut decoder = Decoder::new(4096);
        decoder.set_table_bytes_max(99);
        decode(&mut decoder, "3f44").unwrap();
        assert!(decode(&mut decoder, "82").is_ok());
    }

    #[test]
    fn a_limit_lowered_and_raised_again_wants_the_lowest_first() {
        for (hex, expected) in [
            ("82", Err(SizeUpdateMissing)),
            ("3fe11f 82", Err(SizeUpdateTooLarge { size: 4096, limit: 0 })),
            ("20 3fe11f 82", Ok(1)),
            ("20 82", Ok(1)),
        ] {
            let mut decoder = Decoder::new(4096);
            decoder.set_table_bytes_max(0);
            decoder.set_table_bytes_max(4096);
            let outcome = decode(&mut decoder, hex).map(|fields| fields.len()).map_err(|error| error.kind);
            assert_eq!(outcome, expected, "{hex}");
        }
    }

    #[test]
    fn no_update_is_due_where_the_table_is_within_the_new_limit_already() {
        let mut decoder = Decoder::new(4096);
        decode(&mut decoder, "20").unwrap();
        decoder.set_table_bytes_max(100);
        assert!(decode(&mut decoder, "82").is_ok());
    }
}

mod limits {
    use super::*;

    const LIMITS: DecodeLimits = DecodeLimits { list_bytes_max: 200, fields_max: 4, string_bytes_max: 60 };

    /// Encodes the fields, decodes them with [`LIMITS`], and makes sure that the tables are in step afterwards.
    fn decode_limited(fields: &[Field<'_>], table_bytes: usize) -> FieldList {
        let mut encoder = Encoder::new(table_bytes);
        let mut decoder = Decoder::new(4096);
        let mut list = FieldList::new();
        let mut block = Vec::new();
        encoder.encode(fields.iter().copied(), &mut block);
        decoder.decode(&block, &LIMITS, &mut list).unwrap();
        assert!(list.size() <= LIMITS.list_bytes_max && list.len() <= LIMITS.fields_max);
        assert_eq!(decoder.table_bytes(), encoder.table_bytes());

        let mut again = FieldList::new();
        block.clear();
        encoder.encode(fields.iter().copied(), &mut block);
        decoder.decode(&block, &DecodeLimits::default(), &mut again).unwrap();
        assert_eq!(again.overflow(), None);
        assert!(
            again
                .iter()
                .map(|field| (field.name, field.value))
                .eq(fields.iter().map(|field| (field.name, field.value)))
        );
        list
    }

    #[test]
    fn a_list_of_exactly_the_limit_is_whole_and_one_more_byte_is_cut() {
        let value = [b'v'; 60];
        let fields = [Field::new(b"name-1", &value), Field::new(b"name-2", &value[..38])];
        let list = decode_limited(&fields, 4096);
        assert_eq!((list.len(), list.size(), list.overflow()), (2, 174, None));

        let third = Field::new(b"", b"");
        let fourth = Field::new(b":method", b"GET");
        let list = decode_limited(&[fields[0], Field::new(b"name-2", &value), third], 4096);
        assert_eq!((list.len(), list.size(), list.overflow()), (2, 196, Some(Overflow::ListBytes)));
        assert_eq!(list.whole_size(), 228, "what was cut off counts too");
        let list = decode_limited(&[fields[0], Field::new(b"name-23", &value[..31]), third], 4096);
        assert_eq!((list.len(), list.size(), list.overflow()), (3, 200, None));
        let list = decode_limited(&[fields[0], Field::new(b"name-23", &value[..32]), third, fourth], 4096);
        assert_eq!((list.len(), list.size(), list.overflow()), (2, 169, Some(Overflow::ListBytes)));
    }

    #[test]
    fn more_fields_than_allowed_are_cut() {
        let field = Field::new(b"a", b"b");
        let list = decode_limited(&[field; 4], 4096);
        assert_eq!((list.len(), list.overflow()), (4, None));
        let list = decode_limited(&[field; 5], 4096);
        assert_eq!((list.len(), list.overflow()), (4, Some(Overflow::Fields)));
    }

    #[test]
    fn a_string_longer_than_allowed_cuts_the_list_there() {
        let (value, name) = ([b'v'; 61], [b'n'; 61]);
        for long in [Field::new(b"a", &value), Field::new(&name, b"b")] {
            // Entries that the table has room for, and one that it has none for.
            for table_bytes in [4096, 60] {
                for long in [long, long.without_indexing()] {
                    let list = decode_limited(
                        &[Field::new(b"first", b"1"), long, Field::new(b"last", b"2")],
                        table_bytes,
                    );
                    assert_eq!(texts(&list), [pair("first", "1")]);
                    assert_eq!(list.overflow(), Some(Overflow::String));
                }
            }
        }
    }

    #[test]
    fn a_string_longer_than_limit_and_table_empties_the_table_if_it_was_to_enter_it() {
        for huffman in [false, true] {
            for (first_octet, table_bytes) in [(0x40, 0), (0x00, 34), (0x10, 34)] {
                let mut decoder = Decoder::new(50);
                let mut list = FieldList::new();
                decoder.decode(&bytes_of_hex("40 0161 0162"), &LIMITS, &mut list).unwrap();
                let mut block = vec![first_octet, 1, b'x'];
                if huffman {
                    block.extend([0x80 | 50]);
                    crate::huffman::encode(&[b'0'; 80], &mut block);
                } else {
                    block.extend([80]);
                    block.extend([b'0'; 80]);
                }
                block.push(0x82);
                decoder.decode(&block, &LIMITS, &mut list).unwrap();
                assert_eq!((list.len(), list.overflow()), (0, Some(Overflow::String)));
                assert_eq!(decoder.table_bytes(), table_bytes);
            }
        }
    }

    #[test]
    fn errors_behind_the_cut_are_still_errors() {
        let mut list = FieldList::new();
        let outcome = Decoder::new(4096).decode(&bytes_of_hex("82 82 82 82 82 82 be"), &LIMITS, &mut list);
        assert_eq!(outcome, Err(IndexInvalid { index: 62 }.at(6)));
    }

    #[test]
    fn a_bomb_of_indices_costs_no_memory_beyond_the_limit() {
        let mut decoder = Decoder::new(4096);
        let mut list = FieldList::new();
        let mut block = Vec::new();
        Encoder::new(4096).encode([Field::new(b"n", &[b'v'; 4000])], &mut block);
        block.resize(block.len() + 16_000, 0xbe);
        decoder.decode(&block, &DecodeLimits::default(), &mut list).unwrap();
        assert_eq!((list.len(), list.overflow()), (4, Some(Overflow::ListBytes)));
        assert_eq!(list.whole_size(), 16_001 * 4_033);
        assert!(list.memory_bytes() < 64 * 1024, "{}", list.memory_bytes());
    }

    #[test]
    fn the_next_block_starts_without_the_overflow_of_the_one_before() {
        let mut decoder = Decoder::new(4096);
        let mut list = FieldList::new();
        decoder.decode(&[0x82; 5], &LIMITS, &mut list).unwrap();
        assert_eq!(list.overflow(), Some(Overflow::Fields));
        decoder.decode(&[0x82], &LIMITS, &mut list).unwrap();
        assert_eq!((list.len(), list.overflow()), (1, None));
    }
}

mod field_lists {
    use super::*;

    #[test]
    fn what_is_pushed_is_read_back_in_order() {
        let mut list = FieldList::new();
        assert!(list.is_empty());
        let fields = [
            Field::new(b":path", b"/"),
            Field::sensitive(b"token", b""),
            Field::new(b"", b"x").without_indexing(),
        ];
        list.extend(fields);
        assert_eq!(list.iter().collect::<Vec<_>>(), fields);
        assert_eq!((list.len(), list.iter().len(), list.size()), (3, 3, 6 + 5 + 1 + 96));
        assert_eq!((list.get(1), list.get(3)), (Some(fields[1]), None));
        list.clear();
        assert_eq!((list.len(), list.size(), list.get(0)), (0, 0, None));
    }
}
