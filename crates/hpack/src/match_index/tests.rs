use super::{FieldHash, MatchIndex, SEARCH_STEPS_MAX};
use crate::dynamic_table::DynamicTable;
use crate::tests::Random;

/// Hashes with few values, so that most searches meet collisions.
fn weak_hash(name: &[u8], value: &[u8]) -> FieldHash {
    FieldHash { field: u32::from(name[0]) % 2 + u32::from(value[0]) % 2 * 16, name: u32::from(name[0]) % 2 }
}

fn newest_match(entries: &[(u8, u8)], matches: impl Fn(&(u8, u8)) -> bool) -> Option<usize> {
    entries.iter().rev().position(matches)
}

#[test]
fn the_newest_match_is_found_through_collisions_growth_and_eviction() {
    for (seed, newest) in [(1, 0), (2, u32::MAX - 150), (3, u32::MAX / 2)] {
        let mut random = Random::new(seed);
        let mut table = DynamicTable::new(34 * 8);
        let mut index = MatchIndex { newest, ..MatchIndex::default() };
        let mut entries = Vec::new();
        for round in 0..400 {
            let (name, value) = (random.below(5) as u8, random.below(5) as u8);
            let hash = weak_hash(&[name], &[value]);
            let live = &entries[entries.len() - table.len()..];
            assert_eq!(
                index.find_field(&table, hash, &[name], &[value]),
                newest_match(live, |entry| *entry == (name, value)),
                "seed {seed}, round {round}"
            );
            assert_eq!(index.find_name(&table, hash, &[name]), newest_match(live, |entry| entry.0 == name));
            table.insert(&[name], &[value]);
            index.on_insert(&table, hash);
            entries.push((name, value));
            match round {
                // At most 16 entries, so that no search gives up.
                100 => table.set_size_max(34 * 16),
                200 => {
                    table.set_size_max(0);
                    index.clear();
                    table.set_size_max(34 * 12);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn entries_are_still_found_after_the_index_has_grown() {
    let mut table = DynamicTable::new(1 << 16);
    let mut index = MatchIndex::default();
    let hash_of = |value: u32| FieldHash { field: value.wrapping_mul(0x9e37_79b1), name: 3 };
    for value in 0..1000_u32 {
        table.insert(b"name", &value.to_be_bytes());
        index.on_insert(&table, hash_of(value));
    }
    for value in 0..1000_u32 {
        let age = index.find_field(&table, hash_of(value), b"name", &value.to_be_bytes());
        assert_eq!(age, Some(999 - value as usize));
    }
    assert_eq!(index.find_name(&table, hash_of(0), b"name"), Some(0));
}

#[test]
fn a_search_gives_up_after_a_bounded_number_of_collisions() {
    let mut table = DynamicTable::new(1 << 16);
    let mut index = MatchIndex::default();
    let hash = FieldHash { field: 1, name: 1 };
    for value in 0..100_u8 {
        table.insert(b"n", &[value]);
        index.on_insert(&table, hash);
    }
    let found = (0..100_u8).filter(|value| index.find_field(&table, hash, b"n", &[*value]).is_some()).count();
    assert_eq!(found, SEARCH_STEPS_MAX as usize);
}

#[test]
fn numbers_that_come_up_again_neither_match_wrongly_nor_loop() {
    let mut table = DynamicTable::new(34 * 4);
    let mut index = MatchIndex::default();
    for value in 0..4_u8 {
        table.insert(b"n", &[value]);
        index.on_insert(&table, FieldHash { field: u32::from(value), name: 0 });
    }
    // As after 2^32 insertions: the links of all entries point at each other in both directions.
    for link in &mut index.links {
        link.older.by_field = index.newest;
        link.older.by_name = index.newest.wrapping_sub(1);
    }
    for value in 0..8_u8 {
        let hash = FieldHash { field: u32::from(value), name: 0 };
        if let Some(age) = index.find_field(&table, hash, b"n", &[value]) {
            assert!(table.get(age).is_some_and(|entry| entry.is(b"n", &[value])));
        }
        assert_eq!(index.find_name(&table, hash, b"absent"), None);
    }
}
