//! What the encoder writes.

use super::{bytes_of_hex, texts};
use crate::{DecodeLimits, Decoder, Encoder, Field, FieldList, Indexing, Overflow};

fn encode(encoder: &mut Encoder, fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.encode(fields.iter().copied(), &mut block);
    block
}

const GRPC_REQUEST: [Field<'static>; 8] = [
    Field::new(b":method", b"POST"),
    Field::new(b":scheme", b"http"),
    Field::new(b":path", b"/helloworld.Greeter/SayHello"),
    Field::new(b":authority", b"127.0.0.1:50051"),
    Field::new(b"te", b"trailers"),
    Field::new(b"content-type", b"application/grpc"),
    Field::new(b"user-agent", b"fulmar/0.1.0"),
    Field::new(b"grpc-timeout", b"1S"),
];

#[test]
fn a_repeated_grpc_request_is_one_octet_a_field_and_takes_no_more_memory() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
    let (mut block, mut list) = (Vec::new(), FieldList::new());
    let mut memory_bytes = 0;
    for round in 0..100 {
        block.clear();
        encoder.encode(GRPC_REQUEST, &mut block);
        decoder.decode(&block, &DecodeLimits::default(), &mut list).unwrap();
        assert!(list.iter().eq(GRPC_REQUEST));
        if round == 0 {
            memory_bytes = encoder.memory_bytes() + decoder.memory_bytes() + list.memory_bytes();
            assert!(memory_bytes < 3000, "{memory_bytes}");
        } else {
            assert_eq!(block, [0x83, 0x86, 0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe]);
            assert_eq!(memory_bytes, encoder.memory_bytes() + decoder.memory_bytes() + list.memory_bytes());
        }
    }
}

#[test]
fn memory_stays_within_what_is_announced() {
    for table_bytes in [0, 100, 4096] {
        let (mut encoder, mut decoder) = (Encoder::new(table_bytes), Decoder::new(4096));
        let (mut block, mut list) = (Vec::new(), FieldList::new());
        let limits = DecodeLimits { list_bytes_max: 2000, fields_max: 50, string_bytes_max: 500 };
        for number in 0..600_u32 {
            block.clear();
            let value = number.to_string();
            let long = vec![b'0'; number as usize * 5];
            encoder.encode([Field::new(b"", value.as_bytes()), Field::new(b"long", &long)], &mut block);
            decoder.decode(&block, &limits, &mut list).unwrap();
        }
        assert!(encoder.memory_bytes() <= Encoder::memory_bytes_max(table_bytes));
        assert!(decoder.memory_bytes() <= Decoder::memory_bytes_max(4096));
        assert!(list.memory_bytes() <= FieldList::memory_bytes_max(&limits, 4096));
        list.clear_down_to(0);
        assert_eq!((list.memory_bytes(), list.len()), (0, 0));
    }
    assert_eq!((Encoder::memory_bytes_max(4096), Decoder::memory_bytes_max(4096)), (10 * 1024, 7 * 1024));
}

#[test]
fn a_field_in_the_static_table_is_its_index() {
    let mut encoder = Encoder::new(4096);
    let fields = [
        Field::new(b":status", b"200"),
        Field::new(b":path", b"/"),
        Field::new(b"accept-encoding", b"gzip, deflate"),
        Field::new(b":authority", b""),
        Field::new(b":method", b"GET").without_indexing(),
    ];
    assert_eq!(encode(&mut encoder, &fields), [0x88, 0x84, 0x90, 0x81, 0x82]);
    assert_eq!(encoder.table_bytes(), 0);
}

#[test]
fn a_name_in_the_dynamic_table_is_sent_as_its_index() {
    let mut encoder = Encoder::new(4096);
    encode(&mut encoder, &[Field::new(b"grpc-status", b"0")]);
    let block = encode(&mut encoder, &[Field::new(b"grpc-status", b"5").without_indexing()]);
    assert_eq!(block, bytes_of_hex("0f2f 0135"));
    assert_eq!(encode(&mut encoder, &[Field::new(b"grpc-status", b"5")]), bytes_of_hex("7e 0135"));
    // By then "0" has the index 63.
    assert_eq!(encode(&mut encoder, &[Field::new(b"grpc-status", b"0")]), [0xbf]);
}

#[test]
fn a_field_without_indexing_uses_an_entry_but_makes_none() {
    let mut encoder = Encoder::new(4096);
    let field = Field::new(b"a", b"b");
    assert_eq!(encode(&mut encoder, &[field.without_indexing()]), bytes_of_hex("00 0161 0162"));
    assert_eq!(encoder.table_bytes(), 0);
    encode(&mut encoder, &[field]);
    assert_eq!(encode(&mut encoder, &[field.without_indexing()]), [0xbe]);
}

#[test]
fn a_sensitive_field_is_never_an_index_nor_an_entry_and_stays_so_when_sent_on() {
    let mut encoder = Encoder::new(4096);
    encode(&mut encoder, &[Field::new(b"a", b"b"), Field::new(b":method", b"GET")]);
    let table_bytes = encoder.table_bytes();
    let sensitive = [
        Field::sensitive(b"a", b"b"),
        Field::sensitive(b":method", b"GET"),
        Field::sensitive(b"authorization", b"\x01"),
        Field::sensitive(b"z", b"y"),
    ];
    let block = encode(&mut encoder, &sensitive);
    // Names may be indices; 62 and 23 need an octet behind the prefix of four bits.
    assert_eq!(block, bytes_of_hex("1f2f 0162 12 03474554 1f08 0101 10 017a 0179"));
    assert_eq!(encoder.table_bytes(), table_bytes);

    let mut decoder = Decoder::new(4096);
    let mut list = FieldList::new();
    let mut first = Vec::new();
    Encoder::new(4096).encode(sensitive, &mut first);
    decoder.decode(&first, &DecodeLimits::default(), &mut list).unwrap();
    assert!(list.iter().all(|field| field.indexing == Indexing::Never));
    let mut onward = Vec::new();
    Encoder::new(4096).encode(&list, &mut onward);
    assert_eq!(onward, first);
}

#[test]
fn a_string_is_huffman_encoded_only_where_that_is_shorter() {
    let mut encoder = Encoder::new(0);
    encode(&mut encoder, &[]);
    let block = encode(
        &mut encoder,
        &[Field::new(b"date", b"307"), Field::new(b"date", b"0000"), Field::new(b"date", b"\x00\xff")],
    );
    assert_eq!(block, bytes_of_hex("0f12 03 333037 0f12 83 00000f 0f12 02 00ff"));
}

#[test]
fn a_field_larger_than_the_table_is_sent_without_indexing_and_evicts_nothing() {
    let mut encoder = Encoder::new(4096);
    encode(&mut encoder, &[Field::new(b"a", b"b")]);
    let value = vec![b'v'; 4096 - 32];
    let block = encode(&mut encoder, &[Field::new(b"a", &value)]);
    assert_eq!(block[..2], [0x0f, 0x2f]);
    assert_eq!(encode(&mut encoder, &[Field::new(b"a", b"b")]), [0xbe]);
    // One byte less and it is the only entry.
    let block = encode(&mut encoder, &[Field::new(b"a", &value[1..])]);
    assert_eq!(block[0], 0x7e);
    assert_eq!(encoder.table_bytes(), 4096);
}

#[test]
fn fields_of_any_size_round_trip() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
    let mut list = FieldList::new();
    let limits = DecodeLimits { list_bytes_max: 1 << 22, fields_max: 10, string_bytes_max: 1 << 21 };
    for length in [0, 1, 126, 127, 128, 254, 255, 256, 4000, 4064, 4065, 16_000, 1 << 20] {
        for octet in [b'a', 0xff] {
            let (name, value) = (vec![octet; length / 2], vec![octet; length]);
            let block = encode(&mut encoder, &[Field::new(&name, &value)]);
            decoder.decode(&block, &limits, &mut list).unwrap();
            assert_eq!(list.overflow(), None::<Overflow>);
            assert_eq!(texts(&list).len(), 1);
            let field = list.get(0).unwrap();
            assert!(field.name == name && field.value == value);
        }
    }
}

mod size_updates {
    use super::*;

    const FIELD: [Field<'static>; 1] = [Field::new(b"a", b"b")];

    #[test]
    fn there_is_none_while_nothing_changes() {
        let mut encoder = Encoder::new(4096);
        encoder.set_peer_table_bytes_max(4096);
        assert_eq!(encode(&mut encoder, &[]), b"");
        encoder.set_peer_table_bytes_max(65_536);
        assert_eq!(encode(&mut encoder, &[]), b"");
    }

    #[test]
    fn a_smaller_table_of_ours_is_told_in_the_first_block() {
        let mut encoder = Encoder::new(100);
        assert_eq!(encode(&mut encoder, &[]), bytes_of_hex("3f45"));
        assert_eq!(encode(&mut encoder, &[]), b"");
    }

    #[test]
    fn a_limit_lowered_by_the_peer_evicts_and_is_told_in_the_next_block() {
        let mut encoder = Encoder::new(4096);
        encode(&mut encoder, &FIELD);
        encoder.set_peer_table_bytes_max(33);
        assert_eq!(encode(&mut encoder, &FIELD), bytes_of_hex("3f02 00 0161 0162"));
        assert_eq!(encoder.table_bytes(), 0);
    }

    #[test]
    fn a_limit_raised_by_the_peer_is_used_up_to_ours() {
        let mut encoder = Encoder::new(8192);
        assert_eq!(encode(&mut encoder, &[]), b"");
        encoder.set_peer_table_bytes_max(65_536);
        assert_eq!(encode(&mut encoder, &[]), bytes_of_hex("3fe13f"));
    }

    #[test]
    fn several_changes_between_blocks_are_told_as_the_smallest_and_the_last() {
        let mut encoder = Encoder::new(4096);
        encode(&mut encoder, &FIELD);
        for peer_table_bytes_max in [1000, 0, 2000, 50] {
            encoder.set_peer_table_bytes_max(peer_table_bytes_max);
        }
        assert_eq!(encode(&mut encoder, &FIELD), bytes_of_hex("20 3f13 40 0161 0162"));
        for peer_table_bytes_max in [10, 50] {
            encoder.set_peer_table_bytes_max(peer_table_bytes_max);
        }
        // Back where it was, but it was lower: the entry is gone at the peer, too.
        assert_eq!(encode(&mut encoder, &FIELD), bytes_of_hex("2a 3f13 40 0161 0162"));
        assert_eq!(encode(&mut encoder, &FIELD), [0xbe]);
    }

    #[test]
    fn the_decoder_is_content_with_what_the_encoder_tells() {
        let (mut encoder, mut decoder) = (Encoder::new(3000), Decoder::new(4096));
        let mut list = FieldList::new();
        let mut random = crate::tests::Random::new(5);
        for _ in 0..500 {
            for _ in 0..random.below(3) {
                let limit = [0, 31, 34, 100, 3000, 4096, 10_000][random.below(7)];
                encoder.set_peer_table_bytes_max(limit);
                decoder.set_table_bytes_max(limit);
            }
            let name = random.bytes(20);
            let block = encode(&mut encoder, &[Field::new(&name, b"value"), FIELD[0]]);
            decoder.decode(&block, &DecodeLimits::default(), &mut list).unwrap();
            let strings: Vec<_> = list.iter().map(|field| (field.name, field.value)).collect();
            assert_eq!(strings, [(&name[..], &b"value"[..]), (b"a", b"b")]);
            assert_eq!(decoder.table_bytes(), encoder.table_bytes());
        }
    }
}
