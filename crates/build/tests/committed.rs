//! Generated code that is kept under version control is what the generator makes today.

use std::fs;
use std::path::Path;

use fulmar_build::configure;

const PROTO: &str = "../../proto";

/// What the library itself needs: the messages of errors.
#[test]
fn code_of_google_rpc_in_the_library_is_fresh() {
    let protos = ["google/rpc/status.proto", "google/rpc/error_details.proto"];
    let generated = configure()
        .extern_path(".google.protobuf.Any", "crate::rpc::Any")
        .extern_path(".google.protobuf.Duration", "crate::rpc::Duration")
        .btree_map(&["."])
        .generate_to_string(&protos.map(|proto| Path::new(PROTO).join(proto)), &[PROTO])
        .expect("the files are right");
    assert_eq!(generated.keys().collect::<Vec<_>>(), ["google.rpc.rs"]);
    assert_committed("../fulmar/src/rpc/google.rpc.rs", &generated["google.rpc.rs"]);
}

/// `path` holds `code`. Fresh code is left where it can be taken from if not.
#[track_caller]
fn assert_committed(path: &str, code: &str) {
    if fs::read_to_string(path).unwrap_or_default() == code {
        return;
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fresh.rs");
    fs::write(&fresh, code).expect("the target folder is writable");
    panic!("{path} is not what is generated: look at {} and copy it there", fresh.display());
}
