//! The examples of RFC 7541 Appendix C, in both directions.

use super::{bytes_of_hex, table_of, texts};
use crate::{DecodeLimits, Decoder, Encoder, Field, FieldList, Indexing, integer};

type Pairs = &'static [(&'static str, &'static str)];

/// A header block of an example, and the dynamic table behind it.
struct Block {
    wire: &'static str,
    fields: Pairs,
    /// Newest first.
    table: Pairs,
    table_bytes: usize,
}

fn owned(pairs: Pairs) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn assert_decodes(table_bytes: usize, blocks: &[Block]) {
    let mut decoder = Decoder::new(table_bytes);
    let mut fields = FieldList::new();
    for block in blocks {
        decoder.decode(&bytes_of_hex(block.wire), &DecodeLimits::default(), &mut fields).unwrap();
        assert_eq!(texts(&fields), owned(block.fields));
        assert_eq!(table_of(&mut decoder), owned(block.table));
        assert_eq!(decoder.table_bytes(), block.table_bytes);
    }
}

/// Ours is Huffman encoded where that is shorter, as in C.4 and C.6.
fn assert_encodes(table_bytes: usize, blocks: &[Block]) {
    let mut encoder = Encoder::new(table_bytes);
    let mut decoder = Decoder::new(4096);
    let mut fields = FieldList::new();
    for (number, block) in blocks.iter().enumerate() {
        let mut wire = Vec::new();
        encoder.encode(
            block.fields.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes())),
            &mut wire,
        );
        let mut expected = Vec::new();
        if number == 0 && table_bytes != 4096 {
            integer::encode(table_bytes, 5, 0x20, &mut expected);
        }
        expected.extend(bytes_of_hex(block.wire));
        assert_eq!(wire, expected, "block {number}");
        assert_eq!(encoder.table_bytes(), block.table_bytes);
        decoder.decode(&wire, &DecodeLimits::default(), &mut fields).unwrap();
        assert_eq!(texts(&fields), owned(block.fields));
        assert_eq!(table_of(&mut decoder), owned(block.table));
    }
}

#[test]
fn c_1_integers() {
    for (value, prefix_bits, wire) in [(10, 5, &[0x0a][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[0x2a])]
    {
        let mut encoded = Vec::new();
        integer::encode(value, prefix_bits, 0, &mut encoded);
        assert_eq!(encoded, wire);
        let mut input = wire;
        assert_eq!(integer::decode(&mut input, prefix_bits), Ok(value));
        assert!(input.is_empty());
    }
}

#[test]
fn c_2_field_representations() {
    let cases = [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            ("custom-key", "custom-header"),
            Indexing::Incremental,
            55,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path"), Indexing::Without, 0),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret"), Indexing::Never, 0),
        ("82", (":method", "GET"), Indexing::Incremental, 0),
    ];
    for (wire, (name, value), indexing, table_bytes) in cases {
        let mut decoder = Decoder::new(4096);
        let mut fields = FieldList::new();
        decoder.decode(&bytes_of_hex(wire), &DecodeLimits::default(), &mut fields).unwrap();
        let field = Field { name: name.as_bytes(), value: value.as_bytes(), indexing };
        assert_eq!(fields.iter().collect::<Vec<_>>(), [field]);
        assert_eq!(decoder.table_bytes(), table_bytes);
        if table_bytes > 0 {
            assert_eq!(table_of(&mut decoder), [(name.to_owned(), value.to_owned())]);
        }
    }
}

#[test]
fn c_3_requests_without_huffman() {
    assert_decodes(
        4096,
        &requests([
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ]),
    );
}

#[test]
fn c_4_requests_with_huffman() {
    let blocks = requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
    assert_decodes(4096, &blocks);
    assert_encodes(4096, &blocks);
}

#[test]
fn c_5_responses_without_huffman_and_with_eviction() {
    assert_decodes(
        256,
        &responses([
            "4803 3330 3258 0770 7269 7661 7465 611d
         4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768
         7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420
         3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153
         444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61
         6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
        ]),
    );
}

#[test]
fn c_6_responses_with_huffman_and_with_eviction() {
    let mut blocks = responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe
         9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8
         e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595
         040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b
         3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
    assert_decodes(256, &blocks);
    // "307" is as long either way: the example encodes it, ours does not.
    blocks[1].wire = "4803 3330 37c1 c0bf";
    assert_encodes(256, &blocks);
}

fn requests(wires: [&'static str; 3]) -> [Block; 3] {
    [
        Block {
            wire: wires[0],
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
            ],
            table: &[(":authority", "www.example.com")],
            table_bytes: 57,
        },
        Block {
            wire: wires[1],
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
                ("cache-control", "no-cache"),
            ],
            table: &[("cache-control", "no-cache"), (":authority", "www.example.com")],
            table_bytes: 110,
        },
        Block {
            wire: wires[2],
            fields: &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/index.html"),
                (":authority", "www.example.com"),
                ("custom-key", "custom-value"),
            ],
            table: &[
                ("custom-key", "custom-value"),
                ("cache-control", "no-cache"),
                (":authority", "www.example.com"),
            ],
            table_bytes: 164,
        },
    ]
}

fn responses(wires: [&'static str; 3]) -> [Block; 3] {
    const DATE: &str = "Mon, 21 Oct 2013 20:13:21 GMT";
    const LATER: &str = "Mon, 21 Oct 2013 20:13:22 GMT";
    const LOCATION: &str = "https://www.example.com";
    const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    [
        Block {
            wire: wires[0],
            fields: &[
                (":status", "302"),
                ("cache-control", "private"),
                ("date", DATE),
                ("location", LOCATION),
            ],
            table: &[
                ("location", LOCATION),
                ("date", DATE),
                ("cache-control", "private"),
                (":status", "302"),
            ],
            table_bytes: 222,
        },
        Block {
            wire: wires[1],
            fields: &[
                (":status", "307"),
                ("cache-control", "private"),
                ("date", DATE),
                ("location", LOCATION),
            ],
            table: &[
                (":status", "307"),
                ("location", LOCATION),
                ("date", DATE),
                ("cache-control", "private"),
            ],
            table_bytes: 222,
        },
        Block {
            wire: wires[2],
            fields: &[
                (":status", "200"),
                ("cache-control", "private"),
                ("date", LATER),
                ("location", LOCATION),
                ("content-encoding", "gzip"),
                ("set-cookie", COOKIE),
            ],
            table: &[("set-cookie", COOKIE), ("content-encoding", "gzip"), ("date", LATER)],
            table_bytes: 215,
        },
    ]
}
