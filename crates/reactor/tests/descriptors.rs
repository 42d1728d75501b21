//! Running out of descriptors. The limit is that of a process, so this is the only test in its file.
#![cfg(target_os = "linux")]

mod support;

use std::io::Read;
use std::net::TcpStream;
use std::process::Command as Process;
use std::time::Duration;

use support::*;

/// Set in the process that has few descriptors.
const CHILD: &str = "FULMAR_FEW_DESCRIPTORS";

#[test]
fn a_listener_without_descriptors_rests_and_accepts_when_there_are_some() {
    if std::env::var_os(CHILD).is_some() {
        return with_few_descriptors();
    }
    let test = std::env::current_exe().expect("it has a path");
    let output = Process::new("sh")
        .args(["-c", "ulimit -n 40 && exec \"$0\" --test-threads=1"])
        .arg(test)
        .env(CHILD, "1")
        .output()
        .expect("there is a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn with_few_descriptors() {
    let mut reactor = toys();
    let address = listen(&mut reactor);
    // Clients take descriptors until there are none, and leave one for the first accept.
    let mut clients = Vec::new();
    while let Ok(client) = TcpStream::connect(address) {
        clients.push(client);
    }
    clients.pop();
    clients.pop();
    let mut turns = 0;
    let end = fulmar_reactor::clock() + Duration::from_millis(250);
    while fulmar_reactor::clock() < end {
        reactor.turn(Some(Duration::from_millis(50))).expect("turning works");
        turns += 1;
    }
    let accepted = reactor.host().accepted.len();
    assert!((1..clients.len()).contains(&accepted), "{accepted} of {}", clients.len());
    assert!(turns < 50, "it rests, and does not spin: {turns}");

    // Those that were accepted go, and the others get their turn.
    let mut last = clients.pop().expect("there is one");
    clients.clear();
    turn_until(&mut reactor, |reactor| reactor.host().accepted.len() > accepted + 10);
    write_all(&mut last, "hello\n");
    last.set_nonblocking(true).expect("it takes the mode");
    let mut echoed = [0; 6];
    turn_until(&mut reactor, |_| matches!(last.read(&mut echoed), Ok(6)));
    assert_eq!(&echoed, b"hello\n");
}
