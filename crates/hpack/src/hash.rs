//! A hash for names and values, made for speed: it takes in the length and up to 24 octets, and tells strings that differ only
//! between those apart no more. It need not withstand an attacker either: what is found by it is compared byte for byte, and
//! searches are bounded.

/// An odd number without pattern: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a string. The low bits are as good as the high ones.
pub(crate) const fn hash(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let (first, middle, last) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let (_, from_middle) = bytes.split_at((length - 8) / 2);
            let middle = match from_middle.first_chunk::<8>() {
                Some(middle) => u64::from_le_bytes(*middle),
                None => 0,
            };
            (u64::from_le_bytes(*first), middle, u64::from_le_bytes(*last))
        }
        _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                (u32::from_le_bytes(*first) as u64, 0, u32::from_le_bytes(*last) as u64)
            }
            _ => (up_to_three(bytes), 0, 0),
        },
    };
    let state = first.wrapping_mul(MULTIPLIER) ^ last.rotate_left(32).wrapping_add(length as u64);
    combine(state, middle)
}

/// The hash of two strings, from the hash of each.
pub(crate) const fn combine(first: u64, second: u64) -> u64 {
    let product = (first ^ second.rotate_left(29)).wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}

const fn up_to_three(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => 0,
        [a] => a as u64,
        [a, b, ..] => a as u64 | (b as u64) << 8 | (bytes[bytes.len() - 1] as u64) << 16,
    }
}
