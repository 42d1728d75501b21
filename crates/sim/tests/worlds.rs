//! Worlds hold, and a seed is a world.

use fulmar_sim::World;

#[test]
fn worlds_hold_and_a_seed_gives_the_same_trace_twice() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let report = World::new(seed).run().unwrap_or_else(|broken| panic!("{broken}"));
        let again = World::new(seed).run().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(report, again, "seed {seed} gave two worlds");
        hashes.insert(report.hash);
    }
    assert_eq!(hashes.len(), 30, "two seeds gave the same world");
}
