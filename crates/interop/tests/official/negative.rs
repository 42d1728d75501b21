//! The negative HTTP/2 cases, our client against our servers.

use std::thread;

use fulmar_interop::negative::{self, Case, Http2Server, Options};

/// Runs a case and returns how many connections the client needed for it.
fn run(case: Case) -> Result<usize, String> {
    let server = Http2Server::start(case, "127.0.0.1:0").expect("a free port");
    let address = server.address();
    let options = Options { host: address.ip().to_string(), port: address.port(), case };
    negative::run(&options).map_err(|failure| format!("{case}: {failure}"))?;
    match server.violations().as_slice() {
        [] => Ok(server.connections()),
        violations => Err(format!("{case}: {violations:?}")),
    }
}

#[test]
fn every_case_passes_on_one_connection_but_goaway_on_two() {
    thread::scope(|scope| {
        for (case, thread) in Case::ALL.map(|case| (case, scope.spawn(move || run(case)))) {
            let expected = if case == Case::GoAway { 2 } else { 1 };
            assert_eq!(thread.join().expect("a case does not panic"), Ok(expected), "{case}");
        }
    });
}
