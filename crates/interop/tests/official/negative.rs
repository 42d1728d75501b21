//! The negative HTTP/2 cases, our client against our servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

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

#[test]
fn a_stream_beyond_the_limit_is_refused_and_noted() {
    const HEADERS_BLOCK: [u8; 1] = [0x83]; // `:method: POST` (RFC 7541 Appendix A); the server looks no further
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let server = Http2Server::start(Case::MaxStreams, "127.0.0.1:0").expect("a free port");
    let mut socket = TcpStream::connect(server.address()).expect("the server accepts");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
    let script = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        // The limit comes with the second SETTINGS, and both are acknowledged.
        frame(4, 1, 0, &[]),
        frame(4, 1, 0, &[]),
        frame(1, 4, 1, &HEADERS_BLOCK),
        frame(1, 4, 3, &HEADERS_BLOCK),
    ];
    socket.write_all(&script.concat()).expect("the server reads");

    let refused = frame(3, 0, 3, &[0, 0, 0, 7]);
    let mut received = Vec::new();
    while !received.windows(refused.len()).any(|bytes| bytes == refused) {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("RST_STREAM with REFUSED_STREAM for the second stream");
        received.push(byte[0]);
    }
    assert_eq!(server.violations(), ["stream 3 was opened while another was open"]);
}
