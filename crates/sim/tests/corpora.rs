//! What a seeded generator makes, through the bodies of the fuzz targets.

use fulmar_sim::{Random, fuzz};

#[test]
fn any_bytes_are_decoded_or_refused() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let len = random.magnitude(600);
        let data: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        fuzz::hpack_decode(&data);
    }
}
