//! A hash for names and values. It need not withstand an attacker: what is found by it is compared byte for byte, and searches
//! are bounded.

/// An odd number without pattern: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Continues the hash `state` with `bytes`. The low bits are as good as the high ones.
pub(crate) const fn hash(state: u64, bytes: &[u8]) -> u64 {
    let mut state = mix(state, bytes.len() as u64);
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        state = mix(state, u64::from_le_bytes(*chunk));
        rest = behind;
    }
    let mut last = 0;
    if let Some((chunk, behind)) = rest.split_first_chunk::<4>() {
        last = u32::from_le_bytes(*chunk) as u64;
        rest = behind;
    }
    while let [octet, behind @ ..] = rest {
        last = last << 8 | *octet as u64;
        rest = behind;
    }
    mix(state, last)
}

const fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(MULTIPLIER);
    product ^ product >> 32
}
