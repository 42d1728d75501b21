use super::DynamicTable;
use crate::tests::Random;
use std::collections::VecDeque;

/// A table as the RFC describes it, without any thrift.
struct Model {
    /// Newest first.
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

impl Model {
    fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.entries.push_front((name.to_vec(), value.to_vec()));
        self.evict();
    }

    fn evict(&mut self) {
        while self.size() > self.size_max {
            self.entries.pop_back();
        }
    }
}

fn assert_same(table: &DynamicTable, model: &Model) {
    assert_eq!(table.len(), model.entries.len());
    assert_eq!(table.size(), model.size());
    assert!(table.size() <= table.size_max());
    for (age, (name, value)) in model.entries.iter().enumerate() {
        let entry = table.get(age).unwrap();
        assert!(entry.has_name(name) && entry.is(name, value));
        let mut other = [&name[..], value].concat();
        if let Some(octet) = other.get_mut(age * 7 % (name.len() + value.len()).max(1)) {
            *octet ^= 1;
            let (other_name, other_value) = other.split_at(name.len());
            assert!(!entry.is(other_name, other_value));
            assert_eq!(entry.has_name(other_name), other_name == name);
        }
        let longer = [value, &b"x"[..]].concat();
        assert!(!entry.is(name, &longer) && !entry.is(&longer, name));
        let mut strings = Vec::new();
        entry.append_to(&mut strings);
        assert_eq!(strings, [&name[..], value].concat());
        strings.clear();
        entry.append_name_to(&mut strings);
        assert_eq!(&strings, name);
        assert_eq!((entry.name_bytes(), entry.value_bytes()), (name.len(), value.len()));
    }
    assert!(table.get(model.entries.len()).is_none());
    assert!(table.get(usize::MAX).is_none());
}

#[test]
fn a_table_does_what_the_model_does_whatever_comes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let size_max = [0, 31, 33, 100, 256, 1000, 4096][random.below(7)];
        let mut table = DynamicTable::new(size_max);
        let mut model = Model { entries: VecDeque::new(), size_max };
        for _ in 0..400 {
            match random.below(40) {
                0 => {
                    model.size_max = random.below(2000);
                    model.evict();
                    table.set_size_max(model.size_max);
                }
                1 => {
                    model.entries.clear();
                    table.clear();
                }
                _ => {
                    let (longest_name, longest_value) = (1 + random.below(60), 1 + random.below(400));
                    let (name, value) = (random.bytes(longest_name), random.bytes(longest_value));
                    assert_eq!(
                        table.has_room_for(&name, &value),
                        name.len() + value.len() + 32 <= model.size_max
                    );
                    model.insert(&name, &value);
                    table.insert(&name, &value);
                }
            }
            assert_same(&table, &model);
        }
    }
}

#[test]
fn entries_without_any_bytes_are_counted_and_evicted() {
    let mut table = DynamicTable::new(64);
    for _ in 0..3 {
        table.insert(b"", b"");
    }
    assert_eq!((table.len(), table.size()), (2, 64));
    table.set_size_max(0);
    assert_eq!((table.len(), table.size()), (0, 0));
}

#[test]
fn an_entry_of_exactly_the_maximum_size_replaces_all_others_and_a_larger_one_empties_the_table() {
    let mut table = DynamicTable::new(100);
    table.insert(b"a", b"b");
    table.insert(&[b'n'; 30], &[b'v'; 38]);
    assert_eq!((table.len(), table.size()), (1, 100));
    table.insert(&[b'n'; 30], &[b'v'; 39]);
    assert_eq!((table.len(), table.size()), (0, 0));
}

#[test]
fn memory_grows_with_what_the_table_holds_and_goes_when_the_maximum_is_lowered() {
    let mut table = DynamicTable::new(1 << 20);
    assert_eq!(table.memory_bytes(), 0);
    table.insert(b"te", b"trailers");
    assert!(table.memory_bytes() < 512, "{}", table.memory_bytes());
    for _ in 0..10_000 {
        table.insert(b"name", &[b'v'; 200]);
    }
    assert!(table.memory_bytes() <= DynamicTable::memory_bytes_max(1 << 20), "{}", table.memory_bytes());
    table.set_size_max(4096);
    assert!(table.memory_bytes() <= DynamicTable::memory_bytes_max(4096), "{}", table.memory_bytes());
    assert_eq!(table.len(), 4096 / 236);
    table.set_size_max(0);
    assert_eq!(table.memory_bytes(), 0);
}

#[test]
fn no_content_takes_more_memory_than_the_maximum() {
    for size_max in [0, 32, 33, 64, 100, 1000, 4096, 5000] {
        let mut table = DynamicTable::new(size_max);
        for length in [0, 1, 10, 100, size_max.saturating_sub(32), 0] {
            for _ in 0..300 {
                table.insert(b"", &vec![b'v'; length]);
            }
            let memory_bytes = table.memory_bytes();
            assert!(memory_bytes <= DynamicTable::memory_bytes_max(size_max), "{size_max}: {memory_bytes}");
        }
    }
}
