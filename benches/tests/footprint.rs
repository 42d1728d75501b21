//! The program that measures memory runs, with few connections: its figures are not asserted.
#![cfg(target_os = "linux")]

use std::process::Command;

#[test]
fn footprint_prints_a_line_for_connections_and_one_for_streams() {
    let output = Command::new(env!("CARGO_BIN_EXE_footprint"))
        .args(["--connections", "50", "--streams", "1500"])
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    for what in ["| connection | ", "| stream | "] {
        assert!(text.contains(what), "{text}");
    }
}

#[test]
fn footprint_says_what_to_do_about_more_files_than_are_allowed() {
    let output = Command::new(env!("CARGO_BIN_EXE_footprint"))
        .args(["--connections", "4000000000000"])
        .output()
        .expect("the program starts");
    // A system without a limit would try; none that we know is one.
    let text = String::from_utf8(output.stderr).expect("it prints text");
    assert!(!output.status.success() && text.contains("ulimit"), "{text}");
}
