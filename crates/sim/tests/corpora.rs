//! The bodies of the fuzz targets, on their committed corpora and on what a seeded generator makes.

use fulmar_sim::{Random, fuzz};
use std::fs;
use std::path::Path;

type Target = (&'static str, fn(&[u8]));

/// Every target in `fuzz/fuzz_targets`, and its body.
const TARGETS: [Target; 2] =
    [("hpack_decode", fuzz::hpack_decode), ("hpack_roundtrip", fuzz::hpack_roundtrip)];

#[test]
fn the_committed_corpora_pass() {
    let fuzz_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (target, body) in TARGETS {
        let mut inputs = 0;
        for file in fs::read_dir(fuzz_folder.join("corpus").join(target)).unwrap() {
            body(&fs::read(file.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "no corpus for {target}");
    }
}

#[test]
fn every_target_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut names = TARGETS.map(|(name, _)| name);
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn any_prefix_of_a_corpus_entry_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, body) in TARGETS {
        for file in fs::read_dir(corpus.join(target)).unwrap() {
            let data = fs::read(file.unwrap().path()).unwrap();
            // Long inputs come from a fuzzer that ran here; their prefixes would take too long.
            for length in 0..data.len().min(400) {
                body(&data[..length]);
            }
        }
    }
}

#[test]
fn any_bytes_pass() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let length = random.magnitude(600);
        let data: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
        TARGETS.iter().for_each(|(_, body)| body(&data));
    }
}
