use super::{decode, encode, encoded_bytes};
use crate::DecodeErrorKind::{IntegerTooLarge, Truncated};

fn decode_all(wire: &[u8], prefix_bits: u32) -> Result<usize, crate::DecodeErrorKind> {
    let mut input = wire;
    decode(&mut input, prefix_bits).inspect(|_| assert!(input.is_empty(), "octets left of {wire:?}"))
}

#[test]
fn what_is_encoded_decodes_to_the_same_value_for_every_prefix() {
    for prefix_bits in 1..=8 {
        for power in 0..=32 {
            for offset in -2..=2 {
                let value = (1i64 << power) + offset;
                let Some(value) = u32::try_from(value).ok().map(|value| value as usize) else { continue };
                let mut wire = Vec::new();
                encode(value, prefix_bits, 0, &mut wire);
                assert_eq!(decode_all(&wire, prefix_bits), Ok(value), "{prefix_bits} bits");
            }
        }
    }
}

#[test]
fn bits_above_the_prefix_are_written_and_ignored() {
    let mut wire = Vec::new();
    encode(31, 5, 0x20, &mut wire);
    assert_eq!(wire, [0x3f, 0x00]);
    assert_eq!(decode_all(&wire, 5), Ok(31));
}

#[test]
fn the_rest_of_the_input_is_left_alone() {
    let mut input = &[0x1f, 0x9a, 0x0a, 0x55][..];
    assert_eq!(decode(&mut input, 5), Ok(1337));
    assert_eq!(input, [0x55]);
}

#[test]
fn an_integer_that_ends_early_is_truncated() {
    for wire in [&[][..], &[0x1f], &[0x1f, 0x80], &[0xff, 0xff, 0xff, 0xff, 0xff]] {
        assert_eq!(decode_all(wire, 5), Err(Truncated), "{wire:?}");
    }
}

#[test]
fn the_largest_value_is_that_of_32_bits() {
    let largest = u32::MAX as usize;
    let mut wire = Vec::new();
    encode(largest, 7, 0, &mut wire);
    assert_eq!(wire.len(), 6);
    assert_eq!(decode_all(&wire, 7), Ok(largest));
    wire.clear();
    encode(largest + 1, 7, 0, &mut wire);
    assert_eq!(decode_all(&wire, 7), Err(IntegerTooLarge));
    assert_eq!(decode_all(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], 7), Err(IntegerTooLarge));
}

#[test]
fn zeros_at_the_end_are_bounded_in_number() {
    assert_eq!(decode_all(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00], 7), Ok(127));
    let mut input = &[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..];
    assert_eq!(decode(&mut input, 7), Err(IntegerTooLarge));
}

#[test]
fn the_octets_of_an_integer_are_as_many_as_was_said() {
    for prefix_bits in 1..=8 {
        for shift in 0..33 {
            for value in [(1_usize << shift) - 1, 1 << shift, (1 << shift) + 254, (1 << shift) + 255] {
                let mut out = Vec::new();
                encode(value, prefix_bits, 0, &mut out);
                assert_eq!(encoded_bytes(value, prefix_bits), out.len(), "{value} behind {prefix_bits} bits");
            }
        }
    }
}
