use super::{CODES, Decoded, EOS, LENGTHS, decode, encode, encoded_len};
use crate::DecodeErrorKind::{self, HuffmanEos, HuffmanPaddingInvalid};
use crate::tests::Random;
use hpack::huffman::{HuffmanDecoder, HuffmanDecoderError};

fn decoded(wire: &[u8]) -> Result<Vec<u8>, DecodeErrorKind> {
    let mut string = Vec::new();
    decode(wire, usize::MAX, &mut string).map(|outcome| {
        assert_eq!(outcome, Decoded::Whole);
        string
    })
}

fn encoded(string: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    encode(string, &mut wire);
    assert_eq!(wire.len(), encoded_len(string));
    wire
}

/// The bits given as text, filled up with ones.
fn wire_of_bits(bits: &str) -> Vec<u8> {
    let octets: Vec<char> = bits.chars().filter(|bit| !bit.is_whitespace()).collect();
    octets
        .chunks(8)
        .map(|octet| (0..8).fold(0, |value, bit| value << 1 | u8::from(octet.get(bit) != Some(&'0'))))
        .collect()
}

#[test]
fn codes_are_those_of_appendix_b() {
    let samples = [
        (0, 0x1ff8, 13),
        (1, 0x7f_ffd8, 23),
        (10, 0x3fff_fffc, 30),
        (u16::from(b' '), 0x14, 6),
        (u16::from(b'0'), 0x0, 5),
        (u16::from(b'<'), 0x7ffc, 15),
        (u16::from(b'A'), 0x21, 6),
        (u16::from(b'\\'), 0x7_fff0, 19),
        (u16::from(b'a'), 0x3, 5),
        (u16::from(b'z'), 0x7b, 7),
        (127, 0xfff_fffc, 28),
        (128, 0xf_ffe6, 20),
        (249, 0xfff_fffe, 28),
        (255, 0x3ff_ffee, 26),
        (EOS, 0x3fff_ffff, 30),
    ];
    for (symbol, code, length) in samples {
        let position = usize::from(symbol);
        assert_eq!((CODES[position], LENGTHS[position]), (code, length), "symbol {symbol}");
    }
}

#[test]
fn every_octet_round_trips_at_every_bit_position_and_as_the_oracle_reads_it() {
    let mut oracle = HuffmanDecoder::new();
    for octet in 0..=255 {
        for before in 0..8 {
            // A zero digit has five bits, so eight of them reach every bit position.
            let mut string = vec![b'0'; before];
            string.extend([octet, b'x']);
            let wire = encoded(&string);
            assert_eq!(decoded(&wire).as_deref(), Ok(&string[..]));
            assert_eq!(oracle.decode(&wire).ok().as_deref(), Some(&string[..]));
        }
    }
}

#[test]
fn r26_all_octets_round_trip_at_every_length_up_to_64_as_the_oracle_reads_them() {
    let mut oracle = HuffmanDecoder::new();
    let octets: Vec<u8> = (0..=255_u8).map(|octet| octet.wrapping_mul(37)).collect();
    for length in 1..=64 {
        for string in octets.chunks(length) {
            let wire = encoded(string);
            assert_eq!(decoded(&wire).as_deref(), Ok(string));
            assert_eq!(oracle.decode(&wire).ok().as_deref(), Some(string));
        }
    }
}

#[test]
fn random_bits_give_what_the_oracle_gives() {
    let mut oracle = HuffmanDecoder::new();
    let mut random = Random::new(0x4855_4646);
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut wire = random.bytes(12);
        // Ones are what long codes, EOS and the padding are made of.
        for octet in &mut wire {
            if random.below(3) == 0 {
                *octet = 0xff;
            }
        }
        let expected = oracle.decode(&wire).map_err(|error| match error {
            HuffmanDecoderError::EOSInString => HuffmanEos,
            _ => HuffmanPaddingInvalid,
        });
        let ours = decoded(&wire);
        if ours.is_ok() {
            whole += 1
        } else {
            refused += 1
        }
        assert_eq!(ours, expected, "{wire:02x?}");
    }
    assert!(whole > 100 && refused > 100, "one-sided: {whole} whole, {refused} refused");
}

#[test]
fn the_empty_string_is_empty_both_ways() {
    assert_eq!(decoded(b""), Ok(Vec::new()));
    assert_eq!(encoded(b""), b"");
}

#[test]
fn padding_of_up_to_seven_ones_is_taken() {
    // Five bits each: '0' and seven more strings, so that each padding from 0 to 7 comes up.
    for count in 1..=8 {
        let string = vec![b'0'; count];
        assert_eq!(decoded(&wire_of_bits(&"00000".repeat(count))), Ok(string));
    }
}

#[test]
fn padding_with_a_zero_in_it_is_refused() {
    for padding in ["011", "101", "110", "000"] {
        // "000" begins '0', '1', '2', 'a', 'c', 'e', 'i' or 'o', whose two last bits are missing.
        assert_eq!(
            decoded(&wire_of_bits(&format!("00000{padding}"))),
            Err(HuffmanPaddingInvalid),
            "{padding}"
        );
    }
}

#[test]
fn padding_of_eight_ones_and_more_is_refused() {
    assert_eq!(decoded(&[0xff]), Err(HuffmanPaddingInvalid));
    assert_eq!(decoded(&wire_of_bits("00000 111 11111111")), Err(HuffmanPaddingInvalid));
    assert_eq!(decoded(&[0xff, 0xff, 0xff]), Err(HuffmanPaddingInvalid));
    // 29 ones: one bit short of EOS.
    assert_eq!(
        decoded(&wire_of_bits(&format!("00000 010100 {}", "1".repeat(29)))),
        Err(HuffmanPaddingInvalid)
    );
}

#[test]
fn eos_in_the_string_is_refused() {
    assert_eq!(decoded(&[0xff; 4]), Err(HuffmanEos));
    assert_eq!(decoded(&wire_of_bits(&format!("00000 {} 00000", "1".repeat(30)))), Err(HuffmanEos));
}

#[test]
fn a_code_cut_off_in_the_middle_is_refused() {
    // The first 16 of the 28 bits of octet 2: its first eight bits are ones, the others are not the padding.
    assert_eq!(decoded(&[0xff, 0xff, 0xfe]), Err(HuffmanPaddingInvalid));
}

#[test]
fn a_string_of_exactly_the_limit_is_whole_and_one_more_byte_is_too_long() {
    let wire = encoded(b"trailers");
    let mut out = b"before".to_vec();
    assert_eq!(decode(&wire, 8, &mut out), Ok(Decoded::Whole));
    assert_eq!(out, b"beforetrailers");
    out.clear();
    assert_eq!(decode(&wire, 7, &mut out), Ok(Decoded::TooLong));
    assert!(out.len() <= 7);
    assert_eq!(decode(&encoded(b"x"), 0, &mut Vec::new()), Ok(Decoded::TooLong));
    assert_eq!(decode(b"", 0, &mut Vec::new()), Ok(Decoded::Whole));
}

#[test]
fn a_limit_bounds_the_memory_taken() {
    let mut out = Vec::new();
    assert_eq!(decode(&vec![0; 1 << 20], 100, &mut out), Ok(Decoded::TooLong));
    assert!(out.capacity() < 1000, "{}", out.capacity());
}
