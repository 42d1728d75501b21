//! The bodies of the fuzz targets, on their committed corpora and on what a seeded generator makes.

use fulmar_sim::{Random, fuzz};
use std::fs;
use std::path::{Path, PathBuf};

type Target = (&'static str, fn(&[u8]));

/// Every target in `fuzz/fuzz_targets`, and its body.
const TARGETS: [Target; 6] = [
    ("hpack_decode", fuzz::hpack_decode),
    ("hpack_roundtrip", fuzz::hpack_roundtrip),
    ("http2_server_bytes", fuzz::http2_server_bytes),
    ("http2_client_bytes", fuzz::http2_client_bytes),
    ("pair_ops", fuzz::pair_ops),
    ("grpc_message", fuzz::grpc_message),
];

#[test]
fn the_committed_corpora_pass_and_so_do_their_prefixes() {
    for (target, body) in TARGETS {
        let corpus = committed_corpus(target);
        assert!(!corpus.is_empty(), "no corpus for {target}");
        for data in corpus {
            // Every one, of longer inputs about a hundred.
            let prefixes = (0..data.len()).step_by(1 + data.len() / 100);
            prefixes.chain([data.len()]).for_each(|length| body(&data[..length]));
        }
    }
}

#[test]
fn every_target_is_replayed() {
    let mut files: Vec<String> = fs::read_dir(fuzz_folder().join("fuzz_targets"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut names = TARGETS.map(|(name, _)| name);
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn any_bytes_pass() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let length = random.magnitude(600);
        let data: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
        let (_, body) = TARGETS[seed as usize % TARGETS.len()];
        body(&data);
    }
}

/// The inputs with names of their own. What a fuzzer has found here is named by 40 digits, and may be much.
fn committed_corpus(target: &str) -> Vec<Vec<u8>> {
    fs::read_dir(fuzz_folder().join("corpus").join(target))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.file_name().unwrap().len() != 40)
        .map(|path| fs::read(path).unwrap())
        .collect()
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}
