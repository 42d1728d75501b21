//! Calls in one process are as calls over a socket: plays that are performed over both, with both ends on one thread and on several, and
//! of which everything that callers and handlers see has to be the same.

#[path = "../common/mod.rs"]
mod common;

mod plays;
mod stage;
mod ways;

use fulmar::ServerBuilder;
use stage::{ARRANGEMENTS, Log, Play, perform};

/// Performs a play in all arrangements.
fn compare(play: Play) {
    compare_with(|builder, _| builder, play);
}

/// The same with a server that is built in another way.
fn compare_with(build: fn(ServerBuilder, &Log) -> ServerBuilder, play: Play) {
    let [first, others @ ..] = ARRANGEMENTS;
    let expected = perform(first, build, play);
    assert!(!expected.is_empty(), "nothing was seen");
    for arrangement in others {
        let seen = perform(arrangement, build, play);
        for (number, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(seen, expected, "line {number}: {arrangement:?} is not as {first:?}");
        }
        assert_eq!(seen.len(), expected.len(), "{arrangement:?}: {seen:#?} instead of {expected:#?}");
    }
}
