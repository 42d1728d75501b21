//! Every cell of the grid runs, or says why it is not offered: benchmarks that nobody runs would rot.

use std::time::Duration;

use fulmar_benches::cell::{Cell, Client, Kind, Peer, Threads, Transport};
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

fn runs(peer: Peer, rate: Option<u32>) {
    let options = Options {
        peers: vec![peer],
        clients: vec![Client::Async, Client::Blocking],
        threads: vec![
            Threads::Runtime,
            Threads::Two,
            Threads::One,
            Threads::Spin,
            Threads::Tokio,
            Threads::Callers,
        ],
        transports: vec![Transport::Tcp, Transport::InProcess],
        kinds: vec![Kind::Unary, Kind::Streaming],
        concurrency: vec![1, 8],
        payloads: vec![1, 70_000],
        ..Options::default()
    };
    let _watchdog = watchdog::start(format!("the cells of {peer}"), Duration::from_secs(180));
    let (mut measured, mut not_offered) = (0, 0);
    for cell in options.cells() {
        match peers::measure(&cell, PHASES, rate) {
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
    // Twice two kinds, two numbers of callers and two payloads, over the three arrangements that everybody has.
    assert!(measured >= 40, "{peer}: {measured} cells measured, {not_offered} not offered");
}

fn may_be_missing(cell: &Cell) -> bool {
    let is_blocking = cell.client == Client::Blocking;
    match (cell.transport, cell.threads) {
        (Transport::InProcess, Threads::One | Threads::Runtime) => cell.peer != Peer::Fulmar || is_blocking,
        (Transport::InProcess, _) => true,
        (_, Threads::Spin) => is_blocking || matches!(cell.peer, Peer::Tonic | Peer::H2),
        (_, Threads::One) => is_blocking,
        (_, Threads::Callers) => is_blocking || cell.peer != Peer::Fulmar,
        (_, Threads::Tokio) => is_blocking && cell.peer == Peer::Fulmar,
        _ => false,
    }
}

#[test]
fn every_cell_of_fulmar_runs() {
    runs(Peer::Fulmar, None);
}

#[test]
fn every_cell_of_fulmar_runs_at_a_rate() {
    runs(Peer::Fulmar, Some(20_000));
}

#[test]
fn every_cell_of_tonic_runs() {
    runs(Peer::Tonic, None);
}

#[test]
fn every_cell_of_h2_runs() {
    runs(Peer::H2, None);
}

#[test]
fn every_cell_of_the_floor_runs() {
    runs(Peer::Floor, None);
}

#[test]
fn fulmar_tonic_and_the_floor_run_over_each_transport() {
    let options = Options {
        peers: vec![Peer::Fulmar, Peer::Tonic, Peer::Floor],
        transports: vec![Transport::Tls, Transport::Uds],
        payloads: vec![1, 100_000],
        ..Options::default()
    };
    let floor_of_threads = Options {
        peers: vec![Peer::Floor],
        clients: vec![Client::Blocking],
        threads: vec![Threads::Two],
        concurrency: vec![2],
        transports: vec![Transport::Tls],
        ..Options::default()
    };
    let _watchdog = watchdog::start("the cells of each transport".into(), Duration::from_secs(180));
    for cell in options.cells().into_iter().chain(floor_of_threads.cells()) {
        let measured =
            peers::measure(&cell, PHASES, None).unwrap_or_else(|failed| panic!("{cell}: {failed}"));
        assert!(measured.iterations > 0, "{cell}: {measured:?}");
    }
}

#[test]
fn a_transport_that_is_not_offered_says_so() {
    let options =
        Options { peers: vec![Peer::Floor], transports: vec![Transport::InProcess], ..Options::default() };
    for cell in options.cells() {
        let answer = peers::measure(&cell, PHASES, None);
        assert!(matches!(answer, Err(RunError::NotOffered(_))), "{cell}");
    }
}
