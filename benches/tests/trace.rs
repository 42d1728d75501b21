//! `grid --trace on`: a program of its own, since the subscriber is the process's.
#![cfg(feature = "trace")]

use std::time::Duration;

use fulmar_benches::cell::{Kind, Peer};
use fulmar_benches::meter::Phases;
use fulmar_benches::options::Options;
use fulmar_benches::peers::{self, RunError};
use fulmar_benches::trace;

const PHASES: Phases = Phases {
    warm_up: Duration::from_millis(2),
    timed: Duration::from_millis(10),
    counted: Duration::from_millis(2),
};

#[test]
fn a_subscriber_hears_of_every_call_and_every_message_of_both_sides_and_off_is_silent() {
    let options = Options {
        peers: vec![Peer::Fulmar],
        kinds: vec![Kind::Unary],
        concurrency: vec![4],
        traces: vec![true, false],
        ..Options::default()
    };
    for cell in options.cells() {
        let before = trace::told();
        let measurement = peers::measure(&cell, PHASES, None).expect("the cell is offered");
        let after = trace::told();
        assert!(measurement.iterations > 0, "{cell}");
        let (spans, events) = (after.spans - before.spans, after.events - before.events);
        if cell.trace {
            assert!(
                spans >= 2 * measurement.iterations && events >= 2 * spans,
                "{spans} spans, {events} events"
            );
            assert_eq!(after.closed - before.closed, spans, "both ends are gone, and their calls with them");
        } else {
            assert_eq!(after, before, "the subscriber is off");
        }
    }
    let options = Options { peers: vec![Peer::Tonic, Peer::H2, Peer::Floor], traces: vec![true], ..options };
    for cell in options.cells() {
        assert!(matches!(peers::measure(&cell, PHASES, None), Err(RunError::NotOffered(_))), "{cell}");
    }
}
