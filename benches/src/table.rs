//! What is printed: one line a cell as Go's benchmarks print theirs, and the ratios between peers.

use std::fmt::Write as _;

use crate::cell::{Cell, Peer};
use crate::meter::Measurement;

/// Of each cell the round with the middle time a call; cells without a round are left out.
pub fn medians(results: Vec<(Cell, Vec<Measurement>)>) -> Vec<(Cell, Measurement)> {
    let median = |(cell, rounds)| Some((cell, median(rounds, |round: &Measurement| round.ns)?));
    results.into_iter().filter_map(median).collect()
}

/// The round with the middle figure; none if there is no round.
pub fn median<T>(mut rounds: Vec<T>, figure: impl Fn(&T) -> f64) -> Option<T> {
    rounds.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
    let middle = rounds.len() / 2;
    (middle < rounds.len()).then(|| rounds.swap_remove(middle))
}

/// The line of a cell.
pub fn line(cell: &Cell, measurement: &Measurement) -> String {
    let Measurement { iterations, ns, cpu_ns, bytes, allocations, p50_ns, p99_ns, p999_ns } = measurement;
    format!(
        "{:<92} {iterations:>9} {ns:>11.1} ns/op {bytes:>9.1} B/op {allocations:>8.2} allocs/op \
         {p50_ns:>10} p50-ns {p99_ns:>10} p99-ns {p999_ns:>10} p99.9-ns {cpu_ns:>10.1} cpu-ns/op",
        cell.to_string(),
    )
}

/// For every group of comparable cells: how many times as long as each other peer Fulmar takes a call. Empty without Fulmar
/// or without another peer. The lines begin with `#`, so that `benchstat` passes over them.
pub fn ratios(medians: &[(Cell, Measurement)]) -> String {
    let mut text = String::new();
    for (ours, measurement) in medians.iter().filter(|(cell, _)| cell.peer == Peer::Fulmar) {
        let others: Vec<String> = medians
            .iter()
            .filter(|(cell, _)| cell.peer != Peer::Fulmar && cell.is_comparable(ours))
            .map(|(cell, other)| format!("{:.3} x {}", measurement.ns / other.ns, cell.peer))
            .collect();
        if !others.is_empty() {
            let name = ours.to_string().replace("Benchmark", "").replace("/peer=fulmar", "");
            writeln!(text, "# {name}: fulmar's ns/op is {}", others.join(", "))
                .expect("writing to a string does not fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(peer: Peer, callers: usize) -> Cell {
        Cell { peer, callers, ..Cell::BASE }
    }

    fn measured(ns: f64) -> Measurement {
        let (p50_ns, p99_ns, p999_ns) = (1, 2, 3);
        Measurement { iterations: 10, ns, cpu_ns: ns, bytes: 0.0, allocations: 0.0, p50_ns, p99_ns, p999_ns }
    }

    #[test]
    fn the_median_round_is_the_one_in_the_middle() {
        let rounds = vec![measured(30.0), measured(10.0), measured(20.0)];
        let medians = medians(vec![(cell(Peer::Tonic, 1), rounds), (cell(Peer::Floor, 1), vec![])]);
        assert_eq!(medians.len(), 1);
        assert_eq!(medians[0].1.ns, 20.0);
    }

    #[test]
    fn a_line_has_pairs_of_value_and_unit_after_name_and_count() {
        let line = line(&cell(Peer::Tonic, 8), &measured(11.4));
        let words: Vec<_> = line.split_whitespace().collect();
        assert!(words[0].starts_with("BenchmarkClientUnary/peer=tonic/"));
        assert_eq!(words[1], "10");
        let units: Vec<_> =
            words[2..].chunks(2).map(|pair| (pair[0].parse::<f64>().is_ok(), pair[1])).collect();
        let expected = ["ns/op", "B/op", "allocs/op", "p50-ns", "p99-ns", "p99.9-ns", "cpu-ns/op"]
            .map(|unit| (true, unit));
        assert_eq!(units, expected);
    }

    #[test]
    fn ratios_compare_only_what_differs_in_the_peer_alone() {
        let medians = [
            (cell(Peer::Fulmar, 1), measured(5.0)),
            (cell(Peer::Tonic, 1), measured(20.0)),
            (cell(Peer::Tonic, 8), measured(1.0)),
        ];
        let text = ratios(&medians);
        assert!(text.contains("0.250 x tonic") && text.lines().count() == 1, "{text}");
    }
}
