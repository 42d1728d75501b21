//! Integers with a prefix of N bits (RFC 7541 §5.1).

use crate::DecodeErrorKind;

/// Octets allowed behind the prefix: five carry 35 bits, enough for every value allowed.
const CONTINUATION_OCTETS_MAX: u32 = 5;

/// The largest value that [`decode`] accepts. SETTINGS values have 32 bits, and no string of ours is that long.
const VALUE_MAX: u64 = u32::MAX as u64;

/// Takes an integer off the front of `input`; the bits of the first octet above the prefix are ignored.
#[inline]
pub(crate) fn decode(input: &mut &[u8], prefix_bits: u32) -> Result<usize, DecodeErrorKind> {
    let (&first, rest) = input.split_first().ok_or(DecodeErrorKind::Truncated)?;
    *input = rest;
    let prefix_max = prefix_max(prefix_bits);
    let prefix = usize::from(first) & prefix_max;
    if prefix < prefix_max { Ok(prefix) } else { decode_continuation(input, prefix_max as u64) }
}

#[cold]
fn decode_continuation(input: &mut &[u8], prefix: u64) -> Result<usize, DecodeErrorKind> {
    let mut value = prefix;
    for octet_number in 0..CONTINUATION_OCTETS_MAX {
        let (&octet, rest) = input.split_first().ok_or(DecodeErrorKind::Truncated)?;
        *input = rest;
        value += u64::from(octet & 0x7f) << (7 * octet_number);
        if value > VALUE_MAX {
            return Err(DecodeErrorKind::IntegerTooLarge);
        }
        if octet & 0x80 == 0 {
            return usize::try_from(value).map_err(|_| DecodeErrorKind::IntegerTooLarge);
        }
    }
    Err(DecodeErrorKind::IntegerTooLarge)
}

/// Appends `value`; `pattern` holds the bits of the first octet above the prefix.
#[inline]
pub(crate) fn encode(value: usize, prefix_bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let prefix_max = prefix_max(prefix_bits);
    if value < prefix_max {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// How many octets [`encode`] appends.
pub(crate) fn encoded_bytes(value: usize, prefix_bits: u32) -> usize {
    match value.checked_sub(prefix_max(prefix_bits)) {
        None => 1,
        Some(rest) => 1 + (rest.max(1).ilog2() / 7 + 1) as usize,
    }
}

/// The prefix with all bits set, which says that octets follow.
const fn prefix_max(prefix_bits: u32) -> usize {
    (1 << prefix_bits) - 1
}

#[cfg(test)]
mod tests;
