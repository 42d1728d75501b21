//! Every cell of the grid runs, or says why it is not offered: benchmarks that nobody runs would rot.

use std::time::Duration;

use fulmar_benches::cell::{Cell, Client, Kind, Peer, Threads};
use fulmar_benches::meter::Phases;
use fulmar_benches::options::Options;
use fulmar_benches::peers::{self, RunError};
use fulmar_benches::watchdog;

/// Long enough for a few calls, short enough for all cells.
const PHASES: Phases = Phases {
    warm_up: Duration::from_millis(2),
    timed: Duration::from_millis(10),
    counted: Duration::from_millis(2),
};

fn runs(peer: Peer) {
    let options = Options {
        peers: vec![peer],
        clients: vec![Client::Async, Client::Blocking],
        threads: vec![Threads::Runtime, Threads::Two, Threads::One, Threads::Spin],
        kinds: vec![Kind::Unary, Kind::Streaming],
        concurrency: vec![1, 8],
        payloads: vec![1, 70_000],
        ..Options::default()
    };
    let _watchdog = watchdog::start(format!("the cells of {peer}"), Duration::from_secs(180));
    let (mut measured, mut not_offered) = (0, 0);
    for cell in options.cells() {
        match peers::measure(&cell, PHASES) {
            Ok(measurement) => {
                assert!(measurement.iterations > 0 && measurement.ns > 0.0, "{cell}: {measurement:?}");
                measured += 1;
            }
            Err(RunError::NotOffered(_)) => {
                assert!(may_be_missing(&cell), "{cell} is offered");
                not_offered += 1;
            }
            Err(failed) => panic!("{cell}: {failed}"),
        }
    }
    assert!(measured >= 40, "{peer}: {measured} cells measured, {not_offered} not offered");
}

fn may_be_missing(cell: &Cell) -> bool {
    let spinning =
        cell.threads == Threads::Spin && (cell.peer == Peer::Tonic || cell.client == Client::Blocking);
    spinning || (cell.client == Client::Blocking && cell.threads == Threads::One)
}

#[test]
fn every_cell_of_fulmar_runs() {
    runs(Peer::Fulmar);
}

#[test]
fn every_cell_of_tonic_runs() {
    runs(Peer::Tonic);
}

#[test]
fn every_cell_of_the_floor_runs() {
    runs(Peer::Floor);
}
