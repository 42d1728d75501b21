//! Benchmarks of Fulmar: the grid against its peers, the allocation contract, criterion benches.
