use std::sync::LazyLock;

use crate::Random;

/// What a stream carries in one direction from `offset` on: a part of one long row of chance, which begins elsewhere for each, so
/// that nothing else looks like it.
pub(super) fn of(id: u32, from_client: bool, offset: usize, bytes: usize) -> &'static [u8] {
    static ROW: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut random = Random::new(0);
        (0..STARTS + BYTES_MAX).map(|_| random.bits() as u8).collect()
    });
    let start = (2 * id as usize + usize::from(from_client)) * 97 % STARTS;
    &ROW[start + offset..][..bytes]
}

/// How many rows begin at a place of their own.
const STARTS: usize = 1 << 16;

/// The most content that all streams of an end carry together.
pub(super) const BYTES_MAX: usize = 150_000;
